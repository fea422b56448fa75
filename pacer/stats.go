package pacer

import (
	"time"
)

// Stats accounts for all time since the start, in slices of 1/Rate, one for each unit:
//
//	Allotted + Active + Waiting + Forfeited + Idle − Ahead = Elapsed
//
// to the nanosecond, whatever was set meanwhile. At a rate that never changed, and if
// nobody gave a position back, Allotted is Granted / Rate.
type Stats struct {
	Granted   int64         // units that have started, or that somebody waits for (in Strict: only who is next)
	Elapsed   time.Duration // since New or Restart, without stops
	Allotted  time.Duration // the slices of the units in Granted, and of those that were given back for others
	Active    time.Duration // lateness that may be caught up at once
	Waiting   time.Duration // lateness that may be caught up at BurstRatio × Rate
	Forfeited time.Duration // lateness that will not be caught up
	Idle      time.Duration // time without demand, if IdleReset is set
	Ahead     time.Duration // how far in the future the next unit is due
}

// WaitTime returns how late the next unit is: 0 when on pace.
func (s Stats) WaitTime() time.Duration { return s.Active + s.Waiting }

// TotalWait returns all lateness since the start, whether it may still be caught
// up or not: 0 if the pace was always kept.
func (s Stats) TotalWait() time.Duration { return s.WaitTime() + s.Forfeited }

// Stats returns what has happened so far. It changes nothing.
func (p *Pacer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl, next := p.plan.Load(), p.next.Load()
	now, due, idle := pl.time(), pl.due(next), p.idle.Load()
	allotted := pl.allottedTo(next)
	s := Stats{
		Granted:   next - pl.first - p.spare.Load() - p.stripes.units() - p.expired,
		Elapsed:   time.Duration(now - pl.started),
		Allotted:  time.Duration(allotted - p.expiredTime),
		Forfeited: time.Duration(due - lead - pl.started - allotted - idle + p.expiredTime),
		Idle:      time.Duration(idle),
		Ahead:     time.Duration(max(0, due-lead-now)),
	}
	pl.fillPools(&s, next, max(0, now-(due-lead)), now)
	return s
}

// fillPools says what may become of lateness.
func (pl *plan) fillPools(s *Stats, next, late, now int64) {
	recover := min(late, pl.maxLate+lead)
	s.Forfeited += time.Duration(late - recover)
	s.Active = time.Duration(recover)
	if !pl.burst() {
		return
	}
	atOnce := min(now-pl.peak(next), pl.credit)
	units := int64(0)
	if atOnce >= 0 {
		units = 1 + int64(pl.peakSlice.units(atOnce))
	}
	s.Active = time.Duration(min(recover, pl.slice.times(units)))
	s.Waiting = time.Duration(recover) - s.Active
}
