package tiered_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

func TestAdmissionSketch(t *testing.T) {
	var s tiered.AdmissionSketch
	const ttl, otherTag = 5 * time.Second, 1 << 50 // added to a hash: same slot, other tag
	now := weir.Instant(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
	observe := func(hash uint64, want int, since time.Duration) {
		t.Helper()
		if n, at := s.Observe(hash, now, ttl); n != want || now.Sub(at) != since {
			t.Errorf("%d calls since %v ago, want %d and %v", n, now.Sub(at), want, since)
		}
	}
	observe(7, 1, 0)
	now = now.Add(2 * time.Second)
	observe(7, 2, 2*time.Second)
	observe(8, 1, 0)
	now = now.Add(3 * time.Second)
	observe(7, 3, 5*time.Second)
	observe(7+otherTag, 0, 0) // decrements the count of the other key
	observe(7, 3, 5*time.Second)
	now = now.Add(time.Millisecond)
	observe(7, 1, 0) // the count has expired
	observe(7+otherTag, 0, 0)
	observe(7+otherTag, 1, 0) // the slot is free
	observe(7, 0, 0)
	observe(7, 1, 0)
	for n := 2; n <= 300; n++ {
		observe(7, min(n, 256), 0)
	}
}

// Keys that are used once or twice get no entry, and a busy key among them gets a lease
// nevertheless.
func TestBusyKeyAmongRareKeys(t *testing.T) {
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

// Calls that the admission sketch counted are part of the demand: the eighth call gets a lease.
func TestEighthCallIsLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := leased(t, tiered.Config{})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Minute), Burst: 1_000_000})
		for range 20 {
			take(t, l, p, "k", 1)
		}
		if s := l.Stats(); s.Store != 7 || s.Lease != 13 {
			t.Errorf("%d of 20 decided by the store, %d leased, want 7 and 13", s.Store, s.Lease)
		}
	})
}
