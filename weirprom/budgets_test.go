package weirprom

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// budgetFigures returns figures from 601 to 616 that are all different.
func budgetFigures(context.Context) []budget.Usage {
	return []budget.Usage{
		{
			Account: "alchemy-main", Level: "paused", Utilisation: 601, CooldownMs: 602_000,
			Horizons: []budget.HorizonUsage{{Limit: "main", Used: 603, Capacity: 604}, {Limit: "month", Used: 605, Capacity: 606, Burn: &budget.Burn{Projected: 616}}},
			Classes:  []budget.ClassUsage{{Class: "realtime", Available: 607}, {Class: "backfill", Available: 608}},
			Drift:    map[string]int64{"cu": 609}, UnknownCalls: 610, SoftExceeded: 611,
			Refusals: map[string]int64{"rate": 614, "denied": 615}, Denied: &budget.Denial{},
		},
		{Account: "unread", Level: "critical", UnknownCalls: 612, SoftExceeded: 613},
	}
}

// stalled is a limiter that answers only when its context ends, while it is stalled.
type stalled struct {
	weir.Limiter
	is bool
}

func (s *stalled) Do(ctx context.Context, b *weir.Batch) error {
	if !s.is {
		return s.Limiter.Do(ctx, b)
	}
	<-ctx.Done()
	return errors.Join(weir.ErrUnavailable, ctx.Err())
}

// Scrapes charge nothing, and a store that hangs delays them for a second, whatever the number of
// budgets. What this process counts is there.
func TestBudgetsOfAStalledStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stalled{Limiter: weir.Must(memstore.New(memstore.Config{}))}
		month := ruleset.Limit{Limit: weir.Limit{Name: "month", Rate: 100, Per: weir.Calendar(weir.Month, nil)}}
		var accounts []*budget.Account
		for _, name := range []string{"a", "b", "c"} {
			accounts = append(accounts, weir.Must(budget.New(store, budget.Config{
				Name: name, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Hour)}}, month}, Logger: slog.New(slog.DiscardHandler),
			})))
		}
		c := NewBudgets(func(ctx context.Context) (list []budget.Usage) {
			for _, a := range accounts {
				u, _ := a.Usage(ctx)
				list = append(list, u)
			}
			return list
		})
		first := series(t, c)
		if diff := cmp.Diff(first, series(t, c)); diff != "" || len(first) != 3*(2*2+1+2+1+11) {
			t.Errorf("%d series; a scrape changes (-first +second):\n%s", len(first), diff)
		}
		store.is = true
		began := time.Now()
		got := series(t, c)
		if took := time.Since(began); took != time.Second {
			t.Errorf("a scrape took %v", took)
		}
		want := map[string]float64{"weir_budget_unreadable a": 1, "weir_budget_unreadable b": 1, "weir_budget_unreadable c": 1}
		maps.DeleteFunc(got, func(_ string, n float64) bool { return n == 0 })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("series (-want +got):\n%s", diff)
		}
		if !slices.Contains(slices.Collect(maps.Keys(first)), "weir_budget_limit a main") {
			t.Errorf("%v", first)
		}
	})
}
