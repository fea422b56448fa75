package storetest

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

var batchTests = []test{
	{name: "TakeAll takes all or nothing", run: allOrNothing},
	{name: "charges to one key add up", run: addUp},
	{name: "a key under two sets of limits", run: mixedLimits},
	{name: "TakeEach takes each on its own", run: eachOnItsOwn},
	{name: "PeekEach and ResetEach", run: peekAndResetEach},
	{name: "many charges", run: manyCharges},
	{name: "no charges", run: noCharges},
	{name: "a batch may be used again", run: batchAgain},
	{name: "one clock reading", run: oneReading},
	{name: "what was used is charged first", run: usedFirst, need: ChargesUsed},
	{name: "what was used is charged also if all is refused", run: usedOfRefused, need: ChargesUsed},
	{name: "what was used with a bad batch is not charged", run: usedOfErrors, need: ChargesUsed},
}

// wantBatch compares the decisions of a batch.
func (r *rig) wantBatch(b *weir.Batch, want ...weir.Decision) {
	r.t.Helper()
	if len(b.Decisions) != len(want) {
		r.t.Fatalf("%s: got %d decisions, want %d", batchText(b), len(b.Decisions), len(want))
	}
	for i := range want {
		r.want(fmt.Sprintf("charge %d of %s", i, batchText(b)), b.Decisions[i], want[i])
	}
}

// fitted is the decision on a charge that would have fitted, of a batch that was
// refused because of another.
func fitted(d weir.Decision) weir.Decision {
	d.Allowed, d.Reason = false, weir.NotCharged
	return d
}

func allOrNothing(r *rig) {
	user, all := r.policy("user", perHour(10)), r.policy("all", perHour(12))
	both := func(u, a int64) []weir.Charge { return []weir.Charge{charge(user, "alice", u), charge(all, "", a)} }

	r.wantBatch(r.do(weir.TakeAll, both(8, 8)...), admitted(10, 2, minutes(48)), admitted(12, 4, minutes(40)))
	r.wantBatch(r.do(weir.TakeAll, both(1, 5)...), fitted(admitted(10, 1, minutes(54))), refused(12, 4, minutes(5), minutes(40)))
	r.wantBatch(r.do(weir.TakeAll, both(3, 1)...), refused(10, 2, minutes(6), minutes(48)), fitted(admitted(12, 3, minutes(45))))
	r.wantBatch(r.do(weir.TakeAll, both(11, 5)...), tooCostly(10, 2, minutes(48)), refused(12, 4, minutes(5), minutes(40)))

	held := r.do(weir.ReserveAll, both(1, 5)...)
	r.wantBatch(held, fitted(admitted(10, 1, minutes(54))), refused(12, 4, minutes(5), minutes(40)))
	for i, receipt := range held.Receipts {
		if receipt != (weir.Receipt{}) {
			r.t.Errorf("charge %d of a refused %s: got a receipt, %+v", i, batchText(held), receipt)
		}
	}
	r.wantLeft("after refusals", user, "alice", 2, 10)
	r.wantLeft("after refusals", all, "", 4, 12)
	r.wantBatch(r.do(weir.TakeAll, both(2, 4)...), admitted(10, 0, minutes(60)), admitted(12, 0, minutes(60)))
}

func addUp(r *rig) {
	p := r.policy("p", perHour(10))
	six := []weir.Charge{charge(p, "k", 6), charge(p, "k", 6)}
	r.wantBatch(r.do(weir.TakeAll, six...), fitted(admitted(10, 4, minutes(36))), refused(10, 4, minutes(12), minutes(36)))
	r.wantBatch(r.do(weir.ReserveAll, charge(p, "k", 10), charge(r.again(p), "k", 1)),
		fitted(admitted(10, 0, minutes(61))), refused(10, 0, minutes(7), minutes(61))) // what is held runs to its expiry
	r.wantLeft("after refusals", p, "k", 10, 10)
	r.wantBatch(r.do(weir.TakeAll, charge(p, "k", 6), charge(p, "other", 1), charge(p, "k", 4)),
		admitted(10, 4, minutes(36)), admitted(10, 9, minutes(6)), admitted(10, 0, minutes(60)))
}

