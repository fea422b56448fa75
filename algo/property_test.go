package algo

import (
	"errors"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// reached drives a pair into some state, without changes of rules.
func reached(t *rapid.T, kinds ...ruleKind) (*pair, *rapidSource) {
	src := fromRapid(t, 30)
	specs := make([]ruleSpec, between(src, 1, 3))
	for i := range specs {
		specs[i] = drawSpec(src, kinds...)
	}
	p := newPair(t, specs)
	p.take(1)
	for src.more() {
		p.step(src, false)
	}
	return p, src
}

var allKinds = []ruleKind{kindGCRA, kindGCRA, kindFixed, kindAnchored, kindSliding, kindLog, kindSlots}

// TestRetryIsExact: a charge after exactly RetryAfter is admitted, a nanosecond
// less is not; with holds, and with several rules.
func TestRetryIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, allKinds...)
		now := max(p.now, p.model.last)
		for range 3 {
			cost := drawCost(src, 12)
			v := p.real.Peek(now, cost)
			if v.OK || v.RetryAt == Never || v.RetryAt > Horizon {
				continue
			}
			if early := p.real.Clone().Take(v.RetryAt-1, cost); early.OK {
				p.fail("cost %d: admitted a nanosecond early: %+v", cost, v)
			}
			if early := p.real.Peek(v.RetryAt-1, cost); early.OK || early.RetryAt != v.RetryAt {
				p.fail("cost %d: %+v, then a nanosecond early %+v", cost, v, early)
			}
			if late := p.real.Clone().Take(v.RetryAt, cost); !late.OK {
				p.fail("cost %d: %+v, refused there: %+v", cost, v, late)
			}
			p.take(cost) // refused: must not matter
			if late := p.real.Clone().Take(v.RetryAt, cost); !late.OK {
				p.fail("cost %d: %+v, refused there after a refusal: %+v", cost, v, late)
			}
		}
	})
}

// TestPeeksChangeNothing: a thousand peeks, also of a later time, are as none.
func TestPeeksChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, allKinds...)
		before := p.real.Clone()
		for i := range int64(1_000) {
			p.real.Peek(p.now+i*p.specs[0].length()%year, i%7)
			p.real.Unused(p.now + i)
		}
		p.unchanged(before)
		for range 5 {
			p.step(src, false)
		}
	})
}

// TestSetSameChangesNothing: setting the rules that are in force, a hundred
// times, grants nothing and takes nothing.
func TestSetSameChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, allKinds...)
		before := p.real.Clone()
		p.set(p.specs)
		from := []int{0, 1, 2}[:len(p.specs)]
		for range 99 {
			if err := p.real.Set(p.now, p.build(p.specs), from); err != nil {
				p.fail("%v", err)
			}
		}
		p.unchanged(before)
		for range 5 {
			p.step(src, false)
		}
	})
}

// TestSetBackAndForth: going to and fro between two rates grants nothing, and
// costs at most a tick a time.
func TestSetBackAndForth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := fromRapid(t, 20)
		a, b := drawSpec(src, kindGCRA), drawSpec(src, kindGCRA)
		b.debt, a.debt = 0, 0
		p := newPair(t, []ruleSpec{a})
		for src.more() {
			p.step(src, false)
		}
		p.take(1)
		if p.avoid(b) {
			t.Skip("the holds do not fit")
		}
		g := p.real.rules[0].(*GCRA)
		before, tick := g.effective(p.real.states[0].A, &p.real.holds, p.real.last)
		room := p.real.Peek(p.now, 1).Remaining
		to, fro := p.build([]ruleSpec{b}), p.build([]ruleSpec{a})
		for range 100 {
			if p.real.Set(p.now, to, []int{0}) != nil || p.real.Set(p.now, fro, []int{0}) != nil {
				t.Skip("the used units do not fit")
			}
		}
		after, _ := g.effective(p.real.states[0].A, &p.real.holds, p.real.last)
		o := must(t, b).(*GCRA)
		perSet := g.unit/o.unit + 2 // b's rounding and a's own
		if after < before && before > tick || after > before+100*perSet {
			p.fail("used was %d, is %d of %d", before-tick, after-tick, g.unit)
		}
		if now := p.real.Peek(p.now, 1).Remaining; now > room {
			p.fail("%d remained, now %d", room, now)
		}
	})
}

