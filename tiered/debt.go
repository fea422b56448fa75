package tiered

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A debt is the units of a key that were granted here and that the store does not know
// of yet: units by a copy, and shared by this node's share while the store was away.
//
// asked is what copies were asked for: it is raised before they decide and lowered if
// they refuse, so it is never less than units, which are raised when they have granted.
// Both are lowered when the store has been told. Whoever raises a debt while the entry
// is not listed lists it; listed is cleared only by the one who has taken it off the
// list.
type debt struct {
	asked  atomic.Int64
	units  atomic.Int64
	shared atomic.Int64
	listed atomic.Bool
	plan   atomic.Pointer[plan] // under which the last were granted; set before the debt is raised
}

func (d *debt) owed() bool {
	return d.listed.Load() || d.asked.Load() != 0 || d.units.Load() != 0 || d.shared.Load() != 0
}

// debts lists the entries of one part of the store that owe something.
type debts struct {
	// telling holds one while somebody tells the store, from before the list is taken: who
	// is next finds what is still owed on the list, unless an entry's turn is another's.
	telling chan struct{}

	mu   sync.Mutex // guards the field below
	list []*entry
}

// add lists entries.
func (d *debts) add(list ...*entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, list...)
}

// any says whether something is owed.
func (d *debts) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list) > 0
}

// units returns how much is owed.
func (d *debts) units() (sum int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.list {
		sum += e.debt.units.Load() + e.debt.shared.Load()
	}
	return sum
}

// take empties the list.
func (d *debts) take() []*entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	return list
}

// under notes under which plan the debt is about to be raised.
func (d *debt) under(pl *plan) {
	if d.plan.Load() != pl {
		d.plan.Store(pl)
	}
}

// owe lists an entry whose debt was raised.
func (t *Limiter) owe(e *entry) {
	if e.debt.listed.Load() || !e.debt.listed.CompareAndSwap(false, true) {
		return
	}
	t.debts[t.breakerOf(e.debt.plan.Load().policy, e.key).part].add(e)
}

// debitBatch is how many debts the store is told of at once.
const debitBatch = 256

// flush tells the store of all debts, except those of parts that were given up: all at once, so
// that one that hangs holds up no other. It returns whether it would help to come again, since
// others had turns.
func (t *Limiter) flush(ctx context.Context) bool {
	var (
		all  sync.WaitGroup
		busy atomic.Bool
	)
	for _, b := range t.breakers {
		if b.open.Load() || !t.debts[b.part].any() {
			continue
		}
		all.Go(func() {
			if told, turnedAway := t.flushPart(ctx, b); told && turnedAway {
				busy.Store(true)
			}
		})
	}
	all.Wait()
	return busy.Load()
}

// flushPart tells a part of its debts. It returns whether that went well, as far as it got,
// and whether others had turns that it needed.
func (t *Limiter) flushPart(ctx context.Context, b *breaker) (told, busy bool) {
	if ctx.Err() != nil {
		return false, false
	}
	d := &t.debts[b.part]
	select {
	case d.telling <- struct{}{}:
	case <-ctx.Done():
		return false, false
	}
	defer func() { <-d.telling }()
	for list := d.take(); len(list) > 0; {
		n := min(len(list), debitBatch)
		mine, others := t.toTell(list[:n])
		list, busy = list[n:], busy || len(others) > 0
		d.add(others...)
		ok := t.debit(ctx, mine)
		for _, e := range mine {
			if e.debt.units.Load() != 0 || e.debt.shared.Load() != 0 {
				t.owe(e)
			}
		}
		if mine.end(); !ok || ctx.Err() != nil && len(list) > 0 {
			d.add(list...) // they would not fare better now
			return false, busy
		}
	}
	return true, busy
}

// toTell takes the turns of entries that were listed, as far as nobody has them.
func (t *Limiter) toTell(list []*entry) (told, busy turns) {
	for _, e := range list {
		if mine, _ := e.tryTurn(tellDebt); mine {
			e.debt.listed.Store(false) // whoever raises it from here on lists it again
			told = append(told, e)
		} else {
			busy = append(busy, e)
		}
	}
	return told, busy
}

// debit tells the store of the debts of some entries whose turns the caller has, all on
// one part. What it may have been told already it is not told again. So it goes on if ctx is
// cancelled, by Close for example, though not beyond its deadline: nobody would know what was told.
func (t *Limiter) debit(ctx context.Context, list []*entry) bool {
	most := patience
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline))
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	ok := t.debitKind(within, byCopy, list)
	return ok && t.debitKind(within, byShare, list)
}

