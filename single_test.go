package weir

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// t0 is an instant on a minute's edge.
var t0 = Instant(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())

func mustNewAt(t testing.TB, now Instant, limits ...Limit) *Single {
	t.Helper()
	s, err := newAt(now, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// everyAlgorithm has one limit of ten units for each algorithm that Take serves.
var everyAlgorithm = []Limit{
	{Algorithm: GCRA, Rate: 10, Per: Every(time.Second)},
	{Algorithm: TokenBucket, Rate: 10, Per: Every(time.Second)},
	{Algorithm: FixedWindow, Rate: 10, Per: Every(time.Second)},
	{Algorithm: FixedWindow, Rate: 10, Per: Calendar(Day, nil)},
	{Algorithm: AnchoredWindow, Rate: 10, Per: Every(time.Second)},
	{Algorithm: SlidingWindow, Rate: 10, Per: Every(time.Second)},
	{Algorithm: SlidingLog, Rate: 10, Per: Every(time.Second)},
	{Algorithm: DualWindow, Rate: 10, Per: Every(time.Second)},
	{Algorithm: DualWindow, Rate: 10, Per: Every(time.Minute)},
}

func TestTakeEveryAlgorithm(t *testing.T) {
	for _, l := range everyAlgorithm {
		t.Run(l.String(), func(t *testing.T) {
			s := mustNewAt(t, t0, l)
			for i := int64(9); i >= 0; i-- {
				if d := s.TakeAt(t0, 1); !d.Allowed || d.Remaining != i || d.Limit != 10 || d.RetryAfter != 0 {
					t.Fatalf("take: %+v, want %d remaining", d, i)
				}
			}
			d := s.TakeAt(t0, 1)
			if d.Allowed || d.Reason != Exhausted || d.Remaining != 0 {
				t.Fatalf("take of an empty limit: %+v", d)
			}
			if early := s.TakeAt(t0.Add(d.RetryAfter-1), 1); early.Allowed || early.RetryAfter != 1 {
				t.Errorf("one nanosecond early: %+v", early)
			}
			if due := s.TakeAt(t0.Add(d.RetryAfter), 1); !due.Allowed {
				t.Errorf("after %v: %+v", d.RetryAfter, due)
			}
		})
	}
}

func TestTakeNothingAndTooMuch(t *testing.T) {
	for _, l := range everyAlgorithm {
		t.Run(l.String(), func(t *testing.T) {
			s := mustNewAt(t, t0, l)
			s.TakeAt(t0, 10)
			if d := s.TakeAt(t0, 0); !d.Allowed || d.Remaining != 0 {
				t.Errorf("cost 0 of an empty limit: %+v", d)
			}
			if d := s.TakeAt(t0, 11); d.Allowed || d.Reason != TooCostly || d.RetryAfter != Never {
				t.Errorf("cost above capacity: %+v", d)
			}
			for _, cost := range []int64{-1, MaxCost + 1, -1 << 63, 1<<63 - 1} {
				if d := s.TakeAt(t0, cost); d.Allowed || d.Reason != Invalid {
					t.Errorf("cost %d: %+v", cost, d)
				}
				if d := s.peekAt(t0, cost); d.Allowed || d.Reason != Invalid {
					t.Errorf("peek at cost %d: %+v", cost, d)
				}
				if _, d := s.reserveAt(t0, cost, 0); d.Allowed || d.Reason != Invalid {
					t.Errorf("reserve cost %d: %+v", cost, d)
				}
			}
		})
	}
}

func TestPeeksChangeNothing(t *testing.T) {
	for _, l := range everyAlgorithm {
		for _, held := range []bool{false, true} {
			s := mustNewAt(t, t0, l)
			s.TakeAt(t0, 3)
			if held { // the state is in the ledger
				s.reserveAt(t0, 2, time.Hour)
			}
			before := s.peekAt(t0, 1)
			for i := range 1000 {
				s.peekAt(t0.Add(time.Duration(i)), int64(i%12))
			}
			if after := s.peekAt(t0, 1); after != before {
				t.Errorf("%v, held %v: %+v became %+v", l, held, before, after)
			}
			if d := s.TakeAt(t0, 1); !d.Allowed || d.Remaining != before.Remaining-1 {
				t.Errorf("%v, held %v: take after peeks: %+v", l, held, d)
			}
		}
	}
}

func TestSeveralLimits(t *testing.T) {
	s := mustNewAt(t, t0,
		Limit{Rate: 10, Per: Every(time.Second), Burst: 3},
		Limit{Name: "minute", Rate: 5, Per: Every(time.Minute), Algorithm: FixedWindow})
	if d := s.TakeAt(t0, 3); !d.Allowed || d.By != 0 || d.Remaining != 0 {
		t.Errorf("first: %+v", d)
	}
	if d := s.TakeAt(t0, 3); d.Allowed || d.By != 1 || d.RetryAfter != time.Minute || d.Remaining != 2 {
		t.Errorf("both refuse, the minute longer: %+v", d)
	}
	if d := s.TakeAt(t0, 2); d.Allowed || d.By != 0 || d.RetryAfter != 200*time.Millisecond {
		t.Errorf("the burst refuses: %+v", d)
	}
	if d := s.TakeAt(t0.Add(200*time.Millisecond), 2); !d.Allowed || d.Remaining != 0 || d.By != 1 {
		t.Errorf("nothing was charged by the refusals: %+v", d)
	}
	if d := s.TakeAt(t0.Add(time.Second), 4); d.Reason != TooCostly || d.By != 0 || d.RetryAfter != Never {
		t.Errorf("never is longer than a minute: %+v", d)
	}
}

func TestSetKeepsWhatWasUsed(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 10, Per: Every(time.Second)})
	s.TakeAt(t0, 6)
	steps := []struct {
		limit     Limit
		remaining int64
	}{
		{Limit{Rate: 10, Per: Every(time.Second), Burst: 20}, 14},
		{Limit{Rate: 1, Per: Every(time.Hour), Burst: 8}, 2},
		{Limit{Rate: 5, Per: Every(time.Minute)}, 0},
		{Limit{Rate: 9, Per: Every(time.Minute), Algorithm: FixedWindow}, 3},
		{Limit{Rate: 9, Per: Calendar(Month, nil)}, 3},
		{Limit{Rate: 8, Per: Every(time.Minute), Algorithm: SlidingLog}, 2},
		{Limit{Rate: 7, Per: Every(time.Second), Algorithm: SlidingWindow}, 1},
		{Limit{Rate: 100, Per: Every(time.Second), Algorithm: DualWindow}, 94},
		{Limit{Rate: 10, Per: Every(time.Second)}, 4},
	}
	for _, step := range steps {
		if err := s.setAt(t0, step.limit); err != nil {
			t.Fatal(err)
		}
		if d := s.peekAt(t0, 1); d.Remaining != step.remaining {
			t.Errorf("after setting %v: %+v, want %d remaining", step.limit, d, step.remaining)
		}
	}
}