// TestSetKeepsUsed: another rate, burst or algorithm, the same used units.
func TestSetKeepsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		from, to ruleSpec
		used     int64
		want     int64 // remaining
	}{
		"a higher rate":           {gcraSpec(10, second, 10), gcraSpec(20, second, 10), 7, 3},
		"a lower rate":            {gcraSpec(10, second, 10), gcraSpec(1, hour, 10), 7, 3},
		"a higher burst":          {gcraSpec(10, second, 10), gcraSpec(10, second, 20), 7, 13},
		"a lower burst blocks":    {gcraSpec(10, second, 10), gcraSpec(10, second, 5), 7, 0},
		"another period":          {fixedSpec(10, second), fixedSpec(10, hour), 7, 3},
		"a higher window limit":   {fixedSpec(10, minute), fixedSpec(12, minute), 7, 5},
		"a lower window limit":    {fixedSpec(10, minute), fixedSpec(5, minute), 7, 0},
		"a window for a rate":     {gcraSpec(10, second, 10), fixedSpec(10, minute), 7, 3},
		"a rate for a window":     {fixedSpec(10, minute), gcraSpec(10, second, 10), 7, 3},
		"a log for a rate":        {gcraSpec(10, second, 10), ruleSpec{kind: kindLog, rate: 10, per: second}, 7, 3},
		"a log for a window":      {fixedSpec(10, minute), ruleSpec{kind: kindLog, rate: 10, per: second}, 7, 3},
		"anchored for a window":   {fixedSpec(10, minute), ruleSpec{kind: kindAnchored, rate: 10, per: second}, 7, 3},
		"an estimate for a log":   {ruleSpec{kind: kindLog, rate: 10, per: second}, slidingSpec(10, minute), 7, 3},
		"a log for an estimate":   {slidingSpec(10, minute), ruleSpec{kind: kindLog, rate: 5, per: second}, 7, 0},
		"a window for an anchor":  {ruleSpec{kind: kindAnchored, rate: 10, per: second}, fixedSpec(10, day), 7, 3},
		"a month for a minute":    {fixedSpec(10, minute), ruleSpec{kind: kindFixed, rate: 10, cal: calendars[1]}, 7, 3},
		"a shorter anchored time": {ruleSpec{kind: kindAnchored, rate: 10, per: minute}, ruleSpec{kind: kindAnchored, rate: 10, per: second}, 7, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, []ruleSpec{c.from})
			p.take(c.used)
			p.set([]ruleSpec{c.to})
			if got := p.real.Peek(p.now, 1).Remaining; got != c.want {
				t.Errorf("%d remaining, want %d", got, c.want)
			}
			p.peekAll()
			p.set([]ruleSpec{c.from})
			p.peekAll()
			if got, want := p.real.Peek(p.now, 1).Remaining, c.from.model().capacity()-c.used; got != want {
				t.Errorf("%d remaining after setting it back, want %d", got, want)
			}
		})
	}
}

// TestSetRefused: what cannot be represented is an error, and nothing changes.
func TestSetRefused(t *testing.T) {
	small := gcraSpec(10, second, 2)
	small.debt = 3
	for name, c := range map[string]struct {
		from, to ruleSpec
		used     int64
	}{
		"beyond the debt":          {gcraSpec(10, second, 10), small, 6},
		"beyond the debt, ticks":   {gcraSpec(10, second, 10), func() ruleSpec { s := small; s.rate = 3; return s }(), 6},
		"a window into small debt": {fixedSpec(10, second), small, 6},
		"a count that is too long": {ruleSpec{kind: kindAnchored, rate: 5_000, per: second}, fixedSpec(1, 1), 2},
		"an estimate likewise":     {ruleSpec{kind: kindAnchored, rate: 5_000, per: second}, slidingSpec(1, 1), 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger([]Rule{must(t, c.from)}, start)
			if !l.Take(start, c.used).OK {
				t.Fatal("refused")
			}
			before := l.Peek(start, 1)
			err := l.Set(start, []Rule{must(t, c.to)}, []int{0})
			var bad *ParamError
			if !errors.As(err, &bad) || bad.Field != "used" || bad.Value != c.used {
				t.Fatalf("error %#v", err)
			}
			if after := l.Peek(start, 1); after != before || l.Rules()[0].Capacity() != c.from.model().capacity() {
				t.Errorf("was %+v, is %+v", before, after)
			}
		})
	}
}

