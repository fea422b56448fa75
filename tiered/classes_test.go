package tiered_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// sixtyForty returns the policies of two classes of 500 per second, of which 300 and 200 are guaranteed.
func sixtyForty(t *testing.T, others ...weir.Limit) (realtime, backfill *weir.Policy) {
	t.Helper()
	l := perSecond(500)
	l.Classes = weir.ClassesOf(weir.Class{Name: "realtime", Guaranteed: 300}, weir.Class{Name: "backfill", Guaranteed: 200})
	p := newPolicy(t, append([]weir.Limit{l}, others...)...)
	return weir.Must(p.Class("realtime")), weir.Must(p.Class("backfill"))
}

// TestClassesAreExact: with classes, no mode grants a unit that the store has not charged, and each class
// has its share on every node.
func TestClassesAreExact(t *testing.T) {
	for _, mode := range []tiered.Mode{tiered.Exact, tiered.Leased, tiered.Async} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				a := newTier(t, tiered.Config{Store: store, Mode: mode, Nodes: 2})
				b := newTier(t, tiered.Config{Store: store, Mode: mode, Nodes: 2})
				realtime, backfill := sixtyForty(t)
				for second := range 5 {
					if n := takeMany(t, a, backfill, "k", 300) + takeMany(t, b, backfill, "k", 300); n != 200 {
						t.Errorf("second %d: backfill got %d on two nodes, want 200", second, n)
					}
					if n := takeMany(t, b, realtime, "k", 200) + takeMany(t, a, realtime, "k", 200); n != 300 {
						t.Errorf("second %d: realtime got %d on two nodes, want 300", second, n)
					}
					if left := store.remaining(t, realtime, "k"); left != 0 {
						t.Errorf("second %d: the store has %d left for realtime", second, left)
					}
					time.Sleep(time.Second)
				}
				if s := a.Stats(); s.Unsynced != 0 || s.Lease != 0 || s.Async != 0 {
					t.Errorf("decisions by a lease or an allowance, or unsynced units: %+v", s)
				}
			})
		})
	}
}

// TestClassesAfterALongOutage: what a share granted at its rate is covered by what the store's limit has
// replenished meanwhile, so nobody owes it.
func TestClassesAfterALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l := newTier(t, tiered.Config{Store: store, Nodes: 2})
		realtime, backfill := sixtyForty(t)
		breakStore(t, store, l, realtime)
		total := 0
		for range 100 {
			total += takeMany(t, l, realtime, "k", 300)
			time.Sleep(100 * time.Millisecond)
		}
		if total < 10*250*98/100 || total > 150+10*250 {
			t.Errorf("realtime, alone, got %d in 10 s, want half of 500 per second", total)
		}
		heal(t, store, l)
		if left := store.remaining(t, backfill, "k"); left != 200 {
			t.Errorf("a second after the outage backfill has %d left, want its 200", left)
		}
	})
}

// TestClassesInAnOutage: each node has its part of each class's share. What all have granted is charged
// afterwards, and not to the class with the larger share.
func TestClassesInAnOutage(t *testing.T) {
	month := weir.Limit{Name: "month", Rate: 1000, Per: weir.Every(720 * time.Hour), Algorithm: weir.FixedWindow}
	for name, others := range map[string][]weir.Limit{"one limit": nil, "two": {month}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				l := newTier(t, tiered.Config{Store: store, Nodes: 2})
				realtime, backfill := sixtyForty(t, others...)
				breakStore(t, store, l, realtime)
				if n := takeMany(t, l, backfill, "k", 300); n != 100 {
					t.Errorf("backfill got %d in the outage, want half of its 200", n)
				}
				if n := takeMany(t, l, realtime, "k", 300); n != 150 {
					t.Errorf("realtime got %d in the outage, want half of its 300", n)
				}
				store.set(func(f *flaky) { f.down = nil })
				for l.Stats().OpenBreakers > 0 {
					time.Sleep(time.Millisecond)
				}
				if left := store.remaining(t, backfill, "k"); left != 0 {
					t.Errorf("backfill has %d left in the store, want to owe what was granted", left)
				}
				if left := store.remaining(t, realtime, "k"); left != 300 {
					t.Errorf("realtime has %d left in the store, want all of its 300", left)
				}
				total := 250
				for range 4 {
					total += takeMany(t, l, realtime, "k", 300)
					time.Sleep(time.Second)
				}
				if len(others) > 0 && total != 1000 {
					t.Errorf("%d units of 1,000 were granted in the month", total)
				}
			})
		})
	}
}
