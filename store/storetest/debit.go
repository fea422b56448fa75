package storetest

import (
	"time"

	"github.com/weirlimit/weir"
)

var debitTests = []test{
	{name: "what fits is taken", run: debitThatFits},
	{name: "what does not fit is owed", run: debitIsOwed},
	{name: "debts are bounded", run: debitIsBounded},
	{name: "windows count beyond their limit", run: debitWindows},
	{name: "all limits are charged, the tightest tells", run: debitLimits},
	{name: "each on its own", run: debitEach},
	{name: "nothing changes nothing", run: debitNothing},
	{name: "beside what is held", run: debitBesideHolds},
	{name: "the greatest costs", run: debitGreat},
	{name: "under other limits", run: debitLimitsOfCall},
	{name: "a key that is new", run: debitNewKeys, opts: Options{MaxKeys: 1}, need: BoundedKeys},
}

func (r *rig) debit(p *weir.Policy, key string, cost int64) weir.Decision {
	r.t.Helper()
	return r.do(weir.DebitEach, charge(p, key, cost)).Decisions[0]
}

func (r *rig) wantDebit(p *weir.Policy, key string, cost int64, want weir.Decision) {
	r.t.Helper()
	r.want(callText("debit", charge(p, key, cost)), r.debit(p, key, cost), want)
}

func debitThatFits(r *rig) {
	for _, p := range r.everyAlgorithm() {
		for i, cost := range []int64{1, 0, 3, 1} {
			r.clock.Pass(time.Duration(i) * 7 * time.Millisecond)
			r.wantDebit(p, "debited", cost, r.take(p, "taken", cost))
		}
		r.want("after debits, under "+describe(p), r.peek(p, "debited", 1), r.peek(p, "taken", 1))
	}
}

func debitIsOwed(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.take(p, "k", 4)
		for _, cost := range []int64{2, 5, 7} { // beside what is used, all there is, and more
			d := r.debit(p, "k", cost)
			if want := r.peek(p, "k", 0); d != want || !d.Allowed || d.Remaining != 0 || d.ResetAfter == 0 {
				r.t.Errorf("%s: got %s, and then peek 0 says %s", callText("debit", charge(p, "k", cost)), show(d), show(want))
			}
			r.wantRefused("in debt", p, "k", 1)
		}
		d := r.peek(p, "k", 1)
		r.clock.Pass(d.RetryAfter - r.res())
		r.wantRefused("just before it is paid off", p, "k", 1)
		r.clock.Pass(r.res())
		r.wantAllowed("when enough is paid off", p, "k", 1)
		r.reset(p, "k")
		r.wantPeek(p, "k", 5, admitted(5, 5, 0))
	}
	p := r.policy("p", perHour(10)) // a unit takes six minutes
	r.wantDebit(p, "k", 25, admitted(10, 0, minutes(150)))
	r.wantTake(p, "k", 1, refused(10, 0, minutes(96), minutes(150)))
	r.clock.Pass(minutes(90))
	r.wantDebit(p, "k", 1, admitted(10, 0, minutes(66)))
	r.wantTake(p, "k", 11, tooCostly(10, 0, minutes(66)))
	r.clock.Pass(minutes(12))
	r.wantTake(p, "k", 1, admitted(10, 0, minutes(60)))
}

func debitIsBounded(r *rig) {
	l := weir.Limit{Rate: 100, Per: weir.Every(time.Hour), MaxDebt: 20}
	bucket := named("bucket", using(weir.TokenBucket, l))
	for _, p := range []*weir.Policy{r.policy("p", l), r.policy("bucket", bucket)} {
		r.wantDebit(p, "k", 110, admitted(100, 0, minutes(66)))
		r.wantDebit(p, "k", 1000, admitted(100, 0, minutes(72)))
		r.wantTake(p, "k", 1, refused(100, 0, 21*seconds(36), minutes(72)))
		r.clock.Pass(minutes(60))
		r.wantDebit(p, "k", 0, admitted(100, 80, minutes(12)))
		r.wantDebit(p, "k", 121, admitted(100, 0, minutes(72)))
	}
}

