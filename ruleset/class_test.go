package ruleset

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// sharing is a policy of 10 an hour, of which realtime has 6 and backfill 4. It does not lend, so
// that what a class has left tells which one was charged.
func sharing() Policy {
	l := perHour("", 10)
	l.Classes = weir.ClassesOf(weir.Class{Name: "realtime", Guaranteed: 6, NoBorrow: true}, weir.Class{Name: "backfill", Guaranteed: 4, NoBorrow: true})
	return policy("jobs", l)
}

func (q Query) of(class string) Query { q.Class = class; return q }

// Each class has its share; a query without one is of the class with the least.
func TestClassOfQuery(t *testing.T) {
	for _, tt := range []struct {
		class string
		want  int
	}{{"realtime", 6}, {"backfill", 4}, {"", 4}} {
		g, _ := frozen(t, sharing())
		wantAdmitted(t, g, "jobs", one("a").of(tt.class), tt.want)
	}
	g, _ := frozen(t, sharing())
	wantAdmitted(t, g, "jobs", one("a").of("backfill"), 4)
	wantAdmitted(t, g, "jobs", one("a"), 0)
	wantAdmitted(t, g, "jobs", one("a").of("realtime"), 6)
}

// The most urgent class is the one with the greatest share, the first of several.
func TestUrgentClass(t *testing.T) {
	for want, shares := range map[string][]int64{"": nil, "a": {5}, "b": {0, 3, 3, 2}, "c": {1, 2, 3}} {
		var list []weir.Class
		for i, n := range shares {
			list = append(list, weir.Class{Name: string(rune('a' + i)), Guaranteed: n})
		}
		l := perHour("", 10)
		l.Classes = weir.ClassesOf(list...)
		g, _ := frozen(t, policy("jobs", l))
		if got := g.Rules().Rule("jobs").UrgentClass(); got != want {
			t.Errorf("of shares %v: %q, want %q", shares, got, want)
		}
	}
}

// A class applies to every limit of the policy, to overrides, to scaled limits and in shadow.
func TestClassOfVariants(t *testing.T) {
	p := sharing()
	p.Limits = append(p.Limits, perHour("ip", 10).by("ip"))
	p = p.with(override("bob", perHour("", 20)), override("carol", perHour("", 3).using(weir.GCRA)))
	g, _ := frozen(t, p)
	wantAdmitted(t, g, "jobs", one("a", ip("1")).of("realtime"), 6)
	wantAdmitted(t, g, "jobs", one("bob", ip("2")).of("backfill"), 8)   // has the same parts
	wantAdmitted(t, g, "jobs", one("carol", ip("3")).of("realtime"), 3) // has no classes
	shadowed := sharing()
	shadowed.Mode = Shadow
	g, _ = frozen(t, shadowed)
	for i := range 7 {
		if v := check(t, g, "jobs", one("a").of("realtime")); !v.Allowed || (v.Shadow >= 0) != (i == 6) {
			t.Errorf("check %d: %+v", i, v)
		}
	}
	g, c := frozen(t, sharing())
	half := one("a").of("realtime")
	half.Scale = All / 2
	wantAdmitted(t, g, "jobs", half, 6)
	c.pass(20 * time.Minute) // at half its rate, 6 an hour are one in 20 minutes
	wantAdmitted(t, g, "jobs", half, 1)
}

// A limit that replaces another has its classes with the same parts of its rate and burst, unless it
// has classes of its own or counts in a way that has none.
func TestClassesOfOverride(t *testing.T) {
	base := every("", 500, time.Second)
	base.Burst = 5000
	base.Classes = weir.ClassesOf(weir.Class{Name: "realtime", Guaranteed: 300, Burst: 1000}, weir.Class{Name: "batch", Guaranteed: 166, NoBorrow: true}, weir.Class{Name: "backfill"})
	own := every("", 10, time.Second)
	own.Classes = weir.ClassesOf(weir.Class{Name: "backfill", Guaranteed: 10})
	lower := every("", 5, time.Minute)
	lower.Burst = 7
	for _, tt := range []struct {
		limit Limit
		want  []weir.Class
	}{
		{every("", 1000, time.Second), []weir.Class{{Name: "realtime", Guaranteed: 600, Burst: 200}, {Name: "batch", Guaranteed: 332, NoBorrow: true}, {Name: "backfill"}}},
		{lower, []weir.Class{{Name: "realtime", Guaranteed: 3, Burst: 1}, {Name: "batch", Guaranteed: 1, NoBorrow: true}, {Name: "backfill"}}},
		{own, own.Classes.List()},
		{every("", 5, time.Second).using(weir.GCRA), nil},
		{Limit{Limit: weir.Limit{Rate: 5, Per: weir.Calendar(weir.Day, nil)}}, nil},
	} {
		rules := compile(t, nil, policy("p", base).with(override("k", tt.limit)))
		if got := rules.Rule("p").For("k", time.Now()).Limits()[0].Classes.List(); !slices.Equal(got, tt.want) {
			t.Errorf("%v has %v, want %v", tt.limit, got, tt.want)
		}
	}
}

