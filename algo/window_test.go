package algo

import (
	"math"
	"testing"
	"time"
)

func fixedSpec(rate, per int64) ruleSpec { return ruleSpec{kind: kindFixed, rate: rate, per: per} }

// at returns the instant that an RFC 3339 string names.
func at(t *testing.T, s string) int64 {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return v.UnixNano()
}

func TestFixedTables(t *testing.T) {
	noon := at(t, "2026-03-04T12:00:00Z")
	utcMonth := ruleSpec{kind: kindFixed, rate: 1_000_000_000, cal: NewCalendar(Month, nil)}
	for name, c := range map[string]struct {
		spec ruleSpec
		rows []want
	}{
		"the edge, to the nanosecond": {fixedSpec(100, minute), []want{
			{noon + 59*second, 100, true, 0},
			{noon + 59*second, 1, false, 0},
			{noon + minute - 1, 1, false, 0},
			{noon + minute, 101, false, 100},
			{noon + minute, 100, true, 0},
			{noon + 2*minute - 1, 1, false, 0},
			{noon + 2*minute, 1, true, 99},
		}},
		"limit 1 (F2.13)": {fixedSpec(1, second), []want{
			{noon, 1, true, 0},
			{noon, 1, false, 0},
			{noon + second - 1, 1, false, 0},
			{noon + second, 1, true, 0},
		}},
		"a clock that goes back an hour": {fixedSpec(2, minute), []want{
			{noon, 2, true, 0},
			{noon - hour, 1, false, 0},
			{noon - 1, 1, false, 0},
			{noon + minute - 1, 1, false, 0},
			{noon + minute, 1, true, 1},
		}},
		"a slow thread does not roll it back (F0.5)": {fixedSpec(2, second), []want{
			{noon, 2, true, 0},
			{noon + second, 1, true, 1},
			{noon, 1, true, 0}, // booked in the later window
			{noon + second, 1, false, 0},
		}},
		"cost 0 opens nothing": {fixedSpec(2, second), []want{
			{noon, 0, true, 2},
			{noon, 3, false, 2},
			{noon, 2, true, 0},
			{noon, 0, true, 0},
		}},
		"a year idle": {fixedSpec(2, second), []want{
			{noon, 2, true, 0},
			{noon + year, 2, true, 0},
			{noon + year, 1, false, 0},
		}},
		"a window that does not divide a day": {fixedSpec(1, 7*second), []want{
			{noon - noon%(7*second), 1, true, 0},
			{noon - noon%(7*second) + 7*second - 1, 1, false, 0},
			{noon - noon%(7*second) + 7*second, 1, true, 0},
		}},
		"a billion a month": {utcMonth, []want{
			{at(t, "2026-01-31T23:59:59.999999999Z"), 1_000_000_000, true, 0},
			{at(t, "2026-01-31T23:59:59.999999999Z"), 1, false, 0},
			{at(t, "2026-02-01T00:00:00Z"), 1_000_000_000, true, 0},
			{at(t, "2026-02-28T23:59:59.999999999Z"), 1, false, 0},
			{at(t, "2026-03-01T00:00:00Z"), 1, true, 999_999_999},
		}},
	} {
		t.Run(name, func(t *testing.T) { runTable(t, c.spec, c.rows) })
	}
}

