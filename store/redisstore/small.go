package redisstore

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
)

// small is a policy of one GCRA limit called main, as take.lua takes it. What the
// script answers is how far TAT was ahead and how many were admitted; from that,
// everything that a Decision tells follows here.
type small struct {
	a, b  int64 // a units per b µs
	burst pair
	cap   int64
	args  []string // a, b, Bw, Bf, Mw, Mf, version, fingerprint
	one   cost     // of a unit, the most frequent
}

// A cost is a number of units, and how long they take to come back.
type cost struct {
	units int64
	pair
	w, f string // the pair, for the script
}

func newSmall(n *numbers, l weir.Limit) *small {
	a, b, err := parts(l)
	if err != nil {
		return nil // newNumbers has said so
	}
	m := &small{a: a, b: b, burst: units(l.Burst).span(a, b), cap: l.Burst}
	most := mostUnits(l).span(a, b)
	for _, v := range []int64{a, b, m.burst.w, m.burst.f, most.w, most.f, int64(n.version), int64(n.fp)} {
		m.args = append(m.args, strconv.FormatInt(v, 10))
	}
	m.one = m.newCost(1)
	return m
}

func (m *small) newCost(units int64) cost {
	hi, lo := bits.Mul64(uint64(units), uint64(m.b))
	w, f := bits.Div64(hi, lo, uint64(m.a)) // units are at most the burst, which fits 40 years
	return cost{units, pair{int64(w), int64(f)}, strconv.FormatUint(w, 10), strconv.FormatUint(f, 10)}
}

// costOf returns the cost of units, which must not be more than the burst.
func (m *small) costOf(units int64) cost {
	if units == 1 {
		return m.one
	}
	return m.newCost(units)
}

func (m *small) plus(x, y pair) pair {
	p := pair{x.w + y.w, x.f + y.f}
	if p.f >= m.a {
		p.w, p.f = p.w+1, p.f-m.a
	}
	return p
}

func (m *small) minus(x, y pair) pair {
	p := pair{x.w - y.w, x.f - y.f}
	if p.f < 0 {
		p.w, p.f = p.w-1, p.f+m.a
	}
	return p
}

// admitted tells of a charge that left TAT ahead by so much.
func (m *small) admitted(ahead pair) weir.Decision {
	return weir.Decision{Allowed: true, Limit: m.cap, Remaining: m.remaining(ahead), ResetAfter: ahead.up()}
}

// refused tells of a charge that found TAT ahead by so much.
func (m *small) refused(ahead pair, units int64) weir.Decision {
	d := weir.Decision{Limit: m.cap, Remaining: m.remaining(ahead), ResetAfter: ahead.up()}
	if units > m.cap {
		d.Reason, d.RetryAfter = weir.TooCostly, weir.Never
		return d
	}
	d.Reason = weir.Exhausted
	d.RetryAfter = max(time.Microsecond, m.minus(m.plus(ahead, m.costOf(units).pair), m.burst).up())
	return d
}

// remaining returns how many units fit: what comes back in burst − ahead.
func (m *small) remaining(ahead pair) int64 {
	room := m.minus(m.burst, ahead)
	if room.w < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(room.w), uint64(m.a))
	lo, carry := bits.Add64(lo, uint64(room.f), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(m.b))
	return int64(q)
}

// up returns the pair as a duration, rounded up to the microsecond.
func (p pair) up() time.Duration {
	if p.f > 0 {
		p.w++
	}
	return time.Duration(p.w) * time.Microsecond
}
