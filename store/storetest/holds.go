package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

var holdTests = []test{
	{name: "held units occupy room", run: heldOccupies},
	{name: "commit keeps what was used", run: commitKeeps},
	{name: "cancel gives all back", run: cancelGivesBack},
	{name: "expiry is commit of the whole", run: expiryCommits},
	{name: "late settling changes nothing", run: lateChangesNothing},
	{name: "overrun is owed", run: overrunIsOwed},
	{name: "overrun is owed up to the cap", run: overrunIsCapped},
	{name: "renew moves the expiry", run: renewMoves},
	{name: "renew of what is over", run: renewTooLate},
	{name: "holds overlap and end in any order", run: overlapping},
	{name: "windows take back into the window that was charged", run: refundWindows},
	{name: "settling twice", run: settledTwice},
	{name: "someone else's receipt", run: foreignReceipts},
	{name: "several charges settle together", run: severalCharges},
	{name: "several limits settle together", run: severalLimits},
	{name: "reset keeps what is held", run: resetKeepsHolds},
	{name: "a hold of nothing", run: holdOfNothing},
	{name: "charges may be used again", run: chargesAgain},
	{name: "a request that has ended gives back", run: endedGivesBack},
	{name: "refusals while units are held say so", run: heldRefusals},
}

// The policy of most tests here: a unit of perHour(100) takes 36 seconds.

func heldOccupies(r *rig) {
	p := r.policy("p", perHour(100))
	d := r.hold(minutes(1), charge(p, "k", 60)).Decision
	// Without a settlement the units come back from the expiry on.
	r.want("reserve 60 of 100 for a minute", d, admitted(100, 40, minutes(37)))
	r.wantTake(p, "k", 40, admitted(100, 0, minutes(60)))
	r.reset(p, "k")
	r.wantTake(p, "k", 41, refused(100, 40, minutes(1)+seconds(36), minutes(37)))

	q := r.policy("q", perHour(100))
	r.hold(minutes(30), charge(q, "k", 60))
	r.clock.Pass(minutes(30) - r.res())
	r.wantLeft("just before the expiry, as at the start", q, "k", 40, 100)
	r.wantPeek(q, "k", 100, refused(100, 40, minutes(36)+r.res(), minutes(36)+r.res()))
}

func commitKeeps(r *rig) {
	p := r.policy("p", perHour(100))
	res := r.hold(minutes(30), charge(p, "k", 60))
	r.clock.Pass(minutes(20))
	r.wantSettled(res, weir.Settled{Refunded: 50}, 10)
	r.wantTake(p, "k", 0, admitted(100, 90, minutes(6)))

	all := r.hold(minutes(30), charge(p, "all", 60))
	r.clock.Pass(minutes(20))
	r.wantSettled(all, weir.Settled{})
	r.wantTake(p, "all", 0, admitted(100, 40, minutes(36)))
}

func cancelGivesBack(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.take(p, "k", 1)
		before := r.peek(p, "k", 0)
		res := r.hold(minutes(1), charge(p, "k", 4))
		r.wantRefused("with all in use or held", p, "k", 1)
		if out, err := res.Cancel(background()); err != nil || total(out) != (weir.Settled{Refunded: 4}) {
			r.t.Errorf("cancel of 4 under %s: got %+v, error %v, want 4 refunded", describe(p), out, err)
		}
		r.want("after a cancelled reservation under "+describe(p), r.peek(p, "k", 0), before)

		// What nothing was used of is as if it had never been.
		r.wantSettled(r.hold(minutes(1), charge(p, "fresh", 4)), weir.Settled{Refunded: 4}, 0)
		r.wantPeek(p, "fresh", 5, admitted(5, 5, 0))
	}
	p := r.policy("opens", using(weir.AnchoredWindow, perMinute(5)))
	r.wantSettled(r.hold(minutes(1), charge(p, "k", 4)), weir.Settled{Refunded: 4}, 0)
	r.clock.Pass(seconds(20))
	r.wantTake(p, "k", 1, admitted(5, 4, minutes(1)))
}

