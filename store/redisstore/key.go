package redisstore

import "strings"

// Keys in Redis, for the prefix "weir:", the policy "api" and the subject "alice":
//
//	weir:{api:alice}            the row of one subject under one policy
//	weir:{api:alice}:expiries   its reservations by expiry, if there are any: a sorted set
//	weir:{api:alice}:holds      the state of each reservation: a hash
//	weir:set:{api}              the history of that policy's limits
//	weir:epoch                  when the limiter was first started
//
// All keys of a decision have one hash tag, so they are on one node of a cluster.
// Braces in subjects are escaped, so that users cannot choose the slot; so are the
// escape character and, in a policy's name, the colon, so that no two pairs share a row.

var (
	inPolicy  = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", ":", "%3A")
	inSubject = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
)

// rowPrefix returns the prefix of the keys of a policy's rows.
func (s *Store) rowPrefix(policy string) string {
	return s.prefix + "{" + inPolicy.Replace(policy) + ":"
}

// rowKey returns the key of a subject's row. It shares no memory with subject.
func rowKey(prefix, subject string) string { return string(appendRowKey(nil, prefix, subject)) }

func appendRowKey(b []byte, prefix, subject string) []byte {
	if isSpecial(subject) {
		subject = inSubject.Replace(subject)
	}
	return append(append(append(b, prefix...), subject...), '}')
}

// expiriesKey returns the key of a row's reservations by expiry.
func expiriesKey(row string) string { return row + ":expiries" }

// holdsKey returns the key of a row's reservations by id.
func holdsKey(row string) string { return row + ":holds" }

// isSpecial says whether a subject must be escaped.
func isSpecial(subject string) bool {
	for i := range len(subject) {
		if c := subject[i]; c == '%' || c == '{' || c == '}' {
			return true
		}
	}
	return false
}

// setKeys returns the prefix of the keys of all records.
func (s *Store) setKeys() string { return s.prefix + "set:" }

func (s *Store) setKey(policy string) string {
	return s.setKeys() + "{" + inPolicy.Replace(policy) + "}"
}

func (s *Store) epochKey() string { return s.prefix + "epoch" }
