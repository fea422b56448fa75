package pacer

import (
	"math"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/mono"
)

// A plan is the schedule between two changes of the Config. Unit n is due at
//
//	due(n) = base + shift + slice × (n − anchor)
//
// and in the mode Burst it starts no earlier than on a second, faster schedule
//
//	peak(n) = peakBase + peakShift + peakSlice × (n − anchor)
//
// which keeps those who catch up BurstRatio × Rate apart.
//
// # Protocol
//
// A start that is late by more than its schedule allows moves that schedule: it
// adds the excess to the shift by compare-and-swap, and whoever loses looks again.
// Shifts only grow. When a plan is replaced, its shifts are frozen first, so that
// no move is lost: who meets frozen goes to the new plan.
type plan struct {
	config Config // set by newPlan or its caller, like all but the shifts

	anchor    int64 // a position: the first that was not due, or not taken, when the plan began
	base      int64 // when it is due
	slice     slice
	peakBase  int64
	peakSlice slice
	past      past // of positions before the anchor

	slack   int64 // how early a start may be
	maxLate int64 // how far due may lag behind; with the slack it is what Config says
	credit  int64 // how far peak may

	quick      bool   // the short cut of Wait may be taken
	quickUnits uint64 // how far from the anchor it leads

	started  int64         // when the schedule began, later by what it stood still
	first    int64         // the position that it began with
	allotted int64         // the time of all units before the anchor
	stopped  int64         // since when it stands still; 0 = it does not
	changed  chan struct{} // closed when another plan is in force

	shift     atomic.Int64
	peakShift atomic.Int64
}

// frozen is the shift of a plan that is no longer in force. It makes everything
// look very late, so that the fast path needs no check of its own.
const frozen = math.MinInt64 / 2

func newPlan(c Config) *plan {
	pl := &plan{
		config:    c,
		slice:     sliceOf(c.Rate, 1),
		peakSlice: sliceOf(c.Rate, c.BurstRatio),
		slack:     c.slack(),
		maxLate:   c.maxLate() - c.slack(),
		credit:    c.credit() - c.slack(),
		quick:     c.Mode == Average && c.IdleReset == 0,
		changed:   make(chan struct{}),
	}
	pl.quickUnits = never / (pl.slice.whole + 1)
	return pl
}

// begin makes the plan one that begins at now with position first.
func (pl *plan) begin(first, now int64) {
	pl.anchor, pl.first = first, first
	pl.started = now
	pl.base = now + lead
	pl.peakBase = pl.base
	pl.past = past{base: pl.base, peakBase: pl.base, slice: pl.slice, peakSlice: pl.peakSlice}
}

// lead is how much later than n/Rate unit n is due. It is no less than any slack,
// so that in all modes nobody ever starts before n/Rate.
const lead = usefulSleep

func (pl *plan) burst() bool  { return pl.config.Mode == Burst }
func (pl *plan) strict() bool { return pl.config.Mode == Strict }

// past is the schedule of the positions before the anchor: those who had them when
// the plan began keep the times that they had.
type past struct {
	base, peakBase   int64 // of the anchor, had it belonged to them
	allotted         int64 // to them
	slice, peakSlice slice
	burst            bool
}

// time returns where the schedule is in time.
func (pl *plan) time() int64 {
	if pl.stopped != 0 {
		return pl.stopped
	}
	return mono.Now()
}

// due returns when a unit should start.
func (pl *plan) due(at int64) int64 { return pl.unshifted(at) + pl.shift.Load() }

func (pl *plan) unshifted(at int64) int64 {
	if at < pl.anchor {
		return pl.past.base + pl.past.slice.times(at-pl.anchor)
	}
	return pl.base + pl.slice.times(at-pl.anchor)
}

// peak returns when a unit may start at the earliest, in the mode Burst.
func (pl *plan) peak(at int64) int64 { return pl.unshiftedPeak(at) + pl.peakShift.Load() }

func (pl *plan) unshiftedPeak(at int64) int64 {
	if at < pl.anchor {
		return pl.past.peakBase + pl.past.peakSlice.times(at-pl.anchor)
	}
	return pl.peakBase + pl.peakSlice.times(at-pl.anchor)
}

// peaks says whether a unit has to keep to peak.
func (pl *plan) peaks(at int64) bool {
	if at < pl.anchor {
		return pl.past.burst
	}
	return pl.burst()
}

// allottedTo returns the time of all units before a position.
func (pl *plan) allottedTo(at int64) int64 {
	if at < pl.anchor {
		return pl.past.allotted + pl.past.slice.times(at-pl.anchor)
	}
	return pl.allotted + pl.slice.times(at-pl.anchor)
}

// settle moves the schedules if they are too late: if the last position that
// anybody has is. One caller who is late for reasons of his own, while others
// keep the pace, moves nothing. It returns when the unit at was due before that,
// and when it may start, or false if the plan is frozen.
func (pl *plan) settle(at, last, now int64) (due, start int64, ok bool) {
	due = pl.due(at)
	shift, ok := move(&pl.shift, pl.unshifted(last), now-pl.maxLate)
	start = pl.unshifted(at) + shift
	if start > now {
		due = start
	}
	if ok && pl.burst() {
		_, ok = move(&pl.peakShift, pl.unshiftedPeak(last), now-pl.credit)
	}
	if pl.peaks(at) {
		start = max(start, pl.peak(at))
	}
	return due, start, ok
}

// move makes unshifted + shift at least earliest, and returns the shift. It returns
// false if that is frozen.
func move(shift *atomic.Int64, unshifted, earliest int64) (int64, bool) {
	for {
		was := shift.Load()
		if was == frozen || unshifted+was >= earliest {
			return was, was != frozen
		}
		if shift.CompareAndSwap(was, earliest-unshifted) {
			return earliest - unshifted, true
		}
	}
}

// freeze ends the plan and returns its last shifts.
func (pl *plan) freeze() (shift, peakShift int64) {
	return pl.shift.Swap(frozen), pl.peakShift.Swap(frozen)
}
