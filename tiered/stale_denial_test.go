package tiered_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// clockAt is a clock that only the test moves.
type clockAt struct{ at atomic.Int64 }

func newClock() *clockAt {
	c := &clockAt{}
	c.at.Store(int64(weir.Instant(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())))
	return c
}

func (c *clockAt) now() weir.Instant    { return weir.Instant(c.at.Load()) }
func (c *clockAt) pass(d time.Duration) { c.at.Add(int64(d)) }

// newClockedTable returns a memory store with the clock.
func newClockedTable(t *testing.T, clock *clockAt) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// newClockedTier returns a Limiter over a store, with the clock.
func newClockedTier(t *testing.T, clock *clockAt, store weir.Limiter) *tiered.Limiter {
	t.Helper()
	return newTier(t, tiered.Config{Store: store, Local: newClockedTable(t, clock), Now: clock.now})
}

// burst5 is 10 per second with a burst of 5.
var burst5 = weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 5}

// A charge that is admitted after a larger one was refused makes the cached denial stale:
// the next denial must have the RetryAfter and Remaining of the store.
func TestTakeUpdatesDenial(t *testing.T) {
	clock := newClock()
	l, p := newClockedTier(t, clock, newClockedTable(t, clock)), newPolicy(t, burst5)
	type want struct {
		allowed   bool
		remaining int64
		retry     time.Duration
	}
	for i, tt := range []struct {
		wait time.Duration
		cost int64
		want want
	}{
		{0, 5, want{true, 0, 0}},
		{250 * time.Millisecond, 3, want{false, 2, 50 * time.Millisecond}},
		{0, 2, want{true, 0, 0}},
		{0, 5, want{false, 0, 450 * time.Millisecond}},
		{0, 3, want{false, 0, 250 * time.Millisecond}},
		{0, 6, want{false, 0, weir.Never}},
	} {
		clock.pass(tt.wait)
		d := take(t, l, p, "k", tt.cost)
		if got := (want{d.Allowed, d.Remaining, d.RetryAfter}); got != tt.want {
			t.Errorf("step %d, cost %d: %+v, want %+v", i, tt.cost, got, tt.want)
		}
	}
}

// What ends or shortens a reservation ends a denial that was made while it was open: the
// next denial has the store's new RetryAfter, and a caller that waits that long is admitted.
func TestHoldEndsAfterDenial(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(r *weir.Reservation) error
		want time.Duration // for one unit
	}{
		{"committed in full", func(r *weir.Reservation) error { return commit(r) }, 100 * time.Millisecond},
		{"committed above", func(r *weir.Reservation) error { return commit(r, 7) }, 300 * time.Millisecond},
		{"renewed for less", func(r *weir.Reservation) error {
			_, err := r.Renew(ctx, 50*time.Millisecond)
			return err
		}, 150 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := newClock()
			l, p := newClockedTier(t, clock, newClockedTable(t, clock)), newPolicy(t, burst5)
			r, err := weir.Reserve(ctx, l, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 5})
			if err != nil {
				t.Fatal(err)
			}
			if d := take(t, l, p, "k", 1); d.Allowed || d.RetryAfter != time.Minute+100*time.Millisecond {
				t.Fatalf("while all is reserved: %v", d)
			}
			if err := tt.end(r); err != nil {
				t.Fatal(err)
			}
			if d := take(t, l, p, "k", 1); d.Allowed || d.RetryAfter != tt.want || d.Remaining != 0 {
				t.Errorf("then: %v, want a refusal for %v", d, tt.want)
			}
			clock.pass(tt.want)
			if d := take(t, l, p, "k", 1); !d.Allowed {
				t.Errorf("%v later: %v", tt.want, d)
			}
		})
	}
}

func commit(r *weir.Reservation, used ...int64) error {
	_, err := r.Commit(ctx, used...)
	return err
}

// A slot is free as soon as the job that had it is done, on the node that was refused.
func TestSlotIsFreeAfterDenial(t *testing.T) {
	clock := newClock()
	l, p := newClockedTier(t, clock, newClockedTable(t, clock)), newPolicy(t, weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
	charge := weir.Charge{Policy: p, Key: "k", Cost: 1}
	for range 3 {
		r, err := weir.Reserve(ctx, l, time.Minute, charge)
		if err != nil || !r.Decision.Allowed {
			t.Fatalf("the slot is free: %v, error %v", r.Decision, err)
		}
		if second, err := weir.Reserve(ctx, l, time.Minute, charge); err != nil || second.Decision.Allowed {
			t.Fatalf("two have the only slot: %v, error %v", second.Decision, err)
		}
		if err := commit(r); err != nil {
			t.Fatal(err)
		}
	}
}

// Another node may end a reservation at any time without notice: a denial that was
// made while one is open is not cached for more than 10 ms.
func TestHeldDenialIsShort(t *testing.T) {
	for name, limit := range map[string]weir.Limit{
		"slots": {Rate: 1, Algorithm: weir.Concurrency},
		"units": {Rate: 1, Per: weir.Every(time.Second), Burst: 1},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			store := newClockedTable(t, clock)
			a, b := newClockedTier(t, clock, store), newClockedTier(t, clock, store)
			charge := weir.Charge{Policy: newPolicy(t, limit), Key: "k", Cost: 1}
			r, err := weir.Reserve(ctx, a, time.Minute, charge)
			if err != nil || !r.Decision.Allowed {
				t.Fatalf("%v, error %v", r.Decision, err)
			}
			if second, err := weir.Reserve(ctx, b, time.Minute, charge); err != nil || second.Decision.Allowed {
				t.Fatalf("while another node has all: %v, error %v", second.Decision, err)
			}
			if err := commit(r, 0); err != nil {
				t.Fatal(err)
			}
			clock.pass(10 * time.Millisecond)
			if second, err := weir.Reserve(ctx, b, time.Minute, charge); err != nil || !second.Decision.Allowed {
				t.Errorf("10 ms after the other node gave it back: %v, error %v", second.Decision, err)
			}
		})
	}
}

// Who waits in a line over a tier is served when a reservation ends, not when it would
// have expired.
func TestWaiterAfterCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := queue.New(newTier(t, tiered.Config{}), queue.Config{})
		if err != nil {
			t.Fatal(err)
		}
		p := newPolicy(t, burst5)
		r, err := weir.Reserve(ctx, q, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 5})
		if err != nil {
			t.Fatal(err)
		}
		type served struct {
			d     weir.Decision
			err   error
			after time.Duration
		}
		done, began := make(chan served), time.Now()
		go func() {
			d, err := q.Wait(context.Background(), p, "k", 1)
			done <- served{d, err, time.Since(began)}
		}()
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if n := q.Waiting(); n != 1 {
			t.Fatalf("%d wait, want 1", n)
		}
		if err := commit(r); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got.err != nil || !got.d.Allowed || got.after != 120*time.Millisecond {
			t.Errorf("%v, error %v, after %v; want to be served after 120ms", got.d, got.err, got.after)
		}
	})
}