func TestSetSameGrantsNothing(t *testing.T) {
	for _, l := range everyAlgorithm {
		s := mustNewAt(t, t0, l)
		s.TakeAt(t0, 10)
		for range 100 {
			if err := s.setAt(t0, l); err != nil {
				t.Fatal(err)
			}
			if d := s.TakeAt(t0, 1); d.Allowed {
				t.Fatalf("%v: setting the same limit granted a unit", l)
			}
		}
	}
}

func TestSetRefusesWhatCannotBeKept(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 1_000_000, Per: Every(time.Second)})
	s.TakeAt(t0, 1_000_000)
	err := s.setAt(t0, Limit{Rate: 1, Per: Every(time.Hour), MaxDebt: 5})
	if e := new(LimitError); !asLimitError(err, &e) || e.Field != "used" {
		t.Fatalf("set: %v, want a LimitError on used", err)
	}
	if d := s.peekAt(t0, 1); d.Limit != 1_000_000 || d.Allowed {
		t.Errorf("the old limit must stay: %+v", d)
	}
}

func TestResetKeepsHolds(t *testing.T) {
	for _, l := range everyAlgorithm {
		s := mustNewAt(t, t0, l)
		s.TakeAt(t0, 4)
		h, _ := s.reserveAt(t0, 3, time.Hour)
		s.resetAt(t0)
		if d := s.peekAt(t0, 1); d.Remaining != 7 {
			t.Errorf("%v: after reset %+v, want 7 remaining", l, d)
		}
		if out := h.commitAt(t0, 0); out.Refunded != 3 {
			t.Errorf("%v: refunded %+v", l, out)
		}
		if d := s.peekAt(t0, 1); d.Remaining != 10 {
			t.Errorf("%v: after cancel %+v", l, d)
		}
	}
}

