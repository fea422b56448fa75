package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// fast is a rate that refuses nothing in these tests.
var fast = weir.PerSecond(1_000_000)

func newTestLimits(t testing.TB, c Subscriptions) *subscriptionLimits {
	t.Helper()
	l, err := newSubscriptionLimits("guard", &c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newTestTable(t testing.TB) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{MaxKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// newTestSubscriptions returns a registry that is closed when the test ends.
func newTestSubscriptions(t testing.TB, l weir.Limiter) *subscriptions {
	t.Helper()
	r := newSubscriptions(l)
	t.Cleanup(r.close)
	return r
}

// mustOpen opens a subscription that must be admitted.
func mustOpen(t testing.TB, r *subscriptions, l *subscriptionLimits, items int64) *Subscription {
	t.Helper()
	s, d, err := r.open(t.Context(), l, "user:a", items)
	if err != nil || !d.Allowed || d.Limit != "" {
		t.Fatalf("open: refused by %q, %v, error %v", d.Limit, d.Decision, err)
	}
	return s
}

// mustRefuseOpen opens a subscription that a limit must refuse.
func mustRefuseOpen(t testing.TB, r *subscriptions, l *subscriptionLimits, items int64, limit string) SubscriptionDecision {
	t.Helper()
	s, d, err := r.open(t.Context(), l, "user:a", items)
	if s != nil || err != nil || d.Allowed || d.Limit != limit {
		t.Fatalf("open: got %v, by %q, error %v, want it refused by %q", d.Decision, d.Limit, err, limit)
	}
	return d
}

func mustAdd(t testing.TB, s *Subscription, items int64) {
	t.Helper()
	if d, err := s.Add(t.Context(), items); err != nil || !d.Allowed {
		t.Fatalf("add %d: refused by %q, %v, error %v", items, d.Limit, d.Decision, err)
	}
}

func mustRefuseAdd(t testing.TB, s *Subscription, items int64, limit string) SubscriptionDecision {
	t.Helper()
	d, err := s.Add(t.Context(), items)
	if err != nil || d.Allowed || d.Limit != limit {
		t.Fatalf("add %d: got %v, by %q, error %v, want it refused by %q", items, d.Decision, d.Limit, err, limit)
	}
	return d
}

// left returns what remains of subscriptions, items, creations and modifications.
func left(t testing.TB, l weir.Limiter, limits *subscriptionLimits) (n [4]int64) {
	t.Helper()
	for i, p := range limits.policies() {
		d, err := weir.Peek(context.Background(), l, p, "user:a", 0)
		if err != nil {
			t.Fatal(err)
		}
		n[i] = d.Remaining
	}
	return n
}

func wantLeft(t testing.TB, l weir.Limiter, limits *subscriptionLimits, slots, items int64) {
	t.Helper()
	if got := left(t, l, limits); got[0] != slots || got[1] != items {
		t.Errorf("%d subscriptions and %d items are left, want %d and %d", got[0], got[1], slots, items)
	}
}

func wantStats(t testing.TB, r *subscriptions, open, items int64) {
	t.Helper()
	if got := r.stats(); got.open != open || got.items != items {
		t.Errorf("%d subscriptions with %d items are counted, want %d with %d", got.open, got.items, open, items)
	}
}

// crash makes a subscription what it is after the end of its process: it is not renewed, and nobody
// releases its leases. It returns them.
func (s *Subscription) crash() []*subscriptionLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.stop()
	s.cancel(context.Canceled)
	s.timer.Stop()
	s.registry.forget(s)
	s.countLocked(-s.items)
	leases := s.leases
	s.leases = nil
	return leases
}

// S4.27: 10 subscriptions. F4.15: the place of one that was closed is free.
func TestSubscriptionsPerSubject(t *testing.T) {
	table := newTestTable(t)
	r, l := newTestSubscriptions(t, table), newTestLimits(t, Subscriptions{Create: fast})
	var open []*Subscription
	for range 10 {
		open = append(open, mustOpen(t, r, l, 1))
	}
	if d := mustRefuseOpen(t, r, l, 1, "subscriptions"); d.Decision.Limit != 10 || d.Remaining != 0 || d.Reason != weir.Exhausted {
		t.Errorf("the 11th: %v", d.Decision)
	}
	wantLeft(t, table, l, 0, 490)
	if s, d, err := r.open(t.Context(), l, "user:b", 1); err != nil || !d.Allowed {
		t.Errorf("another subject: %v, error %v", d, err)
	} else {
		s.Close()
	}
	open[3].Close()
	open[3].Close()
	wantLeft(t, table, l, 1, 491)
	mustOpen(t, r, l, 1)
	mustRefuseOpen(t, r, l, 1, "subscriptions")
	wantStats(t, r, 10, 10)
	if got := r.stats().refused; got != (SubscriptionRefusals{TooMany: 2}) {
		t.Errorf("refusals: %+v", got)
	}
	r.close()
	wantLeft(t, table, l, 10, 500)
	wantStats(t, r, 0, 0)
}

// S4.27: 100 items of each.
func TestSubscriptionItemsEach(t *testing.T) {
	table := newTestTable(t)
	r, l := newTestSubscriptions(t, table), newTestLimits(t, Subscriptions{Create: fast, Modify: fast})
	if d := mustRefuseOpen(t, r, l, 101, "items_each"); d.Reason != weir.TooCostly || d.RetryAfter != weir.Never {
		t.Errorf("101 items: %v", d.Decision)
	}
	s := mustOpen(t, r, l, 60)
	if d := mustRefuseAdd(t, s, 41, "items_each"); d.Reason != weir.Exhausted || d.Remaining != 40 || d.Decision.Limit != 100 {
		t.Errorf("41 more: %v", d.Decision)
	}
	mustAdd(t, s, 40)
	mustRefuseAdd(t, s, 1, "items_each")
	if got := s.Remove(30); got != 30 || s.Items() != 70 {
		t.Errorf("%d removed, %d left", got, s.Items())
	}
	wantLeft(t, table, l, 9, 430)
	mustAdd(t, s, 30)
	if got := s.Remove(1000); got != 100 || s.Items() != 0 {
		t.Errorf("%d removed, %d left", got, s.Items())
	}
	if got := s.Remove(1) + s.Remove(-1) + s.Remove(0); got != 0 {
		t.Errorf("%d removed of none", got)
	}
	wantLeft(t, table, l, 9, 500)
	if got := r.stats().refused; got != (SubscriptionRefusals{TooManyItems: 3}) {
		t.Errorf("refusals: %+v", got)
	}
}

// F4.15: 10 × 100 exceeds 500, so 500 counts. A refusal charges nothing.
func TestSubscriptionItemsTotal(t *testing.T) {
	table := newTestTable(t)
	r, l := newTestSubscriptions(t, table), newTestLimits(t, Subscriptions{Create: weir.Limit{Rate: 20, Per: weir.Every(time.Hour)}, Modify: weir.Limit{Rate: 20, Per: weir.Every(time.Hour)}})
	for range 4 {
		mustOpen(t, r, l, 100)
	}
	s := mustOpen(t, r, l, 40)
	mustAdd(t, s, 10)
	before := left(t, table, l)
	if before != [4]int64{5, 50, 15, 19} {
		t.Fatalf("left: %v", before)
	}
	if d := mustRefuseAdd(t, mustOpen(t, r, l, 0), 60, "items_total"); d.Remaining != 50 || d.Decision.Limit != 500 || d.Reason != weir.Exhausted {
		t.Errorf("60 more: %v", d.Decision)
	}
	before[0], before[2] = before[0]-1, before[2]-1 // the one that was opened for it
	if got := left(t, table, l); got != before {
		t.Errorf("after an Add that was refused: %v, want %v", got, before)
	}
	mustRefuseOpen(t, r, l, 60, "items_total")
	if got := left(t, table, l); got != before {
		t.Errorf("after an open that was refused: %v, want %v", got, before)
	}
	mustAdd(t, s, 50)
	mustRefuseOpen(t, r, l, 1, "items_total")
	mustOpen(t, r, l, 0)
	if s.Remove(100) != 100 {
		t.Error("not all were removed")
	}
	mustOpen(t, r, l, 100)
	wantStats(t, r, 8, 500)
}

// More items than all may have never fit, however few there are.
func TestSubscriptionItemsBeyondTotal(t *testing.T) {
	r, l := newTestSubscriptions(t, newTestTable(t)), newTestLimits(t, Subscriptions{ItemsTotal: 20})
	if d := mustRefuseOpen(t, r, l, 21, "items_total"); d.Reason != weir.TooCostly || d.Decision.Limit != 20 || d.RetryAfter != weir.Never {
		t.Errorf("21 of 20: %v", d.Decision)
	}
	mustOpen(t, r, l, 20)
}

// S4.27: 5 new ones and 30 modifications per minute. Removal is no modification (F4.15).
func TestSubscriptionRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTestTable(t)
		r, l := newSubscriptions(table), newTestLimits(t, Subscriptions{})
		defer r.close()
		for range 5 {
			mustOpen(t, r, l, 1).Close()
		}
		d := mustRefuseOpen(t, r, l, 1, "create")
		if d.RetryAfter != 12*time.Second {
			t.Errorf("the 6th may retry after %v", d.RetryAfter)
		}
		time.Sleep(d.RetryAfter - 1)
		mustRefuseOpen(t, r, l, 1, "create")
		time.Sleep(time.Nanosecond)
		s := mustOpen(t, r, l, 1)
		for range 30 {
			mustAdd(t, s, 1)
			s.Remove(1)
		}
		d = mustRefuseAdd(t, s, 1, "modify")
		if d.RetryAfter != 2*time.Second {
			t.Errorf("the 31st may retry after %v", d.RetryAfter)
		}
		wantLeft(t, table, l, 9, 499)
		mustAdd(t, s, 0) // changes nothing, so it costs nothing
		if s.Remove(1) != 1 {
			t.Error("a removal was refused")
		}
		time.Sleep(d.RetryAfter)
		mustAdd(t, s, 1)
		time.Sleep(10 * time.Minute)
		if got := left(t, table, l); got != [4]int64{9, 499, 5, 30} {
			t.Errorf("ten minutes later: %v", got)
		}
		if got := r.stats().refused; got != (SubscriptionRefusals{TooFast: 3}) {
			t.Errorf("refusals: %+v", got)
		}
	})
}

