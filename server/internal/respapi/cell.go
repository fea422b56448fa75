package respapi

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/resp"
)

// throttle answers CL.THROTTLE.
func (c *conn) throttle(args [][]byte) {
	if len(args) != 5 && len(args) != 6 {
		c.fail("ERR Usage: CL.THROTTLE <key> <max_burst> <count> <period> [<quantity>]")
		return
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[2:] {
		n, ok := parseInt(arg)
		if !ok {
			c.fail("ERR Couldn't parse as integer: " + clip(arg))
			return
		}
		numbers[i] = n
	}
	n := Numbers{Burst: numbers[0] + 1, Count: numbers[1], Period: numbers[2]}
	switch {
	case numbers[0] < 0 || numbers[3] < 0:
		c.fail("ERR max_burst and quantity must not be negative")
		return
	case n.Burst < 0: // it wrapped
		c.fail("ERR max_burst is too great")
		return
	}
	c.gatherAsk(Ask{Key: args[1], Numbers: n, Quantity: numbers[3]})
	if !c.in.Partial() {
		c.decideBatch()
	}
}

// appendThrottled appends what redis-cell replies: limited, limit, remaining, retry_s,
// reset_s.
func appendThrottled(b []byte, d *weir.Decision) []byte {
	limited, retry := int64(0), int64(-1)
	if !d.Allowed {
		limited, retry = 1, roundUp(d.RetryAfter, time.Second)
	}
	b = resp.AppendInt(resp.AppendArray(b, 5), limited)
	b = resp.AppendInt(resp.AppendInt(b, d.Limit), d.Remaining)
	return resp.AppendInt(resp.AppendInt(b, retry), roundUp(d.ResetAfter, time.Second))
}
