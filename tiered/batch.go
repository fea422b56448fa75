package tiered

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Do executes a batch.
//
// TakeEach decides each charge as Take does, with one call per partition for all charges that
// need the store. TakeAll and ReserveAll with several charges are decided by the store, unless
// a cached denial answers one of them; then the others are reported as not taken. In Async mode
// the call carries the unsynced usage of the keys. While the store is unavailable, OnError
// decides them, all or none.
//
// PeekEach calls the store, adds the units that this node has leased and subtracts its
// unsynced usage; while the store is unavailable, it returns what OnError would decide.
// ResetEach is published to the other nodes. While the store is unavailable, ResetEach, and
// Renew and Settle of reservations in the store, return an error, whereas DebitEach is
// recorded: the store is charged when it is available again, unless it may have been charged
// already. The decisions of a recorded DebitEach report the state of this node's share, and
// those of policies that fail closed have Reason StoreDown.
func (t *Limiter) Do(ctx context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.Used != nil { // only the tier itself sends usage
		return storeapi.ErrUsed
	}
	if len(b.Charges) == 0 {
		return nil
	}
	if b.Op == weir.TakeEach || b.Op == weir.TakeAll && len(b.Charges) == 1 {
		return t.takeEach(ctx, b)
	}
	switch b.Op {
	case weir.TakeAll, weir.ReserveAll:
		return t.takeAll(ctx, b)
	case weir.PeekEach:
		return t.peekEach(ctx, b)
	case weir.Settle, weir.Renew:
		return t.settleOrRenew(ctx, b)
	case weir.ResetEach:
		return t.resetEach(ctx, b)
	}
	return t.debitEach(ctx, b)
}

// takeEach decides what it can without the store, and calls the store for the rest: once for
// each partition, since partitions fail independently.
func (t *Limiter) takeEach(ctx context.Context, b *weir.Batch) error {
	var rest map[*breaker][]call
	for i, charge := range b.Charges {
		c := t.begin(charge)
		c.place = i
		var ok bool
		if b.Decisions[i], ok = t.atOnce(&c); ok {
			continue
		}
		if len(b.Charges) == 1 {
			var err error
			b.Decisions[i], err = t.callStore(ctx, &c)
			return err
		}
		if rest == nil {
			rest = map[*breaker][]call{}
		}
		br := t.breakerOf(charge.Policy, charge.Key)
		rest[br] = append(rest[br], c)
	}
	for _, calls := range rest {
		if err := t.callStoreEach(ctx, b, calls); err != nil {
			return err
		}
	}
	return nil
}

// callStoreEach has the store decide some charges of a batch, all on one partition. If the state
// of one key is unreadable, each charge gets a call of its own.
func (t *Limiter) callStoreEach(ctx context.Context, b *weir.Batch, calls []call) error {
	s := t.newSync(weir.Batch{Op: weir.TakeEach}, calls)
	err := t.carry(ctx, s)
	for i := range calls {
		c := &calls[i]
		d := &b.Decisions[c.place]
		switch {
		case err == nil:
			t.counts.store.Add(1)
			*d = s.batch.Decisions[i]
		case errors.Is(err, weir.ErrState):
			var bad error
			if *d, bad = t.callStore(ctx, c); bad != nil {
				return bad
			}
		case isUnavailable(err):
			c.why = err
			*d = t.fallback(weir.TakeEach, c)
		default:
			return err
		}
	}
	return nil
}

// takeAll is TakeAll and ReserveAll.
func (t *Limiter) takeAll(ctx context.Context, b *weir.Batch) error {
	calls := t.beginAll(b.Charges)
	for i := range calls {
		d, ok := calls[i].denied(calls[i].now)
		if !ok {
			continue
		}
		t.counts.denyCache.Add(int64(len(calls)))
		for j := range calls {
			b.Decisions[j] = calls[j].notTaken()
		}
		b.Decisions[i] = d
		return nil
	}
	s := t.newSync(weir.Batch{Op: b.Op, TTL: b.TTL}, calls)
	err := t.carry(ctx, s)
	switch {
	case err == nil:
		copy(b.Decisions, s.batch.Decisions)
		copy(b.Receipts, s.batch.Receipts)
		t.counts.store.Add(int64(len(calls)))
		return nil
	case errors.Is(err, weir.ErrState):
		t.counts.unreadable.Add(int64(len(calls)))
	case !isUnavailable(err):
		return err
	}
	return t.fallbackAll(b, calls, err)
}

