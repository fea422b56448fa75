package storetest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

var classTests = []test{
	{name: "shares that lend", run: classShares},
	{name: "a class returns", run: classReturns},
	{name: "no borrowing", run: classNoBorrow},
	{name: "holds keep to their class", run: classHolds},
	{name: "holds beyond what classes have", run: classHoldsBeyond},
	{name: "an overrun is the class's own", run: classOverrun},
	{name: "an overrun is lent to nobody", run: classOverrunLent},
	{name: "no class is worse off than by itself", run: classGuarantee},
	{name: "what never fits, and what costs nothing", run: classCosts},
	{name: "a refund is there at once", run: classRefund},
	{name: "holds of no class", run: classNoName},
	{name: "other classes", run: classSet},
	{name: "a share is raised", run: classRaised},
	{name: "a class is removed while it holds", run: classRemoved},
	{name: "all horizons in one step", run: classHorizons},
	{name: "what is lent is recalled", run: classRecall},
	{name: "nothing is recalled that frees nothing", run: classNoRecall},
	{name: "room that is lost again", run: classLostAgain},
	{name: "room that is lost at the end of a month", run: classLostMonth},
	{name: "room that is lost on a later day", run: classLostDay},
	{name: "what is owed for a hundred years", run: classForever},
	{name: "paced months", run: classPaced},
	{name: "the end of a paced month", run: classPacedEnd},
	{name: "a race of reservations", run: classRace},
}

// sixtyForty is 500 per second, 300 of them for "realtime" and 200 for "backfill".
func sixtyForty() weir.Limit {
	return weir.Limit{Rate: 500, Per: weir.Every(time.Second), Classes: weir.ClassesOf(
		weir.Class{Name: "realtime", Guaranteed: 300}, weir.Class{Name: "backfill", Guaranteed: 200},
	)}
}

// classes returns the policies of some classes.
func (r *rig) classes(p *weir.Policy, names ...string) []*weir.Policy {
	r.t.Helper()
	views := make([]*weir.Policy, len(names))
	for i, name := range names {
		var err error
		if views[i], err = p.Class(name); err != nil {
			r.t.Fatal(err)
		}
	}
	return views
}

func (r *rig) sixtyForty() (realtime, backfill *weir.Policy) {
	views := r.classes(r.policy("p", sixtyForty()), "realtime", "backfill")
	return views[0], views[1]
}

// saturate takes cost units for each policy, in turn, whenever they fit, and returns how many each got.
func (r *rig) saturate(policies []*weir.Policy, cost int64, during time.Duration) []int64 {
	got := make([]int64, len(policies))
	for passed := time.Duration(0); passed < during; {
		next := during - passed
		for i, p := range policies {
			d := r.take(p, "k", cost)
			for ; d.Allowed; d = r.take(p, "k", cost) {
				got[i] += cost
			}
			next = min(next, d.RetryAfter)
		}
		r.clock.Pass(next)
		passed += next
	}
	return got
}

func classShares(r *rig) {
	realtime, backfill := r.sixtyForty()
	r.wantTake(backfill, "k", 200, admitted(200, 0, seconds(1)))
	r.wantTake(backfill, "k", 1, refused(200, 0, 2*time.Millisecond, seconds(1)))
	r.wantPeek(realtime, "k", 300, admitted(300, 300, seconds(1)))
	r.wantTake(realtime, "k", 301, tooCostly(300, 300, seconds(1)))
	got := r.saturate([]*weir.Policy{backfill, realtime}, 10, seconds(20))
	r.tb.Logf("in 20 s backfill got %d units and realtime %d, 300 of them at once", got[0], got[1])
	if share := float64(got[1]-300) / float64(got[0]+got[1]-300); share < 0.588 || share > 0.612 {
		r.t.Errorf("realtime got %.3f of what was granted after the bursts, want 0.6 within 2 %%", share)
	}
	if all := got[0] + got[1]; all < 300+20*500*98/100 || all > 300+20*500 {
		r.t.Errorf("%d units were granted in 20 s", all)
	}
}

