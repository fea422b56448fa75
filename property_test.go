package weir

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// drawLimit draws a limit that New accepts, of any algorithm but Concurrency.
func drawLimit(t *rapid.T, name string) Limit {
	l := Limit{Name: name, Algorithm: rapid.SampledFrom([]Algorithm{
		Auto, GCRA, TokenBucket, FixedWindow, AnchoredWindow, SlidingWindow, SlidingLog, DualWindow,
	}).Draw(t, "algorithm")}
	l.Rate = rapid.SampledFrom([]int64{1, 2, 3, 7, 60, 100, 997, 20_011}).Draw(t, "rate")
	l.Per = Every(rapid.SampledFrom([]time.Duration{
		time.Millisecond, 7 * time.Millisecond, time.Second, time.Minute, 24 * time.Hour, 8766 * time.Hour,
	}).Draw(t, "per"))
	switch {
	case l.Algorithm == DualWindow:
		l.Per = Every(time.Second)
	case l.Algorithm == FixedWindow || l.Algorithm == Auto:
		if rapid.Bool().Draw(t, "calendar") {
			l.Per = Calendar(rapid.SampledFrom([]CalendarUnit{Day, Week, Month, Year}).Draw(t, "unit"), nil)
		}
	case l.bursts():
		l.Burst = rapid.Int64Range(0, 40).Draw(t, "burst")
	}
	l.Initial = rapid.SampledFrom([]Fill{{}, {}, Filled(0), Filled(0.5)}).Draw(t, "initial")
	return l
}

func drawLimits(t *rapid.T) []Limit {
	limits := []Limit{drawLimit(t, "")}
	switch rapid.IntRange(0, 5).Draw(t, "more") {
	case 0:
		l := drawLimit(t, "second")
		if l.Algorithm == DualWindow && limits[0].Algorithm == DualWindow {
			l.Per = Every(time.Minute)
		}
		limits = append(limits, l)
	case 1: // a whole dual window, in one word
		limits = []Limit{
			{Name: "m", Rate: rapid.Int64Range(1, 300).Draw(t, "minute"), Per: Every(time.Minute), Algorithm: DualWindow},
			{Name: "s", Rate: rapid.Int64Range(1, 50).Draw(t, "second"), Per: Every(time.Second), Algorithm: DualWindow},
		}
	}
	return limits
}

// drawStep draws how much time passes: mostly little, sometimes years, at times
// backwards.
func drawStep(t *rapid.T) time.Duration {
	return rapid.OneOf(
		rapid.Just(time.Duration(0)),
		rapid.Map(rapid.Int64Range(0, int64(time.Millisecond)), func(n int64) time.Duration { return time.Duration(n) }),
		rapid.Map(rapid.Int64Range(0, int64(2*time.Second)), func(n int64) time.Duration { return time.Duration(n) }),
		rapid.Map(rapid.Int64Range(0, int64(10_000*time.Hour)), func(n int64) time.Duration { return time.Duration(n) }),
	).Draw(t, "step")
}

// Whatever path a decision takes, word or ledger, it is the ledger's decision.
func TestSingleEqualsLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := drawLimits(t)
		s, err := newAt(t0, limits...)
		if err != nil {
			t.Fatal(err)
		}
		l := algo.NewLedger(s.policy().compiled.Rules, int64(t0))
		now := t0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(drawStep(t))
			cost := rapid.Int64Range(0, 40).Draw(t, "cost")
			if rapid.IntRange(0, 9).Draw(t, "peek") == 0 {
				if got, want := s.peekAt(now, cost), newDecision(l.Peek(int64(now), cost), now); got != want {
					t.Fatalf("peek %d: %+v, want %+v", cost, got, want)
				}
				continue
			}
			if got, want := s.TakeAt(now, cost), newDecision(l.Take(int64(now), cost), now); got != want {
				t.Fatalf("take %d: %+v, want %+v", cost, got, want)
			}
		}
	})
}

