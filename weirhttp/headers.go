package weirhttp

import (
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
)

// The names of the fields as http.Header stores them: with capitals after hyphens
// only. Under any other spelling Get and Set do not find them.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldRateLimit  = "Ratelimit"
	fieldRetryAfter = "Retry-After"
)

// SetHeaders sets the header fields of a decision: the limits, the status of the one at
// index by (usually d.By), and on a refusal when to retry. It sets RateLimit-Policy,
// RateLimit and Retry-After; the package comment says when one of them is left out.
// Call it before the status is written.
//
// The slice under RateLimit-Policy is shared by all responses. Set, Add and Del are
// fine; do not write to its element.
func SetHeaders(h http.Header, quotas Quotas, by int, d weir.Decision) {
	var f fields
	var room [fieldsRoom]byte
	f.set(h, f.decision(h, room[:0], quotas, by, d))
}

// decision sets RateLimit-Policy, and appends the values of the other fields to text.
func (f *fields) decision(h http.Header, text []byte, quotas Quotas, by int, d weir.Decision) []byte {
	if quotas.policy != nil {
		h[fieldPolicy] = quotas.policy
	}
	if quotas.Shows(by) && counted(d) {
		text = f.ends(fieldRateLimit, quotas.list[by].appendStatus(text, d))
	}
	if s, ok := retrySeconds(d); ok {
		text = f.ends(fieldRetryAfter, appendNumber(text, s))
	}
	return text
}

// appendStatus appends the value of RateLimit.
func (q Quota) appendStatus(b []byte, d weir.Decision) []byte {
	b = append(b, q.member...)
	b = appendNumber(b, d.Remaining)
	if t, ok := q.untilMore(d); ok {
		b = append(b, ";t="...)
		b = appendNumber(b, t)
	}
	return b
}

// untilMore returns the seconds until more can be taken, if that has to be waited
// for. After the last unit of a window was given out it is the window's end. Of GCRA
// more is known. It is as if unused when all of its burst is back, and before that
// time the units came back one by one:
//
//	next unit = ResetAfter − (burst − 1) × per / rate
//
// For example, 1000 units at 1 per second are reset after 16m40s, but the next one
// comes after 1 s.
func (q Quota) untilMore(d weir.Decision) (seconds int64, ok bool) {
	switch {
	case !d.Allowed:
		return retrySeconds(d)
	case d.Remaining > 0 || d.ResetAfter == weir.Never || d.Held: // what is reserved may come back at any moment
		return 0, false
	}
	return max(1, seconds64(d.ResetAfter-q.rest)), true
}

// retrySeconds returns what Retry-After says, if waiting helps.
func retrySeconds(d weir.Decision) (seconds int64, ok bool) {
	if d.Allowed || d.RetryAfter == weir.Never {
		return 0, false
	}
	return max(1, seconds64(d.RetryAfter)), true
}

// counted reports whether the decision has the limit's status. Every limit admits
// something, so a Limit of 0 means that there is none: the store was unavailable, or
// the key is blocked.
func counted(d weir.Decision) bool { return d.Limit > 0 }

// seconds64 rounds up to seconds. Negative durations are 0.
func seconds64(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// fields collects header fields, the values of which are gathered in one text. However
// many there are, they take one allocation: a block with the text and the slices.
//
// The values are strings that share the block's memory (unsafe.String). That is sound
// because a block belongs to one response: its bytes are written before a string is made
// of them and never again, and no block is used twice. The garbage collector frees it
// when the last of the strings is gone.
type fields struct {
	names [maxFields]string
	end   [maxFields]int // where in the text each value ends
	n     int
}

const (
	maxFields  = 4   // of LegacyGitHub
	fieldsRoom = 320 // the longest name of a limit, 257, and three numbers
)

// smallBlock has room for the fields of most decisions, largeBlock for those of all.
type (
	smallBlock struct {
		values [2]string
		text   [64]byte
	}
	largeBlock struct {
		values [maxFields]string
		text   [fieldsRoom]byte
	}
)

// ends returns text, the end of which is the value of a field.
func (f *fields) ends(name string, text []byte) []byte {
	f.names[f.n], f.end[f.n] = name, len(text)
	f.n++
	return text
}

// set sets the fields in h. The text, which may be on the caller's stack, is copied.
func (f *fields) set(h http.Header, text []byte) {
	if f.n == 0 {
		return
	}
	if b := (smallBlock{}); f.n <= len(b.values) && len(text) <= len(b.text) {
		b := new(smallBlock)
		f.put(h, b.values[:], append(b.text[:0], text...), 0)
		return
	}
	b := new(largeBlock)
	f.put(h, b.values[:], append(b.text[:0], text...), 0)
}

// put sets the fields in h. The first value begins at from in text, which nobody may
// write to any more. Each field has a slice without room, so that none can grow into
// the next.
func (f *fields) put(h http.Header, values []string, text []byte, from int) {
	for i, end := range f.end[:f.n] {
		values[i] = textString(text[from:end])
		h[f.names[i]] = values[i : i+1 : i+1]
		from = end
	}
}

// textString returns b, which nobody may write to any more, as a string.
func textString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// maxInteger is the greatest Integer of a structured field: 15 digits.
const maxInteger = 999_999_999_999_999

// clamp returns n as fields can have it.
func clamp(n int64) int64 { return min(max(n, 0), maxInteger) }

// appendNumber appends n as fields can have it.
func appendNumber(b []byte, n int64) []byte { return strconv.AppendInt(b, clamp(n), 10) }

// appendString appends s as a String of a structured field: quoted, quotes and
// backslashes escaped. Bytes that such a String cannot hold become question marks.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