// The subscription ends with its context, and its place is free at once.
func TestSubscriptionEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTestTable(t)
		r, l := newSubscriptions(table), newTestLimits(t, Subscriptions{Create: fast})
		defer r.close()
		cause := errors.New("client left")
		var ctx context.Context
		var s *Subscription
		for range 50 { // the cause is a matter of order
			parent, cancel := context.WithCancelCause(t.Context())
			var err error
			if s, _, err = r.open(parent, l, "user:a", 7); err != nil {
				t.Fatal(err)
			}
			cancel(cause)
			synctest.Wait()
			if got := context.Cause(s.Context()); got != cause {
				t.Fatalf("cause %v", got)
			}
			ctx = parent
		}
		wantLeft(t, table, l, 10, 500)
		wantStats(t, r, 0, 0)
		if _, err := s.Add(t.Context(), 1); err != cause {
			t.Errorf("Add: %v", err)
		}
		if s.Remove(1) != 0 || s.Items() != 0 {
			t.Error("items are left")
		}
		if _, _, err := r.open(ctx, l, "user:a", 1); err != context.Canceled {
			t.Errorf("open with a context that has ended: %v", err)
		}
		if _, _, err := r.open(ctx, nil, "user:a", 1); err != context.Canceled {
			t.Errorf("open without limits, with a context that has ended: %v", err)
		}
	})
}

