package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

// openAccount returns the budget of the account with the provider, and what ends its connections. Workers
// with the same account and the same Redis share it.
func (o options) openAccount(ctx context.Context) (a *budget.Account, stop func(), err error) {
	c, err := o.accountConfig(os.Environ())
	if err != nil {
		return nil, nil, err
	}
	limiter, stop, err := openLimiter(ctx, o.redis)
	if err != nil {
		return nil, nil, err
	}
	if a, err = budget.New(limiter, c); err != nil {
		stop()
	}
	return a, stop, err
}

// freePlan is the free plan, with 60% of the throughput for sync and 40% for backfill. The preset has a burst of 1,250,
// for calls of 500 units. Here no call costs more than 120, and less is better: after a large burst, what the
// provider admits in ten seconds is used up before they are over, and then sync has to wait, too.
var freePlan = budget.Config{
	Preset:  "alchemy-free",
	Limits:  []ruleset.Limit{{Limit: weir.Limit{Rate: 485, Per: weir.Every(time.Second), Burst: 700}}},
	Classes: []budget.Class{{Name: "realtime", Share: 60}, {Name: "backfill", Share: 40}},
}

// accountConfig returns the budget that ALCHEMY_* variables describe and, if there are none, that of the free plan.
func (o options) accountConfig(environ []string) (budget.Config, error) {
	c, err := budget.FromEnv(environ)
	described := slices.ContainsFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(budget.Variables(), name)
	})
	if err == nil && !described {
		c = freePlan
	}
	c.Name, c.Classes = o.account, slices.Clone(c.Classes)
	for i := range c.Classes {
		c.Classes[i].NoBorrow = !o.lend
	}
	return c, err
}

// openLimiter returns what the account charges: Redis or, if that is off, a table of this process.
func openLimiter(ctx context.Context, redis string) (l weir.Limiter, stop func(), err error) {
	local, err := memstore.New(memstore.Config{})
	if err != nil || isOff(redis) {
		return local, func() {}, err
	}
	server, err := redisstore.ParseServer(redis)
	if err != nil {
		return nil, nil, err
	}
	store, err := redisstore.New(ctx, redisstore.Config{Redis: server, Timeout: storeTimeout})
	if err != nil {
		return nil, nil, fmt.Errorf("no Redis: %w\nStart one with redis-server, say where it is with -redis, or give each process a budget of its own with -redis off", err)
	}
	// While Redis is down, each of the two workers goes on with half of the budget.
	tier, err := tiered.New(tiered.Config{Store: store, Local: local, Nodes: 2, Timeout: storeTimeout, OnBreaker: logOutage})
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return tier, func() { tier.Close(); store.Close() }, nil
}

// isOff reports whether there is no Redis, so that each process has a budget of its own.
func isOff(redis string) bool { return redis == "" || redis == "off" }

// storeTimeout is long, as nothing here is as urgent as a budget that is exact.
const storeTimeout = 500 * time.Millisecond

func logOutage(_ int, open bool, why error) {
	if open {
		slog.Warn("Redis is unavailable: going on with half of the budget", "error", why)
	} else {
		slog.Info("Redis is available again: going on with the shared budget")
	}
}
