package redistier

import (
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A denial's end is an instant of the publisher's clock, and is wanted by the reader's.
// Both know Redis's clock by their heartbeats, so that takes the way. Each step
// is rounded to the early side, as a denial may end too early but not too late.
//
// A heartbeat asks Redis for its TIME. The node reads its own clock before it sends that,
// and after the answer has come:
//
//	before ≤ x ≤ after       x = what this clock said when Redis read its own
//	time ≤ T < time + 1 µs   T = what Redis's said then; TIME is in whole microseconds
//
// When this clock says i, Redis's says T + i − x. That is least if x is greatest, and the
// other way round this clock says x + r − T when Redis's says r:
//
//	publisher:  r = time + i − after                 ≤ T + i − x
//	reader:     i = before + r − (time + 1 µs)       ≤ x + r − T
//
// Clocks drift apart, so both are less by 200 ppm of the time since the reading: two
// quartz clocks differ by less.
//
// For example: a publisher, whose clock is 5 s ahead of Redis's, has read 100.000 by
// Redis's between 105.000 and 105.002. Its 106.000 is Redis's 100.998 (and in truth
// between 100.998 and 101.000). A reader, whose clock is 5 s behind, has read 100.500
// between 95.499 and 95.503; the publisher's 106.000 is its 95.997 − 1 µs (in truth between
// 95.997 and 96.003).
//
// What is lost is the publisher's round trip and the reader's, so of the last readings
// the one with the shortest is used, with 200 ppm at each end for its age. A reading that
// contradicts a new one is from before a clock was set or another server took over,
// and is forgotten.

// driftPart is how much two clocks drift apart at most: one 5,000th, 200 ppm.
const driftPart = 5000

// drift returns by how much clocks may have drifted apart in d.
func drift(d time.Duration) time.Duration {
	if d < 0 {
		d = -d
	}
	return d/driftPart + 1
}

// keptReadings is how many readings there are to choose from.
const keptReadings = 8

// A reading is of Redis's clock.
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

// clock translates between this clock and Redis's.
type clock struct {
	mu       sync.Mutex // guards readings
	readings []reading  // newest last
}

// add remembers a reading, and forgets those it contradicts.
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

// forget forgets all readings.
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

// toRedis returns what Redis's clock says at now, or somewhat less.
func (c *clock) toRedis(now weir.Instant) (at weir.Instant, known bool) {
	least, _, known := c.offset(now)
	return now.Add(least), known
}

// fromRedis returns what this clock said when Redis's said at, or somewhat less. That was
// lately; it is now.
func (c *clock) fromRedis(at, now weir.Instant) (local weir.Instant, known bool) {
	_, most, known := c.offset(now)
	return at.Add(-most), known
}