// A class that the policy does not have is the caller's mistake, in every call.
func TestUnknownClass(t *testing.T) {
	g, _ := frozen(t, sharing(), policy("plain", perHour("", 5)), policy("multi", perHour("", 5), perHour("i", 5).by("ip")))
	for policy, want := range map[string]string{
		"jobs":  `"class" is "urgent", which the policy does not have; it has realtime, backfill`,
		"plain": `"class" is "urgent", and the policy has no classes`,
		"multi": `"class" is "urgent", and the policy has no classes`,
	} {
		rule, q := g.Rules().Rule(policy), one("a", ip("1")).of("urgent")
		calls := map[string]func() error{
			"check":   func() error { _, err := g.Check(ctx, rule, &q); return err },
			"peek":    func() error { _, err := g.Peek(ctx, rule, &q); return err },
			"reserve": func() error { _, _, err := g.Reserve(ctx, rule, &q, time.Minute); return err },
			"each":    func() error { _, err := g.CheckEach(ctx, []Item{{Rule: rule, Query: q}}, nil); return err },
			"all":     func() error { _, err := g.CheckAll(ctx, []Item{{Rule: rule, Query: q}}); return err },
			"debit":   func() error { _, err := g.DebitEach(ctx, []Item{{Rule: rule, Query: q}}); return err },
		}
		for name, call := range calls {
			if bad, ok := errors.AsType[*InputError](call()); !ok || bad.Error() != want {
				t.Errorf("%s of %s: %v, want %s", name, policy, bad, want)
			}
		}
	}
}

// Queries of different classes are charged by one call to the limiter, each to its own class.
func TestClassesOfBatch(t *testing.T) {
	calls := 0
	c := new(clock)
	table := newTable(t, c)
	g := newEngine(t, &scripted{Limiter: table, do: func(ctx context.Context, b *weir.Batch) error { calls++; return table.Do(ctx, b) }}, sharing())
	rule := g.Rules().Rule("jobs")
	item := func(class string, cost int64) Item {
		return Item{Rule: rule, Query: Query{Key: "a", Cost: cost, Class: class}}
	}
	verdicts, err := g.CheckEach(ctx, []Item{item("realtime", 6), item("backfill", 3), item("", 2), item("", 1), item("realtime", 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true, false} {
		if verdicts[i].Allowed != want {
			t.Errorf("check %d: %+v", i, verdicts[i].Decision)
		}
	}
	if calls != 1 {
		t.Errorf("%d calls to the limiter, want 1", calls)
	}
	g, _ = frozen(t, sharing())
	if verdicts, err = g.CheckAll(ctx, []Item{item("realtime", 6), item("backfill", 5)}); err != nil || verdicts[0].Reason != weir.NotCharged || verdicts[1].Allowed {
		t.Errorf("%+v, %v", verdicts, err)
	}
	if _, err = g.DebitEach(ctx, []Item{item("realtime", 7), item("backfill", 1)}); err != nil {
		t.Fatal(err)
	}
	wantAdmitted(t, g, "jobs", one("a").of("backfill"), 3)
	wantAdmitted(t, g, "jobs", one("a").of("realtime"), 0)
}

// What a reservation of a class does not use comes back to that class.
func TestReservationOfClass(t *testing.T) {
	g, _ := frozen(t, sharing())
	rule := g.Rules().Rule("jobs")
	q := Query{Key: "a", Cost: 6, Class: "realtime"}
	v, ticket, err := g.Reserve(ctx, rule, &q, time.Minute)
	if err != nil || !v.Allowed {
		t.Fatal(v, err)
	}
	wantAdmitted(t, g, "jobs", one("a").of("realtime"), 0)
	wantAdmitted(t, g, "jobs", one("a").of("backfill"), 4)
	parsed, err := ParseTicket(ticket.String(), "")
	if err != nil {
		t.Fatal(err)
	}
	if settled, err := g.Settle(ctx, parsed, Used{HaveCost: true, Cost: 1}); err != nil || settled.Refunded != 5 {
		t.Errorf("%+v, %v", settled, err)
	}
	wantAdmitted(t, g, "jobs", one("a").of("backfill"), 0)
	wantAdmitted(t, g, "jobs", one("a").of("realtime"), 5)
}
