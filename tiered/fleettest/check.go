package fleettest

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// What tiered does by itself, as its documentation tells.
const (
	probeEvery   = 250 * time.Millisecond
	probeJitter  = 4 // a quarter more or less
	debitTimeout = time.Second
	answerTime   = 5 * time.Millisecond // what callers with a deadline keep
)

// Check compares what happened with what package tiered promises, and returns all that
// is wrong. The package comment lists the promises.
func Check(s Scenario, r Result) (problems []error) {
	c := &checker{s: s.withDefaults(), r: r}
	c.row = c.inARow()
	c.calls()
	c.stats()
	for k := range c.s.Keys {
		c.key(string(rune('a' + k)))
	}
	c.debts()
	c.recovery()
	c.use()
	return c.problems
}

type checker struct {
	s        Scenario
	r        Result
	row      time.Duration // inARow
	problems []error
}

// wrong notes a problem, so many of a kind at most.
func (c *checker) wrong(format string, args ...any) {
	const most = 20
	if len(c.problems) < most {
		c.problems = append(c.problems, fmt.Errorf(format, args...))
	}
}

// calls checks that every call was decided, and in time.
func (c *checker) calls() {
	most := c.s.Timeout
	if d := c.s.Deadline; d > 0 {
		most = min(most, d)
	}
	for _, call := range c.r.Calls {
		if call.Err != nil {
			c.wrong("a call failed: %v", call)
		}
		if took := call.End - call.Start; took > most+time.Microsecond {
			c.wrong("a call took %v, more than %v: %v", took, most, call)
		}
		switch {
		case c.s.OnError != weir.FailLocal && call.By == ByShare:
			c.wrong("limits that fail %v have no shares: %v", c.s.OnError, call)
		case c.s.OnError != weir.FailOpen && call.By == ByNobody:
			c.wrong("admitted by nobody: %v", call)
		}
	}
}

// stats checks that all decisions were counted.
func (c *checker) stats() {
	calls := make([]int64, c.s.Nodes)
	for _, call := range c.r.Calls {
		if call.Err == nil {
			calls[call.Node]++
		}
	}
	for i, n := range calls {
		if c.crashed(i) {
			continue // nobody was told of its last decisions
		}
		if got := c.r.Stats[i].Decisions(); got != n {
			c.wrong("node %d made %d decisions and counted %d: %+v", i, n, got, c.r.Stats[i])
		}
	}
}

func (c *checker) crashed(node int) bool {
	for _, crash := range c.s.Crashes {
		if crash.Node == node {
			return true
		}
	}
	return false
}

// key checks the bounds of one key.
func (c *checker) key(key string) {
	rate, burst := c.rate(), c.burst()
	var known, all []Grant
	shares := make([][]Grant, c.s.Nodes)
	for _, g := range c.r.Grants(key) {
		switch g.By {
		case ByNobody:
			continue // without a bound
		case ByShare:
			shares[g.Node] = append(shares[g.Node], g)
		default:
			known = append(known, g)
		}
		all = append(all, g)
	}
	drift := 1 + 2e-4
	for i, list := range shares {
		c.bound(key, fmt.Sprintf("node %d's share", i), excess(list, c.shareBurst(), c.shareRate()*drift), c.resets()*c.shareBurst())
	}
	allowed := c.forgiven(key) + c.unknown(key) + c.resets()*burst + (1+c.resets())*c.overshoot(key) + rate*(2e-9+c.blur(key).Seconds())
	c.bound(key, "what the store knew of", excess(known, burst, rate), allowed)
	if c.s.OnError == weir.FailLocal && c.troubled() {
		allowed += c.local() + c.lostDebts(key)
	}
	c.bound(key, "all", excess(all, burst, rate), allowed)
}

// blur is how much earlier than its end a batch may have had units that the node decided on.
func (c *checker) blur(key string) (longest time.Duration) {
	if c.s.Batches == 0 {
		return 0
	}
	for _, call := range c.r.Calls {
		if call.Key == key && call.By == ByNode && call.Decision.Allowed {
			longest = max(longest, call.End-call.Start)
		}
	}
	return longest
}