func mixedLimits(r *rig) {
	p := r.policy("p", perHour(1000))
	penalty := r.with(p, perHour(5), named("b", perHour(5)))
	b := r.do(weir.TakeAll, charge(p, "k", 1), charge(penalty, "k", 1), charge(p, "k", 1))
	if !b.Allowed() {
		r.t.Fatalf("%s: got %v, want all admitted", batchText(b), b.Decisions)
	}
	r.wantLeft("after three units under two sets of limits", p, "k", 997, 1000)
	r.wantLeft("after three units under two sets of limits", penalty, "k", 2, 5)
	if n := r.drain(penalty, "k"); n != 2 {
		r.t.Errorf("%s, after 3: got %d units, want 2", describe(penalty), n)
	}
}

func eachOnItsOwn(r *rig) {
	p := r.policy("p", perHour(10))
	b := r.do(weir.TakeEach, charge(p, "k", 6), charge(p, "k", 6), charge(p, "k", 11), charge(p, "other", 1), charge(p, "k", 4), charge(p, "k", 0))
	r.wantBatch(b,
		admitted(10, 4, minutes(36)),
		refused(10, 4, minutes(12), minutes(36)),
		tooCostly(10, 4, minutes(36)),
		admitted(10, 9, minutes(6)),
		admitted(10, 0, minutes(60)), // a refusal does not stop a later charge
		admitted(10, 0, minutes(60)),
	)
	if b.Allowed() {
		r.t.Errorf("%s: Allowed says that all were", batchText(b))
	}
}

func peekAndResetEach(r *rig) {
	p, q := r.policy("p", perHour(10)), r.policy("q", perHour(5))
	r.do(weir.TakeEach, charge(p, "a", 6), charge(p, "b", 7), charge(q, "a", 5))
	for range 2 {
		r.wantBatch(r.do(weir.PeekEach, charge(p, "a", 4), charge(p, "a", 5), charge(q, "a", 1), charge(q, "new", 5)),
			admitted(10, 4, minutes(36)), refused(10, 4, minutes(6), minutes(36)),
			refused(5, 0, minutes(12), minutes(60)), admitted(5, 5, 0))
	}
	r.wantBatch(r.do(weir.ResetEach, charge(p, "a", 3), charge(q, "a", 0), charge(p, "new", 0)), weir.Decision{}, weir.Decision{}, weir.Decision{})
	r.wantLeft("after a reset", p, "a", 10, 10)
	r.wantLeft("after a reset", q, "a", 5, 5)
	r.wantLeft("after a reset of others", p, "b", 3, 10)
}

func manyCharges(r *rig) {
	p := r.policy("p", perHour(10))
	b := &weir.Batch{Op: weir.TakeAll}
	for i := range 200 {
		b.Charges = append(b.Charges, charge(p, fmt.Sprint(i), int64(i%10)))
	}
	r.run(b)
	for i, d := range b.Decisions {
		left := int64(10 - i%10)
		r.want(fmt.Sprintf("charge %d of 200, of %d units", i, i%10), d, admitted(10, left, time.Duration(10-left)*minutes(6)))
	}
	b.Charges[199].Cost = 2 // 9 of 10 are used
	if r.run(b); b.Allowed() {
		r.t.Errorf("the last of 200 charges does not fit: got all admitted")
	}
	r.wantLeft("after a refusal because of charge 199", p, "0", 10, 10)
	r.wantLeft("after a refusal because of charge 199", p, "1", 9, 10)
}

func noCharges(r *rig) {
	for op := weir.TakeEach; op <= weir.DebitEach; op++ {
		b := r.do(op)
		if len(b.Decisions)+len(b.Receipts)+len(b.Settled) != 0 {
			r.t.Errorf("%s of nothing: got %+v", opNames[op], b)
		}
	}
}

