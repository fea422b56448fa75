package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// faultyLimiter fails when it is told to.
type faultyLimiter struct {
	weir.Limiter

	mu    sync.Mutex     // guards the fields below
	err   error          // what calls return, and nothing is done
	lost  error          // what calls return although they are carried out
	hang  bool           // calls wait until their context ends
	deny  *weir.Decision // of ReserveAll
	count map[weir.Op]int
	open  map[weir.Op]int // calls in flight
	pause struct {        // after a call of op was carried out
		op      weir.Op
		entered chan struct{}
		leave   chan struct{}
	}
}

func (f *faultyLimiter) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faultyLimiter) loseReplies(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = err
}

func (f *faultyLimiter) hangUp(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hang = on
}

// pauseAfter has the next call of op wait, after it was carried out, until leave is closed.
func (f *faultyLimiter) pauseAfter(op weir.Op) (entered, leave chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause.op, f.pause.entered, f.pause.leave = op, make(chan struct{}), make(chan struct{})
	return f.pause.entered, f.pause.leave
}

func (f *faultyLimiter) calls(op weir.Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[op]
}

// inFlight returns the number of calls of op that have not returned.
func (f *faultyLimiter) inFlight(op weir.Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[op]
}

// refuse has all calls of ReserveAll refused by d, or by nothing but the limits if d is nil.
func (f *faultyLimiter) refuse(d *weir.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deny = d
}

func (f *faultyLimiter) Do(ctx context.Context, b *weir.Batch) error {
	f.mu.Lock()
	if f.count == nil {
		f.count, f.open = map[weir.Op]int{}, map[weir.Op]int{}
	}
	f.count[b.Op]++
	f.open[b.Op]++
	err, hang, deny, pause := f.err, f.hang, f.deny, f.pause
	if pause.op == b.Op {
		f.pause.entered = nil
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open[b.Op]--
	}()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if deny != nil && b.Op == weir.ReserveAll {
		b.Decisions = slices.Repeat([]weir.Decision{*deny}, len(b.Charges))
		return nil
	}
	if err := f.Limiter.Do(ctx, b); err != nil {
		return err
	}
	if pause.entered != nil && pause.op == b.Op {
		close(pause.entered)
		<-pause.leave
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// outage runs a test with a registry on a limiter that can fail, in virtual time.
func outage(t *testing.T, c Subscriptions, test func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &faultyLimiter{Limiter: newTestTable(t)}
		r := newSubscriptions(f)
		defer r.close()
		test(t, f, r, newTestLimits(t, c))
	})
}

func (f *faultyLimiter) wantLeft(t *testing.T, l *subscriptionLimits, slots, items int64) {
	t.Helper()
	synctest.Wait()
	wantLeft(t, f.Limiter, l, slots, items)
}

// An outage that is shorter than the leases changes nothing.
func TestShortOutage(t *testing.T) {
	outage(t, Subscriptions{}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		s := mustOpen(t, r, l, 10)
		for range 10 {
			f.fail(weir.ErrUnavailable)
			time.Sleep(30 * time.Second) // more than the time between renewals
			f.wantLeft(t, l, 9, 490)
			f.fail(nil)
			time.Sleep(30 * time.Second)
			f.wantLeft(t, l, 9, 490)
		}
		if s.Context().Err() != nil || f.calls(weir.ReserveAll) != 1 {
			t.Error("the leases were reserved again")
		}
	})
}

// After an outage that is longer than the leases, they are reserved again.
func TestLongOutage(t *testing.T) {
	outage(t, Subscriptions{}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		s := mustOpen(t, r, l, 10)
		f.fail(weir.ErrUnavailable)
		time.Sleep(10 * time.Minute)
		f.wantLeft(t, l, 10, 500)
		s.Remove(2)
		f.fail(nil)
		time.Sleep(5 * time.Second)
		f.wantLeft(t, l, 9, 492)
		if s.Context().Err() != nil || s.Items() != 8 {
			t.Error("the subscription has ended")
		}
		if got := left(t, f.Limiter, l); got[2] != 5 {
			t.Errorf("%d creations are left: the subscription was charged again", got[2])
		}
		time.Sleep(10 * time.Minute)
		f.wantLeft(t, l, 9, 492)
		s.Close()
		f.wantLeft(t, l, 10, 500)
	})
}

