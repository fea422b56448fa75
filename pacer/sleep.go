package pacer

import (
	"context"
	"runtime"
	"time"

	"github.com/weirlimit/weir/internal/mono"
)

// sleep waits until a time, or until the plan has changed. It returns an error if
// ctx ends before.
//
// A Go program that has nothing else to do is woken up to a millisecond late. The
// modes with credit catch that up. Smooth does not have to: it lets the thread
// sleep for the last part, which the system ends within microseconds, and
// yields in a loop for what is left of it.
func (p *Pacer) sleep(ctx context.Context, pl *plan, until int64) error {
	left := until - mono.Now()
	if !pl.config.Smooth {
		return p.sleepLong(ctx, pl, time.Duration(left))
	}
	if left > int64(timerLag) {
		return p.sleepLong(ctx, pl, time.Duration(left)-timerLag)
	}
	sleepFine(until)
	for range maxYields {
		if mono.Now() >= until {
			return ctx.Err()
		}
		runtime.Gosched()
	}
	return p.sleepLong(ctx, pl, time.Duration(until-mono.Now()))
}

// maxYields bounds the loop, which is over long before; but in the virtual time of
// a test it would never be.
const maxYields = 10_000

// waitForChange waits until another plan is in force.
func (pl *plan) waitForChange(ctx context.Context) error {
	select {
	case <-pl.changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// timerLag is how late a timer may be. That much before the end Smooth leaves
// timers alone.
const timerLag = 1500 * time.Microsecond

// sleepLong sleeps on a timer. Whoever is woken by it looks at the clock again.
func (p *Pacer) sleepLong(ctx context.Context, pl *plan, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var returned chan struct{}
	if pl.strict() {
		returned = p.returned
	}
	select {
	case <-returned:
		return nil
	case <-timer.C:
		return nil
	case <-pl.changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
