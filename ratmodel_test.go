package weir

import (
	"math/big"
	"slices"
)

// ratModel is GCRA with holds as SEMANTICS writes it down, in rational numbers
// and without any shortcut. Times are nanoseconds since t0, T is per/rate.
//
//	effective(t) = max(TAT, t, maxᵢ(min(t, eᵢ) + Sᵢ × T)), Sᵢ the units of hold i and
//	               all that expire after it
type ratModel struct {
	t     *big.Rat // ns per unit
	burst *big.Rat // units
	tat   *big.Rat
	holds []ratHold // by expiry, then by age
	last  *big.Rat
}

type ratHold struct {
	id     uint64
	units  *big.Rat
	expiry *big.Rat
}

func ratInt(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func newRatModel(l Limit) *ratModel {
	m := &ratModel{tat: ratInt(-1 << 62), last: ratInt(-1 << 62)}
	m.set(l)
	return m
}

func (m *ratModel) set(l Limit) {
	m.t = big.NewRat(int64(l.Per.every), l.Rate)
	m.burst = ratInt(l.Burst)
}

func ratMax(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

func ratMin(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) <= 0 {
		return a
	}
	return b
}

// raised returns at + Sᵢ × T for hold i.
func (m *ratModel) raised(i int, at *big.Rat) *big.Rat {
	sum := new(big.Rat)
	for _, h := range m.holds[i:] {
		sum.Add(sum, h.units)
	}
	return sum.Mul(sum, m.t).Add(sum, at)
}

func (m *ratModel) effective(now *big.Rat) *big.Rat {
	eff := ratMax(m.tat, now)
	for i, h := range m.holds {
		eff = ratMax(eff, m.raised(i, ratMin(now, h.expiry)))
	}
	return eff
}

// advance returns the greatest now so far, with expired holds folded in order.
func (m *ratModel) advance(now int64) *big.Rat {
	m.last = ratMax(m.last, ratInt(now))
	for len(m.holds) > 0 && m.holds[0].expiry.Cmp(m.last) <= 0 {
		m.tat = ratMax(m.tat, m.raised(0, m.holds[0].expiry))
		m.holds = m.holds[1:]
	}
	return m.last
}

// take returns whether cost fits and, afterwards, how many units remain.
func (m *ratModel) take(now, cost int64) (ok bool, remaining int64) {
	at := m.advance(now)
	next := new(big.Rat).Mul(ratInt(cost), m.t)
	next.Add(next, m.effective(at))
	room := new(big.Rat).Mul(m.burst, m.t)
	room.Add(room, at)
	ok = cost == 0 || next.Cmp(room) <= 0
	if ok && cost > 0 {
		m.tat = next
	}
	return ok, m.remaining(at)
}

func (m *ratModel) remaining(at *big.Rat) int64 {
	used := new(big.Rat).Sub(m.effective(at), at)
	used.Quo(used, m.t)
	left := used.Sub(m.burst, used)
	if left.Sign() <= 0 {
		return 0
	}
	return new(big.Int).Quo(left.Num(), left.Denom()).Int64()
}

func (m *ratModel) hold(id uint64, units, expiry int64) {
	h := ratHold{id, ratInt(units), ratInt(expiry)}
	i := slices.IndexFunc(m.holds, func(o ratHold) bool { return o.expiry.Cmp(h.expiry) > 0 })
	if i < 0 {
		i = len(m.holds)
	}
	m.holds = slices.Insert(slices.Clone(m.holds), i, h)
}

// drop takes a hold out and returns it, or false if it is over.
func (m *ratModel) drop(now int64, id uint64) (h ratHold, eff *big.Rat, ok bool) {
	at := m.advance(now)
	i := slices.IndexFunc(m.holds, func(o ratHold) bool { return o.id == id })
	if i < 0 {
		return ratHold{}, nil, false
	}
	h, eff = m.holds[i], m.effective(at)
	m.holds = slices.Delete(slices.Clone(m.holds), i, i+1)
	return h, eff, true
}

func (m *ratModel) settle(now int64, id uint64, used int64) bool {
	h, eff, ok := m.drop(now, id)
	if !ok {
		return false
	}
	back := new(big.Rat).Sub(h.units, ratInt(used))
	m.tat = new(big.Rat).Sub(eff, back.Mul(back, m.t))
	return true
}

func (m *ratModel) renew(now int64, id uint64, expiry int64) {
	if h, _, ok := m.drop(now, id); ok {
		m.hold(id, h.units.Num().Int64(), expiry)
	}
}

// change puts other numbers in force: TAT' = t + u × T', rounded up to a ns.
func (m *ratModel) change(now int64, l Limit) {
	at := m.advance(now)
	owed := new(big.Rat).Sub(m.effective(at), at)
	owed.Quo(owed, m.t)
	m.set(l)
	owed.Mul(owed, m.t)
	up := new(big.Int).Add(owed.Num(), new(big.Int).Sub(owed.Denom(), big.NewInt(1)))
	up.Quo(up, owed.Denom())
	m.tat = new(big.Rat).Add(at, new(big.Rat).SetInt(up))
}
