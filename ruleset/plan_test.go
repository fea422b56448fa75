package ruleset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
)

func plan(name string, limits ...Limit) Plan  { return Plan{Name: name, Limits: limits} }
func (p Policy) plans(plans ...Plan) Policy   { p.Plans = plans; return p }
func (q Query) on(plan string) Query          { q.Plan = plan; return q }
func (o Override) until(t time.Time) Override { o.Until = t; return o }

func (r *Rule) put(t tester, overrides ...Override) {
	t.Helper()
	for _, o := range overrides {
		if err := r.Override(o); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPrecedence(t *testing.T) {
	now := time.Now()
	in := now.Add
	r := compile(t, nil, policy("p", perHour("", 1)).plans(plan("pro", perHour("", 2)), plan("max", perHour("", 3))).with(
		override("*", perHour("", 10)).until(in(4*time.Hour)),
		override("a*", perHour("", 11)).until(in(3*time.Hour)),
		override("al*", perHour("", 12)).until(in(2*time.Hour)),
		override("alice", perHour("", 13)).until(in(time.Hour)),
	)).Rule("p")
	type step struct {
		key, plan string
		after     time.Duration
		want      int64
	}
	test := func(name string, steps []step) {
		t.Helper()
		for _, s := range steps {
			v := r.find(s.key, s.plan, in(s.after))
			if rate(v) != s.want {
				t.Errorf("%s: %q with plan %q after %v has the rate %d, want %d", name, s.key, s.plan, s.after, rate(v), s.want)
			}
			if isPlan := s.want == 2 || s.want == 3; isPlan != (v.Plan() != "") || isPlan && (v.Plan() != s.plan || v.Override() != nil) {
				t.Errorf("%s: %q with plan %q after %v is plan %q with override %v", name, s.key, s.plan, s.after, v.Plan(), v.Override())
			}
			if s.plan == "" && r.For(s.key, in(s.after)) != v {
				t.Errorf("%s: For(%q) is another variant", name, s.key)
			}
		}
	}
	test("policy's overrides", []step{
		{"alice", "pro", 0, 13},
		{"alice", "pro", time.Hour, 12},
		{"alice", "pro", 2 * time.Hour, 11},
		{"alice", "pro", 3 * time.Hour, 2}, // before the override for all keys
		{"alice", "max", 3 * time.Hour, 3},
		{"alice", "other", 3 * time.Hour, 10}, // an unknown plan is none
		{"alice", "", 3 * time.Hour, 10},
		{"alice", "", 4 * time.Hour, 1},
		{"alice", "other", 4 * time.Hour, 1},
		{"alice", "pro", 4 * time.Hour, 2},
		{"bob", "pro", 0, 2},
		{"bob", "", 0, 10},
		{"", "pro", 0, 2},
		{"", "", 0, 10},
	})
	r.put(t, override("*", perHour("", 20)).until(in(3*time.Hour)))
	test("operator's for all keys", []step{{"bob", "pro", 0, 2}, {"bob", "", 0, 20}, {"bob", "", 3 * time.Hour, 10}, {"alice", "pro", 0, 13}, {"alice", "pro", 2 * time.Hour, 11}})
	r.put(t, override("a*", perHour("", 21)).until(in(4*time.Hour)))
	test("operator's for a prefix", []step{
		{"alice", "pro", 0, 13},
		{"alice", "pro", time.Hour, 12}, // the policy's has the longer prefix
		{"alice", "pro", 2 * time.Hour, 21},
		{"alice", "pro", 4 * time.Hour, 2},
		{"bob", "pro", 0, 2},
	})
	r.put(t, override("alice", perHour("", 22)).until(in(30*time.Minute)))
	test("operator's for the key", []step{{"alice", "pro", 0, 22}, {"alice", "pro", 30 * time.Minute, 13}, {"alice", "pro", time.Hour, 12}})
}

// The variant that applies is the most specific, whatever overrides and plans there are.
func TestPrecedenceIsTheModel(t *testing.T) {
	patterns := []string{"ab", "a", "b", "ab*", "a*", "*"}
	now := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, first int64) (list []Override) {
			for i, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(patterns), 0, len(patterns), func(s string) string { return s }).Draw(t, name) {
				o := override(key, perHour("", first+int64(i)))
				if hours := rapid.IntRange(0, 3).Draw(t, "until"); hours > 0 {
					o.Until = now.Add(time.Duration(hours) * time.Hour)
				}
				list = append(list, o)
			}
			return list
		}
		own, operators := draw("own", 100), draw("operators", 200)
		r := compile(t, nil, policy("p", perHour("", 1)).plans(plan("pro", perHour("", 2))).with(own...)).Rule("p")
		r.put(t, operators...)
		key := rapid.SampledFrom([]string{"", "a", "ab", "abc", "b", "c"}).Draw(t, "key")
		with := rapid.SampledFrom([]string{"", "pro", "other"}).Draw(t, "plan")
		at := now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "after")) * time.Hour)

		var order []string // of patterns, "pro" for the plan
		order = append(order, key)
		for n := len(key); n > 0; n-- {
			order = append(order, key[:n]+"*")
		}
		order = append(order, "pro", "*")
		want := int64(1)
		for i := len(order) - 1; i >= 0; i-- {
			if order[i] == "pro" && with == "pro" {
				want = 2
			}
			for _, list := range [][]Override{own, operators} {
				for _, o := range list {
					if o.Key == order[i] && (o.Until.IsZero() || at.Before(o.Until)) {
						want = o.Limits[0].Rate
					}
				}
			}
		}
		if got := rate(r.find(key, with, at)); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func TestPlanProblems(t *testing.T) {
	fine := perHour("", 5)
	var many []Plan
	for i := range maxPlans + 1 {
		many = append(many, plan(fmt.Sprint("p", i), fine))
	}
	long := strings.Repeat("n", maxName+1)
	tests := []struct {
		name  string
		plans []Plan
		want  []string
	}{
		{"fine", []Plan{plan("a", fine), plan("b", perHour("main", 6)), plan(long[1:], fine)}, nil},
		{"as many as fit", many[:maxPlans], nil},
		{"more than fit", many, []string{`ruleset: policy "p": plans: there are 101: at most 100 fit`}},
		{"no name", []Plan{plan("", fine)}, []string{`ruleset: policy "p": plans: must be 1 to 64 letters, digits or -_.`}},
		{"long name", []Plan{plan(long, fine)}, []string{`ruleset: policy "p": plan "` + long + `": plans: must be 1 to 64 letters, digits or -_.`}},
		{"wrong name", []Plan{plan("a b", fine)}, []string{`ruleset: policy "p": plan "a b": plans: must be 1 to 64 letters, digits or -_.`}},
		{"named alike", []Plan{plan("a", fine), plan("a", fine)}, []string{`ruleset: policy "p": plan "a": plans: the name is taken by another plan of the policy`}},
		{"no limits", []Plan{plan("a")}, []string{`ruleset: policy "p": plan "a": limits: there is none, so it changes nothing`}},
		{"no such limit", []Plan{plan("a", perHour("x", 1))}, []string{`ruleset: policy "p": plan "a": limit 1: name: the policy has no limit "x"; it has main`}},
		{"twice", []Plan{plan("a", fine, fine)}, []string{`ruleset: policy "p": plan "a": limit 2: name: "main" is overridden twice`}},
		{"attribute", []Plan{plan("a", fine.by("ip"))}, []string{`ruleset: policy "p": plan "a": limit 1: by: a plan changes rate, per and burst; by, unit and mode stay the policy's`}},
		{"two problems", []Plan{plan("a", perHour("", 0)), plan("b")}, []string{
			`ruleset: policy "p": plan "a": limit 1: rate: 0: must be between 1 and 9007199254740991; leave the limit out for no limit`,
			`ruleset: policy "p": plan "b": limits: there is none, so it changes nothing`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile([]Policy{policy("p", fine).plans(tt.plans...)}, nil)
			var got []string
			for _, e := range fielderr.Split(err) {
				got = append(got, e.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// Overrides and plans inherit what they do not set, and always Hidden.
func TestHiddenIsInherited(t *testing.T) {
	hidden, shown := perHour("a", 5).by("ip").using(weir.FixedWindow), perHour("b", 5)
	hidden.Hidden = true
	changed := perHour("b", 7)
	changed.Hidden = true
	r := compile(t, nil, policy("p", hidden, shown).plans(plan("pro", perHour("a", 6), changed)).with(override("k", perHour("a", 6), changed))).Rule("p")
	scaled := one("k")
	scaled.Scale = 5000
	for name, v := range map[string]*Variant{"base": r.Base(), "override": r.For("k", time.Now()), "plan": r.planned("pro"), "scaled": r.variant(&scaled)} {
		a, b := v.Limits()[0], v.Limits()[1]
		if !a.Hidden || b.Hidden || a.By != "ip" || a.Algorithm != weir.FixedWindow {
			t.Errorf("%s: %+v and %+v", name, a, b)
		}
	}
}

// A plan acts on the units in use under another plan or none.
func TestPlansShareState(t *testing.T) {
	p := policy("p", every("", 4, 1000*time.Hour)).plans(plan("pro", every("", 10, 1000*time.Hour)))
	g, _ := frozen(t, p)
	for n := range 7 {
		if v := check(t, g, "p", one("k").on("pro")); !v.Allowed || v.Decision.Limit != 10 || v.Remaining != int64(9-n) || v.Variant.Plan() != "pro" {
			t.Fatalf("%+v", v)
		}
	}
	for _, other := range []string{"", "unknown"} {
		if v := check(t, g, "p", one("k").on(other)); v.Allowed || v.Decision.Limit != 4 || v.Variant.Plan() != "" {
			t.Fatalf("7 of 4 are used: %+v", v)
		}
	}
	wantAdmitted(t, g, "p", one("k").on("pro"), 3)
}

// Every operation charges the limits of the plan.
func TestPlansInAllOperations(t *testing.T) {
	for name, do := range operations {
		t.Run(name, func(t *testing.T) {
			g, _ := frozen(t, policy("p", perHour("", 4), perHour("s", 100).mode(Shadow)).plans(plan("pro", perHour("", 10))))
			for _, tt := range []struct {
				plan string
				want int64
			}{{"", 4}, {"pro", 10}} {
				if v, _ := do(t, g, one("k").on(tt.plan)); v.Limits()[0].Rate != tt.want || v.Plan() != tt.plan {
					t.Errorf("with plan %q the limit is %d of plan %q, want %d", tt.plan, v.Limits()[0].Rate, v.Plan(), tt.want)
				}
			}
		})
	}
}

// A plan may have the limits that its policy had before. They stay the plan's.
func TestSetKeepsPlans(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 20)))
	check(t, g, "p", one("k"))
	set(t, g, policy("p", perHour("", 30)).plans(plan("pro", perHour("", 20))))
	if v := check(t, g, "p", one("k").on("pro")); v.Decision.Limit != 20 || v.Remaining != 18 {
		t.Errorf("%+v", v.Decision)
	}
	if v := check(t, g, "p", one("k")); v.Decision.Limit != 30 || v.Remaining != 27 {
		t.Errorf("%+v", v.Decision)
	}
}

// A plan that did not change keeps its policies, and a group that it does not change is the
// policy's.
func TestPlansAreReused(t *testing.T) {
	p := policy("p", perHour("", 5), perHour("i", 5).by("ip")).plans(plan("pro", perHour("", 6)), plan("same", perHour("", 5)))
	first := compile(t, nil, p)
	second := compile(t, first, p)
	a, b := first.Rule("p"), second.Rule("p")
	if a.plans["pro"].groups[0].policy != b.plans["pro"].groups[0].policy {
		t.Error("an unchanged plan is another policy")
	}
	if a.plans["pro"].groups[0].policy == a.base.groups[0].policy || a.plans["pro"].groups[1].policy != a.base.groups[1].policy {
		t.Error("a plan must share exactly the groups that it does not change")
	}
	if a.plans["same"].groups[0].policy != a.base.groups[0].policy {
		t.Error("a plan with the policy's limits is another policy")
	}
}

func TestRolloutGroup(t *testing.T) {
	a, b, c := policy("a", perHour("", 1)), policy("b", perHour("", 1)), policy("c", perHour("", 1))
	a.Rollout, b.Rollout, c.Rollout = 5000, 5000, 5000
	a.RolloutGroup, b.RolloutGroup = "g", "g"
	g, _ := frozen(t, a, b, c)
	differ := 0
	for i := range 200 {
		key := fmt.Sprint("user-", i)
		enforced := map[string]bool{}
		for _, p := range []string{"a", "b", "c"} {
			check(t, g, p, one(key))
			enforced[p] = !check(t, g, p, one(key)).Allowed
			if r := g.Rules().Rule(p); r.Base().Enforces(key) != enforced[p] {
				t.Fatalf("Enforces(%q) of %s is %v", key, p, !enforced[p])
			}
		}
		if want := Share(5000).includes("g", key); enforced["a"] != want || enforced["b"] != want {
			t.Fatalf("%s: %v, want %v in a and b", key, enforced, want)
		}
		if want := Share(5000).includes("c", key); enforced["c"] != want {
			t.Fatalf("%s: the default of the group must be the policy's name", key)
		}
		if enforced["a"] != enforced["c"] {
			differ++
		}
	}
	if differ < 50 {
		t.Errorf("another group differs in %d of 200 keys", differ)
	}
	a.RolloutGroup = "x y"
	if diff := cmp.Diff([]string{"a||-1|rollout_group"}, problems(t, a)); diff != "" {
		t.Error(diff)
	}
}

// A reservation under a plan is settled by the limits of that plan: an overrun that the policy's own
// limits do not allow is charged in full, and a fraction of a unit is not rounded up.
func TestTicketsUnderAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := every("", 4, 100*time.Hour)
		own.MaxDebt = 1
		pro := every("", 100, 100*time.Hour)
		g := newEngine(t, newTable(t, nil), policy("p", own).plans(plan("pro", pro)))
		status := func() LimitStatus {
			t.Helper()
			q := one("k").on("pro")
			_, list, err := g.Inspect(ctx, g.Rules().Rule("p"), &q)
			if err != nil {
				t.Fatal(err)
			}
			return list[0]
		}
		ticket := reserve(t, g, "p", one("k").on("pro"), time.Hour)
		time.Sleep(30 * time.Minute)
		if renewed, err := g.Renew(ctx, ticket, time.Hour); err != nil || !renewed {
			t.Fatal(renewed, err)
		}
		if got := settle(t, g, ticket, Used{HaveCost: true, Cost: 50}); got.Overrun != 49 {
			t.Errorf("%+v", got)
		}
		before := status()
		if before.Remaining != 50 || before.Capacity != 100 {
			t.Errorf("50 of 100 are used: %+v", before)
		}
		ticket = reserve(t, g, "p", Query{Key: "k", Plan: "pro", Cost: 20}, time.Hour)
		if got := settle(t, g, ticket, Used{None: true}); got.Refunded != 20 {
			t.Errorf("%+v", got)
		}
		if after := status(); after != before {
			t.Errorf("%+v after a reservation that was not used, %+v before", after, before)
		}
	})
}