func expiryCommits(r *rig) {
	p := r.policy("p", perHour(100))
	r.hold(minutes(30), charge(p, "k", 60))
	r.clock.Pass(minutes(30))
	r.wantTake(p, "k", 0, admitted(100, 40, minutes(36)))
	r.clock.Pass(minutes(18))
	r.wantTake(p, "k", 0, admitted(100, 70, minutes(18)))

	// Nobody looks for a long time: the units came back from the expiry on.
	r.hold(minutes(30), charge(p, "quiet", 60))
	r.clock.Pass(minutes(30 + 18))
	r.wantTake(p, "quiet", 0, admitted(100, 70, minutes(18)))
}

func lateChangesNothing(r *rig) {
	for _, p := range r.everyAlgorithm() {
		res := r.hold(seconds(1), charge(p, "k", 4))
		inTime := r.hold(seconds(1), charge(p, "k", 1))
		r.clock.Pass(seconds(1) - r.res())
		if _, err := inTime.Cancel(background()); err != nil {
			r.t.Fatalf("cancel: error %v", err)
		}
		r.clock.Pass(r.res())
		before := r.peek(p, "k", 1)
		for _, used := range []int64{0, 4, 9} {
			r.wantSettled(res, weir.Settled{Late: true}, used)
		}
		r.want("after a late settlement under "+describe(p), r.peek(p, "k", 1), before)
	}
}

func overrunIsOwed(r *rig) {
	p := r.policy("p", perHour(100))
	r.wantSettled(r.hold(0, charge(p, "k", 10)), weir.Settled{Overrun: 15}, 25)
	r.wantTake(p, "k", 0, admitted(100, 75, minutes(15)))
	r.wantSettled(r.hold(0, charge(p, "k", 1)), weir.Settled{Overrun: 124}, 125)
	r.wantTake(p, "k", 1, refused(100, 0, 51*seconds(36), minutes(90))) // 150 are in use
	r.clock.Pass(51 * seconds(36))
	r.wantTake(p, "k", 1, admitted(100, 0, hours(1)))

	w := r.policy("w", using(weir.FixedWindow, perHour(100)))
	r.wantSettled(r.hold(0, charge(w, "k", 1)), weir.Settled{Overrun: 499}, 500)
	end := r.peek(w, "k", 1).RetryAfter
	r.want("peek with 500 of 100 used", r.peek(w, "k", 1), refused(100, 0, end, end))
	r.clock.Pass(end)
	r.wantTake(w, "k", 1, admitted(100, 99, hours(1)))
}

func overrunIsCapped(r *rig) {
	p := r.policy("p", weir.Limit{Rate: 100, Per: weir.Every(time.Hour), MaxDebt: 20})
	r.wantSettled(r.hold(0, charge(p, "k", 60)), weir.Settled{Overrun: 940}, 1000)
	r.wantTake(p, "k", 1, refused(100, 0, 21*seconds(36), minutes(72)))
}

func renewMoves(r *rig) {
	p := r.policy("p", perHour(100))
	res := r.hold(minutes(1), charge(p, "k", 60))
	for range 5 {
		r.clock.Pass(seconds(50))
		r.wantRenewed(res, minutes(1), true)
	}
	r.wantTake(p, "k", 0, admitted(100, 40, minutes(37)))
	r.wantRenewed(res, seconds(10), true) // to an earlier one
	r.wantTake(p, "k", 0, admitted(100, 40, minutes(36)+seconds(10)))
	r.clock.Pass(seconds(10) - r.res())
	r.wantSettled(res, weir.Settled{Refunded: 60}, 0)
	r.wantTake(p, "k", 0, admitted(100, 100, 0))
}

func (r *rig) wantRenewed(res *weir.Reservation, ttl time.Duration, want bool) {
	r.t.Helper()
	if ok, err := res.Renew(background(), ttl); err != nil || ok != want {
		r.t.Errorf("renew for %v: got %v, error %v, want %v", ttl, ok, err, want)
	}
}

