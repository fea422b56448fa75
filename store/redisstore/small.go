package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weirlimit/weir"
)

// small is the compiled form of a policy of one GCRA limit called main, for take.lua. The
// script returns how far TAT was ahead of now and how many calls were admitted; the methods
// compute Decisions from that.
type small struct {
	a, b  int64 // a units per b µs
	burst pair
	most  pair // the burst and MaxDebt together
	cap   int64
	one   pair   // how long a unit takes to be replenished
	brief int    // values in the reply for a row from which one unit is taken; 0 = the general format
	text  string // all of this for the script
}

func newSmall(n *compiledLimits, l weir.Limit) *small {
	a, b, err := rateTerms(l)
	if err != nil {
		return nil // compileLimits returns the error
	}
	m := &small{a: a, b: b, burst: units(l.Burst).span(a, b), cap: l.Burst}
	m.most = mostUnits(l).span(a, b)
	m.one = m.span(1)
	switch {
	case m.most.w >= 1<<51:
	case a == 1:
		m.brief = 1
	default:
		m.brief = 2
	}
	m.text = string(doubles(nil, a, b, m.burst.w, m.burst.f, m.most.w, m.most.f, int64(n.version), int64(n.fp), m.one.w, m.one.f))
	return m
}

// doubles appends integers below 2^53 as the scripts read them.
func doubles(b []byte, values ...int64) []byte {
	for _, n := range values {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(n)))
	}
	return b
}

// span returns how long units take to be replenished. They must not exceed the
// burst, so that the result is at most 40 years.
func (m *small) span(units int64) pair {
	if units == 1 && m.one != (pair{}) {
		return m.one
	}
	hi, lo := bits.Mul64(uint64(units), uint64(m.b))
	w, f := bits.Div64(hi, lo, uint64(m.a))
	return pair{int64(w), int64(f)}
}

// debt returns how long units take to be replenished, at most as far as a TAT may be ahead.
func (m *small) debt(units int64) pair {
	hi, lo := bits.Mul64(uint64(units), uint64(m.b))
	if hi >= uint64(m.a) {
		return m.most
	}
	w, f := bits.Div64(hi, lo, uint64(m.a))
	if w >= uint64(m.most.w) {
		return m.most
	}
	return pair{int64(w), int64(f)}
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

// admitted returns the Decision of an admitted charge after which TAT is that far ahead.
func (m *small) admitted(ahead pair) weir.Decision {
	return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: m.cap, Remaining: m.remaining(ahead), ResetAfter: ahead.up()}
}

// refused returns the Decision of a refused charge before which TAT was that far ahead.
func (m *small) refused(ahead pair, units int64) weir.Decision {
	d := weir.Decision{Limit: m.cap, Remaining: m.remaining(ahead), ResetAfter: ahead.up()}
	if units > m.cap {
		d.Reason, d.RetryAfter = weir.TooCostly, weir.Never
		return d
	}
	d.Reason = weir.Exhausted
	d.RetryAfter = max(time.Microsecond, m.minus(m.plus(ahead, m.span(units)), m.burst).up())
	return d
}

// remaining returns how many units fit: those replenished in burst − ahead.
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

// isSmall says whether small.lua can execute a call: it takes from rows, each under one set of
// limits, and no cost exceeds its limit.
func (c *call) isSmall() bool {
	if c.op != opEach && c.op != opAll {
		return false
	}
	for i := range c.charges {
		ch := &c.charges[i]
		if ch.n.small == nil || ch.cost > ch.n.small.cap {
			return false
		}
	}
	return c.groupByRow()
}

// groupByRow groups the charges by row, in rows. It returns false if two charges to one row
// have different limits.
func (c *call) groupByRow() bool {
	c.rows = make([][]int, 0, len(c.charges))
	places := make(map[string]int, len(c.charges)) // of keys in rows
	for i := range c.charges {
		at, known := places[c.charges[i].key]
		switch {
		case !known:
			places[c.charges[i].key] = len(c.rows)
			c.rows = append(c.rows, []int{i})
		case c.charges[c.rows[at][0]].n != c.charges[i].n:
			return false
		default:
			c.rows[at] = append(c.rows[at], i)
		}
	}
	return true
}

// encodeSmall returns the keys and arguments of small.lua.
func (c *call) encodeSmall(s *Store) (keys, args []string) {
	const costs = 2 * 8 // the last two doubles
	keys, args = make([]string, len(c.rows)), append(make([]string, 0, 3+len(c.rows)), c.op, s.nowText(), s.keepText)
	for k, row := range c.rows {
		first := &c.charges[row[0]]
		m := first.n.small
		var used int64
		for _, i := range row {
			used = min(used+c.charges[i].used, math.MaxInt64/2)
		}
		debt := m.debt(used)
		b := append(make([]byte, 0, len(m.text)+costs*len(row)), m.text[:len(m.text)-costs]...)
		b = doubles(b, debt.w, debt.f)
		for _, i := range row {
			span := m.span(c.charges[i].cost)
			b = doubles(b, span.w, span.f)
		}
		keys[k], args = first.key, append(args, string(b))
	}
	return keys, args
}

// decodeSmall reads the reply of small.lua. It returns false if the call needs do.lua.
func (c *call) decodeSmall(reply []int64) (done bool) {
	const each = 3
	switch {
	case len(reply) == 1 && reply[0] == -1:
		c.large, c.holds = true, true // most likely one has holds
		return false
	case len(reply) != 1+each*len(c.charges):
		c.err = fmt.Errorf("redisstore: a script answered %v", reply)
		return true
	}
	c.now = reply[0]
	c.outcomes = make([]outcome, len(c.charges))
	of := reply[1:]
	for _, row := range c.rows {
		for _, i := range row {
			c.outcomes[i] = c.charges[i].n.small.outcome(pair{of[0], of[1]}, c.charges[i].cost, of[2]&1 == 1)
			if reset := of[2] >> 1; reset > 0 { // it has holds
				c.outcomes[i][4], c.outcomes[i][5] = max(c.outcomes[i][4], reset), outcomeHeld
			}
			of = of[each:]
		}
	}
	return true
}

// outcome returns the outcome of a charge before which TAT was that far ahead.
func (m *small) outcome(ahead pair, units int64, fits bool) outcome {
	if fits {
		d := m.admitted(m.plus(ahead, m.span(units)))
		return outcome{1, 0, d.Remaining, 0, d.ResetAfter.Microseconds(), 0}
	}
	d := m.refused(ahead, units)
	return outcome{0, 0, d.Remaining, d.RetryAfter.Microseconds(), d.ResetAfter.Microseconds(), 0}
}
