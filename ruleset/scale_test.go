package ruleset

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

func (q Query) at(scale, shadow Share) Query { q.Scale, q.ShadowScale = scale, shadow; return q }
func (q Query) skipping() Query              { q.SkipShadow = true; return q }

// operations are those that a query can be given to, with the variant and the verdict of each.
var operations = map[string]func(t tester, g *Engine, q Query) (*Variant, Verdict){
	"Check": func(t tester, g *Engine, q Query) (*Variant, Verdict) {
		t.Helper()
		v := check(t, g, "p", q)
		return v.Variant, v
	},
	"Peek": func(t tester, g *Engine, q Query) (*Variant, Verdict) {
		t.Helper()
		v, err := g.Peek(ctx, g.Rules().Rule("p"), &q)
		if err != nil {
			t.Fatal(err)
		}
		return v.Variant, v
	},
	"Reserve": func(t tester, g *Engine, q Query) (*Variant, Verdict) {
		t.Helper()
		v, ticket, err := g.Reserve(ctx, g.Rules().Rule("p"), &q, 0)
		if err != nil {
			t.Fatal(err)
		}
		if ticket != nil {
			settle(t, g, ticket, Used{All: true})
		}
		return v.Variant, v
	},
	"Inspect": func(t tester, g *Engine, q Query) (*Variant, Verdict) {
		t.Helper()
		v, list, err := g.Inspect(ctx, g.Rules().Rule("p"), &q)
		if err != nil {
			t.Fatal(err)
		}
		return v, Verdict{Variant: v, Decision: weir.Decision{Allowed: list[0].Remaining > 0}}
	},
	"CheckEach": func(t tester, g *Engine, q Query) (*Variant, Verdict) {
		t.Helper()
		v, err := g.CheckEach(ctx, []Item{{Rule: g.Rules().Rule("p"), Query: q}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v[0].Variant, v[0]
	},
	"CheckAll": func(t tester, g *Engine, q Query) (*Variant, Verdict) {
		t.Helper()
		v, err := g.CheckAll(ctx, []Item{{Rule: g.Rules().Rule("p"), Query: q}})
		if err != nil {
			t.Fatal(err)
		}
		return v[0].Variant, v[0]
	},
}

// At half of its rate, 1 per hour is 1 per two hours, for every operation and for policies of one
// charge and of several.
func TestScale(t *testing.T) {
	policies := map[string]Policy{
		"simple": policy("p", perHour("", 1)),
		"shadow": policy("p", perHour("", 1), perHour("s", 100).mode(Shadow)),
		"plan":   policy("p", perHour("", 100)).plans(plan("pro", perHour("", 1))),
	}
	for name, do := range operations {
		for kind, p := range policies {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newEngine(t, newTable(t, nil), p)
					half := one("k").on("pro").at(5000, 0)
					check(t, g, "p", half)
					for _, wait := range []time.Duration{0, time.Hour, time.Hour - 1} {
						time.Sleep(wait)
						if _, v := do(t, g, half); v.Allowed {
							t.Fatalf("%v after %v", v.Decision, wait)
						}
					}
					time.Sleep(time.Nanosecond)
					v, verdict := do(t, g, half)
					if !verdict.Allowed {
						t.Fatalf("after 2h: %v", verdict.Decision)
					}
					if l := v.Limits()[0]; l.Rate != 1 || l.Per != weir.Every(2*time.Hour) || l.Burst != 1 || v.LimitName(0) != "p" {
						t.Errorf("the limit is %v called %s", l, v.LimitName(0))
					}
					if enforced, shadow := v.Scale(); enforced != 5000 || shadow != All {
						t.Errorf("the scales are %v and %v", enforced, shadow)
					}
				})
			})
		}
	}
}

