package tiered

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A lease is a block of units that the store has reserved for this node, which spends them
// locally. The reservation occupies its units in the store, so spending them at any time before
// it expires keeps the bound of the limit.
//
// word: charges (32) | units left (32)
//
// Spending is a compare-and-swap that subtracts units and adds a charge. retire swaps the word
// for 0: from then on nothing can be spent, and the number of units left is known exactly.
type lease struct {
	entry   *entry // set by lend, like everything up to word
	plan    *plan
	receipt weir.Receipt
	units   int64
	began   weir.Instant
	until   weir.Instant // no unit is spent from then on
	low     uint64       // with fewer units it is renewed
	state   keyState     // of the key, after the store's reply

	word     atomic.Uint64
	renewing atomic.Bool
	seen     uint64 // the word at the last sweep; used by sweep alone
	spent    int64  // units spent, once the lease has ended; set by giveBack
}

const leftMask = 1<<32 - 1

// usable reports whether the lease may be spent under pl at now.
func (l *lease) usable(pl *plan, now weir.Instant) bool {
	return l.plan.limits == pl.limits && now < l.until && l.plan.epoch == pl.history.epoch.Load()
}

// spend spends cost units, or returns false if fewer are left.
func (l *lease) spend(cost int64) (left uint64, ok bool) {
	for {
		word := l.word.Load()
		if left = word & leftMask; left < uint64(cost) {
			return left, false
		}
		if l.word.CompareAndSwap(word, word-uint64(cost)+1<<32) {
			return left - uint64(cost), true
		}
	}
}

// retire ends the spending. The first call returns the units left and the number of
// charges, later ones 0.
func (l *lease) retire() (left, charges int64) {
	word := l.word.Swap(0)
	return int64(word & leftMask), int64(word >> 32)
}

// serves reports whether the lease suffices for a charge of cost.
func (l *lease) serves(pl *plan, cost int64, now weir.Instant) bool {
	return l.usable(pl, now) && l.word.Load()&leftMask >= uint64(cost)
}

// decision returns the decision on a charge that was spent.
func (l *lease) decision(left uint64, now weir.Instant) weir.Decision {
	return weir.Decision{
		Allowed: true, Reason: weir.Admitted, By: l.state.by, Limit: l.state.limit,
		Remaining: min(l.state.limit, l.state.remaining+int64(left)), ResetAfter: max(0, l.state.resetAt.Sub(now)), Estimate: true,
	}
}

// spendLease decides a charge by the key's lease, if that suffices.
func (t *Limiter) spendLease(c *call) (weir.Decision, bool) {
	l := c.entry.lease.Load()
	if l == nil || !l.usable(c.plan, c.now) {
		return weir.Decision{}, false
	}
	left, ok := l.spend(c.cost)
	if left < l.low && !l.renewing.Load() {
		t.renew(l)
	}
	if !ok {
		t.exhausted(l, c.now)
		return weir.Decision{}, false
	}
	return l.decision(left, c.now), true
}

// exhausted ends a lease that did not suffice: the store does not replenish its units before
// it is settled. The rate at which it was spent is recorded to size the next lease.
func (t *Limiter) exhausted(l *lease, now weir.Instant) {
	perSecond := l.perSecond(now)
	if !t.end(l) {
		return
	}
	l.entry.mu.Lock()
	defer l.entry.mu.Unlock()
	m := &l.entry.demand
	m.block, m.perSecond, m.ended = l.units, perSecond, now
}

// takeLeased decides a charge for which no lease suffices. It requests a lease if that is
// worthwhile, and otherwise has the store decide this charge alone.
func (t *Limiter) takeLeased(ctx context.Context, c *call) (weir.Decision, error) {
	n := int64(0)
	if t.worthEntry(c) {
		n = t.worthLeasing(c)
	}
	if n == 0 {
		return t.take(ctx, c)
	}
	var cancel context.CancelFunc
	c.within, cancel = context.WithTimeout(ctx, t.store.budget(ctx, 1))
	defer cancel()
	l, err := t.lend(c.plan, c.entry, n, func(b *weir.Batch) error { return t.doBy(t.store, ctx, c.within, b, nil) })
	switch {
	case isUnavailable(err):
		return t.unavailable(c, nil) // if the store did reserve the lease, its units are forfeited: this charge did not use them
	case err != nil:
		return weir.Decision{}, err
	case l == nil: // the block does not fit: the key is near its limit
		return t.take(ctx, c)
	}
	left, _ := l.spend(c.cost) // it suffices: the lease is not installed yet, and is for several charges
	d := l.decision(left, l.began)
	t.install(l)
	return d, nil
}

// leaseLasts returns how long a lease may be spent. That is less than its TTL, because clock
// rates differ and settling it takes time.
func (t *Limiter) leaseLasts() time.Duration { return t.config.LeaseTTL - t.config.LeaseTTL/8 }

// perSecond returns the rate at which a lease is spent.
func (l *lease) perSecond(now weir.Instant) float64 {
	spent := l.units - int64(l.word.Load()&leftMask)
	return float64(spent) / max(1e-9, now.Sub(l.began).Seconds())
}

// lend reserves a lease of n units in the store by do, and clears leasing, which the caller has
// set. It returns nil if the units do not fit.
func (t *Limiter) lend(pl *plan, e *entry, n int64, do func(*weir.Batch) error) (*lease, error) {
	b := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: pl.policy, Key: e.key, Cost: n}}, TTL: t.config.LeaseTTL}
	sent := t.now()
	err := do(&b)
	now := t.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.demand.leasing = false
	if err != nil {
		return nil, err
	}
	d := b.Decisions[0]
	e.state = keyStateOf(pl, d, now)
	if !d.Allowed {
		e.demand.exactly = now.Add(leaseSpan)
		return nil, nil
	}
	t.table.changed(e.hash)
	l := &lease{
		entry: e, plan: pl, receipt: b.Receipts[0], units: n, low: uint64(n / 4), state: e.state,
		began: sent, until: sent.Add(t.leaseLasts()),
	}
	l.word.Store(uint64(n))
	return l, nil
}

