package storetest

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
)

var setTests = []test{
	{name: "units in use are kept", run: setKeeps},
	{name: "a raised limit takes effect at once", run: setRaised},
	{name: "an excess blocks until it is paid off", run: setLowered},
	{name: "the same value changes nothing", run: setSame},
	{name: "who brings the old policy gets the new", run: setOldCallers},
	{name: "there and back, and chains", run: setChains},
	{name: "chains of equal policies", run: setChainsOfEquals},
	{name: "periods and algorithms", run: setAlgorithms},
	{name: "a limit more, a limit less", run: setLimits},
	{name: "what is held stays held", run: setHolds},
	{name: "to slots and back", run: setSlots},
	{name: "overrides stay overrides", run: setOverrides},
	{name: "an override may have the limits that were replaced", run: setOverridesLikeOld},
	{name: "another name is refused", run: setName},
	{name: "what cannot be represented is refused", run: setUnrepresentable, need: CheckedSet},
}

func setKeeps(r *rig) {
	old, raised := r.policy("p", perHour(10)), r.policy("p", perHour(20))
	for i := range 50 {
		r.take(old, fmt.Sprint(i), int64(i%11))
	}
	r.clock.Pass(minutes(3)) // half a unit
	r.set(old, raised)
	for i := range 50 {
		used := int64(i % 11)
		want := admitted(20, 20, 0)
		if used > 0 {
			want = admitted(20, 20-used, time.Duration(used)*minutes(3)-seconds(90))
		}
		r.wantTake(raised, fmt.Sprint(i), 0, want)
	}
}

func setRaised(r *rig) {
	old, raised := r.policy("p", perHour(10)), r.policy("p", perHour(20))
	r.take(old, "k", 10)
	r.wantTake(old, "k", 1, refused(10, 0, minutes(6), hours(1)))
	r.set(old, raised)
	r.wantTake(raised, "k", 1, admitted(20, 9, minutes(33)))
	r.wantTake(raised, "new", 20, admitted(20, 0, hours(1)))

	// Not at the next call only: units come back twice as fast from now on.
	p, q := r.policy("q", perHour(10)), r.policy("q", perHour(20))
	r.take(p, "k", 10)
	r.set(p, q)
	r.clock.Pass(minutes(15))
	r.wantTake(q, "k", 0, admitted(20, 15, minutes(15)))
}

func setLowered(r *rig) {
	old := r.policy("p", perHour(10))
	r.take(old, "k", 8)
	lowered := r.policy("p", perHour(5)) // a unit takes twelve minutes
	r.set(old, lowered)
	r.wantTake(lowered, "k", 1, refused(5, 0, minutes(48), minutes(96)))
	r.clock.Pass(minutes(48) - r.res())
	r.wantTake(lowered, "k", 1, refused(5, 0, r.res(), minutes(48)+r.res()))
	r.clock.Pass(r.res())
	r.wantTake(lowered, "k", 1, admitted(5, 0, minutes(60)))
	r.wantTake(lowered, "new", 6, tooCostly(5, 5, 0))

	// A window forgets the excess with the window.
	w := r.policy("w", using(weir.FixedWindow, perHour(10)))
	r.take(w, "k", 8)
	narrow := r.policy("w", using(weir.FixedWindow, perHour(5)))
	r.set(w, narrow)
	r.wantTake(narrow, "k", 1, refused(5, 0, minutes(12), minutes(12)))
	r.clock.Pass(minutes(12))
	r.wantTake(narrow, "k", 5, admitted(5, 0, hours(1)))
}

func setSame(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.take(p, "k", 3)
		r.clock.Pass(time.Millisecond)
		before := r.peek(p, "k", 4)
		r.set(p, p)
		r.set(p, r.again(p))
		r.set(r.again(p), p)
		r.want("after setting the same, under "+describe(p), r.peek(p, "k", 4), before)
	}
}

func setOldCallers(r *rig) {
	old, raised := r.policy("p", perHour(10)), r.policy("p", perHour(20))
	r.take(old, "k", 8)
	r.set(old, raised)
	for _, p := range []*weir.Policy{old, r.again(old), r.policy("p", perHour(10)), raised, r.again(raised)} {
		r.wantTake(p, "k", 0, admitted(20, 12, minutes(24)))
		r.wantBatch(r.do(weir.PeekEach, charge(p, "k", 13), charge(p, "new", 20)),
			refused(20, 12, minutes(3), minutes(24)), admitted(20, 20, 0))
	}
	r.wantBatch(r.do(weir.TakeAll, charge(old, "k", 1), charge(raised, "k", 1), charge(old, "a", 20)),
		admitted(20, 11, minutes(27)), admitted(20, 10, minutes(30)), admitted(20, 0, minutes(60)))
	res := r.hold(minutes(1), charge(old, "b", 20))
	r.wantSettled(res, weir.Settled{Refunded: 20}, 0)
	r.reset(old, "k")
	r.wantLeft("after a reset by a caller with the old policy", raised, "k", 20, 20)
}

