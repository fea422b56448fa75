package pacer

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func newPools(t rapid.TB, size int64, ratio float64) *Pools {
	t.Helper()
	p, err := NewPools(size, ratio)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPoolsExample: the document's example, with the number that it should have
// had in both places.
func TestPoolsExample(t *testing.T) {
	t.Parallel()
	for _, cut := range []int64{500, 50, 10, 1} {
		p := newPools(t, 1000, 1.25)
		p.Refill(3000)
		if !p.Take(1250) || p.Take(1) {
			t.Fatalf("want 1250 tokens: %+v", p.State())
		}
		for range 500 / cut {
			p.Refill(cut)
		}
		want := PoolState{
			Refilled: 3500, Granted: 1250,
			Active: 500, Backfill: Amount{125, 0}, Waiting: Amount{1625, 0},
		}
		if p.State() != want {
			t.Errorf("500 in cuts of %d:\n%+v, want\n%+v", cut, p.State(), want)
		}
	}
}

// TestPoolsEdges: one refill of empty pools of 10, where something happens in the
// middle of it.
func TestPoolsEdges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		ratio  float64
		most   int64
		before []int64 // a refill if positive, a take if negative
		refill int64
		want   PoolState
	}{
		{"part of active", 1.5, 99, nil, 4, PoolState{Active: 4}},
		{"active fills up in the middle", 1.5, 99, nil, 14, PoolState{Active: 10, Backfill: Amount{2, 0}, Waiting: Amount{2, 0}}},
		{"backfill fills up in the middle", 1.5, 99, nil, 30, PoolState{Active: 10, Backfill: Amount{5, 0}, Waiting: Amount{15, 0}}},
		{"waiting is full", 1.5, 3, nil, 30, PoolState{Active: 10, Backfill: Amount{5, 0}, Waiting: Amount{3, 0}, Forfeited: Amount{12, 0}}},
		{"nothing may wait", 1.5, 0, nil, 14, PoolState{Active: 10, Backfill: Amount{2, 0}, Forfeited: Amount{2, 0}}},
		{"ratio 1", 1, 99, nil, 14, PoolState{Active: 10, Waiting: Amount{4, 0}}},
		{"ratio above 2, nothing waits", 3, 99, nil, 14, PoolState{Active: 10, Backfill: Amount{4, 0}}},
		{"ratio above 2, waiting runs empty in the middle", 4, 99, []int64{10 + 30 + 2, -40}, 16, PoolState{Active: 10, Backfill: Amount{8, 0}}},
		{"a fraction", 1.333333, 99, nil, 11, PoolState{Active: 10, Backfill: Amount{0, 333_333}, Waiting: Amount{0, 666_667}}},
		{"nothing", 1.5, 99, nil, 0, PoolState{}},
		{"less than nothing", 1.5, 99, nil, math.MinInt64, PoolState{}},
	} {
		p := newPools(t, 10, test.ratio)
		p.LimitWaiting(test.most)
		for _, n := range test.before {
			p.Refill(n)
			if n < 0 && !p.Take(-n) {
				t.Fatalf("%s: cannot take %d: %+v", test.name, -n, p.State())
			}
		}
		p.Refill(test.refill)
		got := p.State()
		got.Refilled, got.Granted = 0, 0
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestPoolsTake: all or nothing, from the active pool first.
func TestPoolsTake(t *testing.T) {
	t.Parallel()
	p := newPools(t, 10, 1.25)
	p.Refill(20) // 10 active, 2.5 backfill, 7.5 waiting
	for _, test := range []struct {
		n        int64
		want     bool
		active   int64
		backfill Amount
	}{
		{13, false, 10, Amount{2, 500_000}},
		{-1, false, 10, Amount{2, 500_000}},
		{math.MinInt64, false, 10, Amount{2, 500_000}},
		{math.MaxInt64, false, 10, Amount{2, 500_000}},
		{0, true, 10, Amount{2, 500_000}},
		{4, true, 6, Amount{2, 500_000}},
		{7, true, 0, Amount{1, 500_000}},
		{2, false, 0, Amount{1, 500_000}},
		{1, true, 0, Amount{0, 500_000}},
		{1, false, 0, Amount{0, 500_000}},
	} {
		got := p.Take(test.n)
		if s := p.State(); got != test.want || s.Active != test.active || s.Backfill != test.backfill {
			t.Errorf("take %d = %v: %+v, want %+v", test.n, got, s, test)
		}
	}
}

// TestPoolsAtTheEndOfNumbers: nothing wraps, whatever the size.
func TestPoolsAtTheEndOfNumbers(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{1, 1000, math.MaxInt64 / 2, math.MaxInt64} {
		for _, ratio := range []float64{1, 4, 1000} {
			p := newPools(t, size, ratio)
			p.LimitWaiting(7)
			for _, n := range []int64{1, math.MaxInt64 / 3, math.MaxInt64, math.MaxInt64} {
				p.Refill(n)
				conserved(t, p.State())
			}
			if got := p.State().Refilled; got != math.MaxInt64 {
				t.Errorf("size %d, ratio %v: %d refilled", size, ratio, got)
			}
		}
	}
}

func TestLimitWaitingForfeits(t *testing.T) {
	t.Parallel()
	p := newPools(t, 10, 1)
	p.Refill(30)
	p.LimitWaiting(5)
	want := PoolState{Refilled: 30, Active: 10, Waiting: Amount{5, 0}, Forfeited: Amount{15, 0}}
	if p.State() != want {
		t.Errorf("%+v, want %+v", p.State(), want)
	}
	p.LimitWaiting(-1)
	want.Waiting, want.Forfeited = Amount{}, Amount{20, 0}
	if p.State() != want {
		t.Errorf("%+v, want %+v", p.State(), want)
	}
}

func TestNewPoolsRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		size  int64
		ratio float64
		says  string
	}{
		{0, 1.1, "pool size 0"},
		{-5, 1.1, "pool size -5"},
		{10, 0.99999999, "burst ratio 0.99999999"},
		{10, 0.25, "burst ratio 0.25"},
		{10, -1, "burst ratio -1"},
		{10, 1001, "burst ratio 1001"},
		{10, math.NaN(), "burst ratio NaN"},
		{10, math.Inf(1), "burst ratio +Inf"},
		{10, math.Inf(-1), "burst ratio -Inf"},
	} {
		if _, err := NewPools(test.size, test.ratio); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("size %d, ratio %v: %v, want it to say %q", test.size, test.ratio, err, test.says)
		}
	}
}

