package ruleset

import (
	"fmt"
	"testing"
	"time"
)

// vast is as much as a benchmark can use.
func vast(name string) Limit { return every(name, 1_000_000_000, time.Second) }

func simple() Policy { return policy("p", vast("")) }

func threeGroups() Policy { return policy("p", vast(""), vast("i").by("ip"), vast("t").in("tokens")) }

func TestCheckAllocates(t *testing.T) {
	if raced() {
		t.Skip("the race detector allocates")
	}
	tests := []struct {
		name   string
		policy Policy
		query  Query
		most   float64
	}{
		{"simple", simple(), one("k"), 0},
		{"override", simple().with(override("k*", vast(""))), one("k"), 0},
		{"plan", simple().plans(plan("pro", every("", 2_000_000_000, time.Second))), one("k").on("pro"), 0},
		{"scale", simple(), one("k").at(5000, 0), 0},
		{"plan, override and scale", simple().plans(plan("pro", every("", 2_000_000_000, time.Second))).with(override("*", vast(""))), one("k").on("pro").at(5000, 2500), 0},
		{"three groups", threeGroups(), Query{Key: "k", Cost: 1, Keys: []Attribute{ip("1")}, Costs: []Cost{{"tokens", 5}}}, 1},
	}
	for _, tt := range tests {
		g := newEngine(t, newTable(t, nil), tt.policy)
		r, q := g.Rules().Rule("p"), tt.query
		n := testing.AllocsPerRun(1000, func() {
			if v, err := g.Check(ctx, r, &q); err != nil || !v.Allowed {
				t.Fatal(v, err)
			}
		})
		if n > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, n, tt.most)
		}
	}
}

func benchmark(b *testing.B, p Policy, q Query) {
	g := newEngine(b, newTable(b, nil), p)
	r := g.Rules().Rule("p")
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		q := q
		for i := 0; pb.Next(); i++ {
			q.Key = keys[i%len(keys)]
			if _, err := g.Check(ctx, r, &q); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) { benchmark(b, simple(), one("")) }

func BenchmarkCheckOverride(b *testing.B) {
	benchmark(b, simple().with(override("key-1*", vast("")), override("key-2", vast(""))), one(""))
}

func BenchmarkCheckPlan(b *testing.B) {
	benchmark(b, simple().plans(plan("pro", every("", 2_000_000_000, time.Second))), one("").on("pro"))
}

func BenchmarkCheckScale(b *testing.B) { benchmark(b, simple(), one("").at(5000, 0)) }

func BenchmarkCheckThreeGroups(b *testing.B) {
	benchmark(b, threeGroups(), Query{Cost: 1, Keys: []Attribute{ip("192.0.2.1")}, Costs: []Cost{{"tokens", 5}}})
}

func BenchmarkCheckShadow(b *testing.B) {
	p := simple()
	p.Mode = Shadow
	benchmark(b, p, one(""))
}

func BenchmarkStore(b *testing.B) { // what BenchmarkCheck stands on
	table := newTable(b, nil)
	p := compile(b, nil, simple()).Rule("p").Base().groups[0].policy
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := table.Take(ctx, p, keys[i%len(keys)], 1); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCheckEach100(b *testing.B) {
	g := newEngine(b, newTable(b, nil), simple())
	items := make([]Item, 100)
	for i := range items {
		items[i] = Item{Rule: g.Rules().Rule("p"), Query: one(fmt.Sprint("key-", i))}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.CheckEach(ctx, items, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReserveAndSettle(b *testing.B) {
	g := newEngine(b, newTable(b, nil), threeGroups())
	r := g.Rules().Rule("p")
	q := Query{Key: "k", Client: "c", Cost: 1, Keys: []Attribute{ip("192.0.2.1")}, Costs: []Cost{{"tokens", 5}}}
	b.ReportAllocs()
	for b.Loop() {
		_, ticket, err := g.Reserve(ctx, r, &q, 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.Settle(ctx, ticket, Used{None: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile10kOverrides(b *testing.B) {
	p := simple()
	for i := range maxOverrides {
		p.Overrides = append(p.Overrides, override(fmt.Sprint("partner-", i, "-*"), every("", int64(i+1), time.Second)))
	}
	previous := compile(b, nil, p)
	for b.Loop() {
		compile(b, previous, p)
	}
}

func BenchmarkForAmong10kPatterns(b *testing.B) {
	p := simple()
	for i := range maxOverrides {
		p.Overrides = append(p.Overrides, override(fmt.Sprint("partner-", i, "-*"), every("", int64(i+1), time.Second)))
	}
	r := compile(b, nil, p).Rule("p")
	now := time.Now()
	for b.Loop() {
		r.For("partner-of-nobody", now)
	}
}
