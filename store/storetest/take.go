package storetest

import (
	"time"

	"github.com/weirlimit/weir"
)

var takeTests = []test{
	{name: "every field of a decision", run: everyField},
	{name: "admitted by several limits, the tightest tells", run: tightest},
	{name: "refused by several limits, the longest tells", run: longest},
	{name: "cost 0 is admitted and changes nothing", run: costZero},
	{name: "what never fits is too costly", run: neverFits},
	{name: "great costs", run: greatCosts},
	{name: "a refusal changes nothing", run: refusalChangesNothing},
	{name: "a refusal by one limit charges none", run: refusalChargesNone},
	{name: "peek says what take says", run: peekSaysWhatTakeSays},
	{name: "peek changes nothing", run: peekChangesNothing},
	{name: "reset forgets", run: resetForgets},
}

func hours(n float64) time.Duration   { return time.Duration(n * float64(time.Hour)) }
func minutes(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func everyField(r *rig) {
	p := r.policy("p", perHour(10)) // a unit takes six minutes
	steps := []struct {
		pass time.Duration
		cost int64
		want weir.Decision
	}{
		{0, 1, admitted(10, 9, minutes(6))},
		{0, 9, admitted(10, 0, minutes(60))},
		{0, 1, refused(10, 0, minutes(6), minutes(60))},
		{0, 4, refused(10, 0, minutes(24), minutes(60))},
		{minutes(3), 1, refused(10, 0, minutes(3), minutes(57))},
		{minutes(3), 1, admitted(10, 0, minutes(60))},
		{minutes(15), 2, admitted(10, 0, minutes(57))},
		{minutes(57) - r.res(), 10, refused(10, 9, r.res(), r.res())},
		{r.res(), 0, admitted(10, 10, 0)},
		{hours(1000), 10, admitted(10, 0, minutes(60))},
	}
	for _, s := range steps {
		r.clock.Pass(s.pass)
		r.wantTake(p, "k", s.cost, s.want)
	}
}

func tightest(r *rig) {
	p := r.policy("p", perHour(10), named("minute", using(weir.FixedWindow, perMinute(3))))
	r.wantTake(p, "k", 1, by(1, admitted(3, 2, minutes(1))))
	r.wantTake(p, "k", 2, by(1, admitted(3, 0, minutes(1))))
	r.clock.Pass(minutes(1))
	r.wantTake(p, "k", 0, by(1, admitted(3, 3, 0)))
	r.wantTake(p, "k", 3, by(1, admitted(3, 0, minutes(1))))
	r.clock.Pass(minutes(1))
	r.wantTake(p, "k", 2, by(1, admitted(3, 1, minutes(1))))
	r.clock.Pass(minutes(1)) // the hour has 2 left and half a unit

	r.wantTake(p, "k", 0, admitted(10, 2, minutes(45)))

	// Of two with as much left, the one that resets last.
	q := r.policy("q", using(weir.FixedWindow, perMinute(3)), named("hour", perHour(3)))
	r.wantTake(q, "k", 1, by(1, admitted(3, 2, minutes(20))))
	q = r.policy("q2", named("hour", perHour(3)), named("minute", using(weir.FixedWindow, perMinute(3))))
	r.wantTake(q, "k", 1, admitted(3, 2, minutes(20)))
}

func longest(r *rig) {
	minute, hour := named("minute", using(weir.FixedWindow, perMinute(2))), named("hour", perHour(2))
	p, q := r.policy("p", minute, hour), r.policy("q", hour, minute)
	r.take(p, "k", 2)
	r.take(q, "k", 2)
	r.wantTake(p, "k", 1, by(1, refused(2, 0, minutes(30), hours(1))))
	r.wantTake(q, "k", 1, refused(2, 0, minutes(30), hours(1)))
	r.clock.Pass(minutes(30))
	r.wantTake(p, "k", 1, by(1, admitted(2, 0, hours(1))))
	r.clock.Pass(minutes(30))
	r.wantTake(p, "k", 1, by(1, admitted(2, 0, hours(1))))

	// One that can never admit is longer than any other.
	small := r.policy("small", perHour(2), named("small", perMinute(1)))
	r.take(small, "k", 1)
	r.wantTake(small, "k", 2, by(1, tooCostly(1, 0, minutes(1))))
	small = r.policy("small2", named("small", perMinute(1)), named("hour", perHour(2)))
	r.take(small, "k", 1)
	r.wantTake(small, "k", 2, tooCostly(1, 0, minutes(1)))
}

func costZero(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.wantTake(p, "k", 0, admitted(5, 5, 0))
		for range 5 {
			d := r.take(p, "k", 1)
			r.wantTake(p, "k", 0, d)
		}
		r.wantRefused("used up", p, "k", 1)
		r.wantAllowed("used up", p, "k", 0)
	}
	// A window that opens with the first charge is not opened by nothing.
	p := r.policy("opens", using(weir.AnchoredWindow, perMinute(5)))
	r.take(p, "k", 0)
	r.clock.Pass(seconds(20))
	r.wantTake(p, "k", 1, admitted(5, 4, minutes(1)))
}