// Without limits, subscriptions are counted.
func TestSubscriptionsUnlimited(t *testing.T) {
	r := newTestSubscriptions(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last *Subscription
	for range 20 {
		s, d, err := r.open(ctx, nil, "user:a", 2000)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		last = s
	}
	mustAdd(t, last, 5)
	wantStats(t, r, 20, 40_005)
	if last.Remove(3000) != 2005 {
		t.Error("not all were removed")
	}
	last.Close()
	wantStats(t, r, 19, 38_000)
	for _, n := range []int64{-1, weir.MaxCost + 1} {
		if _, _, err := r.open(ctx, nil, "user:a", n); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%d items: error %v", n, err)
		}
		if _, err := last.Add(ctx, n); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%d more items: error %v", n, err)
		}
	}
	r.close()
	wantStats(t, r, 0, 0)
}

// Nothing can be opened after close, and what was charged for it is given back.
func TestSubscriptionsClosed(t *testing.T) {
	table := newTestTable(t)
	r, l := newTestSubscriptions(t, table), newTestLimits(t, Subscriptions{})
	s := mustOpen(t, r, l, 5)
	r.close()
	r.close()
	if context.Cause(s.Context()) != errSubscriptionsClosed {
		t.Errorf("cause %v", context.Cause(s.Context()))
	}
	for _, limits := range []*subscriptionLimits{l, nil} {
		if _, _, err := r.open(t.Context(), limits, "user:a", 1); err != errSubscriptionsClosed {
			t.Errorf("error %v", err)
		}
	}
}