func (c *checker) bound(key, what string, got, allowed float64) {
	const rounding = 1e-3
	if got > allowed+rounding {
		c.wrong("key %s: %s exceeds the limit by %.3f units, more than %.3f", key, what, got, allowed)
	}
}

// rate and burst are of the largest limit that was in force.
func (c *checker) rate() float64  { return c.s.rate() * c.raised() }
func (c *checker) burst() float64 { return float64(c.s.Limit.Burst) * c.raised() }

func (c *checker) raised() float64 {
	for _, change := range c.s.Changes {
		if change.Set {
			return 2
		}
	}
	return 1
}

func (c *checker) resets() (n float64) {
	for _, change := range c.s.Changes {
		if !change.Set {
			n++
		}
	}
	return n
}

// shareBurst and shareRate are what a node admits by itself.
func (c *checker) shareBurst() float64 {
	return max(1, math.Floor(c.burst()/float64(c.s.counted())))
}
func (c *checker) shareRate() float64 { return c.rate() / float64(c.s.counted()) }

// troubled says whether calls may have gone without an answer.
func (c *checker) troubled() bool { return c.lossy() || len(c.s.Outages) > 0 }

// lossy says whether an answer may be lost, or come too late.
func (c *checker) lossy() bool {
	time := c.s.Timeout // for all calls to the store that a decision takes
	if d := c.s.Deadline; d > 0 {
		time = min(time, max(d-answerTime, d/2))
	}
	return c.s.lossy() || 2*c.s.Latency.Max*c.row >= time
}

// inARow is how many calls to the store, one after the other, a decision may take: for
// a lease that does not fit, or for the turns of others, and for the charge. In Async mode the
// store is told after each MaxUnsynced units.
func (c *checker) inARow() time.Duration {
	switch c.s.Mode {
	case tiered.Leased:
		return 2
	case tiered.Async:
		most := 0.0
		for node := range c.s.Nodes {
			for k := range c.s.Keys {
				most = max(most, c.demand(node, string(rune('a'+k)), c.s.Timeout))
			}
		}
		return time.Duration(max(4, 3+most/float64(c.s.MaxUnsynced)))
	}
	return 1
}

// notice is how long after the store is back a node usually notices, and has told it
// what it owes.
func (c *checker) notice() time.Duration {
	return probeEvery + probeEvery/probeJitter + 4*c.s.Timeout + c.s.FlushEvery
}

// stagger is how long after the store is back the last node has noticed, if answers
// hang or are lost.
func (c *checker) stagger() time.Duration {
	w := c.notice()
	for _, o := range c.s.Outages {
		if o.Kind != Refuse {
			w = max(w, debitTimeout+probeEvery)
		}
	}
	if c.lossy() {
		w += 2 * debitTimeout
	}
	return w
}

// local is what all shares together may admit beyond the limit: a burst, another that
// the store has while the last node has yet to notice that it is back, or what that
// node admits meanwhile if it is more; and what a wrong count and partitions add.
func (c *checker) local() float64 {
	n := float64(c.s.Nodes)
	e := n*c.shareBurst() + max(c.burst(), n*c.shareRate()*c.notice().Seconds())
	longest, alone := time.Duration(0), time.Duration(0)
	for _, o := range c.s.Outages {
		longest = max(longest, o.To-o.From)
		if o.Node >= 0 {
			alone += o.To - o.From
		}
	}
	over := max(0, n*c.shareRate()-c.rate())
	return e + over*(longest+c.notice()).Seconds() + c.shareRate()*alone.Seconds()
}

