package fleettest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// algorithms are limits of about so many units per second, by each algorithm and by two at once.
// Calendar days change one second after midnight.Add(-time.Second).
func algorithms(rate int64) map[string][]weir.Limit {
	second := weir.Every(time.Second)
	one := func(l weir.Limit) []weir.Limit {
		l.Rate = rate
		if l.Per == (weir.Period{}) {
			l.Per = second
		}
		return []weir.Limit{l}
	}
	return map[string][]weir.Limit{
		"gcra":           one(weir.Limit{}),
		"token bucket":   one(weir.Limit{Algorithm: weir.TokenBucket, Burst: rate / 4}),
		"fixed window":   one(weir.Limit{Algorithm: weir.FixedWindow}),
		"calendar":       one(weir.Limit{Per: weir.Calendar(weir.Day, nil)}),
		"sliding window": one(weir.Limit{Algorithm: weir.SlidingWindow}),
		"sliding log":    one(weir.Limit{Algorithm: weir.SlidingLog}),
		"anchored":       one(weir.Limit{Algorithm: weir.AnchoredWindow}),
		"dual window": {
			{Rate: rate, Per: second, Algorithm: weir.DualWindow},
			{Name: "minute", Rate: 3 * rate, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow},
		},
		"second and day": {
			{Rate: rate, Per: second, Burst: rate / 2},
			{Name: "day", Rate: 3 * rate, Per: weir.Calendar(weir.Day, nil)},
		},
	}
}

// eachAlgorithm runs a test for each algorithm in each of some modes.
func eachAlgorithm(t *testing.T, rate int64, modes []tiered.Mode, test func(t *testing.T, s Scenario)) {
	all := algorithms(rate)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, mode := range modes {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				test(t, Scenario{
					Seed: 1, Nodes: 3, Mode: mode, OnError: weir.FailClosed, Limits: all[name], Begin: midnight.Add(-time.Second),
					Length: time.Second, Latency: Span{200 * time.Microsecond, time.Millisecond},
					Clocks: []Clock{{Skew: -3 * time.Second}, {Skew: 2 * time.Second}, {Skew: 777 * time.Millisecond}},
				})
			})
		}
	}
}

// Who is refused, by the store or by the node, and waits exactly RetryAfter, while nobody else
// takes anything, is admitted.
func TestRetryAfter(t *testing.T) {
	eachAlgorithm(t, 20, []tiered.Mode{tiered.Exact, tiered.Leased, tiered.Async}, func(t *testing.T, s Scenario) {
		waited := 0
		s.script = func(f *fleet) {
			for round := range 12 {
				node, cost := round%s.Nodes, int64(1+round%3)
				wait := exhaust(f, node, cost)
				if wait > time.Minute {
					return // until the next day
				}
				waited++
				time.Sleep(wait)
				if c := f.call(node, "a", cost); !c.Decision.Allowed {
					t.Errorf("round %d, after %v: %v", round, wait, c)
				}
				time.Sleep(2 * tiered.DefaultFlushEvery) // others flush
			}
		}
		r := s.Run(t)
		fail(t, s, r)
		if waited == 0 {
			t.Errorf("nobody was refused: %v", r.Stats)
		}
	})
}

// exhaust takes until it is refused twice, the second time by what the node knows if it can be, and
// returns the RetryAfter.
func exhaust(f *fleet, node int, cost int64) time.Duration {
	for {
		if f.call(node, "a", cost).Decision.Allowed {
			continue
		}
		if c := f.call(node, "a", cost); !c.Decision.Allowed {
			return c.Decision.RetryAfter
		}
	}
}
