package fleettest

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// Constants of package tiered, as documented there.
const (
	probeEvery   = 250 * time.Millisecond
	probeJitter  = 4 // a quarter more or less
	flushTimeout = time.Second
	answerTime   = 5 * time.Millisecond // time left until a caller's deadline
)

// Check checks a result against the guarantees of package tiered, which the package comment lists,
// and returns all violations.
func Check(s Scenario, r Result) (problems []error) {
	c := newChecker(s, r)
	c.calls()
	c.stats()
	for k := range c.s.Keys {
		for i := range c.limits {
			c.key(keyName(k), i)
		}
	}
	c.flushed()
	c.promptness()
	c.recovery()
	c.use()
	return c.problems
}

type checker struct {
	s        Scenario
	r        Result
	limits   []measure // each the largest that was in force
	b        float64   // maximum of unsynced units of a key on a node
	problems []error
}

func newChecker(s Scenario, r Result) *checker {
	c := &checker{s: s.withDefaults(), r: r, b: float64(s.MaxUnsynced)}
	for _, l := range r.Policy.Limits() {
		c.limits = append(c.limits, c.s.measureOf(l, c.raised()))
	}
	if c.b == 0 {
		c.b = max(1, float64(int64(float64(r.Policy.Capacity())*c.raised())/int64(10*c.s.counted())))
	}
	return c
}

// wrong records a problem, up to a maximum.
func (c *checker) wrong(format string, args ...any) {
	const most = 20
	if len(c.problems) < most {
		c.problems = append(c.problems, fmt.Errorf(format, args...))
	}
}

// calls checks that every call was decided, and in time.
func (c *checker) calls() {
	most := c.s.Timeout
	if c.s.Mode == tiered.Async {
		most *= c.roundTrips() // the store may hang in each
	}
	if d := c.s.Deadline; d > 0 {
		most = min(most, d)
	}
	if c.healthy() {
		most = min(most, c.roundTrips()*c.roundTrip())
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
			c.wrong("admitted by a policy that does not fail open: %v", call)
		case c.s.Mode == tiered.Exact && call.By == ByNode && call.grants():
			c.wrong("admitted without the store: %v", call)
		case c.healthy() && (call.By == ByShare || call.Decision.Reason == weir.StoreDown):
			c.wrong("the store is healthy, and was not called: %v", call)
		}
	}
}

// roundTrip returns the longest round trip to the store.
func (c *checker) roundTrip() time.Duration { return 2 * c.s.Latency.Max }

// roundTrips returns the maximum of consecutive store calls that a decision waits for: one for a
// lease that does not fit, or the call of another caller for the same key, and its own.
func (c *checker) roundTrips() time.Duration {
	if c.s.Mode == tiered.Exact {
		return 1
	}
	return 2
}

// stats checks that all decisions were counted, and no others. A Peek may be.
func (c *checker) stats() {
	calls, peeks := make([]int64, c.s.Nodes), make([]int64, c.s.Nodes)
	for _, call := range c.r.Calls {
		switch {
		case call.Err != nil:
		case call.takes():
			calls[call.Node]++
		default:
			peeks[call.Node]++
		}
	}
	for i, n := range calls {
		if c.crashed(i) {
			continue // its last decisions reached no caller
		}
		if got := c.r.Stats[i].Decisions(); got < n || got > n+peeks[i] {
			c.wrong("node %d made %d decisions and counted %d: %+v", i, n, got, c.r.Stats[i])
		}
		if got := c.r.Stats[i].Fallback; got > 0 && c.healthy() {
			c.wrong("node %d decided %d times without a store that is healthy: %+v", i, got, c.r.Stats[i])
		}
	}
}

func (c *checker) crashed(node int) bool { return names(c.s.Crashes, node) }

// closed reports whether a node was closed before the end. It no longer probes the store.
func (c *checker) closed(node int) bool { return names(c.s.Closes, node) }

func names(list []Crash, node int) bool {
	return slices.ContainsFunc(list, func(c Crash) bool { return c.Node == node })
}

