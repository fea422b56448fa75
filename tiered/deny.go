package tiered

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirlimit/weir"
)

// A denial is a cached denial of a key. It is immutable.
type denial struct {
	keyState
	epoch   uint64       // of the policyHistory
	cost    int64        // the lowest cost that was denied
	until   weir.Instant // end of the denial, counted from before the store was called
	retryAt weir.Instant // end of RetryAfter, counted from the reply
	reason  weir.Reason
	never   bool // the cost never fits
	held    bool // reservations were open
}

// denied returns the denial of the charge at now, if it is cached.
//
// A denial answers a larger cost only under a single GCRA limit. Of several limits, another one
// may deny the larger cost for longer.
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

// takes returns how long a single GCRA limit needs to replenish units, rounded up. The result is
// capped such that adding it to a cached RetryAfter does not overflow.
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

// maxHeldDeny bounds how long a denial of a key with open reservations is cached. Another node
// may settle one at any time, and this node is not notified.
const maxHeldDeny = time.Millisecond

// minPublishedDenial is how long a denial must last to be published: a message takes some
// milliseconds to reach the other nodes.
const minPublishedDenial = 20 * time.Millisecond

// refused caches a denial by the store, in reply to a call that was sent at c.now when the key
// was at generation c.gen.
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
	if d.Held || pl.force.ReserveOnly() { // a daemon behind package client does not set Held
		n.until = c.now.Add(min(t.config.MaxDeny, maxHeldDeny))
	}
	whole := after(c.now, d.RetryAfter)
	n.until = min(n.until, whole)
	if n.until <= now {
		return
	}
	e.denial.Store(n)
	if t.table.generation(pl.history, e.hash) != c.gen { // a change before the Store above may have found nothing to drop
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

// changed records a change of a key's state. It drops the cached denial, and keeps a reply from
// being cached whose call began before the change.
func (t *Limiter) changed(ph *policyHistory, key string) *entry {
	h := t.table.hash(ph, key)
	t.table.changed(h)
	e := t.table.find(ph, key, h)
	if e != nil {
		e.denial.Store(nil)
	}
	return e
}

// changing records that a call is about to be sent that changes keys in other ways than by an
// admitted charge. The returned function must be called when that call has ended.
func (t *Limiter) changing(charges []weir.Charge) (ended func()) {
	note := func() {
		for i := range charges {
			t.changed(t.planOf(charges[i].Policy).history, charges[i].Key)
		}
	}
	note()
	return note
}