func TestHoldSettles(t *testing.T) {
	for _, l := range everyAlgorithm {
		t.Run(l.String(), func(t *testing.T) {
			s := mustNewAt(t, t0, l)
			h, d := s.reserveAt(t0, 6, time.Minute)
			if !d.Allowed || d.Remaining != 4 {
				t.Fatalf("reserve: %+v", d)
			}
			if out := h.commitAt(t0, 2); out != (Settled{Refunded: 4}) {
				t.Errorf("commit: %+v", out)
			}
			if out := h.commitAt(t0, 0); out != (Settled{Refunded: 4}) {
				t.Errorf("second settle must tell of the first: %+v", out)
			}
			if d := s.peekAt(t0, 1); d.Remaining != 8 {
				t.Errorf("after commit: %+v", d)
			}
			h, _ = s.reserveAt(t0, 1, time.Minute)
			if out := h.commitAt(t0, 5); out != (Settled{Overrun: 4}) {
				t.Errorf("overrun: %+v", out)
			}
			if d := s.peekAt(t0, 1); d.Remaining != 3 {
				t.Errorf("after overrun: %+v", d)
			}
			h, _ = s.reserveAt(t0, 1, time.Minute)
			if out := h.commitAt(t0.Add(time.Minute), 0); !out.Late || out.Refunded != 0 {
				t.Errorf("settled at expiry: %+v", out)
			}
		})
	}
}

func TestNilHold(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 1, Per: Every(time.Second)})
	s.TakeAt(t0, 1)
	h, d := s.reserveAt(t0, 1, 0)
	if h != nil || d.Allowed || h.Cancel() != (Settled{}) || h.Renew(time.Second) {
		t.Errorf("a refused hold: %v, %+v", h, d)
	}
}

func TestHoldTTL(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 10, Per: Every(time.Second)})
	for _, ttl := range []time.Duration{compiled.MaxTTL + 1, -2, NoExpiry} {
		if _, d := s.reserveAt(t0, 1, ttl); d.Reason != Invalid {
			t.Errorf("ttl %v: %+v", ttl, d)
		}
	}
	h, _ := s.reserveAt(t0, 10, 0)
	if d := s.peekAt(t0.Add(compiled.DefaultTTL), 1); d.Allowed {
		t.Errorf("held units refilled: %+v", d)
	}
	if !h.renewAt(t0.Add(compiled.DefaultTTL-1), time.Minute) {
		t.Error("renew before expiry failed")
	}
	if h.renewAt(t0.Add(2*compiled.DefaultTTL), time.Minute) {
		t.Error("renew after expiry succeeded")
	}
}

func TestConcurrency(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 3, Algorithm: Concurrency})
	a, _ := s.reserveAt(t0, 1, 10*time.Second)
	_, d := s.reserveAt(t0, 2, 30*time.Second)
	if !d.Allowed || d.Remaining != 0 || d.ResetAfter != 30*time.Second {
		t.Fatalf("second: %+v", d)
	}
	if _, d := s.reserveAt(t0, 1, 0); d.Allowed || d.RetryAfter != 10*time.Second {
		t.Errorf("one more: %+v", d)
	}
	if _, d := s.reserveAt(t0, 2, 0); d.RetryAfter != 30*time.Second {
		t.Errorf("two more: %+v", d)
	}
	if _, d := s.reserveAt(t0, 4, 0); d.Reason != TooCostly {
		t.Errorf("more than there are: %+v", d)
	}
	if d := s.TakeAt(t0, 1); d.Reason != Invalid {
		t.Errorf("slots cannot be taken: %+v", d)
	}
	a.commitAt(t0, 1)
	forever, d := s.reserveAt(t0, 1, NoExpiry)
	if !d.Allowed {
		t.Errorf("after a slot was freed: %+v", d)
	}
	if _, d := s.reserveAt(t0, 3, 0); d.RetryAfter != Never || d.Reason != Exhausted {
		t.Errorf("waiting alone cannot help: %+v", d)
	}
	if d := s.peekAt(t0.Add(time.Hour), 1); d.Remaining != 2 || d.ResetAfter != Never {
		t.Errorf("expiry frees: %+v", d)
	}
	forever.commitAt(t0.Add(time.Hour), 0)
	if d := s.peekAt(t0.Add(time.Hour), 3); !d.Allowed {
		t.Errorf("all free: %+v", d)
	}
}

