package fleettest

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// A measure finds by how much grants exceed a limit: it charges each to a model of the
// limit when it was granted, whether it fits or not, and sees how many units are in use
// beyond what the limit ever has in use. The models are slow and obvious.
type measure struct {
	algorithm weir.Algorithm
	capacity  float64
	rate      float64       // units per second, of GCRA and TokenBucket
	per       time.Duration // of the others
	begin     weir.Instant  // to align windows

	// anchors are the windows of AnchoredWindow, as the store has opened them.
	anchors []anchor
}

// An anchor is a window that a charge has opened.
type anchor struct{ from, to time.Duration }

// measureOf returns the measure of a limit, scaled by so much.
func (s *Scenario) measureOf(l weir.Limit, scale float64) measure {
	m := measure{algorithm: l.Algorithm, capacity: float64(l.Burst) * scale, per: l.Per.Duration(), begin: s.Begin}
	if m.per == 0 { // a calendar's
		m.per = 24 * time.Hour
	}
	m.rate = float64(l.Rate) * scale / m.per.Seconds()
	return m
}

// bursts says whether the limit is of a rate and a burst.
func (m *measure) bursts() bool {
	return m.algorithm == weir.GCRA || m.algorithm == weir.TokenBucket
}

// shared returns the measure of the share that one of so many nodes has of the limit.
func (m measure) shared(nodes int) measure {
	m.capacity = max(1, math.Floor(m.capacity/float64(nodes)))
	m.rate /= float64(nodes)
	if m.algorithm == weir.AnchoredWindow { // a node's windows are not known, and two may meet in a period
		m.algorithm, m.capacity = weir.SlidingLog, 2*m.capacity
	}
	return m
}

// excess returns the most units in use above capacity after any grant. Grants are in
// order of time.
func (m *measure) excess(grants []Grant) float64 {
	switch m.algorithm {
	case weir.FixedWindow, weir.DualWindow:
		return m.inWindows(grants, func(at time.Duration) int64 { return int64(m.begin.Add(at)) / int64(m.per) })
	case weir.AnchoredWindow:
		return m.inWindows(slices.DeleteFunc(slices.Clone(grants), m.unanchored), m.anchored)
	case weir.SlidingWindow:
		return m.estimated(grants)
	case weir.SlidingLog:
		return m.logged(grants)
	}
	return m.inBucket(grants)
}

// inBucket is for a rate and a burst: a bucket of that size and rate would have to be so
// much larger. What may have been granted earlier may have been refilled meanwhile.
func (m *measure) inBucket(grants []Grant) float64 {
	level, worst := 0.0, math.Inf(-1)
	var last time.Duration
	for i, g := range grants {
		if i == 0 {
			last = g.At
		}
		level = max(0, level-m.rate*(g.At-last).Seconds()) + float64(g.Units)
		last = g.At
		worst = max(worst, level-m.capacity)
	}
	return worst - m.rate*(doubt(grants)+2).Seconds()
}

// doubt is by how much the time of a grant is uncertain at most.
func doubt(grants []Grant) (longest time.Duration) {
	for _, g := range grants {
		longest = max(longest, g.At-g.From)
	}
	return longest
}

// inWindows adds up what was granted in each window. Grants that may have been in either
// of two windows are left out.
func (m *measure) inWindows(grants []Grant, window func(time.Duration) int64) float64 {
	sums, worst := map[int64]float64{}, math.Inf(-1)
	for _, g := range grants {
		if w := window(g.At); w == window(g.From) {
			sums[w] += float64(g.Units)
			worst = max(worst, sums[w]-m.capacity)
		}
	}
	return worst
}

// anchored returns the number of the store's window at a time or, between two windows, of
// the next: that is opened by what nodes have granted meanwhile.
func (m *measure) anchored(at time.Duration) int64 {
	i, _ := slices.BinarySearchFunc(m.anchors, at, func(a anchor, at time.Duration) int {
		if a.to <= at {
			return -1
		}
		return 1
	})
	return int64(i)
}

// unanchored says whether a share has granted something while the store had no window open.
func (m *measure) unanchored(g Grant) bool {
	i := int(m.anchored(g.At))
	return g.By == ByShare && (i == len(m.anchors) || g.At < m.anchors[i].from)
}

// estimated is for two counters: what was granted in the period before counts by the part of it
// that is covered.
func (m *measure) estimated(grants []Grant) float64 {
	var (
		number        int64
		previous, now float64
		worst         = math.Inf(-1)
	)
	window := func(at time.Duration) int64 { return int64(m.begin.Add(at)) / int64(m.per) }
	for _, g := range grants {
		w := window(g.At)
		if w != window(g.From) {
			continue
		}
		switch {
		case w == number+1:
			number, previous, now = w, now, 0
		case w > number:
			number, previous, now = w, 0, 0
		}
		now += float64(g.Units)
		elapsed := float64(int64(m.begin.Add(g.At))%int64(m.per)) / float64(m.per)
		worst = max(worst, previous*(1-elapsed)+now-m.capacity)
	}
	return worst
}

// logged adds up what was granted within a period before each grant.
func (m *measure) logged(grants []Grant) float64 {
	sum, worst, oldest, per := 0.0, math.Inf(-1), 0, m.per-doubt(grants)
	for _, g := range grants {
		for grants[oldest].At+per <= g.At {
			sum -= float64(grants[oldest].Units)
			oldest++
		}
		sum += float64(g.Units)
		worst = max(worst, sum-m.capacity)
	}
	return worst
}
