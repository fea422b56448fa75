package keyed

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// mostBudget is the goal for a reservation of a budget and its settlement, in ns.
const mostBudget = 1000

// budgetCase is a budget beside a bare reservation.
func budgetCase() harness.Case {
	return harness.Case{
		Name: "budget, reserve and settle", Note: "An account with two horizons and three classes: a call reserves 10 units and has used 6. A bare reservation is of one limit, without classes, beside another that is open.",
		Goroutines: 1, Expect: harness.Admit, NoChart: true, Against: holdName("ReserveAll and Settle", 1),
		Contenders: []harness.Contender{
			{Name: "weir Reserve and Settle of a budget", Kind: harness.Weir, AtMost: mostBudget, New: newBudget},
			besideOpen("ReserveAll and Settle", 1, 0, reserveOne),
		},
	}
}

// Budget is the configuration of an account with two horizons and three classes, which is never used up.
func Budget() budget.Config {
	return budget.Config{
		Name: "main", Logger: slog.New(slog.DiscardHandler),
		Limits: []ruleset.Limit{
			{Limit: weir.PerSecond(100_000_000)},
			{Limit: weir.Limit{Name: "month", Rate: 1_000_000_000_000, Per: weir.Calendar(weir.Month, nil)}},
		},
		Classes: []budget.Class{{Name: "realtime", Share: 50}, {Name: "interactive", Share: 30}, {Name: "backfill", Share: 20}},
	}
}

func newBudget() (harness.Run, error) {
	t, err := memstore.New(memstore.Config{MaxKeys: 1})
	if err != nil {
		return nil, err
	}
	a, err := budget.New(t, Budget())
	if err != nil {
		return nil, err
	}
	c, err := a.Controller("interactive")
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	return func(n int) (admitted int) {
		for range n {
			r, err := c.Reserve(ctx, time.Minute, budget.Units(10))
			if err != nil {
				continue
			}
			if s, err := r.Settle(ctx, budget.Units(6)); err == nil && s.Refunded == 4 {
				admitted++
			}
		}
		return admitted
	}, nil
}
