package algo

import (
	"math/bits"
	"slices"
)

// book takes the units from the levels of all classes in proportion, in whole units.
func (l *Lending) book(now, used int64) (State, error) {
	if mulCap(used, l.per) > l.full+l.debt {
		return State{}, l.overfull(used)
	}
	v := Levels{at: inRange(now), all: (l.burst - used) * l.per}
	for i := range l.shares {
		if used < l.burst {
			v.of[i] = int64(mulDiv(uint64(l.shares[i].Burst), uint64(l.burst-used), uint64(l.burst))) * l.per
		}
	}
	return State{Levels: &v}, nil
}

func (l *Lending) overfull(used int64) error {
	return badParam("used", used, "units in use exceed what the new limit can remember; at most %d fit", (l.full+l.debt)/l.per)
}

// same says whether states of o are states of l.
func (l *Lending) same(o *Lending) bool {
	return l.per == o.per && l.rate == o.rate && l.full == o.full && l.debt == o.debt && slices.Equal(l.shares, o.shares)
}

// adopt keeps what each class has used. What a class gains by a larger burst, or has because it is new,
// is taken from what is nobody's, so that no class is granted what another one counts on.
func (l *Lending) adopt(old Rule, s *State, hs *Holds, now int64) (State, bool, error) {
	o, ok := old.(*Lending)
	if !ok {
		return State{}, false, nil
	}
	if l.same(o) {
		return s.clone(), true, nil
	}
	was := o.at(s, hs, now)
	all, err := l.less(l.full, o.full-was.all, o)
	if err != nil {
		return State{}, true, err
	}
	v := lender{rule: l, Levels: Levels{at: was.Levels.at, all: all}}
	var most [MaxClasses]int64
	for i := range l.shares {
		c := &l.shares[i]
		j := o.find(c.Class)
		if o.shares[j].Class != c.Class {
			continue
		}
		if most[i], err = l.continued(c, o, &o.shares[j], was.of[j]); err != nil {
			return State{}, true, err
		}
		v.of[i] = min(most[i], scaled(max(0, was.of[j]), l.per, o.per))
	}
	for i := range l.shares {
		v.of[i] = min(most[i], v.of[i]+max(0, v.surplus()))
	}
	for i := range l.shares {
		if c := &l.shares[i]; o.shares[o.find(c.Class)].Class != c.Class {
			v.of[i] = min(c.full, max(0, v.surplus()))
		}
	}
	return State{Levels: &v.Levels}, true, nil
}

// scaled returns n × by / of, rounded down, at most what any level can be.
func scaled(n, by, of int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(by))
	if hi >= uint64(of) {
		return 1 << 62
	}
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(min(q, 1<<62))
}

// continued returns the level of a class that had a level under o: what is missing stays missing as
// far as it fits, and what is owed stays owed.
func (l *Lending) continued(c *share, o *Lending, was *share, level int64) (int64, error) {
	if c.rate == 0 {
		return 0, nil
	}
	if level < 0 {
		return l.less(0, -level, o)
	}
	next, err := l.less(c.full, was.full-level, o)
	if err != nil {
		return 0, nil // it is more than the level, so nothing is left
	}
	return max(0, next), nil
}

// less returns a full level less what is missing in parts of another rule, rounded down.
func (l *Lending) less(full, missing int64, o *Lending) (int64, error) {
	hi, lo := bits.Mul64(uint64(max(0, missing)), uint64(l.per))
	lo, carry := bits.Add64(lo, uint64(o.per-1), 0)
	if hi += carry; hi >= uint64(o.per) {
		return 0, l.overfull(missing / o.per)
	}
	parts, _ := bits.Div64(hi, lo, uint64(o.per))
	if parts > uint64(full+l.debt) {
		return 0, l.overfull(missing / o.per)
	}
	return full - int64(parts), nil
}
