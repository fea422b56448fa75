package queue_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
	"github.com/weirlimit/weir/store/memstore"
)

// asDecision returns the refusal in err as a decision.
func asDecision(d weir.Decision, err error) (weir.Decision, error) {
	if denied, ok := errors.AsType[*weir.DeniedError](err); ok {
		return denied.Decision, nil
	}
	return d, err
}

func newPolicy(t testing.TB, name string, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// perSecond returns a policy of one GCRA limit.
func perSecond(t testing.TB, rate, burst int64) *weir.Policy {
	t.Helper()
	return newPolicy(t, "p", weir.Limit{Rate: rate, Per: weir.Every(time.Second), Burst: burst})
}

func newStore(t testing.TB) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newQueue(t testing.TB, l weir.Limiter, c queue.Config) *queue.Queue {
	t.Helper()
	q, err := queue.New(l, c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// mustTake takes what has to be there.
func mustTake(t testing.TB, l weir.Limiter, p *weir.Policy, key string, cost int64) weir.Decision {
	t.Helper()
	d := tryTake(t, l, p, key, cost)
	if !d.Allowed {
		t.Fatalf("take %d of %q: %+v", cost, key, d)
	}
	return d
}

func tryTake(t testing.TB, l weir.Limiter, p *weir.Policy, key string, cost int64) weir.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), p, key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// waited is how a Wait ended, and when.
type waited struct {
	d     weir.Decision
	err   error
	after time.Duration
}

// granted says whether it was granted, and after so long.
func (w waited) granted(after time.Duration) bool {
	return w.err == nil && w.d.Allowed && w.after == after
}

// maxJitter is how much longer who was refused after RetryAfter may wait the next time.
const maxJitter = 50 * time.Millisecond

// grantedBy says whether it was granted after so long, or a little later.
func (w waited) grantedBy(after, late time.Duration) bool {
	return w.err == nil && w.d.Allowed && w.after >= after && w.after <= after+late
}

// wait starts a Wait and returns, when it stands in line, where its outcome will
// come.
func wait(ctx context.Context, q *queue.Queue, p *weir.Policy, key string, cost int64) <-chan waited {
	out := make(chan waited, 1)
	start := time.Now()
	go func() {
		d, err := asDecision(q.Wait(ctx, p, key, cost))
		out <- waited{d, err, time.Since(start)}
	}()
	synctest.Wait()
	return out
}

// checkEmpty checks that nothing is left of those who waited.
func checkEmpty(t testing.TB, q *queue.Queue) {
	t.Helper()
	if lines := reflect.ValueOf(q).Elem().FieldByName("lines").Len(); q.Waiting() != 0 || lines != 0 {
		t.Errorf("%d wait in %d lines, want none", q.Waiting(), lines)
	}
}

func TestQueueTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 10, 1)
		var outs []<-chan waited
		for range 5 {
			outs = append(outs, wait(t.Context(), q, p, "k", 1))
		}
		if q.Waiting() != 4 {
			t.Errorf("%d wait, want 4", q.Waiting())
		}
		for i, out := range outs {
			if r := <-out; !r.granted(time.Duration(i) * 100 * time.Millisecond) {
				t.Errorf("waiter %d: %+v", i, r)
			}
		}
		checkEmpty(t, q)
	})
}

func TestQueueIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 5)
		other := newPolicy(t, "other", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 5})
		mustTake(t, q, p, "k", 4)
		out := wait(ctx, q, p, "k", 3) // due in 2 s; one unit is there

		peek, err := weir.Peek(ctx, q, p, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := weir.Reserve(ctx, q, 0, weir.Charge{Policy: p, Key: "k", Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := weir.Decision{Reason: weir.Exhausted, Limit: 5, RetryAfter: 3 * time.Second, ResetAfter: 4 * time.Second}
		for what, d := range map[string]weir.Decision{"take": tryTake(t, q, p, "k", 1), "peek": peek, "reserve": r.Decision} {
			if d != want {
				t.Errorf("%s behind a waiter: %+v, want %+v", what, d, want)
			}
		}
		if d := mustTake(t, q, p, "k", 0); d.Remaining != 1 {
			t.Errorf("taking nothing overtakes nobody: %+v", d)
		}
		mustTake(t, q, p, "another key", 5)
		mustTake(t, q, other, "k", 5)

		time.Sleep(3*time.Second - 1)
		if d := tryTake(t, q, p, "k", 1); d.Allowed || d.RetryAfter != 1 {
			t.Errorf("one nanosecond early: %+v", d)
		}
		time.Sleep(time.Nanosecond)
		mustTake(t, q, p, "k", 1)
		if r := <-out; !r.granted(2 * time.Second) {
			t.Errorf("the waiter: %+v", r)
		}
	})
}

