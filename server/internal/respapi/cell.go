package respapi

import (
	"strconv"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/resp"
)

// throttleName is the policy that decisions of CL.THROTTLE are reported under.
const throttleName = "cl.throttle"

// throttleSeen is that policy. Its limit stands for those that calls bring, and decides
// nothing.
var throttleSeen = compileSeen()

func compileSeen() *guard.Variant {
	rules, err := guard.Compile([]guard.Policy{{
		Name: throttleName, Limits: []guard.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Second)}}},
	}}, nil)
	if err != nil {
		panic("respapi: " + err.Error()) // all of it stands above
	}
	return rules.All()[0].Base()
}

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
	case numbers[3] > weir.MaxCost && numbers[3] <= n.Burst: // a shared store could not carry it, and a table is no different
		c.fail("ERR quantity " + clip(args[5]) + ": one call takes at most " + strconv.FormatInt(weir.MaxCost, 10))
		return
	}
	c.gatherAsk(args[1], n, numbers[3])
	if !c.in.Partial() {
		c.decideBatch()
	}
}

// appendThrottled appends what redis-cell replies: limited, limit, remaining, retry_s,
// reset_s. The limit is what the call said; who decides while a shared store is away may have
// less.
func appendThrottled(b []byte, limit int64, d *weir.Decision) []byte {
	limited, retry := int64(0), int64(-1)
	if !d.Allowed {
		limited, retry = 1, roundUp(d.RetryAfter, time.Second)
	}
	b = resp.AppendInt(resp.AppendArray(b, 5), limited)
	b = resp.AppendInt(resp.AppendInt(b, limit), d.Remaining)
	return resp.AppendInt(resp.AppendInt(b, retry), roundUp(d.ResetAfter, time.Second))
}

// tellThrottled reports the decisions to those who watch. Those that only count are reported
// together, unless somebody wants to see each.
func (c *conn) tellThrottled(asks []Ask) {
	if took := c.tookEach(len(asks)); took != guard.Untimed {
		c.tellAsk(&asks[0], took)
		asks = asks[1:]
	}
	plain := 0
	for i := range asks {
		if asks[i].isPlain() {
			plain++
		}
	}
	each := plain > 0 && !c.srv.cfg.ObserveAdmitted(throttleSeen, plain)
	if plain == len(asks) && !each {
		return
	}
	for i := range asks {
		if each || !asks[i].isPlain() {
			c.tellAsk(&asks[i], guard.Untimed)
		}
	}
}

// isPlain says whether something was asked for and admitted.
func (a *Ask) isPlain() bool {
	return a.Err == nil && a.Decision.Allowed && a.Decision.Reason == weir.Admitted && a.Quantity > 0
}

// tellAsk reports a decision, if one was made. Observers do not keep keys, so the record's is
// the memory of the command.
func (c *conn) tellAsk(a *Ask, took time.Duration) {
	if a.Err != nil {
		return
	}
	c.record = guard.Record{
		Verdict: guard.Verdict{Decision: a.Decision, Variant: throttleSeen, Limit: -1, Shadow: -1},
		Key:     unsafe.String(unsafe.SliceData(a.Key), len(a.Key)), Cost: a.Quantity, Client: c.clientName(), Peek: a.Quantity == 0, Took: took,
	}
	c.srv.cfg.Observe(&c.record)
}
