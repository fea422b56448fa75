package tiered

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirlimit/weir"
)

// A denial is that a key has no room. It is written once.
type denial struct {
	keyState
	epoch   uint64       // of the family
	cost    int64        // the least that was refused
	until   weir.Instant // it answers before that: counted from before the store was asked
	retryAt weir.Instant // what callers are told: counted from when the answer came
	reason  weir.Reason
	never   bool // waiting cannot help
	held    bool // reservations were open
}

// denied returns the refusal of the charge at now if it is known.
//
// Of a larger cost than was refused it is known only under a single GCRA limit. With several,
// another may refuse the larger cost for longer.
func (c *call) denied(now weir.Instant) (weir.Decision, bool) {
	if c.entry == nil {
		return weir.Decision{}, false
	}
	pl, cost, n := c.plan, c.cost, c.entry.denial.Load()
	if n == nil || now >= n.until || n.limits != pl.limits || n.epoch != pl.history.epoch.Load() {
		return weir.Decision{}, false
	}
	if cost < n.cost || cost > n.cost && !n.never && !pl.single {
		return weir.Decision{}, false
	}
	d := weir.Decision{
		Reason: n.reason, By: n.by, Limit: n.limit, Remaining: n.remaining,
		RetryAfter: max(1, n.retryAt.Sub(now)), ResetAfter: max(0, n.resetAt.Sub(now)), Estimate: true, Held: n.held,
	}
	switch {
	case n.never:
		d.RetryAfter = weir.Never
	case cost > pl.capacity:
		d.RetryAfter, d.Reason, d.Held = weir.Never, weir.TooCostly, false
	case cost > n.cost:
		d.RetryAfter += pl.takes(cost - n.cost)
	}
	return d, true
}

// takes returns how long so many units of a single GCRA limit take to come back, rounded up. Together with
// a time that is remembered it is a duration.
func (pl *plan) takes(units int64) time.Duration {
	const longest = math.MaxInt64 - uint64(farAway)
	l := pl.force.Limits()[0]
	hi, lo := bits.Mul64(uint64(units), uint64(l.Per.Duration()))
	if hi >= uint64(l.Rate) {
		return time.Duration(longest)
	}
	q, rest := bits.Div64(hi, lo, uint64(l.Rate))
	if rest > 0 {
		q++
	}
	return time.Duration(min(q, longest))
}

// maxHeldDeny is how long the refusal of a key with open reservations is cached at most.
// Another node may end one at any moment, and this node does not learn of it.
const maxHeldDeny = time.Millisecond

// minPublishedDenial is how long a denial must last for other nodes to be told: word takes
// some milliseconds to reach them.
const minPublishedDenial = 20 * time.Millisecond

// refused caches a refusal of the store, in reply to a call that was sent at c.now, when
// the key was at generation c.gen.
func (t *Limiter) refused(c *call, d weir.Decision) {
	pl, e := c.plan, c.entry
	if c.cost == 0 || d.Reason != weir.Exhausted && d.Reason != weir.TooCostly {
		return
	}
	now := t.now()
	n := &denial{
		keyState: keyStateOf(pl, d, now), epoch: c.gen.epoch, cost: c.cost,
		until: c.now.Add(t.config.MaxDeny), retryAt: after(now, d.RetryAfter),
		reason: d.Reason, never: d.RetryAfter == weir.Never, held: d.Held,
	}
	if d.Held || pl.force.ReserveOnly() { // a daemon behind package client does not say Held
		n.until = c.now.Add(min(t.config.MaxDeny, maxHeldDeny))
	}
	whole := after(c.now, d.RetryAfter)
	n.until = min(n.until, whole)
	if n.until <= now {
		return
	}
	e.denial.Store(n)
	if t.table.generation(pl.history, e.hash) != c.gen { // it may have been dropped before it was there
		e.denial.CompareAndSwap(n, nil)
		return
	}
	if l := e.lease.Load(); l != nil && l.serves(pl, c.cost, now) { // see install
		e.denial.CompareAndSwap(n, nil)
		return
	}
	if t.config.Bus != nil && !n.never && !n.held && n.until.Sub(now) >= minPublishedDenial {
		t.queueDenial(e, n, whole)
	}
}

// changed notes a change of a key's state: what is cached of it is dropped, also if a
// reply is just being cached.
func (t *Limiter) changed(f *policyHistory, key string) *entry {
	h := t.table.hash(f, key)
	t.table.changed(h)
	e := t.table.find(f, key, h)
	if e != nil {
		e.denial.Store(nil)
	}
	return e
}

// changing notes that a call is about to be sent which changes keys otherwise than by an
// admitted charge. The returned function notes that it has ended.
func (t *Limiter) changing(charges []weir.Charge) (ended func()) {
	note := func() {
		for i := range charges {
			t.changed(t.planOf(charges[i].Policy).history, charges[i].Key)
		}
	}
	note()
	return note
}
