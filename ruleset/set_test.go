package ruleset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

func TestNewNeedsAll(t *testing.T) {
	rules := compile(t, nil, policy("p", perHour("", 1)))
	if _, err := New(nil, rules); err == nil {
		t.Error("an engine without a limiter")
	}
	if _, err := New(newTable(t, nil), nil); err == nil {
		t.Error("an engine without rules")
	}
}

// use charges alice, from one address, with so many units of each kind.
func use(t tester, g *Engine, n int64) {
	t.Helper()
	q := Query{Key: "alice", Cost: n, Keys: []Attribute{ip("1")}}
	if v := check(t, g, "p", q); !v.Allowed {
		t.Fatalf("%+v", v.Decision)
	}
}

// What was used survives every change that is not a limit's own mode, attribute or unit.
func TestSetKeepsWhatWasUsed(t *testing.T) {
	before := policy("p", perHour("", 10), perHour("i", 10).by("ip"))
	with := func(change func(*Policy)) Policy {
		p := policy("p", perHour("", 10), perHour("i", 10).by("ip"))
		change(&p)
		return p
	}
	tests := []struct {
		name  string
		steps []Policy
		left  int // of alice, after 6 were used
	}{
		{"nothing", []Policy{before}, 4},
		{"more", []Policy{policy("p", perHour("", 15), perHour("i", 15).by("ip"))}, 9},
		{"less", []Policy{policy("p", perHour("", 8), perHour("i", 8).by("ip"))}, 2},
		{"less than was used", []Policy{policy("p", perHour("", 5), perHour("i", 5).by("ip"))}, 0},
		{"there and back", []Policy{policy("p", perHour("", 7), perHour("i", 7).by("ip")), before}, 4},
		{"through shadow", []Policy{with(func(p *Policy) { p.Mode = Shadow }), before}, 4},
		{"through off", []Policy{with(func(p *Policy) { p.Mode = Off }), before}, 4},
		{"through a rollout", []Policy{with(func(p *Policy) { p.Rollout = 1 }), before}, 4},
		{"through an override", []Policy{before.with(override("alice", perHour("", 20))), before}, 4},
		{"to an override", []Policy{policy("p", perHour("", 10)).with(override("alice", perHour("", 20)))}, 14},
		{"removed and back", []Policy{policy("q", perHour("", 1)), before}, 4},
		{"limits in another order", []Policy{policy("p", perHour("i", 10).by("ip"), perHour("", 10))}, 4},
		{"another limit beside", []Policy{policy("p", perHour("", 10), perHour("new", 3))}, 3},
		{"one limit's own mode", []Policy{policy("p", perHour("", 10).mode(Shadow), perHour("i", 12).by("ip"))}, 6},
		{"a limit begins unused after its mode", []Policy{policy("p", perHour("", 10).mode(Shadow)), {Name: "p", Mode: Shadow, Limits: []Limit{perHour("", 10).mode(Enforce)}}}, 10},

		// A limiter that has replaced limits replaces them in every later charge.
		{"changed, removed, and back", []Policy{policy("p", perHour("", 7), perHour("i", 7).by("ip")), policy("q", perHour("", 1)), before}, 4},
		{"changed, off, and back", []Policy{policy("p", perHour("", 7), perHour("i", 7).by("ip")), with(func(p *Policy) { p.Mode = Off }), before}, 4},
		{"one group gone and back", []Policy{policy("p", perHour("", 7), perHour("i", 7).by("ip")), policy("p", perHour("", 20)), policy("p", perHour("", 20), perHour("i", 10).by("ip"))}, 4},
		{"an override with the old numbers", []Policy{policy("p", perHour("", 7)).with(override("alice", perHour("", 10)))}, 4},
		{"an override with the old numbers, later", []Policy{policy("p", perHour("", 7)), policy("p", perHour("", 7)).with(override("al*", perHour("", 10)))}, 4},
		{"numbers that an override has, for a while", []Policy{
			policy("p", perHour("", 7)).with(override("alice", perHour("", 20))),
			policy("p", perHour("", 20)).with(override("alice", perHour("", 20))),
			policy("p", perHour("", 7)).with(override("alice", perHour("", 20))),
		}, 14},
		{"an override by another name of the algorithm", []Policy{
			policy("p", perHour("", 7).using(weir.TokenBucket)),
			policy("p", perHour("", 8)).with(override("alice", perHour("", 7).using(weir.GCRA))),
		}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, _ := frozen(t, before)
			use(t, g, 6)
			for _, p := range tt.steps {
				set(t, g, p)
			}
			wantAdmitted(t, g, "p", one("alice", ip("1")), tt.left)
		})
	}
}