func TestAmountString(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]Amount{
		"0": {}, "125": {125, 0}, "62.5": {62, 500_000}, "0.000001": {0, 1}, "3.00102": {3, 1020},
	} {
		if got := a.String(); got != want {
			t.Errorf("%d, %d: %s, want %s", a.Tokens, a.Millionths, got, want)
		}
	}
}

// TestPoolsCuts: however refills are cut, and whatever is taken in between, the
// same becomes of them.
func TestPoolsCuts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := drawPools(t, 300)
		cut, ones := *whole, *whole
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "take") {
				n := rapid.Int64Range(0, 2*whole.size).Draw(t, "n")
				got := whole.Take(n)
				if cut.Take(n) != got || ones.Take(n) != got {
					t.Fatalf("take %d does not agree with %v", n, got)
				}
			} else {
				n := rapid.Int64Range(1, 3*whole.size).Draw(t, "refill")
				whole.Refill(n)
				refillInCuts(t, &cut, n)
				for range n {
					ones.Refill(1)
				}
			}
			conserved(t, whole.State())
			if *whole != cut || *whole != ones {
				t.Fatalf("whole %+v\ncut   %+v\nones  %+v", whole.now, cut.now, ones.now)
			}
		}
	})
}

func refillInCuts(t *rapid.T, p *Pools, n int64) {
	for n > 0 {
		part := rapid.Int64Range(1, n).Draw(t, "cut")
		p.Refill(part)
		n -= part
	}
}

// TestPoolsModel: the closed form agrees with the document's rule, applied to
// refills of a small part of a token, in fractions that are exact.
func TestPoolsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPools(t, 20)
		m := newTinyPools(p, rapid.SampledFrom([]int64{1, 3, 8}).Draw(t, "parts"))
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			n := rapid.Int64Range(0, 2*p.size).Draw(t, "n")
			if rapid.Bool().Draw(t, "take") {
				if got, want := p.Take(n), m.take(n); got != want {
					t.Fatalf("take %d = %v, the model says %v", n, got, want)
				}
			} else {
				p.Refill(n)
				m.refill(n)
			}
			m.check(t, p.State())
		}
	})
}