// debitKind tells the store of one kind of debt.
func (t *Limiter) debitKind(ctx context.Context, by source, list []*entry) bool {
	owing := turns(list).owing(by)
	if len(owing) == 0 {
		return true
	}
	t.counts.storeCalls.Add(1)
	err := t.debitNow(ctx, by, owing...)
	if isInput(err) && len(owing) > 1 { // it is about one of them
		for _, e := range owing {
			t.debitKind(ctx, by, []*entry{e})
		}
		return true
	}
	if errors.Is(err, weir.ErrUnknown) {
		t.counts.unknown.Add(1)
	}
	return err == nil || isInput(err) // which is lost
}

// A source is who has granted units that the store does not know of.
type source int

const (
	byCopy source = iota
	byShare
)

// of returns the debt of a source.
func (d *debt) of(by source) *atomic.Int64 {
	if by == byShare {
		return &d.shared
	}
	return &d.units
}

// paid lowers the debt of a source.
func (d *debt) paid(by source, units int64) {
	d.of(by).Add(-units)
	if by == byCopy {
		d.asked.Add(-units)
	}
}

// tellNow tells the store of debts of one source, on one part, for those who wait for it. All its
// errors say that the store is away. One that the store does not take is lost, and no error.
func (t *Limiter) tellNow(within context.Context, by source, list turns) error {
	charge := weir.Charge{Policy: list[0].debt.plan.Load().policy, Key: list[0].key}
	b := t.breakerOf(charge.Policy, charge.Key)
	if err := t.enter(b); err != nil {
		return err
	}
	err := t.leave(context.Background(), b, charge, t.debitNow(within, by, list...))
	if !isInput(err) {
		return err
	}
	if len(list) > 1 { // it is about one of them
		for i := range list {
			if err := t.tellNow(within, by, list[i:i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// debitNow tells the store of debts of one source, on one part, in one call.
func (t *Limiter) debitNow(ctx context.Context, by source, list ...*entry) error {
	b := weir.Batch{Op: weir.DebitEach}
	owed, moments := make([]int64, len(list)), make([]moment, len(list))
	sent := t.now()
	for i, e := range list {
		pl := e.debt.plan.Load()
		owed[i], moments[i] = e.debt.of(by).Load(), t.table.moment(pl.family, e.hash)
		cost := max(0, owed[i]) // what was given back after the store was told is less than nothing
		if by == byShare {
			cost = min(cost, t.unpaid(pl, e, sent))
		}
		b.Charges = append(b.Charges, weir.Charge{Policy: pl.policy, Key: e.key, Cost: min(cost, weir.MaxCost)})
	}
	err := t.store.patient.Do(ctx, &b)
	done := err == nil || errors.Is(err, weir.ErrUnknown) || isInput(err) && len(list) == 1
	for i, e := range list {
		if done {
			e.debt.paid(by, owed[i])
		}
		if done && err != nil {
			t.counts.lost.Add(b.Charges[i].Cost)
		}
		if e.debt.units.Load() != 0 || e.debt.shared.Load() != 0 {
			t.owe(e)
		}
		if pl := e.debt.plan.Load(); err == nil && pl.copies != nil && !e.turn.asks { // else the next answer is newer
			t.sync(pl, e, b.Decisions[i], sent, moments[i])
		}
	}
	return err
}

// unpaid returns how many units of a share the store has to be told of at most.
//
// While the store is away, its rate goes on and nobody uses it: that pays for what the
// shares grant at their rate. What they have granted beyond is still in use in the
// share. But nodes notice one after the other that the store is back, and the first of
// them use the whole rate; so for the last of the time, as long as that may take, nothing
// is paid. Had all that a share granted been told, a fleet that was busy would be refused
// for as long again as the store was away.
//
// Of several limits one may still count what another has forgotten: then it is told all.
func (t *Limiter) unpaid(pl *plan, e *entry, now weir.Instant) int64 {
	s := pl.fail.share.Load()
	if s == nil || s.policy == nil || len(pl.perNano) > 1 {
		return weir.MaxCost
	}
	d, err := weir.Peek(context.Background(), t.config.Local, s.policy, e.key, 0)
	if err != nil {
		return weir.MaxCost
	}
	perNano := pl.perNano[0] / float64(s.nodes)
	away := t.breakerOf(pl.policy, e.key).openFor(now)
	return int64(math.Ceil(usedOf(perNano, d) + perNano*float64(min(away, stagger))))
}

// stagger is how long it may take until all nodes have noticed that the store is back:
// the longest time between two probes, and two calls that time out.
const stagger = probeEvery + probeEvery/4 + 100*time.Millisecond
