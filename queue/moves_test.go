package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
)

func reserve(t *testing.T, l weir.Limiter, p *weir.Policy, key string, cost int64, ttl time.Duration) *weir.Reservation {
	t.Helper()
	r, err := weir.Reserve(t.Context(), l, ttl, weir.Charge{Policy: p, Key: key, Cost: cost})
	if err != nil || !r.Decision.Allowed {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

func set(t *testing.T, l weir.Limiter, old, new *weir.Policy) {
	t.Helper()
	if err := l.Set(t.Context(), old, new); err != nil {
		t.Fatal(err)
	}
}

// What goes through the Queue and gives something back moves turns forward.
func TestQueueTurnsMove(t *testing.T) {
	moves := map[string]struct {
		move  func(t *testing.T, q *queue.Queue, p *weir.Policy, r *weir.Reservation)
		after time.Duration // when the waiter for 3 is served
	}{
		"nothing": {func(*testing.T, *queue.Queue, *weir.Policy, *weir.Reservation) {}, 63 * time.Second},
		"commit": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, r *weir.Reservation) {
			if _, err := r.Commit(t.Context(), 9); err != nil {
				t.Fatal(err)
			}
		}, 2 * time.Second},
		"commit after the context": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, r *weir.Reservation) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := r.Commit(ctx, 9); err != nil {
				t.Fatal(err)
			}
		}, 2 * time.Second},
		"cancel": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, r *weir.Reservation) {
			if _, err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"renew": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, r *weir.Reservation) {
			if ok, err := r.Renew(t.Context(), 7*time.Second); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}, 10 * time.Second},
		"reset": {func(t *testing.T, q *queue.Queue, p *weir.Policy, r *weir.Reservation) {
			if err := weir.Reset(t.Context(), q, p, "k"); err != nil {
				t.Fatal(err)
			}
		}, 63 * time.Second}, // holds stay
		"set faster": {func(t *testing.T, q *queue.Queue, p *weir.Policy, _ *weir.Reservation) {
			set(t, q, p, perSecond(t, 2, 10))
		}, 61500 * time.Millisecond},
		"set larger": {func(t *testing.T, q *queue.Queue, p *weir.Policy, _ *weir.Reservation) {
			set(t, q, p, perSecond(t, 1, 20))
		}, 0},
	}
	for name, m := range moves {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 10)
				r := reserve(t, q, p, "k", 10, time.Minute)
				out := wait(t.Context(), q, p, "k", 3)
				m.move(t, q, p, r)
				if r := <-out; !r.granted(m.after) {
					t.Errorf("%+v, want after %v", r, m.after)
				}
			})
		})
	}
}

func TestQueueResetLetsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 4)
		mustTake(t, q, p, "k", 4)
		a, b := wait(t.Context(), q, p, "k", 3), wait(t.Context(), q, p, "k", 2)
		if err := weir.Reset(t.Context(), q, p, "k"); err != nil {
			t.Fatal(err)
		}
		if r := <-a; !r.granted(0) {
			t.Errorf("first: %+v", r)
		}
		if r := <-b; !r.granted(time.Second) {
			t.Errorf("second: %+v", r)
		}
	})
}

// A Set refuses those whom it leaves too costly, wherever they stand and whatever
// they brought, and nobody else.
func TestQueueSetBelowACost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, first := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 10, 20)
		second, third := perSecond(t, 10, 15), perSecond(t, 10, 3)
		other := newPolicy(t, "other", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 5})
		override, err := first.With(weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 30})
		if err != nil {
			t.Fatal(err)
		}
		mustTake(t, q, first, "k", 20)
		mustTake(t, q, other, "k", 5)
		head := wait(t.Context(), q, first, "k", 5)
		cheap := wait(t.Context(), q, first, "k", 2)
		set(t, q, first, second)
		costly := wait(t.Context(), q, first, "k", 4) // an outdated policy, and not the head
		exempt := wait(t.Context(), q, override, "k", 5)
		elsewhere := wait(t.Context(), q, other, "k", 5)
		set(t, q, second, third)
		for name, out := range map[string]<-chan waited{"the head": head, "another": costly} {
			if r := <-out; r.err != nil || r.d.Reason != weir.TooCostly || r.d.RetryAfter != weir.Never || r.after != 0 {
				t.Errorf("%s must be refused: %+v", name, r)
			}
		}
		if q.Waiting() != 3 {
			t.Errorf("%d wait, want 3", q.Waiting())
		}
		if r := <-cheap; !r.granted(1900 * time.Millisecond) { // 17 of the 20 in use are above the burst
			t.Errorf("whose cost still fits: %+v", r)
		}
		if r := <-exempt; r.err != nil || !r.d.Allowed {
			t.Errorf("who brings other limits: %+v", r)
		}
		if r := <-elsewhere; !r.granted(5 * time.Second) {
			t.Errorf("another policy: %+v", r)
		}
	})
}

func TestQueueSetToSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 3)
		mustTake(t, q, p, "k", 3)
		a, b := wait(t.Context(), q, p, "k", 1), wait(t.Context(), q, p, "k", 1)
		set(t, q, p, newPolicy(t, "p", weir.Limit{Rate: 3, Algorithm: weir.Concurrency}))
		for _, out := range []<-chan waited{a, b} {
			if r := <-out; !errors.Is(r.err, weir.ErrReserveOnly) || r.after != 0 {
				t.Errorf("slots cannot be waited for: %+v", r)
			}
		}
		checkEmpty(t, q)
	})
}

