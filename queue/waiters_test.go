package queue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
)

// How good RetryAfter is behind twelve who wait for one unit each.
func TestQueueRetryAfter(t *testing.T) {
	second, minute, hour := weir.Every(time.Second), weir.Every(time.Minute), weir.Every(time.Hour)
	cases := []struct {
		name   string
		limits []weir.Limit
		held   int64 // reserved for an hour before
		want   time.Duration
		real   time.Duration
	}{
		{"GCRA", []weir.Limit{{Rate: 1, Per: second, Burst: 20}}, 0, 13 * time.Second, 13 * time.Second},
		{"GCRA, more than its burst", []weir.Limit{{Rate: 1, Per: second, Burst: 5}}, 0, 13 * time.Second, 13 * time.Second},
		{"GCRA, odd rate", []weir.Limit{{Rate: 7, Per: second, Burst: 3}}, 0, 1857142857, 1857142858}, // each turn is rounded up
		{"window", []weir.Limit{{Rate: 20, Per: minute, Algorithm: weir.FixedWindow}}, 0, time.Minute, time.Minute},
		{"windows", []weir.Limit{{Rate: 5, Per: minute, Algorithm: weir.FixedWindow}}, 0, 156 * time.Second, 3 * time.Minute},
		{"window in a longer one", []weir.Limit{{Rate: 20, Per: second, Algorithm: weir.FixedWindow}, {Name: "m", Rate: 30, Per: minute, Algorithm: weir.FixedWindow}}, 0, time.Minute, time.Minute},
		{"log", []weir.Limit{{Rate: 20, Per: minute, Algorithm: weir.SlidingLog}}, 0, time.Minute, time.Minute},
		{"the other limit has room", []weir.Limit{{Rate: 10, Per: second, Burst: 2}, {Name: "hourly", Rate: 100, Per: hour}}, 0, 1300 * time.Millisecond, 1300 * time.Millisecond},
		{"the other limit has little", []weir.Limit{{Rate: 10, Per: second, Burst: 13}, {Name: "hourly", Rate: 60, Per: hour, Burst: 18}}, 0, 8 * time.Minute, 8 * time.Minute},
		{"reservations in the way", []weir.Limit{{Rate: 1, Per: second, Burst: 20}}, 15, 13 * time.Second, 13 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, p := newQueue(t, newStore(t), queue.Config{}), newPolicy(t, "p", c.limits...)
				if c.held > 0 {
					reserve(t, q, p, "k", c.held, time.Hour)
				}
				mustTake(t, q, p, "k", p.Capacity()-c.held)
				var wg sync.WaitGroup
				for range 12 {
					wg.Go(func() {
						if d, err := asDecision(q.Wait(t.Context(), p, "k", 1)); err != nil || !d.Allowed {
							t.Errorf("%+v, %v", d, err)
						}
					})
				}
				synctest.Wait()
				if d := tryTake(t, q, p, "k", 1); d.RetryAfter != c.want {
					t.Errorf("retry after %v, want %v", d.RetryAfter, c.want)
				}
				enough, cancel := context.WithTimeout(t.Context(), c.real+1)
				defer cancel()
				if r := <-wait(enough, q, p, "k", 1); !r.granted(c.real) {
					t.Errorf("the last one: %+v, want after %v", r, c.real)
				}
				wg.Wait()
			})
		})
	}
}

// Callers with limits that are no longer in force get the right RetryAfter,
// not that it is of no use.
func TestQueueOutdatedPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, old := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 10)
		set(t, q, old, perSecond(t, 1, 3))
		mustTake(t, q, old, "k", 3)
		a, b := wait(t.Context(), q, old, "k", 2), wait(t.Context(), q, old, "k", 3)
		if d := tryTake(t, q, old, "k", 1); d.Reason != weir.Exhausted || d.RetryAfter != 6*time.Second {
			t.Errorf("behind others: %+v", d)
		}
		if d := tryTake(t, q, old, "k", 4); d.Reason != weir.TooCostly || d.RetryAfter != weir.Never {
			t.Errorf("more than ever fits: %+v", d)
		}
		if r := <-a; !r.granted(2 * time.Second) {
			t.Errorf("first: %+v", r)
		}
		if r := <-b; !r.granted(5 * time.Second) {
			t.Errorf("second: %+v", r)
		}
	})
}

