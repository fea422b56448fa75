package ruleset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Whatever is wrong with one of several queries, none is charged.
func TestABadItemChargesNothing(t *testing.T) {
	g, _ := frozen(t,
		policy("p", perHour("", 5)), policy("multi", perHour("", 5), perHour("i", 5).by("ip")),
		policy("slots", slots("", 5)), policy("tokens", perHour("", 5).in("tokens")))
	item := func(policy string, q Query) Item { return Item{Rule: g.Rules().Rule(policy), Query: q} }
	good := []Item{item("p", one("a")), item("multi", one("a", ip("1")))}
	tests := []struct {
		name string
		bad  Item
		all  bool // only where all or none are charged
		want string
	}{
		{"negative cost", item("p", Query{Key: "a", Cost: -1}), false, "cost -1"},
		{"excessive cost", item("multi", Query{Key: "a", Cost: weir.MaxCost + 1, Keys: []Attribute{ip("1")}}), false, "cost"},
		{"long key", item("p", one(strings.Repeat("k", 257))), false, "257 bytes"},
		{"long attribute", item("multi", one("a", ip(strings.Repeat("k", 257)))), false, "257 bytes"},
		{"no attribute", item("multi", one("a")), false, `lacks "ip"`},
		{"no key", item("p", Query{Cost: 1}), false, `"key" is missing`},
		{"unknown unit", item("p", Query{Key: "a", Costs: []Cost{{"tokens", 1}}}), false, `unit "tokens"`},
		{"no unit", item("p", Query{Key: "a", Costs: []Cost{{"", 1}}}), false, `unit ""`},
		{"requests twice", item("p", Query{Key: "a", Cost: 1, Costs: []Cost{{Requests, 0}}}), false, `"requests" as a plain number`},
		{"a unit twice", item("tokens", Query{Key: "a", Costs: []Cost{{"tokens", 0}, {"tokens", 5}}}), false, `"tokens" twice`},
		{"negative amount", item("tokens", Query{Key: "a", Costs: []Cost{{"tokens", -5}}}), false, "cost -5"},
		{"slots", item("slots", one("a")), false, "Reserve"},
		{"waits", item("p", Query{Key: "a", Cost: 1, MaxWait: time.Second}), false, "max_wait_ms"},
		{"waits long", item("p", Query{Key: "a", Cost: 1, MaxWait: time.Hour}), false, "max_wait_ms"},
		{"only looks", Item{Rule: g.Rules().Rule("p"), Query: one("a"), Peek: true}, true, "peek"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			items := append(append([]Item{}, good...), tt.bad)
			_, err := g.CheckAll(ctx, items)
			wantItemError(t, err, tt.want)
			if !tt.all {
				_, err = g.CheckEach(ctx, items, nil)
				wantItemError(t, err, tt.want)
			}
			for _, i := range good {
				v, err := g.Peek(ctx, i.Rule, &i.Query)
				if err != nil || v.Remaining != 5 {
					t.Errorf("%s has %d of 5 left, %v", i.Rule.Name(), v.Remaining, err)
				}
			}
		})
	}
}

func wantItemError(t *testing.T, err error, part string) {
	t.Helper()
	bad, ok := errors.AsType[*ItemError](err)
	if !ok || bad.Index != 2 || !strings.HasPrefix(err.Error(), "checks[2]: ") || !strings.Contains(err.Error(), part) || errors.Unwrap(err) == nil {
		t.Errorf("%v, want one of the third item, with %q", err, part)
	}
}

func TestCheckEach(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 2)), policy("multi", perHour("", 2), perHour("i", 5).by("ip")),
		policy("slots", slots("", 5)), Policy{Name: "shy", Mode: Shadow, Limits: []Limit{perHour("", 1)}})
	item := func(policy string, q Query) Item { return Item{Rule: g.Rules().Rule(policy), Query: q} }
	look := item("p", one("b"))
	look.Peek = true
	lookSlots := item("slots", one("b"))
	lookSlots.Peek = true
	items := []Item{
		item("p", one("a")), item("multi", one("a", ip("1"))), item("p", one("a")), item("p", one("a")), item("multi", Query{Key: "a", Cost: 3, Keys: []Attribute{ip("1")}}),
		look, lookSlots, item("shy", one("a")), item("shy", one("a")),
	}
	got, err := g.CheckEach(ctx, items, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, true, false, false, true, true, true, true} {
		if got[i].Allowed != want || got[i].Policy() != items[i].Rule.Name() {
			t.Errorf("%d: %+v", i, got[i])
		}
	}
	if got[3].LimitedBy() != "p" || got[4].LimitedBy() != "multi" || got[4].Reason != weir.TooCostly || got[7].Shadow != -1 || got[8].Shadow != 0 || got[0].Shadow != -1 {
		t.Errorf("%+v", got)
	}
	wantAdmitted(t, g, "p", one("b"), 2) // who looked was not charged
	if none, err := g.CheckEach(ctx, nil, nil); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
	if none, err := g.CheckAll(ctx, nil); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
}

