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
//
// A batch that is all or nothing goes to the store whatever the copy says, so many may ask at
// once, and a key that all of them charge does not hold them up. Their turn is joint. Others
// join it, but not for ever if somebody wants it for a copy, or to tell a debt. No copy comes of
// a joint turn, as nobody knows in which order the store has answered.
//
// All but asks is guarded by the entry's mu. Whoever has the turn may read joint without: it is
// set when the turn is taken, and stays until all have left.
type turn struct {
	over    chan struct{} // closed when it is over; nil if nobody has it
	joint   bool
	wanted  bool // somebody waits for its end, or will come again to tell the debt
	closed  bool // nobody joins it any more
	members int
	told    *telling // nil until somebody has the debt told
	asks    bool     // the copy was forbidden; written before the debt is told, and read by whoever tells it
}

// A telling is that the store is told of a key's debt, for all who have the turn.
type telling struct {
	done chan struct{} // closed when err is set
	err  error         // the store is away
}

// A purpose is what a turn is wanted for.
type purpose int

const (
	tellDebt    purpose = iota // and to learn how the key stands
	askOnce                    // and make a copy of the answer
	askAnyhow                  // the same, by who has waited for a copy once, or together with others
	askTogether                // with others who want no copy
)

// over is closed.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// tryTurn takes the turn or joins it, or returns what to wait for. Who has to wait looks the key up
// again afterwards, as the entry may be gone by then. What one that is gone owes is still told.
func (e *entry) tryTurn(why purpose) (mine bool, until <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &e.turn
	switch {
	case e.gone && why != tellDebt:
		runtime.Gosched() // until it is not found any more
		return false, over
	case t.over == nil:
		t.over, t.joint = make(chan struct{}), why == askTogether
	case !t.joint || t.closed || why < askAnyhow:
		t.wanted = t.wanted || why < askTogether
		return false, t.over
	}
	t.members++
	return true, nil
}

// endTurn ends a turn that was taken, for one of those who have it.
func (e *entry) endTurn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn.closed = e.turn.closed || e.turn.wanted
	e.leaveTurnLocked()
}

func (e *entry) leaveTurnLocked() {
	if e.turn.members--; e.turn.members == 0 {
		close(e.turn.over)
		e.turn = turn{}
	}
}

// retire makes an idle entry one that nobody asks for, and whose copy nobody decides on: see
// takeCopy. Somebody who has found it before may still owe something on its account.
func (e *entry) retire() bool {
	if !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	if e.turn.over != nil || e.lease.Load() != nil || e.debt.owed() {
		return false
	}
	e.copied.until.Store(0)
	e.gone = !e.debt.owed() // still
	return e.gone
}

// tell returns how the debt is told, and whether that is up to the caller, who has the turn.
func (e *entry) tell() (how *telling, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turn.told == nil {
		e.turn.told, mine = &telling{done: make(chan struct{})}, true
	}
	return e.turn.told, mine
}

// beginTelling gives the turn to who tells the debt, too.
func (e *entry) beginTelling() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn.members++
}

// endTelling says how the telling ended. Nobody joins a turn in which it has failed.
func (e *entry) endTelling(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	how := e.turn.told
	how.err = err
	close(how.done)
	e.turn.closed = e.turn.closed || err != nil
	e.leaveTurnLocked()
}

// forbid has nobody decide on the copy from here on, and waits for those who do. It forbids first,
// and then looks whether somebody asks; takeCopy says that it asks, and then looks whether it
// may. So one of them sees the other.
//
// To decide takes no time, but whoever does may have lost the processor meanwhile. Only somebody
// whom a panic has ended asks for ever, and is not waited for so long.
func (e *entry) forbid() {
	const (
		yields = 100
		nap    = 50 * time.Microsecond
		most   = 100 * time.Millisecond
	)
	e.copied.until.Store(0)
	for began, i := time.Now(), 0; i < yields || time.Since(began) < most; i++ {
		if units := e.debt.units.Load(); e.debt.asked.Load() == units { // loaded later, it would have to be more
			return
		}
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

// tellDebts has the store told of what is owed of keys, and waits for that. For those who ask the
// store then, it forbids the copies first: also while the store is told, until it has answered.
//
// Nobody tells it under a caller's context: should the caller leave, nobody would know whether
// the store was told, and of a joint turn all would have to leave.
func (t *Limiter) tellDebts(ctx, within context.Context, l turns, asks bool) error {
	for _, how := range t.startTelling(l, asks) {
		select {
		case <-how.done:
			if how.err != nil {
				return how.err
			}
		case <-within.Done():
			return cmp.Or[error](ctx.Err(), errBusy)
		}
	}
	return nil
}

// startTelling has the debts told that nobody tells yet, of each part by itself.
func (t *Limiter) startTelling(l turns, asks bool) (list []*telling) {
	var owing map[*breaker]turns
	for _, e := range l {
		how, mine := e.tell()
		list = append(list, how)
		if !mine {
			continue
		}
		if e.beginTelling(); asks {
			e.turn.asks = true
			e.forbid()
		}
		if e.debt.units.Load() == 0 && e.debt.shared.Load() == 0 {
			e.endTelling(nil)
			continue
		}
		if owing == nil {
			owing = map[*breaker]turns{}
		}
		b := t.breakerOf(e.debt.plan.Load().policy, e.key)
		owing[b] = append(owing[b], e)
	}
	for _, of := range owing {
		if tell := func() { t.tellPart(of) }; !t.background(tell) {
			go tell() // after Close, and not for longer than the store may take
		}
	}
	return list
}

// tellPart tells the store of debts on one part, for all who have the turns.
func (t *Limiter) tellPart(l turns) {
	var err error = errBusy // should the store panic
	defer func() {
		for _, e := range l {
			e.endTelling(err)
		}
	}()
	within, cancel := context.WithTimeout(context.Background(), t.store.timeout)
	defer cancel()
	err = t.tellAll(within, l)
}

// tellAll tells the store of debts on one part: also of what shares have granted, since where
// joint turns follow each other nobody else would find the time.
func (t *Limiter) tellAll(within context.Context, l turns) error {
	for _, by := range []source{byCopy, byShare} {
		if owing := l.owing(by); len(owing) > 0 {
			if err := t.tellNow(within, by, owing); err != nil {
				return err
			}
		}
	}
	return nil
}

// owing returns those of which something is owed that a source has granted.
func (l turns) owing(by source) turns {
	return slices.DeleteFunc(slices.Clone(l), func(e *entry) bool { return e.debt.of(by).Load() == 0 })
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
func (t *Limiter) tryTurns(b *weir.Batch, places []int, why purpose) (r round) {
	for i, c := range t.beginEach(b, places) {
		free := c.plan.copies == nil || !t.needTurn(&c) || r.mine.has(c.entry)
		if !free {
			var over <-chan struct{}
			if free, over = c.entry.tryTurn(why); free {
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
	order := make([]*call, len(calls))
	for i := range calls {
		order[i] = &calls[i]
	}
	slices.SortFunc(order, func(a, b *call) int { return cmp.Compare(a.hash, b.hash) })
	for _, c := range order {
		for c.plan.copies != nil && t.needTurn(c) && !l.has(c.entry) {
			mine, over := c.entry.tryTurn(askTogether)
			if mine {
				l = append(l, c.entry)
				break
			}
			select {
			case <-over:
				c.entry = nil // it may be gone
			case <-within.Done():
				return l, errBusy
			}
		}
	}
	return l, nil
}
