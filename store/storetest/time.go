package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"
	_ "time/tzdata" // the zones of the tests, wherever they run

	"github.com/weirlimit/weir"
)

var timeTests = []test{
	{name: "retry after is exact", run: retryIsExact},
	{name: "reset after is exact", run: resetIsExact},
	{name: "a step back grants nothing", run: stepBackGrantsNothing},
	{name: "a step back ends no hold twice", run: stepBackHolds},
	{name: "a step back is no time at all", run: stepBackIsNoTime, need: TimeStandsStill},
	{name: "a step back does not reopen a window", run: stepBackWindows, need: TimeStandsStill},
	{name: "far jumps", run: farJumps},
	{name: "initial counts from the start of the store", run: initialFromStart},
	{name: "calendars", run: calendars},
	{name: "calendars across a change of clocks", run: calendarsDST},
}

// A charge that was refused is refused until just before RetryAfter, and admitted
// then, whatever happened before.
func retryIsExact(r *rig) {
	for _, p := range r.everyAlgorithm() {
		rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same every time
		refusals := 0
		for range times(30) {
			r.clock.Pass(micros(rnd, seconds(20)))
			if rnd.IntN(4) == 0 {
				r.run(&weir.Batch{Op: weir.ReserveAll, TTL: micros(rnd, minutes(1)), Charges: []weir.Charge{charge(p, "k", 1+rnd.Int64N(3))}})
			}
			cost := 1 + rnd.Int64N(5)
			d := r.take(p, "k", cost)
			if d.Allowed {
				continue
			}
			refusals++
			if !r.exactRetry(p, cost, d) {
				return
			}
		}
		if refusals == 0 {
			r.t.Errorf("%s: nothing was refused", describe(p))
		}
	}
}

// micros draws a time of whole microseconds, not more than most.
func micros(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(1+rnd.Int64N(int64(most/time.Microsecond))) * time.Microsecond
}

// exactRetry tries again just before the time that a refusal reported, and at that time.
func (r *rig) exactRetry(p *weir.Policy, cost int64, d weir.Decision) bool {
	r.t.Helper()
	what := fmt.Sprintf("%s: %s", callText("take", charge(p, "k", cost)), show(d))
	r.clock.Pass(d.RetryAfter - r.res())
	if early := r.take(p, "k", cost); early.Allowed || early.RetryAfter != r.res() {
		r.t.Errorf("%s,\nbut %v before that %s", what, r.res(), show(early))
		return false
	}
	r.clock.Pass(r.res())
	if due := r.take(p, "k", cost); !due.Allowed {
		r.t.Errorf("%s,\nbut then %s", what, show(due))
		return false
	}
	return true
}

// When ResetAfter has passed, the limit that reported it equals an unused one, and not
// before.
func resetIsExact(r *rig) {
	for _, p := range r.everyAlgorithm() {
		rnd := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same every time
		for range times(10) {
			for range rnd.IntN(4) {
				r.take(p, "k", 1+rnd.Int64N(3))
				r.clock.Pass(micros(rnd, seconds(1)))
			}
			for d := r.peek(p, "k", 0); d.ResetAfter > 0; d = r.peek(p, "k", 0) {
				if !r.exactReset(p, d) {
					return
				}
			}
		}
	}
}

func (r *rig) exactReset(p *weir.Policy, d weir.Decision) bool {
	r.t.Helper()
	r.clock.Pass(d.ResetAfter - r.res())
	if before := r.peek(p, "k", d.Limit); before.Allowed || before.By == d.By && before.ResetAfter != r.res() {
		r.t.Errorf("%s: %s,\nbut %v before the reset %s", describe(p), show(d), r.res(), show(before))
		return false
	}
	r.clock.Pass(r.res())
	if after := r.peek(p, "k", 0); after.By == d.By && (after.Remaining != after.Limit || after.ResetAfter != 0) {
		r.t.Errorf("%s: %s,\nbut at the reset %s", describe(p), show(d), show(after))
		return false
	}
	return true
}

var stepsBack = []time.Duration{time.Microsecond, time.Second, time.Minute, 24 * time.Hour, 5 * 365 * 24 * time.Hour}

