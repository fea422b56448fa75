// Package mono reads the one clock that weir decides by: wall time at the start
// of the process plus the monotonic time that has passed since. It never steps,
// whatever happens to the machine's wall clock, and it costs half of time.Now.
//
// Limiters work from 2020 on. A wall clock that was never set is earlier, and so
// is the clock of a testing/synctest bubble, which starts in 2000. Such a time is
// read 56 years later: calendars repeat after 28, so days, weeks, months and years
// begin when the caller expects.
package mono

import "time"

const (
	year2020 = 1_577_836_800_000_000_000
	years56  = 20_454 * 24 * int64(time.Hour)
)

var (
	base     = time.Now()
	baseUnix = base.UnixNano()
)

// Now returns Unix nanoseconds that never decrease within a process or, for
// goroutines of a synctest bubble, within the bubble.
func Now() int64 {
	now := baseUnix + int64(time.Since(base))
	if now < year2020 {
		now += years56
	}
	return now
}
