package storetest

import (
	"time"

	"github.com/weirlimit/weir"
)

var overrideTests = []test{
	{name: "overrides share state", run: overridesShare},
	{name: "Scale shares state", run: scaleShares},
	{name: "peek under other limits converts nothing", run: peekConvertsNothing},
	{name: "a refusal under other limits converts nothing", run: refusalConvertsNothing, need: RefusalsKeepNumbers},
	{name: "a refusal at the same rate converts nothing", run: refusalAtTheSameRate, need: RefusalsKeepNumbers},
	{name: "RetryAfter is right when the rate has changed", run: retryAtAnotherRate},
	{name: "RetryAfter of several charges is right when the rate has changed", run: retryAllAtAnotherRate},
	{name: "settling works under any limits", run: settleAnyLimits},
}

func overridesShare(r *rig) {
	p := r.policy("p", perHour(10), named("b", perHour(100)))
	vip := r.with(p, perHour(50), named("b", perHour(500)))
	for range 5 {
		r.take(p, "k", 1)
		r.take(vip, "k", 1)
	}
	r.wantTake(p, "k", 0, admitted(10, 0, hours(1)))
	r.wantTake(p, "k", 1, refused(10, 0, minutes(6), hours(1)))
	r.wantTake(vip, "k", 0, admitted(50, 40, minutes(12)))
	r.wantTake(vip, "k", 40, admitted(50, 0, hours(1)))
	r.wantPeek(p, "k", 1, refused(10, 0, minutes(6*41), hours(5)))
	r.wantTake(p, "other", 10, admitted(10, 0, hours(1)))
}

func scaleShares(r *rig) {
	p := r.policy("p", weir.Limit{Rate: 60, Per: weir.Every(time.Hour), Burst: 10})
	half, err := p.Scale(1, 2)
	if err != nil {
		r.t.Fatalf("scale: %v", err)
	}
	r.wantTake(p, "k", 4, admitted(10, 6, minutes(4)))
	r.wantTake(half, "k", 4, admitted(10, 2, minutes(16))) // the same burst, half the rate
	r.wantTake(half, "k", 3, refused(10, 2, minutes(2), minutes(16)))
	r.wantTake(p, "k", 2, admitted(10, 0, minutes(10)))

	w := r.policy("w", using(weir.FixedWindow, perHour(10)))
	half, err = w.Scale(1, 2)
	if err != nil {
		r.t.Fatalf("scale: %v", err)
	}
	r.take(w, "k", 4)
	r.wantTake(half, "k", 1, admitted(5, 0, hours(1)))
	r.wantTake(w, "k", 5, admitted(10, 0, hours(1)))
}

// hourly and brief: what is booked into a second's window is gone after it, so a
// conversion that stays shows.
func (r *rig) hourlyAndBrief() (hourly, brief *weir.Policy) {
	r.t.Helper()
	hourly = r.policy("p", using(weir.FixedWindow, perHour(10)))
	return hourly, r.with(hourly, weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.FixedWindow})
}

func peekConvertsNothing(r *rig) {
	hourly, brief := r.hourlyAndBrief()
	r.take(hourly, "k", 10)
	r.wantPeek(brief, "k", 1, refused(10, 0, seconds(1), seconds(1)))
	r.wantBatch(r.do(weir.PeekEach, charge(brief, "k", 1)), refused(10, 0, seconds(1), seconds(1)))
	r.clock.Pass(minutes(1))
	r.wantTake(hourly, "k", 1, refused(10, 0, minutes(59), minutes(59)))
	r.reset(brief, "k")
	r.wantLeft("after a reset under other limits", hourly, "k", 10, 10)
}

func refusalConvertsNothing(r *rig) {
	hourly, brief := r.hourlyAndBrief()
	r.take(hourly, "k", 10)
	r.wantTake(brief, "k", 1, refused(10, 0, seconds(1), seconds(1)))
	r.wantTake(brief, "k", 0, admitted(10, 0, seconds(1)))
	for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll, weir.ReserveAll} {
		r.do(op, charge(brief, "k", 1), charge(brief, "new", 11))
	}
	r.do(weir.TakeAll, charge(brief, "k", 0))
	r.clock.Pass(minutes(1))
	r.wantTake(hourly, "k", 1, refused(10, 0, minutes(59), minutes(59)))
}

