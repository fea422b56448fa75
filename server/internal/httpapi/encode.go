package httpapi

import (
	"strconv"
	"time"

	"github.com/weirlimit/weir"
)

// appendDecision appends d as JSON and a newline. It is on the path of every
// check, so it uses no reflection and does not allocate. Names need no escaping:
// weir.NewPolicy lets only letters, digits and -_.:/ into them.
func appendDecision(b []byte, p *served, d weir.Decision) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"policy":"`...)
	b = append(b, p.policy.Name()...)
	b = append(b, `","limited_by":"`...)
	b = append(b, limitedBy(p, d)...)
	b = append(b, `","limit":`...)
	b = strconv.AppendInt(b, d.Limit, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, d.Remaining, 10)
	b = append(b, `,"retry_after_ms":`...)
	b = strconv.AppendInt(b, retryMillis(d), 10)
	b = append(b, `,"reset_after_ms":`...)
	b = strconv.AppendInt(b, millis(d.ResetAfter), 10)
	b = append(b, `,"reason":"`...)
	b = append(b, d.Reason.String()...)
	return append(b, "\"}\n"...)
}

// limitedBy names the limit that refused, "" if none did.
func limitedBy(p *served, d weir.Decision) string {
	if d.Allowed || int(d.By) >= len(p.limitNames) {
		return ""
	}
	return p.limitNames[d.By]
}

// retryMillis returns 0 for an admitted charge, else at least 1 or, for never,
// -1: a caller who waits 0 ms after a refusal would spin.
func retryMillis(d weir.Decision) int64 {
	if d.Allowed {
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
