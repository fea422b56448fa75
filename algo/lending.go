package algo

import (
	"math/bits"
	"slices"
)

// Lending is a rate and a burst that classes share: each has a guaranteed part, and what one
// leaves idle is lent to the others.
//
// It promises what GCRA does for all classes together: in any interval Δ at most burst +
// rate × Δ units are granted, with holds, refunds and expiries counted. A class whose level is
// full is never refused its own burst, whatever the others do or hold; one that is partly
// drained waits at most cost / guaranteed rate. Alone, a class gets the whole rate.
//
// It costs eleven words per key, whatever the number of classes. Everything is exact.
//
// Let the whole have rate R and burst B, and class i rate gᵢ and burst bᵢ, Σg ≤ R and Σb ≤ B.
// There are levels, as of token buckets: p of the whole, which refills at R up to B, and lᵢ of
// each class, which refills at gᵢ up to bᵢ. What is in p beyond the levels is nobody's:
//
//	surplus          = p − Σ max(0, lⱼ)
//	available to i   = lᵢ + max(0, surplus), or lᵢ alone if i does not borrow
//	a charge of c      is admitted if c ≤ available; it is taken from p, and
//	                   from lᵢ as far as that goes, the rest being surplus
//	retry at           the first instant at which that much is available
//	reset at           when all levels are full
//
// Example: 500 per second with burst 500, realtime 300, backfill 200. Backfill, alone, takes
// 200 at once and 500 in every second after that: realtime's level is full, so its 300 per
// second become surplus. Realtime returns and gets 300 at once; from then on its level
// refills, and backfill gets 200 per second.
//
// A level is kept in parts of a unit such that every rate is a whole number of parts per
// nanosecond, so refilling never rounds.
//
// Holds. Units held by class i, borrowed ones included, cap its level at max(0, bᵢ − hᵢ), and
// all that is held caps p at B − Σh: what is held cannot be saved up again. A reservation
// also needs Σ max(0, hⱼ − bⱼ) ≤ B − Σb. Without this rule holds of borrowed units would
// outlast the levels of their lenders, who could then be refused what is theirs. Its
// consequence: if Σb = B, no class can hold more than bᵢ. Refunds return to the
// class's own level first.
//
// After a Set that has lowered or removed the class of open holds, these can be more than that rule allows.
// Until they end, the others cannot all have their bursts beside them: Σ max(0, bᵢ − hᵢ) > B − Σh. What
// is missing is taken from what there can be of the classes in the order of their rates, the least first, so the
// class with the greatest rate goes without last. A class may still hold what there can be of its own.
//
// Debt. Units owed after an overrun or a debit are taken from the class's level, then from
// the surplus, and the rest is owed by the class alone: its level becomes negative, and the
// others keep theirs. What comes back beyond the levels pays debts first: while the surplus is
// negative, a class has its own level at most, and one that owes has nothing. Once there is a
// surplus, who takes of it sets negative levels to zero, as those debts are paid. Without this rule
// p would be full again while a class still owes, and the others could take what it owes on
// top of the burst. The debt of a class that does not borrow is left to its own rate. What exceeds the
// greatest debt is forgiven. A class without a share could never pay, so everybody does.
//
// Other limits. A class whose level covers a charge can be refused it by another limit of the same
// ledger, such as a sliding log that the others have filled with what they borrowed. Then its units are
// recalled: nobody borrows until that limit has room for the charge, as far as can be foreseen, and a
// little longer, so that who comes back at that time comes first. Meanwhile the others use their own
// parts only, and the limit becomes free at the class's guaranteed rate at least. A recall changes no
// level, and so neither the bound nor any guarantee. See Ledger.Recall.
//
// Nothing is recalled unless that frees something, that is, only if the units of every limit that refuses
// return gradually: GCRA, the estimated window and the log. A window gets all of its units back when it ends,
// whoever has used them, a paced class is admitted when enough of the period has passed, and slots
// are free when their holds end.
//
// Edges. A cost above bᵢ + (B − Σb) never fits; more than that can be available
// for a while, when others have just spent their levels, but nobody can rely on it. A clock
// that steps back refills nothing.
//
// Source: hierarchical token buckets (Linux HTB, "ceil" and "rate"), with levels instead of
// queues.
type Lending struct {
	base   int64 // the period of rates, in nanoseconds
	per    int64 // parts of a unit: a level of n units is n × per
	micro  int64 // parts of a unit in a store that counts in microseconds, a divisor of per
	rate   int64 // parts per nanosecond, like the rates of classes
	burst  int64 // B, in units
	full   int64 // B, in parts, like the bursts of classes
	debt   int64 // the most that may be owed, in parts
	shares []share
	first  int // the class of charges that name none
	spare  int64
	fill   Fill
}

