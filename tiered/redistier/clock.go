package redistier

import (
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// The end of a denial is an instant of the publisher's clock, and must be converted to the
// receiver's. Both compare their clock with Redis's in heartbeats, so it is converted by way
// of Redis's clock. Each step rounds down, because a denial may end too early but not too
// late.
//
// A heartbeat reads Redis's TIME. The node reads its own clock before it sends the command,
// and after the reply:
//
//	before ≤ x ≤ after       x = what this clock said when Redis read its own
//	time ≤ T < time + 1 µs   T = what Redis's said then; TIME is in whole microseconds
//
// When this clock says i, Redis's says T + i − x. That is least if x is greatest, and the
// other way round this clock says x + r − T when Redis's says r:
//
//	publisher:  r = time + i − after                 ≤ T + i − x
//	receiver:    i = before + r − (time + 1 µs)       ≤ x + r − T
//
// Clocks drift apart, so both are less by 200 ppm of the time since the reading: two
// quartz clocks differ by less.
//
// For example: a publisher, whose clock is 5 s ahead of Redis's, has read 100.000 by
// Redis's between 105.000 and 105.002. Its 106.000 is Redis's 100.998 (and in truth
// between 100.998 and 101.000). A receiver, whose clock is 5 s behind, has read 100.500
// between 95.499 and 95.503; the publisher's 106.000 is its 95.997 − 1 µs (in truth between
// 95.997 and 96.003).
//
// The error is the publisher's round trip plus the receiver's. So of the last readings the
// one with the shortest round trip is used, widened by 200 ppm of its age at both ends. A
// reading that contradicts a new one was made before a clock was set or another server was
// promoted, and is dropped.

// driftPart is the inverse of the greatest drift between two clocks: 1/5,000, 200 ppm.
const driftPart = 5000

// drift returns the greatest drift between two clocks in d.
func drift(d time.Duration) time.Duration {
	if d < 0 {
		d = -d
	}
	return d/driftPart + 1
}

// keptReadings is the number of readings to choose from.
const keptReadings = 8

// A reading is one reading of Redis's clock.
type reading struct {
	before, after weir.Instant // by this clock
	time          weir.Instant // by Redis's, which has whole microseconds
}

// offset returns how much Redis's clock is ahead of this one, at least and at most, for
// use at now.
func (r reading) offset(now weir.Instant) (least, most time.Duration) {
	more := drift(now.Sub(r.before))
	return r.time.Sub(r.after) - more, r.time.Sub(r.before) + time.Microsecond + more
}

// clock converts between this node's clock and Redis's.
type clock struct {
	mu       sync.Mutex // guards readings
	readings []reading  // newest last
}

// add adds a reading, and drops those it contradicts.
func (c *clock) add(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	least, most := r.offset(r.after)
	kept := make([]reading, 0, keptReadings)
	for _, old := range c.readings[max(0, len(c.readings)-keptReadings+1):] {
		if l, m := old.offset(r.after); l <= most && m >= least {
			kept = append(kept, old)
		}
	}
	c.readings = append(kept, r)
}

// forget drops all readings.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings = nil
}

// offset returns how much Redis's clock is ahead of this one at now, at least and at most.
func (c *clock) offset(now weir.Instant) (least, most time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.readings {
		if l, m := r.offset(now); !known || m-l < most-least {
			least, most, known = l, m, true
		}
	}
	return least, most, known
}

// toRedis returns a lower bound of what Redis's clock says at now.
func (c *clock) toRedis(now weir.Instant) (at weir.Instant, known bool) {
	least, _, known := c.offset(now)
	return now.Add(least), known
}

// fromRedis returns a lower bound of what this clock said when Redis's said at. now is the
// current instant of this clock, shortly after at.
func (c *clock) fromRedis(at, now weir.Instant) (local weir.Instant, known bool) {
	_, most, known := c.offset(now)
	return at.Add(-most), known
}
