package storetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

var inputTests = []test{
	{name: "a bad charge is an error and charges nothing", run: badCharges},
	{name: "a bad charge spoils its batch", run: badMembers},
	{name: "a cancelled context charges nothing", run: cancelled},
	{name: "slots cannot be taken", run: slotsTaken},
	{name: "a bad batch is an error", run: badBatches},
	{name: "a bad time to live holds nothing", run: badTTLs},
	{name: "limits that cannot hold what is in use", run: unrepresentable},
	{name: "an error in the middle of a batch charges nothing", run: wholeErrors, need: WholeErrors},
}

type badCharge struct {
	name   string
	charge weir.Charge
	want   kind
}

// bad returns charges of p to the key "k" that no store may accept.
func bad(p *weir.Policy) []badCharge {
	return []badCharge{
		{"negative cost", charge(p, "k", -1), sentinel(weir.ErrInvalid)},
		{"huge cost", charge(p, "k", weir.MaxCost+1), sentinel(weir.ErrInvalid)},
		{"long key", charge(p, strings.Repeat("k", weir.MaxKeyBytes+1), 1), sentinel(weir.ErrInvalid)},
		{"no policy", charge(nil, "k", 1), sentinel(weir.ErrInvalid)},
	}
}

func badCharges(r *rig) {
	p := r.policy("p", perHour(5))
	for _, b := range bad(p) {
		_, err := r.limiter.Take(background(), b.charge.Policy, b.charge.Key, b.charge.Cost)
		r.wantError("take with a "+b.name, err, b.want)
	}
	r.wantLeft("after bad charges", p, "k", 5, 5)
}

// Each operation with a good charge and a bad one behind it.
func badMembers(r *rig) {
	p := r.policy("p", perHour(5))
	r.take(p, "k", 1)
	held := r.do(weir.ReserveAll, charge(p, "k", 1))
	for _, b := range bad(p) {
		for op := weir.TakeEach; op <= weir.DebitEach; op++ {
			err := r.limiter.Do(background(), &weir.Batch{
				Op:       op,
				Charges:  []weir.Charge{charge(p, "k", 0), charge(p, "k", 1), b.charge},
				Receipts: []weir.Receipt{held.Receipts[0], held.Receipts[0], {}},
			})
			what := fmt.Sprintf("%s with a %s as the last of three", opNames[op], b.name)
			r.wantError(what, err, b.want)
			r.wantLeft("after "+what, p, "k", 3, 5)
		}
	}
	r.wantSettle("after bad batches named it", held.Receipts[0], charge(p, "k", 0), weir.Settled{Refunded: 1})
}

func cancelled(r *rig) {
	p := r.policy("p", perHour(5))
	r.take(p, "k", 1)
	held := r.do(weir.ReserveAll, charge(p, "k", 1))
	ctx, cancel := context.WithCancel(background())
	cancel()
	_, err := r.limiter.Take(ctx, p, "k", 1)
	r.wantError("take with a cancelled context", err, sentinel(context.Canceled))
	for op := weir.TakeEach; op <= weir.DebitEach; op++ {
		b := weir.Batch{Op: op, Charges: []weir.Charge{charge(p, "k", 0), charge(p, "k", 1)}, Receipts: []weir.Receipt{held.Receipts[0], {}}}
		r.wantError(opNames[op]+" with a cancelled context", r.limiter.Do(ctx, &b), sentinel(context.Canceled))
		r.wantLeft("after "+opNames[op]+" with a cancelled context", p, "k", 3, 5)
	}
}

func slotsTaken(r *rig) {
	p := r.policy("p", perHour(5))
	for _, held := range []*weir.Policy{r.policy("slots", slots(2)), r.policy("mixed", perHour(5), named("slots", slots(2)))} {
		_, err := r.limiter.Take(background(), held, "k", 1)
		r.wantError("take under "+describe(held), err, sentinel(weir.ErrReserveOnly))
		for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll, weir.DebitEach} {
			b := weir.Batch{Op: op, Charges: []weir.Charge{charge(p, "k", 1), charge(held, "k", 0)}}
			r.wantError(batchText(&b), r.limiter.Do(background(), &b), sentinel(weir.ErrReserveOnly))
		}
		r.wantLeft("after slots were to be taken", p, "k", 5, 5)
		r.wantLeft("after slots were to be taken", held, "k", 2, 2)
	}
}

