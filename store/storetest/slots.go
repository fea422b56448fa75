package storetest

import (
	"time"

	"github.com/weirlimit/weir"
)

var slotTests = []test{
	{name: "so many at once", run: slotsAtOnce},
	{name: "the expiry frees", run: slotsExpire},
	{name: "without an expiry", run: slotsWithoutExpiry},
	{name: "slots and a rate", run: slotsAndRate},
	{name: "reset and overrun", run: slotsResetAndOverrun},
	{name: "a window in place of slots", run: slotsReplacedByWindow},
}

// wantReserve asks for what may be refused, and returns the receipts.
func (r *rig) wantReserve(b weir.Batch, want ...weir.Decision) []weir.Receipt {
	r.t.Helper()
	b.Op = weir.ReserveAll
	r.wantBatch(r.run(&b), want...)
	return b.Receipts
}

func slotsAtOnce(r *rig) {
	p := r.policy("p", slots(3))
	one := []weir.Charge{charge(p, "k", 1)}
	first := r.wantReserve(weir.Batch{TTL: minutes(1), Charges: one}, admitted(3, 2, minutes(1)))
	r.wantReserve(weir.Batch{TTL: minutes(3), Charges: []weir.Charge{charge(p, "k", 2)}}, admitted(3, 0, minutes(3)))
	r.wantReserve(weir.Batch{Charges: one}, refused(3, 0, minutes(1), minutes(3)))
	r.wantReserve(weir.Batch{Charges: []weir.Charge{charge(p, "k", 2)}}, refused(3, 0, minutes(3), minutes(3)))
	r.wantReserve(weir.Batch{Charges: []weir.Charge{charge(p, "k", 4)}}, tooCostly(3, 0, minutes(3)))
	r.wantPeek(p, "k", 1, refused(3, 0, minutes(1), minutes(3)))
	r.wantReserve(weir.Batch{Charges: []weir.Charge{charge(p, "other", 3)}}, admitted(3, 0, minutes(1)))
	r.wantSettle("a slot is freed", first[0], one[0], weir.Settled{})
	r.wantReserve(weir.Batch{TTL: minutes(2), Charges: one}, admitted(3, 0, minutes(3)))
}

func slotsExpire(r *rig) {
	p := r.policy("p", slots(2))
	res := r.hold(minutes(1), charge(p, "k", 2))
	r.clock.Pass(minutes(1) - r.res())
	r.wantPeek(p, "k", 1, refused(2, 0, r.res(), r.res()))
	r.clock.Pass(r.res())
	r.wantPeek(p, "k", 2, admitted(2, 2, 0))
	r.wantReserve(weir.Batch{Charges: []weir.Charge{charge(p, "k", 2)}}, admitted(2, 0, minutes(1)))
	r.wantSettled(res, weir.Settled{Late: true}) // and frees nobody else's
	r.wantPeek(p, "k", 1, refused(2, 0, minutes(1), minutes(1)))
}

func slotsWithoutExpiry(r *rig) {
	p := r.policy("p", slots(3))
	for _, ending := range []func(*weir.Reservation){
		func(res *weir.Reservation) { r.wantSettled(res, weir.Settled{}) },
		func(res *weir.Reservation) { r.wantSettled(res, weir.Settled{}, 0) },
	} {
		res := r.hold(weir.NoExpiry, charge(p, "k", 2))
		never := refused(3, 1, weir.Never, weir.Never)
		r.wantPeek(p, "k", 2, never)
		r.clock.Pass(hours(100_000))
		r.wantPeek(p, "k", 2, never)
		r.wantReserve(weir.Batch{TTL: minutes(1), Charges: []weir.Charge{charge(p, "k", 1)}}, admitted(3, 0, weir.Never))
		r.wantPeek(p, "k", 1, refused(3, 0, minutes(1), weir.Never))
		r.clock.Pass(minutes(1))
		r.wantPeek(p, "k", 1, admitted(3, 1, weir.Never))
		ending(res)
		r.wantPeek(p, "k", 3, admitted(3, 3, 0))
	}
	b := r.do(weir.ReserveAll, charge(p, "settled", 1))
	b.Op, b.TTL = weir.Renew, weir.NoExpiry
	r.run(b)
	for _, c := range []struct {
		passed time.Duration
		want   weir.Settled
	}{{0, weir.Settled{}}, {hours(1) - r.res(), weir.Settled{}}, {r.res(), weir.Settled{Late: true}}} {
		r.clock.Pass(c.passed)
		r.wantSettle("the outcome is remembered for an hour", b.Receipts[0], charge(p, "settled", 1), c.want)
	}
	res := r.hold(minutes(1), charge(p, "renewed", 3))
	r.wantRenewed(res, weir.NoExpiry, true)
	r.wantPeek(p, "renewed", 1, refused(3, 0, weir.Never, weir.Never))
	r.wantRenewed(res, minutes(5), true)
	r.wantPeek(p, "renewed", 1, refused(3, 0, minutes(5), minutes(5)))
}

func slotsAndRate(r *rig) {
	p := r.policy("p", perHour(10), named("slots", slots(2)))
	first := r.hold(minutes(1), charge(p, "k", 1))
	r.want("reserve 1", first.Decision, by(1, admitted(2, 1, minutes(1))))
	r.hold(minutes(2), charge(p, "k", 1))
	r.wantPeek(p, "k", 1, by(1, refused(2, 0, minutes(1), minutes(2))))
	r.wantSettled(first, weir.Settled{}) // uses the unit and frees the slot
	r.wantPeek(p, "k", 1, by(1, admitted(2, 1, minutes(2))))
	for range 8 {
		r.wantSettled(r.hold(minutes(1), charge(p, "k", 1)), weir.Settled{})
	}
	// 10 of 10 are in use; the last that is held ends in two minutes.
	r.wantPeek(p, "k", 1, refused(10, 0, minutes(6), minutes(60)))
}

func slotsResetAndOverrun(r *rig) {
	p := r.policy("p", slots(5))
	res := r.hold(minutes(1), charge(p, "k", 3))
	r.reset(p, "k")
	r.wantLeft("reset keeps what is held", p, "k", 2, 5)
	r.wantSettled(res, weir.Settled{}, 100) // slots cannot be overrun
	r.wantLeft("all was freed", p, "k", 5, 5)
}

// slotsReplacedByWindow settles a slot when the limit has become a window: it gives back nothing that another reservation
// was charged.
func slotsReplacedByWindow(r *rig) {
	for _, ttl := range []time.Duration{minutes(5), weir.NoExpiry} {
		old := r.policy("p"+ttl.String(), slots(1))
		slot := r.hold(ttl, charge(old, "k", 1))
		window := r.with(old, using(weir.AnchoredWindow, perMinute(1)))
		r.set(old, window)
		r.wantSettled(r.hold(minutes(3), charge(window, "k", 1)), weir.Settled{})
		r.wantSettled(slot, weir.Settled{}, 0)
		r.wantRefused("after the slot was settled", window, "k", 1)
	}
}