func TestInitial(t *testing.T) {
	for _, l := range everyAlgorithm {
		l.Initial = Filled(0.3)
		s := mustNewAt(t, t0, l)
		if d := s.peekAt(t0, 1); d.Remaining != 3 {
			t.Errorf("%v at 30%%: %+v", l, d)
		}
		l.Initial = Filled(0)
		s = mustNewAt(t, t0, l)
		d := s.TakeAt(t0, 1)
		if d.Allowed {
			t.Errorf("%v, empty: %+v", l, d)
		}
		if d := s.TakeAt(t0.Add(d.RetryAfter), 1); !d.Allowed {
			t.Errorf("%v, empty, after its retry time: %+v", l, d)
		}
	}
}

func TestAllocations(t *testing.T) {
	for _, l := range everyAlgorithm {
		s := mustNewAt(t, Now(), l)
		if n := testing.AllocsPerRun(100, func() { s.Allow(); s.Take(2); s.Peek(1) }); n != 0 {
			t.Errorf("%v: %v allocations", l, n)
		}
	}
}

// Held is true for refusals while reservations are open, behind a queue or not.
func TestSingleHeld(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 3, Per: Every(time.Hour)})
	h, _ := s.reserveAt(t0, 3, time.Minute)
	if d := s.TakeAt(t0, 1); d.Allowed || !d.Held {
		t.Errorf("with 3 of 3 held: %+v, want a refusal that says so", d)
	}
	if d := s.TakeAt(t0, 4); d.Reason != TooCostly || d.Held {
		t.Errorf("4 of 3: %+v, want too costly and no more", d)
	}
	s.lock(t0)
	s.queue.push(1)
	d := s.behindQueueLocked(t0, 1)
	s.queue.remove(s.queue.waiters[0])
	s.unlock(t0)
	if d.Allowed || !d.Held {
		t.Errorf("behind a waiter with 3 of 3 held: %+v, want a refusal that says so", d)
	}
	h.commitAt(t0, 3)
	if d := s.TakeAt(t0, 1); d.Allowed || d.Held {
		t.Errorf("with nothing held: %+v, want a refusal that says nothing of holds", d)
	}
}

// An instant before an earlier one counts as that: three takes fit a burst of three,
// whatever the clock says of the last two.
func TestTakeAtEarlier(t *testing.T) {
	for _, held := range []bool{false, true} {
		s := mustNewAt(t, t0, Limit{Rate: 10, Per: Every(time.Second), Burst: 3})
		if held {
			s.reserveAt(t0, 0, time.Hour)
		}
		for i, ms := range []time.Duration{100, 0, 0} {
			now := t0.Add(ms * time.Millisecond)
			if d := s.peekAt(now, 1); !d.Allowed {
				t.Errorf("with a hold %v, peek %d: %v", held, i, d)
			}
			if d := s.TakeAt(now, 1); !d.Allowed || d.Remaining != int64(2-i) {
				t.Errorf("with a hold %v, take %d: %v", held, i, d)
			}
		}
		if d := s.TakeAt(t0, 1); d.Allowed || d.RetryAfter != 200*time.Millisecond {
			t.Errorf("with a hold %v, a fourth: %v, want to wait until 200 ms", held, d)
		}
		if d := s.TakeAt(t0.Add(200*time.Millisecond), 1); !d.Allowed {
			t.Errorf("with a hold %v, at 200 ms: %v", held, d)
		}
	}
}

