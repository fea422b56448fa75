package tiered

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Do carries out a batch.
//
// TakeEach decides each charge as Take does, and asks the store once for all that it
// must be asked for. TakeAll and ReserveAll with several charges are the store's; only
// that one of them is denied may be known here, and then the others are reported as not
// taken. In Async mode the call carries what this node has granted of the keys. While the
// store is unavailable, they are decided as OnError says, all or none.
//
// PeekEach asks the store, adds what is leased here and subtracts unsynced usage; while the
// store is unavailable, it says what OnError would. ResetEach is published to the other
// nodes. It, and Renew and Settle of what the store holds, return an error if the store is
// unavailable. DebitEach is recorded then, and the store charged when it is back, unless it
// may have been charged; its decisions say how this node's share stands, and those of
// policies that fail closed have Reason StoreDown.
func (t *Limiter) Do(ctx context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.Used != nil { // what this node has used is all that a tier carries
		return storeapi.ErrUsed
	}
	if len(b.Charges) == 0 {
		return nil
	}
	switch b.Op {
	case weir.TakeEach:
		return t.takeEach(ctx, b)
	case weir.TakeAll:
		if len(b.Charges) == 1 {
			return t.takeEach(ctx, b)
		}
		return t.takeAll(ctx, b)
	case weir.ReserveAll:
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

// takeEach answers at once what can be, and has the store asked for the rest: one part
// at a time, since parts fail independently.
func (t *Limiter) takeEach(ctx context.Context, b *weir.Batch) error {
	var rest map[*breaker][]int
	for i, c := range b.Charges {
		call := t.begin(c.Policy, c.Key, c.Cost)
		var ok bool
		if b.Decisions[i], ok = t.atOnce(&call); ok {
			continue
		}
		if len(b.Charges) == 1 {
			var err error
			b.Decisions[i], err = t.ask(ctx, &call)
			return err
		}
		if rest == nil {
			rest = map[*breaker][]int{}
		}
		br := t.breakerOf(c.Policy, c.Key)
		rest[br] = append(rest[br], i)
	}
	for _, places := range rest {
		if err := t.askEach(ctx, b, places); err != nil {
			return err
		}
	}
	return nil
}

// askEach asks the store for some charges of a batch, all on one part. If one of them is bad,
// each is asked for by itself.
func (t *Limiter) askEach(ctx context.Context, b *weir.Batch, places []int) error {
	s := &syncCall{batch: weir.Batch{Op: weir.TakeEach}}
	calls := make([]call, len(places))
	for i, at := range places {
		c := &b.Charges[at]
		calls[i] = t.begin(c.Policy, c.Key, c.Cost)
		s.addCall(t, &calls[i])
	}
	err := t.carry(ctx, s)
	if errors.Is(err, weir.ErrState) {
		for i, at := range places {
			if b.Decisions[at], err = t.ask(ctx, &calls[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil && !isAway(err) {
		return err
	}
	generations := map[uint64]generation{} // of keys that are there several times, as changed by this batch
	for i, at := range places {
		c := &calls[i]
		if err == nil {
			c.gen = cmp.Or(generations[c.hash], c.gen)
			t.counts.store.Add(1)
			t.learn(c, s.batch.Decisions[i])
			generations[c.hash] = c.gen
			b.Decisions[at] = s.batch.Decisions[i]
		} else {
			c.unknown = errors.Is(err, weir.ErrUnknown)
			b.Decisions[at] = t.fallback(c)
		}
	}
	return nil
}

// takeAll is TakeAll and ReserveAll.
func (t *Limiter) takeAll(ctx context.Context, b *weir.Batch) error {
	calls := make([]call, len(b.Charges))
	for i, c := range b.Charges {
		calls[i] = t.begin(c.Policy, c.Key, c.Cost)
		if calls[i].entry == nil {
			continue
		}
		if d, ok := calls[i].entry.denied(calls[i].plan, c.Cost, calls[i].now); ok {
			t.counts.denyCache.Add(int64(len(b.Charges)))
			for j := range b.Decisions {
				b.Decisions[j] = t.notTaken(&b.Charges[j])
			}
			b.Decisions[i] = d
			return nil
		}
	}
	s := &syncCall{batch: weir.Batch{Op: b.Op, TTL: b.TTL}}
	for i := range calls {
		s.addCall(t, &calls[i])
	}
	err := t.carry(ctx, s)
	switch {
	case errors.Is(err, weir.ErrState):
		t.counts.unreadable.Add(int64(len(b.Charges)))
		return t.fallbackAll(b, err)
	case isAway(err):
		return t.fallbackAll(b, err)
	case err != nil:
		return err
	}
	copy(b.Decisions, s.batch.Decisions)
	copy(b.Receipts, s.batch.Receipts)
	t.learnAll(b, calls)
	return nil
}

// learnAll remembers what the store replied to a batch that is all or nothing. A charge that
// was not made because another was refused says little.
func (t *Limiter) learnAll(b *weir.Batch, calls []call) {
	for i, d := range b.Decisions {
		switch {
		case d.Allowed:
			t.admitted(&calls[i])
		case d.Reason == weir.Exhausted || d.Reason == weir.TooCostly:
			t.learn(&calls[i], d)
		}
		t.counts.store.Add(1)
	}
}

// notTaken says of a charge that fits, as far as is known here, that it was not made because
// another was refused. Of a key of which nothing is known it says that it is unused.
func (t *Limiter) notTaken(c *weir.Charge) weir.Decision {
	call := t.begin(c.Policy, c.Key, c.Cost)
	d := weir.Decision{Limit: call.plan.capacity, Remaining: call.plan.capacity, Estimate: true}
	if e := call.entry; e != nil {
		e.mu.Lock()
		s := e.state
		e.mu.Unlock()
		if s.limits == call.plan.limits && call.now < s.resetAt {
			back := int64(float64(call.now.Sub(s.at)) * call.plan.perNano[s.by])
			d.By, d.Limit, d.Remaining = s.by, s.limit, min(s.limit, s.remaining+back)
			d.ResetAfter = s.resetAt.Sub(call.now)
		}
	}
	d.Remaining = max(0, d.Remaining-c.Cost)
	return d
}

// peekEach asks the store, adds what this node has leased, and subtracts its unsynced usage.
// A lease that comes or goes meanwhile is left out: nobody knows whether the store has
// counted it.
func (t *Limiter) peekEach(ctx context.Context, b *weir.Batch) error {
	before := make([]*lease, len(b.Charges))
	for i, c := range b.Charges {
		if call := t.begin(c.Policy, c.Key, c.Cost); call.entry != nil {
			before[i] = call.entry.lease.Load()
		}
	}
	if err := t.do(ctx, b); isAway(err) || errors.Is(err, weir.ErrState) {
		return t.peekShares(b)
	} else if err != nil {
		return err
	}
	for i, c := range b.Charges {
		call, l := t.begin(c.Policy, c.Key, c.Cost), before[i]
		if call.entry == nil {
			continue
		}
		if l != nil && call.entry.lease.Load() == l && l.usable(call.plan, call.now) {
			l.addTo(&b.Decisions[i], c.Cost)
		}
		call.entry.subtractFrom(&b.Decisions[i], &call)
	}
	return nil
}

// subtractFrom subtracts unsynced usage from what the store said.
func (e *entry) subtractFrom(d *weir.Decision, c *call) {
	e.mu.Lock()
	used := e.allowance.unsynced + e.allowance.inFlight
	e.mu.Unlock()
	if used == 0 {
		return
	}
	missing := max(0, used+c.cost-d.Remaining) // as Remaining is before the charge, of a Peek that fits after it
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

// peekShares is PeekEach while the store is away.
func (t *Limiter) peekShares(b *weir.Batch) error {
	t.counts.fallback.Add(int64(len(b.Charges)))
	for i, c := range b.Charges {
		pl := t.planOf(c.Policy)
		s := t.shareOf(pl)
		switch {
		case pl.fail.closed || len(pl.fail.local) > 0 && s.policy == nil:
			b.Decisions[i] = storeDown()
		case len(pl.fail.local) == 0:
			b.Decisions[i] = weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: pl.capacity, Remaining: pl.capacity, Estimate: true}
		default:
			d, err := weir.Peek(context.Background(), t.config.Local, s.policy, c.Key, c.Cost)
			b.Decisions[i] = pl.shared(s, d, err)
		}
	}
	return nil
}

// addTo adds what is left of the lease to what the store said.
func (l *lease) addTo(d *weir.Decision, cost int64) {
	left := int64(l.word.Load() & leftMask)
	d.Remaining, d.Estimate = min(d.Limit, d.Remaining+left), true
	if !d.Allowed && cost <= left {
		d.Allowed, d.Reason, d.RetryAfter = true, weir.Admitted, 0
	}
}

// resetEach has the store forget, then this node, then the others.
func (t *Limiter) resetEach(ctx context.Context, b *weir.Batch) error {
	ended := t.changing(b.Charges)
	err := t.do(ctx, b)
	ended()
	if err != nil {
		return err
	}
	list := make([]Word, 0, len(b.Charges))
	for _, c := range b.Charges {
		pl := t.planOf(c.Policy)
		if e := t.table.find(pl.family, c.Key, t.table.hash(pl.family, c.Key)); e != nil {
			t.forget(pl, e)
		}
		list = append(list, Word{Kind: WasReset, Policy: c.Policy.Name(), Key: c.Key})
	}
	t.announce(ctx, list...)
	return nil
}

// forget makes this node's share of a key unused, and discards its unsynced usage, which
// was before the reset.
func (t *Limiter) forget(pl *plan, e *entry) {
	e.mu.Lock()
	e.state = keyState{}
	e.allowance.unsynced, e.allowance.shared = 0, 0
	e.allowance.void()
	e.mu.Unlock()
	if s := t.shareOf(pl); s.policy != nil {
		_ = weir.Reset(context.Background(), t.config.Local, s.policy, e.key) // Local decides next, and says what is wrong
	}
}

// debitEach charges the store or, if it is unavailable, records the units for later.
func (t *Limiter) debitEach(ctx context.Context, b *weir.Batch) error {
	ended := t.changing(b.Charges)
	err := t.do(ctx, b)
	ended()
	if err == nil || errors.Is(err, weir.ErrUnknown) {
		for _, c := range b.Charges {
			t.chargedElsewhere(c, c.Cost)
		}
	}
	if !isAway(err) {
		return err
	}
	for i, c := range b.Charges {
		call := t.begin(c.Policy, c.Key, c.Cost)
		switch {
		case errors.Is(err, weir.ErrUnknown): // it may have been charged, and nothing is charged twice
		case call.needEntry(t):
			t.record(&call, c.Cost)
		default:
			t.counts.forgiven.Add(c.Cost)
		}
		b.Decisions[i] = t.fallbackDebit(&call)
	}
	return nil
}

// chargedElsewhere lowers the allowance of a key by units that the store was charged for
// otherwise, and keeps replies from raising it that do not know of them.
func (t *Limiter) chargedElsewhere(c weir.Charge, units int64) {
	call := t.begin(c.Policy, c.Key, c.Cost)
	if call.entry == nil {
		return
	}
	call.entry.mu.Lock()
	defer call.entry.mu.Unlock()
	a := &call.entry.allowance
	a.sent++
	a.left = max(0, a.left-units)
}

// voidAllowance ends the allowance of a key. Its usage is still flushed.
func (e *entry) voidAllowance() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowance.sent++ // replies that are under way do not know why
	e.allowance.void()
}

// fallbackDebit says how a key stands after a debit while the store is away. This node's
// share is debited, too, lest it grant what was used already. The debit is remembered, or may
// have been made, so it is Allowed also where everything is refused meanwhile.
func (t *Limiter) fallbackDebit(c *call) weir.Decision {
	pl, s := c.plan, t.shareOf(c.plan)
	d := storeDown()
	switch {
	case pl.fail.closed || len(pl.fail.local) > 0 && s.policy == nil:
	case len(pl.fail.local) == 0:
		d = weir.Decision{Reason: weir.Admitted, Limit: pl.capacity, Remaining: pl.capacity, Estimate: true}
	default:
		if c.entry != nil {
			t.seed(c, s)
		}
		b := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: s.policy, Key: c.key, Cost: c.cost}}}
		err := t.config.Local.Do(context.Background(), &b)
		d = pl.shared(s, b.Decisions[0], err)
	}
	d.Allowed = true
	return d
}

// Set puts new in force wherever old was, on all nodes. It returns an error if the
// store is away.
func (t *Limiter) Set(ctx context.Context, old, new *weir.Policy) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := t.store.Set(within, old, new); err != nil {
		return err
	}
	f := t.familyOf(new.Name())
	f.replaced(old, new)
	t.wakeUp() // allowances are void, and usage is flushed
	t.announce(ctx, Word{Kind: WasSet, Policy: new.Name()})
	return nil
}

// receipts are those of reservations that were made while the store was away. They are
// Local's, and settled there.
type receipts struct {
	mu   sync.Mutex // guards the field below
	open map[[16]byte]weir.Instant
}

// mostReceipts bounds them.
const mostReceipts = 100_000

// keep remembers a receipt of Local's, or returns false if there is no room.
func (r *receipts) keep(id [16]byte, expiry, now weir.Instant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= mostReceipts {
		for old, at := range r.open {
			if at < now {
				delete(r.open, old)
			}
		}
	}
	if len(r.open) >= mostReceipts {
		return false
	}
	if r.open == nil {
		r.open = map[[16]byte]weir.Instant{}
	}
	r.open[id] = expiry
	return true
}

// has says whether a receipt is Local's.
func (r *receipts) has(id [16]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.open[id]
	return ok
}

func (r *receipts) forget(id [16]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, id)
}
