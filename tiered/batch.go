package tiered

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
)

// Do carries out a batch.
//
// TakeEach decides each charge as Take does, and asks the store once for all that it
// must be asked for. TakeAll and ReserveAll with several charges are the store's; only
// that one of them is denied may be known here, and then the others are reported as not
// taken. In Async mode the store is told first what copies have granted of the keys. While the
// store is away, they are decided as OnError says, all or none.
//
// PeekEach asks the store, and adds what is leased here; while the store is away, it
// says what OnError would. ResetEach is told to the other nodes. It, and Renew and Settle
// of what the store holds, return an error if the store is away. DebitEach is remembered
// then, and the store told when it is back, unless it may have been charged; its decisions say how this node's share stands,
// and those of policies that fail closed have Reason StoreDown.
func (t *Limiter) Do(ctx context.Context, b *weir.Batch) error {
	if err := b.Check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
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

// askEach asks the store for some charges of a batch, all on one part.
func (t *Limiter) askEach(ctx context.Context, b *weir.Batch, places []int) error {
	do := func(sub *weir.Batch) error { return t.do(ctx, sub) }
	switch {
	case t.config.Mode == Async && t.givenUp(b.Charges[places[0]]):
		do = func(*weir.Batch) error { return errOpen } // whatever is true by then: nobody has the turns
	case t.config.Mode == Async:
		return t.askInTurns(ctx, b, places)
	}
	return t.askTogether(b, places, t.beginEach(b, places), do)
}

// givenUp says whether one of some charges lies on a part that was given up. Who sees that takes no
// turns: who tries the part, to tell it what it missed, would never find them free.
func (t *Limiter) givenUp(charges ...weir.Charge) bool {
	return slices.ContainsFunc(charges, func(c weir.Charge) bool { return t.breakerOf(c.Policy, c.Key).open.Load() })
}

// beginEach begins a call for each of some charges.
func (t *Limiter) beginEach(b *weir.Batch, places []int) []call {
	calls := make([]call, len(places))
	for i, at := range places {
		c := &b.Charges[at]
		calls[i] = t.begin(c.Policy, c.Key, c.Cost)
	}
	return calls
}

// askTogether has the store asked for some charges at once, by do. If do asks it in Async mode, the
// caller has the turns of all but strangers, and of several charges of a key the last tells how
// that stands.
func (t *Limiter) askTogether(b *weir.Batch, places []int, calls []call, do func(*weir.Batch) error) error {
	sub := weir.Batch{Op: weir.TakeEach, Charges: make([]weir.Charge, len(places))}
	moments := make([]moment, len(places))
	var last map[*entry]int
	if t.config.Mode == Async {
		last = make(map[*entry]int, len(places))
	}
	for i, at := range places {
		sub.Charges[i] = b.Charges[at]
		moments[i] = t.table.moment(calls[i].plan.family, calls[i].hash)
		if calls[i].entry != nil && last != nil {
			last[calls[i].entry] = i
		}
	}
	sent := t.now()
	err := do(&sub)
	if err != nil && !isAway(err) {
		return err
	}
	for i, at := range places {
		c := &calls[i]
		if err != nil {
			c.unknown = errors.Is(err, weir.ErrUnknown)
			b.Decisions[at] = t.fallback(c)
			continue
		}
		b.Decisions[at] = sub.Decisions[i]
		t.counts.store.Add(1)
		if last == nil || c.entry == nil || last[c.entry] == i {
			t.learn(c, sub.Decisions[i], sent, moments[i])
		}
	}
	return nil
}

// askInTurns is askEach for keys with copies: it does with many what takeInTurn does with one. It
// asks for all whose turn nobody else has, and then goes on with the others, for some of
// which a copy is there by then. While it has turns it waits for no others.
func (t *Limiter) askInTurns(ctx context.Context, b *weir.Batch, places []int) error {
	within, cancel := context.WithTimeout(ctx, t.store.budget(ctx))
	defer cancel()
	for why := askOnce; ; why = askAnyhow {
		over, rest, err := t.askThoseFree(ctx, within, b, places, why)
		if err != nil || len(rest) == 0 {
			return err
		}
		select {
		case <-over:
		case <-within.Done():
		}
		places = slices.DeleteFunc(rest, func(at int) (ok bool) {
			c := t.begin(b.Charges[at].Policy, b.Charges[at].Key, b.Charges[at].Cost)
			b.Decisions[at], ok = t.atOnce(&c)
			return ok
		})
		if within.Err() == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		calls := t.beginEach(b, places)
		return t.askTogether(b, places, calls, func(*weir.Batch) error { return errBusy })
	}
}

// askThoseFree asks for the charges of keys whose turn nobody has, and returns the others, with
// the end of a turn to wait for.
func (t *Limiter) askThoseFree(ctx, within context.Context, b *weir.Batch, places []int, why purpose) (over <-chan struct{}, rest []int, err error) {
	r := t.tryTurns(b, places, why)
	defer r.mine.end()
	defer t.leaveStrangers(r.calls...)
	if len(r.free) == 0 {
		return r.over, r.rest, nil
	}
	told := t.tellDebts(ctx, within, r.mine, true)
	if told != nil && !isAway(told) {
		return nil, nil, told
	}
	err = t.askTogether(b, r.free, r.calls, func(sub *weir.Batch) error {
		if told != nil {
			return errBusy // what may be unknown is the debt
		}
		return t.doWithin(ctx, within, sub)
	})
	return r.over, r.rest, err
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
	switch {
	case t.config.Mode == Async && t.givenUp(b.Charges...):
		return t.fallbackAll(b, false)
	case t.config.Mode == Async:
		return t.takeAllInTurns(ctx, b, calls)
	}
	return t.takeAllNow(b, calls, func() error { return t.do(ctx, b) })
}

// takeAllInTurns is takeAll for keys that may have copies. These know nothing of what the store
// grants, so they are not used again before it has spoken of the key.
func (t *Limiter) takeAllInTurns(ctx context.Context, b *weir.Batch, calls []call) error {
	within, cancel := context.WithTimeout(ctx, t.store.budget(ctx))
	defer cancel()
	mine, err := t.awaitTurns(within, calls)
	defer mine.end()
	defer t.leaveStrangers(calls...)
	if err == nil {
		err = t.tellDebts(ctx, within, mine, true)
	}
	switch {
	case isAway(err) && ctx.Err() == nil:
		return t.fallbackAll(b, false) // what may be unknown is the debt
	case err != nil:
		return cmp.Or(ctx.Err(), err)
	}
	return t.takeAllNow(b, calls, func() error { return t.doWithin(ctx, within, b) })
}

func (t *Limiter) takeAllNow(b *weir.Batch, calls []call, do func() error) error {
	sent := t.now()
	moments := make([]moment, len(calls))
	for i := range calls {
		moments[i] = t.table.moment(calls[i].plan.family, calls[i].hash)
	}
	err := do()
	if isAway(err) {
		return t.fallbackAll(b, errors.Is(err, weir.ErrUnknown))
	}
	if err != nil {
		return err
	}
	t.counts.store.Add(int64(len(b.Charges)))
	for i := range calls {
		if d := b.Decisions[i]; d.Reason == weir.Exhausted || d.Reason == weir.TooCostly {
			t.learn(&calls[i], d, sent, moments[i])
		}
	}
	return nil
}

// notTaken says of a charge that fits, as far as is known here, that it was not made because
// another was refused. Of a key of which nothing is known it says that it is unused.
func (t *Limiter) notTaken(c *weir.Charge) weir.Decision {
	call := t.begin(c.Policy, c.Key, c.Cost)
	d := weir.Decision{Limit: call.plan.capacity, Remaining: call.plan.capacity, Estimate: true}
	if e := call.entry; e != nil {
		e.mu.Lock()
		s := e.standing
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

// peekEach asks the store, and adds what this node holds. A lease that comes or goes
// meanwhile is left out: nobody knows whether the store has counted it.
func (t *Limiter) peekEach(ctx context.Context, b *weir.Batch) error {
	before := make([]*lease, len(b.Charges))
	for i, c := range b.Charges {
		if call := t.begin(c.Policy, c.Key, c.Cost); call.entry != nil {
			before[i] = call.entry.lease.Load()
		}
	}
	if err := t.do(ctx, b); isAway(err) {
		return t.peekShares(b)
	} else if err != nil {
		return err
	}
	for i, c := range b.Charges {
		call, l := t.begin(c.Policy, c.Key, c.Cost), before[i]
		if l != nil && call.entry != nil && call.entry.lease.Load() == l && l.usable(call.plan, call.now) {
			l.addTo(&b.Decisions[i], c.Cost)
		}
	}
	return nil
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
			b.Decisions[i] = weir.Decision{Allowed: true, Limit: pl.capacity, Remaining: pl.capacity, Estimate: true}
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
	if err := t.do(ctx, b); err != nil {
		return err
	}
	list := make([]Word, 0, len(b.Charges))
	for _, c := range b.Charges {
		pl := t.planOf(c.Policy)
		if e := t.drop(pl.family, c.Key); e != nil {
			t.forget(pl, e)
		}
		list = append(list, Word{Kind: WasReset, Policy: c.Policy.Name(), Key: c.Key})
	}
	t.announce(ctx, list...)
	return nil
}

// forget makes this node's share of a key unused. What it owes was used before.
func (t *Limiter) forget(pl *plan, e *entry) {
	e.debt.paid(byCopy, e.debt.units.Load())
	e.debt.paid(byShare, e.debt.shared.Load())
	e.mu.Lock()
	e.standing = standing{}
	e.mu.Unlock()
	if s := t.shareOf(pl); s.policy != nil {
		_ = weir.Reset(context.Background(), t.config.Local, s.policy, e.key) // Local decides next, and says what is wrong
	}
}

// debitEach tells the store or, if it is away, remembers it.
func (t *Limiter) debitEach(ctx context.Context, b *weir.Batch) error {
	err := t.do(ctx, b)
	if err == nil || errors.Is(err, weir.ErrUnknown) {
		t.outdateCopies(b.Charges...)
	}
	if !isAway(err) {
		return err
	}
	for i, c := range b.Charges {
		call := t.begin(c.Policy, c.Key, c.Cost)
		if !errors.Is(err, weir.ErrUnknown) { // then it may have been charged, and nothing is charged twice
			t.remember(&call)
		}
		b.Decisions[i] = t.fallbackDebit(&call)
	}
	return nil
}

// outdateCopies has nobody decide on copies that know nothing of what was charged otherwise, nor on
// those that answers to older questions would bring.
func (t *Limiter) outdateCopies(charges ...weir.Charge) {
	for i := range charges {
		c := &charges[i]
		if call := t.begin(c.Policy, c.Key, c.Cost); call.plan.copies != nil && call.entry != nil {
			t.table.dropped(call.hash)
			call.entry.copied.until.Store(0)
		}
	}
}

// remember notes a debit that the store is told when it is back.
func (t *Limiter) remember(c *call) {
	if !c.needEntry(t) {
		t.counts.forgiven.Add(c.cost)
		return
	}
	c.entry.debt.under(c.plan)
	c.entry.debt.asked.Add(c.cost)
	c.entry.debt.units.Add(c.cost)
	t.owe(c.entry)
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
		d = weir.Decision{Limit: pl.capacity, Remaining: pl.capacity, Estimate: true}
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
