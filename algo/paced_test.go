package algo

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"
)

// TestPacedProperty: in any zone and month, after a charge of a paced class what all have used is at most
// the share of the window that has passed; a refusal's RetryAt is the first instant at which the charge fits.
func TestPacedProperty(t *testing.T) {
	t.Parallel()
	zones := []*time.Location{nil, zone(t, "Europe/Berlin"), zone(t, "America/St_Johns"), zone(t, "Australia/Lord_Howe")}
	for seed := range uint64(300) {
		src := &randSource{rand.New(rand.NewPCG(seed, 4)), 80} //nolint:gosec // the same every time
		cal := NewCalendar(pick(src, Day, Week, Month, Year), pick(src, zones...))
		rate := pick[int64](src, 1, 7, 100, 30_000_000, 1_000_000_000_000)
		p, err := NewPaced(rate, cal, 0, []string{"slow"})
		if err != nil {
			t.Fatal(err)
		}
		d := &pacedLoad{source: src, t: t, cal: cal, rule: p, ledger: NewLedger([]Rule{p}, start), now: start - year + src.upTo(3*year)}
		for src.more() {
			d.step()
		}
	}
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// pacedLoad is a random load of two classes, one of which is paced.
type pacedLoad struct {
	source
	t      *testing.T
	cal    *Calendar
	rule   *Paced
	ledger *Ledger
	now    int64
	ids    []uint64
}

// share returns the units that the part of now's window is worth that has passed, and its bounds.
func (d *pacedLoad) share(now int64) (units int64, begin, end int64) {
	begin, end = d.cal.Bounds(d.cal.Number(now))
	r := new(big.Int).Mul(big.NewInt(d.rule.units), big.NewInt(now-begin))
	return r.Div(r, big.NewInt(end-begin)).Int64(), begin, end
}

func (d *pacedLoad) step() {
	_, begin, end := d.share(d.now)
	d.now += pick(d, 0, 1, d.upTo((end-begin)/10), d.upTo(end-begin), max(0, end-d.now-1), end-d.now)
	class := pick(d, "slow", "slow", "fast")
	d.ledger.SetClass(class)
	cost := min(pick(d, 1, 1+d.upTo(d.rule.units/3), d.rule.units, d.rule.units+1), MaxCost)
	var v Verdict
	switch d.upTo(4) {
	case 0:
		if len(d.ids) > 0 {
			d.ledger.Settle(d.now, pick(d, d.ids...), d.upTo(2*cost))
		}
		return
	case 1:
		var id uint64
		if id, v = d.ledger.Reserve(d.now, cost, d.now+1+d.upTo(end-begin)); v.OK {
			d.ids = append(d.ids, id)
		}
	default:
		v = d.ledger.Take(d.now, cost)
	}
	d.check(class, cost, v)
}

func (d *pacedLoad) check(class string, cost int64, v Verdict) {
	share, begin, _ := d.share(d.now)
	used := d.rule.used(&d.ledger.states[0], &d.ledger.holds, d.now)
	switch {
	case v.OK && class == "slow" && used > share:
		d.t.Fatalf("%d units are used %d ns after the window began, more than %d", used, d.now-begin, share)
	case v.OK && used > d.rule.units:
		d.t.Fatalf("%d units of %d are used", used, d.rule.units)
	case v.OK || v.RetryAt == Never || v.RetryAt > Horizon:
		return
	}
	if early := d.ledger.Peek(v.RetryAt-1, cost); early.OK || early.RetryAt != v.RetryAt {
		d.t.Fatalf("class %s, cost %d at %d: %+v, a nanosecond early %+v", class, cost, d.now, v, early)
	}
	if late := d.ledger.Peek(v.RetryAt, cost); !late.OK {
		d.t.Fatalf("class %s, cost %d at %d: %+v, refused then: %+v", class, cost, d.now, v, late)
	}
}

// TestPacedOverrun: what was used far beyond a window has no instant in it.
func TestPacedOverrun(t *testing.T) {
	p, err := NewPaced(2, NewCalendar(Month, nil), 0, []string{"backfill"})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLedger([]Rule{p}, start)
	l.SetClass("backfill")
	for range 1000 {
		l.Debit(start, MaxCost)
	}
	v := l.Peek(start, 1)
	if v.OK || v.RetryAt <= start || v.RetryAt > start+2*31*day {
		t.Errorf("%+v, want a retry in the next month", v)
	}
}
