// Package mono reads the one clock that weir decides by: wall time at the start
// of the process plus the monotonic time that has passed since. It never goes back,
// whatever happens to the machine's wall clock, and it costs half of time.Now.
//
// It does not follow the wall clock by itself. A program whose calendar days must begin
// when the wall clock says so, also after that was set forward or the machine was
// suspended, calls CatchUp every so often.
//
// Limiters work from 2020 on. A wall clock that was never set is earlier, and so
// is the clock of a testing/synctest bubble, which starts in 2000. Such a time is
// read 56 years later: calendars repeat after 28, so days, weeks, months and years
// begin when the caller expects.
package mono

import (
	"sync/atomic"
	"time"
)

const (
	year2020 = 1_577_836_800_000_000_000
	years56  = 20_454 * 24 * int64(time.Hour)
)

var (
	base     = time.Now()
	baseUnix = base.UnixNano()
	ahead    atomic.Int64 // how far CatchUp has moved Now; it only grows
)

// Now returns Unix nanoseconds that never decrease within a process or, for
// goroutines of a synctest bubble, within the bubble.
func Now() int64 {
	now := baseUnix + ahead.Load() + int64(time.Since(base))
	if now < year2020 {
		now += years56
	}
	return now
}

// MinStep is how far the wall clock must be ahead for CatchUp to follow it.
const MinStep = 250 * time.Millisecond

// CatchUp moves Now forward to the wall clock if that is ahead by MinStep or more, and returns
// by how much. To those who count, it is time that has passed: under a rate it gives back at
// most what that rate yields meanwhile. If the wall clock was set back, nothing changes: time
// that has been acted on stays, and Now remains ahead by the step until the wall clock has
// caught up or the process is started anew.
func CatchUp() time.Duration {
	wall := time.Now()
	return catchUp(wall.UnixNano(), wall.Sub(base))
}

// catchUp is CatchUp at a wall time, when so much monotonic time has passed since base.
func catchUp(wall int64, passed time.Duration) time.Duration {
	for {
		was := ahead.Load()
		step := time.Duration(wall - baseUnix - was - int64(passed))
		if step < MinStep {
			return 0
		}
		if ahead.CompareAndSwap(was, was+int64(step)) {
			return step
		}
	}
}