// notTaken returns the decision on a charge that was not made because another one of the batch
// was denied. It estimates Remaining from the last known state; a key without one counts as unused.
func (c *call) notTaken() weir.Decision {
	d := weir.Decision{Limit: c.plan.capacity, Remaining: c.plan.capacity, Estimate: true}
	if c.entry != nil {
		c.entry.mu.Lock()
		s := c.entry.state
		c.entry.mu.Unlock()
		if s.limits == c.plan.limits && c.now < s.resetAt {
			back := int64(float64(c.now.Sub(s.at)) * c.plan.perNano[s.by])
			d.By, d.Limit, d.Remaining = s.by, s.limit, min(s.limit, s.remaining+back)
			d.ResetAfter = s.resetAt.Sub(c.now)
		}
	}
	d.Remaining = max(0, d.Remaining-c.cost)
	return d
}

// peekEach calls the store, adds the units that this node has leased, and subtracts its unsynced
// usage. A lease that begins or ends during the call is ignored, because the reply may or may
// not include it.
func (t *Limiter) peekEach(ctx context.Context, b *weir.Batch) error {
	calls := t.beginAll(b.Charges)
	before := make([]*lease, len(calls))
	for i, c := range calls {
		if c.entry != nil {
			before[i] = c.entry.lease.Load()
		}
	}
	err := t.do(ctx, b)
	for i := range calls {
		c, l, d := &calls[i], before[i], &b.Decisions[i]
		switch {
		case isUnavailable(err) || errors.Is(err, weir.ErrState):
			*d = t.fallback(weir.PeekEach, c)
			continue
		case err != nil:
			return err
		case l != nil && c.entry.lease.Load() == l && l.usable(c.plan, t.now()):
			l.addTo(d, c.cost)
		}
		t.subtractUsage(c, d)
	}
	return nil
}

// subtractUsage subtracts unsynced usage from the store's decision.
func (t *Limiter) subtractUsage(c *call, d *weir.Decision) {
	if !c.find(t) {
		return
	}
	c.entry.mu.Lock()
	used := c.entry.allowance.unsynced + c.entry.allowance.inFlight
	c.entry.mu.Unlock()
	if used == 0 {
		return
	}
	missing := max(0, used+c.cost-d.Remaining) // Remaining is before the charge if it was denied, and after it if it fits
	if d.Allowed {
		missing = max(0, used-d.Remaining)
	}
	d.Remaining, d.Estimate = max(0, d.Remaining-used), true
	if missing == 0 || c.cost == 0 {
		return
	}
	wait := d.ResetAfter
	if perNano := c.plan.perNano[d.By]; perNano > 0 {
		wait = time.Duration(math.Ceil(float64(missing) / perNano))
	}
	if d.Allowed {
		d.Allowed, d.Reason = false, weir.Exhausted
	}
	if d.RetryAfter != weir.Never {
		d.RetryAfter = max(d.RetryAfter, wait, 1)
	}
}

// addTo adds the units left of the lease to the store's decision.
func (l *lease) addTo(d *weir.Decision, cost int64) {
	left := int64(l.word.Load() & leftMask)
	d.Remaining, d.Estimate = min(d.Limit, d.Remaining+left), true
	if !d.Allowed && cost <= left {
		d.Allowed, d.Reason, d.RetryAfter = true, weir.Admitted, 0
	}
}