func neverFits(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.wantTake(p, "k", 6, tooCostly(5, 5, 0))
		r.wantTake(p, "k", weir.MaxCost, tooCostly(5, 5, 0))
		r.wantPeek(p, "k", 6, tooCostly(5, 5, 0))
		r.wantLeft("after what never fits", p, "k", 5, 5)
	}
	p := r.policy("both", perHour(9), named("small", using(weir.FixedWindow, perMinute(4))))
	r.take(p, "k", 4)
	r.wantTake(p, "k", 5, by(1, tooCostly(4, 0, minutes(1))))
	r.wantTake(p, "k", 10, by(0, tooCostly(9, 5, hours(4)/9)))
}

// Costs and limits that do not fit 32 bits.
func greatCosts(r *rig) {
	const rate = 5_000_000_000
	p := r.policy("p", using(weir.FixedWindow, perHour(rate)))
	r.wantTake(p, "k", weir.MaxCost, admitted(rate, rate-weir.MaxCost, hours(1)))
	r.wantTake(p, "k", weir.MaxCost, admitted(rate, rate-2*weir.MaxCost, hours(1)))
	r.wantTake(p, "k", weir.MaxCost, refused(rate, rate-2*weir.MaxCost, hours(1), hours(1)))
	r.wantTake(p, "k", rate-2*weir.MaxCost, admitted(rate, 0, hours(1)))
	r.wantTake(p, "k", 1, refused(rate, 0, hours(1), hours(1)))
}

func refusalChangesNothing(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.take(p, "k", 3)
		before := r.peek(p, "k", 0)
		for range 5 {
			r.take(p, "k", 3)
			r.take(p, "k", 6)
			r.do(weir.TakeEach, charge(p, "k", 3), charge(p, "k", 4))
			r.do(weir.TakeAll, charge(p, "k", 1), charge(p, "k", 3))
			r.do(weir.ReserveAll, charge(p, "k", 2), charge(p, "k", 1))
		}
		r.want("after refusals under "+describe(p), r.peek(p, "k", 0), before)
		r.wantAllowed("after 3 were taken and others refused", p, "k", 2)
	}
}

func refusalChargesNone(r *rig) {
	p := r.policy("p", perHour(10), named("minute", using(weir.FixedWindow, perMinute(3))), named("log", using(weir.SlidingLog, perHour(8))))
	r.take(p, "k", 2)
	for range 20 {
		r.wantTake(p, "k", 2, by(1, refused(3, 1, minutes(1), minutes(1))))
	}
	r.wantTake(p, "k", 1, by(1, admitted(3, 0, minutes(1))))
	r.clock.Pass(minutes(5))
	r.wantTake(p, "k", 3, by(1, admitted(3, 0, minutes(1))))
	r.clock.Pass(minutes(1))
	r.wantTake(p, "k", 0, by(2, admitted(8, 2, minutes(59))))
}

// On a refusal peek and take are the same to the last field. Admitted, peek tells
// what there is and take what it leaves.
func peekSaysWhatTakeSays(r *rig) {
	for _, p := range r.everyAlgorithm() {
		for i, cost := range []int64{1, 0, 5, 2, 3, 6, 2, 1} {
			r.clock.Pass(time.Duration(i) * 7 * time.Millisecond)
			peek, take := r.peek(p, "k", cost), r.take(p, "k", cost)
			what := callText("take", charge(p, "k", cost))
			if !take.Allowed {
				r.want("peek before "+what, peek, take)
				continue
			}
			if !peek.Allowed || peek.Reason != weir.Admitted || peek.RetryAfter != 0 || peek.Remaining < cost {
				r.t.Errorf("peek before %s: got %s, and then %s", what, show(peek), show(take))
			}
			r.want("peek 0 after "+what, r.peek(p, "k", 0), take)
		}
	}
}

func peekChangesNothing(r *rig) {
	for _, p := range r.everyAlgorithm() {
		for range 3 {
			r.wantPeek(p, "k", 5, admitted(5, 5, 0))
		}
		r.wantAllowed("after peeks", p, "k", 5)
		before := r.peek(p, "k", 1)
		for range 3 {
			r.want("peek again, under "+describe(p), r.peek(p, "k", 1), before)
		}
	}
}

func resetForgets(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.reset(p, "never used")
		r.take(p, "k", 5)
		r.clock.Pass(time.Millisecond)
		r.reset(p, "k")
		r.wantPeek(p, "k", 5, admitted(5, 5, 0))
		if n := r.drain(p, "k"); n != 5 {
			r.t.Errorf("%s: got %d units after a reset, want 5", describe(p), n)
		}
	}
}