func classReturns(r *rig) {
	realtime, backfill := r.sixtyForty()
	got := r.saturate([]*weir.Policy{backfill}, 10, seconds(20))
	r.tb.Logf("in 20 s backfill got %d units, alone", got[0])
	if after := got[0] - 200; after < 20*500*98/100 || after > 20*500 {
		r.t.Errorf("alone, backfill got %d units in 20 s after its burst of 200", after)
	}
	r.wantAllowed("a class that was idle gets its burst", realtime, "k", 300)
	if d := r.take(realtime, "k", 30); d.Allowed || d.RetryAfter > seconds(0.1) {
		r.t.Errorf("30 more: %v, want to wait at most 30 / 300 per second", d)
	}
}

func classNoBorrow(r *rig) {
	l := sixtyForty()
	classes := l.Classes.List()
	classes[1].NoBorrow = true
	l.Classes = weir.ClassesOf(classes...)
	views := r.classes(r.policy("p", l), "realtime", "backfill")
	r.wantTake(views[1], "k", 200, admitted(200, 0, seconds(1)))
	r.wantTake(views[1], "k", 1, refused(200, 0, 5*time.Millisecond, seconds(1)))
	r.wantTake(views[0], "k", 300, admitted(300, 0, seconds(1)))
	r.clock.Pass(2 * time.Millisecond)
	r.wantTake(views[0], "k", 1, refused(300, 0, r.next(time.Second/300-2*time.Millisecond), 998*time.Millisecond))

	r = r.another() // what a class owes that does not borrow, no surplus pays
	l.Classes = weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 10, NoBorrow: true}, weir.Class{Name: "b", Guaranteed: 490})
	views = r.classes(r.policy("p", l), "a", "b")
	r.do(weir.DebitEach, charge(views[0], "k", 110))
	r.clock.Pass(time.Second) // a owes 90, and 10 are nobody's
	r.wantAllowed("the other class takes its level", views[1], "k", 490)
	r.wantAllowed("and of the surplus", views[1], "k", 5)
	if d := r.peek(views[0], "k", 1); d.Allowed || d.RetryAfter != seconds(9.1) {
		r.t.Errorf("a class that owes 90: %v, want to wait for 91 units at its own rate", d)
	}
}

// next returns a duration, rounded up to the store's resolution.
func (r *rig) next(d time.Duration) time.Duration { return (d + r.res()).Truncate(r.res()) }

func classHolds(r *rig) {
	realtime, backfill := r.sixtyForty()
	res := r.hold(minutes(1), charge(backfill, "k", 200))
	r.clock.Pass(seconds(30))
	want := refused(200, 0, seconds(30.002), seconds(31)) // what is held cannot be saved up again
	r.wantPeek(backfill, "k", 1, want)
	r.wantReserve(weir.Batch{Charges: []weir.Charge{charge(backfill, "k", 1)}}, want)
	r.wantAllowed("held units of others take nothing from a class", realtime, "k", 300)
	r.wantSettled(res, weir.Settled{Refunded: 137}, 63)
	r.wantPeek(backfill, "k", 137, admitted(200, 137, seconds(1)))
	res = r.hold(minutes(1), charge(backfill, "k", 100))
	r.clock.Pass(minutes(2))
	r.wantSettled(res, weir.Settled{Late: true})
	r.wantPeek(backfill, "k", 200, admitted(200, 200, 0))
}

// What classes hold beyond their bursts is what is nobody's, all of them together: more is there for a while when
// another class has just spent its level, and would be missing when that class returns.
func classHoldsBeyond(r *rig) {
	l := weir.Limit{Rate: 10, Per: weir.Every(time.Second), Classes: weir.ClassesOf(
		weir.Class{Name: "a", Guaranteed: 1}, weir.Class{Name: "b", Guaranteed: 1}, weir.Class{Name: "c", Guaranteed: 1, Burst: 6},
	)}
	views := r.classes(r.policy("p", l), "a", "b", "c")
	a, b, c := views[0], views[1], views[2]
	r.wantAllowed("c spends its level", c, "k", 6)
	r.clock.Pass(seconds(0.6))
	r.hold(minutes(1), charge(a, "k", 3))
	res, err := weir.Reserve(background(), r.limiter, minutes(1), charge(b, "k", 2))
	if err != nil || res.Decision.Allowed {
		r.t.Errorf("3 of the 2 that are nobody's are held: %+v, %v", res, err)
	}
	r.hold(minutes(1), charge(b, "k", 1))
	r.wantAllowed("what is used and not held", b, "k", 2)
	r.clock.Pass(seconds(30))
	r.wantAllowed("c returns", c, "k", 6)
}