// Allow and Take are TakeAt now.
func TestTakeEqualsTakeAt(t *testing.T) {
	for _, l := range append([]Limit{{Rate: 7, Per: Every(time.Minute), Burst: 3}, {Rate: 10, Algorithm: Concurrency}}, everyAlgorithm...) {
		bubble(t, func(t *testing.T) {
			a, b := mustNew(t, l), mustNew(t, l)
			for i := range 2000 {
				time.Sleep(time.Duration(i*i%50) * time.Millisecond)
				cost := int64(i*7%16) - 2
				if got, want := a.Take(cost), b.TakeAt(Now(), cost); got != want {
					t.Fatalf("%v, step %d: take %d: %+v, want %+v", l, i, cost, got, want)
				}
			}
			d, e := mustNew(t, l), mustNew(t, l)
			for i := range 500 {
				time.Sleep(time.Duration(i*i%50) * time.Millisecond)
				if got, want := d.Allow(), e.TakeAt(Now(), 1).Allowed; got != want {
					t.Fatalf("%v, step %d: allow %v, want %v", l, i, got, want)
				}
			}
		})
	}
}

// Waiting exactly RetryAfter is admitted; one nanosecond less is refused.
func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := newAt(t0, drawLimits(t)...)
		if err != nil {
			t.Fatal(err)
		}
		now := t0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(drawStep(t))
			cost := rapid.Int64Range(1, 40).Draw(t, "cost")
			if rapid.IntRange(0, 4).Draw(t, "hold") == 0 {
				s.reserveAt(now, cost, time.Duration(1+rapid.Int64Range(0, int64(time.Minute)).Draw(t, "ttl")))
				continue
			}
			d := s.TakeAt(now, cost)
			if d.Allowed || d.RetryAfter == Never {
				continue
			}
			if early := s.peekAt(now.Add(d.RetryAfter-1), cost); early.Allowed {
				t.Fatalf("%+v, but admitted a nanosecond early", d)
			}
			if due := s.peekAt(now.Add(d.RetryAfter), cost); !due.Allowed {
				t.Fatalf("%+v, but then %+v", d, due)
			}
			if reset := s.peekAt(now, 1); reset.ResetAfter < 0 {
				t.Fatalf("reset after %v", reset.ResetAfter)
			}
		}
	})
}

// FuzzLimit builds limits of any numbers: an error that names a field, or a
// limiter that keeps the simplest promises.
func FuzzLimit(f *testing.F) {
	f.Add(int64(100), int64(time.Second), int64(20), uint8(0), 0.0, int64(0), int64(1))
	f.Add(int64(3), int64(8766*time.Hour), int64(3), uint8(1), 1.0, int64(5), int64(2))
	f.Add(int64(1), int64(1), int64(1), uint8(3), 0.5, int64(0), int64(1))
	f.Add(int64(32767), int64(time.Second), int64(0), uint8(7), 0.0, int64(0), int64(32767))
	f.Fuzz(func(t *testing.T, rate, per, burst int64, algorithm uint8, fill float64, debt, cost int64) {
		l := Limit{Rate: rate, Per: Every(time.Duration(per)), Burst: burst, Algorithm: Algorithm(algorithm), Initial: Filled(1 - fill), MaxDebt: debt}
		s, err := newAt(t0, l)
		if err != nil {
			var e *LimitError
			if !errors.As(err, &e) || e.Field == "" || e.Problem == "" {
				t.Fatalf("%v: %v", l, err)
			}
			return
		}
		if l.Algorithm == Concurrency {
			return
		}
		d := s.TakeAt(t0, cost)
		switch {
		case compiled.CheckCost(cost) != nil:
			if d.Reason != Invalid {
				t.Fatalf("%v: cost %d: %+v", l, cost, d)
			}
			return
		case cost > d.Limit:
			if d.Reason != TooCostly || d.RetryAfter != Never {
				t.Fatalf("%v: cost %d: %+v", l, cost, d)
			}
			return
		case !d.Allowed:
			if due := s.TakeAt(t0.Add(d.RetryAfter), cost); !due.Allowed {
				t.Fatalf("%v: cost %d: %+v, then %+v", l, cost, d, due)
			}
			return
		}
		if d.Remaining < 0 || d.Remaining > d.Limit-cost || d.ResetAfter < 0 {
			t.Fatalf("%v: cost %d: %+v", l, cost, d)
		}
	})
}