// resetEach resets keys in the store, then on this node, and then publishes that.
func (t *Limiter) resetEach(ctx context.Context, b *weir.Batch) error {
	ended := t.changing(b.Charges)
	err := t.do(ctx, b)
	ended()
	if err != nil {
		return err
	}
	list := make([]Message, 0, len(b.Charges))
	for _, c := range b.Charges {
		pl := t.planOf(c.Policy)
		if e := t.table.find(pl.history, c.Key, t.table.hash(pl.history, c.Key)); e != nil {
			t.forget(pl, e)
		}
		list = append(list, Message{Kind: KeyReset, Policy: c.Policy.Name(), Key: c.Key})
	}
	t.publishNow(ctx, list...)
	return nil
}

// forget resets this node's share of a key, and discards its unsynced usage, which precedes the
// reset.
func (t *Limiter) forget(pl *plan, e *entry) {
	e.mu.Lock()
	e.state = keyState{}
	e.allowance.unsynced, e.allowance.shared = 0, 0
	e.allowance.void()
	e.mu.Unlock()
	if s := t.shareOf(pl); s.policy != nil {
		_ = weir.Reset(context.Background(), t.config.Local, s.policy, e.key) // the next decision by Local reports the problem
	}
}

// debitEach charges the store or, if that is unavailable, records the units as unsynced usage.
func (t *Limiter) debitEach(ctx context.Context, b *weir.Batch) error {
	calls := t.beginAll(b.Charges)
	ended := t.changing(b.Charges)
	err := t.do(ctx, b)
	ended()
	unavailable := isUnavailable(err)
	charged := err == nil || errors.Is(err, weir.ErrUnknown) // if the outcome is unknown, it counts as charged, so that nothing is charged twice
	for i := range calls {
		c := &calls[i]
		if charged {
			t.chargedElsewhere(c, c.cost)
		} else if unavailable {
			t.record(c, c.cost, 0)
		}
		if unavailable {
			b.Decisions[i] = t.fallback(weir.DebitEach, c)
		}
	}
	if unavailable {
		return nil
	}
	return err
}

// chargedElsewhere reduces the allowance of a key by units that the store was charged outside
// of it. Replies to earlier calls, which do not include these units, no longer set the allowance.
func (t *Limiter) chargedElsewhere(c *call, units int64) {
	if !c.find(t) {
		return
	}
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	a := &c.entry.allowance
	a.sent++
	a.left = max(0, a.left-units)
}

// voidAllowance ends the allowance of a key. Its usage is still flushed.
func (e *entry) voidAllowance() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowance.sent++ // replies to earlier calls must not set it again
	e.allowance.void()
}

// Set puts new in force wherever old was, on all nodes. It returns an error if the store is
// unavailable.
func (t *Limiter) Set(ctx context.Context, old, new *weir.Policy) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := t.store.Set(within, old, new); err != nil {
		return err
	}
	t.historyOf(new.Name()).replaced(old, new)
	t.wakeUp() // allowances are void, and their usage is to be flushed
	t.publishNow(ctx, Message{Kind: PolicyChanged, Policy: new.Name()})
	return nil
}

// receipts are the receipts of reservations that were made in Local while the store was
// unavailable. They are settled there.
type receipts struct {
	mu   sync.Mutex // guards the field below
	open map[[16]byte]weir.Instant
}

// mostReceipts bounds the receipts.
const mostReceipts = 100_000

// keep adds a receipt of Local, if there is room.
func (r *receipts) keep(of weir.Receipt, now weir.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= mostReceipts {
		maps.DeleteFunc(r.open, func(_ [16]byte, expiry weir.Instant) bool { return expiry < now })
	}
	if r.open == nil {
		r.open = map[[16]byte]weir.Instant{}
	}
	if len(r.open) < mostReceipts {
		r.open[of.ID] = of.Expiry
	}
}

// has reports whether a receipt is of Local.
func (r *receipts) has(id [16]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.open[id]
	return ok
}

func (r *receipts) forget(of weir.Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, of.ID)
}