func classOverrun(r *rig) {
	realtime, backfill := r.sixtyForty()
	res := r.hold(minutes(1), charge(backfill, "k", 200))
	r.wantSettled(res, weir.Settled{Overrun: 500}, 700)
	if d := r.take(backfill, "k", 1); d.Allowed || d.RetryAfter != seconds(1.002) {
		r.t.Errorf("after the overrun: %v, want 501 units at the whole rate", d)
	}
	r.clock.Pass(seconds(0.5))
	if d := r.peek(backfill, "k", 1); d.Allowed || d.RetryAfter != seconds(0.502) {
		r.t.Errorf("half a second later: %v, want half a second less", d)
	}
	r.wantAllowed("the overrun of another class", realtime, "k", 300)
}

// While a class owes, the whole may be full again: nobody gets more than the burst. Who borrows then has
// paid the debt before.
func classOverrunLent(r *rig) {
	l := weir.Limit{Rate: 500, Per: weir.Every(time.Second), Classes: weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 10}, weir.Class{Name: "b", Guaranteed: 490})}
	views := r.classes(r.policy("p", l), "a", "b")
	a, b := views[0], views[1]
	r.do(weir.DebitEach, charge(a, "k", 5010))
	if d := r.peek(a, "k", 1); d.Allowed || d.RetryAfter != seconds(10.002) {
		r.t.Errorf("after the overrun: %v, want to wait for 5,001 units at the whole rate", d)
	}
	r.wantLeft("the other class has its burst", b, "k", 490, 490)
	r.clock.Pass(seconds(12))
	r.wantAllowed("the burst of the other class", b, "k", 490)
	r.wantAllowed("the rest of the burst", b, "k", 10)
	r.wantLeft("beyond the burst", b, "k", 0, 490)
	for range 5 {
		if d := r.peek(a, "k", 1); d.Allowed || d.RetryAfter != seconds(0.1) {
			r.t.Errorf("when the debt is paid: %v, want to wait for a unit at the guaranteed rate", d)
		}
		r.clock.Pass(seconds(0.1))
		r.wantRefused("what comes back is not all for the other class", b, "k", 50)
		r.wantAllowed("its own part", b, "k", 49)
		r.wantAllowed("after RetryAfter", a, "k", 1)
	}
}

func classCosts(r *rig) {
	_, backfill := r.sixtyForty()
	r.wantTake(backfill, "k", 300, tooCostly(200, 200, 0))
	r.wantReserve(weir.Batch{Charges: []weir.Charge{charge(backfill, "k", 300)}}, tooCostly(200, 200, 0))
	_, err := r.limiter.Take(background(), backfill, "k", -1)
	r.wantError("a negative cost", err, sentinel(weir.ErrInvalid))
	r.wantTake(backfill, "k", 200, admitted(200, 0, seconds(1)))
	r.wantTake(backfill, "k", 0, admitted(200, 0, seconds(1)))
}

func classRefund(r *rig) {
	l := weir.Limit{Rate: 1000, Per: weir.Every(time.Hour), Classes: weir.ClassesOf(weir.Class{Name: "all", Guaranteed: 1000})}
	p := r.policy("p", l)
	res := r.hold(minutes(1), charge(p, "k", 1000))
	r.wantRefused("1,000 of 1,000 are held", p, "k", 1)
	r.wantSettled(res, weir.Settled{Refunded: 863}, 137)
	r.wantTake(p, "k", 863, admitted(1000, 0, minutes(60)))
}

// What is held under no name, or one that is no class any more, is held by the class of charges that
// name none.
func classNoName(r *rig) {
	plain := weir.Limit{Rate: 500, Per: weir.Every(time.Second)}
	renamed := plain
	renamed.Classes = weir.ClassesOf(weir.Class{Name: "realtime", Guaranteed: 300}, weir.Class{Name: "old", Guaranteed: 200})
	for _, before := range []weir.Limit{plain, renamed} {
		r := r.another()
		old := r.policy("p", before)
		res := r.hold(minutes(1), charge(old, "k", 100))
		r.clock.Pass(seconds(10))
		p := r.policy("p", sixtyForty())
		r.set(old, p)
		views := r.classes(p, "realtime", "backfill")
		r.clock.Pass(seconds(10))
		r.wantLeft("beside what is held", views[1], "k", 100, 200)
		r.wantSettled(r.hold(minutes(1), charge(views[0], "k", 300)), weir.Settled{Refunded: 300}, 0)
		r.wantSettled(res, weir.Settled{Refunded: 60}, 40)
		r.wantLeft("after a refund", views[1], "k", 160, 200)
	}
}