// wantLimits checks which limit each policy's callers meet.
func (r *rig) wantLimits(when string, want int64, policies ...*weir.Policy) {
	r.t.Helper()
	for _, p := range policies {
		if d := r.peek(p, "k", 0); d.Limit != want {
			r.t.Errorf("%s: callers with %s meet a limit of %d, want %d", when, describe(p), d.Limit, want)
		}
	}
}

func setChains(r *rig) {
	a, b, c := r.policy("p", perHour(10)), r.policy("p", perHour(20)), r.policy("p", perHour(30))
	r.take(a, "k", 8)
	r.set(a, b)
	r.set(a, c) // a means b by now
	r.wantLimits("after a to b, a to c", 30, a, b, c)
	r.set(c, a)
	r.wantLimits("after a to b to c to a", 10, a, b, c)
	r.wantTake(a, "k", 0, admitted(10, 2, minutes(48)))
	r.set(a, b)
	r.set(b, a)
	r.wantLimits("after there and back again", 10, a, b, c)
	r.wantTake(c, "k", 0, admitted(10, 2, minutes(48)))
	for i := range 300 { // as a program does that adapts its limits
		next := r.policy("p", perHour(int64(100+i)))
		r.set(a, next)
		a = next
	}
	r.wantLimits("after 300 more", 399, a)
	r.wantLeft("after 300 more", a, "k", 391, 399)
}

// The same, where every caller has compiled the policy for itself.
func setChainsOfEquals(r *rig) {
	a, b, c := r.policy("p", perHour(10)), r.policy("p", perHour(20)), r.policy("p", perHour(30))
	r.set(a, b)
	r.set(r.again(b), r.again(a))
	r.wantLimits("after a to b to a", 10, a, b)
	r.set(r.again(a), c)
	r.wantLimits("after a to b to a to c", 30, a, b, c, r.again(b))
	r.set(r.again(c), r.again(b))
	r.wantLimits("after a to b to a to c to b", 20, a, b, c, r.again(a))
}

// Seven units are in use, whatever counts them.
func setAlgorithms(r *rig) {
	limits := []weir.Limit{
		perHour(10),
		using(weir.FixedWindow, perHour(10)),
		using(weir.FixedWindow, perMinute(10)),
		{Rate: 10, Per: weir.Calendar(weir.Month, nil)},
		{Rate: 10, Per: weir.Calendar(weir.Day, nil)},
		using(weir.AnchoredWindow, perHour(10)),
		using(weir.AnchoredWindow, perMinute(10)),
		using(weir.SlidingWindow, perHour(10)),
		using(weir.SlidingWindow, perMinute(10)),
		using(weir.SlidingLog, perHour(10)),
		using(weir.SlidingLog, perMinute(10)),
		using(weir.DualWindow, perMinute(10)),
		using(weir.TokenBucket, perMinute(10)),
	}
	for i, from := range limits {
		for j, to := range limits {
			old, next := r.policy(fmt.Sprintf("p-%d-%d", i, j), from), r.policy(fmt.Sprintf("p-%d-%d", i, j), to)
			r.take(old, "k", 7)
			r.set(old, next)
			r.wantLeft("7 in use, set from "+describe(old), next, "k", 3, 10)
			if n := r.drain(next, "k"); n != 3 {
				r.t.Errorf("7 in use, set from %s to %s: got %d more, want 3", describe(old), describe(next), n)
			}
		}
	}
}

// Limits continue by name; one that is new starts unused.
func setLimits(r *rig) {
	minute := named("minute", using(weir.FixedWindow, perMinute(8)))
	one, two := r.policy("p", perHour(10)), r.policy("p", minute, perHour(10))
	r.take(one, "k", 6)
	r.set(one, two)
	r.wantTake(two, "k", 0, by(1, admitted(10, 4, minutes(36))))
	r.wantTake(two, "k", 4, by(1, admitted(10, 0, minutes(60))))
	r.set(two, r.policy("p", minute))
	r.wantLeft("after the hour's limit has gone", two, "k", 4, 8)
	r.set(two, r.policy("p", named("minute", using(weir.FixedWindow, perMinute(20)))))
	r.wantLeft("4 of the minute's are in use", two, "k", 16, 20)
}

func setHolds(r *rig) {
	old, next := r.policy("p", perHour(10)), r.policy("p", perHour(20))
	r.take(old, "k", 2)
	res := r.hold(minutes(30), charge(old, "k", 5))
	renewed := r.hold(minutes(30), charge(old, "k", 1))
	r.set(old, next)
	r.wantTake(next, "k", 0, admitted(20, 12, minutes(30+18))) // six are held for half an hour
	r.wantRenewed(renewed, minutes(1), true)
	r.clock.Pass(minutes(1))
	r.wantSettled(renewed, weir.Settled{Late: true}, 0)
	r.wantSettled(res, weir.Settled{Refunded: 4}, 1)
	r.wantTake(next, "k", 0, admitted(20, 16, minutes(11)))

	// A window takes back where the units are booked now.
	w := r.policy("w", using(weir.FixedWindow, perHour(10)))
	res = r.hold(hours(1), charge(w, "k", 5))
	m := r.policy("w", using(weir.FixedWindow, perMinute(10)))
	r.set(w, m)
	r.wantLeft("5 are held", m, "k", 5, 10)
	r.wantSettled(res, weir.Settled{Refunded: 5}, 0)
	r.wantLeft("and given back", m, "k", 10, 10)
}