// A key that was charged under an override is under it until it is charged under other limits. A refusal changes that
// only if RetryAfter would be wrong otherwise; so a Set of the limits that refused is not about this key.
func refusalAtTheSameRate(r *rig) {
	once := weir.Limit{Rate: 1, Per: weir.Every(time.Minute)}
	twice := once
	twice.Burst = 2
	ways := map[string]func(p *weir.Policy){
		"take": func(p *weir.Policy) { r.take(p, "take", 1) },
		"each": func(p *weir.Policy) { r.do(weir.TakeEach, charge(p, "each", 1)) },
		"all":  func(p *weir.Policy) { r.do(weir.TakeAll, charge(p, "all", 1), charge(p, "another", 1)) },
		"hold": func(p *weir.Policy) {
			r.run(&weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{charge(p, "hold", 1)}})
		},
	}
	p := r.policy("p", once)
	for key, refused := range ways {
		r.wantAllowed("under the override", r.with(p, twice), key, 1)
		refused(p)
	}
	r.set(p, r.policy("p", perHour(1)))
	r.clock.Pass(minutes(1))
	for key := range ways {
		r.wantAllowed("all has come back", p, key, 1)
	}
}

// retryAtAnotherRate: who waits as long as a refusal says is admitted then, and not before, also if the
// units were taken at another rate.
func retryAtAnotherRate(r *rig) {
	retryAtAnotherRateBy(r, r.take)
}

// retryAllAtAnotherRate is the same for batches that are charged as a whole.
func retryAllAtAnotherRate(r *rig) {
	other := r.policy("other", perHour(1000))
	for _, op := range []weir.Op{weir.TakeAll, weir.ReserveAll} {
		for _, more := range [][]weir.Charge{nil, {charge(other, "o", 1)}} {
			retryAtAnotherRateBy(r, func(p *weir.Policy, key string, cost int64) weir.Decision {
				b := r.do(op, append([]weir.Charge{charge(p, key, cost)}, more...)...)
				d := b.Decisions[0]
				if op == weir.ReserveAll && d.Allowed {
					b.Op = weir.Settle
					r.run(b)
				}
				return d
			})
		}
	}
}

func retryAtAnotherRateBy(r *rig, take func(p *weir.Policy, key string, cost int64) weir.Decision) {
	p := r.policy("p", perHour(10))
	for _, rates := range [][2]int64{{10, 5}, {5, 10}, {10, 20}} {
		r.reset(p, "k")
		first, second := r.with(p, perHour(rates[0])), r.with(p, perHour(rates[1]))
		take(first, "k", rates[0])
		d := take(second, "k", 1)
		if d.Allowed { // there is room at the higher rate: use it up
			take(second, "k", d.Remaining)
			d = take(second, "k", 1)
		}
		r.clock.Pass(d.RetryAfter - time.Microsecond)
		if early := take(second, "k", 1); early.Allowed {
			r.t.Errorf("%v: admitted before RetryAfter", rates)
		}
		r.clock.Pass(time.Microsecond)
		if late := take(second, "k", 1); !late.Allowed {
			r.t.Errorf("%v: refused after RetryAfter, for %v more", rates, late.RetryAfter)
		}
	}
}

func settleAnyLimits(r *rig) {
	p := r.policy("p", perHour(10))
	vip := r.with(p, perHour(100))
	first := r.do(weir.ReserveAll, charge(p, "k", 5))
	second := r.do(weir.ReserveAll, charge(vip, "k", 40))
	r.wantSettle("reserved under other limits", first.Receipts[0], charge(vip, "k", 0), weir.Settled{Refunded: 5})
	renew := weir.Batch{Op: weir.Renew, TTL: minutes(5), Charges: []weir.Charge{charge(p, "k", 40)}, Receipts: second.Receipts}
	r.wantBatch(r.run(&renew), weir.Decision{Allowed: true, Reason: weir.Admitted})
	r.clock.Pass(minutes(4))
	r.wantSettle("reserved under other limits", renew.Receipts[0], charge(p, "k", 1), weir.Settled{Refunded: 39})
	r.wantLeft("1 of 40 was used", vip, "k", 99, 100)
	r.wantLeft("1 of 40 was used", p, "k", 9, 10)
}