func TestScales(t *testing.T) {
	p := policy("p", perHour("a", 100), perHour("s", 100).mode(Shadow), slots("c", 10).by("c"), every("w", 100, time.Hour).using(weir.FixedWindow).by("w"), slots("mixed", 10).by("w"))
	partly := p
	partly.Rollout = 5000
	in, out := "", ""
	for i := 0; in == "" || out == ""; i++ {
		if key := fmt.Sprint(i); partly.Rollout.includes("p", key) {
			in = key
		} else {
			out = key
		}
	}
	rules := map[bool]*Rule{false: compile(t, nil, p).Rule("p"), true: compile(t, nil, partly).Rule("p")}
	tests := []struct {
		name            string
		partly          bool
		query           Query
		enforced        Share   // as reported, like the next field
		shadow          Share   //
		a, s, c, w, mix float64 // units per hour, or slots
	}{
		{"none", false, one("k"), All, All, 100, 100, 10, 100, 10},
		{"all", false, one("k").at(All, All), All, All, 100, 100, 10, 100, 10},
		{"enforced", false, one("k").at(2500, 0), 2500, All, 25, 100, 10, 25, 10},
		{"enforced and all", false, one("k").at(2500, All), 2500, All, 25, 100, 10, 25, 10},
		{"shadow", false, one("k").at(0, 1000), All, 1000, 100, 10, 10, 100, 10},
		{"both", false, one("k").at(5000, 1000), 5000, 1000, 50, 10, 10, 50, 10},
		{"least", false, one("k").at(1, 1), 1, 1, 0.01, 0.01, 10, 1, 10},
		{"in the rollout", true, one(in).at(5000, 1000), 5000, 1000, 50, 10, 10, 50, 10},
		{"outside of the rollout", true, one(out).at(5000, 1000), 1000, 1000, 10, 10, 10, 10, 10},
		{"outside of the rollout, enforced", true, one(out).at(5000, 0), All, All, 100, 100, 10, 100, 10},
		{"shared with others", false, one("k", Attribute{"w", "all"}).at(5000, 1000), 5000, 1000, 50, 10, 10, 100, 10},
	}
	for _, tt := range tests {
		tt.query.Keys = append(tt.query.Keys, Attribute{"w", tt.query.Key}) // the first of a name counts
		v := rules[tt.partly].variant(&tt.query)
		if enforced, shadow := v.Scale(); enforced != tt.enforced || shadow != tt.shadow {
			t.Errorf("%s: the scales are %v and %v, want %v and %v", tt.name, enforced, shadow, tt.enforced, tt.shadow)
		}
		for i, want := range []float64{tt.a, tt.s, tt.c, tt.w, tt.mix} {
			l := v.Limits()[i]
			got := float64(l.Rate)
			if every := l.Per.Duration(); every != 0 {
				got *= float64(time.Hour) / float64(every)
			}
			if math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%s: %s is %v, want %v", tt.name, l.Name, l.Limit, want)
			}
			if burst := l.Burst; l.Algorithm != weir.FixedWindow && burst != 0 && burst != 100 && burst != 10 {
				t.Errorf("%s: the burst of %s is %d", tt.name, l.Name, burst)
			}
		}
		for i, g := range v.groups { // the limiter's policies have the limits that are reported
			for at, l := range g.policy.Limits() {
				if reported := v.limits[g.limits[at]]; reported.Rate != l.Rate || reported.Per != l.Per {
					t.Errorf("%s: group %d charges %v and reports %v", tt.name, i, l, reported.Limit)
				}
			}
		}
	}
}

func TestScaleTooGreat(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 1)))
	r := g.Rules().Rule("p")
	for _, q := range []Query{one("k").at(All+1, 0), one("k").at(0, All+1), one("k").at(1, math.MaxUint16)} {
		_, err1 := g.Check(ctx, r, &q)
		_, err2 := g.Peek(ctx, r, &q)
		_, _, err3 := g.Reserve(ctx, r, &q, 0)
		_, _, err4 := g.Inspect(ctx, r, &q)
		_, err5 := g.CheckEach(ctx, []Item{{Rule: r, Query: q}}, nil)
		for i, err := range []error{err1, err2, err3, err4, err5} {
			if _, ok := errors.AsType[*InputError](err); !ok {
				t.Errorf("%d: %v and %v: %v", i, q.Scale, q.ShadowScale, err)
			}
		}
	}
	wantAdmitted(t, g, "p", one("k"), 1)
}

// Whatever the order of scaled and unscaled calls, no more is admitted than without a scale: in
// every interval the burst and what the rate gives, in every window its units.
func TestScaledNeverExceeds(t *testing.T) {
	const burst, per = 10, time.Minute
	rapid.Check(t, func(t *rapid.T) {
		l := every("", burst, per)
		l.Algorithm = rapid.SampledFrom([]weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.SlidingLog}).Draw(t, "algorithm")
		g, clock := frozen(t, policy("p", l))
		type admitted struct {
			at    time.Duration
			units int64
		}
		var list []admitted
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			clock.pass(time.Duration(rapid.Int64Range(0, int64(15*time.Second)).Draw(t, "passes")))
			q := Query{Key: "k", Cost: rapid.Int64Range(0, 4).Draw(t, "cost")}
			q.Scale = rapid.SampledFrom([]Share{0, All, 9999, 5000, 3333, 1000, 1}).Draw(t, "scale")
			if v := check(t, g, "p", q); v.Allowed {
				list = append(list, admitted{time.Duration(clock.passed.Load()), q.Cost})
			}
		}
		for i := range list {
			sum := int64(0)
			for _, a := range list[i:] {
				sum += a.units
				most := int64(burst)
				switch {
				case l.Algorithm == weir.GCRA:
					most += int64((a.at - list[i].at) * burst / per)
				case l.Algorithm == weir.FixedWindow && a.at/per != list[i].at/per, l.Algorithm == weir.SlidingLog && a.at-list[i].at >= per:
					most = math.MaxInt64
				}
				if sum > most {
					t.Fatalf("%d units between %v and %v, at most %d are allowed", sum, list[i].at, a.at, most)
				}
			}
		}
	})
}

