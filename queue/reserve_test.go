package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
)

func charge(p *weir.Policy, key string, cost int64) weir.Charge {
	return weir.Charge{Policy: p, Key: key, Cost: cost}
}

// reserved is how a waiting Reserve ended, and when.
type reserved struct {
	r     *weir.Reservation
	err   error
	after time.Duration
}

func (r reserved) granted(after time.Duration) bool {
	return r.err == nil && r.r.Decision.Allowed && r.after == after
}

// refused says whether it was refused for a reason, and after so long.
func (r reserved) refused(reason weir.Reason, after time.Duration) bool {
	denied, ok := errors.AsType[*weir.DeniedError](r.err)
	return ok && r.r == nil && denied.Decision.Reason == reason && r.after == after
}

// reserveWaiting starts a Reserve and returns, when it stands in line, where its outcome will come.
func reserveWaiting(ctx context.Context, q *queue.Queue, ttl time.Duration, charges ...weir.Charge) <-chan reserved {
	out := make(chan reserved, 1)
	start := time.Now()
	go func() {
		r, err := q.Reserve(ctx, ttl, charges...)
		out <- reserved{r, err, time.Since(start)}
	}()
	synctest.Wait()
	return out
}

// takeWaiting is reserveWaiting for a TakeAll.
func takeWaiting(ctx context.Context, q *queue.Queue, charges ...weir.Charge) <-chan waited {
	out := make(chan waited, 1)
	start := time.Now()
	go func() {
		b := weir.Batch{Op: weir.TakeAll, Charges: charges}
		err := q.WaitAll(ctx, &b)
		d := weir.Decision{}
		if err == nil {
			d = b.Decisions[b.Worst()]
		}
		d, err = asDecision(d, err)
		out <- waited{d, err, time.Since(start)}
	}()
	synctest.Wait()
	return out
}

func classed(t *testing.T, class string, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p := newPolicy(t, "p", limits...)
	p.Compiled().Class = class
	return p
}

// remaining returns what is left of a key.
func remaining(t *testing.T, l weir.Limiter, p *weir.Policy, key string) int64 {
	t.Helper()
	d, err := weir.Peek(t.Context(), l, p, key, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestReserveTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 10, 1)
		var outs []<-chan reserved
		for range 5 {
			outs = append(outs, reserveWaiting(t.Context(), q, 50*time.Millisecond, charge(p, "k", 1)))
		}
		if q.Waiting() != 4 {
			t.Errorf("%d wait, want 4", q.Waiting())
		}
		for i, out := range outs {
			r := <-out
			if !r.granted(time.Duration(i) * 150 * time.Millisecond) { // held for 50 ms, and then replenished
				t.Errorf("reservation %d: %+v", i, r)
			}
		}
		checkEmpty(t, q)
	})
}

// Callers of Wait, WaitAll and Reserve stand in one line.
func TestReserveAmongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 3)
		mustTake(t, q, p, "k", 3)
		a := wait(ctx, q, p, "k", 1)
		b := reserveWaiting(ctx, q, time.Hour, charge(p, "k", 1))
		c := takeWaiting(ctx, q, charge(p, "k", 1), charge(p, "other", 1))
		d := reserveWaiting(ctx, q, time.Hour, charge(p, "k", 1))
		for i := range 4 {
			if q.Waiting() != 4-i {
				t.Errorf("%d wait after %d turns", q.Waiting(), i)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		r := <-b
		for name, ok := range map[string]bool{
			"wait": (<-a).granted(time.Second), "reserve": r.granted(2 * time.Second),
			"take all": (<-c).granted(3 * time.Second), "last": (<-d).granted(4 * time.Second),
		} {
			if !ok {
				t.Errorf("%s: not at its turn", name)
			}
		}
		if left := remaining(t, q, p, "other"); left != 3 { // its unit came back after a second
			t.Errorf("%d of the other key are left", left)
		}
		checkEmpty(t, q)
	})
}

func TestReserveFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{MaxPerKey: 1}), perSecond(t, 1, 3)
		slots := newPolicy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
		for _, key := range []string{"empty", "line"} {
			mustTake(t, q, p, key, 3)
		}
		queued := reserveWaiting(t.Context(), q, 0, charge(p, "line", 2))
		hurried, cancel := context.WithTimeout(t.Context(), 3*time.Second-1)
		defer cancel()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			name    string
			ctx     context.Context
			ttl     time.Duration
			charges []weir.Charge
			reason  weir.Reason
			retry   time.Duration
			err     error
		}{
			{"deadline before the turn", hurried, 0, []weir.Charge{charge(p, "fresh", 1), charge(p, "empty", 3)}, weir.TooLate, 3 * time.Second, nil},
			{"more than the burst", t.Context(), 0, []weir.Charge{charge(p, "empty", 1), charge(p, "fresh", 4)}, weir.TooCostly, weir.Never, nil},
			{"more than the burst together", t.Context(), 0, []weir.Charge{charge(p, "fresh", 2), charge(p, "fresh", 2)}, weir.TooCostly, weir.Never, nil},
			{"a full line", t.Context(), 0, []weir.Charge{charge(p, "fresh", 1), charge(p, "line", 1)}, weir.QueueFull, 3 * time.Second, nil},
			{"a context that has ended", over, 0, []weir.Charge{charge(p, "fresh", 1)}, 0, 0, context.Canceled},
			{"no policy", t.Context(), 0, []weir.Charge{{Key: "fresh", Cost: 1}}, 0, 0, weir.ErrInvalid},
			{"negative", t.Context(), 0, []weir.Charge{charge(p, "fresh", -1)}, 0, 0, weir.ErrInvalid},
			{"a ttl that is too long", t.Context(), 2 * time.Hour, []weir.Charge{charge(p, "fresh", 1)}, 0, 0, weir.ErrInvalid},
			{"slots for ever, with units", t.Context(), weir.NoExpiry, []weir.Charge{charge(slots, "k", 1), charge(p, "fresh", 1)}, 0, 0, weir.ErrInvalid},
		} {
			out := <-reserveWaiting(c.ctx, q, c.ttl, c.charges...)
			d, err := asDecision(weir.Decision{}, out.err)
			if out.r != nil || d.Reason != c.reason || d.RetryAfter != c.retry || !sameError(err, c.err) || out.after != 0 {
				t.Errorf("%s: %+v, %+v", c.name, out, d)
			}
		}
		if left := remaining(t, q, p, "fresh"); left != 3 {
			t.Errorf("a refusal has charged: %d are left", left)
		}
		if out := <-reserveWaiting(t.Context(), q, 0, charge(p, "line", 0)); !out.granted(0) {
			t.Errorf("nothing is always there: %+v", out)
		}
		if out := <-reserveWaiting(t.Context(), q, 0); !out.granted(0) {
			t.Errorf("no charges: %+v", out)
		}
		if out := <-queued; !out.granted(2 * time.Second) {
			t.Errorf("the first in line: %+v", out)
		}
		checkEmpty(t, q)
	})
}

func TestWaitAllRefusesOtherBatches(t *testing.T) {
	q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 3)
	slots := newPolicy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
	for _, c := range []struct {
		b    weir.Batch
		want string
	}{
		{weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{charge(p, "k", 1)}}, "only TakeAll and ReserveAll"},
		{weir.Batch{Op: weir.Settle}, "only TakeAll and ReserveAll"},
		{weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{charge(p, "k", 1)}, Used: []int64{1}}, "Batch.Used"},
		{weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{charge(slots, "k", 1)}}, "use Reserve"},
	} {
		if err := q.WaitAll(t.Context(), &c.b); !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.b, err)
		}
	}
}

func TestReserveCancelledChargesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 10)
		mustTake(t, q, p, "k", 10)
		ctx, cancel := context.WithCancel(t.Context())
		first := reserveWaiting(ctx, q, 0, charge(p, "k", 8), charge(p, "other", 1))
		second := reserveWaiting(t.Context(), q, 0, charge(p, "k", 2), charge(p, "other", 1))
		time.Sleep(time.Second)
		cancel()
		if out := <-first; !errors.Is(out.err, context.Canceled) || out.r != nil || out.after != time.Second {
			t.Errorf("cancelled: %+v", out)
		}
		out := <-second
		if !out.granted(2 * time.Second) {
			t.Errorf("the one behind must not wait for who left: %+v", out)
		}
		if left := remaining(t, q, p, "other"); left != 9 {
			t.Errorf("%d of the other key are left, want 9", left)
		}
		if _, err := out.r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, other := remaining(t, q, p, "k"), remaining(t, q, p, "other"); left != 2 || other != 10 {
			t.Errorf("%d and %d are left, want 2 and 10", left, other)
		}
		checkEmpty(t, q)
	})
}