// An open that comes while the registry is closed gives everything back, also the unit of Create.
func TestOpenDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTestTable(t)
		f := &faultyLimiter{Limiter: table}
		r, l := newSubscriptions(f), newTestLimits(t, Subscriptions{Create: weir.Limit{Rate: 5, Per: weir.Every(time.Hour)}})
		entered, leave := f.pauseAfter(weir.ReserveAll)
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, _, err = r.open(t.Context(), l, "user:a", 5) })
		<-entered
		r.mu.Lock()
		r.closed = true // as close does first
		r.mu.Unlock()
		close(leave)
		wg.Wait()
		if err != errSubscriptionsClosed {
			t.Errorf("error %v", err)
		}
		if got := left(t, table, l); got != [4]int64{10, 500, 5, 30} {
			t.Errorf("left: %v", got)
		}
		r.close()
	})
}

// Leases are renewed with one call every 20 seconds, for as long as the subscription lasts, and
// expire if the process crashes.
func TestSubscriptionRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTestTable(t)
		f := &faultyLimiter{Limiter: table}
		r, l := newSubscriptions(f), newTestLimits(t, Subscriptions{})
		defer r.close()
		s := mustOpen(t, r, l, 50)
		time.Sleep(time.Hour)
		synctest.Wait()
		wantLeft(t, table, l, 9, 450)
		if n := f.calls(weir.Renew); n != 180 {
			t.Errorf("%d renewals in an hour, want 180", n)
		}
		mustAdd(t, s, 10)
		s.Remove(20)
		time.Sleep(time.Hour)
		wantLeft(t, table, l, 9, 460)
		if s.Context().Err() != nil || s.Items() != 40 || f.calls(weir.ReserveAll) != 2 {
			t.Error("the subscription did not last")
		}
		s.crash()
		time.Sleep(39 * time.Second)
		wantLeft(t, table, l, 9, 460)
		time.Sleep(22 * time.Second)
		wantLeft(t, table, l, 10, 500)
	})
}

// Subscriptions that are opened at the same time are not renewed at the same time.
func TestFirstRenewal(t *testing.T) {
	r := newTestSubscriptions(t, nil)
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := r.firstRenewal()
		if seen[d.Round(time.Second)] = true; d < r.ttl/6 || d >= r.ttl/3 {
			t.Fatalf("after %v", d)
		}
	}
	if len(seen) < 10 {
		t.Errorf("all within %d seconds", len(seen))
	}
}

// F4.15: many that open and crash at once. A goroutine that crashes ends its context.
func TestSubscriptionsCrashAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTestTable(t)
		r, l := newSubscriptions(table), newTestLimits(t, Subscriptions{Create: fast})
		defer r.close()
		for range 20 {
			if admitted := openAndCrash(t, r, l, func(*Subscription) {}); admitted < 10 {
				t.Fatalf("%d of 64 were admitted, want at least 10", admitted)
			}
			synctest.Wait()
			wantLeft(t, table, l, 10, 500)
			wantStats(t, r, 0, 0)
		}
	})
}

