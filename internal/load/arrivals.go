package load

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/pacer"
)

// arrivals hands out operations when they are due. The pacer's unit is a nanosecond
// of the schedule: an operation takes as many as there are until the one after it.
// So any rate over time, and random intervals, are one exact schedule.
type arrivals struct {
	schedule Schedule // set by newArrivals, like the next two
	poisson  bool
	pacer    *pacer.Pacer

	mu     sync.Mutex // guards the fields below, and that units are taken in order
	offset float64    // of the next operation, ns from the start
	taken  int64      // units of the pacer, which are whole
	random *rand.Rand
}

func newArrivals(c Config) (*arrivals, error) {
	// Nothing that is due is ever forfeited, however late.
	pc := pacer.Config{Rate: 1e9, Credit: maxFor, Smooth: c.Smooth}
	if ratio := c.Schedule.BurstRatio; ratio > 0 {
		pc = pacer.Config{Rate: 1e9, Mode: pacer.Burst, BurstRatio: ratio, MaxDebt: maxFor, Smooth: c.Smooth}
	}
	p, err := pacer.New(pc)
	if err != nil {
		return nil, err
	}
	return &arrivals{
		schedule: c.Schedule,
		poisson:  c.Poisson,
		pacer:    p,
		random:   rand.New(rand.NewPCG(c.Target.Seed, 0)),
	}, nil
}

// next waits until the next operation may start, and returns when it was due.
func (a *arrivals) next(ctx context.Context) (weir.Instant, error) {
	r, err := a.take()
	if err != nil {
		return 0, err
	}
	_, err = r.Wait(ctx)
	return r.Scheduled, err
}

// take takes the next operation.
func (a *arrivals) take() (*pacer.Reservation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offset += a.interval(time.Duration(a.offset))
	n := max(1, int64(a.offset)-a.taken)
	a.taken += n
	return a.pacer.ReserveN(n)
}

// interval returns how long after an operation at some time the next one is.
func (a *arrivals) interval(at time.Duration) float64 {
	mean := 1e9 / a.schedule.at(at)
	if a.poisson {
		return mean * a.random.ExpFloat64()
	}
	return mean
}

// due returns how many operations that no worker has taken are due after some time.
func (a *arrivals) due(elapsed time.Duration) (n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := a.offset; at < float64(elapsed); n++ {
		at += a.interval(time.Duration(at))
	}
	return n
}