// A limiter that says to come back in 292 years is called once more, in 100.
func TestQueueFarFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &never{}
		q, p := newQueue(t, l, queue.Config{}), perSecond(t, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		out := wait(ctx, q, p, "k", 1)
		time.Sleep(24 * time.Hour)
		cancel()
		if r := <-out; !errors.Is(r.err, context.Canceled) || l.takes.Load() != 2 { // before and after it joined
			t.Errorf("%+v after %d takes", r, l.takes.Load())
		}
	})
}

type never struct {
	weir.Limiter
	takes atomic.Int64
}

func (l *never) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	l.takes.Add(1)
	return weir.Decision{Reason: weir.Exhausted, RetryAfter: weir.Never - 1}, nil
}

// A thousand keys, three who wait for each: lines do not meet.
func TestQueueManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 10, 1)
		var wg sync.WaitGroup
		var late atomic.Int64
		start := time.Now()
		for i := range 1000 {
			key := fmt.Sprint(i)
			mustTake(t, q, p, key, 1)
			for range 3 {
				wg.Go(func() {
					if d, err := asDecision(q.Wait(t.Context(), p, key, 1)); err != nil || !d.Allowed || time.Since(start)%(100*time.Millisecond) != 0 {
						late.Add(1)
					}
				})
			}
		}
		wg.Wait()
		if took := time.Since(start); took != 300*time.Millisecond || late.Load() != 0 {
			t.Errorf("that took %v, and %d were served at other times than theirs", took, late.Load())
		}
		checkEmpty(t, q)
	})
}

// A key lies in a buffer whose owner writes another one into it while somebody waits.
func TestQueueKeepsNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 1)
		mustTake(t, q, p, "aa", 1)
		buf := []byte("aa")
		out := wait(t.Context(), q, p, unsafe.String(&buf[0], len(buf)), 1)
		copy(buf, "bb")
		if d := tryTake(t, q, p, "aa", 1); d.RetryAfter != 2*time.Second {
			t.Errorf("nobody waits for aa: %+v", d)
		}
		if r := <-out; !r.granted(time.Second) {
			t.Errorf("%+v", r)
		}
		mustTake(t, q, p, "bb", 1)
		if d := tryTake(t, q, p, "aa", 1); d.Allowed {
			t.Errorf("who waited for aa was given something else: %+v", d)
		}
		checkEmpty(t, q)
	})
}

// stub admits everything but what is charged to "busy".
type stub struct{ weir.Limiter }

func (stub) Take(_ context.Context, _ *weir.Policy, key string, _ int64) (weir.Decision, error) {
	if key == "busy" {
		return weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Hour}, nil
	}
	return weir.Decision{Allowed: true, Reason: weir.Admitted}, nil
}

// occupy has somebody wait for "busy" until the test ends.
func occupy(t testing.TB, q *queue.Queue, p *weir.Policy) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := q.Wait(ctx, p, "busy", 1)
		gone <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
	for q.Waiting() == 0 {
		runtime.Gosched()
	}
}

func TestQueueAllocates(t *testing.T) {
	q, p := newQueue(t, stub{}, queue.Config{}), perSecond(t, 1, 1)
	ctx := t.Context()
	check := func(who string) {
		if n := testing.AllocsPerRun(100, func() { _, _ = q.Take(ctx, p, "k", 1) }); n != 0 {
			t.Errorf("take allocates %v times while %s", n, who)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = q.Wait(ctx, p, "k", 1) }); n != 0 {
			t.Errorf("wait allocates %v times while %s", n, who)
		}
	}
	check("nobody waits")
	occupy(t, q, p)
	check("somebody waits for another key")
}

func BenchmarkQueueTake(b *testing.B) {
	q, p := newQueue(b, stub{}, queue.Config{}), perSecond(b, 1, 1)
	for _, who := range []string{"nobody waits", "somebody waits"} {
		b.Run(who, func(b *testing.B) {
			if who == "somebody waits" {
				occupy(b, q, p)
			}
			b.ReportAllocs()
			ctx := b.Context()
			for b.Loop() {
				_, _ = q.Take(ctx, p, "k", 1)
			}
		})
	}
}