func TestCheckAll(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 3)), Policy{Name: "off", Mode: Off, Limits: []Limit{perHour("", 1)}})
	p := g.Rules().Rule("p")
	items := []Item{{Rule: p, Query: Query{Key: "a", Cost: 2}}, {Rule: p, Query: Query{Key: "a", Cost: 2}}, {Rule: p, Query: one("b")}, {Rule: g.Rules().Rule("off"), Query: one("a")}}
	got, err := g.CheckAll(ctx, items)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if v.Allowed {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if got[2].LimitedBy() != "" || got[2].Reason != weir.NotCharged || got[1].LimitedBy() != "p" || got[3].Limit != -1 {
		t.Errorf("%+v", got)
	}
	if got, err = g.CheckAll(ctx, items[1:]); err != nil || !got[0].Allowed || !got[1].Allowed || !got[2].Allowed || got[0].Remaining != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// What was used already is charged whether it fits or not, also where nothing is enforced.
func TestDebitEach(t *testing.T) {
	shy := Policy{Name: "shy", Mode: Shadow, Limits: []Limit{perHour("", 10), slots("s", 1).by("ip")}}
	g, _ := frozen(t, policy("p", perHour("", 3), perHour("i", 9).by("ip")), shy, policy("slots", slots("", 5)),
		Policy{Name: "off", Mode: Off, Limits: []Limit{perHour("", 1)}})
	item := func(policy string, cost int64) Item {
		return Item{Rule: g.Rules().Rule(policy), Query: Query{Key: "a", Cost: cost, Keys: []Attribute{ip("1")}}}
	}
	got, err := g.DebitEach(ctx, []Item{item("p", 2), item("p", 5), item("off", 1), item("shy", 4)})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ limit, remaining int64 }{{3, 1}, {3, 0}, {0, 0}, {0, 0}} {
		v := got[i]
		if !v.Allowed || v.Reason != weir.Admitted || v.LimitedBy() != "" || v.Decision.Limit != want.limit || v.Remaining != want.remaining {
			t.Errorf("%d: %+v, want %+v", i, v, want)
		}
	}
	if v, err := g.Check(ctx, g.Rules().Rule("p"), &Query{Key: "b", Cost: 3, Keys: []Attribute{ip("1")}}); err != nil || v.LimitedBy() != "p.i" || v.Remaining != 2 {
		t.Errorf("the address owes nothing: %+v, %v", v, err)
	}
	look := item("p", 1)
	look.Peek = true
	for _, last := range []struct {
		item Item
		part string
	}{{item("slots", 1), "concurrency"}, {look, "peek"}} {
		_, err := g.DebitEach(ctx, []Item{item("p", 1), item("p", 1), last.item})
		wantItemError(t, err, last.part)
	}
	if none, err := g.DebitEach(ctx, nil); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
}

// Two keys, of which one has an override, at one address: one state, two sets of numbers, in
// one batch.
func TestOneStateTwoNumbers(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 10), perHour("i", 10).by("ip")).with(override("boss", perHour("i", 20))))
	r := g.Rules().Rule("p")
	items := []Item{{Rule: r, Query: Query{Key: "a", Cost: 6, Keys: []Attribute{ip("1")}}}, {Rule: r, Query: Query{Key: "boss", Cost: 6, Keys: []Attribute{ip("1")}}}}
	for want := range 2 {
		got, err := g.CheckAll(ctx, items)
		if err != nil || got[0].Allowed != (want == 0) || got[1].Allowed != (want == 0) {
			t.Fatalf("%d: %+v %v", want, got, err)
		}
	}
	if v := check(t, g, "p", one("b", ip("1"))); v.Allowed {
		t.Errorf("12 of 10 are used, and one more is %+v", v.Decision)
	}
	if v := check(t, g, "p", Query{Key: "boss", Cost: 4, Keys: []Attribute{ip("1")}}); !v.Allowed || v.Limit != 0 && v.Remaining != 4 {
		t.Errorf("12 of 20 are used, and 4 more are %+v", v.Decision)
	}
}

func TestErrorsOfTheLimiter(t *testing.T) {
	g := newEngine(t, &scripted{
		take: func(ctx context.Context) (weir.Decision, error) { return weir.Decision{}, errDown },
		do:   func(context.Context, *weir.Batch) error { return errDown },
	}, policy("p", perHour("", 1)), policy("multi", perHour("", 5), perHour("i", 5).by("ip")), Policy{Name: "shy", Mode: Shadow, Limits: []Limit{perHour("", 1)}})
	q := one("a", ip("1"))
	for _, name := range []string{"p", "multi"} {
		r := g.Rules().Rule(name)
		_, err1 := g.Check(ctx, r, &q)
		_, err2 := g.Peek(ctx, r, &q)
		_, err3 := g.CheckEach(ctx, []Item{{Rule: r, Query: q}}, nil)
		_, err4 := g.CheckAll(ctx, []Item{{Rule: r, Query: q}})
		_, ticket, err5 := g.Reserve(ctx, r, &q, 0)
		err6 := g.Reset(ctx, r, &q)
		_, _, err7 := g.Inspect(ctx, r, &q)
		for i, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
			if !errors.Is(err, errDown) {
				t.Errorf("%s: call %d: %v", name, i+1, err)
			}
		}
		if ticket != nil {
			t.Error("there is a ticket for nothing")
		}
	}
	if v := check(t, g, "shy", q); !v.Allowed || v.Shadow != -1 {
		t.Errorf("in shadow, nothing may go wrong: %+v", v)
	}
}
