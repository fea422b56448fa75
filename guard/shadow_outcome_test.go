package guard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestShadowEqualsEnforcementByOutcome: enforcement, shadow, and enforcement whose rollout includes nobody
// refuse the same requests, with limits that are counted by outcome, plans and overrides.
func TestShadowEqualsEnforcementByOutcome(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 9))
			mk := func(mode ruleset.Mode, rollout ruleset.Share) *Guard {
				return newGuard(t, Config{
					Mode: mode, Rollout: rollout,
					BeforeAuth: BeforeAuth{PerIP: per(200, time.Minute)},
					Default:    Endpoint{Limits: per(20, time.Minute), Count: CountFailures},
					Endpoints: []Endpoint{
						{Pattern: "/s", Limits: per(100, time.Minute), Settle: true, Cost: 5},
						{Pattern: "/two", Limits: append(per(8, time.Minute), ruleset.Limit{By: "ip", Limit: weir.Limit{Name: "ip", Rate: 30, Per: weir.Every(time.Minute)}}), Overrides: []ruleset.Override{{Key: "user:1", Limits: per(4, time.Minute)}}},
					},
					Plans: []Plan{{"pro", 1.5}}, Penalties: &Penalties{For: 30 * time.Second}, Abuse: &Abuse{Requests: 8, Per: 2 * time.Second},
				})
			}
			gs := [3]*Guard{mk(ruleset.Enforce, 0), mk(ruleset.Shadow, 0), mk(ruleset.Enforce, 1)}
			pen := 0
			for i := range 3000 {
				time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
				s := User(fmt.Sprint(random.IntN(3)))
				s.Plan = []string{"", "pro"}[random.IntN(2)]
				r := Request{Path: []string{"/a", "/s", "/two"}[random.IntN(3)], Address: localAddr}
				failed, cost := random.IntN(3) > 0, int64(random.IntN(10))
				var refused [3]bool
				for n, g := range gs {
					var p Pass
					v, err := g.Enter(t.Context(), &p, r)
					if err != nil {
						t.Fatal(err)
					}
					refused[n] = !v.Allowed || v.Shadow >= 0
					if v.Allowed {
						w, err := g.Identify(t.Context(), &p, s)
						if err != nil {
							t.Fatal(err)
						}
						refused[n] = refused[n] || !w.Allowed || w.Shadow >= 0
						if w.Penalized {
							pen++
						}
						Settle(WithPass(t.Context(), &p), cost)
						p.Done(t.Context(), failed)
					}
				}
				if refused[0] != refused[1] || refused[0] != refused[2] {
					t.Fatalf("seed %d, %d: %s refused %v", seed, i, r.Path, refused)
				}
			}
			if pen == 0 {
				t.Error("nobody was penalized")
			}
		})
	}
}