// TestSetFresh: a rule that continues none starts unused; one that goes is
// forgotten; the others keep their state wherever they move to.
func TestSetFresh(t *testing.T) {
	g, f := must(t, gcraSpec(1, second, 10)), must(t, fixedSpec(10, day))
	l := NewLedger([]Rule{g, f}, start)
	l.Take(start, 7)
	s := must(t, ruleSpec{kind: kindLog, rate: 9, per: second})
	if err := l.Set(start+5*second, []Rule{f, s, g}, []int{1, -1, 0}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{3, 9, 8} {
		if got := l.report(i, start+5*second).Remaining; got != want {
			t.Errorf("rule %d: %d remaining, want %d", i, got, want)
		}
	}
}

// TestRefundIsExact: reserve h and commit u at the same instant is take u.
func TestRefundIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, kindGCRA, kindFixed, kindAnchored, kindSliding, kindLog, kindSlots)
		now := max(p.now, p.model.last)
		h := between(src, 1, 12)
		u := src.upTo(h)
		held, taken := p.real.Clone(), p.real.Clone()
		id, v := held.Reserve(now, h, now+pick(src, 1, second, Never-now))
		if !v.OK {
			return
		}
		if !taken.Take(now, u).OK {
			p.fail("reserve %d was admitted, take %d not", h, u)
		}
		got := held.Settle(now, id, u)
		if got.Overrun != 0 || got.Late || got.Refunded > h-u {
			p.fail("settlement %+v of %d of %d", got, u, h)
		}
		for _, later := range []int64{0, 1, p.specs[0].length(), hour} {
			for _, cost := range []int64{1, 2, 7} {
				if a, b := held.Peek(now+later, cost), taken.Peek(now+later, cost); a != b {
					p.fail("reserve %d, commit %d: %+v\ntake %d: %+v", h, u, a, u, b)
				}
			}
		}
	})
}

// TestCommitNeverLeavesMoreRoom: a later commit never leaves more room than a
// charge of what was used would have, at the beginning.
func TestCommitNeverLeavesMoreRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, kindGCRA, kindFixed, kindAnchored, kindSliding, kindLog)
		now := max(p.now, p.model.last)
		h := between(src, 1, 12)
		u := src.upTo(h)
		held, taken := p.real.Clone(), p.real.Clone()
		id, v := held.Reserve(now, h, Never)
		if !v.OK {
			return
		}
		taken.Take(now, u)
		later := now + src.upTo(3*p.specs[0].length())
		held.Settle(later, id, u)
		for i := range p.specs {
			if s := p.specs[i]; u == 0 && s.kind == kindAnchored {
				continue // the window that never opened
			}
			if a, b := held.report(i, later).Remaining, taken.report(i, later).Remaining; a > b {
				p.fail("rule %d: reserve %d, commit %d leaves %d, take %d leaves %d", i, h, u, a, u, b)
			}
		}
	})
}

// TestSettleOnce: a hold is settled once; after that the same outcome is returned until
// the expiry, then it is late. Nothing changes.
func TestSettleOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, allKinds...)
		now := max(p.now, p.model.last)
		id, v := p.real.Reserve(now, 1, now+second)
		if !v.OK {
			return
		}
		want := Settlement{Late: true}
		if oneIn(src, 2) {
			want = p.real.Settle(now, id, src.upTo(2))
			now += second - 1
		} else {
			now += second
		}
		p.real.Take(now, 0)
		before := p.real.Clone()
		if got := p.real.Settle(now, id, 0); got != want {
			p.fail("settled again: %+v, want %+v", got, want)
		}
		if p.real.Renew(now, id, now+hour) {
			p.fail("renewed after its end")
		}
		p.model.advance(now)
		p.unchanged(before)
	})
}

// TestRenewIntoThePast: what was held until now cannot have been over before.
func TestRenewIntoThePast(t *testing.T) {
	l := NewLedger([]Rule{must(t, gcraSpec(1, second, 10))}, start)
	id, _ := l.Reserve(start, 10, start+100*second)
	now := start + 50*second
	if !l.Renew(now, id, start+second) {
		t.Fatal("not renewed")
	}
	if v := l.Take(now, 1); v.OK {
		t.Errorf("10 units held until now, and room beside them: %+v", v)
	}
	if v := l.Peek(now, 1); v.RetryAt != now+second {
		t.Errorf("%+v, want a retry after 1 s", v)
	}
}

// TestHoldsFull: with as many holds as there may be, Reserve is refused until the
// first expires, and Take is not.
func TestHoldsFull(t *testing.T) {
	l := NewLedger([]Rule{must(t, gcraSpec(1, second, 20_000)), must(t, fixedSpec(30_000, day))}, start)
	l.charge(start, MaxHolds-1)
	for i := range int64(MaxHolds - 1) { // not through Reserve, which reports each time
		l.holds.add(Hold{ID: uint64(i + 10), Units: 1, Expiry: start + minute + i, charged: start})
	}
	if _, v := l.Reserve(start, 1, start+hour); !v.OK {
		t.Fatalf("the last hold refused: %+v", v)
	}
	before := l.Peek(start, 1)
	_, v := l.Reserve(start, 1, start+hour)
	if v.OK || v.RetryAt != start+minute || v.Remaining != 10_000 || v.TooCostly {
		t.Errorf("one too many: %+v", v)
	}
	if l.Peek(start, 1) != before {
		t.Error("the refusal changed something")
	}
	if !l.Take(start, 1).OK {
		t.Error("take refused")
	}
	if _, v := l.Reserve(v.RetryAt, 1, start+2*hour); !v.OK {
		t.Errorf("refused when the first had expired: %+v", v)
	}
}