func renewTooLate(r *rig) {
	p := r.policy("p", perHour(100))
	charges := []weir.Charge{charge(p, "short", 10), charge(p, "long", 10)}
	short := r.run(&weir.Batch{Op: weir.ReserveAll, TTL: minutes(1), Charges: charges[:1]})
	long := r.run(&weir.Batch{Op: weir.ReserveAll, TTL: minutes(2), Charges: charges[1:]})
	r.clock.Pass(minutes(1))
	b := r.run(&weir.Batch{Op: weir.Renew, TTL: minutes(5), Charges: charges, Receipts: []weir.Receipt{short.Receipts[0], long.Receipts[0]}})
	r.wantBatch(b, weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}, weir.Decision{Allowed: true, Reason: weir.Admitted})
	if b.Receipts[0] != short.Receipts[0] {
		r.t.Errorf("the receipt of what was over: got %+v, want it as it was, %+v", b.Receipts[0], short.Receipts[0])
	}
	want := long.Receipts[0]
	want.Expiry = r.clock.Now().Add(minutes(5))
	if b.Receipts[1] != want {
		r.t.Errorf("the receipt of what was renewed: got %+v, want %+v", b.Receipts[1], want)
	}
	r.clock.Pass(minutes(5) - r.res())
	r.wantSettle("not renewed in time", b.Receipts[0], charge(p, "short", 0), weir.Settled{Late: true})
	r.wantSettle("renewed in time", b.Receipts[1], charge(p, "long", 0), weir.Settled{Refunded: 10})
	res := r.hold(minutes(1), charge(p, "k", 1))
	r.wantSettled(res, weir.Settled{Refunded: 1}, 0)
	r.wantRenewed(res, minutes(1), false)
}

// Neither the largest hold nor the plain sum bounds what overlapping holds keep
// occupied once they end out of order.
func overlapping(r *rig) {
	p := r.policy("p", perHour(100))
	short := r.hold(minutes(10), charge(p, "k", 30))
	long := r.hold(minutes(20), charge(p, "k", 40))
	// All 70 may be held until the last expiry: that bounds the reset.
	r.wantTake(p, "k", 31, refused(100, 30, minutes(10)+seconds(36), minutes(20+42)))
	r.clock.Pass(minutes(10))
	// short is over: 70 at its expiry, of which 40 are still held.
	r.wantTake(p, "k", 0, admitted(100, 30, minutes(42)))
	r.wantSettled(short, weir.Settled{Late: true}, 0)
	r.clock.Pass(minutes(9))
	r.wantTake(p, "k", 0, admitted(100, 45, minutes(33)))
	r.wantSettled(long, weir.Settled{Refunded: 40}, 0)
	r.wantTake(p, "k", 0, admitted(100, 85, minutes(9)))
}

func refundWindows(r *rig) {
	cases := []struct {
		algorithm weir.Algorithm
		pass      time.Duration
		refund    int64
		left      int64 // of 10, when 1 more was taken
	}{
		{weir.FixedWindow, seconds(20), 8, 8},
		{weir.FixedWindow, seconds(40), 0, 9},
		{weir.AnchoredWindow, seconds(59), 8, 8},
		{weir.AnchoredWindow, seconds(60), 0, 9},
		{weir.SlidingWindow, seconds(20), 8, 8},
		{weir.SlidingWindow, seconds(40), 8, 8}, // the window before still counts
		{weir.SlidingWindow, seconds(100), 0, 9},
		{weir.SlidingLog, seconds(59), 8, 8},
		{weir.SlidingLog, seconds(60), 0, 9},
		{weir.DualWindow, seconds(20), 8, 8},
		{weir.DualWindow, seconds(40), 0, 9},
	}
	for _, c := range cases {
		one := r.another()
		one.clock.Pass(seconds(30)) // half a minute before the next window
		p := one.policy("p", using(c.algorithm, perMinute(10)))
		one.take(p, "k", 1)
		res := one.hold(minutes(5), charge(p, "k", 8))
		one.clock.Pass(c.pass)
		one.wantAllowed("the last or the first", p, "k", 1)
		one.wantSettled(res, weir.Settled{Refunded: c.refund}, 0)
		one.wantLeft(fmt.Sprintf("8 of 10 held and cancelled %v later", c.pass), p, "k", c.left, 10)
	}
}