func badBatches(r *rig) {
	p := r.policy("p", perHour(5))
	held := r.do(weir.ReserveAll, charge(p, "k", 1))
	one, two := held.Receipts, append(held.Receipts[:1:1], weir.Receipt{})
	charges := []weir.Charge{charge(p, "k", 1)}
	cases := []struct {
		name  string
		batch weir.Batch
		want  kind
	}{
		{"an unknown operation", weir.Batch{Op: weir.DebitEach + 1, Charges: charges}, sentinel(weir.ErrInvalid)},
		{"settle without a receipt", weir.Batch{Op: weir.Settle, Charges: charges}, sentinel(weir.ErrInvalid)},
		{"renew without a receipt", weir.Batch{Op: weir.Renew, Charges: charges}, sentinel(weir.ErrInvalid)},
		{"settle with a receipt too many", weir.Batch{Op: weir.Settle, Charges: charges, Receipts: two}, sentinel(weir.ErrInvalid)},
		{"settle with a receipt too few", weir.Batch{Op: weir.Settle, Charges: append(charges, charges...), Receipts: one}, sentinel(weir.ErrInvalid)},
	}
	for _, c := range cases {
		r.wantError(c.name, r.limiter.Do(background(), &c.batch), c.want)
		r.wantLeft("after "+c.name, p, "k", 4, 5)
	}
	r.wantSettle("after bad batches named it", one[0], charge(p, "k", 0), weir.Settled{Refunded: 1})
}

func badTTLs(r *rig) {
	p, held := r.policy("p", perHour(5)), r.policy("held", slots(5))
	rate, slot := charge(p, "k", 1), charge(held, "k", 1)
	open := r.do(weir.ReserveAll, slot, rate)
	cases := []struct {
		ttl     time.Duration
		charges []weir.Charge
	}{
		{-2, []weir.Charge{slot}},
		{-time.Second, []weir.Charge{rate}},
		{compiled.MaxTTL + time.Microsecond, []weir.Charge{slot}},
		{compiled.MaxTTL + time.Microsecond, []weir.Charge{rate}},
		{weir.NoExpiry, []weir.Charge{rate}},
		{weir.NoExpiry, []weir.Charge{slot, rate}}, // the rate must expire
	}
	for _, c := range cases {
		for _, op := range []weir.Op{weir.ReserveAll, weir.Renew} {
			b := weir.Batch{Op: op, TTL: c.ttl, Charges: c.charges, Receipts: append([]weir.Receipt{}, open.Receipts[:len(c.charges)]...)}
			r.wantError(batchText(&b), r.limiter.Do(background(), &b), sentinel(weir.ErrInvalid))
			r.wantLeft("after "+batchText(&b), p, "k", 4, 5)
			r.wantLeft("after "+batchText(&b), held, "k", 4, 5)
		}
	}
	r.clock.Pass(compiled.DefaultTTL)
	r.wantLeft("when what was held for the default time has expired", held, "k", 5, 5)
}

// tight can hold no more than 1 + 1 units.
var tight = weir.Limit{Rate: 1, Per: weir.Every(time.Hour), MaxDebt: 1}

func unrepresentable(r *rig) {
	p := r.policy("p", perHour(10))
	r.take(p, "k", 10)
	tighter := r.with(p, tight)
	_, err := r.limiter.Take(background(), tighter, "k", 1)
	r.wantError(callText("take", charge(tighter, "k", 1))+" with 10 in use", err, anyError)
	for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll, weir.ReserveAll, weir.DebitEach} {
		b := weir.Batch{Op: op, Charges: []weir.Charge{charge(p, "other", 1), charge(tighter, "k", 1)}}
		r.wantError(batchText(&b)+" with 10 in use", r.limiter.Do(background(), &b), anyError)
		r.wantLeft("after "+batchText(&b), p, "other", 10, 10)
		r.wantLeft("after "+batchText(&b), p, "k", 0, 10)
	}
}

func wholeErrors(r *rig) {
	p := r.policy("p", perHour(10))
	for _, op := range []weir.Op{weir.TakeEach, weir.DebitEach} {
		b := weir.Batch{Op: op, Charges: []weir.Charge{charge(p, "k", 10), charge(r.with(p, tight), "k", 1)}}
		r.wantError(batchText(&b), r.limiter.Do(background(), &b), anyError)
		r.wantLeft("after "+batchText(&b), p, "k", 10, 10)
	}
}
