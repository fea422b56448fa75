package tiered_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

func perSecond(n int64) weir.Limit { return weir.Limit{Rate: n, Per: weir.Every(time.Second)} }

// A key of one per second with a demand of a hundred thousand per second takes about one store
// call per second.
func TestDeniedKeyDoesNotCallTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l, p := newTier(t, tiered.Config{Store: store}), newPolicy(t, perSecond(1))
		admitted, asked := 0, 0
		for range 3 * 1000 {
			admitted += takeMany(t, l, p, "k", 100)
			asked += 100
			time.Sleep(time.Millisecond)
		}
		if admitted != 3 {
			t.Errorf("%d of %d were admitted in 3 s, want 3", admitted, asked)
		}
		if n := store.count(); n > 6 {
			t.Errorf("the store was called %d times for %d decisions, want at most 6", n, asked)
		}
		if s := l.Stats(); s.Decisions() != int64(asked) || s.DenyCache < int64(asked)-6 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A caller that waits for RetryAfter of a cached denial is admitted, and one that waits a
// nanosecond less is not.
func TestCachedDenialRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newTier(t, tiered.Config{}), newPolicy(t, weir.Limit{Rate: 7, Per: weir.Every(time.Second), Burst: 5})
		take(t, l, p, "k", 5)
		take(t, l, p, "k", 2) // the store's refusal
		for _, cost := range []int64{2, 3, 5} {
			d := take(t, l, p, "k", cost)
			want, err := weir.Peek(ctx, l, p, "k", cost)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed || !d.Estimate || d.RetryAfter != want.RetryAfter || d.Remaining != want.Remaining || d.ResetAfter != want.ResetAfter {
				t.Errorf("cost %d: %+v from the cache, %+v from the store", cost, d, want)
			}
		}
		if d := take(t, l, p, "k", 6); d.Reason != weir.TooCostly || d.RetryAfter != weir.Never {
			t.Errorf("cost 6 of burst 5: %v", d)
		}
		d := take(t, l, p, "k", 2)
		time.Sleep(d.RetryAfter - 1)
		if take(t, l, p, "k", 2).Allowed {
			t.Error("admitted too early")
		}
		time.Sleep(time.Nanosecond)
		if !take(t, l, p, "k", 2).Allowed {
			t.Error("not admitted when it was time")
		}
	})
}

// A cached denial does not apply to lower costs, other limits, and times after MaxDeny or after
// RetryAfter, counted from before the store was called.
func TestDenialIsNotStretched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		store.takes = 8 * time.Millisecond
		l, p := newTier(t, tiered.Config{Store: store, MaxDeny: 300 * time.Millisecond}), newPolicy(t, perSecond(10))
		call := func(what string, want bool, p *weir.Policy, cost int64) {
			t.Helper()
			before := store.count()
			take(t, l, p, "k", cost)
			if asked := store.count() > before; asked != want {
				t.Errorf("%s: the store was called: %t", what, asked)
			}
		}
		take(t, l, p, "k", 9)
		call("too much", true, p, 5)
		call("the same", false, p, 5)
		call("more", false, p, 7)
		call("less", true, p, 4)
		call("what is less and was refused", false, p, 4)
		other, err := p.With(perSecond(11))
		if err != nil {
			t.Fatal(err)
		}
		call("other limits", true, other, 5)

		take(t, l, p, "k", 10) // one remains, or two: another second or so
		time.Sleep(280 * time.Millisecond)
		call("within MaxDeny", false, p, 10)
		time.Sleep(15 * time.Millisecond)
		call("beyond MaxDeny, counted from before the call", true, p, 10)

		for take(t, l, p, "j", 1).Allowed {
		}
		d := take(t, l, p, "j", 1)
		time.Sleep(d.RetryAfter - store.takes) // the store denied it after 4 ms, and the reply took 4 ms
		before := store.count()
		take(t, l, p, "j", 1)
		if store.count() == before {
			t.Error("a denial was counted from the reply")
		}
	})
}

