package tiered_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

func TestCrowd(t *testing.T) {
	var c tiered.Crowd
	const ttl, rivals = 5 * time.Second, 1 << 50 // the same word, another key
	now := weir.Instant(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
	came := func(hash uint64, want int, since time.Duration) {
		t.Helper()
		if n, at := c.Came(hash, now, ttl); n != want || now.Sub(at) != since {
			t.Errorf("%d calls since %v ago, want %d and %v", n, now.Sub(at), want, since)
		}
	}
	came(7, 1, 0)
	now = now.Add(2 * time.Second)
	came(7, 2, 2*time.Second)
	came(8, 1, 0)
	now = now.Add(3 * time.Second)
	came(7, 3, 5*time.Second)
	came(7+rivals, 0, 0) // takes a call
	came(7, 3, 5*time.Second)
	now = now.Add(time.Millisecond)
	came(7, 1, 0) // too long ago
	came(7+rivals, 0, 0)
	came(7+rivals, 1, 0) // nobody's any more
	came(7, 0, 0)
	came(7, 1, 0)
	for n := 2; n <= 300; n++ {
		came(7, min(n, 256), 0)
	}
}

// Of keys that are asked for once or twice nothing is kept, and a busy one among them is leased all
// the same.
func TestBusyKeyInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := leased(t, tiered.Config{})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Minute), Burst: 1_000_000})
		for i := range 30_000 {
			take(t, l, p, fmt.Sprint("rare", i), 1)
			if i%20 == 0 {
				take(t, l, p, "busy", 1)
			}
		}
		s := l.Stats()
		if s.Keys > 300 || s.Leases != 1 || s.Lease < 1400 {
			t.Errorf("%d keys, %d leases, %d charges on them: %+v", s.Keys, s.Leases, s.Lease, s)
		}
	})
}

// Calls that were counted in the crowd count: the eighth gets a lease.
func TestEighthCallIsLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := leased(t, tiered.Config{})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Minute), Burst: 1_000_000})
		for range 20 {
			take(t, l, p, "k", 1)
		}
		if s := l.Stats(); s.Store != 7 || s.Lease != 13 {
			t.Errorf("%d of 20 asked of the store, %d leased, want 7 and 13", s.Store, s.Lease)
		}
	})
}
