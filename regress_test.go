package weir

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/compiled"
)

// What an adversary broke once.

// A hold without expiry must not outlive the policy that allows it: whoever waits
// behind it would wait for ever, and the queue's timer would spin.
func TestHoldsExpireAfterSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 10, Algorithm: Concurrency})
		h, _ := s.Reserve(1, NoExpiry)
		if err := s.Set(Limit{Rate: 1000, Per: Every(time.Second), Burst: 4}); err != nil {
			t.Fatal(err)
		}
		w := waitFor(t, s, t.Context(), 4) // does not fit beside the hold
		n := 0
		for range 100 {
			if s.Allow() {
				n++
			}
		}
		if n > 0 {
			t.Errorf("%d overtook the waiter", n)
		}
		if d := s.Take(1); d.RetryAfter <= compiled.MaxTTL {
			t.Errorf("the waiter's turn comes with the hold's end: %+v", d)
		}
		if r := <-w; !r.d.Allowed || r.after != compiled.MaxTTL+time.Millisecond {
			t.Errorf("the waiter: %+v", r)
		}
		if out := h.Cancel(); !out.Late {
			t.Errorf("the hold: %+v", out)
		}
	})
}

// A goroutine that read the clock before a window's edge reserves after it: the
// hold must be dated in the window that it is charged to.
func TestStaleReserveInWindows(t *testing.T) {
	for _, limits := range [][]Limit{
		{{Rate: 10, Per: Every(time.Minute), Algorithm: FixedWindow}},
		{{Rate: 10, Per: Every(time.Second), Algorithm: DualWindow}},
		{{Rate: 10, Per: Calendar(Day, nil)}},
	} {
		edge := Instant(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).UnixNano())
		s := mustNewAt(t, t0, limits...)
		s.TakeAt(edge, 1)
		h, d := s.reserveAt(edge-1, 9, time.Minute)
		if !d.Allowed || d.Remaining != 0 {
			t.Fatalf("%v: %+v", limits, d)
		}
		s.resetAt(edge + 1)
		if d := s.peekAt(edge+2, 0); d.Remaining != 1 {
			t.Errorf("%v: after reset %+v, although 9 are held", limits, d)
		}
		if out := h.commitAt(edge+3, 0); out.Refunded != 9 {
			t.Errorf("%v: %+v", limits, out)
		}
	}
}

func TestEnqueueLooksAgain(t *testing.T) {
	s := mustNew(t, Limit{Rate: 1, Per: Every(time.Hour)})
	s.Allow()
	if err := s.Set(Limit{Rate: 3, Algorithm: Concurrency}); err != nil {
		t.Fatal(err)
	}
	if w, d := s.enqueue(t.Context(), Now(), 1); w != nil || d.Reason != Invalid {
		t.Errorf("slots were waited for: %v, %+v", w, d)
	}
}

func TestWaitersAreNotOvertakenByWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Second), Burst: 5})
		s.Take(3)
		big, small := waitFor(t, s, t.Context(), 5), waitFor(t, s, t.Context(), 1)
		if r := <-big; !r.d.Allowed || r.after != 3*time.Second {
			t.Errorf("first: %+v", r)
		}
		if r := <-small; !r.d.Allowed || r.after != 4*time.Second {
			t.Errorf("second, although two units were there at once: %+v", r)
		}
		w := waitFor(t, s, t.Context(), 5)
		if d, err := asDecision(s.WaitN(t.Context(), 6)); err != nil || d.Reason != TooCostly {
			t.Errorf("too costly behind others: %+v, %v", d, err)
		}
		<-w
	})
}

func TestRemainingBehindAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 5, Per: Every(time.Minute), Algorithm: FixedWindow})
		s.Take(3)
		w := waitFor(t, s, t.Context(), 4)
		if d := s.Take(1); d.Allowed || d.Remaining != 0 {
			t.Errorf("behind a waiter nothing remains: %+v", d)
		}
		<-w
	})
}

func TestSetMarksTheOldCell(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 5, Per: Every(time.Second)})
	old := s.cell.Load()
	if err := s.setAt(t0, Limit{Rate: 5, Per: Every(time.Second)}); err != nil || s.cell.Load() != old {
		t.Errorf("setting the same limit made a new cell: %v", err)
	}
	if err := s.setAt(t0, Limit{Rate: 6, Per: Every(time.Second)}); err != nil || old.word.Load() != mark {
		t.Errorf("the old cell is open: %v", err)
	}
}

func TestTimerStopsWithTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Hour)})
		s.Allow()
		ctx, cancel := context.WithCancel(t.Context())
		w := waitFor(t, s, ctx, 1)
		cancel()
		<-w
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.queue.armed != 0 || s.queue.timer.Stop() {
			t.Error("nobody waits, and the timer runs")
		}
	})
}

