package ruleset

import "time"

// Record is a decision with its request, for observers.
type Record struct {
	Verdict
	Key    string
	Cost   int64 // in requests
	Client string
	Class  string // that was charged, "" if the policy has none
	Peek   bool
	At     time.Time     // set for observers that see the record later
	Took   time.Duration // the duration of the decision, without waiting for capacity; or Untimed

	// LimitName is the name of the limit that refused, if it is not one of Variant's.
	LimitName string
}

// LimitedBy returns the name of the limit that refused, "" if none did.
func (r *Record) LimitedBy() string {
	if r.LimitName != "" {
		return r.LimitName
	}
	return r.Verdict.LimitedBy()
}

// Untimed is the Took of a decision that was not timed.
const Untimed time.Duration = -1
