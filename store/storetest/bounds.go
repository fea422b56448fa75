package storetest

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

var boundTests = []test{
	{name: "reservations are bounded, takes are not", run: holdsBounded, opts: Options{MaxHolds: 3}, need: BoundedHolds},
	{name: "a batch of reservations counts whole", run: holdBatches, opts: Options{MaxHolds: 100}, need: BoundedHolds},
	{name: "renewing moves the place that is freed", run: holdsRenewed, opts: Options{MaxHolds: 1}, need: BoundedHolds},
	{name: "a flood of keys frees none that is refused", run: flood, opts: Options{MaxKeys: 100}, need: BoundedKeys},
	{name: "a batch in a full store keeps its keys", run: batchInFull, opts: Options{MaxKeys: 1}, need: BoundedKeys},
	{name: "a full store and a step back", run: fullAndBack, opts: Options{MaxKeys: 1}, need: BoundedKeys},
}

// queueFull is the decision on a reservation that finds no place until retry.
func queueFull(d weir.Decision, retry time.Duration) weir.Decision {
	d.Allowed, d.Reason, d.RetryAfter = false, weir.QueueFull, retry
	return d
}

func holdsBounded(r *rig) {
	p := r.policy("p", perHour(100))
	var open []*weir.Reservation
	for i := range 3 {
		open = append(open, r.hold(time.Duration(i+1)*time.Second, charge(p, fmt.Sprint(i), 1)))
	}
	one := weir.Batch{TTL: minutes(1), Charges: []weir.Charge{charge(p, "k", 1)}}
	r.wantReserve(one, queueFull(admitted(100, 100, 0), seconds(1)))
	r.wantTake(p, "k", 1, admitted(100, 99, seconds(36)))
	r.wantSettled(open[0], weir.Settled{Refunded: 1}, 0)
	held := admitted(100, 98, minutes(1)+seconds(36))
	r.wantReserve(one, held)
	r.wantReserve(one, queueFull(held, seconds(2)))
	r.clock.Pass(seconds(2)) // the second has expired, and nobody settled it
	r.wantReserve(one, admitted(100, 97, minutes(1)+seconds(72)))
}

func holdBatches(r *rig) {
	p := r.policy("p", perHour(1000))
	batch := func(n int) *weir.Batch {
		b := &weir.Batch{Op: weir.ReserveAll, TTL: time.Second}
		for i := range n {
			b.Charges = append(b.Charges, charge(p, fmt.Sprint(i), 1))
		}
		return r.run(b)
	}
	for _, c := range []struct {
		n  int
		ok bool
	}{{101, false}, {99, true}, {2, false}, {1, true}, {1, false}} {
		if b := batch(c.n); b.Allowed() != c.ok {
			r.t.Errorf("%d more reservations of 100: got %s, want allowed %v", c.n, show(b.Decisions[0]), c.ok)
		}
	}
	if d := batch(1).Decisions[0]; d.Reason != weir.QueueFull || d.RetryAfter != time.Second {
		r.t.Errorf("one more than 100 reservations: got %s, want queue_full for a second", show(d))
	}
	r.clock.Pass(time.Second)
	if b := batch(100); !b.Allowed() {
		r.t.Errorf("100 reservations, when all others have expired: got %s", show(b.Decisions[0]))
	}
}

func holdsRenewed(r *rig) {
	p := r.policy("p", perHour(100))
	res := r.hold(minutes(1), charge(p, "k", 1))
	r.wantRenewed(res, hours(1), true)
	r.clock.Pass(minutes(2))
	other := weir.Batch{Charges: []weir.Charge{charge(p, "other", 1)}}
	r.wantReserve(other, queueFull(admitted(100, 100, 0), minutes(58)))
	r.wantSettled(res, weir.Settled{Refunded: 1}, 0)
	r.wantReserve(other, admitted(100, 99, minutes(1)+seconds(36)))
}

func flood(r *rig) {
	p := r.policy("p", perHour(3))
	r.take(p, "victim", 3)
	for i := range times(1000) {
		r.take(p, fmt.Sprint("bogus", i), 1)
	}
	r.wantRefused("used up, after a flood of other keys", p, "victim", 1)
	peek, take := r.peek(p, "one more", 1), r.take(p, "one more", 1)
	if peek.Allowed != take.Allowed {
		r.t.Errorf("a new key in a full store: peek says %s, take %s", show(peek), show(take))
	}
	r.clock.Pass(hours(1))
	r.wantAllowed("a new key when all others are unused", p, "late", 1)
}

func batchInFull(r *rig) {
	p := r.policy("p", perHour(1))
	r.take(p, "x", 0)
	b := r.do(weir.TakeAll, charge(p, "a", 1), charge(p, "b", 1))
	if !b.Allowed() {
		return // both shared what is left, strictly
	}
	for _, key := range []string{"a", "b"} {
		r.wantRefused("after a batch that took all", p, key, 1)
	}
}

// A key's place may go to another once it is unused. If the clock then steps
// back, it must not have a second go at the window that it had used up.
func fullAndBack(r *rig) {
	p := r.policy("p", using(weir.FixedWindow, perMinute(5)))
	r.take(p, "a", 5)
	r.clock.Pass(minutes(1))
	r.take(p, "b", 0)
	r.clock.Pass(-minutes(1))
	again := r.take(p, "a", 5)
	r.clock.Pass(minutes(1))
	if again.Allowed {
		r.wantRefused("after 5 of 5 in this window, granted while the clock was back", p, "a", 1)
	}
}
