package tiered

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// A turn is the right to talk to the store about a key's debt: were two to tell it, it
// would be told twice. In Async mode it is the right to ask the store for the key at
// all: were one asked for while another decides on a copy that knows nothing of that,
// more could be granted than there is.
type turn struct {
	taken chan struct{} // closed when it is over; nil if nobody has it; guarded by the entry's mu
	asks  bool          // the copy was barred; belongs to whoever has the turn
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
	e.turn = turn{}
}

// bar forbids the copy until the store has answered for what whoever has the turn asks of it: also
// while it is told of the debt before.
func (e *entry) bar() {
	e.turn.asks = true
	e.forbid()
}

// forbid has nobody decide on the copy from here on, and waits for those who do. It forbids first,
// and then looks whether somebody asks; takeCopy says that it asks, and then looks whether it
// may. So one of them sees the other.
//
// To decide takes no time, but whoever does may have lost the processor meanwhile. Only somebody
// whom a panic has ended asks for ever, and is not waited for longer than half a second.
func (e *entry) forbid() {
	const (
		yields = 100
		naps   = 10_000
		nap    = 50 * time.Microsecond
	)
	e.copied.until.Store(0)
	for i := 0; i < yields+naps && e.debt.asked.Load() != e.debt.units.Load(); i++ {
		if i < yields {
			runtime.Gosched()
		} else {
			time.Sleep(nap)
		}
	}
}

// turns are those of several keys, all of which somebody has.
type turns []*entry

func (l turns) end() {
	for _, e := range l {
		e.endTurn()
	}
}

// has says whether the turn of e is among the turns.
func (l turns) has(e *entry) bool { return slices.Contains(l, e) }

// tellDebts bars the copies, and tells the store of what is owed, so that it may be asked for the
// keys.
func (t *Limiter) tellDebts(ctx, within context.Context, l turns) error {
	owing := map[*breaker][]*entry{}
	for _, e := range l {
		e.bar()
		if e.debt.units.Load() != 0 {
			b := t.breakerOf(e.debt.plan.Load().policy, e.key)
			owing[b] = append(owing[b], e)
		}
	}
	for _, list := range owing {
		if err := t.tellNow(ctx, within, list); err != nil {
			return err
		}
	}
	return nil
}

// A round is some charges of a batch, by whether the store may be asked for them now.
type round struct {
	mine  turns
	free  []int  // charges whose turn is mine, or that need none
	calls []call // of these
	rest  []int
	over  <-chan struct{} // the end of a turn that one of the rest needs
}

// tryTurns takes the turns of the keys that have copies, as far as nobody else has them.
func (t *Limiter) tryTurns(b *weir.Batch, places []int) (r round) {
	for i, c := range t.beginEach(b, places) {
		free := c.plan.copies == nil || !c.needEntry(t) || r.mine.has(c.entry)
		if !free {
			var over <-chan struct{}
			if free, over = c.entry.tryTurn(); free {
				r.mine = append(r.mine, c.entry)
			} else {
				r.over = over
			}
		}
		if free {
			r.free, r.calls = append(r.free, places[i]), append(r.calls, c)
		} else {
			r.rest = append(r.rest, places[i])
		}
	}
	return r
}

// awaitTurns takes the turns of all keys of the calls that have copies. All who wait for a turn
// while they have others take them in one order, so nobody waits for ever.
func (t *Limiter) awaitTurns(within context.Context, calls []call) (l turns, err error) {
	var all []*entry
	for i := range calls {
		if c := &calls[i]; c.plan.copies != nil && c.needEntry(t) {
			all = append(all, c.entry)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.hash, b.hash) })
	for _, e := range slices.Compact(all) {
		for {
			mine, over := e.tryTurn()
			if mine {
				l = append(l, e)
				break
			}
			select {
			case <-over:
			case <-within.Done():
				return l, errBusy
			}
		}
	}
	return l, nil
}
