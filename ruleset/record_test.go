package ruleset

import (
	"fmt"
	"testing"
)

// The cost of a record is in the unit of the limit that the decision is about.
func TestRecordCosts(t *testing.T) {
	in := func(requests, tokens int64) []Cost { return []Cost{{Requests, requests}, {"tokens", tokens}} }
	for _, tt := range []struct {
		policy string
		query  Query
		want   string
	}{
		{"requests", Query{Cost: 30}, "30 requests"},
		{"tokens", Query{Cost: 30}, "30 tokens"},
		{"tokens", Query{Cost: 1, Implied: true, Costs: []Cost{{"tokens", 30}}}, "30 tokens"},
		{"both", Query{Costs: in(1, 30)}, "30 tokens"}, // which is the tightest
		{"both", Query{Costs: in(40, 30)}, "40 requests"},
		{"both", Query{Costs: in(2, 101)}, "101 tokens"}, // which refuses
		{"both", Query{Costs: in(101, 3)}, "101 requests"},
		{"shadow", Query{Cost: 2, Costs: []Cost{{"tokens", 101}}}, "101 tokens"}, // which would refuse
		{"off", Query{Cost: 30}, "30 requests"},
	} {
		g, _ := frozen(t,
			policy("requests", perHour("", 100)),
			policy("tokens", perHour("", 100).in("tokens")),
			policy("both", perHour("r", 100), perHour("t", 100).in("tokens")),
			policy("shadow", perHour("r", 100), perHour("t", 100).in("tokens").mode(Shadow)),
			policy("off", perHour("", 100).mode(Off)),
		)
		tt.query.Key = "alice"
		v := check(t, g, tt.policy, tt.query)
		r := NewRecord(&tt.query, &v, false, Untimed)
		if got := fmt.Sprint(r.Cost, " ", r.Unit); got != tt.want {
			t.Errorf("%s, %+v: %s, want %s", tt.policy, tt.query, got, tt.want)
		}
	}
}