// An override that says what the policy says already must not be another policy for the
// limiter: on a value that many share, numbers would change with every call.
func TestOverridesShareWhatTheyDoNotChange(t *testing.T) {
	window := every("w", 9, time.Hour).using(weir.FixedWindow).by("w")
	day := Limit{Limit: weir.Limit{Name: "d", Rate: 9, Per: weir.Calendar(weir.Day, time.UTC)}, By: "d"}
	p := policy("p", perHour("", 5), perHour("i", 5).by("ip"), window, day, slots("s", 3).by("s"))
	r := compile(t, nil, p.with(override("k", perHour("", 6)), override("same", perHour("", 5)))).Rule("p")
	for _, key := range []string{"k", "same"} {
		v := r.For(key, time.Now())
		for i := range v.groups {
			shares := v.groups[i].policy == r.base.groups[i].policy
			if shares != (i > 0 || key == "same") {
				t.Errorf("%s shares %s: %v", key, v.groups[i].policy.Name(), shares)
			}
		}
	}
}

// Requests that began before a change are decided by the new limits, and report a
// limit that their rules have, or none.
func TestOldRulesAfterSet(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("a", 10), perHour("s", 9).mode(Shadow)))
	old := g.Rules().Rule("p")
	set(t, g, policy("p", perHour("x", 20), perHour("y", 20), perHour("z", 2), perHour("s1", 20).mode(Shadow), perHour("s2", 1).mode(Shadow)))
	q := one("k")
	for i, want := range []bool{true, true, false} {
		v, err := g.Check(ctx, old, &q)
		if err != nil || v.Allowed != want {
			t.Fatalf("%d: %+v, %v", i, v.Decision, err)
		}
		if v.Limit >= len(v.Variant.Limits()) || v.Shadow >= len(v.Variant.Limits()) {
			t.Errorf("%d: it reports the limits %d and %d", i, v.Limit, v.Shadow)
		}
		_ = v.LimitedBy()
	}
	if _, list, err := g.Inspect(ctx, old, &q); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	other := one("other")
	for range 3 {
		if v, _, err := g.Reserve(ctx, old, &other, 0); err != nil || v.Shadow >= len(v.Variant.Limits()) {
			t.Error(v, err)
		}
	}
}

// three has groups that change together.
func three(rate int64) Policy {
	return policy("p", perHour("", rate), perHour("i", rate).by("ip"), perHour("t", rate).in("tokens"))
}

// calls returns the recorded calls of Set, such as "p 1>2".
func (s *scripted) calls() (list []string) {
	for _, c := range s.sets {
		list = append(list, fmt.Sprintf("%s %d>%d", c.New.Name(), c.Old.Limits()[0].Rate, c.New.Limits()[0].Rate))
	}
	return list
}