// forgiven is what failovers may have forgiven of a key.
func (c *checker) forgiven(key string) (sum float64) {
	for _, o := range c.s.Failovers {
		charged, debited := 0.0, false
		for _, op := range c.r.Ops {
			if op.Key != key || op.Lost || op.At < o.At-o.Lag || op.At > o.At {
				continue
			}
			switch op.Op {
			case weir.TakeEach, weir.TakeAll, weir.ReserveAll:
				if op.Allowed {
					charged += float64(op.Units)
				}
			case weir.DebitEach:
				charged += float64(op.Units)
				debited = debited || op.Units > 0
			}
		}
		if !debited {
			charged = min(charged, c.burst())
		}
		sum += charged + min(c.burst(), c.rate()*o.Ahead.Seconds())
	}
	return sum
}

// unknown is what shares have admitted of charges whose fate nobody knows: they are not
// told, lest somebody be charged twice.
func (c *checker) unknown(key string) (sum float64) {
	if !c.troubled() {
		return 0
	}
	for _, call := range c.r.Calls {
		if (key == "" || call.Key == key) && call.By == ByShare && call.Decision.Allowed && call.End > call.Start {
			sum += float64(call.Cost)
		}
	}
	return sum
}

// lostDebts is what nodes have admitted by themselves and do not know the store to know.
func (c *checker) lostDebts(key string) (sum float64) {
	for _, op := range c.r.Ops {
		if op.Key == key && !op.Answered && op.Op == weir.DebitEach {
			sum += float64(op.Units)
		}
	}
	for i := range c.s.Nodes {
		if c.crashed(i) {
			sum += max(0, c.owed(i, key))
		}
	}
	return sum
}

// owed is what a node has admitted by itself and never tried to tell the store.
func (c *checker) owed(node int, key string) (sum float64) {
	for _, call := range c.r.Calls {
		own := call.By == ByShare || c.s.Mode == tiered.Async && call.By == ByNode
		if call.Node == node && (key == "" || call.Key == key) && call.Err == nil && call.Decision.Allowed && own {
			sum += float64(call.Cost)
		}
	}
	for _, op := range c.r.Ops {
		if op.Node == node && (key == "" || op.Key == key) && op.Op == weir.DebitEach {
			sum -= float64(op.Units)
		}
	}
	return sum
}

// debts checks that the store was told once of everything that nodes admitted by
// themselves.
func (c *checker) debts() {
	if c.resets() > 0 {
		return // they are forgotten
	}
	for i := range c.s.Nodes {
		if c.crashed(i) {
			continue
		}
		left := c.owed(i, "") - float64(c.r.Stats[i].Owed) - float64(c.r.Stats[i].Forgiven)
		if left > c.paid()+c.unknown("")+1e-9 || left < -1e-9 {
			c.wrong("node %d has admitted %.0f units by itself that the store was never told, %.0f of them paid for by the rate (negative: told twice): %+v", i, left, c.paid(), c.r.Stats[i])
		}
	}
}

// paid is how many units of a node's share were paid for by the rate while the store was
// away, or seemed to be, so that it need not be told.
func (c *checker) paid() (sum float64) {
	if c.lossy() {
		return c.shareRate() * c.s.Length.Seconds() * float64(c.s.Keys)
	}
	for _, o := range c.s.Outages {
		sum += c.shareRate() * (o.To - o.From + c.stagger()).Seconds() * float64(c.s.Keys)
	}
	return sum
}

// recovery checks that nodes notice when the store is back.
func (c *checker) recovery() {
	if c.lossy() || len(c.s.Outages) == 0 {
		return
	}
	back := time.Duration(0)
	for _, o := range c.s.Outages {
		back = max(back, o.To)
	}
	back += c.stagger()
	for _, call := range c.r.Calls {
		alone := call.By == ByShare || call.By == ByNobody || call.Decision.Reason == weir.StoreDown
		if call.Start > back && alone {
			c.wrong("the store is back since %v, and is not asked: %v", back, call)
		}
	}
	for i, st := range c.r.Before {
		if !c.crashed(i) && st.Open > 0 {
			c.wrong("node %d has given up a store that is back: %+v", i, st)
		}
	}
}