// A change of a key drops its denial, also one whose reply is in flight.
func TestDenialIsDropped(t *testing.T) {
	raised := func(t *testing.T, p *weir.Policy) *weir.Policy {
		q, err := p.With(perSecond(100))
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for name, change := range map[string]func(t *testing.T, l *tiered.Limiter, p *weir.Policy, r *weir.Reservation) error{
		"reset": func(t *testing.T, l *tiered.Limiter, p *weir.Policy, r *weir.Reservation) error {
			if _, err := r.Commit(ctx); err != nil { // what is held outlives a reset
				return err
			}
			return weir.Reset(ctx, l, p, "k")
		},
		"set": func(t *testing.T, l *tiered.Limiter, p *weir.Policy, r *weir.Reservation) error {
			return l.Set(ctx, p, raised(t, p))
		},
		"refund": func(t *testing.T, l *tiered.Limiter, p *weir.Policy, r *weir.Reservation) error {
			_, err := r.Cancel(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				l, p := newTier(t, tiered.Config{Store: store}), newPolicy(t, perSecond(10))
				r, err := weir.Reserve(ctx, l, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 10})
				if err != nil {
					t.Fatal(err)
				}
				take(t, l, p, "k", 5)
				store.set(func(f *flaky) { f.late = 8 * time.Millisecond })
				var replied sync.WaitGroup
				replied.Go(func() { take(t, l, p, "k", 3) }) // decided before the change, replied after it
				time.Sleep(time.Millisecond)
				store.set(func(f *flaky) { f.late = 0 })
				if err := change(t, l, p, r); err != nil {
					t.Fatal(err)
				}
				replied.Wait()
				if d := take(t, l, p, "k", 5); !d.Allowed {
					t.Errorf("after the change: %v", d)
				}
			})
		})
	}
}

// Two nodes: what one does is felt on the other.
func TestNodesShareDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, bus := newFlaky(t), &wire{}
		a := newTier(t, tiered.Config{Store: store, Bus: bus.join()})
		b := newTier(t, tiered.Config{Store: store, Bus: bus.join()})
		p := newPolicy(t, weir.Limit{Rate: 10, Per: weir.Every(time.Minute)})
		takeMany(t, b, p, "warm", 1)
		take(t, a, p, "k", 10)
		take(t, a, p, "k", 1) // denied on a
		time.Sleep(5 * time.Millisecond)
		before := store.count()
		if d := take(t, b, p, "k", 1); d.Allowed || d.RetryAfter <= 5*time.Second || store.count() != before {
			t.Errorf("b: %v, after %d calls; want the published denial", d, store.count()-before)
		}
		if err := weir.Reset(ctx, a, p, "k"); err != nil {
			t.Fatal(err)
		}
		if !take(t, b, p, "k", 10).Allowed {
			t.Error("a reset on a is not felt on b")
		}
		take(t, b, p, "k", 1)
		time.Sleep(5 * time.Millisecond)
		more, err := p.With(weir.Limit{Rate: 20, Per: weir.Every(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Set(ctx, p, more); err != nil {
			t.Fatal(err)
		}
		if !take(t, a, p, "k", 1).Allowed {
			t.Error("a raised limit on b is not felt on a")
		}
		if s := a.Stats(); s.Nodes != 2 || s.Published < 2 || s.Received < 2 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A node notifies the store of a Set on another node. Otherwise a store that notices it later than
// the node would deny by the old limits, and the node would cache that.
func TestStoreIsNotifiedOfSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, bus := newFlaky(t), &wire{}
		notified := &notifiedStore{flaky: store}
		a := newTier(t, tiered.Config{Store: store, Bus: bus.join()})
		b := newTier(t, tiered.Config{Store: notified, Bus: bus.join()})
		p := newPolicy(t, weir.Limit{Rate: 10, Per: weir.Every(time.Minute)})
		takeMany(t, b, p, "warm", 1)
		more, err := p.With(weir.Limit{Rate: 20, Per: weir.Every(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Set(ctx, p, more); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if want := []string{p.Name()}; !slices.Equal(notified.policies, want) {
			t.Errorf("the store was notified of %q, want %q", notified.policies, want)
		}
	})
}

// notifiedStore records the notifications that it gets.
type notifiedStore struct {
	*flaky
	policies []string
}

func (s *notifiedStore) Changed(policy string) { s.policies = append(s.policies, policy) }

// The table is bounded, and evicts keys that were not used lately.
func TestKnowledgeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l, p := newTier(t, tiered.Config{Store: store, MaxKeys: 100}), newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Minute)})
		for i := range 10_000 {
			key := string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
			takeMany(t, l, p, key, 2)
		}
		if s := l.Stats(); s.Keys > 100 {
			t.Errorf("%d keys are known, want at most 100", s.Keys)
		}
	})
}
