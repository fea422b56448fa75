package guard

import "time"

// Record is a decision with what led to it, for those who watch.
type Record struct {
	Verdict
	Key    string
	Cost   int64 // in requests
	Client string
	Peek   bool
	At     time.Time     // set for those who see it later
	Took   time.Duration // to decide, without waiting for a turn; or Untimed
}

// Untimed is the Took of a decision that was not timed.
const Untimed time.Duration = -1
