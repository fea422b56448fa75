package algo

import (
	"math/rand/v2"
	"testing"
)

// A spell is units that were granted, and when they may have been used: at once, or at any time
// while they were held.
type spell struct {
	class       string
	from, until int64
	units       int64
	id          uint64 // of the open hold, 0 if there is none
}

// lendingLoad is a random load of all classes, with holds, overruns and debits. It keeps what was
// granted.
type lendingLoad struct {
	source
	t      *testing.T
	spec   ruleSpec // rate and burst of all classes together
	rule   *Lending
	ledger *Ledger
	now    int64
	spells []spell
	owns   map[string]*ownLimit // nil: nothing is compared with them
	exact  bool                 // nobody uses more than was granted
}

// lendingLoads runs a test on many random loads, the same ones every time.
func lendingLoads(t *testing.T, test func(*lendingLoad)) {
	t.Helper()
	cases := uint64(1000)
	if thorough() {
		cases = 100_000
	}
	for seed := range cases {
		test(newLendingLoad(t, &randSource{rand.New(rand.NewPCG(seed, 9)), 60})) //nolint:gosec // the same every time
	}
}

func newLendingLoad(t *testing.T, src source) *lendingLoad {
	s := ruleSpec{kind: kindGCRA, rate: between(src, 1, 20), per: pick(src, 1000, second), burst: between(src, 1, 30)}
	if oneIn(src, 3) {
		s.debt = between(src, 1, 2*s.burst)
	}
	l, err := NewLending(s.rate, s.per, s.burst, s.debt, 0, drawShares(src, s.rate, s.burst))
	if err != nil {
		t.Fatal(err)
	}
	return &lendingLoad{source: src, t: t, spec: s, rule: l, ledger: NewLedger([]Rule{l}, start), now: start}
}

// drawShares divides a rate and a burst; often nothing of the burst is left over.
func drawShares(src source, rate, burst int64) (shares []Share) {
	names := []string{"a", "b", "c"}[:between(src, 1, 3)]
	for i, name := range names {
		s := Share{Class: name, Rate: src.upTo(rate)}
		if s.Rate > 0 {
			s.Burst, s.NoBorrow = src.upTo(burst), oneIn(src, 5)
		}
		if s.Rate > 0 && i == len(names)-1 && oneIn(src, 2) {
			s.Burst = burst
		}
		rate, burst = rate-s.Rate, burst-s.Burst
		shares = append(shares, s)
	}
	return shares
}

// unit is about how long a unit takes to come back.
func (d *lendingLoad) unit() int64 { return d.spec.length() + 1 }

func (d *lendingLoad) step() {
	d.now += pick(d, 0, 0, 1, d.unit(), d.unit(), 2*d.unit(), 5*d.unit(), 30*d.unit())
	d.expire()
	class := pick(d, d.rule.shares...).Class
	if d.owns == nil && oneIn(d, 6) {
		class = "renamed"
	}
	d.ledger.SetClass(class)
	cost := pick(d, 1, 1+d.upTo(d.spec.burst/4), between(d, 1, d.spec.burst))
	switch d.upTo(9) {
	case 0, 1, 2, 3:
		if d.ledger.Take(d.now, cost).OK {
			d.spells = append(d.spells, spell{class: class, from: d.now, until: d.now, units: cost})
			d.owns[class].debit(d.now, cost)
		}
	case 4, 5, 6:
		expiry := d.now + pick[int64](d, 1, 20, 100)*d.unit()
		if id, v := d.ledger.Reserve(d.now, cost, expiry); v.OK {
			d.spells = append(d.spells, spell{class: class, from: d.now, until: expiry, units: cost, id: id})
			d.owns[class].reserve(d.now, id, cost, expiry)
		}
	case 7, 8:
		d.end()
	case 9:
		if oneIn(d, 8) && d.overruns(class) {
			d.ledger.Debit(d.now, 10*cost)
			d.owns[class].debit(d.now, 10*cost)
		}
	}
}

func (d *lendingLoad) expire() {
	for i := range d.spells {
		if d.spells[i].until <= d.now {
			d.spells[i].id = 0
		}
	}
}

// overruns reports whether a class may use more than it was granted. One without a share does so at
// everybody's cost, which the guarantee does not cover. Nor does it cover debts of a class that a Set removes.
func (d *lendingLoad) overruns(class string) bool {
	return !d.exact && (d.owns == nil || d.rule.shares[d.rule.find(class)].Rate > 0)
}