// Share is the guaranteed part of a class.
type Share struct {
	Class    string
	Rate     int64 // units per period
	Burst    int64 // units
	NoBorrow bool  // the class uses only its own part
}

type share struct {
	Share
	rate, full int64 // in parts
}

// MaxClasses is the greatest number of classes.
const MaxClasses = 8

// maxParts bounds a level with the debt, in parts of microseconds, so that scripts whose
// numbers are doubles count by the same parts.
const maxParts = 1 << 52

// NewLending returns the rule for rate units per per nanoseconds with the given burst, of which
// shares are guaranteed to classes. Debt is as for NewGCRA. A charge without a class counts as
// one of the class with the smallest rate, the last one of several.
func NewLending(rate, per, burst, debt int64, fill Fill, shares []Share) (*Lending, error) {
	if err := checkGCRA(rate, per, burst, debt, fill); err != nil {
		return nil, err
	}
	if err := checkShares(rate, burst, shares); err != nil {
		return nil, err
	}
	g := commonRate(rate, shares).gcd(per)
	micro := microParts(rate, per, shares)
	most := maxParts / micro
	if burst > most {
		return nil, badParam("burst", burst, "cannot be counted exactly with these rates; at most %d fit: use rounder rates or a shorter period", most)
	}
	if room := min(most-burst, MaxCost); debt == 0 {
		debt = room
	} else if debt > room {
		return nil, badParam("max_debt", debt, "more than can be remembered beside the burst; at most %d fit", room)
	}
	l := &Lending{base: per, per: per / g, micro: micro, rate: rate / g, burst: burst, full: burst * (per / g), debt: debt * (per / g), spare: burst, fill: fill}
	for i, s := range shares {
		l.shares = append(l.shares, share{Share: s, rate: s.Rate / g, full: s.Burst * l.per})
		l.spare -= s.Burst
		if s.Rate <= shares[l.first].Rate {
			l.first = i
		}
	}
	return l, nil
}

// A commonDivisor divides several rates.
type commonDivisor int64

// commonRate returns the greatest common divisor of all rates.
func commonRate(rate int64, shares []Share) commonDivisor {
	g := uint64(rate)
	for _, s := range shares {
		g = gcd(g, uint64(s.Rate))
	}
	return commonDivisor(g)
}

func (g commonDivisor) gcd(n int64) int64 { return int64(gcd(uint64(g), uint64(n))) }

// microParts returns how many parts a unit has if all rates are whole numbers of parts per
// microsecond: per / gcd(1000 × rates, per).
func microParts(rate, per int64, shares []Share) int64 {
	thousand := int64(gcd(uint64(per), 1000))
	return per / thousand / commonRate(rate, shares).gcd(per/thousand)
}

func checkShares(rate, burst int64, shares []Share) error {
	if len(shares) < 1 || len(shares) > MaxClasses {
		return badParam("classes", len(shares), "there must be 1 to %d classes", MaxClasses)
	}
	var rates, bursts int64
	for i, s := range shares {
		switch {
		case slices.ContainsFunc(shares[:i], func(o Share) bool { return o.Class == s.Class }):
			return badParam("classes", s.Class, "is named twice")
		case s.Rate < 0 || s.Rate > rate:
			return badParam(s.field("guaranteed"), s.Rate, "must be between 0 and the rate %d", rate)
		case s.Burst < 0 || s.Burst > burst:
			return badParam(s.field("burst"), s.Burst, "must be between 0 and the limit's burst %d", burst)
		case s.Rate == 0 && s.Burst > 0:
			return badParam(s.field("burst"), s.Burst, "would never refill, as the class has no guaranteed rate: give it one, or leave burst out")
		case s.Rate == 0 && s.NoBorrow:
			return badParam(s.field("guaranteed"), s.Rate, "the class does not borrow, so it could not do anything: give it a share, or let it borrow")
		}
		rates, bursts = rates+s.Rate, bursts+s.Burst
	}
	if rates > rate {
		return badParam("classes", rates, "is the sum of what they are guaranteed and must be at most the rate %d", rate)
	}
	if bursts > burst {
		return badParam("classes", bursts, "is the sum of their bursts and must be at most the limit's burst %d", burst)
	}
	return nil
}