// Somebody waits for 4 of "busy", where one unit is there; "free" has 5, and
// "used" has none.
func TestQueueBatches(t *testing.T) {
	const yes, fits, no, never = "taken", "not_charged", "exhausted", "too_costly" // fits: but another charge was refused
	cases := []struct {
		op    weir.Op
		keys  string
		costs []int64
		want  []string
		left  int64 // of "free"
	}{
		{weir.TakeEach, "free busy used", []int64{2, 1, 1}, []string{yes, no, no}, 3},
		{weir.TakeEach, "free free free", []int64{2, 2, 2}, []string{yes, yes, no}, 1},
		{weir.TakeEach, "busy busy", []int64{1, 0}, []string{no, yes}, 5},
		{weir.TakeEach, "busy", []int64{6}, []string{never}, 5},
		{weir.TakeAll, "free busy", []int64{2, 1}, []string{fits, no}, 5},
		{weir.TakeAll, "busy used free", []int64{1, 1, 1}, []string{no, no, fits}, 5},
		{weir.TakeAll, "free busy", []int64{2, 0}, []string{yes, yes}, 3},
		{weir.TakeAll, "free free", []int64{2, 3}, []string{yes, yes}, 0},
		{weir.ReserveAll, "busy free", []int64{1, 1}, []string{no, fits}, 5},
		{weir.ReserveAll, "free", []int64{4}, []string{yes}, 1},
		{weir.PeekEach, "busy free used", []int64{1, 5, 1}, []string{no, yes, no}, 5},
	}
	for _, c := range cases {
		t.Run(fmt.Sprint(c.op, " ", c.keys, c.costs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 5)
				mustTake(t, q, p, "busy", 4)
				mustTake(t, q, p, "used", 5)
				out := wait(t.Context(), q, p, "busy", 4)
				b := &weir.Batch{Op: c.op}
				for i, key := range strings.Fields(c.keys) {
					b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: key, Cost: c.costs[i]})
				}
				if err := q.Do(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				for i, d := range b.Decisions {
					got := d.Reason.String()
					if d.Allowed {
						got = yes
					}
					if got != c.want[i] {
						t.Errorf("charge %d: %+v, want %s", i, d, c.want[i])
					}
					if c.want[i] == no && b.Charges[i].Key == "busy" && d.RetryAfter != 4*time.Second {
						t.Errorf("charge %d: %+v, want to count the waiter", i, d)
					}
				}
				if d, err := weir.Peek(t.Context(), q, p, "free", 1); err != nil || d.Remaining != c.left {
					t.Errorf("%d of free remain, want %d", d.Remaining, c.left)
				}
				if r := <-out; !r.granted(3 * time.Second) {
					t.Errorf("the waiter: %+v", r)
				}
			})
		})
	}
}

// A debit asks nobody: it is made while others wait, overtakes none of them and
// wakes none, but what they wait for comes later.
func TestQueueLetsDebitsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 5)
		mustTake(t, q, p, "k", 5)
		a, b := wait(t.Context(), q, p, "k", 2), wait(t.Context(), q, p, "k", 1)
		synctest.Wait()
		before := store.takes.Load()
		debit := &weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 9}}}
		if err := q.Do(t.Context(), debit); err != nil {
			t.Fatal(err)
		}
		if d := debit.Decisions[0]; !d.Allowed || d.Remaining != 0 || d.ResetAfter != 14*time.Second {
			t.Errorf("a debit behind two who wait: %+v", d)
		}
		synctest.Wait()
		if n := store.takes.Load() - before; n != 0 {
			t.Errorf("a debit woke those who wait: the limiter was called %d times", n)
		}
		if r := <-a; !r.grantedBy(11*time.Second, maxJitter) {
			t.Errorf("first: %+v", r)
		}
		if r := <-b; !r.granted(12 * time.Second) {
			t.Errorf("second: %+v", r)
		}
		checkEmpty(t, q)
	})
}

// Errors are those that the limiter returns if nobody waits, and nothing is
// charged.
func TestQueueBatchErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 5)
		slots := newPolicy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
		mustTake(t, q, p, "busy", 5)
		out := wait(t.Context(), q, p, "busy", 1)
		busy, free := weir.Charge{Policy: p, Key: "busy", Cost: 1}, weir.Charge{Policy: p, Key: "free", Cost: 1}
		slot := weir.Charge{Policy: slots, Key: "k", Cost: 1}
		for _, c := range []struct {
			b    weir.Batch
			want error
		}{
			{weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{free, busy, slot}}, weir.ErrReserveOnly},
			{weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{free, busy, slot}}, weir.ErrReserveOnly},
			{weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{free, busy}, TTL: 2 * time.Hour}, weir.ErrInvalid},
			{weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{free, busy, {Policy: p, Cost: -1}}}, weir.ErrInvalid},
			{weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{free, {Key: "busy"}}}, weir.ErrInvalid},
			{weir.Batch{Op: weir.ResetEach, Charges: []weir.Charge{{Key: "busy"}}}, weir.ErrInvalid},
			{weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Key: "busy"}}}, weir.ErrInvalid},
			{weir.Batch{Op: weir.Settle, Charges: []weir.Charge{busy}}, weir.ErrInvalid},
			{weir.Batch{Op: 99, Charges: []weir.Charge{busy}}, weir.ErrInvalid},
		} {
			if err := q.Do(t.Context(), &c.b); !sameError(err, c.want) {
				t.Errorf("op %d: %v, want %v", c.b.Op, err, c.want)
			}
		}
		if _, err := q.Take(t.Context(), nil, "busy", 1); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("no policy: %v", err)
		}
		if d := mustTake(t, q, p, "free", 1); d.Remaining != 4 {
			t.Errorf("a batch with an error charged: %+v", d)
		}
		<-out
	})
}
