package ruleset

import (
	"errors"
	"fmt"
	"testing"
)

// A plain number is in requests if the policy counts them, else in the only unit, else an error.
// No cost is free because no limit counts it.
func TestPlainCosts(t *testing.T) {
	g, _ := frozen(t,
		policy("requests", perHour("", 100)),
		policy("tokens", perHour("", 100).in("tokens")),
		policy("both", perHour("r", 100), perHour("t", 100).in("tokens")),
		policy("several", perHour("i", 100).in("input"), perHour("o", 100).in("output")),
		policy("off", perHour("r", 100).mode(Off), perHour("t", 100).in("tokens")),
		policy("by", perHour("", 100).in("tokens").by("ip")),
	)
	const bad = -1
	tests := []struct {
		policy string
		query  Query
		want   []int64 // what remains in each group; bad if the query is refused as wrong
	}{
		{"requests", Query{Cost: 30}, []int64{70}},
		{"requests", Query{Cost: 1, Implied: true, Costs: []Cost{{Requests, 30}}}, []int64{70}},
		{"requests", Query{Cost: 2, Costs: []Cost{{Requests, 30}}}, []int64{bad}},
		{"tokens", Query{Cost: 30}, []int64{70}},
		{"tokens", Query{Cost: 1, Implied: true}, []int64{99}},
		{"tokens", Query{Cost: 0}, []int64{100}},
		{"tokens", Query{Cost: 1, Implied: true, Costs: []Cost{{"tokens", 30}}}, []int64{70}},
		{"tokens", Query{Cost: 5, Costs: []Cost{{"tokens", 30}}}, []int64{bad}},
		{"tokens", Query{Cost: 0, Costs: []Cost{{"tokens", 30}}}, []int64{70}},
		{"tokens", Query{Cost: 1, Implied: true, Costs: []Cost{{Requests, 1}}}, []int64{bad}},
		{"both", Query{Cost: 30}, []int64{70, 100}},
		{"both", Query{Cost: 1, Implied: true, Costs: []Cost{{"tokens", 30}}}, []int64{99, 70}},
		{"both", Query{Cost: 2, Costs: []Cost{{"tokens", 30}}}, []int64{98, 70}},
		{"several", Query{Cost: 1}, []int64{bad}},
		{"several", Query{Cost: 1, Implied: true}, []int64{bad}},
		{"several", Query{Cost: 0}, []int64{100, 100}},
		{"several", Query{Cost: 1, Implied: true, Costs: []Cost{{"input", 3}}}, []int64{97, 100}},
		{"several", Query{Cost: 1, Costs: []Cost{{"input", 3}}}, []int64{bad}},
		{"several", Query{Cost: 1, Implied: true, Costs: []Cost{{"inputs", 3}}}, []int64{bad}},
		{"off", Query{Cost: 30}, []int64{100}}, // the policy counts requests, and does not limit them now
		{"by", Query{Cost: 30}, []int64{70}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %+v", tt.policy, tt.query), func(t *testing.T) {
			q := tt.query
			q.Key, q.Keys = t.Name(), []Attribute{ip(t.Name())}
			if len(q.Key) > 200 {
				q.Key, q.Keys = q.Key[:200], []Attribute{ip(q.Key[:200])}
			}
			_, err := g.Check(ctx, g.Rules().Rule(tt.policy), &q)
			if tt.want[0] == bad {
				if _, ok := errors.AsType[*InputError](err); !ok {
					t.Fatalf("got %v, want an InputError", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := left(t, g, tt.policy, q); fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%v remain, want %v", got, tt.want)
			}
		})
	}
}

// What was used is in units that the policy counts; a plain number is in its plain unit.
func TestUsedUnits(t *testing.T) {
	tests := []struct {
		policy string
		used   Used
		want   string // what remains in each group; "" if it is wrong
	}{
		{"tokens", Used{HaveCost: true, Cost: 10}, "[90]"},
		{"tokens", Used{Costs: []Cost{{"tokens", 10}}}, "[90]"},
		{"tokens", Used{Costs: []Cost{{"token", 10}}}, ""},
		{"tokens", Used{All: true}, "[60]"},
		{"tokens", Used{None: true}, "[100]"},
		{"tokens", Used{HaveCost: true, Cost: 10, Costs: []Cost{{"tokens", 10}}}, ""},
		{"several", Used{HaveCost: true, Cost: 10}, ""},
		{"several", Used{HaveCost: true}, "[60 60]"},
		{"several", Used{Costs: []Cost{{"input", 10}}}, "[90 60]"},
		{"several", Used{Costs: []Cost{{"input", 10}, {"input", 20}}}, ""},
	}
	for _, tt := range tests {
		g, _ := frozen(t, policy("tokens", perHour("", 100).in("tokens")), policy("several", perHour("i", 100).in("input"), perHour("o", 100).in("output")))
		q := Query{Key: "a", Cost: 40}
		if tt.policy == "several" {
			q = Query{Key: "a", Cost: 1, Implied: true, Costs: []Cost{{"input", 40}, {"output", 40}}}
		}
		_, ticket, err := g.Reserve(ctx, g.Rules().Rule(tt.policy), &q, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Settle(ctx, ticket, tt.used)
		if _, bad := errors.AsType[*InputError](err); bad != (tt.want == "") || err != nil && !bad {
			t.Errorf("%s, %+v: %v", tt.policy, tt.used, err)
		}
		if tt.want == "" {
			if _, err := g.Settle(ctx, ticket, Used{None: true}); err != nil { // it is still open
				t.Error(err)
			}
			tt.want = fmt.Sprint(left(t, g, tt.policy, Query{Key: "unused"}))
		}
		if got := fmt.Sprint(left(t, g, tt.policy, Query{Key: "a"})); got != tt.want {
			t.Errorf("%s, %+v: %s remain, want %s", tt.policy, tt.used, got, tt.want)
		}
	}
}