// TestClockBack: a ledger that is given an earlier now acts at the latest.
func TestClockBack(t *testing.T) {
	for _, s := range []ruleSpec{
		gcraSpec(1, second, 3), gcraSpec(100_000_000, second, 3), fixedSpec(3, minute), slidingSpec(3, minute),
		{kind: kindAnchored, rate: 3, per: minute},
		{kind: kindLog, rate: 3, per: minute},
	} {
		l := NewLedger([]Rule{must(t, s)}, start)
		l.Take(start, 3)
		retry := l.Peek(start, 1).RetryAt
		for _, back := range []int64{1, second, hour, year, start} {
			v := l.Take(start-back, 1)
			if v.OK || v.RetryAt != retry {
				t.Errorf("%+v: %d ns back: %+v, want a retry at %d", s, back, v, retry)
			}
		}
		if !l.Take(retry, 1).OK {
			t.Errorf("%+v: refused when time had gone on", s)
		}
		if l.Take(retry-hour, 3).OK {
			t.Errorf("%+v: going back gave a grant", s)
		}
	}
}

// TestUnused: a ledger is unused when it equals a new one.
func TestUnused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, _ := reached(t, allKinds...)
		now := max(p.now, p.model.last)
		if !p.real.Unused(now) {
			return
		}
		fresh := NewLedger(p.real.Rules(), start)
		for _, later := range []int64{0, 1, p.specs[0].length()} {
			if a, b := p.real.Clone().Take(now+later, 1), fresh.Clone().Take(now+later, 1); a != b {
				p.fail("unused, yet %+v; a new one: %+v", a, b)
			}
		}
	})
}

// TestSetBound: across changes of the rate and the burst, any interval has at most
// the largest burst and what the rates of that time give.
func TestSetBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := fromRapid(t, 60)
		spec := drawSpec(src, kindGCRA)
		spec.debt = 0
		l, now := NewLedger([]Rule{must(t, spec)}, start), start
		var grants []grant
		changes := []rateChange{{start, spec}}
		for src.more() {
			now += max(0, drawStep(src, spec.length()))
			if oneIn(src, 5) {
				next := drawSpec(src, kindGCRA)
				next.debt = 0
				if l.Set(now, []Rule{must(t, next)}, []int{0}) == nil {
					spec = next
					changes = append(changes, rateChange{now, spec})
				}
			}
			if cost := drawCost(src, spec.burst); l.Take(now, cost).OK && cost > 0 {
				grants = append(grants, grant{now, now, cost})
			}
		}
		checkChangingBound(t, grants, changes)
	})
}

// rateChange is a rule and since when it was in force.
type rateChange struct {
	at   int64
	spec ruleSpec
}

func checkChangingBound(t rapid.TB, grants []grant, changes []rateChange) {
	t.Helper()
	for i, a := range grants {
		sum := int64(0)
		for _, b := range grants[i:] {
			sum += b.units
			if most := mostBetween(changes, a.from, b.from); new(big.Rat).SetInt64(sum).Cmp(most) > 0 {
				t.Fatalf("%d units from %d to %d, at most %v fit: %v %v", sum, a.from, b.from, most, changes, grants)
			}
		}
	}
}

// mostBetween returns the largest burst in [a, b] and the integral of the rates,
// with a nanosecond for each of them.
func mostBetween(changes []rateChange, a, b int64) *big.Rat {
	burst, sum := int64(0), new(big.Rat)
	for i, c := range changes {
		from, to := max(a, c.at), b
		if i+1 < len(changes) {
			to = min(b, changes[i+1].at)
		}
		if from > to {
			continue
		}
		burst = max(burst, c.spec.burst)
		part := new(big.Rat).SetFrac64(c.spec.rate, c.spec.per)
		sum.Add(sum, part.Mul(part, new(big.Rat).SetInt64(to-from+1)))
	}
	return sum.Add(sum, new(big.Rat).SetInt64(burst))
}