// A head whose deadline is the instant of its turn has a reservation. One that is cancelled then has a
// reservation or an error, and with the error nothing is held.
func TestReserveGrantBeatsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 1)
		for i := range 100 {
			mustTake(t, q, p, "k", 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if i%2 == 1 {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
			}
			out := <-reserveWaiting(ctx, q, 0, charge(p, "k", 1))
			cancel()
			if i%2 == 0 && out.err != nil || (out.r == nil) == (out.err == nil) {
				t.Fatalf("%d: %+v", i, out)
			}
			if free := remaining(t, q, p, "k") == 1; free == (out.err == nil) {
				t.Fatalf("%d: %+v, but a unit is free: %v", i, out, free)
			}
			if out.r != nil {
				if _, err := out.r.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		checkEmpty(t, q)
	})
}

// What is given back at one key lets the waiting reservation go at that very instant, also if it then lacks
// units of another one for a while.
func TestReserveTurnsMove(t *testing.T) {
	moves := map[string]struct {
		move  func(t *testing.T, q *queue.Queue, p *weir.Policy, a, b *weir.Reservation)
		after time.Duration
	}{
		"nothing":    {func(*testing.T, *queue.Queue, *weir.Policy, *weir.Reservation, *weir.Reservation) {}, 63 * time.Second},
		"settle one": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, a, _ *weir.Reservation) { commit(t, a, 3) }, 33 * time.Second},
		"settle the other": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, _, b *weir.Reservation) {
			commit(t, b, 3)
		}, 63 * time.Second},
		"settle both": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, a, b *weir.Reservation) {
			commit(t, a, 3)
			synctest.Wait() // it waits for the other now
			time.Sleep(2 * time.Second)
			commit(t, b, 3)
		}, 2 * time.Second},
		"renew": {func(t *testing.T, _ *queue.Queue, _ *weir.Policy, a, _ *weir.Reservation) {
			if ok, err := a.Renew(t.Context(), 5*time.Second); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}, 33 * time.Second},
		"set": {func(t *testing.T, q *queue.Queue, p *weir.Policy, _, _ *weir.Reservation) {
			set(t, q, p, perSecond(t, 1, 20))
		}, 0},
	}
	for name, m := range moves {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 10)
				a, b := reserve(t, q, p, "a", 10, time.Minute), reserve(t, q, p, "b", 10, 30*time.Second)
				out := reserveWaiting(t.Context(), q, 0, charge(p, "b", 3), charge(p, "a", 3))
				m.move(t, q, p, a, b)
				if out := <-out; !out.granted(m.after) {
					t.Errorf("%+v, want after %v", out, m.after)
				}
				checkEmpty(t, q)
			})
		})
	}
}

func commit(t *testing.T, r *weir.Reservation, used ...int64) {
	t.Helper()
	if _, err := r.Commit(t.Context(), used...); err != nil {
		t.Error(err)
	}
}

// Reserve 1,000, settle 137: the next one has the 863 at that instant.
func TestReserveGetsWhatIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, newStore(t), queue.Config{})
		p := newPolicy(t, "p", weir.Limit{Rate: 1000, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow})
		r := reserve(t, q, p, "k", 1000, time.Minute)
		out := reserveWaiting(t.Context(), q, 0, charge(p, "k", 863))
		time.Sleep(7 * time.Second)
		commit(t, r, 137)
		if out := <-out; !out.granted(7 * time.Second) {
			t.Errorf("%+v", out)
		}
		if left := remaining(t, q, p, "k"); left != 0 {
			t.Errorf("%d are left", left)
		}
	})
}

// A Set refuses the waiting batch whose cost it leaves too high, in whichever line it stands.
func TestReserveSetBelowACost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 10)
		other := newPolicy(t, "other", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 10})
		mustTake(t, q, p, "k", 10)
		head := reserveWaiting(t.Context(), q, 0, charge(other, "k", 2), charge(p, "k", 2))
		costly := reserveWaiting(t.Context(), q, 0, charge(other, "k", 5), charge(p, "k", 1))
		set(t, q, other, newPolicy(t, "other", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 4}))
		if out := <-costly; !out.refused(weir.TooCostly, 0) {
			t.Errorf("whose cost cannot fit any more: %+v", out)
		}
		if out := <-head; !out.granted(2 * time.Second) {
			t.Errorf("whose cost still fits: %+v", out)
		}
		checkEmpty(t, q)
	})
}