// Until the expiry, a second settle returns the first outcome, whatever was used; a
// Reservation remembers that for good.
func settledTwice(r *rig) {
	p := r.policy("p", perHour(100))
	res := r.hold(minutes(1), charge(p, "k", 60))
	for range 2 {
		r.wantSettled(res, weir.Settled{Refunded: 50}, 10)
	}
	if out, err := res.Cancel(background()); err != nil || total(out) != (weir.Settled{Refunded: 50}) {
		r.t.Errorf("cancel after commit: got %+v, error %v, want what commit said", out, err)
	}
	r.wantLeft("10 of 60 reserved units were used", p, "k", 90, 100)

	b := r.do(weir.ReserveAll, charge(p, "direct", 60))
	for i, used := range []int64{10, 10, 0, 99} {
		r.wantSettle(fmt.Sprint("time ", i+1), b.Receipts[0], charge(p, "direct", used), weir.Settled{Refunded: 50})
	}
	r.wantLeft("10 of 60 reserved units were used", p, "direct", 90, 100)
	r.wantSettle("with another's key", b.Receipts[0], charge(p, "other", 10), weir.Settled{Late: true})
	renew := r.run(&weir.Batch{Op: weir.Renew, Charges: []weir.Charge{charge(p, "direct", 0)}, Receipts: b.Receipts})
	r.wantBatch(renew, weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never})

	// What happens to the key meanwhile does not matter, until the expiry has come.
	for _, p := range r.everyAlgorithm() {
		over := r.run(&weir.Batch{Op: weir.ReserveAll, TTL: seconds(10), Charges: []weir.Charge{charge(p, "k", 2)}}).Receipts[0]
		back := r.run(&weir.Batch{Op: weir.ReserveAll, TTL: seconds(20), Charges: []weir.Charge{charge(p, "k", 2)}}).Receipts[0]
		again := func(when string, overrun, refunded weir.Settled) {
			r.wantSettle(when+", under "+describe(p), over, charge(p, "k", 0), overrun)
			r.wantSettle(when+", under "+describe(p), back, charge(p, "k", 5), refunded)
		}
		r.wantSettle("3 of 2", over, charge(p, "k", 3), weir.Settled{Overrun: 1})
		r.wantSettle("none of 2", back, charge(p, "k", 0), weir.Settled{Refunded: 2})
		again("at once", weir.Settled{Overrun: 1}, weir.Settled{Refunded: 2})
		r.take(p, "k", 1)
		before := r.peek(p, "k", 1)
		again("after a take", weir.Settled{Overrun: 1}, weir.Settled{Refunded: 2})
		r.want("settled again under "+describe(p), r.peek(p, "k", 1), before)
		r.reset(p, "k")
		r.clock.Pass(seconds(10) - r.res())
		again("just before the first expiry", weir.Settled{Overrun: 1}, weir.Settled{Refunded: 2})
		r.clock.Pass(r.res())
		again("at the first expiry", weir.Settled{Late: true}, weir.Settled{Refunded: 2})
		r.clock.Pass(seconds(10))
		again("at the second expiry", weir.Settled{Late: true}, weir.Settled{Late: true})
	}

	both := r.do(weir.ReserveAll, charge(p, "both", 60)).Receipts[0]
	twice := weir.Batch{Op: weir.Settle, Charges: []weir.Charge{charge(p, "both", 0), charge(p, "both", 0)}, Receipts: []weir.Receipt{both, both}}
	if s := r.run(&twice).Settled; s[0] != (weir.Settled{Refunded: 60}) || s[1] != s[0] {
		r.t.Errorf("a receipt twice in one batch: got %+v, want 60 refunded, reported twice", s)
	}
	r.wantLeft("60 were given back once", p, "both", 100, 100)
}

func foreignReceipts(r *rig) {
	p, q := r.policy("p", perHour(10)), r.policy("q", perHour(10))
	b := r.do(weir.ReserveAll, charge(p, "alice", 5))
	forged := weir.Receipt{ID: [16]byte{1}, Units: 5, Expiry: b.Receipts[0].Expiry}
	for _, c := range []struct {
		charge  weir.Charge
		receipt weir.Receipt
	}{
		{charge(p, "bob", 0), b.Receipts[0]},
		{charge(q, "alice", 0), b.Receipts[0]},
		{charge(p, "alice", 0), forged},
		{charge(p, "alice", 0), weir.Receipt{}},
	} {
		r.wantSettle("with a receipt that is not theirs", c.receipt, c.charge, weir.Settled{Late: true})
		renew := r.run(&weir.Batch{Op: weir.Renew, TTL: time.Hour, Charges: []weir.Charge{c.charge}, Receipts: []weir.Receipt{c.receipt}})
		r.wantBatch(renew, weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never})
		r.wantLeft("after someone else's receipt", p, "alice", 5, 10)
		r.wantLeft("after someone else's receipt", p, "bob", 10, 10)
		r.wantLeft("after someone else's receipt", q, "alice", 10, 10)
	}
	r.wantSettle("with an equal policy", b.Receipts[0], charge(r.again(p), "alice", 0), weir.Settled{Refunded: 5})
}

