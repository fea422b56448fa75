package ruleset

import "time"

// Record is a decision with its request, for observers.
type Record struct {
	Verdict
	Key    string
	Cost   int64 // in requests
	Client string
	Peek   bool
	At     time.Time     // set for observers that see the record later
	Took   time.Duration // the duration of the decision, without waiting for capacity; or Untimed
}

// Untimed is the Took of a decision that was not timed.
const Untimed time.Duration = -1
