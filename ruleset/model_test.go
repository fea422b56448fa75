package ruleset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// model is the slow and obvious one: windows of a minute, and a number for each limit and
// value. It is for policies of FixedWindow.
type model struct {
	limits []Limit
	used   map[string]int64
	clock  *clock
}

func (m *model) cell(l *Limit, q *Query) string {
	value := q.Key
	for _, k := range q.Keys {
		if k.Name == l.By {
			value = k.Value
		}
	}
	return fmt.Sprint(l.Name, "|", value, "|", time.Duration(m.clock.passed.Load())/time.Minute)
}

func cost(l *Limit, q *Query) int64 {
	if l.Unit == Requests {
		return q.Cost
	}
	for _, c := range q.Costs {
		if c.Unit == l.Unit {
			return c.Amount
		}
	}
	return 0
}

// refusers returns the limits of a mode that do not have room for all queries together.
func (m *model) refusers(mode Mode, queries ...*Query) (places []int) {
	for i := range m.limits {
		l := &m.limits[i]
		sums := map[string]int64{}
		for _, q := range queries {
			sums[m.cell(l, q)] += cost(l, q)
		}
		for cell, sum := range sums {
			if l.Mode == mode && sum > 0 && m.used[cell]+sum > l.Rate && !slices.Contains(places, i) {
				places = append(places, i)
			}
		}
	}
	return places
}

func (m *model) charge(mode Mode, q *Query) {
	for i := range m.limits {
		if l := &m.limits[i]; l.Mode == mode {
			m.used[m.cell(l, q)] += cost(l, q)
		}
	}
}

// check decides a query, and charges it unless it only peeks.
func (m *model) check(q *Query, peek bool) (refused, shadow []int) {
	if refused = m.refusers(Enforce, q); len(refused) > 0 {
		return refused, nil
	}
	if shadow = m.refusers(Shadow, q); len(shadow) == 0 && !peek {
		m.charge(Shadow, q)
	}
	if !peek {
		m.charge(Enforce, q)
	}
	return nil, shadow
}

func drawLimits(t *rapid.T) (limits []Limit) {
	for i := range rapid.IntRange(1, 6).Draw(t, "limits") {
		l := every(fmt.Sprint("l", i), rapid.Int64Range(1, 9).Draw(t, "rate"), time.Minute).using(weir.FixedWindow)
		l.By = rapid.SampledFrom([]string{"", "", "ip", "org"}).Draw(t, "by")
		l.Unit = rapid.SampledFrom([]string{Requests, Requests, "tokens"}).Draw(t, "unit")
		l.Mode = rapid.SampledFrom([]Mode{Enforce, Enforce, Shadow, Off}).Draw(t, "mode")
		limits = append(limits, l)
	}
	return limits
}

func drawQuery(t *rapid.T, limits []Limit) Query {
	q := Query{
		Key:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
		Cost: rapid.Int64Range(0, 4).Draw(t, "cost"),
		Keys: []Attribute{
			ip(rapid.SampledFrom([]string{"a", "1", "2"}).Draw(t, "ip")),
			{"org", rapid.SampledFrom([]string{"a", "o"}).Draw(t, "org")},
			{"nobody-asks", "x"},
		},
	}
	if slices.ContainsFunc(limits, func(l Limit) bool { return l.Unit == "tokens" }) {
		q.Implied, q.Costs = true, []Cost{{"tokens", rapid.Int64Range(0, 5).Draw(t, "tokens")}}
	}
	return q
}

// places maps the limits of a policy to those that its variant has, which lacks those that
// are off.
func wantPlace(t *rapid.T, what string, v *Verdict, place int, want []int, limits []Limit) {
	t.Helper()
	if (place >= 0) != (len(want) > 0) {
		t.Fatalf("%s: %d, want one of %v; %+v", what, place, want, v)
	}
	if place >= 0 && !slices.ContainsFunc(want, func(i int) bool { return limits[i].Name == v.Variant.Limits()[place].Name }) {
		t.Fatalf("%s: %s did, want one of %v", what, v.Variant.LimitName(place), want)
	}
}

// Several groups, several modes, random costs: an engine decides as the model does, and
// after every step it has charged what the model has.
func TestEngineIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := drawLimits(t)
		g, clock := frozen(t, policy("p", limits...))
		m := &model{limits: limits, used: map[string]int64{}, clock: clock}
		rule := g.Rules().Rule("p")
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"check": func(t *rapid.T) {
				q := drawQuery(t, limits)
				refused, shadow := m.check(&q, false)
				m.compare(t, check(t, g, "p", q), refused, shadow)
				m.compareStatus(t, g, rule, &q)
			},
			"peek": func(t *rapid.T) {
				q := drawQuery(t, limits)
				refused, shadow := m.check(&q, true)
				v, err := g.Peek(ctx, rule, &q)
				if err != nil {
					t.Fatal(err)
				}
				m.compare(t, v, refused, shadow)
				m.compareStatus(t, g, rule, &q)
			},
			"each": func(t *rapid.T) {
				q := drawQuery(t, limits)
				refused, shadow := m.check(&q, false)
				v, err := g.CheckEach(ctx, []Item{{Rule: rule, Query: q}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				m.compare(t, v[0], refused, shadow)
			},
			"all": func(t *rapid.T) { m.all(t, g, rule) },
			"reset": func(t *rapid.T) {
				q := drawQuery(t, limits)
				for i := range limits {
					m.used[m.cell(&limits[i], &q)] = 0
				}
				if err := g.Reset(ctx, rule, &q); err != nil {
					t.Fatal(err)
				}
			},
			"cancelled": func(t *rapid.T) { // a reservation that is given back
				q := drawQuery(t, limits)
				_, ticket, err := g.Reserve(ctx, rule, &q, 0)
				if err != nil {
					t.Fatal(err)
				}
				if refused := m.refusers(Enforce, &q); (ticket == nil) != (len(refused) > 0) {
					t.Fatalf("ticket %v, refused by %v", ticket, refused)
				}
				if ticket != nil {
					if _, err := g.Settle(ctx, ticket, Used{None: true}); err != nil {
						t.Fatal(err)
					}
				}
				m.compareStatus(t, g, rule, &q)
			},
			"used": func(t *rapid.T) { // one that is used whole
				q := drawQuery(t, limits)
				refused, shadow := m.check(&q, false)
				v, ticket, err := g.Reserve(ctx, rule, &q, 0)
				if err != nil {
					t.Fatal(err)
				}
				m.compare(t, v, refused, shadow)
				if ticket != nil {
					if s, err := g.Settle(ctx, ticket, Used{All: true}); err != nil || s != (weir.Settled{}) {
						t.Fatal(s, err)
					}
				}
				m.compareStatus(t, g, rule, &q)
			},
			"time": func(t *rapid.T) {
				clock.pass(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "passes"))
			},
		})
	})
}