func setSlots(r *rig) {
	rate := r.policy("p", perHour(5))
	held := r.with(rate, slots(2))
	r.take(rate, "k", 1)
	r.set(rate, held)
	_, err := r.limiter.Take(background(), rate, "k", 1)
	r.wantError("take where slots were set", err, sentinel(weir.ErrReserveOnly))
	for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll} {
		b := weir.Batch{Op: op, Charges: []weir.Charge{charge(rate, "k", 1)}}
		r.wantError(opNames[op]+" where slots were set", r.limiter.Do(background(), &b), sentinel(weir.ErrReserveOnly))
	}
	res := r.hold(weir.NoExpiry, charge(rate, "k", 2))
	r.wantPeek(rate, "k", 1, refused(2, 0, weir.Never, weir.Never))
	r.set(held, rate)
	// Under a rate what is held must expire, an hour from now at the latest.
	r.wantTake(held, "k", 0, admitted(5, 3, hours(1)+minutes(24)))
	r.wantTake(held, "k", 3, admitted(5, 0, hours(1)+minutes(24)))
	r.clock.Pass(compiled.MaxTTL - r.res())
	r.wantLeft("just before the expiry", rate, "k", 3, 5)
	r.clock.Pass(r.res())
	r.wantSettled(res, weir.Settled{Late: true}, 0)
}

// An override is not the old policy: it stays in force where it is brought.
func setOverrides(r *rig) {
	p := r.policy("p", perHour(10))
	vip, next := r.with(p, perHour(100)), r.policy("p", perHour(20))
	r.take(p, "k", 5)
	r.set(p, next)
	r.wantTake(vip, "k", 1, admitted(100, 94, 6*seconds(36)))
	r.wantTake(p, "k", 0, admitted(20, 14, minutes(18)))
	r.wantTake(next, "k", 1, admitted(20, 13, minutes(21)))
	r.wantTake(vip, "k", 0, admitted(100, 93, 7*seconds(36)))
}

// setOverridesLikeOld: Set replaces the limits of a policy, and not those of an override that are
// the same, for any algorithm.
func setOverridesLikeOld(r *rig) {
	for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.AnchoredWindow, weir.SlidingWindow, weir.SlidingLog} {
		limit := func(n int64) weir.Limit {
			return weir.Limit{Rate: n, Per: weir.Every(24 * time.Hour), Algorithm: algorithm}
		}
		p := r.policy(algorithm.String(), limit(10))
		partner, err := storeapi.Override(p, limit(10))
		if err != nil {
			r.t.Fatalf("storetest: %v", err)
		}
		next := r.policy(algorithm.String(), limit(4))
		r.take(partner, "partner", 2)
		r.set(p, next)
		for _, step := range []struct {
			policy           *weir.Policy
			key              string
			limit, remaining int64
		}{{partner, "partner", 10, 7}, {p, "alice", 4, 3}, {next, "alice", 4, 2}, {partner, "new", 10, 9}, {partner, "partner", 10, 6}} {
			if d := r.take(step.policy, step.key, 1); d.Limit != step.limit || d.Remaining != step.remaining {
				r.t.Errorf("%v: take from %q: %d of %d remain, want %d of %d", algorithm, step.key, d.Remaining, d.Limit, step.remaining, step.limit)
			}
		}
		r.wantError("set an override", r.limiter.Set(background(), partner, next), sentinel(weir.ErrInvalid))
		r.wantError("set to an override", r.limiter.Set(background(), next, partner), sentinel(weir.ErrInvalid))
	}
}

func setName(r *rig) {
	p, q := r.policy("p", perHour(10)), r.policy("q", perHour(20))
	r.take(p, "k", 4)
	r.wantError("set to a policy of another name", r.limiter.Set(background(), p, q), anyError)
	r.wantTake(p, "k", 0, admitted(10, 6, minutes(24)))
	r.wantTake(q, "k", 0, admitted(20, 20, 0))
}

func setUnrepresentable(r *rig) {
	p := r.policy("p", perHour(10))
	r.take(p, "one", 1)
	r.take(p, "k", 8)
	r.take(p, "other", 2)
	tighter := r.policy("p", tight)
	r.wantError("set to "+describe(tighter)+" with 8 in use", r.limiter.Set(background(), p, tighter), anyError)
	r.wantTake(p, "k", 0, admitted(10, 2, minutes(48)))
	r.wantTake(p, "one", 0, admitted(10, 9, minutes(6)))
	r.wantTake(p, "new", 10, admitted(10, 0, minutes(60)))
	r.reset(p, "k")
	r.reset(p, "new")
	r.set(p, tighter)
	r.wantTake(p, "other", 0, admitted(1, 0, hours(2)))
}
