package algo

import (
	"testing"

	"pgregory.net/rapid"
)

// TestDebitTables spells out what is owed: 1 per second with a burst of 10.
func TestDebitTables(t *testing.T) {
	type step struct {
		at, cost  int64 // seconds after start
		remaining int64
		reset     int64 // seconds after at
	}
	for name, c := range map[string]struct {
		debt  int64
		steps []step
		free  int64 // seconds after the last step: when one unit fits again
	}{
		"what fits is taken":         {0, []step{{0, 4, 6, 4}, {2, 6, 2, 8}}, 0},
		"what does not is owed":      {0, []step{{0, 4, 6, 4}, {0, 10, 0, 14}}, 5},
		"beyond the capacity":        {0, []step{{0, 25, 0, 25}, {5, 0, 0, 20}, {5, 1, 0, 21}}, 12},
		"up to the greatest debt":    {5, []step{{0, 100, 0, 15}, {3, 1, 0, 13}, {3, MaxCost, 0, 15}}, 6},
		"nothing, and how it stands": {0, []step{{0, 0, 10, 0}, {0, 3, 7, 3}, {1, 0, 8, 2}}, 0},
		"by a clock that went back":  {0, []step{{10, 12, 0, 12}, {5, 1, 0, 13}}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			rule, err := NewGCRA(1, second, 10, c.debt, 0)
			if err != nil {
				t.Fatal(err)
			}
			l, last := NewLedger([]Rule{rule}, start), start
			for i, s := range c.steps {
				last = max(last, start+s.at*second)
				want := Verdict{OK: true, Limit: 10, Remaining: s.remaining, RetryAt: last, ResetAt: last + s.reset*second}
				if v := l.Debit(start+s.at*second, s.cost); v != want {
					t.Errorf("step %d: got %+v, want %+v", i, v, want)
				}
			}
			if v := l.Peek(last, 1); v.RetryAt != last+c.free*second {
				t.Errorf("a unit fits after %d ns, want %d s", v.RetryAt-last, c.free)
			}
		})
	}
}

// TestDebitIsTake: where a charge fits, a debit is the charge; where it does not, it
// takes no less room than what would have fitted.
func TestDebitIsTake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, allKinds...)
		now, cost := max(p.now, p.model.last), drawCost(src, 12)
		debited, taken := p.real.Clone(), p.real.Clone()
		d, v := debited.Debit(now, cost), taken.Take(now, cost)
		if v.OK && d != v {
			p.fail("cost %d: debit %+v, take %+v", cost, d, v)
		}
		if left := debited.Peek(now, 1); !d.OK || left.Remaining > taken.Peek(now, 1).Remaining {
			p.fail("cost %d: debit %+v leaves %+v, take %+v", cost, d, left, v)
		}
	})
}

// TestDebitSaturates: no sum of debits wraps, and all is over when that is due.
func TestDebitSaturates(t *testing.T) {
	const most = 1 << 61 // of one charge here: the sum of a few is beyond every count
	dual := func(per int64) Rule {
		r, err := NewDualHalf(5, per, 0)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, r := range map[string]Rule{
		"gcra":         must(t, gcraSpec(5, second, 5)),
		"gcra, debt":   must(t, ruleSpec{kind: kindGCRA, rate: 5, per: second, burst: 5, debt: 3}),
		"gcra, 1 ns":   must(t, gcraSpec(1, 1, MaxCost)),
		"fixed":        must(t, ruleSpec{kind: kindFixed, rate: 5, per: second}),
		"fixed, 1 ns":  must(t, ruleSpec{kind: kindFixed, rate: 1, per: 1}),
		"calendar":     must(t, ruleSpec{kind: kindFixed, rate: 5, cal: NewCalendar(Day, nil)}),
		"anchored":     must(t, ruleSpec{kind: kindAnchored, rate: 5, per: second}),
		"sliding":      must(t, ruleSpec{kind: kindSliding, rate: 5, per: second}),
		"sliding, 40y": must(t, ruleSpec{kind: kindSliding, rate: 5, per: MaxPer}),
		"log":          must(t, ruleSpec{kind: kindLog, rate: 5, per: second}),
		"dual second":  dual(second),
		"dual minute":  dual(60 * second),
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger([]Rule{r}, start)
			reset := l.Debit(start, r.Capacity()+1).ResetAt
			for range 6 {
				l.charge(start, most)
				v := l.Peek(start, 1)
				if v.OK || v.Remaining != 0 || v.RetryAt <= start || v.ResetAt < reset || r.used(&l.states[0], &l.holds, start) < r.Capacity() {
					t.Fatalf("after a great debit: %+v, state %+v", v, l.states[0])
				}
				if _, owes := r.(*GCRA); !owes && v.ResetAt != reset {
					t.Errorf("reset at %d, want %d: more does not last longer", v.ResetAt, reset)
				}
				reset = v.ResetAt
			}
			if reset > Horizon {
				return
			}
			if l.Unused(reset-1) || !l.Unused(reset) {
				t.Errorf("unused just before its reset, or used then: %+v", l.states[0])
			}
		})
	}
}

// TestDebitsKeepTheLogShort: a log has no more entries than units, however often more
// are debited, and forgets none of them.
func TestDebitsKeepTheLogShort(t *testing.T) {
	l := NewLedger([]Rule{must(t, ruleSpec{kind: kindLog, rate: 5, per: second})}, start)
	const debits, apart = 10_000, second / 1000
	for i := range int64(debits) {
		l.Debit(start+i*apart, 3)
		if g := l.State(0).Log; len(g.entries)-g.head > 5 || cap(g.entries) > 64 {
			t.Fatalf("debit %d: %d entries, room for %d", i, len(g.entries)-g.head, cap(g.entries))
		}
	}
	end := start + (debits-1)*apart
	if v := l.Debit(end, 0); v.Remaining != 0 || v.ResetAt != end+second {
		t.Errorf("after all debits: %+v", v)
	}
}

// TestDebitsFitTheDualWord: counts beyond 15 and 18 bits stop there, and touch neither
// each other nor the time.
func TestDebitsFitTheDualWord(t *testing.T) {
	perSecond, err := NewDualHalf(10, second, 0)
	if err != nil {
		t.Fatal(err)
	}
	perMinute, err := NewDualHalf(100, 60*second, 0)
	if err != nil {
		t.Fatal(err)
	}
	rules := []Rule{perSecond, perMinute}
	w, l := NewWord(rules), NewLedger(rules, start)
	word := uint64(0)
	for _, cost := range []int64{1, MaxPerSecond, MaxPerMinute, MaxCost, MaxCost} {
		w.Load(l, word)
		l.Debit(start, cost)
		word = w.Save(l)
	}
	u := w.dual.Use(word, start)
	if u.Second != MaxPerSecond || u.Minute != MaxPerMinute {
		t.Errorf("after great debits: %+v", u)
	}
	if fresh := w.dual.Use(0, start); u.SecondEnds != fresh.SecondEnds || u.MinuteEnds != fresh.MinuteEnds {
		t.Errorf("debits have moved the windows: %+v, want those of %+v", u, fresh)
	}
	for at, want := range map[int64]bool{start: false, u.SecondEnds: false, u.MinuteEnds - 1: false, u.MinuteEnds: true} {
		if _, ok := w.Take(word, at, 1); ok != want {
			t.Errorf("a unit at +%d ns: %v, want %v", at-start, ok, want)
		}
	}
}