// A caller that lacks units of its own does not hold up those with whom it shares a key, nor is it
// overtaken at the key that it waits for.
func TestReserveHoldsUpOnlyWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 5)
		mustTake(t, q, p, "alice", 5)
		alice := reserveWaiting(ctx, q, 0, charge(p, "all", 1), charge(p, "alice", 3))
		if out := <-takeWaiting(ctx, q, charge(p, "all", 1), charge(p, "bob", 1)); !out.granted(0) {
			t.Errorf("another user: %+v", out)
		}
		mustTake(t, q, p, "all", 1)
		if d := tryTake(t, q, p, "alice", 1); d.Allowed || d.RetryAfter != 4*time.Second {
			t.Errorf("who comes after alice: %+v", d)
		}
		mustTake(t, q, p, "all", 3)
		time.Sleep(time.Second)
		if d := mustTake(t, q, p, "all", 1); d.Remaining != 0 {
			t.Fatalf("%+v", d)
		}
		// Now the shared key is the one that takes longer: from 3 s on alice waits for it, before whoever comes
		// later.
		debit := &weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{charge(p, "all", 4)}}
		if err := q.Do(ctx, debit); err != nil {
			t.Fatal(err)
		}
		carol := reserveWaiting(ctx, q, 0, charge(p, "all", 1), charge(p, "carol", 1))
		if out := <-alice; !out.granted(6 * time.Second) {
			t.Errorf("alice: %+v", out)
		}
		if out := <-carol; !out.granted(6 * time.Second) {
			t.Errorf("carol: %+v", out)
		}
		checkEmpty(t, q)
	})
}

// Callers that pass the same charges in different orders, and some of them, are all served.
func TestReserveInCircles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relay{Limiter: newStore(t)}
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 2)
		keys := []string{"a", "b", "c"}
		for _, key := range keys {
			mustTake(t, q, p, key, 2)
		}
		var outs []<-chan reserved
		for i := range 12 {
			own := []weir.Charge{charge(p, keys[i%3], 1), charge(p, keys[(i+1)%3], 1), charge(p, keys[(i+2)%3], 1)}
			if i%2 == 1 {
				slices.Reverse(own)
			}
			outs = append(outs, reserveWaiting(t.Context(), q, time.Nanosecond, own[:1+i%3]...))
		}
		var last time.Duration
		for i, out := range outs {
			r := <-out
			if r.err != nil {
				t.Errorf("%d: %v", i, r.err)
			}
			last = max(last, r.after)
		}
		if last > 12*time.Second+time.Microsecond { // if each had waited for the one before
			t.Errorf("the last one was served after %v", last)
		}
		checkEmpty(t, q)
	})
}

// Of callers with the same charges, none is served before one that came earlier, whatever they wait for.
func TestReserveIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 10, 5)
		slow := newPolicy(t, "slow", weir.Limit{Rate: 7, Per: weir.Every(time.Second), Burst: 3})
		mustTake(t, q, p, "k", 5)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				charges := []weir.Charge{charge(p, "k", 1+int64(i)%5), charge(slow, "k", 1+int64(i)%3)}
				if i%2 == 1 {
					slices.Reverse(charges)
				}
				b := weir.Batch{Op: []weir.Op{weir.TakeAll, weir.ReserveAll}[i/2%2], Charges: charges, TTL: 10 * time.Millisecond}
				if err := q.WaitAll(t.Context(), &b); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
			time.Sleep(time.Duration(i%4) * 10 * time.Millisecond)
		}
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("the order is %v", order)
		}
		checkEmpty(t, q)
	})
}

