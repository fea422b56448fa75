package algo

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// lendingModel is SEMANTICS 9 in fractions of any size: levels of units, moved from one expiry to
// the next. It knows nothing of parts, of slopes, or of when something is retried.
type lendingModel struct {
	rate, burst *big.Rat // per nanosecond
	debt        *big.Rat
	shares      []Share
	rates       []*big.Rat
	at          int64
	all         *big.Rat
	of          []*big.Rat
	holds       []modelHold // in order of expiry
	lendAt      int64       // nobody borrows before
}

type modelHold struct {
	id            uint64
	class         int
	units, expiry int64
}

func newLendingModel(rate, per, burst int64, l *Lending, shares []Share, now int64) *lendingModel {
	m := &lendingModel{rate: big.NewRat(rate, per), burst: units(burst), debt: units(l.Debt()), shares: shares, at: now, all: units(burst)}
	for _, s := range shares {
		m.rates = append(m.rates, big.NewRat(s.Rate, per))
		m.of = append(m.of, units(s.Burst))
	}
	return m
}

func units(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func (m *lendingModel) clone() *lendingModel {
	c := *m
	c.all = new(big.Rat).Set(m.all)
	c.of = nil
	for _, l := range m.of {
		c.of = append(c.of, new(big.Rat).Set(l))
	}
	c.holds = slices.Clone(m.holds)
	return &c
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func most(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

func (m *lendingModel) held(class int) (sum int64) {
	for _, h := range m.holds {
		if class < 0 || h.class == class {
			sum += h.units
		}
	}
	return sum
}

// flow refills until an instant, with the holds as they are.
func (m *lendingModel) flow(until int64) {
	dt := units(max(0, until-m.at))
	m.at = max(m.at, until)
	full := func(level, rate, cap *big.Rat) *big.Rat {
		next := new(big.Rat).Mul(rate, dt)
		return least(next.Add(next, level), cap)
	}
	m.all = full(m.all, m.rate, new(big.Rat).Sub(m.burst, units(m.held(-1))))
	for i, s := range m.shares {
		m.of[i] = full(m.of[i], m.rates[i], units(max(0, s.Burst-m.held(i))))
	}
}

// advance goes from expiry to expiry.
func (m *lendingModel) advance(now int64) {
	for len(m.holds) > 0 && m.holds[0].expiry <= now {
		m.flow(m.holds[0].expiry)
		m.holds = m.holds[1:]
	}
	m.flow(now)
}

// balance returns what is in the whole beyond the levels.
func (m *lendingModel) balance() *big.Rat {
	sum := new(big.Rat).Set(m.all)
	for _, l := range m.of {
		sum.Sub(sum, l)
	}
	return sum
}

func (m *lendingModel) owed() *big.Rat {
	sum := new(big.Rat)
	for _, l := range m.of {
		sum.Sub(sum, least(units(0), l))
	}
	return sum
}

// surplus returns what is left of the balance when all debts are paid from it.
func (m *lendingModel) surplus() *big.Rat { return new(big.Rat).Sub(m.balance(), m.owed()) }

// available: a class that owes has what is left after all debts, its own included. The others have
// their levels, with what is left after all debts or, if that is nothing, less what nobody can pay.
func (m *lendingModel) available(i int) *big.Rat {
	left, ofAll := m.surplus(), least(m.balance(), units(0))
	switch {
	case m.shares[i].NoBorrow || m.at < m.lendAt:
		return ofAll.Add(ofAll, m.of[i])
	case m.of[i].Sign() < 0:
		return left
	}
	left = most(left, ofAll)
	return left.Add(left, m.of[i])
}

func (m *lendingModel) fits(i int, cost int64, hold bool) bool {
	var beyond, spare int64
	for j, s := range m.shares {
		h := m.held(j)
		if j == i {
			h += cost
		}
		beyond += max(0, h-s.Burst)
		spare -= s.Burst
	}
	b, _ := m.burst.Float64()
	spare += int64(b)
	c := m.shares[i].Burst + spare
	if m.shares[i].NoBorrow {
		c = m.shares[i].Burst
	}
	return cost <= c && units(cost).Cmp(m.available(i)) <= 0 && (!hold || beyond <= spare)
}

func (m *lendingModel) take(i int, cost int64) {
	c := units(cost)
	own := least(c, most(units(0), m.of[i]))
	lent := least(new(big.Rat).Sub(c, own), most(units(0), m.surplus()))
	if m.shares[i].NoBorrow {
		lent = units(0)
	}
	for j := range m.of {
		if lent.Sign() > 0 && !m.shares[j].NoBorrow {
			m.of[j] = most(units(0), m.of[j]) // there is more than all of them owe
		}
	}
	floor := new(big.Rat).Neg(m.debt)
	if m.shares[i].Rate > 0 {
		owed := most(floor, new(big.Rat).Sub(m.of[i], new(big.Rat).Sub(c, lent)))
		c = new(big.Rat).Add(lent, new(big.Rat).Sub(m.of[i], owed))
		m.of[i] = owed
	}
	m.all = most(floor, new(big.Rat).Sub(m.all, c))
}

func (m *lendingModel) hold(id uint64, i int, cost, expiry int64) {
	k := 0
	for k < len(m.holds) && m.holds[k].expiry <= expiry {
		k++
	}
	m.holds = slices.Insert(m.holds, k, modelHold{id, i, cost, expiry})
}

func (m *lendingModel) settle(id uint64, used int64) {
	k := slices.IndexFunc(m.holds, func(h modelHold) bool { return h.id == id })
	if k < 0 {
		return
	}
	h := m.holds[k]
	m.holds = slices.Delete(m.holds, k, k+1)
	back := max(0, h.units-used)
	m.all.Add(m.all, units(back))
	m.of[h.class] = least(new(big.Rat).Add(m.of[h.class], units(back)), units(max(0, m.shares[h.class].Burst-m.held(h.class))))
	if used > h.units {
		m.take(h.class, used-h.units)
	}
}

func floorRat(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64()
}

// lendingPair drives a ledger and the model together.
type lendingPair struct {
	t      *rapid.T
	ledger *Ledger
	model  *lendingModel
	now    int64
	ids    []uint64
	debits bool
}

func newLendingPair(t *rapid.T) *lendingPair {
	rate := rapid.SampledFrom([]int64{1, 3, 7, 10, 500}).Draw(t, "rate")
	per := rapid.SampledFrom([]int64{1000, 1_000_000_000, 7_000_000_000, 60_000_000_000}).Draw(t, "per")
	burst := rapid.SampledFrom([]int64{1, 5, 12, 500}).Draw(t, "burst")
	shares := drawShares(fromRapid(t, 1), rate, burst)
	debt := rapid.SampledFrom([]int64{0, 0, 3, 200}).Draw(t, "debt")
	l, err := NewLending(rate, per, burst, debt, 0, shares)
	if err != nil {
		t.Fatal(err)
	}
	start := Epoch + year
	return &lendingPair{
		t: t, ledger: NewLedger([]Rule{l}, start), now: start,
		model: newLendingModel(rate, per, burst, l, shares, start),
	}
}

func (p *lendingPair) class() int { return rapid.IntRange(0, len(p.model.shares)-1).Draw(p.t, "class") }

// check compares a verdict with the model, which is at now and has not been charged yet.
func (p *lendingPair) check(v Verdict, i int, cost int64, hold bool) {
	if want := p.model.fits(i, cost, hold) || cost == 0; v.OK != want {
		p.t.Fatalf("class %d, cost %d, hold %v at %d: OK = %v, the model says %v (available %v)", i, cost, hold, p.now, v.OK, want, p.model.available(i))
	}
	if v.OK {
		return
	}
	if v.RetryAt == Never {
		m := p.model.clone()
		if m.advance(p.now + 100*year/3); m.fits(i, cost, hold) {
			p.t.Fatalf("class %d, cost %d: never, but the model admits it later", i, cost)
		}
		return
	}
	if v.RetryAt <= p.now {
		p.t.Fatalf("retry at %d, which is not after %d", v.RetryAt, p.now)
	}
	before, at := p.model.clone(), p.model.clone()
	before.advance(v.RetryAt - 1)
	at.advance(v.RetryAt)
	if before.fits(i, cost, hold) || !at.fits(i, cost, hold) {
		p.t.Fatalf("class %d, cost %d, hold %v at %d: retry at +%d: fits before %v, then %v", i, cost, hold, p.now, v.RetryAt-p.now, before.fits(i, cost, hold), at.fits(i, cost, hold))
	}
}

func (p *lendingPair) checkLevels(i int) {
	p.ledger.SetClass(p.model.shares[i].Class)
	v := p.ledger.Peek(p.now, 0)
	capacity := p.ledger.rules[0].(*Lending).capacityOf(i)
	if want := min(max(0, floorRat(p.model.available(i))), capacity); v.Remaining != want || v.Limit != capacity {
		p.t.Fatalf("class %d at %d: remaining %d of %d, the model says %d of %d", i, p.now, v.Remaining, v.Limit, want, capacity)
	}
	if !p.debits && p.model.balance().Sign() < 0 {
		p.t.Fatalf("the surplus is negative: %v", p.model.surplus())
	}
}

func (p *lendingPair) step() {
	m, l, i := p.model, p.ledger, p.class()
	p.now += rapid.SampledFrom([]int64{0, 0, 1, 17, 1000, 250_000_000, 1_000_000_000, 61_000_000_000}).Draw(p.t, "later")
	m.advance(p.now)
	l.SetClass(m.shares[i].Class)
	cost := rapid.Int64Range(0, floorRat(m.burst)+1).Draw(p.t, "cost")
	switch rapid.IntRange(0, 10).Draw(p.t, "op") {
	case 0, 1, 2, 3:
		v := l.Take(p.now, cost)
		p.check(v, i, cost, false)
		if v.OK {
			m.take(i, cost)
		}
	case 4, 5:
		p.reserve(i, cost)
	case 6, 7:
		p.settle(rapid.Int64Range(0, floorRat(m.burst)).Draw(p.t, "used"))
	case 8:
		p.check(l.Peek(p.now, cost), i, cost, false)
	case 9:
		if p.debits {
			l.Debit(p.now, cost)
			m.take(i, cost)
		}
	case 10:
		p.recall(i, cost)
	}
	p.checkLevels(i)
}

// recall does what Ledger.Recall does if another rule has room at an instant.
func (p *lendingPair) recall(i int, cost int64) {
	m, until := p.model, p.now+rapid.SampledFrom([]int64{1, 300_000_000, 2_000_000_000, 3600_000_000_000}).Draw(p.t, "until")
	p.ledger.advance(p.now)
	did := p.ledger.rules[0].(*Lending).recall(&p.ledger.states[0], &p.ledger.holds, p.now, cost, until)
	until = min(until+recallGrace, p.now+maxRecall)
	if want := units(cost).Cmp(m.of[i]) <= 0 && until > m.lendAt; did != want {
		p.t.Fatalf("class %d, cost %d: recalled: %v, the model says %v", i, cost, did, want)
	} else if want {
		m.lendAt = until
	}
}

func (p *lendingPair) reserve(i int, cost int64) {
	expiry := p.now + rapid.SampledFrom([]int64{1, 1000, 400_000_000, 5_000_000_000}).Draw(p.t, "ttl")
	id, v := p.ledger.Reserve(p.now, cost, expiry)
	p.check(v, i, cost, true)
	if v.OK {
		p.model.take(i, cost)
		p.model.hold(id, i, cost, expiry)
		p.ids = append(p.ids, id)
	}
}

func (p *lendingPair) settle(used int64) {
	if len(p.ids) == 0 {
		return
	}
	id := p.ids[0]
	p.ids = p.ids[1:]
	if !p.debits {
		if h, ok := p.ledger.holds.find(id); ok {
			used = min(used, h.Units)
		}
	}
	p.ledger.Settle(p.now, id, used)
	p.model.settle(id, used)
}

func TestLendingEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newLendingPair(t)
		p.debits = rapid.Bool().Draw(t, "debits")
		for range 60 {
			p.step()
		}
		reread := &Ledger{}
		if err := reread.ReadBinary(p.ledger.rules, p.ledger.AppendBinary(nil)); err != nil {
			t.Fatal(err)
		}
		p.ledger = reread
		for range 20 {
			p.step()
		}
	})
}

