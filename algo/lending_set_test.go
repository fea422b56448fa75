package algo

import (
	"slices"
	"testing"
)

// An era is a time under the same rate and burst.
type era struct{ from, rate, burst, held int64 }

// otherShares divides what the greatest class leaves.
func (d *lendingLoad) otherShares(greatest Share) []Share {
	rate, burst := d.spec.rate-greatest.Rate, d.spec.burst-greatest.Burst
	shares := []Share{greatest}
	for _, name := range []string{"b", "c", "d"} {
		if oneIn(d, 3) && (name != "d" || len(shares) > 1) {
			continue // there must be another, for what no class holds
		}
		s := Share{Class: name, Rate: d.upTo(min(rate, greatest.Rate-1))}
		if s.Rate > 0 {
			s.Burst, s.NoBorrow = d.upTo(burst), oneIn(d, 5)
		}
		rate, burst = rate-s.Rate, burst-s.Burst
		shares = slices.Insert(shares, int(d.upTo(int64(len(shares)))), s)
	}
	return shares
}

// set replaces all classes but the greatest. It returns false if the units in use do not fit.
func (d *lendingLoad) set(greatest Share) bool {
	l, err := NewLending(d.spec.rate, d.spec.per, d.spec.burst, d.spec.debt, 0, d.otherShares(greatest))
	if err != nil {
		d.t.Fatal(err)
	}
	if d.ledger.Set(d.now, []Rule{l}, []int{0}) != nil {
		return false
	}
	d.rule = l
	return true
}

// half is the class with the greatest share of a limit.
func (d *lendingLoad) half() Share {
	return Share{Class: "a", Rate: 1 + d.spec.rate/2, Burst: 1 + d.spec.burst/2}
}

// TestLendingGuaranteeAfterSet: the class with the greatest share is never worse off than with a limit of its
// own, also if other classes are added, removed and changed while units are held.
func TestLendingGuaranteeAfterSet(t *testing.T) {
	t.Parallel()
	lendingLoads(t, func(d *lendingLoad) {
		d.spec.rate, d.spec.burst = max(2, d.spec.rate), max(2, d.spec.burst)
		d.spec.debt = 0
		greatest := d.half()
		l, err := NewLending(d.spec.rate, d.spec.per, d.spec.burst, 0, 0, d.otherShares(greatest))
		if err != nil {
			t.Fatal(err)
		}
		d.rule, d.ledger, d.exact = l, NewLedger([]Rule{l}, d.now), true
		d.compareWithOwnLimits()
		d.owns = map[string]*ownLimit{"a": d.owns["a"]}
		for d.more() {
			if oneIn(d, 8) {
				d.set(greatest)
			}
			d.step()
			d.checkOwn()
		}
	})
}

// TestLendingBoundAfterSet: in any interval no more is granted than the largest burst, or what was held at a Set,
// and what comes back at the rates in force.
func TestLendingBoundAfterSet(t *testing.T) {
	t.Parallel()
	lendingLoads(t, func(d *lendingLoad) {
		d.exact = true
		eras := []era{{d.now, d.spec.rate, d.spec.burst, 0}}
		for d.more() {
			if oneIn(d, 8) {
				before := d.spec
				d.spec.rate, d.spec.burst = between(d, 2, 20), between(d, 2, 30)
				d.expire()
				if d.set(d.half()) {
					eras = append(eras, era{d.now, d.spec.rate, d.spec.burst, d.allHeld()})
				} else {
					d.spec = before
				}
			}
			d.step()
		}
		d.checkBound(eras)
	})
}

func (d *lendingLoad) allHeld() (sum int64) {
	for _, s := range d.spells {
		if s.id != 0 {
			sum += s.units
		}
	}
	return sum
}

// checkBound looks at the intervals from the end of some spell to the beginning of some other one.
func (d *lendingLoad) checkBound(eras []era) {
	d.t.Helper()
	for _, a := range d.spells {
		for _, b := range d.spells {
			from, until := min(a.until, b.from), max(a.until, b.from)
			granted := int64(0)
			for _, s := range d.spells {
				if s.until >= from && s.from <= until {
					granted += s.units
				}
			}
			if most := d.most(eras, from, until); granted > most {
				d.t.Fatalf("%d units within %d ns, want at most %d: %+v\n%+v", granted, until-from, most, eras, d.spells)
			}
		}
	}
}

// most returns the bound of an interval.
func (d *lendingLoad) most(eras []era, from, until int64) int64 {
	burst, back := int64(0), int64(0)
	for i, e := range eras {
		end := Never
		if i+1 < len(eras) {
			end = eras[i+1].from
		}
		if end >= from && e.from <= until {
			burst = max(burst, e.burst, e.held)
			back += e.rate * (min(end, until) - max(e.from, from))
		}
	}
	return burst + back/d.spec.per + 1
}

// TestRetryOfSeveralRules: beside a log, too, a charge that is refused is admitted at RetryAt and not before.
func TestRetryOfSeveralRules(t *testing.T) {
	t.Parallel()
	lendingLoads(t, func(d *lendingLoad) {
		log, err := NewSlidingLog(d.spec.burst+d.upTo(d.spec.burst/2), 2*d.spec.burst*d.unit(), 0)
		if err != nil {
			t.Fatal(err)
		}
		d.ledger = NewLedger([]Rule{d.rule, log}, d.now)
		for d.more() {
			d.step()
			for _, s := range d.rule.shares {
				d.ledger.SetClass(s.Class)
				d.checkRetry(between(d, 1, max(1, s.Burst+d.rule.spare)))
			}
		}
	})
}

func (d *lendingLoad) checkRetry(cost int64) {
	d.t.Helper()
	v := d.ledger.Peek(d.now, cost)
	if v.OK || v.RetryAt == Never {
		return
	}
	if then := d.ledger.Peek(v.RetryAt, cost); !then.OK {
		d.t.Fatalf("cost %d at %d: %+v, but then %+v\n%+v", cost, d.now, v, then, d.spells)
	}
	for _, at := range []int64{v.RetryAt - 1, (d.now + v.RetryAt) / 2} {
		if before := d.ledger.Peek(at, cost); before.OK {
			d.t.Fatalf("cost %d at %d: %+v, but admitted at %d\n%+v", cost, d.now, v, at, d.spells)
		}
	}
}
