package pacer

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestSlice(t *testing.T) {
	for _, c := range []struct {
		rate float64
		n    int64
		want int64
	}{
		{1, 1, 1e9},
		{500_000, 1, 2000},
		{3, 1, 333_333_333},
		{3, 2, 666_666_666},
		{3, 3, 1e9},
		{3, 3_000_000_000, 1e18},
		{300e6, 1, 3},
		{300e6, 300_000_000, 1e9},
		{0.01, 1, 100e9},
		{0.1, 10, 100e9},
		{100e6, 1 << 40, 10 << 40},
		{1e12, 999, 0},
		{1e12, 1000, 1},
		{1e-6, 1, 1e15},
		{1e-6, 1 << 40, never},
		{3, -3, -1e9},
	} {
		if got := sliceOf(c.rate, 1).times(c.n); got != c.want {
			t.Errorf("%d units at %v/s take %d ns, want %d", c.n, c.rate, got, c.want)
		}
	}
}

// Every multiple is the exact one rounded down, or up where the slice's own
// rounding adds up to a whole nanosecond: after 2^40 units at the earliest.
func TestSliceIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		millis := rapid.Int64Range(1, 1e11).Draw(t, "thousandths per second")
		n := rapid.Int64Range(0, 1<<40).Draw(t, "n")
		exact := new(big.Rat).Mul(big.NewRat(1e12, millis), big.NewRat(n, 1))
		down := new(big.Int).Quo(exact.Num(), exact.Denom())
		got := sliceOf(float64(millis)/1000, 1).times(n)
		if down.IsInt64() && down.Int64() < never {
			if got != down.Int64() {
				t.Fatalf("%d, want %v", got, down)
			}
			return
		}
		if got != never {
			t.Fatalf("%d, want never", got)
		}
	})
}