// saturate lets classes take what a call of each costs, in turn, as soon as each is admitted, and returns what
// each got.
func saturate(l *Ledger, start, until int64, cost map[string]int64) map[string]int64 {
	got := map[string]int64{}
	for now := start; now < until; {
		next := until
		for _, c := range slices.Sorted(maps.Keys(cost)) {
			l.SetClass(c)
			for {
				v := l.Take(now, cost[c])
				if !v.OK {
					next = min(next, v.RetryAt)
					break
				}
				got[c] += cost[c]
			}
		}
		now = next
	}
	return got
}

func sixtyForty(t *testing.T) *Ledger { return sixtyFortyOf(t, 500) }

// sixtyFortyOf is 500 per second, shared 60 to 40, with a burst.
func sixtyFortyOf(t *testing.T, burst int64) *Ledger {
	t.Helper()
	shares := []Share{{Class: "realtime", Rate: 300, Burst: burst * 3 / 5}, {Class: "backfill", Rate: 200, Burst: burst * 2 / 5}}
	l, err := NewLending(500, 1_000_000_000, burst, 0, 0, shares)
	if err != nil {
		t.Fatal(err)
	}
	return NewLedger([]Rule{l}, Epoch)
}

func TestLendingShares(t *testing.T) {
	const second, during = 1_000_000_000, 600 // so long that a call of 500 is little
	start := Epoch + year
	for _, tt := range []struct{ realtime, backfill, burst int64 }{
		{1, 1, 500}, {10, 10, 500}, {1, 200, 500}, {300, 1, 500}, {26, 500, 1250}, {750, 26, 1250},
	} {
		name := fmt.Sprintf("calls of %d and %d", tt.realtime, tt.backfill)
		most, calls := tt.burst+during*500, tt.realtime+tt.backfill
		t.Run("saturated, "+name, func(t *testing.T) {
			got := saturate(sixtyFortyOf(t, tt.burst), start, start+during*second, map[string]int64{"realtime": tt.realtime, "backfill": tt.backfill})
			all := got["realtime"] + got["backfill"]
			t.Logf("%+v", got)
			if share := float64(got["realtime"]) / float64(all); share < 0.588 || share > 0.612 { // the bursts are 60 to 40, too
				t.Errorf("realtime got %.3f of %d, want 0.6 within 2 %%", share, all)
			}
			if all < most-calls || all >= most { // the last call of each may be due after the end
				t.Errorf("%d units were granted in all, want %d less a call of each", all, most)
			}
		})
		t.Run("one idle, "+name, func(t *testing.T) {
			l := sixtyFortyOf(t, tt.burst)
			got := saturate(l, start, start+during*second, map[string]int64{"backfill": tt.backfill})
			t.Logf("%+v", got)
			if after := got["backfill"] - tt.burst*2/5; after < during*500*98/100 || after > during*500 {
				t.Errorf("backfill alone got %d of %d after its burst", after, during*500)
			}
			l.SetClass("realtime")
			if v := l.Take(start+during*second, tt.burst*3/5); !v.OK {
				t.Errorf("realtime returns and is refused its burst: %+v", v)
			}
		})
	}
}