// openAndCrash has 64 goroutines open a subscription, call crash and end their context, all at
// once. It returns how many were admitted.
func openAndCrash(t *testing.T, r *subscriptions, l *subscriptionLimits, crash func(*Subscription)) (admitted int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 64 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, d, err := r.open(ctx, l, "user:a", 30)
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				crash(s)
				mu.Lock()
				admitted++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return admitted
}

// 64 at once while nobody leaves: exactly 10.
func TestSubscriptionsAtOnce(t *testing.T) {
	table := newTestTable(t)
	r, l := newTestSubscriptions(t, table), newTestLimits(t, Subscriptions{Create: fast})
	release := make(chan struct{})
	var wg sync.WaitGroup
	admitted := make(chan bool, 64)
	for range 64 {
		wg.Go(func() {
			s, d, err := r.open(t.Context(), l, "user:a", 30)
			if err != nil {
				t.Error(err)
			}
			admitted <- d.Allowed
			<-release
			if s != nil {
				s.Close()
			}
		})
	}
	n := 0
	for range 64 {
		if <-admitted {
			n++
		}
	}
	wantLeft(t, table, l, 0, 200)
	wantStats(t, r, 10, 300)
	close(release)
	wg.Wait()
	if wantLeft(t, table, l, 10, 500); n != 10 {
		t.Errorf("%d of 64 were admitted", n)
	}
}

// Limits change live: what is open stays open and counts.
func TestSubscriptionLimitsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTestTable(t)
		r, old := newSubscriptions(table), newTestLimits(t, Subscriptions{PerSubject: 2, ItemsTotal: 20, ItemsEach: 10, Create: fast})
		defer r.close()
		a, b := mustOpen(t, r, old, 10), mustOpen(t, r, old, 10)
		mustRefuseOpen(t, r, old, 0, "subscriptions")
		for _, c := range []Subscriptions{{PerSubject: 3, ItemsTotal: 30, ItemsEach: 15, Create: fast}, {PerSubject: 1, ItemsTotal: 15, Create: fast}} {
			new := newTestLimits(t, c)
			for i, p := range old.policies() {
				if err := table.Set(t.Context(), p, new.policies()[i]); err != nil {
					t.Fatal(err)
				}
			}
			old = new
			if c.PerSubject == 3 {
				mustOpen(t, r, new, 10)
			}
			mustRefuseOpen(t, r, new, 0, "subscriptions")
			time.Sleep(10 * time.Minute)
			wantLeft(t, table, new, 0, 0)
			wantStats(t, r, 3, 30)
		}
		a.Close()
		mustRefuseAdd(t, b, 1, "items_each") // as it was opened
		b.Remove(9)
		mustRefuseOpen(t, r, old, 0, "subscriptions")
		b.Close()
		wantLeft(t, table, old, 0, 5)
	})
}

func TestSubscriptionLimitsDefaults(t *testing.T) {
	l := newTestLimits(t, Subscriptions{})
	var got []string
	for _, p := range l.policies() {
		got = append(got, fmt.Sprintf("%s %d", p.Name(), p.Capacity()))
	}
	want := []string{"guard/subscriptions 10", "guard/subscriptions/items 500", "guard/subscriptions/create 5", "guard/subscriptions/modify 30"}
	if !slices.Equal(got, want) || l.each != 100 {
		t.Errorf("got %q, %d each, want %q", got, l.each, want)
	}
	if l, err := newSubscriptionLimits("guard", nil); l != nil || err != nil || l.policies() != nil {
		t.Errorf("no limits: %v, error %v", l, err)
	}
}