func debitWindows(r *rig) {
	for _, a := range []weir.Algorithm{weir.FixedWindow, weir.AnchoredWindow, weir.DualWindow} {
		p := r.policy(a.String(), using(a, perMinute(5)))
		r.clock.Pass(minutes(1))
		r.wantDebit(p, "k", 3, admitted(5, 2, minutes(1)))
		r.clock.Pass(seconds(20))
		r.wantDebit(p, "k", 12, admitted(5, 0, seconds(40)))
		r.clock.Pass(seconds(40)) // what was beyond the limit is gone with its window
		r.wantTake(p, "k", 5, admitted(5, 0, minutes(1)))
	}
	p := r.policy("sliding", using(weir.SlidingWindow, perMinute(6)))
	r.wantDebit(p, "k", 12, admitted(6, 0, minutes(2)))
	r.clock.Pass(minutes(1))
	r.wantPeek(p, "k", 1, refused(6, 0, seconds(35), minutes(1))) // 12 × 25/60 = 5
	r.wantDebit(p, "k", 3, admitted(6, 0, minutes(2)))
	r.clock.Pass(seconds(50)) // 12 × 10/60 + 3
	r.wantTake(p, "k", 1, admitted(6, 0, seconds(70)))

	// A log has as many entries as units, at most; one more joins the youngest.
	p = r.policy("log", using(weir.SlidingLog, perMinute(3)))
	for range 3 {
		r.clock.Pass(seconds(10))
		r.debit(p, "k", 2)
	}
	r.clock.Pass(seconds(10))
	r.wantDebit(p, "k", 1, admitted(3, 0, minutes(1)))
	r.clock.Pass(seconds(40)) // two and two have left, and three are still there
	r.wantPeek(p, "k", 1, refused(3, 0, seconds(20), seconds(20)))
	r.clock.Pass(seconds(20))
	r.wantPeek(p, "k", 3, admitted(3, 3, 0))
}

func debitLimits(r *rig) {
	p := r.policy("p", perHour(10), named("minute", using(weir.FixedWindow, perMinute(3))), named("log", using(weir.SlidingLog, perHour(8))))
	r.wantDebit(p, "k", 2, by(1, admitted(3, 1, minutes(1))))
	r.wantDebit(p, "k", 5, by(1, admitted(3, 0, minutes(1))))
	r.wantDebit(p, "k", 2, by(2, admitted(8, 0, hours(1)))) // two have nothing left: the one that resets last
	r.clock.Pass(minutes(1))
	r.wantTake(p, "k", 1, by(2, refused(8, 0, minutes(59), minutes(59))))
	r.wantDebit(p, "k", 3, by(0, admitted(10, 0, minutes(71))))
	r.clock.Pass(minutes(59))
	r.wantTake(p, "k", 0, by(1, admitted(3, 3, 0)))
	r.wantTake(p, "k", 3, by(1, admitted(3, 0, minutes(1))))
}

func debitEach(r *rig) {
	p, q := r.policy("p", perHour(10)), r.policy("q", perHour(5))
	b := r.do(weir.DebitEach, charge(p, "k", 6), charge(p, "k", 6), charge(q, "k", 1), charge(p, "other", 11), charge(p, "k", 0), charge(r.again(p), "k", 1))
	r.wantBatch(b,
		admitted(10, 4, minutes(36)),
		admitted(10, 0, minutes(72)), // what is beyond does not stop a later one
		admitted(5, 4, minutes(12)),
		admitted(10, 0, minutes(66)),
		admitted(10, 0, minutes(72)),
		admitted(10, 0, minutes(78)),
	)
	if !b.Allowed() {
		r.t.Errorf("%s: Allowed says that not all were made", batchText(b))
	}
	r.wantTake(p, "k", 1, refused(10, 0, minutes(24), minutes(78)))
}

func debitNothing(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.wantDebit(p, "k", 0, admitted(5, 5, 0))
		r.take(p, "k", 3)
		before := r.peek(p, "k", 3)
		r.wantDebit(p, "k", 0, r.peek(p, "k", 0))
		r.want("after a debit of nothing under "+describe(p), r.peek(p, "k", 3), before)
	}
	// A window that opens with the first charge is not opened by nothing.
	p := r.policy("opens", using(weir.AnchoredWindow, perMinute(5)))
	r.debit(p, "k", 0)
	r.clock.Pass(seconds(20))
	r.wantDebit(p, "k", 1, admitted(5, 4, minutes(1)))
}

