package tiered

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

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
				t.owe(e)
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

// A told debt is what the store is told: cost units, for which units and shared are
// then no longer owed.
type told struct{ cost, units, shared int64 }

// debitNow tells the store of debts in one call.
func (t *Limiter) debitNow(ctx context.Context, list ...*entry) error {
	b := weir.Batch{Op: weir.DebitEach}
	debts, moments := make([]told, len(list)), make([]moment, len(list))
	for i, e := range list {
		pl := e.debt.plan.Load()
		moments[i], debts[i] = t.table.moment(pl.family, e.hash), t.due(pl, e)
		b.Charges = append(b.Charges, weir.Charge{Policy: pl.policy, Key: e.key, Cost: debts[i].cost})
	}
	sent := t.now()
	err := t.store.Do(ctx, &b)
	done := err == nil || errors.Is(err, weir.ErrUnknown) || isInput(err) && len(list) == 1
	for i, e := range list {
		pl := e.debt.plan.Load()
		if done {
			e.debt.paid(debts[i])
		}
		if done && err != nil {
			t.counts.lost.Add(debts[i].cost)
		}
		if e.debt.units.Load() != 0 || e.debt.shared.Load() != 0 {
			t.owe(e)
		}
		if err == nil && pl.copies != nil {
			t.sync(pl, e, b.Decisions[i], sent, moments[i])
		}
	}
	return err
}

// due returns what the store is to be told of an entry. Of what the share has granted it
// is told no more than is in use there now: the rest has been paid for by the rate,
// which went on while the store was away. Of several limits one may still count what
// another has forgotten; then it is told everything.
func (t *Limiter) due(pl *plan, e *entry) told {
	d := told{units: e.debt.units.Load(), shared: e.debt.shared.Load()}
	shared := max(0, d.shared) // what was given back after the store was told is less than nothing
	if s := pl.fail.share.Load(); shared > 0 && s != nil && s.policy != nil && len(pl.fail.local) == 1 && len(pl.perNano) == 1 {
		if now, err := weir.Peek(context.Background(), t.config.Local, s.policy, e.key, 0); err == nil {
			shared = min(shared, int64(math.Ceil(usedOf(pl.perNano[0]/float64(s.nodes), now))))
		}
	}
	d.cost = min(d.units+shared, weir.MaxCost)
	return d
}

// paid lowers the debt.
func (d *debt) paid(t told) {
	d.units.Add(-t.units)
	d.asked.Add(-t.units)
	d.shared.Add(-t.shared)
}