// Callers of one class do not stand behind those of another, and what one gives back is for all.
func TestReserveClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, limit := t.Context(), weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 5}
		q := newQueue(t, newStore(t), queue.Config{MaxPerKey: 1})
		realtime, backfill := classed(t, "realtime", limit), classed(t, "backfill", limit)
		mustTake(t, q, realtime, "k", 3)
		r := reserve(t, q, realtime, "k", 1, time.Minute)
		greedy := reserveWaiting(ctx, q, 0, charge(backfill, "k", 4))

		mustTake(t, q, realtime, "k", 1)
		if d := tryTake(t, q, backfill, "k", 1); d.Allowed {
			t.Errorf("who comes later in a class overtakes: %+v", d)
		}
		urgent := reserveWaiting(ctx, q, 0, charge(realtime, "k", 1))
		if q.Waiting() != 2 {
			t.Fatalf("%d wait, want one of each class", q.Waiting())
		}
		if out := <-urgent; !out.granted(time.Second) {
			t.Errorf("a class behind another: %+v", out)
		} else {
			commit(t, out.r, 1)
		}
		commit(t, r, 0)
		if out := <-greedy; !out.granted(4 * time.Second) { // 5 in use at 0 and one more at 1, less one that came back
			t.Errorf("the other class: %+v", out)
		}
		checkEmpty(t, q)

		mustTake(t, q, backfill, "held", 1)
		r = reserve(t, q, realtime, "held", 4, time.Minute)
		greedy, urgent = reserveWaiting(ctx, q, 0, charge(backfill, "held", 2)), reserveWaiting(ctx, q, 0, charge(realtime, "held", 2))
		commit(t, r, 0)
		if a, b := <-greedy, <-urgent; !a.granted(0) || !b.granted(0) {
			t.Errorf("a settled reservation lets the heads of all classes go: %+v, %+v", a, b)
		}
		checkEmpty(t, q)
	})
}

// A Set makes the waiting callers of all classes try again.
func TestReserveClassesSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 5}
		q := newQueue(t, newStore(t), queue.Config{})
		plain, classes := classed(t, "", limit), []*weir.Policy{classed(t, "realtime", limit), classed(t, "backfill", limit)}
		mustTake(t, q, plain, "k", 5)
		var outs, costly []<-chan reserved
		for _, p := range classes {
			outs = append(outs, reserveWaiting(t.Context(), q, 0, charge(p, "k", 1)))
			costly = append(costly, reserveWaiting(t.Context(), q, 0, charge(p, "k", 4)))
		}
		limit.Burst = 3
		set(t, q, plain, classed(t, "", limit))
		for _, out := range costly {
			if out := <-out; !out.refused(weir.TooCostly, 0) {
				t.Errorf("whose cost cannot fit any more: %+v", out)
			}
		}
		limit.Burst = 20
		set(t, q, classed(t, "", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 3}), classed(t, "", limit))
		for _, out := range outs {
			if out := <-out; !out.granted(0) {
				t.Errorf("a larger limit: %+v", out)
			}
		}
		checkEmpty(t, q)
	})
}

// Slots are waited for until one is settled, however long they may be held.
func TestReserveSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		q, slots := newQueue(t, store, queue.Config{}), newPolicy(t, "slots", weir.Limit{Rate: 2, Algorithm: weir.Concurrency})
		first, second := reserve(t, q, slots, "k", 1, weir.NoExpiry), reserve(t, store, slots, "k", 1, weir.NoExpiry)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		a, b := reserveWaiting(ctx, q, weir.NoExpiry, charge(slots, "k", 1)), reserveWaiting(ctx, q, weir.NoExpiry, charge(slots, "k", 1))
		c := reserveWaiting(ctx, q, weir.NoExpiry, charge(slots, "k", 2))
		if out := <-reserveWaiting(ctx, q, weir.NoExpiry, charge(slots, "k", 3)); !out.refused(weir.TooCostly, 0) {
			t.Errorf("more slots than there are: %+v", out)
		}
		time.Sleep(1100 * time.Millisecond)
		commit(t, first, 1)
		if out := <-a; !out.granted(1100 * time.Millisecond) {
			t.Errorf("a slot that was settled: %+v", out)
		}
		synctest.Wait()      // the next one is refused once more
		commit(t, second, 1) // through the store, so that the head has to find out
		if out := <-b; !out.granted(1350 * time.Millisecond) {
			t.Errorf("a slot that was settled by another process: %+v", out)
		}
		if out := <-c; !errors.Is(out.err, context.DeadlineExceeded) || out.after != 5*time.Second {
			t.Errorf("no slot by the end: %+v", out)
		}
		checkEmpty(t, q)
	})
}

// A slot and units are waited for together.
func TestReserveSlotsAndUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 2)
		slots := newPolicy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
		r := reserve(t, q, slots, "k", 1, time.Minute)
		mustTake(t, q, p, "k", 2)
		out := reserveWaiting(t.Context(), q, 0, charge(slots, "k", 1), charge(p, "k", 2))
		time.Sleep(500 * time.Millisecond)
		commit(t, r, 1)
		if out := <-out; !out.granted(2 * time.Second) {
			t.Errorf("%+v", out)
		}
		checkEmpty(t, q)
	})
}