// field returns the name that errors have for a field of the class.
func (s *Share) field(name string) string { return "classes." + s.Class + "." + name }

// Shares returns the classes.
func (l *Lending) Shares() []Share {
	list := make([]Share, len(l.shares))
	for i := range l.shares {
		list[i] = l.shares[i].Share
	}
	return list
}

// First returns the class of charges that name none.
func (l *Lending) First() string { return l.shares[l.first].Class }

// Micros are the numbers of a Lending for a store that counts in microseconds.
type Micros struct {
	Parts   int64    // of a unit
	Rate    int64    // of the whole, in parts per µs
	Rates   []int64  // of the classes
	Classes []string // their names
	First   string   // the class of charges that name none
	Initial []int64  // the levels of the whole and of the classes at the start, nil if they are full
}

// Micros returns the numbers for a store that counts in microseconds.
func (l *Lending) Micros() Micros {
	shares := l.Shares()
	units := l.rate * (l.base / l.per) // per base ns
	parts := l.micro
	scale := func(rate int64) int64 { return int64(mulDiv(uint64(rate), 1000*uint64(parts), uint64(l.base))) }
	m := Micros{Parts: parts, Rate: scale(units), First: l.First()}
	for _, s := range shares {
		m.Rates = append(m.Rates, scale(s.Rate))
		m.Classes = append(m.Classes, s.Class)
	}
	if l.fill > 0 {
		m.Initial = append(m.Initial, l.initial(l.burst))
		for _, s := range shares {
			m.Initial = append(m.Initial, l.initial(s.Burst))
		}
	}
	return m
}

func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// Debt returns how many units beyond the burst may be owed.
func (l *Lending) Debt() int64 { return l.debt / l.per }

// Capacity returns the most units that ever fit at once, for the class with the most.
func (l *Lending) Capacity() int64 {
	most := int64(0)
	for i := range l.shares {
		most = max(most, l.capacityOf(i))
	}
	return most
}

// CapacityOf returns the most units that ever fit at once for a class.
func (l *Lending) CapacityOf(class string) int64 { return l.capacityOf(l.find(class)) }

func (l *Lending) capacityOf(i int) int64 {
	if l.shares[i].NoBorrow {
		return l.shares[i].Burst
	}
	return l.shares[i].Burst + l.spare
}

// Words returns -1: the state is a set of Levels.
func (l *Lending) Words() int { return -1 }

// Levels is the state of a Lending: how much there is of the whole and of each class, in parts,
// at an instant. A state without Levels is full.
type Levels struct {
	at     int64
	all    int64
	of     [MaxClasses]int64
	lendAt int64 // nobody borrows before
}

// Fresh returns the state of a key that was never used, in a limiter that was started at epoch.
func (l *Lending) Fresh(epoch int64) State {
	if l.fill == 0 {
		return State{}
	}
	v := Levels{at: inRange(epoch), all: l.initial(l.burst) * (l.per / l.micro)}
	for i := range l.shares {
		v.of[i] = l.initial(l.shares[i].Burst) * (l.per / l.micro)
	}
	return State{Levels: &v}
}

// initial returns the level of a burst at the start, rounded down to parts of microseconds: every store begins with
// the same levels.
func (l *Lending) initial(burst int64) int64 {
	parts := burst * l.micro
	hi, lo := bits.Mul64(uint64(parts), uint64(l.fill))
	missing, rest := bits.Div64(hi, lo, FillSteps)
	if rest > 0 {
		missing++
	}
	return parts - int64(missing)
}

// find returns the place of a class, or that of charges without one.
func (l *Lending) find(class string) int {
	for i := range l.shares {
		if l.shares[i].Class == class {
			return i
		}
	}
	return l.first
}