// key checks the bounds of one limit of a key.
func (c *checker) key(key string, limit int) {
	m := c.limits[limit]
	m.anchors = c.anchors(key, m.per)
	var known, all []Grant
	shares := make([][]Grant, c.s.Nodes)
	for _, g := range c.r.Grants(key) {
		switch g.By {
		case ByNobody:
			continue // fail open has no bound
		case ByShare:
			shares[g.Node] = append(shares[g.Node], c.byNodesClock(g))
		default:
			known = append(known, g)
		}
		all = append(all, g)
	}
	share := m.shared(c.s.counted())
	for i, list := range shares {
		c.bound(key, limit, fmt.Sprintf("node %d's share", i), share.excess(list), c.resets()*share.capacity)
	}
	allowed := c.forgiven(key, &m) + c.unknown(key) + c.resets()*m.capacity + (1+c.resets())*c.overshoot(key)
	c.bound(key, limit, "all but shares", m.excess(known), allowed)
	if c.s.OnError == weir.FailLocal && c.troubled() {
		allowed += c.local(&m) + c.unsynced(key)
	}
	c.bound(key, limit, "all", m.excess(all), allowed)
}

// byNodesClock returns a grant with the time by the node's clock.
func (c *checker) byNodesClock(g Grant) Grant {
	g.At = c.s.read(g.Node, g.At).Sub(c.s.Begin)
	g.From = g.At
	return g
}

// anchors returns the windows that charges to the store have opened.
func (c *checker) anchors(key string, per time.Duration) (list []anchor) {
	for _, op := range c.r.Ops {
		switch {
		case op.Key != key || op.Lost:
		case op.Op == weir.ResetEach:
			if n := len(list); n > 0 {
				list[n-1].to = min(list[n-1].to, op.At)
			}
		case op.Units > 0 && op.Allowed && op.Op != weir.PeekEach && (len(list) == 0 || list[len(list)-1].to <= op.At):
			list = append(list, anchor{op.At, op.At + per})
		}
	}
	return list
}

func (c *checker) bound(key string, limit int, what string, got, allowed float64) {
	const rounding = 1e-3
	if got > allowed+rounding {
		c.wrong("key %s, limit %d: %s exceeds the limit by %.3f units, more than %.3f", key, limit, what, got, allowed)
	}
}

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

// troubled reports whether calls may have had no reply.
func (c *checker) troubled() bool { return c.lossy() || len(c.s.Outages) > 0 }

// healthy reports whether every call of a live node was answered in time.
func (c *checker) healthy() bool { return !c.troubled() }

// lossy reports whether a reply may be lost or late.
func (c *checker) lossy() bool {
	time := c.s.Timeout // for all calls to the store that a decision takes
	if d := c.s.Deadline; d > 0 {
		time = min(time, max(d-answerTime, d/2))
	}
	return c.s.lossy() || c.roundTrips()*c.roundTrip() >= time
}

// notice returns how long after a recovery a node usually has detected it and flushed its
// unsynced usage.
func (c *checker) notice() time.Duration {
	return probeEvery + probeEvery/probeJitter + 4*c.s.Timeout + c.s.FlushEvery
}

// stagger returns how long after a recovery the last node has detected it, if replies hang or
// are lost.
func (c *checker) stagger() time.Duration {
	w := c.notice()
	for _, o := range c.s.Outages {
		if o.Kind != Refuse {
			w = max(w, flushTimeout+probeEvery)
		}
	}
	if c.lossy() {
		w += 2 * flushTimeout
	}
	return w
}

// local returns what all shares together may admit beyond a limit. For a rate and a burst it is a
// burst, another one that the store admits before the last node has detected the recovery, or what
// that node admits meanwhile if it is more; and what a wrong node count and outages of single
// nodes add.
func (c *checker) local(m *measure) float64 {
	n, share := float64(c.s.Nodes), m.shared(c.s.counted())
	switch m.algorithm {
	case weir.GCRA, weir.TokenBucket:
	case weir.SlidingLog:
		return n * share.capacity
	case weir.AnchoredWindow: // which is twice the capacity
		return n * share.capacity
	case weir.SlidingWindow: // less than twice in a period, and part of the one before
		return 3 * n * share.capacity
	default: // two windows by a node's clock meet in one by the store's
		return 2 * n * share.capacity
	}
	e := n*share.capacity + max(m.capacity, n*share.rate*c.notice().Seconds())
	longest, alone := time.Duration(0), time.Duration(0)
	for _, o := range c.s.Outages {
		longest = max(longest, o.To-o.From)
		if o.Node >= 0 {
			alone += o.To - o.From
		}
	}
	over := max(0, n*share.rate-m.rate)
	return e + over*(longest+c.notice()).Seconds() + share.rate*alone.Seconds()
}

