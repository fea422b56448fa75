package budget_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// TestClockSkew: the clocks of three workers that share classes over Redis differ. Together they get no more than the
// burst and the rate, by the clock of Redis (S1.16, F1.11).
func TestClockSkew(t *testing.T) {
	const rate, burst, cost, calls = 500, 100, 10, 10
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	redis := redistest.Start(t)
	began := clockOf(redis)
	var units int64
	var all sync.WaitGroup
	for _, ahead := range []time.Duration{-5 * time.Second, 5 * time.Second, time.Hour} {
		a := skewed(t, redis, ahead, weir.Limit{Rate: rate, Per: weir.Every(time.Second), Burst: burst})
		for _, class := range a.Classes() {
			c := weir.Must(a.Controller(class))
			all.Go(func() {
				for range calls {
					if err := c.WaitForBudget(ctx, budget.Units(cost)); err != nil {
						t.Error(err)
					}
				}
			})
			units += calls * cost
		}
	}
	all.Wait()
	took := clockOf(redis).Sub(began)
	if most := burst + int64(rate*took.Seconds()); units > most {
		t.Errorf("%d units were granted in %v, at most %d may be", units, took, most)
	}
}

// skewed returns a worker's account over a tier and a connection of its own, whose clock is ahead of the others'.
func skewed(t *testing.T, redis *redistest.Server, ahead time.Duration, l weir.Limit) *budget.Account {
	t.Helper()
	clock := func() weir.Instant { return weir.Now().Add(ahead) }
	tier := weir.Must(tiered.New(tiered.Config{
		Store: openStore(t, redis), Local: weir.Must(memstore.New(memstore.Config{})), Nodes: 3, Timeout: 30 * time.Second, Now: clock,
	}))
	t.Cleanup(tier.Close)
	return weir.Must(budget.New(tier, budget.Config{
		Name: "main", Limits: []ruleset.Limit{{Limit: l}}, Clock: clock, Logger: slog.New(slog.DiscardHandler),
	}))
}
