package pacer

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/mono"
)

// TryNext starts the next unit if it may start now. Otherwise it returns false, and
// nothing is taken. It does not overtake those who wait: it may only have what one
// of them gave back.
func (p *Pacer) TryNext() (Start, bool) { return p.TryNextN(1) }

// TryNextN is TryNext for n units, 1 to MaxUnits.
func (p *Pacer) TryNextN(n int64) (Start, bool) {
	if p.check(n) != nil {
		return Start{}, false
	}
	strict := p.plan.Load().strict()
	if strict {
		select {
		case p.turn <- struct{}{}:
			defer func() { <-p.turn }()
		default:
			return Start{}, false
		}
	}
	if s, ok := p.tryGiven(n); ok {
		return s, true
	}
	for {
		if s, done := p.try(n, strict); done {
			return s, s != Start{}
		}
	}
}

// tryGiven is TryNextN with positions that were given back.
func (p *Pacer) tryGiven(n int64) (Start, bool) {
	if p.spare.Load() < n {
		return Start{}, false
	}
	s, ok := p.reuse(n)
	if !ok {
		return Start{}, false
	}
	pl := p.plan.Load()
	if pl.stopped == 0 && s.at >= pl.first {
		now, last := p.look(pl, s, true)
		if due, start, ok := pl.settle(s.at, last, now); ok && start-now <= pl.slack {
			return started(due, now), true
		}
	}
	p.giveBack(s)
	return Start{}, false
}

// try returns false if another caller took the position or another plan is being put in force.
func (p *Pacer) try(n int64, turn bool) (s Start, done bool) {
	pl, at := p.plan.Load(), p.next.Load()
	if pl.stopped != 0 || pl.strict() && !turn {
		return Start{}, true
	}
	now, last := p.look(pl, span{at, n}, true)
	due, start, ok := pl.settle(at, min(at, last), now)
	if !ok {
		return Start{}, false
	}
	if start-now > pl.slack {
		return Start{}, true
	}
	return started(due, now), p.next.CompareAndSwap(at, at+n)
}

// A Reservation is units whose time is known, and which need not be waited for
// here. It does not move when the Config changes.
type Reservation struct {
	// Scheduled is when the units are due.
	Scheduled weir.Instant

	// At is when they may start: when they are due or, if they are late, now or,
	// in the mode Burst, when it is their turn to catch up.
	At weir.Instant

	pacer *Pacer
	span  span
}

// Reserve takes the next unit and returns when it is due, without waiting. In the
// mode Strict the caller must start at that time: the pacer does not see when it starts.
func (p *Pacer) Reserve() *Reservation {
	r, _ := p.ReserveN(1)
	return r
}

// ReserveN is Reserve for n units, 1 to MaxUnits.
func (p *Pacer) ReserveN(n int64) (*Reservation, error) {
	if err := p.check(n); err != nil {
		return nil, err
	}
	r := &Reservation{pacer: p, span: p.claim(n)}
	for {
		pl := p.plan.Load()
		now, last := p.look(pl, r.span, true)
		due, start, ok := pl.settle(r.span.at, last, min(now, pl.time()))
		if !ok {
			continue
		}
		r.At = weir.Instant(max(now, start))
		r.Scheduled = weir.Instant(due)
		return r, nil
	}
}

// Delay returns how long to sleep before the start, 0 if it is due.
func (r *Reservation) Delay() time.Duration {
	return max(0, time.Duration(int64(r.At)-mono.Now()))
}

// Wait waits until the units may start, and returns how late that is. If ctx ends
// before, it returns its error; then Cancel gives the units back.
func (r *Reservation) Wait(ctx context.Context) (Start, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Start{}, err
		}
		now := weir.Instant(mono.Now())
		if now >= r.At {
			return Start{r.Scheduled, now.Sub(r.Scheduled)}, nil
		}
		if err := r.pacer.sleep(ctx, r.pacer.plan.Load(), int64(r.At)); err != nil {
			return Start{}, err
		}
	}
}

// Cancel gives the units back, for others to use. It may be called once, before
// they have started; later calls do nothing.
func (r *Reservation) Cancel() {
	if r.span.n > 0 {
		r.pacer.giveBack(r.span)
		r.span.n = 0
	}
}
