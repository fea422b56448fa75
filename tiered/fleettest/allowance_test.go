package fleettest

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// Four nodes are asked for one key 2,000 times a second, and nobody waits longer than two
// round trips, whether the key has room or is exhausted. Check knows how long that is.
func TestAsyncNobodyWaits(t *testing.T) {
	for _, rate := range []int64{400, 6000} {
		eachAlgorithm(t, rate, []tiered.Mode{tiered.Async}, func(t *testing.T, s Scenario) {
			s.Nodes, s.Length, s.Saturated = 4, 2*time.Second, rate < 2000
			for range s.Nodes {
				s.Demand = append(s.Demand, []Phase{{To: s.Length, PerSecond: 500}})
			}
			r := s.Run(t)
			fail(t, s, r)
			var longest time.Duration
			for _, c := range r.Calls {
				longest = max(longest, c.End-c.Start)
			}
			t.Logf("%d per second: %d calls waited for up to %v, a round trip being %v at most", rate, len(r.Calls), longest, 2*s.Latency.Max)
		})
	}
}

// many is so many units that no node has to flush, and hour so long that none does.
const (
	many = 50
	hour = time.Hour
)

// oneNode is a scenario in which a node's allowance is all that counts.
func oneNode(s Scenario) Scenario {
	s.Nodes, s.MaxUnsynced, s.FlushEvery = 1, many, hour
	return s
}

// spend takes so many units one by one, of which the last were not sent to the store.
func spend(f *fleet, units int) {
	for range units {
		f.call(0, "a", 1)
	}
}

// sent returns how many units of usage the store was sent by now.
func (f *fleet) sent() (sum int64) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for _, op := range f.store.ops {
		if op.Op == weir.DebitEach {
			sum += op.Units
		}
	}
	return sum
}

// Peek subtracts what this node has granted by itself. It sends none of it, and what it learns is no
// allowance.
func TestAsyncPeek(t *testing.T) {
	eachAlgorithm(t, 100, []tiered.Mode{tiered.Async}, func(t *testing.T, s Scenario) {
		s = oneNode(s)
		s.script = func(f *fleet) {
			spend(f, 5)
			before := f.sent()
			d, err := weir.Peek(context.Background(), f.nodes[0], f.policy, "a", 1)
			limit := f.policy.Capacity()
			if err != nil || d.Remaining > limit-4 || d.Remaining < limit-5 { // with what has come back meanwhile
				t.Errorf("after 5 of %d units: %+v, %v", limit, d, err)
			}
			if got := f.sent(); got != before {
				t.Errorf("Peek has sent %d units", got-before)
			}
		}
		s.Run(t)
	})
}

// Reset discards what was granted and not sent, so that it is not charged afterwards.
func TestAsyncReset(t *testing.T) {
	eachAlgorithm(t, 100, []tiered.Mode{tiered.Async}, func(t *testing.T, s Scenario) {
		s = oneNode(s)
		s.script = func(f *fleet) {
			spend(f, 5)
			before := f.sent()
			if err := weir.Reset(context.Background(), f.nodes[0], f.policy, "a"); err != nil {
				t.Error(err)
			}
			f.nodes[0].Close() // which flushes
			if got := f.sent(); got != before {
				t.Errorf("%d units that were used before the reset were sent after it", got-before)
			}
		}
		s.Run(t)
	})
}

// After Close nobody flushes, so what was left of an allowance is not granted any more.
func TestAsyncClose(t *testing.T) {
	eachAlgorithm(t, 100, []tiered.Mode{tiered.Async}, func(t *testing.T, s Scenario) {
		s = oneNode(s)
		s.script = func(f *fleet) {
			spend(f, 5)
			f.nodes[0].Close()
			if c := f.call(0, "a", 1); c.By != ByStore || !c.Decision.Allowed {
				t.Errorf("after Close: %v", c)
			}
		}
		r := s.Run(t)
		fail(t, s, r)
	})
}

// Set invalidates allowances, and what was granted under the old limits is charged.
func TestAsyncSet(t *testing.T) {
	eachAlgorithm(t, 100, []tiered.Mode{tiered.Async}, func(t *testing.T, s Scenario) {
		s = oneNode(s)
		s.script = func(f *fleet) {
			spend(f, 10)
			limits := f.policy.Limits()
			for i := range limits {
				limits[i].Rate, limits[i].Burst = 2, 2
			}
			if err := f.nodes[0].Set(context.Background(), f.policy, must(weir.NewPolicy("fleet", limits...))); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
			if c := f.call(0, "a", 1); c.Decision.Allowed {
				t.Errorf("10 units are in use, and 2 are allowed: %v", c)
			}
		}
		s.Run(t)
	})
}

// Keys for which a node has no room are decided by the store, and usage that was not sent is not
// evicted.
func TestAsyncFewKeys(t *testing.T) {
	eachAlgorithm(t, 40, []tiered.Mode{tiered.Async}, func(t *testing.T, s Scenario) {
		s.Keys, s.MaxKeys, s.MaxUnsynced = 6, 1, 5
		for range s.Nodes {
			s.Demand = append(s.Demand, []Phase{{To: s.Length, PerSecond: 300}})
		}
		fail(t, s, s.Run(t))
	})
}