// If others have taken the place meanwhile, the subscription ends, and holds nothing.
func TestSubscriptionLost(t *testing.T) {
	for name, test := range map[string]struct {
		others, items int64
	}{"slots": {3, 0}, "items": {1, 95}} {
		t.Run(name, func(t *testing.T) {
			outage(t, Subscriptions{PerSubject: 3, ItemsTotal: 100, Create: fast}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
				s := mustOpen(t, r, l, 10)
				f.fail(weir.ErrUnavailable)
				time.Sleep(2 * time.Minute)
				other := newSubscriptions(f.Limiter)
				for range test.others {
					mustOpen(t, other, l, test.items)
				}
				f.wantLeft(t, l, 3-test.others, 100-test.items*test.others)
				if s.Context().Err() != nil {
					t.Error("it has ended in the outage")
				}
				f.fail(nil)
				time.Sleep(time.Minute)
				if got := context.Cause(s.Context()); got != ErrSubscriptionLost {
					t.Errorf("cause %v", got)
				}
				if _, err := s.Add(t.Context(), 1); err != ErrSubscriptionLost {
					t.Errorf("Add: %v", err)
				}
				f.wantLeft(t, l, 3-test.others, 100-test.items*test.others)
				wantStats(t, r, 0, 0)
				if got := r.stats().refused; got != (SubscriptionRefusals{}) {
					t.Errorf("refusals: %+v", got)
				}
				other.close()
				f.wantLeft(t, l, 3, 100)
			})
		})
	}
}

// A subscription is not refused by leases of its own, whose receipts it has lost.
func TestReplyLost(t *testing.T) {
	outage(t, Subscriptions{PerSubject: 1, ItemsTotal: 10}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		s := mustOpen(t, r, l, 10)
		f.fail(weir.ErrUnavailable)
		time.Sleep(2 * time.Minute)
		entered, leave := f.pauseAfter(weir.ReserveAll)
		f.fail(nil)
		<-entered
		f.loseReplies(weir.ErrUnknown)
		close(leave)
		synctest.Wait()
		f.loseReplies(nil)
		f.wantLeft(t, l, 0, 0)
		time.Sleep(90 * time.Second)
		if s.Context().Err() != nil {
			t.Fatalf("the subscription has ended: %v", context.Cause(s.Context()))
		}
		f.wantLeft(t, l, 0, 0)
		s.Close()
		f.wantLeft(t, l, 1, 10)
	})
}

// A refusal without the store does not end a subscription.
func TestReservedAgainWithoutStore(t *testing.T) {
	for _, deny := range []weir.Decision{{Reason: weir.StoreDown}, {Reason: weir.Exhausted, Estimate: true}} {
		outage(t, Subscriptions{}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
			s := mustOpen(t, r, l, 10)
			f.fail(weir.ErrUnavailable)
			time.Sleep(5 * time.Minute)
			f.refuse(&deny)
			f.fail(nil)
			time.Sleep(5 * time.Minute)
			f.wantLeft(t, l, 10, 500)
			if n := f.calls(weir.ReserveAll); s.Context().Err() != nil || n < 50 {
				t.Fatalf("%v: cause %v after %d attempts", deny.Reason, context.Cause(s.Context()), n)
			}
			f.refuse(nil)
			time.Sleep(time.Minute)
			f.wantLeft(t, l, 9, 490)
		})
	}
}

