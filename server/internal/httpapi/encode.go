package httpapi

import (
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
)

// appendDecision appends a verdict as JSON, without the closing brace. It is on the path
// of every check, so it uses no reflection and does not allocate. Names need no
// escaping: guard.Compile lets only letters, digits and -_. into them.
func appendDecision(b []byte, v *guard.Verdict) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, v.Allowed)
	b = append(b, `,"policy":"`...)
	b = append(b, v.Policy()...)
	b = append(b, `","limited_by":"`...)
	b = append(b, v.LimitedBy()...)
	b = append(b, `","limit":`...)
	b = strconv.AppendInt(b, v.Decision.Limit, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, v.Remaining, 10)
	b = append(b, `,"retry_after_ms":`...)
	b = strconv.AppendInt(b, retryMillis(v.Decision), 10)
	b = append(b, `,"reset_after_ms":`...)
	b = strconv.AppendInt(b, millis(v.ResetAfter), 10)
	b = append(b, `,"reason":"`...)
	b = append(b, v.Reason.String()...)
	b = append(b, '"')
	if v.Waited > 0 {
		b = append(b, `,"delay_ms":`...)
		b = strconv.AppendInt(b, millis(v.Waited), 10)
	}
	return b
}

// retryMillis returns 0 for a charge that was admitted or would have been, else at least 1
// or, for never, -1: a caller who waits 0 ms after a refusal would spin.
func retryMillis(d weir.Decision) int64 {
	if d.Allowed || d.Reason == weir.Admitted {
		return 0
	}
	ms := millis(d.RetryAfter)
	if ms == 0 {
		return 1
	}
	return ms
}

// millis rounds up, so that waiting that long is never too short. Never is -1.
func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

func millisecond(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