// Every limit can be scaled by every share: to the share of its rate or, if a limit at that rate
// would take longer than 40 years to refill, to the next greater one at which it can be represented.
func TestScaleLimit(t *testing.T) {
	const most = 40 * 365.25 * 24 * float64(time.Hour)
	rapid.Check(t, func(t *rapid.T) {
		l := weir.Limit{
			Rate:  rapid.Int64Range(1, 1e12).Draw(t, "rate"),
			Per:   weir.Every(time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(most)).Draw(t, "per"))),
			Burst: rapid.Int64Range(0, 1e9).Draw(t, "burst"),
		}
		p, err := weir.NewPolicy("p", l)
		if err != nil {
			t.Skip("no such limit can be made: ", err) // a draw that does not fit
		}
		s := Share(rapid.IntRange(1, int(All)).Draw(t, "share"))
		a, b := p.Limits()[0], scalePolicy(p, s).Limits()[0]
		got := float64(b.Rate) / float64(b.Per.Duration()) / (float64(a.Rate) / float64(a.Per.Duration()))
		want := float64(s) / float64(All)
		refill := float64(max(a.Burst, a.Rate)) / float64(a.Rate) * float64(a.Per.Duration()) / got
		switch {
		case a.Burst != b.Burst:
			t.Fatalf("the burst is %d, was %d", b.Burst, a.Burst)
		case math.Abs(got/want-1) < 2e-6: // a millisecond can be stretched to a microsecond
		case got < want || got > 1 || refill < most*0.45:
			t.Fatalf("%v at %v is %v, which is %v of it", a, s, b, Share(got*float64(All)))
		}
	})
	const day = 24 * time.Hour
	tests := []struct {
		rate   int64
		per    time.Duration
		share  Share
		approx float64 // share
	}{
		{1, time.Hour, 5000, 0.5},
		{7, 30 * day, 3333, 0.3333},
		{999_983, 365 * day, 9999, 0.9999},
		{1, 365 * day, 1, 0.025},
		{1_000_000, 30 * day, 1, 0.0021},
		{1, 39 * 365 * day, 1, 0.98},
	}
	for _, tt := range tests {
		l := scaleLimit(weir.Limit{Rate: tt.rate, Per: weir.Every(tt.per)}, tt.share)
		got := float64(l.Rate) / float64(l.Per.Duration()) / (float64(tt.rate) / float64(tt.per))
		if math.Abs(got/tt.approx-1) > 0.02 {
			t.Errorf("%v of %d per %v is %v, which is %v of it, want %v", tt.share, tt.rate, tt.per, l, got, tt.approx)
		}
	}
}

// Scaled limits may be those that the policy had before. They stay scaled.
func TestSetKeepsScales(t *testing.T) {
	before, after := perHour("", 10), perHour("", 20)
	before.Burst, after.Burst = 20, 20
	g, _ := frozen(t, policy("p", before))
	check(t, g, "p", one("k"))
	set(t, g, policy("p", after))
	for range 19 {
		check(t, g, "p", one("k"))
	}
	if v := check(t, g, "p", one("k").at(5000, 0)); v.Allowed || v.RetryAfter != 6*time.Minute {
		t.Errorf("1 is free in 6m at 10 per hour: %+v", v.Decision)
	}
	if v := check(t, g, "p", one("k")); v.Allowed || v.RetryAfter != 3*time.Minute {
		t.Errorf("1 is free in 3m at 20 per hour: %+v", v.Decision)
	}
}