func severalCharges(r *rig) {
	p, q := r.policy("p", perHour(10)), r.policy("q", perHour(100))
	res := r.hold(minutes(1), charge(p, "a", 5), charge(q, "a", 50), charge(p, "a", 5))
	r.wantLeft("all charges are held", p, "a", 0, 10)
	r.wantSettled(res, weir.Settled{Refunded: 5 + 4, Overrun: 20}, 0, 70, 1)
	r.wantLeft("0 and 1 were used", p, "a", 9, 10)
	r.wantLeft("70 were used", q, "a", 30, 100)
	res = r.hold(minutes(1), charge(p, "b", 5), charge(q, "b", 50))
	if _, err := res.Commit(background(), 1); err == nil {
		r.t.Errorf("commit of two charges with one cost: got no error")
	}
	r.wantSettled(res, weir.Settled{Refunded: 55}, 0, 0)
}

// With several limits the result reports the most that any of them took back.
func severalLimits(r *rig) {
	p := r.policy("p", perHour(100), named("minute", using(weir.FixedWindow, perMinute(50))))
	res := r.hold(minutes(5), charge(p, "k", 40))
	r.want("reserve 40", res.Decision, by(1, admitted(50, 10, minutes(1))))
	r.clock.Pass(seconds(90))
	r.take(p, "k", 5)
	r.wantSettled(res, weir.Settled{Refunded: 40}, 0)
	r.wantTake(p, "k", 0, by(1, admitted(50, 45, seconds(30)))) // the window has 5 of its own
	r.clock.Pass(seconds(30))
	r.wantTake(p, "k", 50, by(1, admitted(50, 0, minutes(1))))
	r.clock.Pass(minutes(1))
	r.wantTake(p, "k", 0, admitted(100, 47, 55*seconds(36)-seconds(90)))
}

func resetKeepsHolds(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.take(p, "k", 2)
		res := r.hold(minutes(1), charge(p, "k", 3))
		r.reset(p, "k")
		r.wantLeft("3 are held, the rest is forgotten", p, "k", 2, 5)
		r.wantSettled(res, weir.Settled{Refunded: 2}, 1)
		r.wantLeft("1 of 3 was used", p, "k", 4, 5)
		r.reset(p, "k")
		r.wantPeek(p, "k", 5, admitted(5, 5, 0))
	}
}

func holdOfNothing(r *rig) {
	p := r.policy("p", perHour(100))
	res := r.hold(minutes(1), charge(p, "k", 0))
	r.want("reserve nothing", res.Decision, admitted(100, 100, 0))
	r.wantPeek(p, "k", 100, admitted(100, 100, 0))
	r.wantSettled(res, weir.Settled{Overrun: 7}, 7)
	r.wantLeft("7 were used", p, "k", 93, 100)
}

func chargesAgain(r *rig) {
	p, q := r.policy("p", perHour(5)), r.policy("q", perHour(5))
	charges := []weir.Charge{charge(p, "alice", 5)}
	b := &weir.Batch{Op: weir.ReserveAll, Charges: charges}
	receipt := r.run(b).Receipts[0]
	res := r.hold(0, charge(p, "carol", 5))
	charges[0] = charge(q, "bob", 1)
	b.Receipts[0] = weir.Receipt{}
	r.wantLeft("after the caller changed the batch", p, "alice", 0, 5)
	r.wantSettle("after the caller changed the batch", receipt, charge(p, "alice", 0), weir.Settled{Refunded: 5})
	r.wantSettled(res, weir.Settled{Refunded: 5}, 0)
}