func classSet(r *rig) {
	p := r.policy("p", sixtyForty())
	views := r.classes(p, "realtime", "backfill")
	r.take(views[1], "k", 150)
	doubled := weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Classes: weir.ClassesOf(
		weir.Class{Name: "new", Guaranteed: 100}, weir.Class{Name: "backfill", Guaranteed: 400}, weir.Class{Name: "realtime", Guaranteed: 500},
	)}
	r.set(p, r.policy("p", doubled))
	r.wantLeft("a class keeps what it has used", views[1], "k", 250, 400)
	r.wantLeft("and so does another", views[0], "k", 500, 500)
	r.set(r.policy("p", doubled), r.policy("p", weir.Limit{Rate: 500, Per: weir.Every(time.Second)}))
	r.wantLeft("without classes all is left to everybody", views[1], "k", 350, 500)

	r = r.another() // what a new class begins with is taken from nobody
	ten := func(second string) *weir.Policy {
		return r.policy("p", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Classes: weir.ClassesOf(
			weir.Class{Name: "a", Guaranteed: 5}, weir.Class{Name: second, Guaranteed: 5},
		)})
	}
	old, renamed := ten("b"), ten("c")
	r.wantAllowed("b's level", r.classes(old, "b")[0], "k", 5)
	r.set(old, renamed)
	views = r.classes(renamed, "a", "c")
	r.wantRefused("a new class of what was used by another", views[1], "k", 1)
	r.wantAllowed("a has taken nothing", views[0], "k", 5)
}

// What a class gains by a larger burst is not taken from the levels of the others.
func classRaised(r *rig) {
	ten := func(a, b int64) *weir.Policy {
		return r.policy("p", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Classes: weir.ClassesOf(
			weir.Class{Name: "a", Guaranteed: 2, Burst: a}, weir.Class{Name: "b", Guaranteed: 2, Burst: b},
		)})
	}
	old, raised := ten(2, 2), ten(8, 2)
	r.wantAllowed("what a has, and all that is nobody's", r.classes(old, "a")[0], "k", 8)
	r.set(old, raised)
	views := r.classes(raised, "a", "b")
	if d := r.take(views[0], "k", 1); d.Allowed || d.RetryAfter != seconds(0.1) {
		r.t.Errorf("a: %v, want to wait for one unit at the whole rate", d)
	}
	r.wantAllowed("b has taken nothing", views[1], "k", 2)
	r.clock.Pass(seconds(10))
	r.wantAllowed("a, when all has come back", views[0], "k", 8)
}

// While a class that was removed holds more than the others leave, the class with the greatest share has its own, and
// may reserve it.
func classRemoved(r *rig) {
	of := func(classes ...weir.Class) *weir.Policy {
		return r.policy("p", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 20, Classes: weir.ClassesOf(classes...)})
	}
	old := of(weir.Class{Name: "a", Guaranteed: 6, Burst: 6}, weir.Class{Name: "b", Guaranteed: 4, Burst: 4})
	next := of(weir.Class{Name: "a", Guaranteed: 6, Burst: 6}, weir.Class{Name: "c", Guaranteed: 2, Burst: 2}, weir.Class{Name: "d", Guaranteed: 2, Burst: 8})
	res := r.hold(minutes(1), charge(r.classes(old, "b")[0], "k", 14)) // its own 4, and 10 that are nobody's
	r.set(old, next)                                                   // now 4 are nobody's, and d holds 6 beyond its burst
	views := r.classes(next, "a", "c", "d")
	a, c, d := views[0], views[1], views[2]
	r.wantSettled(r.hold(minutes(1), charge(a, "k", 1)), weir.Settled{Refunded: 1}, 0)
	r.clock.Pass(seconds(20))
	want := refused(2+4, 0, seconds(40.125), 0) // until d holds nothing, 20 − 14 are all for a
	want.ResetAfter = r.peek(c, "k", 1).ResetAfter
	r.wantPeek(c, "k", 1, want)
	r.wantRefused("d, which holds all of its own", d, "k", 1)
	held := r.hold(minutes(1), charge(a, "k", 6))
	r.wantRefused("a, which holds its burst", a, "k", 1)
	r.wantSettled(held, weir.Settled{Refunded: 6}, 0)
	r.wantAllowed("a's burst", a, "k", 6)
	r.wantSettled(res, weir.Settled{Refunded: 14}, 0)
	r.wantAllowed("what is free again", c, "k", 2)
	r.clock.Pass(seconds(10))
	r.wantLeft("in the end", a, "k", 6+4, 6+4)
}