// A ticket that was parsed is settled without loss, too, by the limits that its key has.
func TestParsedTicketsUnderAPlan(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 4)).plans(plan("pro", perHour("", 10))))
	ticket := reserve(t, g, "p", Query{Key: "k", Plan: "pro", Cost: 8, Client: "c"}, 0)
	parsed, err := ParseTicket(ticket.String(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if got := settle(t, g, parsed, Used{HaveCost: true, Cost: 3}); got.Refunded != 5 {
		t.Errorf("%+v", got)
	}
	if got := left(t, g, "p", one("k").on("pro")); got[0] != 7 {
		t.Errorf("%v is left of 10, 3 were used", got)
	}
}

// A reservation is renewed and settled by the limits under which it was made: those of its override,
// plan or scale as they were, those of the policy as they are now. A ticket that was parsed does not
// have them, and uses those that its key has now.
func TestTicketsKeepTheirLimits(t *testing.T) {
	before := policy("p", perHour("", 10)).plans(plan("pro", perHour("", 20))).with(override("boss", perHour("", 30)))
	after := policy("p", perHour("", 11)).plans(plan("pro", perHour("", 21))).with(override("boss", perHour("", 31)), override("late", perHour("", 41)))
	tests := []struct {
		name         string
		query        Query
		want, parsed int64 // rates
	}{
		{"policy", one("k"), 11, 11},
		{"plan", one("k").on("pro"), 20, 11},
		{"override", one("boss").on("pro"), 30, 31},
		{"scale", one("k").at(5000, 0), 5, 11},
		{"plan at a scale", one("k").on("pro").at(5000, 0), 10, 11},
		{"policy before an override", one("late"), 11, 41},
	}
	for _, tt := range tests {
		for _, parse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, parse), func(t *testing.T) {
				var rates []int64
				table := newTable(t, new(clock))
				g := newEngine(t, &scripted{Limiter: table, do: func(ctx context.Context, b *weir.Batch) error {
					if b.Op == weir.Settle || b.Op == weir.Renew {
						rates = append(rates, b.Charges[0].Policy.Limits()[0].Rate)
					}
					return table.Do(ctx, b)
				}}, before)
				ticket, want := reserve(t, g, "p", tt.query, 0), tt.want
				if parse {
					var err error
					if ticket, err = ParseTicket(ticket.String(), ""); err != nil {
						t.Fatal(err)
					}
					want = tt.parsed
				}
				set(t, g, after)
				if renewed, err := g.Renew(ctx, ticket, time.Hour); err != nil || !renewed {
					t.Fatal(renewed, err)
				}
				if got := settle(t, g, ticket, Used{None: true}); got.Refunded != 1 {
					t.Errorf("%+v", got)
				}
				if !slices.Equal(rates, []int64{want, want}) {
					t.Errorf("renewed and settled by the rates %v, want %d", rates, want)
				}
			})
		}
	}
}
