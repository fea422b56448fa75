package guard

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestShadowEqualsEnforcement: on an open-loop trace, what shadow would refuse is what enforcement
// refuses, with both stages, penalties and abuse.
func TestShadowEqualsEnforcement(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareModes(t, rand.New(rand.NewPCG(seed, 4))) })
		})
	}
}

func compareModes(t *testing.T, random *rand.Rand) {
	c := Config{
		BeforeAuth: BeforeAuth{PerIP: per(120, time.Minute)},
		Default:    Endpoint{Limits: per(60, time.Minute)},
		Endpoints: []Endpoint{
			{Pattern: "/a", Limits: append(per(10, time.Minute), ruleset.Limit{By: "ip", Limit: weir.Limit{Name: "ip", Rate: 40, Per: weir.Every(time.Minute)}})},
			{Pattern: "/b", Limits: per(5, 10*time.Second)},
		},
		Penalties: &Penalties{}, Abuse: &Abuse{Requests: 8, Per: 2 * time.Second},
	}
	seen := [2]*violations{{}, {}}
	guards := [2]*Guard{}
	for i, mode := range []ruleset.Mode{ruleset.Enforce, ruleset.Shadow} {
		c.Mode, c.Hooks.OnViolation = mode, seen[i].add
		guards[i] = newGuard(t, c)
	}
	refused, penalized := 0, 0
	for i := range 4000 {
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		r := Request{Path: []string{"/a", "/b", "/c"}[random.IntN(3)], Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(2))})}
		s := User(fmt.Sprint(random.IntN(3)))
		if random.IntN(4) == 0 {
			s = Subject{}
		}
		var p, q Pass
		v := through(t, guards[0], &p, r, s)
		first, err := guards[1].Enter(t.Context(), &q, r)
		if err != nil || !first.Allowed {
			t.Fatalf("shadow refused: %+v, %v", first, err)
		}
		second, err := guards[1].Identify(t.Context(), &q, s)
		if err != nil || !second.Allowed {
			t.Fatalf("shadow refused: %+v, %v", second, err)
		}
		p.Done(t.Context(), false)
		q.Done(t.Context(), false)
		if would := first.Shadow >= 0 || second.Shadow >= 0; would == v.Allowed {
			t.Fatalf("request %d to %s: enforcement allows it: %v (%s); shadow would refuse it: %v", i, r.Path, v.Allowed, v.LimitedBy(), would)
		}
		if !v.Allowed {
			refused++
		}
		if v.Penalized {
			penalized++
		}
	}
	if refused < 100 || refused > 3900 {
		t.Errorf("%d refused of 4000: the trace shows little", refused)
	}
	for kind := range kinds {
		if a, b := seen[0].count(kind, false), seen[1].count(kind, true); a != b {
			t.Errorf("%v: %d violations enforced, %d in shadow", kind, a, b)
		}
	}
	if n := seen[1].count(Penalized, false); n != 0 {
		t.Errorf("%d enforced penalties in shadow", n)
	}
}

// TestRollout: the same tenth of subjects at every endpoint and on every node: S4.34, F4.13.
func TestRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Rollout: 1000, Endpoints: []Endpoint{{Pattern: "/a", Limits: per(1, time.Hour)}, {Pattern: "/b", Limits: per(1, time.Hour)}}}
		one, two := newGuard(t, c), newGuard(t, c)
		limited := 0
		for i := range 5000 {
			s := User(fmt.Sprint(i))
			var refused [3]bool
			for j, x := range []struct {
				g    *Guard
				path string
			}{{one, "/a"}, {one, "/b"}, {two, "/a"}} {
				call(t, x.g, x.path, s)
				refused[j] = !call(t, x.g, x.path, s).Allowed
			}
			if refused[0] != refused[1] || refused[0] != refused[2] {
				t.Fatalf("subject %d: %v", i, refused)
			}
			if refused[0] {
				limited++
			}
		}
		if limited < 400 || limited > 600 {
			t.Errorf("%d of 5000 are limited, want about 500", limited)
		}
	})
}

// TestShadowPenalty: violations in shadow bring no enforced penalty.
func TestShadowPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &violations{}
		g := newGuard(t, Config{
			Endpoints: []Endpoint{
				{Pattern: "/shadow", Mode: ruleset.Shadow, Limits: per(1, time.Hour)},
				{Pattern: "/enforced", Limits: per(100, time.Hour)},
			},
			Penalties: &Penalties{}, Hooks: Hooks{OnViolation: seen.add},
		})
		for range 20 {
			if v := call(t, g, "/shadow", User("a")); !v.Allowed {
				t.Fatal("refused in shadow")
			}
			time.Sleep(time.Second)
		}
		if seen.count(Penalized, true) != 1 || seen.count(Penalized, false) != 0 {
			t.Errorf("%+v", seen.list)
		}
		if v := call(t, g, "/enforced", User("a")); v.Penalized {
			t.Error("a penalty in shadow was enforced")
		}
		if until, err := g.Penalty(t.Context(), User("a").Key); err != nil || !until.IsZero() {
			t.Error("a penalty in shadow is shown as enforced")
		}
	})
}
