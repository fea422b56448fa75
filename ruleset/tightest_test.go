package ruleset

import (
	"testing"
	"time"
)

// TestTightestOfSeveralUnits asks which limit an admission is about.
func TestTightestOfSeveralUnits(t *testing.T) {
	p := policy("llm", every("requests", 60, time.Minute), every("tokens", 20_000, time.Minute).in("tokens"), every("ip", 15_000, time.Minute).in("tokens").by("ip"))
	for _, tt := range []struct {
		name  string
		query Query
		limit string
		left  int64
	}{
		{"requests have less left", Query{Key: "a", Cost: 6, Costs: []Cost{{"tokens", 200}}}, "llm.requests", 54},
		{"tokens have less left", Query{Key: "b", Cost: 1, Costs: []Cost{{"tokens", 12_600}}}, "llm.ip", 2_400},
	} {
		g := newEngine(t, newTable(t, nil), p)
		tt.query.Keys = []Attribute{ip("192.0.2.1")}
		v, err := g.Check(ctx, g.Rules().Rule("llm"), &tt.query)
		if err != nil || !v.Allowed || v.Variant.LimitName(v.Limit) != tt.limit || v.Remaining != tt.left {
			t.Errorf("%s: %+v, %v: want %s with %d left", tt.name, v.Decision, err, tt.limit, tt.left)
		}
	}
}
