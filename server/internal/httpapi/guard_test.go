package httpapi

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// guardConfig is a guard with two requests per hour at all endpoints but some.
func guardConfig() *guard.Config {
	limits := func(n int64) []ruleset.Limit {
		return []ruleset.Limit{{Limit: weir.Limit{Rate: n, Per: weir.Every(time.Hour)}}}
	}
	return &guard.Config{
		Identity: guard.Identity{Keys: map[guard.KeyHash]guard.Owner{guard.HashKey("mobile-key"): {ID: "mobile", Plan: "pro"}}},
		Default:  guard.Endpoint{Limits: limits(2)},
		Endpoints: []guard.Endpoint{
			{Pattern: "POST /login", Name: "login", Limits: limits(2), Count: guard.CountFailures},
			{Pattern: "/search", Name: "search", Limits: limits(10), Cost: 5, Settle: true},
			{Pattern: "/status", Disabled: true},
		},
		Plans: []guard.Plan{{Name: "pro", Multiplier: 10}},
	}
}

// newGuard returns the guard of guardConfig on an engine that has its policies.
func newGuard(t *testing.T, engine *ruleset.Engine, rules *ruleset.Rules) *call.Guard {
	t.Helper()
	own, err := guard.Compile(*guardConfig(), rules)
	openapiMust(t, err)
	g, err := guard.NewWith(engine, own, guard.Hooks{})
	openapiMust(t, err)
	t.Cleanup(g.Close)
	proxies, err := clientip.New(clientip.Config{})
	openapiMust(t, err)
	return &call.Guard{Guard: g, Policies: map[string]bool{"login": true, "search": true, "guard.default": true}, Proxies: proxies}
}