// Do sizes and clears what it writes, and leaves the rest alone.
func batchAgain(r *rig) {
	p := r.policy("p", perHour(10))
	b := &weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{charge(p, "a", 1), charge(p, "b", 2)}}
	r.run(b)
	ids := map[[16]byte]bool{{}: true}
	for i, got := range b.Receipts {
		want := weir.Receipt{ID: got.ID, Units: int64(i + 1), Expiry: r.clock.Now().Add(compiled.DefaultTTL)}
		if got != want || ids[got.ID] {
			r.t.Errorf("receipt %d of %s: got %+v, want %+v with an id of its own", i, batchText(b), got, want)
		}
		ids[got.ID] = true
	}
	b.Op, b.Charges[0].Cost, b.Charges[1].Cost = weir.Settle, 0, 0
	r.run(b)
	if b.Decisions[0] != (weir.Decision{}) || b.Settled[0] != (weir.Settled{Refunded: 1}) || b.Settled[1] != (weir.Settled{Refunded: 2}) {
		r.t.Errorf("%s: got %+v", batchText(b), b)
	}
	b.Op, b.Charges = weir.TakeEach, append(b.Charges, charge(p, "c", 3))
	r.wantBatch(r.run(b), admitted(10, 10, 0), admitted(10, 10, 0), admitted(10, 7, minutes(18)))
	if len(b.Settled) != 3 || b.Settled[0] != (weir.Settled{}) || b.Charges[2] != charge(p, "c", 3) {
		r.t.Errorf("%s: got %+v, want nothing settled and the charges as they were", batchText(b), b)
	}
	b.Op, b.Charges = weir.PeekEach, b.Charges[2:]
	r.wantBatch(r.run(b), admitted(10, 7, minutes(18)))
}

// A clock that every reading moves shows how often it is read.
func oneReading(r *rig) {
	p := r.policy("p", perHour(10))
	r.do(weir.TakeEach, charge(p, "a", 5), charge(p, "b", 5))
	r.clock.stride.Store(int64(time.Millisecond))
	defer r.clock.stride.Store(0)
	b := r.do(weir.PeekEach, charge(p, "a", 1), charge(p, "b", 1), charge(p, "a", 1), charge(p, "b", 1))
	for i, d := range b.Decisions {
		if d != b.Decisions[0] {
			r.t.Errorf("charge %d of %s: got %s, but %s for the first, which is as much used", i, batchText(b), show(d), show(b.Decisions[0]))
		}
	}
}