func (m *model) compare(t *rapid.T, v Verdict, refused, shadow []int) {
	t.Helper()
	if v.Allowed != (len(refused) == 0) {
		t.Fatalf("allowed %v, refused by %v", v.Allowed, refused)
	}
	if !v.Allowed {
		wantPlace(t, "refused", &v, v.Limit, refused, m.limits)
		if v.LimitedBy() != "p."+v.Variant.Limits()[v.Limit].Name {
			t.Fatalf("limited by %q", v.LimitedBy())
		}
	} else if v.Reason != weir.Admitted || v.RetryAfter != 0 || v.LimitedBy() != "" {
		t.Fatalf("admitted with %+v", v)
	}
	wantPlace(t, "shadow", &v, v.Shadow, shadow, m.limits)
}

// compareStatus compares the engine's status of every group with the model's.
func (m *model) compareStatus(t *rapid.T, g *Engine, rule *Rule, q *Query) {
	t.Helper()
	v, list, err := g.Inspect(ctx, rule, q)
	if err != nil || len(list) != len(v.groups) {
		t.Fatal(list, err)
	}
	for i, s := range list {
		least := int64(1 << 60)
		for _, at := range v.groups[i].limits {
			l := &v.limits[at]
			least = min(least, l.Rate-m.used[m.cell(l, q)])
		}
		if s.Remaining != least {
			t.Fatalf("%s of %q has %d left, want %d", v.groups[i].policy.Name(), s.Key, s.Remaining, least)
		}
	}
}

// all checks some queries, of which all or none are charged.
func (m *model) all(t *rapid.T, g *Engine, rule *Rule) {
	items := make([]Item, rapid.IntRange(1, 3).Draw(t, "items"))
	queries := make([]*Query, len(items))
	for i := range items {
		items[i] = Item{Rule: rule, Query: drawQuery(t, m.limits)}
		queries[i] = &items[i].Query
	}
	refused := m.refusers(Enforce, queries...)
	verdicts, err := g.CheckAll(ctx, items)
	if err != nil {
		t.Fatal(err)
	}
	blamed := false
	for i, v := range verdicts {
		if v.Allowed != (len(refused) == 0) {
			t.Fatalf("%d of %d is allowed: %v; refused by %v", i, len(items), v.Allowed, refused)
		}
		blamed = blamed || v.LimitedBy() != ""
		var shadow []int
		if v.Allowed {
			if shadow = m.refusers(Shadow, queries[i]); len(shadow) == 0 {
				m.charge(Shadow, queries[i])
			}
			m.charge(Enforce, queries[i])
		}
		wantPlace(t, "shadow", &v, v.Shadow, shadow, m.limits)
	}
	if blamed != (len(refused) > 0) {
		t.Fatalf("somebody is blamed: %v; refused by %v", blamed, refused)
	}
	for _, q := range queries {
		m.compareStatus(t, g, rule, q)
	}
}

// On a trace that does not react, a policy in shadow says exactly what it would refuse if
// it were enforced, whatever its limits are. So does a rollout to nearly nobody.
func TestShadowIsEnforcement(t *testing.T) {
	algorithms := []weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.SlidingWindow, weir.SlidingLog}
	rapid.Check(t, func(t *rapid.T) {
		limits := drawLimits(t)
		for i := range limits {
			limits[i].Mode = ModeDefault
			limits[i].Algorithm = rapid.SampledFrom(algorithms).Draw(t, "algorithm")
		}
		c := new(clock)
		enforced := policy("p", limits...)
		inShadow, left := enforced, enforced
		inShadow.Mode, left.Rollout = Shadow, 1
		engines := []*Engine{newEngine(t, newTable(t, c), enforced), newEngine(t, newTable(t, c), inShadow), newEngine(t, newTable(t, c), left)}
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			c.pass(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "passes")))
			q := drawQuery(t, limits)
			want := check(t, engines[0], "p", q)
			for _, g := range engines[1:] {
				got := check(t, g, "p", q)
				switch {
				case !got.Allowed:
					t.Fatal("a refusal in shadow was carried out")
				case (got.Shadow >= 0) == want.Allowed:
					t.Fatalf("shadow %d, enforced %+v", got.Shadow, want)
				case !want.Allowed && got.Shadow != want.Limit:
					t.Fatalf("%s would have refused, %s did", got.Variant.LimitName(got.Shadow), want.LimitedBy())
				case got.Limit != -1 || got.Remaining != 0 || got.Decision.Limit != 0 || got.ResetAfter != 0:
					t.Fatalf("a limit in shadow is told to the caller: %+v", got)
				}
			}
		}
	})
}
