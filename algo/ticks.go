package algo

import "math/bits"

// ticks is a clock that counts in parts of a unit instead of nanoseconds.
//
// A rate such as 7 per minute has no whole number of nanoseconds per unit, and
// rounding it would let the limit drift. So time is measured in ticks, chosen
// per limit such that one unit is a whole number of them:
//
//	tick(n) = ⌊n × num / den⌋, n nanoseconds since Epoch, in 128 bits
//
// Where rate/per reduces to one or two units per so many nanoseconds, a tick is
// a nanosecond or half of one and nothing is rounded at all. Otherwise one unit
// is 2^k ticks with the largest k for which maxSpan fits 63 bits; that is
// always more than one tick per nanosecond, so that rounding a tick down
// never costs or grants more than a nanosecond's worth.
//
// Example: 3 per second gives num/den = 3 × 2^29 / 10^9, about 1.61 ticks per
// nanosecond and 2^29 ticks per unit. Between any t and t + 1 s lie exactly
// 3 × 2^29 ticks, because the numerator then grows by a multiple of den.
type ticks struct {
	unit        uint64 // ticks in one unit
	num, den    uint64
	whole, part uint64 // num/den = whole + part/2^64, rounded down
	end         uint64 // Horizon's tick: no instant has a greater one
	plain       uint64 // up to this tick, ticks are nanoseconds: end or 0
	easy        uint64 // nanoseconds since Epoch below which tick(n) = n × num: all or none
	perUnit     divisor
}

const (
	// maxFill is the longest time that an empty limit may take to fill, debt
	// included; with it every tick from Epoch to Horizon stays below 2^63.
	maxFill = MaxPer
	maxSpan = uint64(Horizon-Epoch) + uint64(maxFill)
)

// newTicks returns the clock for rate units per per nanoseconds, or false if
// there are more than two units per nanosecond.
func newTicks(rate, per int64) (ticks, bool) {
	g := gcd(uint64(rate), uint64(per))
	a, b := uint64(rate)/g, uint64(per)/g
	if !spanFits(a, b) {
		return ticks{}, false
	}
	t := ticks{unit: b, num: a, den: 1, easy: uint64(Horizon-Epoch) + 1}
	if a > 2 {
		k := 0
		for spanFits(a<<(k+1), b) {
			k++
		}
		t = ticks{unit: 1 << k, num: a << k, den: b}
	}
	t.whole = t.num / t.den
	t.part, _ = bits.Div64(t.num%t.den, 0, t.den)
	t.perUnit = newDivisor(t.unit)
	if t.end = t.Tick(Horizon); t.num == 1 && t.den == 1 {
		t.plain = t.end
	}
	return t, true
}

// spanFits says whether maxSpan nanoseconds at num/den ticks each fit 63 bits.
func spanFits(num, den uint64) bool {
	hi, lo := bits.Mul64(num, maxSpan)
	capHi, capLo := bits.Mul64(den, 1<<63-1)
	return hi < capHi || hi == capHi && lo <= capLo
}

// Tick returns the tick of an instant.
func (t *ticks) Tick(now int64) uint64 {
	if n := uint64(now - Epoch); n < t.easy {
		return n * t.num
	}
	return t.tickAny(now)
}

// tickAny is Tick without its short cut, apart so that that is inlined.
//
// n × (whole + part/2^64) falls short of n × num/den by less than n/2^64 < 1,
// so the rounded estimate is right or one too small; the remainder tells.
//
//go:noinline
func (t *ticks) tickAny(now int64) uint64 {
	n := sinceEpoch(now)
	hi, _ := bits.Mul64(n, t.part)
	q := n*t.whole + hi
	if n*t.num-q*t.den >= t.den {
		q++
	}
	return q
}

// First returns the first instant whose tick is at least tick, or Never if that lies
// beyond Horizon, where time stands still.
func (t *ticks) First(tick uint64) int64 {
	if tick <= t.plain {
		return Epoch + int64(tick)
	}
	return t.firstAny(tick)
}

// firstAny is First without its short cut: ⌈tick × den / num⌉.
//
//go:noinline
func (t *ticks) firstAny(tick uint64) int64 {
	if tick > t.end {
		return Never
	}
	hi, lo := bits.Mul64(tick, t.den)
	lo, carry := bits.Add64(lo, t.num-1, 0)
	n, _ := bits.Div64(hi+carry, lo, t.num) // at most Horizon − Epoch
	return Epoch + int64(n)
}

// Wait returns how many nanoseconds after now the first instant is whose tick is
// at least tick, or -1 if there is none. It needs now's own tick, from, which must not
// be greater.
func (t *ticks) Wait(tick, from uint64, now int64) int64 {
	if tick <= t.plain {
		return int64(tick - from)
	}
	return t.waitAny(tick, now)
}

// waitAny is Wait without its short cut.
//
//go:noinline
func (t *ticks) waitAny(tick uint64, now int64) int64 {
	at := t.firstAny(tick)
	if at == Never {
		return -1
	}
	return max(0, at-now)
}

// same says whether two clocks count the same ticks.
func (t *ticks) same(o *ticks) bool {
	return t.unit == o.unit && t.num == o.num && t.den == o.den
}

// divisor divides by a fixed number with one multiplication.
//
// For a divisor d in (2^(l-1), 2^l] let mul = ⌊2^(63+l)/d⌋ + 1. Then
// mul × d exceeds 2^(63+l) by at most d ≤ 2^l, and for every x < 2^63 the
// product x × mul / 2^(63+l) exceeds x/d by less than 1/d, too little to reach
// the next whole number: ⌊x/d⌋ = ⌊x × mul / 2^64⌋ >> (l-1). (Granlund and
// Montgomery, Division by Invariant Integers using Multiplication, 1994.)
type divisor struct {
	mul   uint64 // 0: divide by one
	shift uint8
}

func newDivisor(d uint64) divisor {
	if d == 1 {
		return divisor{}
	}
	l := bits.Len64(d - 1)
	q, _ := bits.Div64(1<<(l-1), 0, d)
	return divisor{mul: q + 1, shift: uint8(l - 1)}
}

// quo returns ⌊x/d⌋ for x below 2^63.
func (d divisor) quo(x uint64) uint64 {
	if d.mul == 0 {
		return x
	}
	hi, _ := bits.Mul64(x, d.mul)
	return hi >> (d.shift & 63)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mulSat returns a × b, or the greatest uint64 if that does not fit.
func mulSat(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return 1<<64 - 1
	}
	return lo
}

// addCap returns min(a + b, limit) without overflow, for a ≤ limit.
func addCap(a, b, limit uint64) uint64 {
	if b > limit-a {
		return limit
	}
	return a + b
}
