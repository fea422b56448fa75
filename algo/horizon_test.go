package algo

import (
	"math"
	"testing"
)

// aroundEnds are instants around the last one that a rule can tell from the next.
func aroundEnds() (nows []int64) {
	for _, end := range []int64{Horizon, Epoch + minuteNs<<25} {
		for _, d := range []int64{-2 * year, -hour, -minute, -second, -second / 2, -1, 0, 1, second / 2, second, minute, hour, 20 * year} {
			nows = append(nows, end+d)
		}
	}
	return append(nows, math.MaxInt64-1, math.MaxInt64)
}

// TestRetryAroundTheHorizon: whatever the time, a refusal says when the charge will
// be admitted, which is later, and then it is; or it says Never.
func TestRetryAroundTheHorizon(t *testing.T) {
	half := func(rate, per int64) Rule {
		f, err := NewDualHalf(rate, per, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, rules := range map[string][]Rule{
		"gcra":          {must(t, gcraSpec(1, second, 3))},
		"gcra odd":      {must(t, gcraSpec(7, minute, 3))},
		"gcra slow":     {must(t, gcraSpec(1, year, 3))},
		"fixed":         {must(t, fixedSpec(3, minute))},
		"fixed long":    {must(t, fixedSpec(3, 30*year))},
		"calendar":      {must(t, ruleSpec{kind: kindFixed, rate: 3, cal: NewCalendar(Day, nil)})},
		"anchored":      {must(t, ruleSpec{kind: kindAnchored, rate: 3, per: minute})},
		"sliding":       {must(t, slidingSpec(3, minute))},
		"log":           {must(t, ruleSpec{kind: kindLog, rate: 3, per: minute})},
		"dual second":   {half(3, second)},
		"dual minute":   {half(3, minute)},
		"dual":          {half(3, second), half(5, minute)},
		"slots":         {must(t, ruleSpec{kind: kindSlots, rate: 3})},
		"gcra and slot": {must(t, gcraSpec(7, minute, 3)), must(t, ruleSpec{kind: kindSlots, rate: 3})},
	} {
		for _, now := range aroundEnds() {
			for _, back := range []int64{0, second, minute + 1} { // what was used is new, or not
				l := NewLedger(rules, Epoch)
				l.Take(now-back, 2)
				l.Reserve(now-back, 1, now-back+2*minute)
				for range 5 {
					l.Take(now, 1)
					l.Reserve(now, 1, now+min(minute, Never-now))
				}
				checkRefusal(t, name, l, now)
			}
		}
	}
}

func checkRefusal(t *testing.T, name string, l *Ledger, now int64) {
	t.Helper()
	for cost := int64(1); cost <= 3; cost++ {
		v := l.Peek(now, cost)
		if v.ResetAt < now {
			t.Errorf("%s, %d ns after the horizon: reset in the past: %+v", name, now-Horizon, v)
		}
		if v.OK {
			continue
		}
		if v.RetryAt <= now && v.RetryAt != Never {
			t.Errorf("%s, %d ns after the horizon, cost %d: refused, retry after %d ns", name, now-Horizon, cost, v.RetryAt-now)
		}
		if v.RetryAt == Never {
			if l.Clone().Peek(Never-1, cost).OK && l.Holds() == 0 {
				t.Errorf("%s, %d ns after the horizon, cost %d: refused for ever, and yet admitted later", name, now-Horizon, cost)
			}
			continue
		}
		if again := l.Clone().Peek(v.RetryAt, cost); !again.OK {
			t.Errorf("%s, %d ns after the horizon, cost %d: refused again after waiting %d ns: %+v", name, now-Horizon, cost, v.RetryAt-now, again)
		}
	}
}

// TestWordsAroundTheHorizon is the same for the steps on words that need no ledger.
func TestWordsAroundTheHorizon(t *testing.T) {
	dual, err := NewDual(3, 5, 0)
	if err != nil {
		t.Fatal(err)
	}
	second, minute := dual.halves(t)
	for _, w := range []*Word{
		NewWord([]Rule{must(t, gcraSpec(1, secondNs, 3))}), NewWord([]Rule{must(t, gcraSpec(7, minuteNs, 3))}),
		NewWord([]Rule{must(t, fixedSpec(3, minuteNs))}), NewWord([]Rule{second, minute}),
	} {
		for _, now := range aroundEnds() {
			word := uint64(0)
			for range 5 {
				word, _ = w.Take(word, now, 1)
			}
			v := w.Verdict(word, now, 1, false)
			if v.RetryAt <= now && v.RetryAt != Never {
				t.Errorf("%T, %d ns after the horizon: refused, retry after %d ns", w.rules[0], now-Horizon, v.RetryAt-now)
			}
			if _, ok := w.Take(word, v.RetryAt, 1); !ok && v.RetryAt != Never {
				t.Errorf("%T, %d ns after the horizon: refused again after waiting %d ns", w.rules[0], now-Horizon, v.RetryAt-now)
			}
			if at := dual.RetryAt(dual.full(now), now, 1); at <= now && at != Never {
				t.Errorf("dual, %d ns after the horizon: refused, retry after %d ns", now-Horizon, at-now)
			}
			g := w.GCRA()
			if g == nil {
				continue
			}
			tick := g.Tick(now)
			if next, ok := g.Step(word, tick, 1); ok || g.Wait(g.RetryTick(next), tick, now) == 0 {
				t.Errorf("%T, %d ns after the horizon: refused %v, to wait %d", g, now-Horizon, !ok, g.Wait(g.RetryTick(next), tick, now))
			}
		}
	}
}

func (d *Dual) halves(t *testing.T) (second, minute Rule) {
	s, err := NewDualHalf(int64(d.perSecond), secondNs, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewDualHalf(int64(d.perMinute), minuteNs, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

// full returns a word in which now's second is used up.
func (d *Dual) full(now int64) (word uint64) {
	for range d.perSecond {
		word, _ = d.Take(word, now, 1)
	}
	return word
}