// TestLendingHardPartition is document 001's: reserved 300, shared 200, nothing is lent.
func TestLendingHardPartition(t *testing.T) {
	l, err := NewLending(500, 1_000_000_000, 500, 0, 0, []Share{{"high", 300, 300, true}, {"low", 200, 200, true}})
	if err != nil {
		t.Fatal(err)
	}
	start := Epoch + year
	got := saturate(NewLedger([]Rule{l}, start), start, start+10_000_000_000, map[string]int64{"low": 1})
	if want := int64(200 + 10*200 - 1); got["low"] != want {
		t.Errorf("low got %d in 10 s, want %d", got["low"], want)
	}
	if c := l.CapacityOf("low"); c != 200 {
		t.Errorf("capacity of low = %d", c)
	}
}

func TestLendingOverrunIsItsOwn(t *testing.T) {
	l := sixtyForty(t)
	now := Epoch + year
	l.SetClass("backfill")
	l.Debit(now, 700)
	if v := l.Take(now, 1); v.OK || v.RetryAt != now+1_002_000_000 {
		t.Errorf("after an overrun of 500: %+v, want a retry after 501 units at the whole rate, which realtime lends", v)
	}
	l.SetClass("realtime")
	if v := l.Take(now, 300); !v.OK {
		t.Errorf("realtime pays for backfill's overrun: %+v", v)
	}
}