// At the edge of a window there is room for the waiter and for others who come at
// the same instant. Whoever of them runs first, the waiter is served first, and
// then the others.
func TestQueueServesTheDueFirst(t *testing.T) {
	window := weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.FixedWindow}
	ops := map[string]struct {
		do        func(ctx context.Context, q *queue.Queue, p *weir.Policy) (remaining int64, err error)
		remaining int64
	}{
		"take": {func(ctx context.Context, q *queue.Queue, p *weir.Policy) (int64, error) {
			d, err := q.Take(ctx, p, "k", 1)
			return d.Remaining, errors.Join(err, d.Err())
		}, 5},
		"peek": {func(ctx context.Context, q *queue.Queue, p *weir.Policy) (int64, error) {
			d, err := weir.Peek(ctx, q, p, "k", 1)
			return d.Remaining, errors.Join(err, d.Err())
		}, 6},
		"reserve": {func(ctx context.Context, q *queue.Queue, p *weir.Policy) (int64, error) {
			r, err := weir.Reserve(ctx, q, 0, weir.Charge{Policy: p, Key: "k", Cost: 2})
			return r.Decision.Remaining, errors.Join(err, r.Decision.Err())
		}, 4},
		"reset": {func(ctx context.Context, q *queue.Queue, p *weir.Policy) (int64, error) {
			if err := weir.Reset(ctx, q, p, "k"); err != nil {
				return 0, err
			}
			d, err := weir.Peek(ctx, q, p, "k", 1)
			return d.Remaining, err
		}, 10},
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, p := newQueue(t, newStore(t), queue.Config{}), newPolicy(t, "p", window)
				for range 50 {
					mustTake(t, q, p, "k", 10)
					a, b := wait(t.Context(), q, p, "k", 3), wait(t.Context(), q, p, "k", 1)
					time.Sleep(time.Second) // to the edge, with the head
					if remaining, err := op.do(t.Context(), q, p); err != nil || remaining != op.remaining {
						t.Fatalf("%d remain, %v; want %d", remaining, err, op.remaining)
					}
					if r := <-a; !r.granted(time.Second) || r.d.Remaining != 7 {
						t.Fatalf("first waiter: %+v", r)
					}
					if r := <-b; !r.granted(time.Second) || r.d.Remaining != 6 {
						t.Fatalf("second waiter: %+v", r)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestQueueLeaverLeavesNoHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 10)
		mustTake(t, q, p, "k", 10)
		ctx, cancel := context.WithCancel(t.Context())
		first := wait(ctx, q, p, "k", 8)
		second := wait(t.Context(), q, p, "k", 2)
		time.Sleep(time.Second)
		cancel()
		if r := <-first; !errors.Is(r.err, context.Canceled) || r.d.Allowed {
			t.Errorf("cancelled: %+v", r)
		}
		if r := <-second; !r.granted(2 * time.Second) {
			t.Errorf("the one behind must not wait for who left: %+v", r)
		}
		if d := tryTake(t, q, p, "k", 1); d.Remaining != 0 || d.RetryAfter != time.Second {
			t.Errorf("who left must have taken nothing: %+v", d)
		}
	})
}

