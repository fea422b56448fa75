package apitest

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
)

// Policies are one plain, one with two limits, one by attributes and units, one of slots,
// one of which the classes realtime and backfill each have a part, and one that Bob may not
// use.
func Policies() []ruleset.Policy {
	second, minute := weir.Every(time.Second), weir.Every(time.Minute)
	return []ruleset.Policy{
		{Name: "default", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: second, Burst: 100}}}},
		{Name: "api", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 3, Per: second, Burst: 10}},
			{Limit: weir.Limit{Name: "daily", Rate: 12, Per: weir.Calendar(weir.Day, nil)}},
		}},
		{Name: "llm", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Name: "calls", Rate: 10, Per: minute}, By: "user"},
			{Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: minute}, By: "user", Unit: "tokens"},
		}},
		{Name: "slots", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Algorithm: weir.Concurrency}}}},
		{Name: "jobs", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: second, Classes: weir.ClassesOf(
			weir.Class{Name: "realtime", Guaranteed: 6, NoBorrow: true}, weir.Class{Name: "backfill", Guaranteed: 4, NoBorrow: true},
		)}}}},
		{Name: "secret", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: minute}}}},
	}
}

// Tokens of callers. No client has Wrong.
const (
	Alice = "alice-0123456789abcdef0123456789abcdef"
	Bob   = "bob-0123456789abcdef0123456789abcdef"
	Carol = "carol-0123456789abcdef0123456789abcdef"
	Wrong = "wrong-0123456789abcdef0123456789abcdef"
)

// Authenticator accepts three clients: alice, who may use all policies, bob, who may use api
// and those that begin with d, and carol, who may use the class realtime of all policies. It throttles addresses that send wrong tokens.
func Authenticator(t testing.TB) *identity.Authenticator {
	t.Helper()
	clients, err := identity.NewClients([]identity.Client{
		{Name: "alice", Tokens: []secret.Secret{secret.New(Alice)}},
		{Name: "bob", Tokens: []secret.Secret{secret.New(Bob)}, Grants: identity.Grants{Policies: []string{"api", "d*"}}},
		{Name: "carol", Tokens: []secret.Secret{secret.New(Carol)}, Grants: identity.Grants{Classes: []string{"realtime"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &identity.Authenticator{Clients: clients, Failures: &identity.Failures{}}
}