// Removal and Close succeed at once, whatever the limiter does, and count when it is back.
func TestReleaseInOutage(t *testing.T) {
	for name, set := range map[string]func(f *faultyLimiter, on bool){
		"unavailable": func(f *faultyLimiter, on bool) {
			f.fail(map[bool]error{true: weir.ErrUnavailable}[on])
		},
		"hangs":      func(f *faultyLimiter, on bool) { f.hangUp(on) },
		"reply lost": func(f *faultyLimiter, on bool) { f.loseReplies(map[bool]error{true: weir.ErrUnknown}[on]) },
	} {
		t.Run(name, func(t *testing.T) {
			outage(t, Subscriptions{Create: fast, Modify: fast}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
				var open []*Subscription
				for range 5 {
					open = append(open, mustOpen(t, r, l, 20))
				}
				ctx, cancel := context.WithCancel(t.Context())
				if _, d, err := r.open(ctx, l, "user:a", 20); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				time.Sleep(time.Second)
				set(f, true)
				began := time.Now()
				if got := open[0].Remove(15); got != 15 || open[0].Items() != 5 {
					t.Errorf("%d removed, %d left", got, open[0].Items())
				}
				open[1].Close()
				open[2].Close()
				cancel()
				if open[2].Context().Err() == nil || open[1].Items() != 0 {
					t.Error("it is still open")
				}
				if took := time.Since(began); took > releaseWait {
					t.Errorf("it took %v", took)
				}
				synctest.Wait()
				wantStats(t, r, 3, 45)
				time.Sleep(5 * time.Second)
				if n := f.inFlight(weir.Settle); n > 1 {
					t.Errorf("%d calls at once", n)
				}
				set(f, false)
				time.Sleep(2 * releaseTimeout)
				f.wantLeft(t, l, 7, 455)
				if r.releasing || len(r.queue) > 0 {
					t.Error("the goroutine of the queue still runs")
				}
				open[3].Close() // at once again
				wantLeft(t, f.Limiter, l, 8, 475)
			})
		})
	}
}

// Nobody tries for longer than the leases last.
func TestReleaseGivesUp(t *testing.T) {
	outage(t, Subscriptions{Create: fast}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		var open []*Subscription
		for range 10 {
			open = append(open, mustOpen(t, r, l, 20))
		}
		f.fail(weir.ErrUnavailable)
		for _, s := range open {
			s.Close()
		}
		time.Sleep(2*r.ttl + 2*lastReleasePause)
		synctest.Wait()
		if r.mu.Lock(); r.releasing || len(r.queue) > 0 {
			t.Error("the goroutine of the queue still runs")
		}
		r.mu.Unlock()
		calls := f.calls(weir.Settle)
		if calls > 10*150 || calls < 10*60 {
			t.Errorf("%d attempts for 10 subscriptions in two minutes", calls)
		}
		time.Sleep(time.Hour)
		if f.calls(weir.Settle) != calls {
			t.Error("it is still tried")
		}
		f.fail(nil)
		f.wantLeft(t, l, 10, 500)
		s := mustOpen(t, r, l, 20)
		s.Close()
		f.wantLeft(t, l, 10, 500)
	})
}

// One key that cannot be settled holds up no other.
func TestReleaseOfBrokenKey(t *testing.T) {
	outage(t, Subscriptions{}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		a, b := mustOpen(t, r, l, 1), mustOpen(t, r, l, 1)
		f.fail(weir.ErrState)
		a.Close()
		f.fail(nil)
		if r.releasing {
			t.Error("it is tried again")
		}
		b.Close()
		f.wantLeft(t, l, 9, 499)
		time.Sleep(r.ttl)
		f.wantLeft(t, l, 10, 500)
	})
}

// close returns in time, also in an outage, and leaves no goroutine behind.
func TestCloseInOutage(t *testing.T) {
	for _, hang := range []bool{false, true} {
		outage(t, Subscriptions{Create: fast}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
			var open []*Subscription
			for range 10 {
				open = append(open, mustOpen(t, r, l, 20))
			}
			f.fail(weir.ErrUnavailable)
			f.hangUp(hang)
			began := time.Now()
			r.close()
			if took := time.Since(began); took > closeGrace {
				t.Errorf("close took %v", took)
			}
			if n := f.inFlight(weir.Settle); n > 0 {
				t.Errorf("%d calls are in flight after close", n)
			}
			for _, s := range open {
				if s.Context().Err() == nil {
					t.Error("one is still open")
				}
			}
			calls := f.calls(weir.Settle) + f.calls(weir.Renew)
			time.Sleep(time.Hour)
			if got := f.calls(weir.Settle) + f.calls(weir.Renew); got != calls {
				t.Errorf("%d calls after close", got-calls)
			}
		})
	}
}

