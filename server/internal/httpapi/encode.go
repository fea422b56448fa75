package httpapi

import (
	"fmt"
	"strconv"

	"github.com/weirlimit/weir/ruleset"
)

// appendDecision appends a verdict as JSON, without the closing brace. It is on the path
// of every check, so it uses no reflection and does not allocate. Names need no
// escaping: ruleset.Compile lets only letters, digits and -_. into them.
func appendDecision(b []byte, v *ruleset.Verdict) []byte {
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
	b = strconv.AppendInt(b, v.RetryMillis(), 10)
	b = append(b, `,"reset_after_ms":`...)
	b = strconv.AppendInt(b, ruleset.Millis(v.ResetAfter), 10)
	b = append(b, `,"reason":"`...)
	b = append(b, v.Reason.String()...)
	b = append(b, '"')
	if v.Waited > 0 {
		b = append(b, `,"delay_ms":`...)
		b = strconv.AppendInt(b, ruleset.Millis(v.Waited), 10)
	}
	return b
}

// appendShadow appends the refusals of limits in shadow. Few callers ask for them.
func appendShadow(b []byte, v *ruleset.Verdict) []byte {
	b = append(b, `,"shadow":[`...)
	for i, r := range v.ShadowRefusals {
		if i > 0 {
			b = append(b, ',')
		}
		name := ""
		if r.Limit >= 0 {
			name = v.Variant.LimitName(r.Limit)
		}
		b = fmt.Appendf(b, `{"limited_by":"%s","limit":%d,"remaining":%d,"retry_after_ms":%d}`, name, r.Decision.Limit, r.Remaining, ruleset.Millis(r.RetryAfter))
	}
	return append(b, ']')
}
