package ruleset

import (
	"time"

	"github.com/weirlimit/weir"
)

// Millis returns a duration in milliseconds, as in replies: rounded up, so that waiting that long
// is never too short. Never is -1.
func Millis(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// RetryMillis returns RetryAfter in milliseconds: 0 for a charge that was admitted or would
// have been, else at least 1 or, for never, -1. A caller that waits 0 ms after a refusal would
// spin.
func (v *Verdict) RetryMillis() int64 {
	if v.Allowed || v.Reason == weir.NotCharged {
		return 0
	}
	if ms := Millis(v.RetryAfter); ms != 0 {
		return ms
	}
	return 1
}
