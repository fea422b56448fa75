package algo

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// drawRate chooses a rate and a period of any size that NewGCRA may be given.
func drawRate(t *rapid.T) (rate, per int64) {
	per = drawMagnitude(t, "per", maxFill)
	rate = drawMagnitude(t, "rate", MaxRate)
	if big.NewRat(rate, per).Cmp(big.NewRat(2, 1)) > 0 {
		rate = rapid.Int64Range(1, min(2*per, MaxRate)).Draw(t, "smaller rate")
	}
	return rate, per
}

// drawMagnitude draws from 1 to most, small and large numbers alike, and often
// a power of two or a neighbour of one.
func drawMagnitude(t *rapid.T, label string, most int64) int64 {
	bits := rapid.IntRange(0, 62).Draw(t, label+" bits")
	n := int64(1) << bits
	if rapid.Bool().Draw(t, label+" random") {
		n = rapid.Int64Range(n/2, n).Draw(t, label)
	} else {
		n += rapid.Int64Range(-1, 1).Draw(t, label+" off")
	}
	return min(max(n, 1), most)
}

func drawInstant(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.Int64Range(Epoch, Horizon),
		rapid.SampledFrom([]int64{Epoch, Epoch + 1, start, Horizon - 1, Horizon}),
		rapid.Int64Range(Epoch, Epoch+1000),
	).Draw(t, "now")
}

func TestTicksAgainstBigInt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate, per := drawRate(t)
		tk, ok := newTicks(rate, per)
		if !ok {
			t.Fatalf("%d per %d ns refused", rate, per)
		}
		c, now := clockOf(rate, per), drawInstant(t)
		if want := c.unit; new(big.Int).SetUint64(tk.unit).Cmp(want) != 0 {
			t.Fatalf("%d per %d: %d ticks a unit, want %v", rate, per, tk.unit, want)
		}
		got := tk.Tick(now)
		if want := c.at(now); new(big.Int).SetUint64(got).Cmp(want) != 0 {
			t.Fatalf("%d per %d: tick(%d) = %d, want %v", rate, per, now, got, want)
		}
		if got >= 1<<63 {
			t.Fatalf("tick %d", got)
		}
		checkInverse(t, &tk, got)
		checkInverse(t, &tk, got+rapid.Uint64Range(0, 5).Draw(t, "later"))
		if got > 0 {
			checkInverse(t, &tk, got-1)
		}
	})
}

// checkInverse asks whether first(tick) has that tick and the instant before has
// not.
func checkInverse(t *rapid.T, tk *ticks, tick uint64) {
	n := tk.First(tick)
	if n > Horizon {
		return // where at stands still
	}
	if at := tk.Tick(n); at < tick {
		t.Fatalf("%+v: first(%d) = %d, whose tick is %d", tk, tick, n, at)
	}
	if n > Epoch && tk.Tick(n-1) >= tick {
		t.Fatalf("%+v: first(%d) = %d, but the instant before has tick %d", tk, tick, n, tk.Tick(n-1))
	}
}

func TestTicksClamp(t *testing.T) {
	tk, _ := newTicks(3, second)
	for _, c := range []struct{ now, same int64 }{
		{math.MinInt64, Epoch},
		{-1, Epoch},
		{0, Epoch},
		{Epoch - 1, Epoch},
		{Horizon + 1, Horizon},
		{math.MaxInt64, Horizon},
	} {
		if got, want := tk.Tick(c.now), tk.Tick(c.same); got != want {
			t.Errorf("tick(%d) = %d, want %d", c.now, got, want)
		}
	}
	for _, huge := range []uint64{1 << 62, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		for _, r := range rates {
			tk, _ := newTicks(r[0], r[1])
			n := tk.First(huge)
			if want := huge <= tk.Tick(Horizon); n < Epoch || (n != Never) != want {
				t.Errorf("%v: first(%d) = %d", r, huge, n)
			}
		}
	}
}

// TestTicksWholePeriods: between any t and t + per lie exactly rate units.
func TestTicksWholePeriods(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate, per := drawRate(t)
		tk, _ := newTicks(rate, per)
		now := rapid.Int64Range(Epoch, Horizon-per).Draw(t, "now")
		got := new(big.Int).SetUint64(tk.Tick(now+per) - tk.Tick(now))
		if want := new(big.Int).Mul(big.NewInt(rate), new(big.Int).SetUint64(tk.unit)); got.Cmp(want) != 0 {
			t.Fatalf("%d per %d: %v ticks in a period, want %v", rate, per, got, want)
		}
	})
}

func TestTicksSpan(t *testing.T) {
	for _, c := range []struct {
		rate, per int64
		fits      bool
	}{
		{2, 1, true},
		{3, 1, false},
		{2_086_000_000, second, true},
		{2_088_000_000, second, false}, // 2^63 / 140 years is 2.0876 per ns
		{MaxRate, 1, false},
		{1, maxFill, true},
		{MaxRate, maxFill, true},
	} {
		if _, ok := newTicks(c.rate, c.per); ok != c.fits {
			t.Errorf("%d per %d ns: %v", c.rate, c.per, ok)
		}
	}
}

func TestDivisor(t *testing.T) {
	t.Parallel()
	check := func(t rapid.TB, d, x uint64) {
		t.Helper()
		if got := newDivisor(d).quo(x); got != x/d {
			t.Fatalf("%d / %d = %d, want %d", x, d, got, x/d)
		}
	}
	t.Run("edges", func(t *testing.T) {
		var edges []uint64
		for b := range 63 {
			edges = append(edges, 1<<b-1, 1<<b, 1<<b+1)
		}
		edges = append(edges, 1<<63-1, 1<<63-2, 999_983, 1e9, 6e10)
		for _, d := range edges {
			if d == 0 {
				continue
			}
			for _, x := range edges {
				check(t, d, x)
				top := (1<<63 - 1) / d * d // the last multiple and its neighbours
				check(t, d, top)
				check(t, d, top-1)
				check(t, d, min(top+1, 1<<63-1))
			}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		d := uint64(drawMagnitude(t, "d", math.MaxInt64))
		x := rapid.Uint64Range(0, 1<<63-1).Draw(t, "x")
		check(t, d, x)
		if m := x / d * d; m > 0 {
			check(t, d, m)
			check(t, d, m-1)
		}
	})
}

func TestSaturation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		most := new(big.Int).SetUint64(math.MaxUint64)
		product := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
		if product.Cmp(most) > 0 {
			product = most
		}
		if got := new(big.Int).SetUint64(mulSat(a, b)); got.Cmp(product) != 0 {
			t.Fatalf("mulSat(%d, %d) = %v, want %v", a, b, got, product)
		}
		limit := rapid.Uint64Range(a, math.MaxUint64).Draw(t, "limit")
		sum := new(big.Int).Add(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
		if l := new(big.Int).SetUint64(limit); sum.Cmp(l) > 0 {
			sum = l
		}
		if got := new(big.Int).SetUint64(addCap(a, b, limit)); got.Cmp(sum) != 0 {
			t.Fatalf("addCap(%d, %d, %d) = %v, want %v", a, b, limit, got, sum)
		}
	})
}