// Of 64 who wait one unit apart, three quarters leave at various times, the head
// among them. The others are served as if those had never come.
func TestQueueCancellationStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 10, 1)
		mustTake(t, q, p, "k", 1)
		var stay []<-chan waited
		var gone []<-chan waited
		for i := range 64 {
			if i%4 == 3 {
				stay = append(stay, wait(t.Context(), q, p, "k", 1))
				continue
			}
			ctx, cancel := context.WithCancel(t.Context())
			gone = append(gone, wait(ctx, q, p, "k", 1))
			time.AfterFunc(time.Duration(i%7)*time.Millisecond, cancel)
		}
		for _, out := range gone {
			if r := <-out; !errors.Is(r.err, context.Canceled) || r.after > 6*time.Millisecond {
				t.Errorf("cancelled: %+v", r)
			}
		}
		for i, out := range stay {
			if r := <-out; !r.granted(time.Duration(i+1) * 100 * time.Millisecond) {
				t.Errorf("waiter %d of those who stayed: %+v", i, r)
			}
		}
		checkEmpty(t, q)
	})
}

func TestQueueFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 3)
		slots := newPolicy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
		for _, key := range []string{"empty", "line"} {
			mustTake(t, q, p, key, 3)
		}
		queued := wait(t.Context(), q, p, "line", 2)
		start := time.Now()
		hurried, cancel := context.WithTimeout(t.Context(), 3*time.Second-1)
		defer cancel()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			name   string
			ctx    context.Context
			policy *weir.Policy
			key    string
			cost   int64
			reason weir.Reason
			retry  time.Duration
			err    error
		}{
			{"deadline before the turn", hurried, p, "empty", 3, weir.TooLate, 3 * time.Second, nil},
			{"deadline before the turn in line", hurried, p, "line", 1, weir.TooLate, 3 * time.Second, nil},
			{"more than the burst", t.Context(), p, "empty", 4, weir.TooCostly, weir.Never, nil},
			{"more than the burst in line", t.Context(), p, "line", 4, weir.TooCostly, weir.Never, nil},
			{"a context that has ended", over, p, "fresh", 1, 0, 0, context.Canceled},
			{"slots", t.Context(), slots, "k", 1, 0, 0, weir.ErrReserveOnly},
			{"no policy", t.Context(), nil, "k", 1, 0, 0, weir.ErrInvalid},
			{"negative", t.Context(), p, "k", -1, 0, 0, weir.ErrInvalid},
			{"long key", t.Context(), p, strings.Repeat("k", 257), 1, 0, 0, weir.ErrInvalid},
		} {
			d, err := asDecision(q.Wait(c.ctx, c.policy, c.key, c.cost))
			if d.Allowed || d.Reason != c.reason || d.RetryAfter != c.retry || !sameError(err, c.err) {
				t.Errorf("%s: %+v, %v", c.name, d, err)
			}
		}
		if d, err := asDecision(q.Wait(t.Context(), p, "line", 0)); err != nil || !d.Allowed {
			t.Errorf("nothing is always there: %+v, %v", d, err)
		}
		if time.Since(start) != 0 {
			t.Errorf("that took %v", time.Since(start))
		}
		enough, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if r := <-wait(enough, q, p, "line", 1); !r.granted(3 * time.Second) {
			t.Errorf("a deadline that just suffices: %+v", r)
		}
		if r := <-queued; !r.granted(2 * time.Second) {
			t.Errorf("the first in line: %+v", r)
		}
		checkEmpty(t, q)
	})
}

// sameError says whether err is want, or of its type.
func sameError(err, want error) bool {
	return errors.Is(err, want) || err != nil && reflect.TypeOf(err) == reflect.TypeOf(want)
}

// A head whose context ends at the instant of its turn has its unit.
func TestQueueGrantBeatsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 1)
		for range 100 {
			mustTake(t, q, p, "k", 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if d, err := asDecision(q.Wait(ctx, p, "k", 1)); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			cancel()
			if d := tryTake(t, q, p, "k", 1); d.Allowed {
				t.Fatal("the unit was granted but not taken")
			}
			time.Sleep(time.Second)
		}
	})
}

// A head that is cancelled at the instant of its turn has its unit and no error, or
// an error and nothing taken.
func TestQueueGrantOrCancelIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 1)
		for range 100 {
			mustTake(t, q, p, "k", 1)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			d, err := asDecision(q.Wait(ctx, p, "k", 1))
			if d.Allowed == (err != nil) {
				t.Fatalf("%+v with %v", d, err)
			}
			if free := tryTake(t, q, p, "k", 1).Allowed; free == d.Allowed {
				t.Fatalf("granted %v, but a unit free: %v", d.Allowed, free)
			}
			time.Sleep(time.Second)
		}
	})
}

