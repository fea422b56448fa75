package queue_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
)

// relay stands between a Queue and its store, counts the Takes, and delays or fails
// them before the store decides, or delays the answer afterwards.
type relay struct {
	weir.Limiter
	takes atomic.Int64

	mu     sync.Mutex // guards the fields below
	before func(ctx context.Context) error
	after  time.Duration
}

func (r *relay) set(before func(ctx context.Context) error, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before, r.after = before, after
}

func (r *relay) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	r.takes.Add(1)
	r.mu.Lock()
	before, after := r.before, r.after
	r.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return weir.Decision{}, err
		}
	}
	d, err := r.Limiter.Take(ctx, p, key, cost)
	time.Sleep(after)
	return d, err
}

// pass returns after d, or with the error of a context that ends before.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// An error of the limiter is returned to the caller that it was called for. The next one is
// not concerned.
func TestQueueLimiterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 1)
		mustTake(t, q, p, "k", 1)
		a, b := wait(t.Context(), q, p, "k", 1), wait(t.Context(), q, p, "k", 1)
		var fails atomic.Int64
		fails.Store(1)
		store.set(func(context.Context) error {
			if fails.Add(-1) >= 0 {
				return broken
			}
			return nil
		}, 0)
		if r := <-a; !errors.Is(r.err, broken) || r.d.Allowed || r.after != time.Second {
			t.Errorf("first: %+v", r)
		}
		if r := <-b; !r.granted(time.Second) {
			t.Errorf("second: %+v", r)
		}
		checkEmpty(t, q)
	})
}

// Over a limiter that takes 10 ms to answer: other keys are not held up, a Take
// waits for the head's answer and no longer, and who leaves does so at once.
func TestQueueSlowLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 2)
		mustTake(t, q, p, "k", 2)
		start := time.Now()
		a := wait(t.Context(), q, p, "k", 1)
		ctx, cancel := context.WithCancel(t.Context())
		b := wait(ctx, q, p, "k", 1)
		c := wait(t.Context(), q, p, "k", 1)
		store.set(func(ctx context.Context) error { return pass(ctx, 10*time.Millisecond) }, 0)

		time.Sleep(1003 * time.Millisecond) // a asks since 1000 ms
		mustTake(t, q, p, "another key", 1)
		if at := time.Since(start); at != 1013*time.Millisecond {
			t.Errorf("another key was served at %v", at)
		}
		cancel() // b asks since 1010 ms
		if r := <-b; !errors.Is(r.err, context.Canceled) || r.after != 1013*time.Millisecond {
			t.Errorf("who leaves while it asks: %+v", r)
		}
		if d := tryTake(t, q, p, "k", 1); d.Allowed || d.Reason != weir.Exhausted || d.RetryAfter != 1977*time.Millisecond {
			t.Errorf("take while c asks, to 1023 ms: %+v", d)
		}
		if at := time.Since(start); at != 1023*time.Millisecond {
			t.Errorf("take was answered at %v", at)
		}
		if r := <-a; !r.granted(1010 * time.Millisecond) {
			t.Errorf("first: %+v", r)
		}
		if r := <-c; !r.granted(2010 * time.Millisecond) {
			t.Errorf("third: %+v", r)
		}
		checkEmpty(t, q)
	})
}

// The turn comes 5 ms before the deadline. An answer that takes 10 ms is waited for;
// one that does not come is not.
func TestQueueTurnBeforeDeadline(t *testing.T) {
	for takes, after := range map[time.Duration]time.Duration{10 * time.Millisecond: 1010 * time.Millisecond, time.Hour: 1100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			store := &relay{Limiter: newStore(t)}
			q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 1)
			mustTake(t, q, p, "k", 1)
			ctx, cancel := context.WithTimeout(t.Context(), 1005*time.Millisecond)
			defer cancel()
			out := wait(ctx, q, p, "k", 1)
			store.set(func(ctx context.Context) error { return pass(ctx, takes) }, 0)
			r := <-out
			if answered := takes < time.Hour; r.after != after || r.d.Allowed != answered || (r.err == nil) != answered {
				t.Errorf("an answer that takes %v: %+v", takes, r)
			}
		})
	}
}

// The line never ends and everybody in it can be served, one every 10 ms. Take
// stands behind those who came before it, not behind those who came later.
func TestQueueEndlessLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1_000_000, 3)
		store.set(func(ctx context.Context) error { return pass(ctx, 10*time.Millisecond) }, 0)
		r := reserve(t, q, p, "k", 3, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = q.Wait(ctx, p, "k", 1)
				}
			})
		}
		time.Sleep(100 * time.Millisecond) // they stand in line
		if _, err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if d := tryTake(t, q, p, "k", 1); d.Allowed || time.Since(start) != 30*time.Millisecond {
			t.Errorf("%+v after %v", d, time.Since(start))
		}
		wg.Wait()
		checkEmpty(t, q)
	})
}