// A thousand callers wait for reservations on one limit, and use part of them. Never is more held and used than
// there is.
func TestReserveNeverOverspends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, capacity = 1000, 50
		q := newQueue(t, newStore(t), queue.Config{MaxPerKey: callers})
		p := newPolicy(t, "p",
			weir.Limit{Rate: 100, Per: weir.Every(time.Second), Burst: capacity},
			weir.Limit{Name: "total", Rate: 1_000_000, Per: weir.Calendar(weir.Year, nil)})
		start := time.Now()
		var spent, held atomic.Int64 // spent: what was used, and what is held
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				cost := 1 + int64(i)%10
				r, err := q.Reserve(t.Context(), time.Minute, charge(p, "k", cost), charge(p, fmt.Sprint(i%100), 1))
				if err != nil {
					t.Error(err)
					return
				}
				now, open := spent.Add(cost), held.Add(cost)
				if most := capacity + 1 + int64(time.Since(start))*100/int64(time.Second); now > most || open > capacity {
					t.Errorf("%d spent after %v, at most %d may be; %d held", now, time.Since(start), most, open)
				}
				time.Sleep(time.Duration(i%7) * 10 * time.Millisecond)
				used := int64(i) % (cost + 1)
				spent.Add(used - cost) // before it is settled, since others get it then
				held.Add(-cost)
				commit(t, r, used, 1)
			})
		}
		wg.Wait()
		checkEmpty(t, q)
		if d, err := weir.Peek(t.Context(), q, newPolicy(t, "p", p.Limits()[1]), "k", 0); err != nil || 1_000_000-d.Remaining != spent.Load() {
			t.Errorf("%d were used, and %d are left: %v", spent.Load(), d.Remaining, err)
		}
	})
}

// Reservations that may be held longer than the next caller can wait are usually settled before. So they do not
// refuse whoever waits for a reservation, or stands in line already; but a Wait that comes later is refused at once.
func TestReserveIgnoresExpiries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := newQueue(t, newStore(t), queue.Config{}), perSecond(t, 1, 1)
		mustTake(t, q, p, "k", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		first, second := reserveWaiting(ctx, q, time.Minute, charge(p, "k", 1)), reserveWaiting(ctx, q, time.Minute, charge(p, "k", 1))
		third, last := wait(ctx, q, p, "k", 1), reserveWaiting(ctx, q, time.Minute, charge(p, "k", 1))
		a := <-first
		if !a.granted(time.Second) {
			t.Fatalf("first: %+v", a)
		}
		if r := <-wait(ctx, q, p, "k", 1); r.d.Reason != weir.TooLate || r.after != 0 {
			t.Errorf("a Wait behind a reservation that expires too late: %+v", r)
		}
		time.Sleep(time.Second)
		commit(t, a.r, 1)
		b := <-second
		if !b.granted(3 * time.Second) { // a second after the first was settled
			t.Fatalf("second: %+v", b)
		}
		time.Sleep(100 * time.Millisecond)
		commit(t, b.r, 0)
		if r := <-third; !r.granted(3100 * time.Millisecond) {
			t.Errorf("third: %+v", r)
		}
		if c := <-last; !c.granted(4100 * time.Millisecond) {
			t.Errorf("last: %+v", c)
		}
		if out := <-reserveWaiting(ctx, q, time.Minute, charge(p, "k", 1)); !errors.Is(out.err, context.DeadlineExceeded) || out.after != 5900*time.Millisecond {
			t.Errorf("nobody settles: %+v", out)
		}
		checkEmpty(t, q)
	})
}

// What another process gives back is found within a quarter of a second.
func TestReserveFindsWhatOthersSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		q, p := newQueue(t, store, queue.Config{}), perSecond(t, 1, 10)
		elsewhere := reserve(t, store, p, "k", 10, time.Minute)
		out := reserveWaiting(t.Context(), q, 0, charge(p, "k", 4))
		time.Sleep(1100 * time.Millisecond)
		commit(t, elsewhere, 0)
		if out := <-out; !out.granted(1250 * time.Millisecond) {
			t.Errorf("%+v", out)
		}
	})
}