func classHorizons(r *rig) {
	p := r.policy("p", sixtyForty(), named("day", weir.Limit{Rate: 400, Per: weir.Calendar(weir.Day, nil)}))
	views := r.classes(p, "realtime", "backfill")
	r.wantAllowed("both horizons", views[0], "k", 300)
	if d := r.take(views[1], "k", 101); d.Allowed || d.By != 1 {
		r.t.Errorf("beyond the day: %v", d)
	}
	r.wantAllowed("nothing was charged", views[1], "k", 100)
	r.wantRefused("the day is used up", views[0], "k", 1)
}

// A class that has units of its own, but is refused by another limit, stops all borrowing.
func classRecall(r *rig) {
	l := sixtyForty()
	l.Burst = 1000
	p := r.policy("p", l, named("window", weir.Limit{Rate: 1000, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog}))
	views, other := r.classes(p, "realtime", "backfill"), r.policy("q", weir.PerSecond(1000))
	try := map[string]func(key string, cost int64){
		"peek": func(key string, cost int64) { r.peek(views[0], key, cost) },
		"take": func(key string, cost int64) { r.do(weir.TakeEach, charge(views[0], key, cost)) },
		"each": func(key string, cost int64) { r.do(weir.TakeEach, charge(other, key, 1), charge(views[0], key, cost)) },
		"all":  func(key string, cost int64) { r.do(weir.TakeAll, charge(other, key, 1), charge(views[0], key, cost)) },
		"hold": func(key string, cost int64) {
			r.run(&weir.Batch{Op: weir.ReserveAll, TTL: time.Minute, Charges: []weir.Charge{charge(views[0], key, cost)}})
		},
		"holds": func(key string, cost int64) {
			r.run(&weir.Batch{Op: weir.ReserveAll, TTL: time.Minute, Charges: []weir.Charge{charge(other, key, 1), charge(views[0], key, cost)}})
		},
	}
	for _, key := range slices.Sorted(maps.Keys(try)) {
		r.wantAllowed("backfill's burst", views[1], key, 400)
		r.clock.Pass(time.Second)
		r.wantAllowed("its own 200, and 200 that are lent", views[1], key, 400)
		r.clock.Pass(400 * time.Millisecond) // it has 80 of its own again, and 120 could be lent
		try[key](key, 100)                   // there is room
		try[key](key, 601)                   // it never fits
		if d := r.peek(views[1], key, 81); !d.Allowed {
			r.t.Errorf("%s: before a class was refused: %v", key, d)
		}
		try[key](key, 300)
		d := r.peek(views[1], key, 81)
		if want := key == "peek"; d.Allowed != want || !want && (d.By != 0 || d.RetryAfter != 5*time.Millisecond) {
			r.t.Errorf("%s: a class that was refused has what it lends: %v", key, d)
		}
		r.wantAllowed("backfill has what is its own", views[1], key, 80)
	}

	last := slices.Max(slices.Collect(maps.Keys(try))) // "take", whose backfill has used its own
	changed := r.policy("p", l, named("window", weir.Limit{Rate: 2000, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog}))
	r.set(p, changed)
	if d := r.peek(r.classes(changed, "backfill")[0], last, 1); d.Allowed || d.RetryAfter != 5*time.Millisecond {
		r.t.Errorf("after another limit was changed: %v, want to wait for a unit of its own", d)
	}
}