func endedGivesBack(r *rig) {
	p := r.policy("p", perHour(5))
	ctx, cancel := context.WithCancel(background())
	res, err := weir.Reserve(ctx, r.limiter, 0, charge(p, "k", 5))
	if err != nil {
		r.t.Fatalf("reserve: error %v", err)
	}
	cancel()
	if out, err := res.Cancel(ctx); err != nil || total(out) != (weir.Settled{Refunded: 5}) {
		r.t.Errorf("cancel after its context ended: got %+v, error %v, want 5 refunded", out, err)
	}
}

// wantHeld checks whether a refusal says that reservations are open.
func (r *rig) wantHeld(when string, d weir.Decision, reason weir.Reason, want bool) {
	r.t.Helper()
	if d.Reason != reason || d.Held != want {
		r.t.Errorf("%s: got %s, want reason %v, Held %v", when, show(d), reason, want)
	}
}

// Held is true exactly for a refusal that is not too costly while an unexpired
// reservation is open for the key.
func heldRefusals(r *rig) {
	for _, p := range r.everyAlgorithm() {
		r.take(p, "other", 5)
		r.wantHeld("nothing was ever held, under "+describe(p), r.take(p, "other", 1), weir.Exhausted, false)

		short, long := r.hold(seconds(1), charge(p, "k", 1)), r.hold(seconds(2), charge(p, "k", 1))
		r.wantHeld("admitted, under "+describe(p), r.take(p, "k", 3), weir.Admitted, false)
		r.wantHeld("too costly, under "+describe(p), r.take(p, "k", 6), weir.TooCostly, false)
		r.wantHeld("two are held, under "+describe(p), r.take(p, "k", 1), weir.Exhausted, true)
		r.wantHeld("two are held, under "+describe(p), r.peek(p, "k", 1), weir.Exhausted, true)
		r.wantHeld("two are held, under "+describe(p), r.do(weir.TakeAll, charge(p, "k", 1)).Decisions[0], weir.Exhausted, true)
		r.wantHeld("two are held, under "+describe(p), r.do(weir.ReserveAll, charge(p, "k", 1)).Decisions[0], weir.Exhausted, true)
		r.wantHeld("others' are held, under "+describe(p), r.take(p, "other", 1), weir.Exhausted, false)
		r.wantHeld("two are held, decided under other limits of "+describe(p), r.take(r.with(p, p.Limits()...), "k", 1), weir.Exhausted, true)

		r.wantSettled(long, weir.Settled{}, 1)
		r.wantHeld("one is held, under "+describe(p), r.take(p, "k", 1), weir.Exhausted, true)
		r.wantSettled(short, weir.Settled{}, 1)
		r.wantHeld("all are settled, under "+describe(p), r.take(p, "k", 1), weir.Exhausted, false)
	}
	// The expiry ends a reservation, whether somebody noticed or not.
	p := r.policy("expires", perHour(5))
	r.hold(minutes(1), charge(p, "k", 5))
	r.clock.Pass(minutes(1) - r.res())
	r.wantHeld("just before the expiry", r.peek(p, "k", 1), weir.Exhausted, true)
	r.clock.Pass(r.res())
	r.wantHeld("at the expiry", r.peek(p, "k", 1), weir.Exhausted, false)
	r.wantHeld("at the expiry", r.take(p, "k", 1), weir.Exhausted, false)

	s := r.policy("slots", slots(2))
	r.hold(minutes(1), charge(s, "k", 2))
	r.wantHeld("no slot is free", r.do(weir.ReserveAll, charge(s, "k", 1)).Decisions[0], weir.Exhausted, true)
	r.wantHeld("no slot is free", r.peek(s, "k", 1), weir.Exhausted, true)
	r.wantHeld("more than all slots", r.peek(s, "k", 3), weir.TooCostly, false)

	// In a refused batch, those that would have fitted are not refused themselves.
	q := r.policy("q", perHour(5))
	r.hold(minutes(1), charge(q, "k", 1))
	b := r.do(weir.TakeAll, charge(q, "k", 4), charge(p, "k", 5))
	r.wantHeld("fits, but for another", b.Decisions[0], weir.NotCharged, false)
	r.wantHeld("refused", b.Decisions[1], weir.Exhausted, false)
}