// TestLendingOverrunIsLentToNobody: while a class owes, the whole may be full again, and nobody gets more
// than the burst. Who borrows then has paid the debt before, once.
func TestLendingOverrunIsLentToNobody(t *testing.T) {
	l, err := NewLending(500, second, 500, 0, 0, []Share{{Class: "a", Rate: 10, Burst: 10}, {Class: "b", Rate: 490, Burst: 490}})
	if err != nil {
		t.Fatal(err)
	}
	g, now := NewLedger([]Rule{l}, Epoch), Epoch+year
	take := func(class string, cost int64) Verdict { g.SetClass(class); return g.Take(now, cost) }
	g.SetClass("a")
	g.Debit(now, 5010)
	if v := take("a", 1); v.OK || v.RetryAt != now+10_002*second/1000 {
		t.Errorf("after the overrun: %+v, want a retry after 5,001 units at the whole rate", v)
	}
	if v := take("b", 490); !v.OK || v.Remaining != 0 {
		t.Errorf("the other class: %+v, want its burst and nothing beyond", v)
	}
	now += 12 * second
	if v := take("b", 490); !v.OK || v.Remaining != 10 {
		t.Errorf("when the whole is full: %+v, want 10 more", v)
	}
	if v := take("b", 10); !v.OK || v.Remaining != 0 {
		t.Errorf("the last of the burst: %+v", v)
	}
	for range 5 {
		if v := take("a", 1); v.OK || v.RetryAt != now+second/10 {
			t.Fatalf("after the debt is paid: %+v, want to wait for one unit at the guaranteed rate", v)
		}
		now += second / 10
		if take("b", 50).OK || !take("b", 49).OK {
			t.Fatal("the other class does not get its guaranteed rate, or more")
		}
		if v := take("a", 1); !v.OK {
			t.Fatalf("after RetryAt: %+v", v)
		}
	}
}