// A class that is ahead of its pace, or whose month is used up, gets nothing sooner if nobody borrows. So the others go on.
func classNoRecall(r *rig) {
	first := sixtyForty()
	first.Burst = 1000
	for _, second := range []weir.Limit{
		{Rate: 710, Per: weir.Calendar(weir.Month, nil), Pace: "realtime"},
		{Rate: 600, Per: weir.Calendar(weir.Month, nil), Pace: "realtime"},
		{Rate: 600, Per: weir.Calendar(weir.Month, nil)},
		{Rate: 600, Per: weir.Every(24 * time.Hour), Algorithm: weir.FixedWindow},
		{Rate: 600, Per: weir.Every(24 * time.Hour), Algorithm: weir.AnchoredWindow},
	} {
		r := r.another()
		views := r.classes(r.policy("p", first, named("second", second)), "realtime", "backfill")
		r.wantAllowed("backfill's burst", views[1], "k", 400)
		r.clock.Pass(400 * time.Millisecond) // 80 are its own again, and 120 could be lent
		if d := r.take(views[0], "k", 300); d.Allowed || d.By != 1 {
			r.t.Errorf("%v: a class with a full level: %v, want a refusal of the second limit", second, d)
		}
		r.wantReserve(weir.Batch{Charges: []weir.Charge{charge(views[0], "k", 300)}}, r.peek(views[0], "k", 300))
		r.wantAllowed("backfill borrows", views[1], "k", 100)
	}
}

// wantExact checks that a refused charge is admitted at RetryAfter, and not before.
func (r *rig) wantExact(p *weir.Policy, cost int64) {
	r.t.Helper()
	d := r.peek(p, "k", cost)
	if d.Allowed || d.RetryAfter <= r.res() {
		r.t.Fatalf("%s: %v, want it refused", callText("peek", charge(p, "k", cost)), d)
	}
	r.clock.Pass(d.RetryAfter - r.res())
	r.wantRefused("before RetryAfter", p, "k", cost)
	r.clock.Pass(r.res())
	r.wantAllowed("after RetryAfter", p, "k", cost)
}

// What a class can take beside holds falls again as the others save up: when another limit has room, it is too late.
func classLostAgain(r *rig) {
	p := r.policy("p", sixtyForty(), named("window", weir.Limit{Rate: 600, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog}))
	views := r.classes(p, "realtime", "backfill")
	r.wantAllowed("leaves the window after 10 s", views[0], "k", 180)
	r.clock.Pass(seconds(9.3))
	r.hold(time.Hour, charge(views[0], "k", 200))
	r.wantAllowed("the rest of what there is, but for 20", views[1], "k", 200)
	r.clock.Pass(seconds(0.02))
	if d := r.peek(views[0], "k", 165); d.Allowed || d.By != 1 {
		r.t.Errorf("%v, want a refusal of the window", d)
	}
	r.wantExact(views[0], 165)
}

// A paced class has nothing of a month that begins while it waits for another limit.
func classLostMonth(r *rig) {
	month := weir.Limit{Name: "month", Rate: 1_000_000, Per: weir.Calendar(weir.Month, nil), Pace: "backfill"}
	views := r.classes(r.policy("p", sixtyForty(), month), "realtime", "backfill")
	now := time.Unix(0, int64(r.clock.Now()))
	_, end, _ := month.Per.Bounds(now)
	r.clock.Pass(end.Sub(now) - 100*time.Millisecond)
	r.wantAllowed("backfill's burst", views[1], "k", 200)
	if d := r.peek(views[1], "k", 100); d.Allowed || d.By != 0 {
		r.t.Errorf("%v, want a refusal of the first limit", d)
	}
	r.wantExact(views[1], 100)
}

// A paced class has nothing of a day that begins just before another limit has room, also if that is not the next day.
func classLostDay(r *rig) {
	day := weir.Limit{Name: "day", Rate: 24, Per: weir.Calendar(weir.Day, nil), Pace: "backfill"}
	now := time.Unix(0, int64(r.clock.Now()))
	_, end, _ := day.Per.Bounds(now)
	wait := end.Sub(now).Truncate(r.res()) + 48*time.Hour + time.Minute
	for _, l := range []weir.Limit{
		{Rate: 1, Per: weir.Every(wait), Algorithm: weir.AnchoredWindow},
		{Rate: 1, Per: weir.Every(wait), Classes: weir.ClassesOf(weir.Class{Name: "backfill", Guaranteed: 1})},
	} {
		r := r.another()
		p := r.classes(r.policy("p", named("long", l), day), "backfill")[0]
		r.wantAllowed("the only unit for days", p, "k", 1)
		if d := r.peek(p, "k", 1); d.By != 0 || d.RetryAfter < wait+58*time.Minute || d.RetryAfter > wait+time.Hour {
			r.t.Errorf("%v, want to wait until 1 a.m., for an hour's share of the day", d)
		}
		r.wantExact(p, 1)
	}
}

