package guard

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/store/redisstore"
)

// newRedisStore returns a store as one of several processes has it.
func newRedisStore(t testing.TB, redis *redistest.Server) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(t.Context(), redisstore.Config{
		Redis:   redisstore.Server{Addrs: []string{redis.Addr()}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second},
		Timeout: 10 * time.Second, // the test is not about a slow machine
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// awaitLeft waits until so many subscriptions and items are left.
func awaitLeft(t testing.TB, l weir.Limiter, limits *subscriptionLimits, slots, items int64) {
	t.Helper()
	var got [4]int64
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = left(t, l, limits); got[0] == slots && got[1] == items {
			return
		}
	}
	t.Fatalf("%d subscriptions and %d items are left, want %d and %d", got[0], got[1], slots, items)
}

// F4.15 over Redis: the leases of processes that have crashed expire, and the count is exact.
func TestSubscriptionsCrashOverRedis(t *testing.T) {
	redis := redistest.Start(t)
	store := newRedisStore(t, redis)
	l := newTestLimits(t, Subscriptions{Create: fast, Modify: fast})
	r := newSubscriptions(store)
	defer r.close()
	r.ttl = time.Second
	for range 2 {
		began := time.Now()
		admitted := openAndCrash(t, r, l, func(s *Subscription) { s.crash() })
		if took := time.Since(began); admitted < 10 || took < r.ttl && admitted > 10 {
			t.Errorf("%d of 64 were admitted in %v", admitted, took)
		}
		awaitLeft(t, store, l, 10, 500)
	}

	// Another process lives. Its leases are renewed while those of the first expire.
	other := newSubscriptions(newRedisStore(t, redis))
	defer other.close()
	other.ttl = 10 * time.Second
	s := mustOpen(t, other, l, 100)
	first := s.expiry()
	openAndCrash(t, r, l, func(s *Subscription) { s.crash() })
	awaitLeft(t, store, l, 9, 400)
	for deadline := time.Now().Add(30 * time.Second); s.expiry() == first && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	if s.expiry() <= first {
		t.Error("it was not renewed")
	}
	wantLeft(t, store, l, 9, 400)
	mustAdd(t, mustOpen(t, other, l, 50), 20)
	s.Remove(40)
	wantLeft(t, store, l, 8, 370)
	mustRefuseAdd(t, s, 41, "items_each")
	for range 3 {
		mustOpen(t, other, l, 100)
	}
	if d := mustRefuseAdd(t, mustOpen(t, other, l, 40), 40, "items_total"); d.Remaining != 30 {
		t.Errorf("%d items remain", d.Remaining)
	}
	if s.Context().Err() != nil {
		t.Errorf("it has ended: %v", context.Cause(s.Context()))
	}
	other.close()
	wantLeft(t, store, l, 10, 500)
}

// expiry returns when the lease of an open subscription expires.
func (s *Subscription) expiry() weir.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[0].receipt.Expiry
}

// If Redis forgets everything, what is open counts again after a renewal.
func TestSubscriptionsRedisFlushed(t *testing.T) {
	redis := redistest.Start(t)
	store := newRedisStore(t, redis)
	l := newTestLimits(t, Subscriptions{})
	r := newTestSubscriptions(t, store)
	r.ttl = time.Second
	s := mustOpen(t, r, l, 30)
	redis.MustDo("FLUSHALL")
	wantLeft(t, store, l, 10, 500)
	awaitLeft(t, store, l, 9, 470)
	s.Close()
	wantLeft(t, store, l, 10, 500)
}

func BenchmarkSubscriptionRedis(b *testing.B) {
	store := newRedisStore(b, redistest.Start(b))
	l := newTestLimits(b, Subscriptions{Create: fast, Modify: fast})
	r := newTestSubscriptions(b, store)
	b.Run("open and close with 100 items", func(b *testing.B) {
		for b.Loop() {
			mustOpen(b, r, l, 100).Close()
		}
	})
	s := mustOpen(b, r, l, 99)
	b.Run("add and remove an item", func(b *testing.B) {
		for b.Loop() {
			mustAdd(b, s, 1)
			s.Remove(1)
		}
	})
	b.Run("renew with 99 items", func(b *testing.B) {
		for b.Loop() {
			if !s.renewNow() {
				b.Fatal("not renewed")
			}
		}
	})
}