func usedFirst(r *rig) {
	p := r.policy("p", perHour(10))
	take := func(op weir.Op, used []int64, charges ...weir.Charge) *weir.Batch {
		return r.run(&weir.Batch{Op: op, Used: used, Charges: charges})
	}
	// All of it comes before the first charge, and adds up.
	r.wantBatch(take(weir.TakeEach, []int64{2, 3}, charge(p, "k", 5), charge(p, "k", 1)),
		admitted(10, 0, hours(1)), refused(10, 0, minutes(6), hours(1)))
	r.wantBatch(take(weir.TakeAll, []int64{1, 0, 4}, charge(p, "all", 1), charge(p, "other", 1), charge(p, "all", 4)),
		admitted(10, 4, minutes(36)), admitted(10, 9, minutes(6)), admitted(10, 0, hours(1)))
	b := take(weir.ReserveAll, []int64{4}, charge(p, "held", 6))
	r.wantBatch(b, admitted(10, 0, minutes(60)))
	r.wantSettle("4 were used and 6 reserved", b.Receipts[0], charge(p, "held", 0), weir.Settled{Refunded: 6})
	r.wantLeft("4 were used and nothing of the reservation", p, "held", 6, 10)

	// What does not fit is owed, under the limits of the call.
	r.wantBatch(take(weir.TakeEach, []int64{25}, charge(p, "owes", 0)), admitted(10, 0, minutes(150)))
	r.wantBatch(take(weir.TakeEach, []int64{0}, charge(p, "owes", 1)), refused(10, 0, minutes(96), minutes(150)))
	penalty := r.with(p, perHour(5))
	r.wantBatch(take(weir.TakeEach, []int64{3}, charge(penalty, "penalty", 2)), admitted(5, 0, hours(1)))

	// A charge of nothing at the end tells what is left by all limits.
	q := r.policy("q", perHour(10), named("minute", using(weir.FixedWindow, perMinute(8))), named("log", using(weir.SlidingLog, perHour(20))))
	r.wantBatch(take(weir.TakeEach, []int64{2, 1, 0}, charge(q, "k", 1), charge(q, "k", 5), charge(q, "k", 0)),
		by(1, admitted(8, 4, minutes(1))), by(1, refused(8, 4, minutes(1), minutes(1))), by(1, admitted(8, 4, minutes(1))))
	for _, p := range r.everyAlgorithm() {
		b := take(weir.TakeEach, []int64{1, 1, 0}, charge(p, "used", 1), charge(p, "used", 4), charge(p, "used", 0))
		r.wantHeld("1 after 2 under "+describe(p), b.Decisions[0], weir.Admitted, false)
		r.wantHeld("4 after 3 under "+describe(p), b.Decisions[1], weir.Exhausted, false)
		if d := b.Decisions[2]; !d.Allowed || d.Remaining != 2 {
			r.t.Errorf("a charge of nothing after 3 of 5, under %s: got %s, want 2 remaining", describe(p), show(d))
		}
	}
}

func usedOfRefused(r *rig) {
	p := r.policy("p", perHour(10))
	for _, op := range []weir.Op{weir.TakeAll, weir.ReserveAll} {
		key := opNames[op]
		b := r.run(&weir.Batch{Op: op, Used: []int64{2, 3, 4}, Charges: []weir.Charge{charge(p, key, 1), charge(p, key, 5), charge(p, "other "+key, 1)}})
		r.wantBatch(b, fitted(admitted(10, 4, minutes(36))), refused(10, 4, minutes(6), minutes(36)), fitted(admitted(10, 5, minutes(30))))
		r.wantLeft("5 were used and 6 refused", p, key, 5, 10)
		r.wantLeft("4 were used and 1 refused because of another", p, "other "+key, 6, 10)
	}
}

func usedOfErrors(r *rig) {
	p, s := r.policy("p", perHour(10)), r.policy("s", slots(3))
	for _, b := range []weir.Batch{
		{Op: weir.TakeAll, Used: []int64{1, 1}, Charges: []weir.Charge{charge(p, "k", 1), charge(s, "k", 1)}},
		{Op: weir.ReserveAll, Used: []int64{1, 1}, Charges: []weir.Charge{charge(p, "k", 1), charge(s, "k", 1)}},
		{Op: weir.ReserveAll, TTL: -5, Used: []int64{1}, Charges: []weir.Charge{charge(p, "k", 1)}},
		{Op: weir.TakeEach, Used: []int64{1}, Charges: []weir.Charge{charge(p, "k", -1)}},
		{Op: weir.TakeEach, Used: []int64{-1}, Charges: []weir.Charge{charge(p, "k", 1)}},
		{Op: weir.TakeEach, Used: []int64{1, 1}, Charges: []weir.Charge{charge(p, "k", 1)}},
		{Op: weir.DebitEach, Used: []int64{1}, Charges: []weir.Charge{charge(p, "k", 1)}},
	} {
		if err := r.limiter.Do(background(), &b); err == nil {
			r.t.Errorf("%s: got no error", batchText(&b))
		}
	}
	r.wantLeft("after batches that were errors", p, "k", 10, 10)
	r.wantBatch(r.run(&weir.Batch{Op: weir.ReserveAll, Used: []int64{2, 0}, Charges: []weir.Charge{charge(p, "k", 1), charge(s, "k", 1)}}),
		admitted(10, 7, minutes(18)), admitted(3, 2, minutes(1)))
}