// The plan of turns is kept until something changes: after every step it must
// be the plan that would be made anew.
func TestPlanIsTrue(t *testing.T) {
	for seed := range uint64(200) {
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			s := mustNew(t, Limit{Rate: 2, Per: Every(time.Second), Burst: 8})
			ctx, cancel := context.WithCancel(t.Context())
			var holds []*Hold
			for i := range 40 {
				switch r.IntN(10) {
				case 0:
					s.Take(1 + r.Int64N(4))
				case 1, 2, 3:
					one, leave := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(20*time.Second))))
					defer leave()
					go func() { _, _ = s.WaitN(one, 1+r.Int64N(5)) }()
				case 4:
					if h, d := s.Reserve(1+r.Int64N(4), time.Duration(1+r.Int64N(int64(20*time.Second)))); d.Allowed {
						holds = append(holds, h)
					}
				case 5, 6:
					if len(holds) > 0 {
						holds[r.IntN(len(holds))].Commit(r.Int64N(6))
					}
				case 7:
					if len(holds) > 0 {
						holds[r.IntN(len(holds))].Renew(time.Duration(1 + r.Int64N(int64(20*time.Second))))
					}
				case 8:
					if r.IntN(2) == 0 {
						s.Reset()
					} else if err := s.Set(Limit{Rate: 1 + r.Int64N(4), Per: Every(time.Second), Burst: 5 + r.Int64N(6)}); err != nil {
						t.Fatal(err)
					}
				case 9:
					time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
				}
				synctest.Wait()
				kept := s.Peek(2)
				s.mu.Lock()
				s.queue.changed()
				s.mu.Unlock()
				if anew := s.Peek(2); kept != anew {
					t.Fatalf("seed %d, step %d: %+v, made anew %+v", seed, i, kept, anew)
				}
				s.Peek(2) // leaves a plan behind
			}
			cancel()
			synctest.Wait()
		})
	}
}

// Reset with a waiter that it does not free: the plan must follow.
func TestResetMovesThePlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Second), Burst: 10})
		s.Reserve(8, 30*time.Second)
		s.Take(2)
		w := waitFor(t, s, t.Context(), 5)
		before := s.Take(1)
		s.Reset()
		after := s.Take(1)
		if after.RetryAfter >= before.RetryAfter+time.Second || after.Allowed {
			t.Errorf("%+v became %+v", before, after)
		}
		s.mu.Lock()
		s.queue.changed()
		s.mu.Unlock()
		if anew := s.Take(1); anew != after {
			t.Errorf("%+v, made anew %+v", after, anew)
		}
		<-w
	})
}

func TestMixedPolicyNeedsExpiry(t *testing.T) {
	s := mustNew(t, Limit{Rate: 5, Per: Every(time.Second)}, Limit{Name: "slots", Rate: 5, Algorithm: Concurrency})
	if _, d := s.Reserve(1, NoExpiry); d.Reason != Invalid {
		t.Errorf("%+v", d)
	}
	if _, d := s.Reserve(1, 0); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestCommitIsClamped(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 10, Per: Every(time.Second)})
	h, _ := s.reserveAt(t0, 4, 0)
	if out := h.commitAt(t0, -5); out != (Settled{Refunded: 4}) {
		t.Errorf("negative: %+v", out)
	}
	h, _ = s.reserveAt(t0, 4, 0)
	if out := h.commitAt(t0, 1<<40); out != (Settled{Overrun: MaxCost - 4}) {
		t.Errorf("huge: %+v", out)
	}
	slots := mustNewAt(t, t0, Limit{Rate: 3, Algorithm: Concurrency})
	h, _ = slots.reserveAt(t0, 1, 0)
	if out := h.commitAt(t0, 5); out != (Settled{}) {
		t.Errorf("slots cannot be overrun: %+v", out)
	}
}

func TestTooManyHolds(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 1_000_000, Per: Every(time.Hour)}, Limit{Name: "slots", Rate: 1_000_000, Algorithm: Concurrency})
	for i := range 10_000 {
		if _, d := s.reserveAt(t0, 0, time.Second); !d.Allowed {
			t.Fatalf("reservation %d: %+v", i, d)
		}
	}
	if _, d := s.reserveAt(t0, 1, time.Second); d.Allowed || d.Reason != QueueFull || d.RetryAfter != time.Second {
		t.Errorf("one too many: %+v", d)
	}
	if _, d := s.reserveAt(t0.Add(time.Second), 1_000_001, 0); d.Reason != TooCostly {
		t.Errorf("after all have expired: %+v", d)
	}
}

func TestDualDecisions(t *testing.T) {
	s := mustNewAt(t, t0,
		Limit{Name: "s", Rate: 4, Per: Every(time.Second), Algorithm: DualWindow},
		Limit{Name: "m", Rate: 6, Per: Every(time.Minute), Algorithm: DualWindow})
	s.TakeAt(t0, 4)
	s.TakeAt(t0.Add(time.Second), 1)
	if d := s.TakeAt(t0.Add(time.Second), 2); d.Allowed || d.By != 1 || d.Limit != 6 || d.RetryAfter != 59*time.Second {
		t.Errorf("the minute refuses: %+v", d)
	}
	if d := s.TakeAt(t0.Add(time.Second), 5); d.Reason != TooCostly || d.By != 0 {
		t.Errorf("the second can never: %+v", d)
	}
	s.resetAt(t0.Add(time.Minute))
	even := mustNewAt(t, t0,
		Limit{Name: "s", Rate: 4, Per: Every(time.Second), Algorithm: DualWindow},
		Limit{Name: "m", Rate: 4, Per: Every(time.Minute), Algorithm: DualWindow})
	if d := even.TakeAt(t0, 1); d.By != 1 || d.ResetAfter != time.Minute {
		t.Errorf("of two with as little remaining, the one that resets last: %+v", d)
	}
}

// From 2083 on a dual window stands still, on its word and in the ledger alike.
func TestDualIn2083(t *testing.T) {
	late := Instant(time.Date(2085, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	s := mustNewAt(t, t0, Limit{Rate: 2, Per: Every(time.Second), Algorithm: DualWindow})
	granted := int64(0)
	for i := range 100 {
		now := late.Add(time.Duration(i) * time.Second)
		if h, d := s.reserveAt(now, 1, 0); d.Allowed {
			h.commitAt(now, 1)
			granted++
		}
		if s.TakeAt(now, 1).Allowed {
			granted++
		}
	}
	if granted > 2 {
		t.Errorf("%d granted", granted)
	}
}

func TestFarInstants(t *testing.T) {
	for _, l := range everyAlgorithm {
		for _, at := range []Instant{-1 << 63, -1, 0, 1<<63 - 1, 1<<63 - 2} {
			s := mustNewAt(t, at, l)
			n := 0
			for range 100 {
				if s.TakeAt(at, 1).Allowed {
					n++
				}
			}
			h, d := s.reserveAt(at, 1, time.Hour)
			if n != 10 || h != nil {
				t.Errorf("%v at %d: %d granted, then %+v", l, at, n, d)
			}
		}
	}
}

func TestZonesOfOneName(t *testing.T) {
	at := Instant(time.Date(2030, 5, 5, 20, 0, 0, 0, time.UTC).UnixNano())
	s := mustNewAt(t, at, Limit{Rate: 10, Per: Calendar(Day, time.FixedZone("", 0))})
	s.TakeAt(at, 10)
	if err := s.setAt(at, Limit{Rate: 10, Per: Calendar(Day, time.FixedZone("", 36000))}); err != nil {
		t.Fatal(err)
	}
	if d := s.TakeAt(at, 1); d.Allowed {
		t.Errorf("used units did not survive: %+v", d)
	}
}

func TestSetErrorNamesTheLimit(t *testing.T) {
	a, b := Limit{Name: "a", Rate: 10, Per: Every(time.Second)}, Limit{Name: "b", Rate: 100, Per: Every(time.Second)}
	s := mustNewAt(t, t0, a, b)
	s.TakeAt(t0, 10)
	b.Burst, b.MaxDebt = 1, 1
	var e *LimitError
	if err := s.setAt(t0, a, b); !errors.As(err, &e) || e.Limit != "b" || e.Field != "used" {
		t.Errorf("%v", err)
	}
	if _, err := New(); !errors.As(err, &e) || e.Field != "limits" {
		t.Errorf("no limits: %v", err)
	}
}

func TestLimitsAreACopy(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 10, Per: Every(time.Second)})
	s.Limits()[0].Rate = 99
	if s.Limits()[0].Rate != 10 {
		t.Error("the limiter's own limits were handed out")
	}
}

func TestScaleThatCannotBe(t *testing.T) {
	p, err := NewPolicy("p", Limit{Rate: 1, Per: Calendar(Day, nil)}, Limit{Name: "slow", Rate: 1, Per: Every(24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var e *LimitError
	if _, err := p.Scale(1, 1_000_000); !errors.As(err, &e) || e.Limit != "slow" {
		t.Errorf("once in 2,700 years: %v", err)
	}
}

func TestWorstOfABatch(t *testing.T) {
	b := Batch{Decisions: []Decision{
		{Reason: Admitted, Remaining: 1},
		{Reason: Exhausted, RetryAfter: time.Hour},
		{Reason: TooCostly, RetryAfter: Never},
		{Reason: Exhausted, RetryAfter: 2 * time.Hour},
	}}
	if d := b.Decisions[b.Worst()]; d.Reason != TooCostly {
		t.Errorf("%+v", d)
	}
	b.Decisions = b.Decisions[:2]
	if d := b.Decisions[b.Worst()]; d.Reason != Exhausted {
		t.Errorf("%+v", d)
	}
	if got := fmt.Sprint(Decision{}); got != "not charged" {
		t.Error(got)
	}
}

// A deadline that comes before the turn of nobody's queue leaves no plan behind.
func TestPlanOfAnEmptyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Limit{Rate: 1, Per: Every(time.Second), Burst: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.Take(1)
		hurried, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if d, err := asDecision(s.WaitN(hurried, 1)); err != nil || d.Reason != TooLate {
			t.Fatalf("%+v, %v", d, err)
		}
		time.Sleep(time.Second)
		s.Take(1)
		go func() { _ = s.Wait(context.Background()) }()
		synctest.Wait()
		if d := s.Take(1); d.RetryAfter != 2*time.Second {
			t.Errorf("behind one who waits a second: retry after %v, want 2s", d.RetryAfter)
		}
		time.Sleep(time.Second)
	})
}