func (l *Lending) class(hs *Holds) int { return l.find(hs.charging.class) }

func (l *Lending) capacity(hs *Holds) int64 { return l.capacityOf(l.class(hs)) }

func (l *Lending) admits(s *State, hs *Holds, now, cost int64) bool {
	i := l.class(hs)
	if cost > l.capacityOf(i) {
		return false
	}
	v := l.at(s, hs, now)
	return v.fits(i, cost, hs.charging.hold)
}

func (l *Lending) charge(s *State, hs *Holds, now, cost int64) {
	v := l.at(s, hs, now)
	v.take(l.class(hs), mulCap(cost, l.per))
	l.store(s, &v)
}

func (l *Lending) fold(s *State, hs *Holds, now int64) {
	if s.Levels == nil && hs.count == 0 {
		return
	}
	v := l.at(s, hs, now)
	l.store(s, &v)
}

// refund gives back units of a hold that is still there.
func (l *Lending) refund(s *State, hs *Holds, _, now, units int64) int64 {
	v := l.at(s, hs, now)
	i := l.class(hs)
	parts := mulCap(units, l.per)
	v.free(hs.charging.class, hs.charging.ending)
	v.all = min(v.all+parts, v.capAll())
	v.of[i] = min(v.of[i]+parts, v.most[i])
	l.store(s, &v)
	return units
}

func (l *Lending) reset(s *State, hs *Holds, _ int, now int64) {
	s.Levels = nil
	l.fold(s, hs, now)
}

func (l *Lending) remaining(s *State, hs *Holds, now int64) int64 {
	v, i := l.at(s, hs, now), l.class(hs)
	return min(max(0, v.available(i))/l.per, l.capacityOf(i))
}

// resetAt is an upper bound while holds are open: all may be held until the last expires.
func (l *Lending) resetAt(s *State, hs *Holds, now int64) int64 {
	if s.Levels == nil && hs.count == 0 {
		return now
	}
	v := l.at(s, hs, now)
	if v.held > 0 {
		last := hs.last().Expiry
		if last == Never {
			return Never
		}
		v.refill(last)
	}
	longest := fillTime(v.all, l.full, l.rate)
	for i := range l.shares {
		longest = max(longest, fillTime(v.of[i], l.shares[i].full, l.shares[i].rate))
	}
	if longest == 0 && v.Levels.at <= inRange(now) {
		return max(now, v.lendAt)
	}
	return max(now, v.lendAt, reachable(addInstants(v.Levels.at, longest)))
}

const (
	recallGrace = 250_000_000    // how late a caller may come back, in nanoseconds
	maxRecall   = 60_000_000_000 // how long there is no borrowing at most, unless a recall is repeated
)

// recall lets nobody borrow until shortly after an instant if the class's own level covers cost. It returns
// false if nothing has changed.
func (l *Lending) recall(s *State, hs *Holds, now, cost, until int64) bool {
	v, i := l.at(s, hs, now), l.class(hs)
	until = min(until, addInstants(now, maxRecall-recallGrace)) + recallGrace
	if mulCap(cost, l.per) > v.of[i] || until <= v.lendAt {
		return false
	}
	v.lendAt = until
	l.store(s, &v)
	return true
}

// fillTime returns how long a level takes to be full.
func fillTime(level, most, rate int64) int64 {
	if level >= most || rate == 0 {
		return 0
	}
	return (most - level + rate - 1) / rate
}

func (l *Lending) used(s *State, hs *Holds, now int64) int64 {
	v := l.at(s, hs, now)
	return (l.full - v.all + l.per - 1) / l.per
}

// usage returns the limit status of a state without holds. It is full if a class would be refused
// one unit.
func (l *Lending) usage(s *State, now int64) Usage {
	v := l.at(s, &noHolds, now)
	u := Usage{Used: (l.full - v.all + l.per - 1) / l.per, Share: float64(l.full-v.all) / float64(l.full)}
	for i := range l.shares {
		u.Full = u.Full || l.capacityOf(i) > 0 && v.available(i) < l.per
	}
	return u
}

func (l *Lending) countsSince(*State, int64) int64 { return countsAll }