// install makes l the lease of its key, and ends the one that it replaces. While l was being
// reserved, the store may have denied a charge because its units were held; such a denial
// does not apply to this node. refused stores the denial before it loads the lease, and
// install stores the lease before it clears the denial, so one of them sees the other.
func (t *Limiter) install(l *lease) {
	if old := l.entry.lease.Swap(l); old != nil {
		t.giveBack(old)
	}
	l.entry.denial.Store(nil)
	t.leases.mu.Lock()
	t.leases.live = append(t.leases.live, l)
	t.wakeUp()
	closed := t.leases.closed
	t.leases.mu.Unlock()
	if closed {
		t.end(l)
	}
}

// end ends a lease. It returns false if the lease has ended already.
func (t *Limiter) end(l *lease) bool {
	if !l.entry.lease.CompareAndSwap(l, nil) {
		return false
	}
	t.giveBack(l)
	return true
}

// giveBack queues a lease that has ended to be settled.
func (t *Limiter) giveBack(l *lease) {
	left, charges := l.retire()
	l.spent = l.units - left
	t.counts.lease.Add(charges)
	t.leases.mu.Lock()
	defer t.leases.mu.Unlock()
	if len(t.leases.ended) >= mostEnded {
		t.counts.forfeited.Add(1)
		return
	}
	t.leases.ended = append(t.leases.ended, l)
	t.wakeUp()
}

// mostEnded bounds the leases that wait to be settled. Others are left to expire, so all
// their units count as spent.
const mostEnded = 1 << 17

// renew requests the lease that follows l in the background, unless that is in progress or too
// many renewals are.
func (t *Limiter) renew(l *lease) {
	if !l.renewing.CompareAndSwap(false, true) {
		return
	}
	if !offer(t.renewals) {
		l.renewing.Store(false)
		return
	}
	t.background(func() {
		defer func() { <-t.renewals }()
		t.renewNow(l)
	})
}

// mostRenewals bounds the concurrent renewals.
const mostRenewals = 64

func (t *Limiter) renewNow(l *lease) {
	e, n, now := l.entry, int64(0), t.now()
	e.mu.Lock()
	if !e.demand.leasing {
		n = t.blockLocked(e, l.plan, l.perSecond(now), l.units, 1)
	}
	e.mu.Unlock()
	if n == 0 {
		return // the rest of the lease is spent, and then the store is called
	}
	do := func(b *weir.Batch) error { return t.doBackground(t.ctx, b, nil) }
	if next, err := t.lend(l.plan, e, n, do); err == nil && next != nil {
		t.install(next)
	}
}

// leases are the leases of all keys.
type leases struct {
	mu     sync.Mutex // guards the fields below
	live   []*lease   // in force, and some that were replaced since the last sweep
	ended  []*lease   // to be settled
	closed bool       // new leases are ended at once
}

// any reports whether there are leases to maintain.
func (l *leases) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.live) > 0 || len(l.ended) > 0
}

// sweep ends leases that expire soon or were not used since the last sweep, or all of them.
func (t *Limiter) sweep(all bool) {
	t.leases.mu.Lock()
	live := t.leases.live
	t.leases.live, t.leases.closed = nil, all
	t.leases.mu.Unlock()
	soon := t.now().Add(t.sweepEvery())
	live = slices.DeleteFunc(live, func(l *lease) bool {
		if idle := l.idle(); !all && !idle && l.entry.lease.Load() == l && l.usable(l.plan, soon) {
			return false
		}
		t.end(l)
		return true
	})
	t.leases.mu.Lock()
	defer t.leases.mu.Unlock()
	t.leases.live = append(live, t.leases.live...)
}

// idle reports whether nothing was spent since its last call.
func (l *lease) idle() bool {
	word := l.word.Load()
	defer func() { l.seen = word }()
	return word == l.seen
}

func (t *Limiter) sweepEvery() time.Duration { return t.config.LeaseTTL / 8 }

// settleBatch is how many leases one call settles.
const settleBatch = 64

// settle settles the leases that have ended, which reports to the store what was spent. If the
// store does not answer, they expire there, and all their units count as spent.
func (t *Limiter) settle(ctx context.Context) {
	t.leases.mu.Lock()
	list := t.leases.ended
	t.leases.ended = nil
	t.leases.mu.Unlock()
	byPartition := map[*breaker][]*lease{}
	for _, l := range list {
		b := t.breakerOf(l.plan.policy, l.entry.key)
		byPartition[b] = append(byPartition[b], l)
	}
	for _, leases := range byPartition {
		for some := range slices.Chunk(leases, settleBatch) {
			t.settleSome(ctx, some)
		}
	}
}

func (t *Limiter) settleSome(ctx context.Context, list []*lease) {
	b := weir.Batch{Op: weir.Settle}
	for _, l := range list {
		b.Charges = append(b.Charges, weir.Charge{Policy: l.plan.policy, Key: l.entry.key, Cost: l.spent})
		b.Receipts = append(b.Receipts, l.receipt)
	}
	defer t.changing(b.Charges)()
	if err := t.doBackground(ctx, &b, nil); err != nil {
		t.counts.forfeited.Add(int64(len(list)))
		return
	}
	for _, s := range b.Settled {
		if s.Late {
			t.counts.forfeited.Add(1)
		}
	}
}