// Nobody waits for what comes back after the horizon of the module.
func classForever(r *rig) {
	l := weir.Limit{Rate: 2, Per: weir.Every(12 * time.Minute), Classes: weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 2})}
	p := r.policy("p", l)
	r.do(weir.DebitEach, charge(p, "k", weir.MaxCost))
	r.wantPeek(p, "k", 0, admitted(2, 0, weir.Never))
	r.wantPeek(p, "k", 1, refused(2, 0, weir.Never, weir.Never))
}

func classPaced(r *rig) {
	month := weir.Limit{Name: "month", Rate: 3_000_000, Per: weir.Calendar(weir.Month, nil), Pace: "backfill"}
	views := r.classes(r.policy("p", weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second), Classes: sixtyForty().Classes}, month), "realtime", "backfill")
	start, end, _ := month.Per.Bounds(time.Unix(0, int64(r.clock.Now())))
	now := time.Unix(0, int64(r.clock.Now()))
	passed := int64(float64(month.Rate) * float64(now.Sub(start)) / float64(end.Sub(start)))
	left := min(passed, r.peek(views[1], "k", 0).Limit)
	if d := r.peek(views[1], "k", 0); d.By == 1 && d.Remaining != passed && d.Remaining != passed-1 {
		r.t.Errorf("backfill has %d of the month, want the share that has passed, %d", d.Remaining, left)
	}
	r.clock.Pass(end.Sub(now)) // the next month begins
	d := r.take(views[1], "k", 1)
	if length := 31 * 24 * time.Hour; d.Allowed || d.By != 1 || d.RetryAfter > length/3_000_000+r.res() || d.RetryAfter < 28*24*time.Hour/3_000_000 {
		r.t.Errorf("at the beginning of a month: %v, want to wait for one unit's share of it", d)
	}
	r.clock.Pass(d.RetryAfter)
	r.wantAllowed("after RetryAfter", views[1], "k", 1)
	r.wantAllowed("a class that is not paced", views[0], "k", 1000)
	r.wantRefused("what others use counts", views[1], "k", 1)
}

// All of a window has passed when it ends, and then the next one begins: the last unit is not for paced
// classes.
func classPacedEnd(r *rig) {
	month := weir.Limit{Name: "month", Rate: 100, Per: weir.Calendar(weir.Month, nil), Pace: "backfill"}
	views := r.classes(r.policy("p", weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Classes: sixtyForty().Classes}, month), "realtime", "backfill")
	now := time.Unix(0, int64(r.clock.Now()))
	_, end, _ := month.Per.Bounds(now)
	_, next, _ := month.Per.Bounds(end)
	if d := r.take(views[1], "k", 100); d.Allowed || d.RetryAfter != weir.Never {
		r.t.Errorf("all of a month: %v, want never", d)
	}
	r.wantAllowed("a class that is not paced", views[0], "k", 99)
	d := r.take(views[1], "k", 1)
	if want := end.Sub(now) + next.Sub(end)/100; d.Allowed || d.RetryAfter != want {
		r.t.Errorf("the last unit of a month: %v, want to wait %v, for the first of the next one", d, want)
	}
	r.clock.Pass(d.RetryAfter)
	r.wantAllowed("after RetryAfter", views[1], "k", 1)
}

// Reservations of several classes at once: never a unit too much, and each class gets its burst.
func classRace(r *rig) {
	l := sixtyForty()
	l.Per = weir.Every(24 * time.Hour)
	views := r.classes(r.policy("p", l), "realtime", "backfill")
	var got [2]atomic.Int64
	race(func(i int, rnd *rand.Rand) {
		for range times(20) {
			class := i % 2
			cost := 1 + rnd.Int64N(5)
			res, err := weir.Reserve(background(), r.limiter, time.Hour, charge(views[class], "k", cost))
			if err != nil {
				r.t.Errorf("reserve: %v", err)
				return
			}
			if !res.Decision.Allowed {
				continue
			}
			used := rnd.Int64N(cost + 1)
			if _, err := res.Commit(background(), used); err != nil {
				r.t.Errorf("commit: %v", err)
			}
			got[class].Add(used)
		}
	})
	for i, burst := range []int64{300, 200} {
		if n := got[i].Load() + r.drain(views[i], "k"); n != burst {
			r.t.Errorf("class %d got %d units, want %d", i, n, burst)
		}
	}
}
