package redistier

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/tiered"
)

// Denials and changes of one node reach all others. Denials are cached for up to a minute, so a
// node that notices a change earlier has received it over the bus.
func TestPropagation(t *testing.T) {
	redis := redistest.Start(t)
	limit := nodeLimit{Rate: 1, Burst: 10, Per: time.Hour}
	fleet := startFleet(t, nodeOrders{Addr: redis.Addr(), Limit: limit, Timeout: patient, MaxDeny: time.Minute})
	askAll(fleet, request{Do: "take", Key: "other", Cost: 1}) // now all use the policy

	start := askAll(fleet, request{Do: "stats"})
	deny := func(t *testing.T, key string) {
		awaitDelivery(fleet, start)
		deny(t, fleet, key)
	}
	t.Run("denial", func(t *testing.T) { deny(t, "k") })
	t.Run("reset", func(t *testing.T) {
		wantPropagated(t, fleet, deny, func(key string) time.Duration { return fleet[0].ask(request{Do: "reset", Key: key}).Took })
	})
	t.Run("set", func(t *testing.T) {
		wantPropagated(t, fleet, deny, func(string) time.Duration {
			limit.Burst += 10
			return fleet[0].ask(request{Do: "set", Limit: limit}).Took
		})
	})
	quit(fleet)
}

// awaitDelivery waits until every node has received what all others have published since
// the start.
func awaitDelivery(fleet []*process, start []reply) {
	for i, p := range fleet {
		p.await("what others have published", func(r reply) bool {
			var published int64
			for j, other := range fleet {
				if j != i {
					published += other.stats().Published - start[j].Stats.Published
				}
			}
			return r.Stats.Received-start[i].Stats.Received == published
		})
	}
}

// deny has the first node empty a key, and sees to it that the others know: they refuse
// it without calling the store.
func deny(t *testing.T, fleet []*process, key string) {
	t.Helper()
	var before []tiered.Stats
	for _, r := range askAll(fleet, request{Do: "stats"}) {
		before = append(before, r.Stats)
	}
	for fleet[0].ask(request{Do: "take", Key: key, Cost: 1}).Allowed {
	}
	for i, p := range fleet[1:] {
		was := before[i+1]
		p.await("message of the denial", func(r reply) bool { return r.Stats.Received > was.Received })
		for range 5 {
			if p.ask(request{Do: "take", Key: key, Cost: 1}).Allowed {
				t.Errorf("node %d admits what node 0 was denied", p.place)
			}
		}
		if s := p.stats(); s.DenyCache != was.DenyCache+5 || s.StoreCalls != was.StoreCalls {
			t.Errorf("node %d: %d of 5 denials were cached, and the store was called %d times; want 5 and 0",
				p.place, s.DenyCache-was.DenyCache, s.StoreCalls-was.StoreCalls)
		}
	}
}

// wantPropagated denies a key everywhere, has the first node change that, and measures when
// each node admits it again. This must be within 100 ms of the beginning of the call; where
// the machine was too busy, it is measured again, twenty times in all.
func wantPropagated(t *testing.T, fleet []*process, deny func(*testing.T, string), change func(key string) time.Duration) {
	t.Helper()
	const most, tries = 100 * time.Millisecond, 20
	for try := range tries {
		key := fmt.Sprint(t.Name(), try)
		deny(t, key)
		askAll(fleet, request{Do: "watch", Key: key})
		began := time.Now()
		took := change(key)
		worst := time.Duration(0)
		for i, r := range askAll(fleet, request{Do: "wait"}) {
			if r.At == 0 || r.Failed != "" {
				t.Fatalf("node %d has never admitted it: %s", i, r.Failed)
			}
			after := time.Unix(0, r.At).Sub(began)
			worst = max(worst, after)
			t.Logf("try %d: node %d admits after %v", try+1, i, after.Round(10*time.Microsecond))
		}
		t.Logf("the call took %v", took.Round(10*time.Microsecond))
		if worst <= most {
			return
		}
	}
	t.Errorf("the change took longer than %v in %d of %d measurements", most, tries, tries)
}