// TestSetMovesHolds: two hours after 4 units were reserved the rule changes, then 3
// are taken and the hold is cancelled. What still counted is given back, what no
// longer did is not given back twice.
func TestSetMovesHolds(t *testing.T) {
	log := func(per int64) ruleSpec { return ruleSpec{kind: kindLog, rate: 10, per: per} }
	anchored := func(per int64) ruleSpec { return ruleSpec{kind: kindAnchored, rate: 10, per: per} }
	rate := gcraSpec(1, second, 10)
	for name, c := range map[string]struct {
		from, to ruleSpec
		back     int64 // refunded
	}{
		"rate to window":              {rate, fixedSpec(10, minute), 4},
		"rate to estimate":            {rate, slidingSpec(10, minute), 4},
		"rate to anchored":            {rate, anchored(minute), 4},
		"rate to log":                 {rate, log(minute), 4},
		"rate to rate":                {rate, gcraSpec(7, minute, 10), 4},
		"day to window":               {fixedSpec(10, day), fixedSpec(10, minute), 4},
		"day to log":                  {fixedSpec(10, day), log(second), 4},
		"day to another day":          {fixedSpec(10, day), ruleSpec{kind: kindFixed, rate: 10, cal: calendars[0]}, 4},
		"long log to window":          {log(day), fixedSpec(10, minute), 4},
		"long log to a higher rate":   {log(day), ruleSpec{kind: kindLog, rate: 12, per: day}, 4},
		"long anchored to log":        {anchored(day), log(minute), 4},
		"a past window to a day":      {fixedSpec(10, minute), fixedSpec(10, day), 0},
		"a past window to a log":      {fixedSpec(10, minute), log(day), 0},
		"a past log to a window":      {log(minute), fixedSpec(10, day), 0},
		"a past anchor to an anchor":  {anchored(minute), anchored(day), 0},
		"a past estimate to a window": {slidingSpec(10, minute), fixedSpec(10, day), 0},
		"slots to a window":           {ruleSpec{kind: kindSlots, rate: 10}, fixedSpec(10, day), 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, []ruleSpec{c.from})
			p.reserve(4, Never)
			p.now += 2 * hour
			p.set([]ruleSpec{c.to})
			p.take(3)
			p.peekAll()
			if got := p.real.Clone().Settle(p.now, 1, 0).Refunded; got != c.back {
				t.Errorf("%d given back, want %d", got, c.back)
			}
			p.settle(0, 0)
			p.peekAll()
			if got, want := p.real.Peek(p.now, 1).Remaining, c.to.model().capacity()-3; got != want {
				t.Errorf("%d remaining, want %d", got, want)
			}
		})
	}
}

// TestOutcomesAreBounded: of many settled holds the latest are remembered, until their
// expiry, and then all memory goes.
func TestOutcomesAreBounded(t *testing.T) {
	l := NewLedger([]Rule{must(t, gcraSpec(1_000_000, second, 1_000_000))}, start)
	const n = MaxOutcomes + 10
	for i := range int64(n) {
		id, _ := l.Reserve(start, 10, start+minute+i)
		l.Settle(start, id, i%10)
	}
	check := func(now, first int64) {
		t.Helper()
		for i := range int64(n) {
			want := Settlement{Refunded: 10 - i%10}
			if i < first {
				want = Settlement{Late: true}
			}
			if got := l.Settle(now, uint64(i+1), 5); got != want {
				t.Fatalf("hold %d, %d ns after the first expiry: %+v, want %+v", i+1, now-start-minute, got, want)
			}
		}
	}
	check(start, 10)
	restored := &Ledger{}
	if err := restored.ReadBinary(l.rules, l.AppendBinary(nil)); err != nil || restored.Remembered() != MaxOutcomes {
		t.Fatalf("%v, %d remembered", err, restored.Remembered())
	}
	l = restored
	check(start+minute+99, 100)
	l.Advance(start + minute + n - 1)
	if l.Remembered() != 0 || l.past.list != nil {
		t.Errorf("%d remembered after the last expiry", l.Remembered())
	}
	// Those that are over make room before the memory grows.
	now := start + hour
	for range 100 * MaxOutcomes {
		id, _ := l.Reserve(now, 1, now+10)
		l.Settle(now, id, 0)
		now++
	}
	if c := cap(l.past.list); c > 32 {
		t.Errorf("room for %d outcomes of which 10 count", c)
	}
	// Without an expiry they are remembered for an hour.
	id, _ := l.Reserve(now, 2, Never)
	l.Settle(now, id, 0)
	if out := l.Settle(now+hour-1, id, 1); out != (Settlement{Refunded: 2}) {
		t.Errorf("settled again within the hour: %+v", out)
	}
	if out := l.Settle(now+hour, id, 1); !out.Late {
		t.Errorf("settled again after an hour: %+v", out)
	}
}