func TestSetThatFailsIsTakenBack(t *testing.T) {
	gone, leave := context.WithCancel(ctx)
	tests := []struct {
		name   string
		ctx    context.Context
		fails  func(n int) error
		want   []string
		wanted []string // parts of the error
	}{
		{"nothing fails", ctx, func(int) error { return nil }, []string{"p 1>2", "p/ip 1>2", "p:tokens 1>2"}, nil},
		{"the first", ctx, failAt(errDown, 1), []string{"p 1>2"}, []string{`"p"`, "down"}},
		{"the second", ctx, failAt(errDown, 2), []string{"p 1>2", "p/ip 1>2", "p 2>1"}, []string{`"p/ip"`, "down"}},
		{"the third", ctx, failAt(errDown, 3), []string{"p 1>2", "p/ip 1>2", "p:tokens 1>2", "p/ip 2>1", "p 2>1"}, []string{`"p:tokens"`}},
		{"nobody knows whether", ctx, failAt(weir.ErrUnknown, 2), []string{"p 1>2", "p/ip 1>2", "p/ip 2>1", "p 2>1"}, []string{`"p/ip"`, "unknown"}},
		{"nor can it be reverted", ctx, failAt(errDown, 2, 3), []string{"p 1>2", "p/ip 1>2", "p 2>1"}, []string{`"p/ip"`, `"p": cannot be reverted`}},
		{"the caller leaves", gone, func(n int) error {
			if n == 2 {
				leave()
			}
			return nil
		}, []string{"p 1>2", "p/ip 1>2", "p 2>1"}, []string{"canceled"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &scripted{Limiter: newTable(t, new(clock))}
			l.onSet = func(ctx context.Context, n int) error {
				if err := tt.fails(n); err != nil {
					return err
				}
				return ctx.Err()
			}
			g := newEngine(t, l, three(1))
			was := g.Rules()
			next := compile(t, was, three(2))
			err := g.Set(tt.ctx, next)
			if diff := cmp.Diff(tt.want, l.calls()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if (err != nil) != (len(tt.wanted) > 0) || (g.Rules() == was) != (err != nil) {
				t.Errorf("%v, and the rules are the old ones: %v", err, g.Rules() == was)
			}
			for _, part := range tt.wanted {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
			if err != nil && !strings.Contains(tt.name, "nor can") {
				if strings.Contains(err.Error(), "taken back") {
					t.Error(err)
				}
				q := Query{Key: "k", Cost: 1, Keys: []Attribute{ip("1")}, Costs: []Cost{{"tokens", 1}}}
				wantAdmitted(t, g, "p", q, 1)
			}
		})
	}
}

func failAt(err error, at ...int) func(int) error {
	return func(n int) error {
		for _, a := range at {
			if a == n {
				return err
			}
		}
		return nil
	}
}

func TestSetOfTheSameTellsNobody(t *testing.T) {
	l := &scripted{Limiter: newTable(t, nil)}
	g := newEngine(t, l, three(1))
	set(t, g, three(1))
	if len(l.sets) != 0 {
		t.Errorf("%v", l.calls())
	}
}

// While numbers change back and forth, whoever asks is decided by one of the two, and
// nobody gets a unit for nothing. The clock stands still, so there is nothing to wait for.
func TestSetUnderLoad(t *testing.T) {
	two := func(rate int64) Policy {
		return policy("p", perHour("", rate), perHour("i", rate*2).by("ip")).with(override("boss", perHour("", rate*4)))
	}
	table, err := memstore.New(memstore.Config{MaxKeys: 100, Now: new(clock).Now}) // which is quick to set
	if err != nil {
		t.Fatal(err)
	}
	g := newEngine(t, table, two(50))
	var wg sync.WaitGroup
	var done atomic.Bool
	var admitted, bossed atomic.Int64
	failed := make(chan string, 16)
	for n := range 8 {
		wg.Go(func() {
			key, count, unit := "k", &admitted, int64(1)
			if n == 0 {
				key, count, unit = "boss", &bossed, 4
			}
			q := one(key, ip(key))
			for !done.Load() {
				v, err := g.Check(ctx, g.Rules().Rule("p"), &q)
				if err != nil {
					failed <- err.Error()
					return
				}
				switch l := v.Decision.Limit; {
				case v.Limit == 0 && l != 50*unit && l != 100*unit, v.Limit == 1 && l != 100 && l != 200, v.Limit < 0:
					failed <- fmt.Sprintf("limit %d is %d", v.Limit, l)
					return
				}
				if v.Allowed {
					count.Add(1)
				}
			}
		})
	}
	for i := range 100 {
		set(t, g, two(int64(100-50*(i%2))))
	}
	done.Store(true)
	wg.Wait()
	close(failed)
	for problem := range failed {
		t.Error(problem)
	}
	for key, count := range map[string]*atomic.Int64{"k": &admitted, "boss": &bossed} { // what is left at 50
		for check(t, g, "p", one(key, ip(key))).Allowed {
			count.Add(1)
		}
	}
	if n := admitted.Load(); n > 100 || n < 50 {
		t.Errorf("%d units of at most 100 were admitted", n)
	}
	if n := bossed.Load(); n > 200 || n < 100 { // the limit of its address
		t.Errorf("%d units of at most 200 were admitted", n)
	}
}

func TestSetFailsIfUnitsDoNotFit(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 1000)))
	use(t, g, 1000)
	tight := perHour("", 1)
	tight.MaxDebt = 1
	err := g.Set(ctx, compile(t, g.Rules(), policy("p", tight)))
	if err == nil || g.Rules().Rule("p").Base().Limits()[0].Rate != 1000 {
		t.Errorf("1000 units were put into 2: %v", err)
	}
	if errors.Is(err, weir.ErrUnknown) {
		t.Error(err)
	}
}
