package algo

import (
	"testing"

	"pgregory.net/rapid"
)

// twoFixed is what a dual window is said to equal.
type twoFixed struct {
	second, minute *Fixed // nil where there is no such limit
	s, m           State
}

func newTwoFixed(t rapid.TB, perSecond, perMinute int64) *twoFixed {
	f := &twoFixed{}
	if perSecond > 0 {
		f.second = must(t, fixedSpec(perSecond, second)).(*Fixed)
	}
	if perMinute > 0 {
		f.minute = must(t, fixedSpec(perMinute, minute)).(*Fixed)
	}
	return f
}

// each calls fn for the halves that there are.
func (f *twoFixed) each(fn func(*Fixed, *State)) {
	if f.second != nil {
		fn(f.second, &f.s)
	}
	if f.minute != nil {
		fn(f.minute, &f.m)
	}
}

func (f *twoFixed) take(now, cost int64) bool {
	ok := true
	f.each(func(r *Fixed, s *State) { ok = ok && (cost == 0 || r.Remaining(s.A, now) >= cost) })
	if ok {
		f.each(func(r *Fixed, s *State) { s.A, _ = r.Take(s.A, now, cost) })
	}
	return ok
}

func (f *twoFixed) answers(now, cost int64) (remaining, retry, reset int64) {
	remaining, retry, reset = Never, now, now
	f.each(func(r *Fixed, s *State) {
		remaining = min(remaining, r.Remaining(s.A, now))
		retry = max(retry, r.RetryAt(s.A, now, cost))
		reset = max(reset, r.ResetAt(s.A, now))
	})
	return remaining, retry, reset
}

// TestDualEqualsTwoFixed: decision for decision, with every combination of
// limits, and the packed word goes back and forth unchanged.
func TestDualEqualsTwoFixed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := fromRapid(t, 80)
		perSecond := pick(src, 0, 1, 3, MaxPerSecond, between(src, 1, 10))
		perMinute := pick(src, 0, 1, 20, MaxPerMinute, between(src, 1, 30))
		if perSecond+perMinute == 0 {
			perSecond = 2
		}
		d, err := NewDual(perSecond, perMinute, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := newTwoFixed(t, perSecond, perMinute)
		word, now := uint64(0), start
		for src.more() {
			now += drawStep(src, pick(src, second, second, minute, hour))
			cost := drawCost(src, d.Capacity())
			ok := f.take(now, cost)
			next, got := d.Take(word, now, cost)
			if got != ok {
				t.Fatalf("%d/s, %d/min at %d: take %d = %v, want %v", perSecond, perMinute, now, cost, got, ok)
			}
			word = next
			for _, c := range []int64{0, 1, cost, d.Capacity(), d.Capacity() + 1} {
				remaining, retry, reset := f.answers(now, c)
				if d.Remaining(word, now) != remaining || d.RetryAt(word, now, c) != retry || d.ResetAt(word, now) != reset {
					t.Fatalf("%d/s, %d/min at %d, cost %d: %d %d %d, want %d %d %d", perSecond, perMinute, now, c,
						d.Remaining(word, now), d.RetryAt(word, now, c), d.ResetAt(word, now), remaining, retry, reset)
				}
			}
			checkPacking(t, d, f, word)
		}
	})
}

// checkPacking asks whether Unpack gives the two windows, and Pack the word.
func checkPacking(t rapid.TB, d *Dual, f *twoFixed, word uint64) {
	t.Helper()
	s, m := d.Unpack(word, f.second, f.minute)
	if s.A != f.s.A || m.A != f.m.A {
		t.Fatalf("word %#x unpacks to %#x %#x, want %#x %#x", word, s.A, m.A, f.s.A, f.m.A)
	}
	again := d.Pack(s, m, f.second, f.minute)
	if f.second != nil && f.minute != nil && again != word {
		t.Fatalf("word %#x packs again to %#x", word, again)
	}
	s2, m2 := d.Unpack(again, f.second, f.minute)
	if s2.A != s.A || m2.A != m.A {
		t.Fatalf("word %#x packs again to %#x, which unpacks differently", word, again)
	}
}

func TestDualTables(t *testing.T) {
	edge := at(t, "2026-03-04T12:00:00Z")
	d, err := NewDual(50, 2_400, 0)
	if err != nil {
		t.Fatal(err)
	}
	word := uint64(0)
	for s := range int64(48) { // the example in its comment
		next, ok := d.Take(word, edge+s*second, 50)
		if !ok {
			t.Fatalf("refused in second %d", s)
		}
		if word = next; d.Remaining(word, edge+s*second) != 0 {
			t.Fatalf("second %d: %d remaining", s, d.Remaining(word, edge+s*second))
		}
	}
	for _, c := range []struct {
		now, cost int64
		ok        bool
		retry     int64
	}{
		{edge + 47*second, 1, false, edge + minute},
		{edge + 48*second, 1, false, edge + minute},
		{edge + minute - 1, 1, false, edge + minute},
		{edge + minute - 1, 51, false, Never},
		{edge - hour, 1, false, edge + minute},
		{edge + minute, 50, true, 0},
	} {
		_, ok := d.Take(word, c.now, c.cost)
		if retry := d.RetryAt(word, c.now, c.cost); ok != c.ok || !ok && retry != c.retry {
			t.Errorf("%+v: %v, retry at %d", c, ok, retry)
		}
	}
	if u := d.Use(word, edge+47*second); u != (DualUse{50, 2_400, edge + 48*second, edge + minute}) {
		t.Errorf("use %+v", u)
	}
}

func TestDualFresh(t *testing.T) {
	for _, fill := range []Fill{0, 500_000, FillSteps} {
		d, _ := NewDual(10, 100, fill)
		want := 10 - 10*int64(fill)/FillSteps
		if got := d.Remaining(d.Fresh(start), start); got != want {
			t.Errorf("fill %d: %d remaining, want %d", fill, got, want)
		}
		if got := d.Remaining(d.Fresh(start), start+minute); got != 10 {
			t.Errorf("fill %d: %d remaining a minute later", fill, got)
		}
	}
	d, _ := NewDual(0, 100, FillSteps)
	if got := d.Remaining(d.Fresh(start), start); got != 0 {
		t.Errorf("a minute alone, empty: %d remaining", got)
	}
}

// TestDualMark: no charge at any time makes the word that callers use as a mark.
func TestDualMark(t *testing.T) {
	d, _ := NewDual(MaxPerSecond, MaxPerMinute, 0)
	for _, now := range []int64{Epoch, Epoch + 59*second, start, Horizon} {
		word := uint64(0)
		for range 20 {
			next, ok := d.Take(word, now, MaxPerSecond/2)
			if word = next; ok && word>>15&63 > 59 {
				t.Fatalf("second %d at %d", word>>15&63, now)
			}
		}
	}
}