// The limiter hangs while the head asks. The others' contexts are honoured.
func TestQueueHungLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 1)
		mustTake(t, q, p, "k", 1)
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a := wait(long, q, p, "k", 1)
		ctx, cancel := context.WithCancel(t.Context())
		b := wait(ctx, q, p, "k", 1)
		store.set(func(ctx context.Context) error { return pass(ctx, time.Hour) }, 0)
		time.Sleep(2 * time.Second)
		cancel()
		if r := <-b; !errors.Is(r.err, context.Canceled) || r.after != 2*time.Second {
			t.Errorf("who waits behind: %+v", r)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := q.Take(short, p, "k", 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("take: %v after %v", err, time.Since(start))
		}
		if r := <-wait(short, q, p, "k", 1); !errors.Is(r.err, context.DeadlineExceeded) || r.after != 0 {
			t.Errorf("wait after that: %+v", r)
		}
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := <-wait(short, q, p, "k", 1); !errors.Is(r.err, context.DeadlineExceeded) || r.after != time.Second {
			t.Errorf("wait: %+v", r)
		}
		if since := (<-a).after; since != time.Minute {
			t.Errorf("the head left after %v", since)
		}
		checkEmpty(t, q)
	})
}

// A refund that comes while the head is being refused must not be missed.
func TestQueueRefundWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 1)
		store.set(nil, 10*time.Millisecond)
		r := reserve(t, q, p, "k", 1, time.Minute)
		out := wait(t.Context(), q, p, "k", 1) // refused at 0 and, as the head, at 10 ms, which it hears at 20 ms
		time.Sleep(15 * time.Millisecond)
		if _, err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := <-out; !r.granted(30 * time.Millisecond) {
			t.Errorf("%+v", r)
		}
	})
}

// Two processes share a store. What the other takes delays the head; what it gives
// back is met when somebody behind the head looks.
func TestQueueSharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 2)
		mustTake(t, store, p, "k", 2)
		out := wait(t.Context(), q, p, "k", 2)
		time.Sleep(time.Second)
		mustTake(t, store, p, "k", 1)
		if r := <-out; !r.grantedBy(3*time.Second, maxJitter) {
			t.Errorf("the head, after the other process took one: %+v", r)
		}

		r := reserve(t, store, p, "held", 2, time.Minute)
		out = wait(t.Context(), q, p, "held", 1)
		if _, err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if q.Waiting() != 1 {
			t.Fatal("the head was not notified, and still tries")
		}
		if d := tryTake(t, q, p, "held", 1); d.Allowed || d.RetryAfter != 1 {
			t.Errorf("behind a head that could go: %+v", d)
		}
		if r := <-out; !r.granted(0) {
			t.Errorf("the head, after somebody looked: %+v", r)
		}
	})
}

// outrun waits for a unit of p while another process takes each one at the instant at which it is there,
// for a number of attempts, and returns how long the waiting caller slept before each of them.
func outrun(ctx context.Context, t *testing.T, p *weir.Policy, attempts int) (sleeps []time.Duration, r waited) {
	t.Helper()
	table := newStore(t)
	store := &relay{Limiter: table}
	q := newQueue(t, store, queue.Config{})
	mustTake(t, table, p, "k", 1)
	last := time.Now()
	store.set(func(context.Context) error {
		slept := time.Since(last)
		if last = time.Now(); slept == 0 {
			return nil // the first try, before it stands in line and when it does
		}
		if sleeps = append(sleeps, slept); len(sleeps) < attempts {
			mustTake(t, table, p, "k", 1)
		}
		return nil
	}, 0)
	return sleeps, <-wait(ctx, q, p, "k", 1)
}

// TestQueueSleepsLonger: who was refused after the time that it was told sleeps up to a tenth longer, at
// most 50 ms, and in half of the cases no longer. The first time is exact.
func TestQueueSleepsLonger(t *testing.T) {
	for _, c := range []struct{ per, most time.Duration }{
		{100 * time.Millisecond, 10 * time.Millisecond},
		{10 * time.Second, 50 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPolicy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(c.per)})
			sleeps, r := outrun(t.Context(), t, p, 200)
			if r.err != nil || !r.d.Allowed || len(sleeps) != 200 || sleeps[0] != c.per {
				t.Fatalf("%+v after %d attempts, the first after %v", r, len(sleeps), sleeps[0])
			}
			exact, different := 0, map[time.Duration]bool{}
			for _, d := range sleeps[1:] {
				if d < c.per || d > c.per+c.most {
					t.Errorf("slept %v, want %v and at most %v more", d, c.per, c.most)
				}
				if different[d] = true; d == c.per {
					exact++
				}
			}
			if exact < 50 || exact > 150 || len(different) < 50 {
				t.Errorf("%d of 199 sleeps were exact, and %d different, want about half and many", exact, len(different))
			}
		})
	}
}

// TestQueueSleepsToTheDeadline: nothing is added to a sleep that would then end too late.
func TestQueueSleepsToTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+5*time.Millisecond)
			if sleeps, r := outrun(ctx, t, p, 2); r.err != nil || !r.d.Allowed {
				t.Errorf("after %v: %+v", sleeps, r)
			}
			cancel()
		}
	})
}
