package ruleset

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// openAt returns a gate that opens at an instant.
func openAt(at *atomic.Pointer[time.Time]) Gate {
	return func(context.Context) Terms { return Terms{Wait: max(0, time.Until(*at.Load()))} }
}

// gatedEngine returns an engine of two policies of 10 per second, of which "main" has a gate.
func gatedEngine(t *testing.T, g Gate) *Engine {
	t.Helper()
	ten := []Limit{{Limit: weir.PerSecond(10)}}
	engine := newEngine(t, weir.Must(memstore.New(memstore.Config{})),
		Policy{Name: "main", Limits: ten, Plans: []Plan{{Name: "less", Limits: []Limit{{Limit: weir.PerSecond(2)}}}}},
		Policy{Name: "other", Limits: ten})
	engine.SetGate("main", g)
	return engine
}

func queryOf(policy *Engine, name string, cost int64) (*Rule, *Query) {
	return policy.Rules().Rule(name), &Query{Key: "k", Cost: cost, Alone: true}
}

// TestGateHoldsWaiting: requests that wait already keep their order, and the gate applies to them.
func TestGateHoldsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var open atomic.Pointer[time.Time]
		open.Store(&began)
		engine := gatedEngine(t, openAt(&open))
		r, all := queryOf(engine, "main", 10)
		if v, err := engine.Check(t.Context(), r, all); err != nil || !v.Allowed {
			t.Fatalf("%+v, %v", v, err)
		}
		var mu sync.Mutex
		var at []time.Duration
		var order []int
		var waiting sync.WaitGroup
		for i := range 3 {
			waiting.Go(func() {
				q := &Query{Key: "k", Cost: 5, Alone: true, MaxWait: UntilDone}
				v, err := engine.Check(t.Context(), r, q)
				mu.Lock()
				defer mu.Unlock()
				at, order = append(at, time.Since(began)), append(order, i)
				if err != nil || !v.Allowed {
					t.Errorf("request %d: %+v, %v", i, v, err)
				}
			})
			synctest.Wait()
		}
		open.Store(new(began.Add(10 * time.Second))) // while they wait
		waiting.Wait()
		first := at[0] // up to 50 ms late: the queue takes the refusal for a race that was lost
		want := []time.Duration{first, first, first + 500*time.Millisecond}
		if first < 10*time.Second || first > 10050*time.Millisecond || !slices.Equal(at, want) || !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("admitted at %v in the order %v, want %v", at, order, want)
		}
	})
}

// TestGateRetry: a gate that opens before it has said that it would.
func TestGateRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var open atomic.Pointer[time.Time]
		open.Store(new(began.Add(24 * time.Hour)))
		engine := gatedEngine(t, openAt(&open))
		engine.Retry("main") // nobody waits
		var waiting sync.WaitGroup
		for _, key := range []string{"a", "a", "b"} {
			waiting.Go(func() {
				q := &Query{Key: key, Cost: 5, Alone: true, MaxWait: UntilDone}
				if v, err := engine.Check(t.Context(), engine.Rules().Rule("main"), q); err != nil || !v.Allowed {
					t.Errorf("%+v, %v", v, err)
				}
			})
		}
		time.Sleep(time.Minute)
		for _, policy := range []string{"other", "unknown"} {
			engine.Retry(policy)
		}
		engine.Retry("main") // it has not opened
		synctest.Wait()
		if n := engine.Waiting(); n != 3 {
			t.Errorf("%d wait, want 3", n)
		}
		open.Store(&began)
		engine.Retry("main")
		waiting.Wait()
		if d := time.Since(began); d != time.Minute {
			t.Errorf("the last one has waited for %v", d)
		}
	})
}

// TestGateRefuses: each operation that admits, and no other.
func TestGateRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Pointer[time.Time]
		open.Store(new(time.Now().Add(time.Minute)))
		engine := gatedEngine(t, openAt(&open))
		refused := func(what string, d weir.Decision, err error) {
			t.Helper()
			if err != nil || d.Allowed || d.Reason != weir.Exhausted || d.RetryAfter != time.Minute {
				t.Errorf("%s: %+v, %v", what, d, err)
			}
		}
		r, q := queryOf(engine, "main", 1)
		free := &Query{Key: "k", Implied: true, Alone: true}
		other, o := queryOf(engine, "other", 1)
		v, err := engine.Check(t.Context(), r, q)
		refused("check", v.Decision, err)
		v, err = engine.Check(t.Context(), r, free)
		refused("a cost of 0", v.Decision, err)
		v, err = engine.Peek(t.Context(), r, q)
		refused("peek", v.Decision, err)
		v, ticket, err := engine.Reserve(t.Context(), r, q, 0)
		if refused("reserve", v.Decision, err); ticket != nil {
			t.Error("reserve: there is a ticket")
		}
		if v, err := engine.Check(t.Context(), r, &Query{Key: "k", Cost: 11, Alone: true}); err != nil || v.Reason != weir.TooCostly {
			t.Errorf("a cost that never fits: %+v, %v", v, err)
		}
		list, err := engine.CheckEach(t.Context(), []Item{{Rule: r, Query: *q}, {Rule: other, Query: *o}}, nil)
		if refused("each", list[0].Decision, err); !list[1].Allowed {
			t.Errorf("the other policy's: %+v", list[1])
		}
		list, err = engine.CheckAll(t.Context(), []Item{{Rule: r, Query: *q}, {Rule: other, Query: *o}})
		if refused("all", list[0].Decision, err); list[1].Allowed || list[1].Reason != weir.NotCharged {
			t.Errorf("all: %+v", list[1])
		}
		if list, err := engine.DebitEach(t.Context(), []Item{{Rule: r, Query: *q}}); err != nil || !list[0].Allowed {
			t.Errorf("what was used already: %+v, %v", list, err)
		}
		if v, err := engine.Peek(t.Context(), r, &Query{Key: "k", Cost: 10, Alone: true}); err != nil || v.Reason != weir.Exhausted || v.RetryAfter != time.Minute {
			t.Errorf("what the limit has in a tenth of a second: %+v, %v", v, err)
		}
		costly := Query{Key: "k", Cost: 11, Alone: true}
		if list, err := engine.CheckEach(t.Context(), []Item{{Rule: r, Query: costly}}, nil); err != nil || list[0].Reason != weir.TooCostly {
			t.Errorf("each: a cost that never fits: %+v, %v", list, err)
		}
		for policy, used := range map[*Rule]int64{r: 1, other: 1} {
			if u, err := engine.Usage(t.Context(), policy, q); err != nil || u[0].Used() != used {
				t.Errorf("%s: %+v, %v, want %d used", policy.Name(), u, err, used)
			}
		}
		time.Sleep(time.Minute)
		if v, err := engine.Check(t.Context(), r, q); err != nil || !v.Allowed {
			t.Errorf("after the minute: %+v, %v", v, err)
		}
	})
}

