package ruleset_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

func ExampleNew() {
	rules, err := ruleset.Compile([]ruleset.Policy{{
		Name: "api",
		Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 2, Per: weir.Every(time.Hour)}},
			{Limit: weir.Limit{Name: "address", Rate: 100, Per: weir.Every(time.Hour)}, By: "ip"},
		},
		Overrides: []ruleset.Override{{Key: "partner-*", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 50, Per: weir.Every(time.Hour)}}}}},
	}}, nil)
	if err != nil {
		panic(err)
	}
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		panic(err)
	}
	g, err := ruleset.New(table, rules)
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"alice", "alice", "alice", "partner-7"} {
		v, err := g.Check(context.Background(), g.Rules().Rule("api"), &ruleset.Query{
			Key: key, Cost: 1, Keys: []ruleset.Attribute{{Name: "ip", Value: "192.0.2.1"}},
		})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %v, %d remain, limited by %q\n", key, v.Allowed, v.Remaining, v.LimitedBy())
	}
	// Output:
	// alice: true, 1 remain, limited by ""
	// alice: true, 0 remain, limited by ""
	// alice: false, 0 remain, limited by "api"
	// partner-7: true, 49 remain, limited by ""
}

func ExampleEngine_Reserve() {
	rules, _ := ruleset.Compile([]ruleset.Policy{{
		Name:   "llm",
		Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)}, Unit: "tokens"}},
	}}, nil)
	table, _ := memstore.New(memstore.Config{})
	g, _ := ruleset.New(table, rules)
	ctx := context.Background()

	v, ticket, err := g.Reserve(ctx, rules.Rule("llm"), &ruleset.Query{Key: "alice", Client: "chat", Costs: []ruleset.Cost{{Unit: "tokens", Amount: 800}}}, time.Minute)
	fmt.Println(v.Allowed, v.Remaining, err)

	ticket, err = ruleset.ParseTicket(ticket.String(), "chat") // it may have been elsewhere
	if err != nil {
		panic(err)
	}
	settled, err := g.Settle(ctx, ticket, ruleset.Used{Costs: []ruleset.Cost{{Unit: "tokens", Amount: 300}}})
	fmt.Println(settled.Refunded, err)
	// Output:
	// true 200 <nil>
	// 500 <nil>
}