func stepBackGrantsNothing(r *rig) {
	for _, p := range r.everyAlgorithm() {
		if n := r.drain(p, "k"); n != 5 {
			r.t.Fatalf("%s: got %d units, want 5", describe(p), n)
		}
		now, before := r.clock.Now(), r.peek(p, "k", 1)
		for _, back := range stepsBack {
			r.clock.Set(now.Add(-back))
			for _, cost := range []int64{1, 5} {
				r.wantRefused(fmt.Sprintf("used up, the clock %v back", back), p, "k", cost)
			}
			r.clock.Set(now)
			r.want(fmt.Sprintf("peek 1 under %s, when the clock has been %v back", describe(p), back), r.peek(p, "k", 1), before)
		}
	}
}

func stepBackHolds(r *rig) {
	for _, p := range append(r.everyAlgorithm(), r.policy("slots", slots(5))) {
		over := r.hold(seconds(1), charge(p, "k", 2))
		r.clock.Pass(seconds(1))
		now := r.clock.Now()
		open := r.hold(seconds(1), charge(p, "k", 1)) // the store has seen the expiry
		r.clock.Set(now.Add(-seconds(1)))
		r.wantSettled(over, weir.Settled{Late: true}, 0)
		out, err := open.Commit(background(), 1)
		if err != nil || total(out) != (weir.Settled{}) {
			r.t.Errorf("commit of an open reservation after a step back under %s: got %+v, error %v", describe(p), out, err)
		}
		r.clock.Set(now)
	}
}

func stepBackIsNoTime(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.take(p, "k", 3)
		r.hold(minutes(1), charge(p, "k", 1))
		r.clock.Pass(10 * time.Millisecond)
		now := r.clock.Now()
		before := []weir.Decision{r.peek(p, "k", 0), r.peek(p, "k", 3)}
		for _, back := range stepsBack {
			r.clock.Set(now.Add(-back))
			r.want(fmt.Sprintf("peek 0 under %s, %v before", describe(p), back), r.peek(p, "k", 0), before[0])
			r.want(fmt.Sprintf("peek 3 under %s, %v before", describe(p), back), r.peek(p, "k", 3), before[1])
		}
		r.clock.Set(now)
	}
}

// The clock has been in the next window, as another key's call shows; then it
// steps back. What is charged meanwhile counts in the next window.
func stepBackWindows(r *rig) {
	for _, l := range []weir.Limit{using(weir.FixedWindow, perMinute(5)), using(weir.DualWindow, perMinute(5)), using(weir.SlidingWindow, perMinute(5))} {
		p := r.policy(l.Algorithm.String(), l)
		r.clock.Pass(minutes(1))
		r.take(p, "other", 1)
		r.clock.Pass(-minutes(1))
		r.take(p, "k", 5)
		r.clock.Pass(minutes(1))
		r.wantRefused("after a clock that stepped back gave 5", p, "k", 1)
	}
}

// A forward step forgives once, however far it is.
func farJumps(r *rig) {
	for _, jump := range []time.Duration{hours(24 * 40), hours(24 * 366), hours(24 * 365 * 30)} {
		for _, p := range r.everyAlgorithm() {
			if n := r.drain(p, "k"); n != 5 {
				r.t.Errorf("%s at %v: got %d units, want 5", describe(p), r.clock.Now().Time(), n)
			}
		}
		r.clock.Pass(jump)
	}
}

func initialFromStart(r *rig) {
	empty, half := weir.Filled(0), weir.Filled(0.5)
	from := func(f weir.Fill, l weir.Limit) weir.Limit { l.Initial = f; return l }
	policies := []struct {
		p               *weir.Policy
		at0, at10, at60 int64 // how many units are there after so many seconds
	}{
		{r.policy("gcra", from(empty, perMinute(60))), 0, 10, 60},
		{r.policy("half", from(half, perMinute(60))), 30, 40, 60},
		{r.policy("fixed", from(half, using(weir.FixedWindow, perMinute(60)))), 30, 30, 60},
		{r.policy("anchored", from(empty, using(weir.AnchoredWindow, perMinute(60)))), 0, 0, 60},
		{r.policy("sliding", from(half, using(weir.SlidingWindow, perMinute(60)))), 30, 30, 30},
		{r.policy("log", from(half, using(weir.SlidingLog, perMinute(60)))), 30, 30, 60},
		{r.policy("dual", from(empty, using(weir.DualWindow, perMinute(60)))), 0, 0, 60},
	}
	for _, at := range []int64{0, 10, 60} {
		key := fmt.Sprint("after ", at)
		for _, c := range policies {
			want := map[int64]int64{0: c.at0, 10: c.at10, 60: c.at60}[at]
			r.wantLeft(fmt.Sprintf("%d s after the start, a new key", at), c.p, key, want, 60)
			if n := r.drain(c.p, key); n != want {
				r.t.Errorf("%s, %d s after the start: got %d units, want %d", describe(c.p), at, n, want)
			}
		}
		r.clock.Set(noon.Add(map[int64]time.Duration{0: seconds(10), 10: seconds(60), 60: seconds(60)}[at]))
	}
}

