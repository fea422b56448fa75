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
// join it until one has its answer; the end of it is near then, for those who want a copy. None
// comes of a joint turn, as nobody knows in which order the store has answered.
type turn struct {
	over     chan struct{} // closed when it is over; nil if nobody has it; guarded by the entry's mu, as all but asks
	joint    bool          // set when it is taken
	answered bool          // somebody has left it, and nobody joins it any more
	members  int
	told     *telling // nil until somebody tells the debt, so that they may ask
	asks     bool     // the copy was barred; belongs to whoever tells the debt
}

// A telling is somebody telling the store of the debt of a key, for all who have the turn.
type telling struct {
	done chan struct{} // closed when err is set
	err  error
}

// A purpose is what a turn is wanted for.
type purpose int

const (
	tellDebt    purpose = iota // and to learn how the key stands
	askOnce                    // and make a copy of the answer
	askTogether                // with others who want no copy
)

// tryTurn takes the turn or joins it, or returns what to wait for.
func (e *entry) tryTurn(why purpose) (mine bool, over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &e.turn
	switch {
	case t.over == nil:
		t.over, t.joint = make(chan struct{}), why == askTogether
	case !t.joint || t.answered || why == tellDebt:
		return false, t.over
	}
	t.members++
	return true, nil
}

// endTurn ends a turn that was taken, for one of those who have it.
func (e *entry) endTurn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn.answered = true
	if e.turn.members--; e.turn.members == 0 {
		close(e.turn.over)
		e.turn = turn{}
	}
}

// inTurn says whether somebody has the turn, or is about to.
func (e *entry) inTurn() bool {
	if !e.mu.TryLock() {
		return true
	}
	defer e.mu.Unlock()
	return e.turn.over != nil
}

// tell returns how the debt is told, and whether that is up to the caller.
func (e *entry) tell() (how *telling, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turn.told == nil {
		e.turn.told, mine = &telling{done: make(chan struct{})}, true
	}
	return e.turn.told, mine
}

// bar forbids the copy until the store has answered for what those who have the turn ask of it:
// also while it is told of the debt before.
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
// keys. Of joint turns one does that, and the others wait for it: whoever is first has all
// its turns by then, and waits for nobody.
func (t *Limiter) tellDebts(ctx, within context.Context, l turns) (err error) {
	var (
		mine   turns
		others []*telling
	)
	for _, e := range l {
		if how, ok := e.tell(); ok {
			mine = append(mine, e)
		} else {
			others = append(others, how)
		}
	}
	err = t.barAndTell(ctx, within, mine)
	for _, e := range mine {
		how, _ := e.tell()
		how.err = err
		close(how.done)
	}
	for _, how := range others {
		select {
		case <-how.done:
			if how.err != nil {
				err = cmp.Or[error](err, errBusy)
			}
		case <-within.Done():
			return cmp.Or[error](err, errBusy)
		}
	}
	return err
}

// barAndTell is tellDebts for those whose debts the caller tells: also what shares have granted,
// since where joint turns follow each other nobody else would find the time.
func (t *Limiter) barAndTell(ctx, within context.Context, l turns) error {
	for _, e := range l {
		e.bar()
	}
	for _, by := range []source{byCopy, byShare} {
		owing := map[*breaker][]*entry{}
		for _, e := range l {
			if e.debt.of(by).Load() != 0 {
				b := t.breakerOf(e.debt.plan.Load().policy, e.key)
				owing[b] = append(owing[b], e)
			}
		}
		for _, list := range owing {
			if err := t.tellNow(ctx, within, by, list); err != nil {
				return err
			}
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
			if free, over = c.entry.tryTurn(askOnce); free {
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
			mine, over := e.tryTurn(askTogether)
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