func TestScaledVariantsAreCached(t *testing.T) {
	r := compile(t, nil, policy("p", perHour("", 10), perHour("s", 10).mode(Shadow))).Rule("p")
	var wait sync.WaitGroup
	found := make([][maxScaled]*Variant, 8)
	for w := range found {
		wait.Go(func() {
			for i := range found[w] {
				at := (i + w) % maxScaled
				q := one("k").at(Share(1000+at), 500)
				found[w][at] = r.variant(&q)
			}
		})
	}
	wait.Wait()
	for _, f := range found {
		if f != found[0] {
			t.Fatal("a scaled variant was made twice")
		}
	}
	more := one("k").at(5000, 0)
	for range 2 {
		v := r.variant(&more)
		if l := v.Limits()[0]; l.Rate != 5 || len(*r.base.variants.Load()) != maxScaled {
			t.Errorf("%v with %d cached", l, len(*r.base.variants.Load()))
		}
	}
	if q := one("k").at(1000, 0); !compile(t, nil, simple()).Rule("p").variant(&q).simple {
		t.Error("a scaled variant of one charge is not charged by a single Take")
	}
	if again := one("k").at(1000, 500); r.variant(&again) != found[0][0] {
		t.Error("a cached variant is lost")
	}
}

// A reservation at a scale is settled at that scale: a fraction of a unit is not rounded up.
func TestTicketsAtAScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", perHour("", 3)))
		half := one("k").at(5000, 0) // 1 per 40 minutes, burst 3
		check(t, g, "p", half)
		time.Sleep(10 * time.Minute)
		ticket := reserve(t, g, "p", half, time.Hour)
		if renewed, err := g.Renew(ctx, ticket, time.Hour); err != nil || !renewed {
			t.Fatal(renewed, err)
		}
		settle(t, g, ticket, Used{None: true})
		_, list, err := g.Inspect(ctx, g.Rules().Rule("p"), &half)
		if err != nil || list[0].Reset != 30*time.Minute || list[0].Remaining != 2 {
			t.Errorf("%+v, %v: one unit was used 10 minutes ago", list, err)
		}
	})
}

// With SkipShadow no operation charges limits in shadow, and none of them is reported.
func TestSkipShadow(t *testing.T) {
	outside := policy("p", perHour("", 10))
	outside.Rollout = 1
	policies := map[string]Policy{
		"mixed":       policy("p", perHour("a", 10), perHour("s", 10).mode(Shadow)),
		"only shadow": policy("p", perHour("s", 10).mode(Shadow), perHour("t", 10).by("ip").mode(Shadow)),
		"rollout":     outside,
		"slots":       policy("p", slots("s", 10).mode(Shadow)),
	}
	for name, do := range operations {
		for kind, p := range policies {
			t.Run(name+"/"+kind, func(t *testing.T) {
				g, _ := frozen(t, p)
				q := one("k", ip("1")).skipping()
				q.Shadow = true
				before := left(t, g, "p", q)
				for range 5 {
					_, v := do(t, g, q)
					if !v.Allowed || name != "Inspect" && v.Shadow != -1 || len(v.ShadowRefusals) > 0 {
						t.Fatalf("%+v", v)
					}
				}
				after := left(t, g, "p", q)
				for i := range before {
					charged := kind == "mixed" && i == 0 && name != "Peek" && name != "Inspect"
					if (after[i] != before[i]) != charged {
						t.Errorf("limit %d: %d is left, was %d", i, after[i], before[i])
					}
				}
			})
		}
	}
}

// What is refused in shadow without SkipShadow is not reported with it; Reset and the checks of
// input still cover limits in shadow.
func TestSkipShadowSkipsOnlyCharges(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("a", 10), perHour("s", 1).by("ip").mode(Shadow)))
	r := g.Rules().Rule("p")
	q := one("k", ip("1"))
	check(t, g, "p", q)
	if v := check(t, g, "p", q); v.Shadow != 1 {
		t.Fatalf("%+v", v)
	}
	if v := check(t, g, "p", q.skipping()); v.Shadow != -1 || !v.Allowed {
		t.Errorf("%+v", v)
	}
	items := []Item{{Rule: r, Query: q.skipping()}, {Rule: r, Query: q}}
	if v, err := g.CheckAll(ctx, items); err != nil || v[0].Shadow != -1 || v[1].Shadow != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := g.DebitEach(ctx, items[:1]); err != nil || left(t, g, "p", q)[1] != 0 {
		t.Errorf("%v, %v is left", err, left(t, g, "p", q))
	}
	skipping := q.skipping()
	if err := g.Reset(ctx, r, &skipping); err != nil || left(t, g, "p", q)[1] != 1 {
		t.Errorf("%v, %v is left", err, left(t, g, "p", q))
	}
	if _, err := g.DebitEach(ctx, items[:1]); err != nil || left(t, g, "p", q)[1] != 1 {
		t.Errorf("a debit in shadow: %v, %v is left", err, left(t, g, "p", q))
	}
	lacking := one("k").skipping()
	if _, err := g.Check(ctx, r, &lacking); err == nil {
		t.Error("a query without an attribute is accepted")
	}
}
