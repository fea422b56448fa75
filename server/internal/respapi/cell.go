package respapi

import (
	"strconv"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/ruleset"
)

// throttleName is the name of the policy under which decisions of CL.THROTTLE are reported.
const throttleName = "cl.throttle"

// throttleSeen is that policy. Its limit is a placeholder for the parameters of calls, and not
// used for decisions.
var throttleSeen = compileSeen()

func compileSeen() *ruleset.Variant {
	rules, err := ruleset.Compile([]ruleset.Policy{{
		Name: throttleName, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Second)}}},
	}}, nil)
	if err != nil {
		panic("respapi: " + err.Error()) // impossible: the policy above is valid
	}
	return rules.All()[0].Base()
}

// throttle answers CL.THROTTLE.
func (c *conn) throttle(args [][]byte) {
	if len(args) != 5 && len(args) != 6 {
		c.fail("ERR Usage: CL.THROTTLE <key> <max_burst> <count> <period> [<quantity>]")
		return
	}
	params := [4]int64{3: 1}
	for i, arg := range args[2:] {
		n, ok := parseInt(arg)
		if !ok {
			c.fail("ERR Couldn't parse as integer: " + clip(arg))
			return
		}
		params[i] = n
	}
	n := Params{Burst: params[0] + 1, Count: params[1], Period: params[2]}
	switch {
	case params[0] < 0 || params[3] < 0:
		c.fail("ERR max_burst and quantity must not be negative")
		return
	case n.Burst < 0: // it overflowed
		c.fail("ERR max_burst is too great")
		return
	case params[3] > weir.MaxCost && params[3] <= n.Burst: // a shared store refuses it, so a table does, too
		c.fail("ERR quantity " + clip(args[5]) + ": one call takes at most " + strconv.FormatInt(weir.MaxCost, 10))
		return
	}
	c.enqueueThrottle(args[1], n, params[3])
	if !c.in.Partial() {
		c.decideBatch()
	}
}

// appendThrottled appends the reply of redis-cell: limited, limit, remaining, retry_s, reset_s.
// The limit is that of the call; the decision's may be less while a shared store is unavailable.
func appendThrottled(b []byte, limit int64, d *weir.Decision) []byte {
	limited, retry := int64(0), int64(-1)
	if !d.Allowed {
		limited, retry = 1, roundUp(d.RetryAfter, time.Second)
	}
	b = resp.AppendInt(resp.AppendArray(b, 5), limited)
	b = resp.AppendInt(resp.AppendInt(b, limit), d.Remaining)
	return resp.AppendInt(resp.AppendInt(b, retry), roundUp(d.ResetAfter, time.Second))
}

// observeThrottled reports the decisions to the observers. Plain ones are only counted, unless
// an observer needs each.
func (c *conn) observeThrottled(requests []ThrottleRequest) {
	if took := c.tookEach(len(requests)); took != ruleset.Untimed {
		c.observeRequest(&requests[0], took)
		requests = requests[1:]
	}
	plain := 0
	for i := range requests {
		if requests[i].isPlain() {
			plain++
		}
	}
	each := plain > 0 && !c.srv.cfg.ObserveAdmitted(throttleSeen, plain)
	if plain == len(requests) && !each {
		return
	}
	for i := range requests {
		if each || !requests[i].isPlain() {
			c.observeRequest(&requests[i], ruleset.Untimed)
		}
	}
}

// isPlain reports whether at least one unit was requested and admitted.
func (a *ThrottleRequest) isPlain() bool {
	return a.Err == nil && a.Decision.Allowed && a.Decision.Reason == weir.Admitted && a.Quantity > 0
}

// observeRequest reports a decision, if one was made. Observers do not retain keys, so the record's key
// refers to the memory of the command.
func (c *conn) observeRequest(a *ThrottleRequest, took time.Duration) {
	if a.Err != nil {
		return
	}
	c.record = ruleset.Record{
		Verdict: ruleset.Verdict{Decision: a.Decision, Variant: throttleSeen, Limit: -1, Shadow: -1},
		Key:     unsafe.String(unsafe.SliceData(a.Key), len(a.Key)), Cost: a.Quantity, Client: c.clientName(), Peek: a.Quantity == 0, Took: took,
	}
	c.srv.cfg.Observe(&c.record)
}
