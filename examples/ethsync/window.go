package main

import (
	"slices"
	"time"
)

const (
	capacity = 5000 // units per span
	span     = 10 * time.Second
	perUnit  = span / capacity
)

// window is the limit of the provider, 500 units per second over 10 seconds. That can be read in two
// ways, and a client cannot know which of them a provider uses. Window refuses what either refuses:
//
//   - bucket: a bucket of 5,000 units that is refilled with 500 per second. After a burst of 5,000 it
//     still admits 500 per second, so that almost 10,000 pass within 10 s.
//   - rolling: at most 5,000 in any 10 s. What this reading admits, the other admits too.
//
// Instants are durations since the start of the provider. An instant before the last one counts as
// the last one.
type window struct {
	now  time.Duration
	full time.Duration // when the bucket is full again, unless that is past
	log  []entry       // what was admitted after now-span; each entry has at least one unit
	used int64         // the sum of log
	peak int64         // the largest used so far
}

type entry struct {
	at    time.Duration
	units int64
}

// take admits at most capacity units and returns 0. Or it refuses all of them, counts nothing and
// returns how long to wait.
func (w *window) take(now time.Duration, units int64) (wait time.Duration) {
	w.advance(now)
	if wait := max(w.bucketWait(units), w.rollingWait(units)); wait > 0 || units == 0 {
		return wait
	}
	w.full += time.Duration(units) * perUnit
	w.log = append(w.log, entry{w.now, units})
	w.used += units
	w.peak = max(w.peak, w.used)
	return 0
}

func (w *window) advance(now time.Duration) {
	w.now = max(w.now, now)
	w.full = max(w.full, w.now)
	expired := 0
	for ; expired < len(w.log) && w.log[expired].at <= w.now-span; expired++ {
		w.used -= w.log[expired].units
	}
	w.log = slices.Delete(w.log, 0, expired)
}

// bucketWait returns the time until the bucket holds units.
func (w *window) bucketWait(units int64) time.Duration {
	return max(0, w.full+time.Duration(units)*perUnit-w.now-span)
}

// rollingWait returns the time until enough entries of the log have expired for units.
func (w *window) rollingWait(units int64) (wait time.Duration) {
	used := w.used
	for i := 0; used+units > capacity && i < len(w.log); i++ {
		used -= w.log[i].units
		wait = w.log[i].at + span - w.now
	}
	return wait
}
