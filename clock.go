package weir

import (
	"time"

	"github.com/weirlimit/weir/internal/mono"
)

// Instant is a moment in Unix nanoseconds. Limiters act on a clock that reads
// wall time at the start of the process plus the monotonic time since, so it
// never goes back. It does not follow a wall clock that is set while the process
// runs, nor count the time that a machine is suspended; the daemon does both, forward
// only, within a second. In a bubble of testing/synctest it follows the bubble's clock.
type Instant int64

// Now reads the clock that limiters act on.
func Now() Instant { return Instant(mono.Now()) }

// Time returns the instant in UTC.
func (i Instant) Time() time.Time { return time.Unix(0, int64(i)).UTC() }

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }
