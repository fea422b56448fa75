package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func mustNew(t testing.TB, limits ...Limit) *Single {
	t.Helper()
	s, err := New(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bubble runs a test in virtual time that has come to a whole second, so that
// windows are where the test expects them.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t) })
}

func TestWaitTakesTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 10, Per: Every(time.Second), Burst: 1})
		start := time.Now()
		var mu sync.Mutex
		var order []string
		for i := range 5 {
			go func() {
				if err := s.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(i, " at ", time.Since(start)))
			}()
			synctest.Wait() // it stands in the queue
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(order); got != "[0 at 0s 1 at 100ms 2 at 200ms 3 at 300ms 4 at 400ms]" {
			t.Error(got)
		}
		if c := s.cell.Load(); c.word.Load() == mark {
			t.Error("the state did not return to its word when the queue was empty")
		}
	})
}

func TestTakeDoesNotOvertake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Second), Burst: 5})
		s.Take(4)
		done := waitFor(t, s, t.Context(), 3) // due in 2 s; one unit is there
		synctest.Wait()
		for _, d := range []Decision{s.Take(1), s.Peek(1)} {
			if d.Allowed || d.Reason != Exhausted || d.RetryAfter != 3*time.Second {
				t.Errorf("take behind a waiter: %+v, want 3s", d)
			}
		}
		if d := s.Take(0); !d.Allowed {
			t.Errorf("taking nothing overtakes nobody: %+v", d)
		}
		if _, d := s.Reserve(1, 0); d.Allowed || d.RetryAfter != 3*time.Second {
			t.Errorf("reserve behind a waiter: %+v", d)
		}
		time.Sleep(3*time.Second - 1)
		if d := s.Take(1); d.Allowed || d.RetryAfter != 1 {
			t.Errorf("one nanosecond early: %+v", d)
		}
		time.Sleep(time.Nanosecond)
		if d := s.Take(1); !d.Allowed {
			t.Errorf("after the waiter's turn and its own: %+v", d)
		}
		if r := <-done; !r.d.Allowed || r.after != 2*time.Second {
			t.Errorf("the waiter: %+v", r)
		}
	})
}

type waited struct {
	d     Decision
	err   error
	after time.Duration
}

// waitFor starts a waiter and returns where its outcome will come.
func waitFor(t *testing.T, s *Single, ctx context.Context, cost int64) <-chan waited {
	t.Helper()
	out := make(chan waited, 1)
	start := time.Now()
	go func() {
		d, err := asDecision(s.WaitN(ctx, cost))
		out <- waited{d, err, time.Since(start)}
	}()
	synctest.Wait()
	return out
}

func TestCancelledWaiterLeavesNoHole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Second), Burst: 10})
		s.Take(10)
		ctx, cancel := context.WithCancel(t.Context())
		first := waitFor(t, s, ctx, 8)
		second := waitFor(t, s, t.Context(), 2)
		time.Sleep(time.Second)
		cancel()
		if r := <-first; !errors.Is(r.err, context.Canceled) || r.d.Allowed {
			t.Errorf("cancelled: %+v", r)
		}
		if r := <-second; !r.d.Allowed || r.after != 2*time.Second {
			t.Errorf("the one behind must not wait for who left: %+v", r)
		}
		if d := s.Peek(1); d.Remaining != 0 || d.RetryAfter != time.Second {
			t.Errorf("who left must have taken nothing: %+v", d)
		}
	})
}

func TestWaitFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Second), Burst: 3})
		s.Take(3)
		start := time.Now()
		queued := waitFor(t, s, t.Context(), 2)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second-1)
		defer cancel()
		if d, err := asDecision(s.WaitN(ctx, 1)); err != nil || d.Reason != TooLate || d.RetryAfter != 3*time.Second {
			t.Errorf("deadline before its turn: %+v, %v", d, err)
		}
		var denied *DeniedError
		if err := s.Wait(ctx); !errors.As(err, &denied) || denied.Decision.Reason != TooLate {
			t.Errorf("Wait: %v", err)
		}
		if d, err := asDecision(s.WaitN(ctx, 4)); err != nil || d.Reason != TooCostly {
			t.Errorf("more than the burst: %+v, %v", d, err)
		}
		if d, err := asDecision(s.WaitN(ctx, -1)); err != nil || d.Reason != Invalid {
			t.Errorf("negative: %+v, %v", d, err)
		}
		over, stop := context.WithCancel(t.Context())
		stop()
		if _, err := s.WaitN(over, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("refusals took %v", time.Since(start))
		}
		enough, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if d, err := asDecision(s.WaitN(enough, 1)); err != nil || !d.Allowed || time.Since(start) != 3*time.Second {
			t.Errorf("a deadline that just suffices: %+v, %v after %v", d, err, time.Since(start))
		}
		<-queued
	})
}

func TestQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1_000_000, Per: Every(time.Second), Burst: 1})
		s.Take(1)
		var wg sync.WaitGroup
		for range maxWaiters {
			wg.Go(func() {
				if err := s.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if d, err := asDecision(s.WaitN(t.Context(), 1)); err != nil || d.Reason != QueueFull || d.RetryAfter != (maxWaiters+1)*time.Microsecond {
			t.Errorf("one too many: %+v, %v", d, err)
		}
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took != maxWaiters*time.Microsecond {
			t.Errorf("%d turns took %v", maxWaiters, took)
		}
	})
}

func TestSettleAndSetMoveTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Second), Burst: 10})
		h, _ := s.Reserve(10, time.Minute)
		w := waitFor(t, s, t.Context(), 1) // its turn comes with the expiry
		h.Commit(4)
		if r := <-w; !r.d.Allowed || r.after != 0 || r.d.Remaining != 5 {
			t.Errorf("a settled reservation must let the waiter in: %+v", r)
		}
		s.Take(5)
		w = waitFor(t, s, t.Context(), 5)
		if err := s.Set(Limit{Rate: 10, Per: Every(time.Second), Burst: 10}); err != nil {
			t.Fatal(err)
		}
		if r := <-w; !r.d.Allowed || r.after != 500*time.Millisecond {
			t.Errorf("a raised rate must bring the turn forward: %+v", r)
		}
		s.Reset()
		s.Take(10)
		costly, cheap := waitFor(t, s, t.Context(), 5), waitFor(t, s, t.Context(), 2)
		if err := s.Set(Limit{Rate: 10, Per: Every(time.Second), Burst: 3}); err != nil {
			t.Fatal(err)
		}
		if r := <-costly; r.d.Reason != TooCostly || r.after != 0 {
			t.Errorf("a limit below its cost must fail a waiter: %+v", r)
		}
		if r := <-cheap; !r.d.Allowed || r.after != 900*time.Millisecond {
			t.Errorf("debt above the lowered burst must be paid off first: %+v", r)
		}
		w = waitFor(t, s, t.Context(), 3)
		s.Reset()
		if r := <-w; !r.d.Allowed || r.after != 0 {
			t.Errorf("a reset must let the waiter in: %+v", r)
		}
		w = waitFor(t, s, t.Context(), 3)
		if err := s.Set(Limit{Rate: 10, Algorithm: Concurrency}); err != nil {
			t.Fatal(err)
		}
		if r := <-w; r.d.Reason != Invalid || r.after != 0 {
			t.Errorf("slots cannot be waited for: %+v", r)
		}
	})
}

// A waiter whose context ends at the instant of its turn either has its unit
// and no error, or an error and nothing taken; never one of each.
func TestGrantOrCancelIsWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := mustNew(t, Limit{Rate: 1, Per: Every(time.Second), Burst: 1})
		var granted int64
		for range 200 {
			s.Reset()
			s.Take(1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			d, err := asDecision(s.WaitN(ctx, 1))
			cancel()
			if d.Allowed == (err != nil) {
				t.Fatalf("%+v with %v", d, err)
			}
			if free := s.Peek(1).Allowed; free == d.Allowed {
				t.Fatalf("granted %v, but a unit free: %v", d.Allowed, free)
			}
			if d.Allowed {
				granted++
			}
		}
		t.Logf("%d of 200 were granted", granted)
	})
}

func TestWaitEveryAlgorithm(t *testing.T) {
	for _, l := range everyAlgorithm {
		t.Run(l.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := mustNew(t, l)
				s.Take(10)
				due := s.Peek(4).RetryAfter
				a, b := waitFor(t, s, t.Context(), 4), waitFor(t, s, t.Context(), 10)
				after := s.Take(1)
				if r := <-a; !r.d.Allowed || r.after != due {
					t.Errorf("first: %+v, want %v", r, due)
				}
				r := <-b
				if !r.d.Allowed || r.after <= due {
					t.Errorf("second: %+v", r)
				}
				if after.RetryAfter <= r.after {
					t.Errorf("take may be retried after %v, although the second waiter was served after %v", after.RetryAfter, r.after)
				}
			})
		})
	}
}