// TestGateGivesPlans: charges are decided by the plan of the terms, of which a refusal may end at any time.
func TestGateGivesPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(100 * time.Millisecond)
		engine := gatedEngine(t, func(context.Context) Terms {
			if time.Now().Before(end) {
				return Terms{Plan: "less"}
			}
			return Terms{}
		})
		check := func(cost int64) weir.Decision {
			t.Helper()
			r, q := queryOf(engine, "main", cost)
			v, err := engine.Check(t.Context(), r, q)
			if err != nil {
				t.Fatal(err)
			}
			return v.Decision
		}
		if d := check(3); d.Allowed || d.Reason != weir.Exhausted || !d.Held || d.RetryAfter != planRetry {
			t.Errorf("more than the plan ever has: %+v", d)
		}
		if d := check(11); d.Reason != weir.TooCostly || d.Held {
			t.Errorf("more than the policy ever has: %+v", d)
		}
		if d := check(2); !d.Allowed {
			t.Errorf("all of the plan: %+v", d)
		}
		if d := check(1); d.Allowed || !d.Held || d.RetryAfter != 500*time.Millisecond {
			t.Errorf("beyond the plan: %+v", d)
		}
		r, _ := queryOf(engine, "main", 0)
		began := time.Now()
		q := &Query{Key: "k", Cost: 5, Alone: true, MaxWait: UntilDone}
		if v, err := engine.Check(t.Context(), r, q); err != nil || !v.Allowed || time.Since(began) != planRetry {
			t.Errorf("a request that waits when the plan ends: %+v, %v after %v", v, err, time.Since(began))
		}
	})
}

// TestGateLeavesOverrides: an override goes before the plan of a gate.
func TestGateLeavesOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ten := []Limit{{Limit: weir.PerSecond(10)}}
		engine := newEngine(t, weir.Must(memstore.New(memstore.Config{})), Policy{
			Name: "main", Limits: ten, Plans: []Plan{{Name: "less", Limits: []Limit{{Limit: weir.PerSecond(2)}}}},
			Overrides: []Override{{Key: "vip", Limits: []Limit{{Limit: weir.PerSecond(100)}}}},
		})
		engine.SetGate("main", func(context.Context) Terms { return Terms{Plan: "less"} })
		r := engine.Rules().Rule("main")
		for key, want := range map[string]bool{"k": false, "vip": true} {
			if v, err := engine.Check(t.Context(), r, &Query{Key: key, Cost: 50, Alone: true}); err != nil || v.Allowed != want {
				t.Errorf("%s: %+v, %v", key, v, err)
			}
		}
	})
}

// TestGateOutlivesRules: a gate applies to the policy of its name in other rules, too.
func TestGateOutlivesRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Pointer[time.Time]
		open.Store(new(time.Now().Add(time.Minute)))
		engine := gatedEngine(t, openAt(&open))
		allowed := func() bool {
			t.Helper()
			r, q := queryOf(engine, "main", 1)
			v, err := engine.Check(t.Context(), r, q)
			if err != nil {
				t.Fatal(err)
			}
			return v.Allowed
		}
		for _, rules := range []*Rules{
			compile(t, nil, Policy{Name: "other", Limits: []Limit{{Limit: weir.PerSecond(1)}}}),
			compile(t, nil, Policy{Name: "main", Limits: []Limit{{Limit: weir.PerSecond(5)}}}),
		} {
			if err := engine.Set(t.Context(), rules); err != nil {
				t.Fatal(err)
			}
		}
		if allowed() {
			t.Error("the gate does not apply to new rules")
		}
		if time.Sleep(time.Minute); !allowed() {
			t.Error("the gate does not open")
		}
	})
}
