package tiered

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A lease is a block of units that the store holds for this node, and that are spent
// here. What it holds is carved out of the burst in the store, which is why spending it
// at any time before it expires keeps the bound.
//
// word: charges (32) | units left (32)
//
// Spending is a compare-and-swap that lowers one and raises the other. retire swaps the
// units for 0: from then on nobody can spend, and what was left is known exactly.
type lease struct {
	entry   *entry // set by lend, like everything up to word
	plan    *plan
	receipt weir.Receipt
	units   int64
	began   weir.Instant
	until   weir.Instant // no unit is spent after that
	low     uint64       // with less it is renewed
	state   keyState     // what the store said besides

	word     atomic.Uint64
	renewing atomic.Bool
	seen     uint64 // the word when the sweeper last came by; the sweeper's
	spent    int64  // units, once it has ended; set by giveBack
}

const leftMask = 1<<32 - 1

// usable says whether the lease serves calls under pl at now.
func (l *lease) usable(pl *plan, now weir.Instant) bool {
	return l.plan.limits == pl.limits && now < l.until && l.plan.epoch == pl.history.epoch.Load()
}

// spend takes cost units, or returns false if that many are not left.
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

// retire ends the spending. It returns the units that were left and how many charges
// there were; only the first call does.
func (l *lease) retire() (left, charges int64) {
	word := l.word.Swap(0)
	return int64(word & leftMask), int64(word >> 32)
}

// serves says whether a charge of cost could be spent.
func (l *lease) serves(pl *plan, cost int64, now weir.Instant) bool {
	return l.usable(pl, now) && l.word.Load()&leftMask >= uint64(cost)
}

// decision is the answer to a charge that was spent.
func (l *lease) decision(left uint64, now weir.Instant) weir.Decision {
	return weir.Decision{
		Allowed: true, Reason: weir.Admitted, By: l.state.by, Limit: l.state.limit,
		Remaining: min(l.state.limit, l.state.remaining+int64(left)), ResetAfter: max(0, l.state.resetAt.Sub(now)), Estimate: true,
	}
}

// spendLease answers from the key's lease, if it has one that suffices.
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

// exhausted ends a lease that did not suffice: until the store is told, what was spent of
// it does not come back. How fast it was spent is remembered for the next.
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

// takeLeased is for a charge that no lease answers: it gets a lease if the key is worth
// it, or asks for this charge alone.
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
		return t.unavailable(c, nil) // the units of a lease that may have been lent are forfeited, not charged for this
	case err != nil:
		return weir.Decision{}, err
	case l == nil: // so much does not fit: the key is near its limit
		return t.take(ctx, c)
	}
	left, _ := l.spend(c.cost) // nobody else has it yet, and it is for several
	d := l.decision(left, l.began)
	t.install(l)
	return d, nil
}

// leaseLasts is how long a lease is spent: some time before it expires, because clocks
// differ and what is left must be given back.
func (t *Limiter) leaseLasts() time.Duration { return t.config.LeaseTTL - t.config.LeaseTTL/8 }

// perSecond returns how fast a lease is spent.
func (l *lease) perSecond(now weir.Instant) float64 {
	spent := l.units - int64(l.word.Load()&leftMask)
	return float64(spent) / max(1e-9, now.Sub(l.began).Seconds())
}

// lend gets a lease of n units from the store, for the caller who has set leasing. It
// returns nil if they do not fit.
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

// install puts a lease in force. What it replaces is given back. While it was on its way,
// the store may have refused a charge because these units were held: that is no longer
// true of this node. refused looks at the lease after it has stored the denial, and here
// the denial goes after the lease is there, so one of the two sees the other.
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

// end ends a lease, unless it is no longer in force.
func (t *Limiter) end(l *lease) bool {
	if !l.entry.lease.CompareAndSwap(l, nil) {
		return false
	}
	t.giveBack(l)
	return true
}

// giveBack has the store told of a lease that is no longer in force.
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

// mostEnded bounds the leases that wait to be settled. Beyond it they are left to
// expire, which counts as spending them.
const mostEnded = 1 << 17

// renew starts to get the lease that follows l, in the background, unless somebody else
// does or too many are at it.
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

// mostRenewals bounds the leases that are being renewed at once.
const mostRenewals = 64

func (t *Limiter) renewNow(l *lease) {
	e, n, now := l.entry, int64(0), t.now()
	e.mu.Lock()
	if !e.demand.leasing {
		n = t.blockLocked(e, l.plan, l.perSecond(now), l.units, 1)
	}
	e.mu.Unlock()
	if n == 0 {
		return // what is left is spent, and then the store is asked
	}
	ask := func(b *weir.Batch) error { return t.doPatiently(t.ctx, b, nil) }
	if next, err := t.lend(l.plan, e, n, ask); err == nil && next != nil {
		t.install(next)
	}
}

// leases are those of all keys.
type leases struct {
	mu     sync.Mutex // guards the fields below
	live   []*lease   // in force, and some that were replaced since sweep came by
	ended  []*lease   // the store is to be told of
	closed bool       // no new ones
}

// any says whether there are leases to look after.
func (l *leases) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.live) > 0 || len(l.ended) > 0
}

// sweep gives back leases that expire soon, or were not used since it last came by, or
// all.
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

// idle says whether nothing was spent since it was last asked.
func (l *lease) idle() bool {
	word := l.word.Load()
	defer func() { l.seen = word }()
	return word == l.seen
}

func (t *Limiter) sweepEvery() time.Duration { return t.config.LeaseTTL / 8 }

// settleBatch is how many leases the store is told of at once.
const settleBatch = 64

// settle tells the store what was spent of leases that have ended. If it does not
// answer, they expire there, which counts as spending them whole.
func (t *Limiter) settle(ctx context.Context) {
	t.leases.mu.Lock()
	list := t.leases.ended
	t.leases.ended = nil
	t.leases.mu.Unlock()
	parts := map[*breaker][]*lease{}
	for _, l := range list {
		b := t.breakerOf(l.plan.policy, l.entry.key)
		parts[b] = append(parts[b], l)
	}
	for _, part := range parts {
		for some := range slices.Chunk(part, settleBatch) {
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
	if err := t.doPatiently(ctx, &b, nil); err != nil {
		t.counts.forfeited.Add(int64(len(list)))
		return
	}
	for _, s := range b.Settled {
		if s.Late {
			t.counts.forfeited.Add(1)
		}
	}
}
