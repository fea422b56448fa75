package ruleset

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// countingLimiter counts the batches that it is given.
type countingLimiter struct {
	weir.Limiter
	batches int
}

func (c *countingLimiter) Do(ctx context.Context, b *weir.Batch) error {
	c.batches++
	return c.Limiter.Do(ctx, b)
}

// classUsage returns the usage of the only limit of a policy, and of its classes: the units in use, of the class's own
// part, and what is guaranteed.
func classUsage(t *testing.T, g *Engine, plan string) (list []string) {
	t.Helper()
	usage, err := g.Usage(ctx, g.Rules().Rule("jobs"), &Query{Key: "a", Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range usage {
		if u.Class == "" {
			list = append(list, fmt.Sprintf("%d of %d", u.Used(), u.Capacity))
			continue
		}
		list = append(list, fmt.Sprintf("%s: %d of %d", u.Class, u.OwnUsed, u.Guaranteed))
	}
	return list
}

// Usage tells what classes use of their own parts: what they borrow and lend is not in it, and what they hold is. A
// class that borrows nothing has the same numbers, and one without a part has none. It is one batch.
func TestUsageOfClasses(t *testing.T) {
	l := every("", 100, 100*time.Second) // one unit a second
	l.Classes = weir.ClassesOf(weir.Class{Name: "realtime", Guaranteed: 50}, weir.Class{Name: "backfill", Guaranteed: 30},
		weir.Class{Name: "hard", Guaranteed: 10, NoBorrow: true}, weir.Class{Name: "rest"})
	paused := l
	paused.Classes = withoutBorrowing(l.Classes.List())
	p := policy("jobs", l)
	p.Plans = []Plan{{Name: "paused", Limits: []Limit{paused}}}
	clock := new(clock)
	counted := &countingLimiter{Limiter: newTable(t, clock)}
	g := newEngine(t, counted, p)
	take := func(class string, cost int64) {
		t.Helper()
		if v := check(t, g, "jobs", Query{Key: "a", Class: class, Cost: cost}); !v.Allowed {
			t.Fatalf("%d of %s: %v", cost, class, v.Decision)
		}
	}
	want := func(what string, all int, used ...int) {
		t.Helper()
		list := []string{fmt.Sprintf("%d of 100", all)}
		for i, c := range l.Classes.List() {
			list = append(list, fmt.Sprintf("%s: %d of %d", c.Name, used[i], c.Guaranteed))
		}
		for _, plan := range []string{"", "paused"} {
			before := counted.batches
			if got := classUsage(t, g, plan); !slices.Equal(got, list) || counted.batches != before+1 {
				t.Errorf("%s, plan %q: %q in %d batches, want %q in one", what, plan, got, counted.batches-before, list)
			}
		}
	}
	want("unused", 0, 0, 0, 0, 0)
	take("backfill", 25)
	want("its own", 25, 0, 25, 0, 0)
	take("backfill", 10) // 5 are its own, and 5 no class's
	take("rest", 5)
	want("borrowed", 40, 0, 30, 0, 0)
	_, held, err := g.Reserve(ctx, g.Rules().Rule("jobs"), &Query{Key: "a", Class: "realtime", Cost: 20}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want("held", 60, 20, 30, 0, 0)
	clock.pass(10 * time.Second)
	want("what is held does not come back", 50, 20, 27, 0, 0)
	take("backfill", 10) // 7 of which realtime lends, as its part cannot refill
	want("lent", 60, 20, 30, 0, 0)
	take("hard", 4)
	if _, err := g.Settle(ctx, held, Used{HaveCost: true, Cost: 5}); err != nil {
		t.Fatal(err)
	}
	want("settled", 49, 5, 30, 4, 0)
}