// TestLongIdle: exhausted, then idle as long as numbers of 15 and 16 bits
// take to come round (F0.3, F0.4).
func TestLongIdle(t *testing.T) {
	dual, err := NewDual(5, 5, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{Epoch, start, Epoch + 65_535*second, Epoch + 32_767*minute} {
		for _, unit := range []int64{second, minute} {
			for _, n := range []int64{1 << 15, 1 << 16, 1<<15 - 1, 1<<16 + 1, 1 << 17, 1 << 24} {
				later := from + n*unit
				word, ok := dual.Take(0, from, 5)
				if _, refused := dual.Take(word, from, 1); !ok || refused {
					t.Fatalf("dual at %d", from)
				}
				if _, ok := dual.Take(word, later, 5); !ok {
					t.Errorf("dual: refused after %d × %d ns of idling", n, unit)
				}
				for _, s := range []ruleSpec{fixedSpec(5, second), fixedSpec(5, minute), gcraSpec(1, second, 5)} {
					b := newBare(t, s)
					if !b.take(from, 5) || b.take(from, 1) || !b.take(later, 5) {
						t.Errorf("%+v: idling %d × %d ns", s, n, unit)
					}
				}
			}
		}
	}
}

// TestWindowEdges: for each kind of window the last nanosecond refuses, and says
// so, and the next admits.
func TestWindowEdges(t *testing.T) {
	for _, s := range []ruleSpec{
		fixedSpec(3, second), fixedSpec(3, 7*second), fixedSpec(3, day),
		{kind: kindFixed, rate: 3, cal: calendars[0]},
		{kind: kindFixed, rate: 3, cal: calendars[1]},
		{kind: kindFixed, rate: 3, cal: NewCalendar(Week, nil)},
		{kind: kindFixed, rate: 3, cal: NewCalendar(Year, nil)},
		{kind: kindAnchored, rate: 3, per: second},
		{kind: kindLog, rate: 3, per: second},
		{kind: kindSliding, rate: 3, per: second},
	} {
		b := newBare(t, s)
		now := start
		for range 5 {
			if !b.take(now, 3) {
				t.Fatalf("%+v at %d: refused", s, now)
			}
			edge := b.retryAt(now, 3)
			if b.take(edge-1, 3) || b.retryAt(edge-1, 3) != edge || !b.take(edge, 3) {
				t.Fatalf("%+v: edge %d", s, edge)
			}
			now = b.retryAt(edge, 3)
		}
	}
}

// TestFixedWord: the number and the count share the word without touching.
func TestFixedWord(t *testing.T) {
	for _, per := range []int64{1, 2, 1_000, second, minute, day, year, maxFill} {
		f := must(t, fixedSpec(1, per)).(*Fixed)
		f = must(t, fixedSpec(min(int64(f.most), MaxRate), per)).(*Fixed)
		s := State{}
		f.charge(&s, nil, Horizon, math.MaxInt64)
		if s.A >= 1<<63 {
			t.Errorf("per %d: bit 63 of %#x is set", per, s.A)
		}
		if got := f.used(&s, nil, Horizon); uint64(got) != f.most {
			t.Errorf("per %d: an overrun counts %d, want %d", per, got, f.most)
		}
		if f.Remaining(s.A, Horizon) != 0 {
			t.Errorf("per %d: the overrun wrapped", per)
		}
	}
}

func TestFixedFresh(t *testing.T) {
	for _, fill := range []Fill{0, 1, 333_333, 500_000, FillSteps} {
		missing := (10*int64(fill) + FillSteps - 1) / FillSteps
		f, _ := NewFixed(10, minute, fill)
		a, _ := NewAnchored(10, minute, fill)
		w, _ := NewSliding(10, minute, fill)
		g, _ := NewSlidingLog(10, minute, fill)
		for i, got := range []int64{
			f.Remaining(f.Fresh(start).A, start),
			a.Remaining(a.Fresh(start), start),
			w.Remaining(w.Fresh(start), start),
			g.Remaining(g.Fresh(start).Log, start),
		} {
			if got != 10-missing {
				t.Errorf("rule %d, fill %d: remaining %d, want %d", i, fill, got, 10-missing)
			}
		}
		if got := a.Remaining(a.Fresh(start), start+minute); got != 10 {
			t.Errorf("anchored, fill %d: %d after the window", fill, got)
		}
		if got := g.Remaining(g.Fresh(start).Log, start+minute); got != 10 {
			t.Errorf("log, fill %d: %d after the window", fill, got)
		}
	}
}