// A Single that is given instants in any order decides as a ledger does, whether the
// state is in the word or not.
func TestAnyOrderOfInstants(t *testing.T) {
	for name, limits := range map[string][]Limit{
		"gcra":   {{Rate: 7, Per: Every(time.Second), Burst: 5}},
		"window": {{Rate: 5, Per: Every(time.Second), Algorithm: FixedWindow}},
		"dual":   {{Rate: 3, Per: Every(time.Second), Algorithm: DualWindow}, {Name: "m", Rate: 20, Per: Every(time.Minute), Algorithm: DualWindow}},
	} {
		s := mustNewAt(t, t0, limits...)
		l := algo.NewLedger(s.policy().compiled.Rules, int64(t0))
		rng := rand.New(rand.NewPCG(1, 2))
		now, open := t0, []*Hold{}
		var ids []uint64
		for i := range 5_000 {
			now = now.Add(time.Duration(rng.Int64N(int64(time.Second))) - 450*time.Millisecond)
			switch n := rng.IntN(12); {
			case n == 0:
				h, d := s.reserveAt(now, 1, 2*time.Second)
				id, v := l.Reserve(int64(now), 1, int64(now.Add(2*time.Second)))
				if d != newDecision(v, now) {
					t.Fatalf("%s, step %d: reserved %+v, want %+v", name, i, d, newDecision(v, now))
				}
				if d.Allowed {
					open, ids = append(open, h), append(ids, id)
				}
			case n < 3 && len(open) > 0:
				if got, want := open[0].commitAt(now, 0), Settled(l.Settle(int64(now), ids[0], 0)); got != want {
					t.Fatalf("%s, step %d: settled %+v, want %+v", name, i, got, want)
				}
				open, ids = open[1:], ids[1:]
			case n == 3:
				if got, want := s.peekAt(now, 2), newDecision(l.Peek(int64(now), 2), now); got != want {
					t.Fatalf("%s, step %d: peek %+v, want %+v", name, i, got, want)
				}
			default:
				if got, want := s.TakeAt(now, 1), newDecision(l.Take(int64(now), 1), now); got != want {
					t.Fatalf("%s, step %d: take %+v, want %+v", name, i, got, want)
				}
			}
		}
	}
}

// Beyond the end of its time a Single refuses, and says that waiting cannot help.
func TestBeyondTheHorizon(t *testing.T) {
	for name, limit := range map[string]Limit{
		"gcra":    {Rate: 3, Per: Every(time.Second)},
		"odd":     {Rate: 7, Per: Every(time.Minute), Burst: 3},
		"window":  {Rate: 3, Per: Every(time.Second), Algorithm: FixedWindow},
		"dual":    {Rate: 3, Per: Every(time.Second), Algorithm: DualWindow},
		"log":     {Rate: 3, Per: Every(time.Second), Algorithm: SlidingLog},
		"sliding": {Rate: 3, Per: Every(time.Second), Algorithm: SlidingWindow},
		"day":     {Rate: 3, Per: Calendar(Day, nil)},
	} {
		now := Instant(algo.Horizon).Add(time.Hour)
		s := mustNewAt(t, now, limit)
		for i := range 5 {
			d := s.TakeAt(now.Add(time.Duration(i)*time.Hour), 1)
			if want := i < 3; d.Allowed != want || !want && (d.RetryAfter != Never || d.Reason != Exhausted) {
				t.Errorf("%s, take %d after the horizon: %v", name, i, d)
			}
		}
	}
	// Slots go by the expiry of their holds, also then.
	now := Instant(algo.Horizon).Add(time.Hour)
	s := mustNewAt(t, now, Limit{Rate: 1, Algorithm: Concurrency})
	s.reserveAt(now, 1, time.Minute)
	if _, d := s.reserveAt(now, 1, time.Minute); d.Allowed || d.RetryAfter != time.Minute {
		t.Errorf("a second slot of one: %v", d)
	}
	if _, d := s.reserveAt(now.Add(time.Minute), 1, time.Minute); !d.Allowed {
		t.Errorf("a slot after the expiry: %v", d)
	}
}
