package tiered

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// A debt is the units of a key that were granted here and that the store does not know
// of yet: by Async, and while the store was away.
//
// units is raised before the units are granted and lowered when the store has been
// told, so it is never less than what is unknown to the store. Whoever raises it from a
// state in which the entry is not listed lists it; listed is cleared only by the one
// who has taken it off the list.
type debt struct {
	units  atomic.Int64
	listed atomic.Bool
	plan   atomic.Pointer[plan] // under which the last were granted
}

func (d *debt) owed() bool { return d.listed.Load() || d.units.Load() != 0 }

// debts lists the entries that owe something.
type debts struct {
	mu   sync.Mutex // guards the field below
	list []*entry
}

// A turn is the right to talk to the store about a key's debt: were two to tell it, it
// would be told twice. In Async mode it is the right to ask the store for the key at
// all: were one asked for while another decides on a copy that knows nothing of that,
// more could be granted than there is.
type turn struct {
	taken chan struct{} // closed when it is over; nil if nobody has it; guarded by the entry's mu
}

// tryTurn takes the turn, or returns what to wait for.
func (e *entry) tryTurn() (mine bool, over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turn.taken != nil {
		return false, e.turn.taken
	}
	e.turn.taken = make(chan struct{})
	return true, nil
}

// endTurn ends a turn that was taken.
func (e *entry) endTurn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.turn.taken)
	e.turn.taken = nil
}

// owe lists an entry whose debt was raised.
func (t *Limiter) owe(pl *plan, e *entry) {
	if e.debt.plan.Load() != pl {
		e.debt.plan.Store(pl)
	}
	if e.debt.listed.Load() || !e.debt.listed.CompareAndSwap(false, true) {
		return
	}
	t.debts.mu.Lock()
	defer t.debts.mu.Unlock()
	t.debts.list = append(t.debts.list, e)
}

// debitBatch is how many debts the store is told of at once.
const debitBatch = 256

// flush tells the store of all debts, except those of parts that were given up.
func (t *Limiter) flush(ctx context.Context) {
	t.flushWhere(ctx, func(e *entry) bool { return !t.breakerOf(e.debt.plan.Load().policy, e.key).open.Load() })
}

// flushPart tells a part that answers again. It returns false if that went wrong.
func (t *Limiter) flushPart(ctx context.Context, b *breaker) bool {
	return t.flushWhere(ctx, func(e *entry) bool { return t.breakerOf(e.debt.plan.Load().policy, e.key) == b })
}

// flushWhere tells the store of debts. It returns false if it did not take one.
func (t *Limiter) flushWhere(ctx context.Context, which func(*entry) bool) bool {
	t.debts.mu.Lock()
	list := t.debts.list
	t.debts.list = nil
	t.debts.mu.Unlock()
	if len(list) == 0 {
		return true
	}
	var told, kept []*entry
	busy := false
	for _, e := range list {
		if which(e) {
			if mine, _ := e.tryTurn(); mine {
				e.debt.listed.Store(false) // whoever raises it from here on lists it again
				told = append(told, e)
				continue
			}
			busy = true
		}
		kept = append(kept, e)
	}
	t.relist(kept)
	chunks := t.byPart(told)
	for i, chunk := range chunks {
		ok := t.debit(ctx, chunk)
		endTurns(chunk)
		if !ok {
			rest := slices.Concat(chunks[i+1:]...) // they would not fare better now
			for _, e := range rest {
				t.owe(e.debt.plan.Load(), e)
			}
			endTurns(rest)
			return false
		}
	}
	return !busy
}

func endTurns(list []*entry) {
	for _, e := range list {
		e.endTurn()
	}
}

// byPart splits entries into batches that lie on one part each.
func (t *Limiter) byPart(list []*entry) [][]*entry {
	return chunks(list, debitBatch, func(e *entry) int { return t.breakerOf(e.debt.plan.Load().policy, e.key).part })
}

// chunks splits a list into pieces of at most so many that lie on one part each.
func chunks[T any](list []T, most int, part func(T) int) (pieces [][]T) {
	slices.SortStableFunc(list, func(a, b T) int { return part(a) - part(b) })
	for len(list) > 0 {
		n := 1
		for n < len(list) && n < most && part(list[n]) == part(list[0]) {
			n++
		}
		pieces, list = append(pieces, list[:n]), list[n:]
	}
	return pieces
}

// relist keeps entries on the list.
func (t *Limiter) relist(list []*entry) {
	t.debts.mu.Lock()
	defer t.debts.mu.Unlock()
	t.debts.list = append(t.debts.list, list...)
}

// debit tells the store of the debts of some entries whose turns the caller has, all on
// one part. What it may have been told already it is not told again.
func (t *Limiter) debit(ctx context.Context, list []*entry) bool {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t.counts.storeCalls.Add(1)
	err := t.debitNow(within, list...)
	if isInput(err) && len(list) > 1 { // it is about one of them
		for i := range list {
			t.debit(ctx, list[i:i+1])
		}
		return true
	}
	if errors.Is(err, weir.ErrUnknown) {
		t.counts.unknown.Add(1)
	}
	return err == nil
}

// debitNow tells the store of debts in one call.
func (t *Limiter) debitNow(ctx context.Context, list ...*entry) error {
	b := weir.Batch{Op: weir.DebitEach}
	moments := make([]moment, len(list))
	for i, e := range list {
		pl := e.debt.plan.Load()
		moments[i] = t.table.moment(pl.family, e.hash)
		b.Charges = append(b.Charges, weir.Charge{Policy: pl.policy, Key: e.key, Cost: e.debt.due()})
	}
	sent := t.now()
	err := t.store.Do(ctx, &b)
	switch {
	case err == nil:
		t.debited(&b, list, sent, moments)
	case errors.Is(err, weir.ErrUnknown), isInput(err) && len(list) == 1:
		t.written(&b, list)
	default:
		for _, e := range list {
			t.owe(e.debt.plan.Load(), e)
		}
	}
	return err
}

// due returns the units that the store is to be told of. What was given back beyond
// them is not: it cannot be taken from what the store was told before.
func (d *debt) due() int64 {
	units := d.units.Load()
	if units < 0 {
		d.units.Add(-units)
		return 0
	}
	return min(units, weir.MaxCost)
}

// debited is for debts that the store has taken.
func (t *Limiter) debited(b *weir.Batch, list []*entry, sent weir.Instant, moments []moment) {
	for i, e := range list {
		pl := e.debt.plan.Load()
		if e.debt.units.Add(-b.Charges[i].Cost) > 0 {
			t.owe(pl, e)
		}
		if pl.copies != nil {
			t.sync(pl, e, b.Decisions[i], sent, moments[i])
		}
	}
}

// written is for debts that are written off: the store may have taken them, or never
// will.
func (t *Limiter) written(b *weir.Batch, list []*entry) {
	for i, e := range list {
		t.counts.lost.Add(b.Charges[i].Cost)
		if e.debt.units.Add(-b.Charges[i].Cost) > 0 {
			t.owe(e.debt.plan.Load(), e)
		}
	}
}