func date(zone *time.Location, year int, month time.Month, day, hour int) weir.Instant {
	return weir.Instant(time.Date(year, month, day, hour, 0, 0, 0, zone).UnixNano())
}

func calendars(r *rig) {
	cases := []struct {
		unit weir.CalendarUnit
		end  weir.Instant // of the period that noon lies in, a Sunday
	}{
		{weir.Day, date(time.UTC, 2026, 3, 2, 0)},
		{weir.Week, date(time.UTC, 2026, 3, 2, 0)},
		{weir.Month, date(time.UTC, 2026, 4, 1, 0)},
		{weir.Year, date(time.UTC, 2027, 1, 1, 0)},
	}
	for _, c := range cases {
		one := r.another()
		p := one.policy("p", weir.Limit{Rate: 5, Per: weir.Calendar(c.unit, nil)})
		end := c.end.Sub(noon)
		one.wantTake(p, "k", 2, admitted(5, 3, end))
		res := one.hold(hours(1), charge(p, "k", 3))
		one.wantTake(p, "k", 1, refused(5, 0, end, end))
		one.wantSettled(res, weir.Settled{Refunded: 1}, 2)
		one.wantTake(p, "k", 1, admitted(5, 0, end))
		one.clock.Set(c.end.Add(-one.res()))
		one.wantTake(p, "k", 1, refused(5, 0, one.res(), one.res()))
		one.clock.Set(c.end)
		one.wantTake(p, "k", 5, admitted(5, 0, nextPeriod(c.unit).Sub(c.end)))
	}
}

// nextPeriod returns the end of the period after noon's.
func nextPeriod(unit weir.CalendarUnit) weir.Instant {
	switch unit {
	case weir.Day:
		return date(time.UTC, 2026, 3, 3, 0)
	case weir.Week:
		return date(time.UTC, 2026, 3, 9, 0)
	case weir.Month:
		return date(time.UTC, 2026, 5, 1, 0)
	}
	return date(time.UTC, 2028, 1, 1, 0)
}

// Days of 23 and 25 hours, and one without a midnight.
func calendarsDST(r *rig) {
	cases := []struct {
		zone             string
		year, month, day int
		length           time.Duration
	}{
		{"Europe/Berlin", 2026, 3, 28, hours(24)},
		{"Europe/Berlin", 2026, 3, 29, hours(23)},
		{"Europe/Berlin", 2026, 10, 25, hours(25)},
		{"America/Santiago", 2026, 9, 6, hours(23)}, // begins at one
	}
	for _, c := range cases {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			r.t.Fatalf("storetest: %v", err)
		}
		end := date(zone, c.year, time.Month(c.month), c.day+1, 0)
		begin := end.Add(-c.length)
		one := r.another()
		p := one.policy("p", weir.Limit{Rate: 5, Per: weir.Calendar(weir.Day, zone)})
		one.clock.Set(begin.Add(-one.res()))
		one.wantTake(p, "k", 5, admitted(5, 0, one.res()))
		one.clock.Set(begin)
		one.wantTake(p, "k", 4, admitted(5, 1, c.length))
		one.clock.Set(date(zone, c.year, time.Month(c.month), c.day, 12))
		one.wantTake(p, "k", 2, refused(5, 1, hours(12), hours(12)))
		one.clock.Set(end)
		next := date(zone, c.year, time.Month(c.month), c.day+2, 0)
		one.wantTake(p, "k", 5, admitted(5, 0, next.Sub(end)))
	}
}
