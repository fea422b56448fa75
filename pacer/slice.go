package pacer

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

// A slice is the time of one unit, 1/rate, in nanoseconds: whole + part/2^64. Its
// multiples are the schedule. Nothing is accumulated, so nothing is lost: the
// slice is rounded up by less than 2^-64 ns, and a multiple by less than 1 ns,
// for up to 2^63 units. A slice of whole nanoseconds would be a tenth too short
// at 300 million per second.
type slice struct{ whole, part uint64 }

// sliceOf returns the slice of a rate, which is taken for the shortest decimal
// that reads as that number: 0.1 is a tenth. Divided by ratio.
func sliceOf(rate, ratio float64) slice {
	r := new(big.Rat).Mul(decimal(rate), decimal(ratio))
	r.Quo(big.NewRat(1e9, 1), r)
	fixed := new(big.Int).Lsh(r.Num(), 64)
	fixed.Add(fixed, new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	fixed.Quo(fixed, r.Denom())
	return slice{whole: new(big.Int).Rsh(fixed, 64).Uint64(), part: fixed.Uint64()}
}

func decimal(f float64) *big.Rat {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok {
		panic("pacer: not a number") // Validate has seen to it
	}
	return r
}

// never is later than everything, and leaves room for sums.
const never = math.MaxInt64 / 4

// times returns how long n units take, at most never.
func (s slice) times(n int64) int64 {
	if n < 0 {
		return -s.times(-max(n, -math.MaxInt64))
	}
	over, ns := bits.Mul64(s.whole, uint64(n))
	part, _ := bits.Mul64(s.part, uint64(n))
	if ns += part; over != 0 || ns > never {
		return never
	}
	return int64(ns)
}

// units returns how many units a time is.
func (s slice) units(ns int64) float64 { return float64(ns) / s.float() }

func (s slice) float() float64 { return float64(s.whole) + float64(s.part)/(1<<64) }