// drawPools returns empty pools of any kind: with a ratio below and above 2, and a
// bound that matters or does not.
func drawPools(t *rapid.T, most int64) *Pools {
	size := rapid.Int64Range(1, most).Draw(t, "size")
	ratio := rapid.OneOf(
		rapid.SampledFrom([]float64{1, 1.1, 1.25, 2, 3}),
		rapid.Float64Range(1, 5),
		rapid.Float64Range(1, 1000),
	).Draw(t, "ratio")
	p := newPools(t, size, ratio)
	if rapid.Bool().Draw(t, "bounded") {
		p.LimitWaiting(rapid.Int64Range(0, 3*size).Draw(t, "most"))
	}
	return p
}

// conserved fails unless every token is in one place.
func conserved(t rapid.TB, s PoolState) {
	t.Helper()
	sum := new(big.Int)
	for _, a := range []Amount{{s.Granted, 0}, {s.Active, 0}, s.Backfill, s.Waiting, s.Forfeited} {
		if a.Tokens < 0 || a.Millionths < 0 || a.Millionths >= million {
			t.Fatalf("%+v in %+v", a, s)
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(a.Tokens), big.NewInt(million)))
		sum.Add(sum, big.NewInt(a.Millionths))
	}
	if want := new(big.Int).Mul(big.NewInt(s.Refilled), big.NewInt(million)); sum.Cmp(want) != 0 {
		t.Fatalf("%v millionths of %v are left: %+v", sum, want, s)
	}
}

// tinyPools does what the document says, a part of a token at a time.
type tinyPools struct {
	parts int64    // to the token
	part  *big.Rat // how much is refilled at a time

	size, k, reserve, most                   *big.Rat
	active, backfill, waiting, granted, lost *big.Rat
}

func newTinyPools(p *Pools, parts int64) *tinyPools {
	m := &tinyPools{
		part: big.NewRat(1, parts), parts: parts,
		size: big.NewRat(p.size, 1), k: big.NewRat(p.k, million), most: amountRat(p.most),
		active: new(big.Rat), backfill: new(big.Rat), waiting: new(big.Rat), granted: new(big.Rat), lost: new(big.Rat),
	}
	m.reserve = new(big.Rat).Mul(m.size, m.k)
	return m
}

func (m *tinyPools) refill(n int64) {
	for range n * m.parts {
		if m.active.Cmp(m.size) < 0 {
			m.active.Add(m.active, m.part)
		} else {
			m.waiting.Add(m.waiting, m.part)
		}
		proRata := new(big.Rat).Mul(new(big.Rat).Quo(m.part, m.size), m.reserve)
		room := new(big.Rat).Sub(m.reserve, m.backfill)
		m.shift(m.waiting, m.backfill, slices.MinFunc([]*big.Rat{room, proRata, m.waiting}, (*big.Rat).Cmp))
		if over := new(big.Rat).Sub(m.waiting, m.most); over.Sign() > 0 {
			m.shift(m.waiting, m.lost, over)
		}
	}
}

// shift moves n, which may be from itself.
func (m *tinyPools) shift(from, to, n *big.Rat) {
	n = new(big.Rat).Set(n)
	from.Sub(from, n)
	to.Add(to, n)
}

func (m *tinyPools) take(n int64) bool {
	want := big.NewRat(n, 1)
	if new(big.Rat).Add(m.active, m.backfill).Cmp(want) < 0 {
		return false
	}
	active := slices.MinFunc([]*big.Rat{m.active, want}, (*big.Rat).Cmp)
	rest := new(big.Rat).Sub(want, active)
	m.shift(m.active, m.granted, active)
	m.shift(m.backfill, m.granted, rest)
	return true
}

func (m *tinyPools) check(t rapid.TB, s PoolState) {
	t.Helper()
	same := m.active.Cmp(big.NewRat(s.Active, 1)) == 0 &&
		m.granted.Cmp(big.NewRat(s.Granted, 1)) == 0 &&
		m.backfill.Cmp(amountRat(s.Backfill)) == 0 &&
		m.waiting.Cmp(amountRat(s.Waiting)) == 0 &&
		m.lost.Cmp(amountRat(s.Forfeited)) == 0
	if !same {
		t.Fatalf("%+v, the model has active %v, backfill %v, waiting %v, forfeited %v",
			s, m.active, m.backfill, m.waiting, m.lost)
	}
}

func amountRat(a Amount) *big.Rat {
	r := big.NewRat(a.Millionths, million)
	return r.Add(r, big.NewRat(a.Tokens, 1))
}