// The end of everybody's context at once asks the limiter for nobody.
func TestQueueEndOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 1)
		mustTake(t, q, p, "k", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var outs []<-chan waited
		for range 20 {
			outs = append(outs, wait(ctx, q, p, "k", 1))
		}
		takes := store.takes.Load()
		cancel()
		for _, out := range outs {
			if r := <-out; !errors.Is(r.err, context.Canceled) {
				t.Errorf("%+v", r)
			}
		}
		if calls := store.takes.Load() - takes; calls != 0 {
			t.Errorf("the limiter was called %d times for callers that left", calls)
		}
		checkEmpty(t, q)
	})
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{MaxPerKey: 3, MaxTotal: 5}), perSecond(t, 1, 1)
		for _, key := range []string{"a", "b", "c"} {
			mustTake(t, q, p, key, 1)
		}
		var wg sync.WaitGroup
		refused := make(chan waited, 100)
		flood := func(key string) {
			for range 10 {
				wg.Go(func() {
					start := time.Now()
					d, err := asDecision(q.Wait(t.Context(), p, key, 1))
					if err != nil || !d.Allowed {
						refused <- waited{d, err, time.Since(start)}
					}
				})
			}
			synctest.Wait()
		}
		expect := func(n int, retry time.Duration) {
			t.Helper()
			if len(refused) != n {
				t.Errorf("%d were refused, want %d", len(refused), n)
			}
			for range len(refused) {
				if r := <-refused; r.err != nil || r.d.Reason != weir.QueueFull || r.d.RetryAfter != retry || r.after != 0 {
					t.Errorf("refused: %+v, want %v", r, retry)
				}
			}
		}
		flood("a")
		expect(7, 4*time.Second) // behind three
		flood("b")
		expect(8, 3*time.Second) // behind two
		flood("c")
		expect(10, time.Second) // behind nobody
		if q.Waiting() != 5 {
			t.Errorf("%d wait, want 5", q.Waiting())
		}
		wg.Wait()
		checkEmpty(t, q)
		if d, err := asDecision(q.Wait(t.Context(), p, "c", 1)); err != nil || !d.Allowed {
			t.Errorf("when the others had their turns: %+v, %v", d, err)
		}
	})
}

func TestQueueConfig(t *testing.T) {
	_, err := queue.New(newStore(t), queue.Config{MaxPerKey: -1, MaxTotal: -2})
	if err == nil || !strings.Contains(err.Error(), "MaxPerKey -1") || !strings.Contains(err.Error(), "MaxTotal -2") {
		t.Errorf("%v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1000, 1)
		var wg sync.WaitGroup
		var full atomic.Int64
		for key := range 160 {
			for range 65 {
				wg.Go(func() {
					if d, err := asDecision(q.Wait(t.Context(), p, fmt.Sprint(key), 1)); err != nil || d.Reason == weir.QueueFull {
						full.Add(1)
					}
				})
			}
		}
		synctest.Wait()
		if q.Waiting() != 10_000 {
			t.Errorf("%d wait, want 10,000", q.Waiting())
		}
		mustTake(t, q, p, "one more", 1)
		for range 65 {
			wg.Go(func() {
				if d, err := asDecision(q.Wait(t.Context(), p, "one more", 1)); err != nil || d.Reason == weir.QueueFull {
					full.Add(1)
				}
			})
		}
		wg.Wait()
		if want := int64(160*65 - 160 - 10_000 + 65); full.Load() != want {
			t.Errorf("%d found no place, want %d", full.Load(), want)
		}
		checkEmpty(t, q)
	})
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		mustTake(t, q, p, "k", 1)
		var outs []<-chan waited
		for range 70 {
			outs = append(outs, wait(ctx, q, p, "k", 1))
		}
		if q.Waiting() != 64 {
			t.Errorf("%d wait for one key, want 64", q.Waiting())
		}
		cancel()
		for _, out := range outs {
			<-out
		}
	})
}
