package algo

import (
	"cmp"
	"slices"
)

// A lender is the state of a Lending at an instant, with what is held: levels never exceed their
// caps.
type lender struct {
	rule *Lending
	Levels
	held  int64             // all units that are held
	heldB [MaxClasses]int64 // by each class
	most  [MaxClasses]int64 // how much there can be of each class beside what is held, in parts
}

// at returns the state at now. Holds that are over by then are folded in order of their expiry.
func (l *Lending) at(s *State, hs *Holds, now int64) lender {
	v := lender{rule: l}
	if s.Levels != nil {
		v.Levels = *s.Levels
		v.Levels.at = min(v.Levels.at, inRange(now)+l.healing())
		v.lendAt = min(v.lendAt, inRange(now)+maxRecall)
	} else {
		v.Levels = l.fullLevels(inRange(now))
		if h := hs.first(); h != nil { // from then on there was more than what is held
			v.Levels.at = min(v.Levels.at, inRange(h.Expiry))
		}
	}
	v.hold(hs)
	v.cap()
	if hs.anyOver(now) {
		for h := range hs.all() {
			if h.Expiry > now {
				break
			}
			v.refill(h.Expiry)
			v.end(h, hs)
		}
	}
	v.refill(now)
	return v
}

// hold sets what is held. Units of a class that there is not, or not any more, are held by that of charges
// that name none, as they are charged to it.
func (v *lender) hold(hs *Holds) {
	v.held = hs.units
	unnamed := hs.units
	for k := range hs.classes {
		c := &hs.classes[k]
		v.heldB[v.rule.find(c.name)] += c.units
		unnamed -= c.units
	}
	v.heldB[v.rule.first] += unnamed
	v.setMost()
}

// setMost sets how much there can be of each class beside what is held. It must be called when that has changed.
//
// All together there is no more than of the whole. That is so by itself unless classes hold too much beyond
// their bursts, as after a Set that has left less for them. What is missing then, until those holds end, classes
// go without in the order of their rates: the greatest rate is the last that anything is taken from.
func (v *lender) setMost() {
	missing := -v.capAll()
	for i := range v.rule.shares {
		v.most[i] = max(0, v.rule.shares[i].full-mulCap(v.heldB[i], v.rule.per))
		missing += v.most[i]
	}
	if missing <= 0 {
		return
	}
	for _, i := range v.rule.byRate() {
		less := min(missing, v.most[i])
		v.most[i] -= less
		missing -= less
	}
}

// byRate returns the classes in the order of their rates; the last one of several comes first.
func (l *Lending) byRate() []int {
	order := make([]int, len(l.shares))
	for i := range order {
		order[i] = len(order) - 1 - i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(l.shares[i].rate, l.shares[j].rate) })
	return order
}

func (l *Lending) fullLevels(at int64) Levels {
	v := Levels{at: at, all: l.full}
	for i := range l.shares {
		v.of[i] = l.shares[i].full
	}
	return v
}

// healing is how far ahead of now levels can be, at most: an instant further ahead was not
// written by this rule's clock.
func (l *Lending) healing() int64 { return (l.full+l.debt)/l.rate + 1 }

// end takes a hold that is over out of what is held.
func (v *lender) end(h *Hold, hs *Holds) { v.free(hs.className(h), h.Units) }

// free takes units that a class no longer holds out of what is held.
func (v *lender) free(class string, units int64) {
	v.held -= units
	v.heldB[v.rule.find(class)] -= units
	v.setMost()
}

// capAll returns how much there can be of the whole beside what is held.
func (v *lender) capAll() int64 { return max(v.rule.full-mulCap(v.held, v.rule.per), -v.rule.debt) }

// mulCap returns units × parts, at most what any level can be.
func mulCap(units, parts int64) int64 {
	return int64(min(mulSat(uint64(units), uint64(parts)), 1<<62))
}

func (v *lender) cap() {
	v.all = min(v.all, v.capAll())
	for i := range v.rule.shares {
		v.of[i] = min(v.of[i], v.most[i])
	}
}

// refill moves the state to a later instant.
func (v *lender) refill(now int64) {
	now = inRange(now)
	if dt := now - v.Levels.at; dt > 0 {
		v.all = refilled(v.all, v.capAll(), v.rule.rate, dt)
		for i := range v.rule.shares {
			v.of[i] = refilled(v.of[i], v.most[i], v.rule.shares[i].rate, dt)
		}
		v.Levels.at = now
	}
}

// refilled returns a level after dt.
func refilled(level, most, rate, dt int64) int64 {
	if level >= most || rate == 0 {
		return min(level, most)
	}
	if dt > (most-level)/rate {
		return most
	}
	return level + dt*rate
}

// surplus returns what is nobody's after the classes have paid what they owe. It is negative if
// that is more than there is.
func (v *lender) surplus() int64 {
	sum := v.all
	for i := range v.rule.shares {
		sum -= max(0, v.of[i])
	}
	return sum
}

// balance returns the whole less all levels. It is negative if a class has overrun that could never
// pay: then everybody does.
func (v *lender) balance() int64 {
	sum := v.all
	for i := range v.rule.shares {
		sum -= v.of[i]
	}
	return sum
}

// borrows reports whether class i may take of the surplus now.
func (v *lender) borrows(i int) bool {
	return !v.rule.shares[i].NoBorrow && v.Levels.at >= v.lendAt
}

// available returns what class i can take, in parts; it may be negative.
func (v *lender) available(i int) int64 {
	if v.borrows(i) {
		if surplus := v.surplus(); surplus >= 0 || v.of[i] < 0 {
			return max(0, v.of[i]) + surplus
		}
	}
	return v.of[i] + min(0, v.balance())
}

// mayHold says whether class i may hold so many units more beside what is held: what classes
// hold beyond their bursts must fit into what is no class's. If it does not as it is, see setMost, a class may
// still hold what there can be of its own.
func (v *lender) mayHold(i int, cost int64) bool {
	if mulCap(cost, v.rule.per) <= v.most[i] {
		return true
	}
	beyond := int64(0)
	for j := range v.rule.shares {
		h := v.heldB[j]
		if j == i {
			h += cost
		}
		beyond += max(0, h-v.rule.shares[j].Burst)
	}
	return beyond <= v.rule.spare
}

// fits says whether cost units of class i can be taken or, if they are to be held, reserved.
func (v *lender) fits(i int, cost int64, hold bool) bool {
	return mulCap(cost, v.rule.per) <= v.available(i) && (!hold || v.mayHold(i, cost))
}

// take takes parts of class i, also if there is not enough. What the class cannot owe, because that is
// more than the greatest debt, is forgiven to the whole as well: the others must not pay it.
func (v *lender) take(i int, parts int64) {
	own, lent := min(parts, max(0, v.of[i])), int64(0)
	if !v.rule.shares[i].NoBorrow {
		lent = min(parts-own, max(0, v.surplus()))
	}
	if lent > 0 {
		v.payDebts()
	}
	least := -v.rule.debt
	if v.rule.shares[i].rate > 0 {
		before := v.of[i]
		v.of[i] = max(before-(parts-lent), least)
		parts = lent + before - v.of[i]
	}
	v.all = max(v.all-parts, least)
}

// payDebts pays what classes owe that borrow; there must be a surplus.
func (v *lender) payDebts() {
	for i := range v.rule.shares {
		if !v.rule.shares[i].NoBorrow {
			v.of[i] = max(0, v.of[i])
		}
	}
}

func (l *Lending) store(s *State, v *lender) {
	if s.Levels == nil {
		s.Levels = &Levels{}
	}
	*s.Levels = v.Levels
}
