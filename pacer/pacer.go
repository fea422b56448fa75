package pacer

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/mono"
)

// Pacer lets units start on a schedule: unit n at n/Rate after the first. All
// methods may be called by any number of goroutines.
//
// Each caller takes the next position with one fetch-and-add and waits for its
// time, so callers are served in the order in which they came. There is no
// goroutine behind it and nothing to close.
type Pacer struct {
	_    [64]byte // next is written by every call: nobody else's cache line
	next atomic.Int64
	_    [56]byte

	plan atomic.Pointer[plan] // replaced under mu

	// seen is when somebody last looked at the clock, looked the next position then.
	// Those before quickTo who are late by it need not look themselves. Only hints
	// that may disagree for a moment: nobody starts before seen, which has passed.
	seen    atomic.Int64
	looked  atomic.Int64
	stashed atomic.Int64 // how many units were in the stripes then
	quickTo atomic.Int64

	// spare counts the units in given, so that calls look there only if there are any.
	spare atomic.Int64

	// turn is held from before a strict start is due until it has started, so that
	// the next knows how far away it must stay. Channels serve in order.
	turn     chan struct{}
	returned chan struct{} // tells who has the turn that somebody gave a position back

	stripes stripes // positions that were taken several at a time

	idle atomic.Int64 // time that IdleReset took off the schedule

	mu          sync.Mutex // guards changing plan, and the fields below
	given       []span     // positions that were taken and given back
	expired     int64      // units of those that nobody took in time
	expiredTime int64
}

// A span is some positions in a row.
type span struct{ at, n int64 }

// Start is the permission to start, and tells how late that is.
type Start struct {
	// Scheduled is when it should have started. A response time that counts from
	// here includes the time that it waited behind others (coordinated omission).
	Scheduled weir.Instant

	// Wait is how much later it starts, for example 3 ms; 0 is on pace.
	Wait time.Duration
}

// MaxUnits is the most that one call may ask for.
const MaxUnits = 1 << 40

// New returns a running Pacer: its first unit is due now.
func New(c Config) (*Pacer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := &Pacer{turn: make(chan struct{}, 1), returned: make(chan struct{}, 1), stripes: newStripes()}
	pl := newPlan(c.withDefaults())
	pl.begin(0, mono.Now())
	p.plan.Store(pl)
	p.seen.Store(pl.started)
	return p, nil
}

// Wait waits until the next unit may start. If ctx ends before, it returns its
// error, and nothing is taken.
func (p *Pacer) Wait(ctx context.Context) (Start, error) {
	if err := ctx.Err(); err != nil {
		return Start{}, err
	}
	pl := p.plan.Load()
	if !pl.quick {
		return p.wait(ctx, 1)
	}
	st := p.stripes.mine()
	at, quick := st.take()
	if !quick {
		if p.spare.Load() != 0 {
			return p.wait(ctx, 1)
		}
		at = p.claimSome(st)
		quick = at < p.quickTo.Load()
	}
	// As knownLate, for one unit of the mode Average, inlined: this is all that is
	// done for those who are late, and the rest of a workload has to share the
	// processor with it.
	if units := uint64(at - pl.anchor); quick && units < pl.quickUnits {
		part, _ := bits.Mul64(pl.slice.part, units)
		due := pl.base + pl.shift.Load() + int64(pl.slice.whole*units+part)
		if late := p.seen.Load() - due; uint64(late) <= uint64(pl.maxLate) {
			return Start{weir.Instant(due), time.Duration(late)}, nil
		}
	}
	return p.waitFor(ctx, span{at, 1}, false)
}

// WaitN waits until the next n units may start: those before them have started, and
// these are what the caller after this waits for. n is 1 to MaxUnits.
func (p *Pacer) WaitN(ctx context.Context, n int64) (Start, error) {
	if err := p.check(n); err != nil {
		return Start{}, err
	}
	if err := ctx.Err(); err != nil {
		return Start{}, err
	}
	return p.wait(ctx, n)
}

func (p *Pacer) check(n int64) error {
	if n < 1 || n > MaxUnits {
		return fmt.Errorf("pacer: %d units: want 1 to %d", n, int64(MaxUnits))
	}
	if p.next.Load() > maxNext {
		return errors.New("pacer: all units that it can count have been taken")
	}
	return nil
}

const maxNext = 1 << 62

// knownLate returns the start of units that are late by what the clock has shown
// before, and not so late that the schedule must move.
func (p *Pacer) knownLate(pl *plan, s span) (Start, bool) {
	if s.at+s.n > p.quickTo.Load() {
		return Start{}, false
	}
	seen, due := p.seen.Load(), pl.due(s.at)
	late := seen - due
	if uint64(late) > uint64(pl.maxLate) {
		return Start{}, false
	}
	if pl.peaks(s.at) && uint64(seen-pl.peak(s.at)) > uint64(pl.credit) {
		return Start{}, false
	}
	return Start{weir.Instant(due), time.Duration(late)}, true
}

