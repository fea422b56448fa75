package tiered_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// remoteSet is two nodes of which one has changed the limits of a policy. The callers of
// the other still bring the old policy, as they may.
type remoteSet struct {
	store    *flaky // as the second node sees it
	node     *tiered.Limiter
	old, new *weir.Policy
}

// newRemoteSet has one node replace old by new, and the other receive the message.
func newRemoteSet(t *testing.T, mode tiered.Mode, old, new weir.Limit) *remoteSet {
	t.Helper()
	bus, store := &wire{}, newFlaky(t)
	s := &remoteSet{store: &flaky{table: store.table}, old: newPolicy(t, old)}
	first := newTier(t, tiered.Config{Store: store, Bus: bus.join(), Mode: mode})
	s.node = newTier(t, tiered.Config{Store: s.store, Bus: bus.join(), Mode: mode})
	takeMany(t, s.node, s.old, "before", 1)
	var err error
	if s.new, err = s.old.With(new); err != nil {
		t.Fatal(err)
	}
	if err := first.Set(ctx, s.old, s.new); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond) // of virtual time
	synctest.Wait()
	takeMany(t, s.node, s.old, "after", 1)
	return s
}

func perHour(n int64) weir.Limit { return weir.Limit{Rate: n, Per: weir.Every(time.Hour)} }

// A limit that another node has lowered is the lower one in an outage, too.
func TestRemoteSetChangesShare(t *testing.T) {
	for name, mode := range map[string]tiered.Mode{"exact": tiered.Exact, "async": tiered.Async, "leased": tiered.Leased} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRemoteSet(t, mode, perHour(1000), perHour(10))
				breakStore(t, s.store, s.node, s.old)
				if n := takeMany(t, s.node, s.old, "k", 1000); n != 5 {
					t.Errorf("%d of 1000 were admitted in the outage, want 5: half of the lowered limit", n)
				}
				heal(t, s.store, s.node)
			})
		})
	}
}

// A raised limit raises the share.
func TestRemoteSetRaisesShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRemoteSet(t, tiered.Exact, perHour(10), perHour(1000))
		breakStore(t, s.store, s.node, s.old)
		if n := takeMany(t, s.node, s.old, "k", 1000); n != 500 {
			t.Errorf("%d of 1000 were admitted in the outage, want 500: half of the raised limit", n)
		}
		heal(t, s.store, s.node)
	})
}

// An allowance is bounded by the limit in force, not by the one before.
func TestRemoteSetChangesCachedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRemoteSet(t, tiered.Async, perHour(1000), perHour(10))
		admitted := takeMany(t, s.node, s.old, "k", 1000)
		if admitted > 11 { // MaxUnsynced is 1 then
			t.Errorf("%d were admitted by one node of two, want at most 11", admitted)
		}
		if d := take(t, s.node, s.old, "k", 1); d.Limit != 10 {
			t.Errorf("limit %d, want 10: %+v", d.Limit, d)
		}
	})
}

// A lease is bounded by the limit in force: a node holds no more than it would if it
// had changed the limit itself.
func TestRemoteSetChangesLeases(t *testing.T) {
	var most [2]int64 // by whether the Set was on the other node
	for remote := range most {
		synctest.Test(t, func(t *testing.T) {
			const high, low = 1_000_000, 4000
			s := newRemoteSet(t, tiered.Leased, perHour(high), perHour(low))
			if remote == 0 {
				if err := s.node.Set(ctx, s.old, s.new); err != nil {
					t.Fatal(err)
				}
			}
			spent := int64(0)
			for range 50 { // which is busy: 20,000 per second
				spent += int64(takeMany(t, s.node, s.old, "k", 20))
				most[remote] = max(most[remote], low-spent-s.store.remaining(t, s.new, "k"))
				time.Sleep(time.Millisecond)
			}
			if spent != 1000 || s.node.Stats().Lease == 0 {
				t.Fatalf("%d of 1000 were admitted, stats %+v", spent, s.node.Stats())
			}
		})
	}
	if most[1] > most[0]+20 { // a refill may come before or after the calls of the same instant
		t.Errorf("%d units of 4000 were held, want at most %d", most[1], most[0]+20)
	}
}