func TestSubscriptionLimitsErrors(t *testing.T) {
	_, err := newSubscriptionLimits("guard", &Subscriptions{
		PerSubject: -1, ItemsEach: 1001, ItemsTotal: 10_001,
		Create: weir.Limit{Rate: -5, Per: weir.Every(time.Minute)}, Modify: weir.Limit{Rate: 3, Algorithm: weir.Concurrency},
	})
	want := []string{
		"guard: ItemsEach 1001: must be between 1 and 1000, or 0 for the default of 100",
		"guard: PerSubject -1: must be between 1 and 10000, or 0 for the default of 10",
		"guard: ItemsTotal 10001: must be between 1 and 10000, or 0 for the default of 500",
		"guard: Create: rate -5: must be between 1 and 9007199254740991",
		"guard: Modify: must be a rate, such as 5 per minute, and no limit of concurrency",
	}
	var got []string
	for _, e := range fielderr.Split(err) {
		if _, ok := errors.AsType[*fielderr.Error](e); !ok {
			t.Errorf("%v is no *fielderr.Error", e)
		}
		got = append(got, e.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%q\nwant:\n%q", got, want)
	}
	if _, err := newSubscriptionLimits("guard", &Subscriptions{ItemsEach: 1000, ItemsTotal: 10_000, PerSubject: 10_000}); err != nil {
		t.Error(err)
	}
}

// Anything at once: nothing is counted twice or forgotten.
func TestSubscriptionRaces(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	table := newTestTable(t)
	r, l := newSubscriptions(table), newTestLimits(t, Subscriptions{Create: fast, Modify: fast})
	r.ttl = 10 * time.Minute // so that nothing is released by expiry
	var wg sync.WaitGroup
	for range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		s, d, err := r.open(ctx, l, "user:a", 20)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		for range 3 {
			wg.Go(func() {
				for range 5 {
					_, _ = s.Add(context.Background(), 7)
				}
			})
			wg.Go(func() {
				for range 5 {
					s.Remove(6)
				}
			})
		}
		wg.Go(func() { // as the timer does
			for range 5 {
				s.renew()
			}
		})
		wg.Go(cancel)
		wg.Go(s.Close)
		wg.Wait()
		awaitLeft(t, table, l, 10, 500) // whoever has closed it may still be at it
		wantStats(t, r, 0, 0)
	}
	r.close()
}

// Under a limiter that decides by itself during an outage, the store gets to know of such
// subscriptions when it is back.
func TestSubscriptionsMadeWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []weir.OnError{weir.FailLocal, weir.FailOpen, weir.FailClosed} {
			table := newTestTable(t)
			f := &faultyLimiter{Limiter: table}
			tier, err := tiered.New(tiered.Config{Store: f, Local: newTestTable(t), OnError: mode})
			if err != nil {
				t.Fatal(err)
			}
			r, l := newSubscriptions(tier), newTestLimits(t, Subscriptions{PerSubject: 3, Create: fast})
			old := mustOpen(t, r, l, 10)
			f.fail(weir.ErrUnavailable)
			s, d, err := r.open(t.Context(), l, "user:a", 10)
			if err != nil {
				t.Fatal(err)
			}
			if mode == weir.FailClosed {
				if d.Allowed || d.Reason != weir.StoreDown || d.Limit != "" {
					t.Errorf("%v: %v by %q", mode, d.Decision, d.Limit)
				}
			} else if !d.Allowed {
				t.Fatalf("%v: %v", mode, d.Decision)
			}
			time.Sleep(5 * time.Minute)
			if old.Context().Err() != nil {
				t.Errorf("%v: the subscription has ended in the outage", mode)
			}
			wantLeft(t, table, l, 3, 500)
			if mode == weir.FailLocal { // renewals take no more of this node's share
				a, b := mustOpen(t, r, l, 10), mustOpen(t, r, l, 10)
				a.Close()
				b.Close()
			}
			f.fail(nil)
			time.Sleep(time.Minute)
			if mode == weir.FailClosed {
				wantLeft(t, table, l, 2, 490)
			} else {
				wantLeft(t, table, l, 1, 480)
				s.Close()
				wantLeft(t, table, l, 2, 490)
			}
			old.Close()
			wantLeft(t, table, l, 3, 500)
			r.close()
			tier.Close()
		}
	})
}