// close waits for leases to be released if the limiter is back in time.
func TestCloseWaits(t *testing.T) {
	outage(t, Subscriptions{Create: fast}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		for range 10 {
			mustOpen(t, r, l, 20)
		}
		f.fail(weir.ErrUnavailable)
		time.AfterFunc(closeGrace/4, func() { f.fail(nil) })
		r.close()
		wantLeft(t, f.Limiter, l, 10, 500)
	})
}

// An Add that has reserved while the subscription is closed gives everything back.
func TestCloseDuringAdd(t *testing.T) {
	outage(t, Subscriptions{Modify: weir.Limit{Rate: 5, Per: weir.Every(time.Hour)}}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		s := mustOpen(t, r, l, 10)
		entered, leave := f.pauseAfter(weir.ReserveAll)
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, err = s.Add(t.Context(), 30) })
		<-entered
		wantLeft(t, f.Limiter, l, 9, 460)
		mustRefuseAdd(t, s, 61, "items_each") // 10 + 30 + 61
		if got := s.Remove(40); got != 10 {
			t.Errorf("%d removed of 10", got)
		}
		s.Close()
		close(leave)
		wg.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Add: %v", err)
		}
		if got := left(t, f.Limiter, l); got != [4]int64{10, 500, 4, 5} {
			t.Errorf("left: %v", got)
		}
		wantStats(t, r, 0, 0)
	})
}

// Leases that are removed while they are renewed are not missed.
func TestRemoveDuringRenewal(t *testing.T) {
	outage(t, Subscriptions{}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		s := mustOpen(t, r, l, 30)
		for range 3 {
			f.hangUp(true) // the renewal begins
			time.Sleep(20 * time.Second)
			f.hangUp(false)
			s.Remove(5)
			mustAdd(t, s, 5)
			entered, leave := f.pauseAfter(weir.Renew)
			<-entered
			s.Remove(10)
			mustAdd(t, s, 10)
			close(leave)
			f.wantLeft(t, l, 9, 470)
		}
		if s.Context().Err() != nil || s.Items() != 30 || f.calls(weir.ReserveAll) != 1+6 {
			t.Errorf("%d items, %d reservations", s.Items(), f.calls(weir.ReserveAll))
		}
		time.Sleep(time.Hour)
		f.wantLeft(t, l, 9, 470)
		entered, leave := f.pauseAfter(weir.Renew)
		<-entered
		s.Close()
		close(leave)
		f.wantLeft(t, l, 10, 500)
	})
}

// A renewal that is carried out after a removal finds leases that are settled, not lost ones.
func TestRenewalAfterRemove(t *testing.T) {
	outage(t, Subscriptions{}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
		s := mustOpen(t, r, l, 30)
		s.mu.Lock()
		leases := append([]*subscriptionLease(nil), s.leases...)
		b := leaseBatch(weir.Renew, s.subject, leases)
		s.mu.Unlock()
		s.Remove(10)
		if err := f.Do(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if b.Allowed() {
			t.Fatal("settled leases were renewed")
		}
		if lost := s.renewed(leases, b); len(lost) > 0 {
			t.Errorf("%d leases count as lost", len(lost))
		}
		f.wantLeft(t, l, 9, 480)
	})
}

// What is reserved again for items that are removed meanwhile is given back; all of it if the
// subscription is closed.
func TestRemoveDuringReservation(t *testing.T) {
	for _, closes := range []bool{false, true} {
		outage(t, Subscriptions{}, func(t *testing.T, f *faultyLimiter, r *subscriptions, l *subscriptionLimits) {
			s := mustOpen(t, r, l, 30)
			f.fail(weir.ErrUnavailable)
			time.Sleep(5 * time.Minute)
			entered, leave := f.pauseAfter(weir.ReserveAll)
			f.fail(nil)
			<-entered
			s.Remove(10)
			if closes {
				s.Close()
			}
			close(leave)
			if closes {
				f.wantLeft(t, l, 10, 500)
				return
			}
			f.wantLeft(t, l, 9, 480)
			time.Sleep(time.Hour)
			f.wantLeft(t, l, 9, 480)
		})
	}
}