// wait is WaitN for everybody.
func (p *Pacer) wait(ctx context.Context, n int64) (Start, error) {
	pl := p.plan.Load()
	if pl.strict() {
		turn, err := p.takeTurn(ctx, pl)
		if err != nil {
			return Start{}, err
		}
		return p.waitFor(ctx, p.claim(n), turn)
	}
	s := p.claim(n)
	if pl.stopped == 0 && pl.config.IdleReset == 0 {
		if start, ok := p.knownLate(pl, s); ok {
			return start, nil
		}
	}
	return p.waitFor(ctx, s, false)
}

// waitFor waits until the units at s may start. With turn the caller has the turn,
// and gives it back with this call.
func (p *Pacer) waitFor(ctx context.Context, s span, turn bool) (Start, error) {
	defer func() {
		if turn {
			<-p.turn
		}
	}()
	for fresh := true; ; fresh = false {
		pl := p.plan.Load()
		if s.at < pl.first { // it was restarted
			s = p.claim(s.n)
		}
		if pl.strict() && !turn { // it has become strict just now: places are taken in turn
			p.giveBack(s)
			var err error
			if turn, err = p.takeTurn(ctx, pl); err != nil {
				return Start{}, err
			}
			s = p.claim(s.n)
			continue
		}
		if turn {
			s = p.older(s)
		}
		if pl.stopped != 0 {
			if err := pl.waitForChange(ctx); err != nil {
				p.giveBack(s)
				return Start{}, err
			}
			continue
		}
		now, last := p.look(pl, s, fresh)
		due, start, ok := pl.settle(s.at, last, now)
		if !ok {
			runtime.Gosched() // another plan is being put in force
			continue
		}
		if start-now <= pl.slack {
			return started(due, now), nil
		}
		if err := p.sleep(ctx, pl, pl.wakeAt(start, now)); err != nil {
			p.giveBack(s)
			return Start{}, err
		}
	}
}

// wakeAt returns until when to sleep for a unit that may start at a time. Those who
// wait for a few microseconds each would keep the program busy with timers, so they
// sleep a little longer and catch up afterwards.
func (pl *plan) wakeAt(start, now int64) int64 {
	if pl.strict() || pl.config.Smooth || pl.slice.whole >= shortSlice {
		return start
	}
	return max(start, now+min(shortSleep, pl.credit/8))
}

const (
	shortSlice = 25_000  // ns; that of 40,000 per second
	shortSleep = 200_000 // ns
)

// started returns a start at now. One that is early by the slack is on time.
func started(due, now int64) Start {
	return Start{weir.Instant(min(due, now)), time.Duration(max(0, now-due))}
}

// look reads the clock, for all to see, and returns the position by which the
// schedule is judged: the last that anybody has or, if some have started since the
// last look, the first of these, as if they had all started just now. Where starts
// must keep apart it is the caller's own. It is none before the plan. If nobody has
// asked for so long that it was idle, which only who comes fresh can tell, look
// tells the schedule.
func (p *Pacer) look(pl *plan, s span, fresh bool) (now, last int64) {
	next := p.next.Load()
	now = mono.Now()
	before, first := p.seen.Swap(now), p.looked.Swap(next)-p.stashed.Swap(p.stripes.units())
	fast := now-before <= min(next-first, 2*maxQuick)*fastest // no more: large steps of WaitN are not many starts
	p.quickTo.Store(quickTo(p.quickTo.Load(), next, next-first, fast))
	p.setBatch(pl, next, now, fast)
	if idle := int64(pl.config.IdleReset); fresh && idle > 0 && now-before > idle {
		p.leaveOut(pl, s.at, before, now)
	}
	if pl.strict() {
		return now, s.at
	}
	last = max(s.at, next-1)
	return now, max(min(first, last), min(pl.anchor, last))
}

// quickTo returns up to which position nobody needs to look at the clock after n
// units have started: some more than last time if they came so fast that reading
// it would be most of the work, otherwise none. So a Start.Wait is wrong by some ten
// microseconds, unless somebody who was fast stalls. Somebody else may have looked
// just before: what that led to, to, stays.
func quickTo(to, next, n int64, fast bool) int64 {
	if !fast {
		return next
	}
	return max(to, next+min(2*n, maxQuick))
}

const (
	fastest  = 250 // ns per unit
	maxQuick = 64
)

// leaveOut takes the time since last off the schedule, as far as it is lateness.
func (p *Pacer) leaveOut(pl *plan, at, last, now int64) {
	was := pl.shift.Load()
	idle := now - max(last, pl.unshifted(at)+was)
	if idle > 0 && was != frozen && pl.shift.CompareAndSwap(was, was+idle) {
		p.idle.Add(idle)
	}
}

// takeTurn waits for the turn. It returns false if the plan has changed before.
func (p *Pacer) takeTurn(ctx context.Context, pl *plan) (bool, error) {
	select {
	case p.turn <- struct{}{}:
		return true, nil
	case <-pl.changed:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// claim takes n positions: the oldest that were given back, or the next.
func (p *Pacer) claim(n int64) span {
	if p.spare.Load() >= n {
		if s, ok := p.reuse(n); ok {
			return s
		}
	}
	return span{p.next.Add(n) - n, n}
}
