package measure

import (
	"time"

	"github.com/weirlimit/weir"
)

// Op is one finished operation.
type Op struct {
	Scheduled weir.Instant // when it was due
	Started   weir.Instant // when a worker began it
	Ended     weir.Instant // when the answer was there, or the failure
	OK        bool
	Code      string // what came of it: "200", "503", "timeout"; few different ones
	Bytes     int    // of the answer
}

// service returns how long it took.
func (op Op) service() time.Duration { return max(0, op.Ended.Sub(op.Started)) }

// wait returns how long after its time it began. One that began early did not wait.
func (op Op) wait() time.Duration { return max(0, op.Started.Sub(op.Scheduled)) }

// response returns the time from when it was due to when it ended.
func (op Op) response() time.Duration { return op.service() + op.wait() }