// forgiven returns the charges of a key that failovers may have lost.
func (c *checker) forgiven(key string, m *measure) (sum float64) {
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
			charged = min(charged, m.capacity)
		}
		sum += charged
		if m.bursts() {
			sum += min(m.capacity, m.rate*o.Ahead.Seconds())
		}
	}
	return sum
}

// unknown returns what shares have admitted of charges with an unknown outcome. The store is not
// charged for them, because nothing is charged twice.
func (c *checker) unknown(key string) (sum float64) {
	if !c.troubled() {
		return 0
	}
	for _, call := range c.r.Calls {
		if (key == "" || call.Key == key) && call.By == ByShare && call.grants() && call.End > call.Start {
			sum += float64(call.Cost)
		}
	}
	return sum
}

// unsynced returns the usage that the store was never or belatedly charged for: lost on its way,
// executed after the node had stopped waiting, or granted by a node that crashed.
func (c *checker) unsynced(key string) (sum float64) {
	stopped := slices.ContainsFunc(c.s.Outages, func(o Outage) bool { return o.Kind == Stop })
	for _, op := range c.r.Ops {
		if op.Key == key && (op.Lost || !op.Answered && !op.Twice && stopped) && op.Op == weir.DebitEach {
			sum += float64(op.Units)
		}
	}
	for i := range c.s.Nodes {
		if left := max(0, c.unsent(i, key)); c.crashed(i) && c.healthy() {
			sum += min(c.b, left)
		} else if c.crashed(i) {
			sum += left
		}
	}
	return sum
}

// unsent returns what a node has granted by itself, or recorded as a debit, and never sent to the
// store.
func (c *checker) unsent(node int, key string) (sum float64) {
	for _, call := range c.r.Calls {
		own := call.grants() && (call.By == ByShare || c.s.Mode == tiered.Async && call.By == ByNode)
		own = own || call.Op == weir.DebitEach && call.Err == nil
		if call.Node == node && (key == "" || call.Key == key) && own {
			sum += float64(call.Cost)
		}
	}
	for _, op := range c.r.Ops {
		if op.Node == node && (key == "" || op.Key == key) && op.Op == weir.DebitEach && !op.Twice {
			sum -= float64(op.Units)
		}
	}
	return sum
}

// flushed checks that all units that nodes granted by themselves were sent to the store once.
func (c *checker) flushed() {
	if c.resets() > 0 {
		return // a reset discards unsynced usage
	}
	for i := range c.s.Nodes {
		if c.crashed(i) {
			continue
		}
		left := c.unsent(i, "") - unsyncedStat(c.r.Stats[i])
		if left > c.covered()+c.unknown("")+1e-9 || left < -c.guessed(i)-1e-9 {
			c.wrong("node %d has granted %.0f units by itself that were never sent to the store, %.0f of them covered by the rate (negative: sent twice): %+v", i, left, c.covered(), c.r.Stats[i])
		}
	}
}

// guessed returns what a node may have granted by itself although it is attributed to the store:
// charges of callers that have left look like those of others.
func (c *checker) guessed(node int) (sum float64) {
	for _, call := range c.r.Calls {
		if call.Node == node && call.Guessed && c.troubled() {
			sum += float64(call.Cost)
		}
	}
	return sum
}

// unsyncedStat returns the units that a node reports as not sent.
func unsyncedStat(s tiered.Stats) float64 { return float64(s.Unsynced + s.Forgiven) }

// covered returns how many units of a node's share the rate covers while the store is unavailable,
// or seems to be, so that they are not charged. For windows, it is what was granted in windows
// that are over.
func (c *checker) covered() (sum float64) {
	outage := c.s.Length + c.stagger()
	if !c.lossy() {
		outage = 0
		for _, o := range c.s.Outages {
			outage += o.To - o.From + c.stagger()
		}
	}
	for i := range c.limits {
		m := c.limits[i].shared(c.s.counted())
		units := m.rate * outage.Seconds()
		if !m.bursts() && outage > 0 {
			units = m.capacity * (2 + outage.Seconds()/m.per.Seconds())
		}
		sum = max(sum, units*float64(c.s.Keys))
	}
	return sum
}

// recovery checks that nodes detect when the store is available again.
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
		if call.Start > back && alone && !c.closed(call.Node) {
			c.wrong("the store is available since %v, and is not called: %v", back, call)
		}
	}
	for i, st := range c.r.Before {
		if !c.crashed(i) && !c.closed(i) && st.OpenBreakers > 0 {
			c.wrong("node %d has an open breaker although the store is available: %+v", i, st)
		}
	}
}