// end settles or renews a hold.
func (d *lendingLoad) end() {
	var open []int
	for i := range d.spells {
		if d.spells[i].id != 0 {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return
	}
	s := &d.spells[pick(d, open...)]
	if oneIn(d, 3) {
		s.until = d.now + between(d, 1, 100)*d.unit()
		d.ledger.Renew(d.now, s.id, s.until)
		d.owns[s.class].renew(d.now, s.id, s.until)
		return
	}
	used := d.upTo(s.units)
	if d.overruns(s.class) && oneIn(d, 8) {
		used *= 3
	}
	d.ledger.Settle(d.now, s.id, used)
	d.owns[s.class].settle(d.now, s.id, used)
	s.units, s.until, s.id = min(s.units, used), d.now, 0
}

// TestLendingBound: in any interval no more than burst + rate × Δ is granted to all classes together,
// whatever is held, given back, overrun and owed. Held units count as long as they are held.
func TestLendingBound(t *testing.T) {
	t.Parallel()
	lendingLoads(t, func(d *lendingLoad) {
		for d.more() {
			d.step()
		}
		grants := make([]grant, len(d.spells))
		for i, s := range d.spells {
			grants[i] = grant{s.from, s.until, s.units}
		}
		checkBound(t, d.spec, grants)
	})
}

// An ownLimit is what a class would have if its share were a limit of its own: GCRA of its rate
// and burst. It is charged, and holds, whatever the class is granted, also what it borrows.
type ownLimit struct {
	ledger *Ledger
	ids    map[uint64]uint64 // its holds, by the id of the class's
}

func (o *ownLimit) debit(now, cost int64) {
	if o != nil {
		o.ledger.Debit(now, cost)
	}
}

// reserve is Ledger.Reserve, but holds what does not fit, too.
func (o *ownLimit) reserve(now int64, id uint64, cost, expiry int64) {
	if o == nil {
		return
	}
	o.ledger.Debit(now, cost)
	o.ledger.nextID++
	o.ledger.holds.add(Hold{ID: o.ledger.nextID, Units: cost, Expiry: expiry, charged: now})
	o.ids[id] = o.ledger.nextID
}

func (o *ownLimit) settle(now int64, id uint64, used int64) {
	if o != nil {
		o.ledger.Settle(now, o.ids[id], used)
	}
}

func (o *ownLimit) renew(now int64, id uint64, expiry int64) {
	if o != nil {
		o.ledger.Renew(now, o.ids[id], expiry)
	}
}

func (d *lendingLoad) compareWithOwnLimits() {
	d.owns = map[string]*ownLimit{}
	for _, s := range d.rule.shares {
		if s.Burst == 0 {
			continue
		}
		g, err := NewGCRA(s.Rate, d.spec.per, s.Burst, d.spec.debt, 0)
		if err != nil {
			d.t.Fatal(err)
		}
		d.owns[s.Class] = &ownLimit{NewLedger([]Rule{g}, d.now), map[uint64]uint64{}}
	}
}

// held returns the units that a class holds.
func (d *lendingLoad) held(class string) (sum int64) {
	for _, s := range d.spells {
		if s.class == class && s.id != 0 {
			sum += s.units
		}
	}
	return sum
}

// checkOwn compares what each class gets, beside what it holds, with its own limit. GCRA rounds
// instants, so that may be a nanosecond earlier.
func (d *lendingLoad) checkOwn() {
	for _, s := range d.rule.shares {
		own, free := d.owns[s.Class], s.Burst-d.held(s.Class)
		if own == nil {
			continue
		}
		d.ledger.SetClass(s.Class)
		for _, cost := range []int64{1, free / 2, free} {
			if cost < 1 || cost > free {
				continue
			}
			got, want := d.ledger.Peek(d.now, cost), own.ledger.Peek(d.now, cost)
			if got.RetryAt > want.RetryAt+1 {
				d.t.Fatalf("%+v: class %s, cost %d at %d:\n      got %+v\nby itself %+v\n%+v", d.rule.shares, s.Class, cost, d.now, got, want, d.spells)
			}
			if _, held := d.ledger.Clone().Reserve(d.now, cost, d.now+1); got.OK && !held.OK {
				d.t.Fatalf("%+v: class %s can take %d at %d, but not hold it: %+v\n%+v", d.rule.shares, s.Class, cost, d.now, held, d.spells)
			}
		}
	}
}

// TestLendingGuarantee: no class is ever worse off than with a limit of its own that has its guaranteed
// rate and burst, whatever the others take, hold, renew, settle and owe. So a class whose level is full
// is never refused its burst, and one that is partly drained waits at most cost / guaranteed rate.
func TestLendingGuarantee(t *testing.T) {
	t.Parallel()
	lendingLoads(t, func(d *lendingLoad) {
		d.compareWithOwnLimits()
		for d.more() {
			d.step()
			d.checkOwn()
		}
	})
}
