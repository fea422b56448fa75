package measure

import "time"

// target follows the rate at which operations are due. Times count from the start of
// the run.
type target struct {
	rate  float64       // now, per second
	since time.Duration // up to here, all is counted as due in the series
	set   bool          // it was positive at some time
	end   time.Duration // when it was last positive
	due   float64       // operations until since
}

// advance counts what became due until then.
func (t *target) advance(until time.Duration, s *series) {
	if until <= t.since {
		return
	}
	if t.rate > 0 {
		s.addDue(t.since, until, t.rate)
		t.due += t.rate * (until - t.since).Seconds()
		t.set, t.end = true, until
	}
	t.since = until
}

// over reports whether the schedule had ended by then.
func (t *target) over(at time.Duration) bool {
	return t.set && t.rate == 0 && at > t.end
}

// period returns the time that rates refer to, in a run that took so long: until the
// schedule was over.
func (t *target) period(duration time.Duration) time.Duration {
	if t.set && t.rate == 0 {
		return min(t.end, duration)
	}
	return duration
}