func debitBesideHolds(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.debit(p, "alone", 7)
		held := r.hold(minutes(1), charge(p, "k", 4))
		if d := r.debit(p, "k", 7); !d.Allowed || d.Remaining != 0 {
			r.t.Errorf("%s beside 4 held: got %s", callText("debit", charge(p, "k", 7)), show(d))
		}
		if out, err := held.Cancel(background()); err != nil || total(out) != (weir.Settled{Refunded: 4}) {
			r.t.Errorf("cancel of 4 beside a debit under %s: got %+v, error %v, want 4 refunded", describe(p), out, err)
		}
		r.want("the debit without the hold, under "+describe(p), r.peek(p, "k", 1), r.peek(p, "alone", 1))
	}
	p := r.policy("p", perHour(100)) // a unit takes 36 seconds
	first, second := r.hold(minutes(30), charge(p, "k", 60)), r.hold(minutes(30), charge(p, "k", 20))
	r.clock.Pass(minutes(20))
	r.wantDebit(p, "k", 40, admitted(100, 0, minutes(72)))
	r.wantSettled(first, weir.Settled{Refunded: 60}, 0)
	r.wantTake(p, "k", 0, admitted(100, 40, minutes(36)))
	r.wantSettled(second, weir.Settled{Overrun: 10}, 30)
	r.wantTake(p, "k", 0, admitted(100, 30, minutes(42)))
}

// Sums beyond what 32 bits can count, and beyond what some windows can.
func debitGreat(r *rig) {
	for _, p := range r.everyAlgorithm() {
		for range 3 {
			if d := r.debit(p, "k", weir.MaxCost); !d.Allowed || d.Reason != weir.Admitted || d.Remaining != 0 || d.ResetAfter <= 0 {
				r.t.Errorf("%s: got %s", callText("debit", charge(p, "k", weir.MaxCost)), show(d))
			}
			r.wantRefused("after a great debit", p, "k", 1)
		}
		r.wantLeft("beside a key with great debits", p, "other", 5, 5)
		if l := p.Limits()[0]; l.Algorithm == weir.FixedWindow || l.Algorithm == weir.AnchoredWindow {
			r.clock.Pass(r.peek(p, "k", 0).ResetAfter)
			r.wantPeek(p, "k", 5, admitted(5, 5, 0))
		}
		r.reset(p, "k")
		r.wantPeek(p, "k", 5, admitted(5, 5, 0))
	}
}

func debitLimitsOfCall(r *rig) {
	p := r.policy("p", perHour(10))
	penalty := r.with(p, perHour(5))
	r.wantDebit(p, "k", 4, admitted(10, 6, minutes(24)))
	r.wantDebit(penalty, "k", 2, admitted(5, 0, minutes(72)))
	r.wantLeft("after six under two sets of limits", p, "k", 4, 10)
	r.wantDebit(penalty, "k", 0, admitted(5, 0, minutes(72)))
	r.set(p, r.with(p, perHour(20)))
	r.wantDebit(p, "k", 16, admitted(20, 0, minutes(66)))
}

// A debit is never refused for want of a place: strangers share theirs.
func debitNewKeys(r *rig) {
	p := r.policy("p", perHour(3))
	r.take(p, "a", 3)
	for _, key := range []string{"b", "c"} {
		if d := r.debit(p, key, 4); !d.Allowed {
			r.t.Errorf("%s in a full store: got %s", callText("debit", charge(p, key, 4)), show(d))
		}
		r.wantRefused("in debt", p, key, 1)
	}
	if b := r.do(weir.DebitEach, charge(p, "d", 1), charge(p, "a", 1)); !b.Allowed() {
		r.t.Errorf("%s in a full store: got %v", batchText(b), b.Decisions)
	}
	r.wantRefused("used up", p, "a", 1)
}