// TestLendingHoldsOfNoClass: what is held under no name, or one that is no class any more, is held by the
// class that it is charged to.
func TestLendingHoldsOfNoClass(t *testing.T) {
	for _, class := range []string{"", "renamed"} {
		l, now := sixtyForty(t), Epoch+year
		l.SetClass(class)
		id, v := l.Reserve(now, 100, now+60*second)
		if !v.OK {
			t.Fatalf("class %q: %+v", class, v)
		}
		now += 10 * second
		if v := l.Peek(now, 0); v.Remaining != 100 {
			t.Errorf("class %q holds 100: %+v, want 100 of backfill's 200", class, v)
		}
		l.SetClass("realtime")
		if id, v := l.Reserve(now, 300, now+second); !v.OK {
			t.Errorf("class %q holds 100, and realtime is refused its burst: %+v", class, v)
		} else {
			l.Settle(now, id, 0)
		}
		l.Settle(now, id, 40)
		l.SetClass("backfill")
		if v := l.Peek(now, 0); v.Remaining != 160 {
			t.Errorf("class %q gave 60 back: %+v, want 160", class, v)
		}
	}
}

func TestLendingRefundsAtOnce(t *testing.T) {
	l, err := NewLending(1000, 3_600_000_000_000, 1000, 0, 0, []Share{{Class: "a", Rate: 1000, Burst: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	g, now := NewLedger([]Rule{l}, Epoch), Epoch+year
	g.SetClass("a")
	id, v := g.Reserve(now, 1000, now+60_000_000_000)
	if !v.OK || v.Remaining != 0 {
		t.Fatalf("reserve 1,000: %+v", v)
	}
	if out := g.Settle(now, id, 137); out.Refunded != 863 {
		t.Fatalf("settled: %+v", out)
	}
	if v := g.Peek(now, 863); !v.OK || v.Remaining != 863 {
		t.Errorf("after the refund: %+v, want 863", v)
	}
}

// A limit that starts partly empty has the same levels in stores that count in microseconds, also if half of what
// a class saves up is no whole number of their parts.
func TestLendingInitial(t *testing.T) {
	l, err := NewLending(4, 142_857_000, 2, 0, FillSteps/2, []Share{{Class: "fast", Rate: 2, Burst: 1}, {Class: "slow", Rate: 1, Burst: 1}})
	if err != nil {
		t.Fatal(err)
	}
	v, m := l.Fresh(Epoch).Levels, l.Micros()
	if m.Parts%2 == 0 {
		t.Fatalf("%d parts can be halved", m.Parts)
	}
	for i, got := range []int64{v.all, v.of[0], v.of[1]} {
		if want := m.Initial[i] * (l.per / m.Parts); got != want {
			t.Errorf("level %d starts at %d of %d parts, want %d", i, got, l.per, want)
		}
	}
}

func TestLendingCostly(t *testing.T) {
	l, now := sixtyForty(t), Epoch+year
	l.SetClass("backfill")
	if v := l.Take(now, 300); v.OK || !v.TooCostly || v.RetryAt != Never || v.Limit != 200 {
		t.Errorf("cost 300 of capacity 200: %+v", v)
	}
	if v := l.Take(now, 0); !v.OK || v.Remaining != 200 {
		t.Errorf("cost 0: %+v", v)
	}
}

func TestNewLendingRefuses(t *testing.T) {
	tests := []struct {
		name        string
		rate, burst int64
		shares      []Share
		field       string
	}{
		{"no class", 10, 10, nil, "classes"},
		{"nine classes", 10, 10, make([]Share, 9), "classes"},
		{"twice", 10, 10, []Share{{Class: "a"}, {Class: "a"}}, "classes"},
		{"rates", 10, 10, []Share{{"a", 6, 1, false}, {"b", 5, 1, false}}, "classes"},
		{"bursts", 10, 10, []Share{{"a", 5, 6, false}, {"b", 5, 5, false}}, "classes"},
		{"negative", 10, 10, []Share{{"a", -1, 0, false}}, "classes.a.guaranteed"},
		{"burst without rate", 10, 10, []Share{{"a", 0, 1, false}}, "classes.a.burst"},
		{"burst above the limit's", 10, 10, []Share{{"a", 1, 11, false}}, "classes.a.burst"},
		{"useless", 10, 10, []Share{{"a", 0, 0, true}}, "classes.a.guaranteed"},
		{"digits", MaxRate, MaxRate, []Share{{"a", 1, 1, false}}, "burst"},
	}
	for _, tt := range tests {
		_, err := NewLending(tt.rate, 1_000_000_007, tt.burst, 0, 0, tt.shares)
		if p, ok := err.(*ParamError); !ok || p.Field != tt.field {
			t.Errorf("%s: %v, want a problem with %s", tt.name, err, tt.field)
		}
	}
}

// TestLendingSet keeps what each class has used.
func TestLendingSet(t *testing.T) {
	l, now := sixtyForty(t), Epoch+year
	l.SetClass("backfill")
	l.Take(now, 150)
	id, _ := l.Reserve(now, 30, now+60_000_000_000)
	doubled, err := NewLending(1000, 1_000_000_000, 1000, 0, 0, []Share{{Class: "new", Rate: 100, Burst: 100}, {Class: "backfill", Rate: 400, Burst: 400}, {Class: "realtime", Rate: 500, Burst: 500}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Set(now, []Rule{doubled}, []int{0}); err != nil {
		t.Fatal(err)
	}
	for class, want := range map[string]int64{"backfill": 220, "realtime": 500, "new": 100} {
		l.SetClass(class)
		if v := l.Peek(now, 0); v.Remaining != want {
			t.Errorf("%s has %d, want %d", class, v.Remaining, want)
		}
	}
	l.Settle(now, id, 0)
	l.SetClass("backfill")
	if v := l.Peek(now, 0); v.Remaining != 250 {
		t.Errorf("after the refund backfill has %d, want 250", v.Remaining)
	}
}

// TestLendingSetRaises: what a class gains by a larger burst is not taken from the levels of the others.
func TestLendingSetRaises(t *testing.T) {
	rule := func(a, b int64) Rule {
		l, err := NewLending(10, second, 10, 0, 0, []Share{{Class: "a", Rate: 2, Burst: a}, {Class: "b", Rate: 2, Burst: b}})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l, now := NewLedger([]Rule{rule(2, 2)}, Epoch), Epoch+year
	l.SetClass("a")
	if v := l.Take(now, 8); !v.OK {
		t.Fatalf("a takes what it has and all that is nobody's: %+v", v)
	}
	if err := l.Set(now, []Rule{rule(8, 2)}, []int{0}); err != nil {
		t.Fatal(err)
	}
	if v := l.Peek(now, 1); v.OK || v.RetryAt != now+second/10 {
		t.Errorf("a: %+v, want to wait for one unit at the whole rate, as b is idle", v)
	}
	l.SetClass("b")
	if v := l.Take(now, 2); !v.OK {
		t.Errorf("b has taken nothing, and is refused its burst: %+v", v)
	}
	now += 10 * second
	if err := l.Set(now, []Rule{rule(8, 2)}, []int{0}); err != nil {
		t.Fatal(err)
	}
	l.SetClass("a")
	if v := l.Peek(now, 8); !v.OK {
		t.Errorf("a, when all has come back: %+v", v)
	}
}

// TestLendingClockBack: levels of a clock that was an hour ahead are those of no more than the time that they take to
// fill, and a recall ends a minute later at most.
func TestLendingClockBack(t *testing.T) {
	l, err := NewLending(1000, second, 1000, 1, 0, []Share{{Class: "a", Rate: 1000, Burst: 999}, {Class: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	now, ahead := Epoch+year, Epoch+year+3600*second
	var s State
	hs := Holds{}
	hs.charging.class = "a"
	l.charge(&s, &hs, ahead, 1000)
	if at := l.retryAt(&s, &hs, now, 1); at <= now || at > now+2*second {
		t.Errorf("an hour before the burst was taken: a retry after %d ms, want one within 2 s", (at-now)/1e6)
	}

	s = State{}
	if !l.recall(&s, &hs, ahead, 100, ahead+second) {
		t.Fatal("nothing is recalled")
	}
	hs.charging.class = "b"
	if at := l.retryAt(&s, &hs, ahead, 1); at != ahead+second+recallGrace {
		t.Errorf("b borrows again after %d ms", (at-ahead)/1e6)
	}
	if at := l.retryAt(&s, &hs, now, 1); at != now+maxRecall {
		t.Errorf("an hour before b borrows again after %d s, want a minute", (at-now)/second)
	}
}

func TestPaced(t *testing.T) {
	const month = 30_000_000
	p, err := NewPaced(month, NewCalendar(Month, nil), 0, []string{"backfill"})
	if err != nil {
		t.Fatal(err)
	}
	april := int64(1_775_001_600_000_000_000) // 2026-04-01, a month of 30 days
	l := NewLedger([]Rule{p}, april)
	backfill := func(now, cost int64) Verdict { l.SetClass("backfill"); return l.Take(now, cost) }
	if v := backfill(april, 1); v.OK || v.RetryAt != april+86_400_000 {
		t.Errorf("at the beginning: %+v, want a retry after 86.4 ms", v)
	}
	if v := backfill(april+3*day, 3*month/30); !v.OK || v.Remaining != 0 {
		t.Errorf("after three days: %+v, want three days' share", v)
	}
	l.SetClass("realtime")
	if v := l.Take(april+3*day, 5*month/30); !v.OK {
		t.Errorf("realtime is paced: %+v", v)
	}
	if v := backfill(april+7*day, 1); v.OK || v.RetryAt != april+8*day+86_400_000 {
		t.Errorf("after seven days: %+v, want a retry on the ninth", v)
	}
	for d := int64(8); d <= 30; d++ {
		end := april + d*day - 1
		v := backfill(end, 0)
		backfill(end, v.Remaining)
		if used := p.used(&l.states[0], &noHolds, end); used > month*d/30 {
			t.Errorf("at the end of day %d %d are used, more than the ramp", d, used)
		}
	}
	if v := backfill(april+30*day-1, month/2); v.OK || v.RetryAt != april+30*day+31*day/2 {
		t.Errorf("at the end of April: %+v, want a retry in the middle of May", v)
	}
}
