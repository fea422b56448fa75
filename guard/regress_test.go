package guard

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// interposed is a limiter whose calls a test answers or observes.
type interposed struct {
	weir.Limiter
	answer func(*weir.Policy) (weir.Decision, bool) // to Take, instead of the limiter
	after  func(*weir.Batch)                        // Do, before its caller has the reply
}

func (l *interposed) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if l.answer != nil {
		if d, ok := l.answer(p); ok {
			return d, nil
		}
	}
	return l.Limiter.Take(ctx, p, key, cost)
}

func (l *interposed) Do(ctx context.Context, b *weir.Batch) error {
	err := l.Limiter.Do(ctx, b)
	if l.after != nil {
		l.after(b)
	}
	return err
}

// TestInFlightOfAnAddressThatIsTheSubject: a request without authentication was counted twice under
// the same key, so that with InFlight 1 none was ever admitted, and those of authenticated users of
// the address counted as its own.
func TestInFlightOfAnAddressThatIsTheSubject(t *testing.T) {
	g := newGuard(t, Config{InFlight: 1, BeforeAuth: BeforeAuth{InFlightPerIP: 3}})
	request := Request{Path: "/x", Address: localAddr}
	var passes [4]Pass
	for i, s := range []Subject{User("alice"), User("bob"), {}} {
		if v := through(t, g, &passes[i], request, s); !v.Allowed {
			t.Errorf("request %d, the first of its subject, was refused: %v", i, v.Cause)
		}
	}
	if v := through(t, g, &passes[3], request, User("carol")); v.Cause != ByInFlight || v.Subject.Verified {
		t.Errorf("the fourth request of the address: %v of %+v", v.Cause, v.Subject)
	}
	for i := range passes {
		passes[i].Done(t.Context(), false)
	}
	checkIdle(t, g)
}

// TestSettleAtTheEnd: a goroutine of a handler may call Settle while the request ends. It is told
// whether its cost counts.
func TestSettleAtTheEnd(t *testing.T) {
	table := newTable(t)
	g := guardOn(t, table, Config{Default: Endpoint{Limits: per(1000, 24*time.Hour), Settle: true, Cost: 10}})
	want := int64(1000)
	for range 50 {
		var p Pass
		through(t, g, &p, Request{Path: "/x", Address: localAddr}, User("alice"))
		var counts bool
		var wg sync.WaitGroup
		wg.Go(func() { counts = Settle(WithPass(t.Context(), &p), 3) })
		p.Done(t.Context(), false)
		wg.Wait()
		if want -= 10; counts {
			want += 7
		}
		if Settle(WithPass(t.Context(), &p), 3) {
			t.Fatal("settled after the end")
		}
	}
	quotas, err := g.Quotas(t.Context(), User("alice"), "", "/x")
	if err != nil || quotas[0].Remaining != want {
		t.Errorf("%+v, %v: want %d remaining", quotas, err, want)
	}
}

// TestRefusedAddressHasNoScore: what limits before authentication refuse may be requests of anybody at
// an address. It raised the score of the address, also during a penalty, so that the next one began
// when the last had ended.
func TestRefusedAddressHasNoScore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, Config{BeforeAuth: BeforeAuth{PerIP: per(1, 24*time.Hour)}, Default: Endpoint{Limits: per(60, time.Minute)}, Penalties: &Penalties{}})
		for range 20 {
			call(t, g, "/x", User("mallory"))
			time.Sleep(time.Second)
		}
		if s := g.Stats(); s.Violations[Exceeded] != 19 || s.Violations[Penalized] != 0 {
			t.Errorf("violations %v", s.Violations)
		}
	})
}

// TestAbuseBehindLimitInShadow: a limit of addresses that is only in shadow hid abuse from the rules in
// force.
func TestAbuseBehindLimitInShadow(t *testing.T) {
	c := Config{
		BeforeAuth: BeforeAuth{PerIP: per(1, time.Hour)}, Default: Endpoint{Limits: per(10_000, time.Minute)},
		Abuse: &Abuse{Requests: 5, Per: time.Minute},
	}
	c.BeforeAuth.PerIP[0].Mode = ruleset.Shadow
	g := newGuard(t, c)
	burst(t, g, 20, "/x", User("mallory"))
	if n := g.Stats().Violations[RapidFire]; n != 15 {
		t.Errorf("%d times too many requests were seen, want 15", n)
	}
}

// TestAbuseOutsideRollout: the abuse of subjects that the rollout does not include is in shadow, as are
// their limits. It was counted as if in force, so that their penalties in shadow were missing.
func TestAbuseOutsideRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, Config{
			Default: Endpoint{Limits: per(10_000, time.Minute)}, Rollout: 1,
			Abuse: &Abuse{Requests: 5, Per: 24 * time.Hour}, Penalties: &Penalties{},
		})
		for range 15 {
			call(t, g, "/x", User("mallory"))
			time.Sleep(time.Second)
		}
		s := g.Stats()
		if s.Violations[RapidFire] != 0 || s.Violations[Penalized] != 0 || s.Shadowed[RapidFire] != 10 || s.Shadowed[Penalized] != 1 {
			t.Errorf("in force %v, in shadow %v", s.Violations, s.Shadowed)
		}
	})
}

// TestOutageIsNoViolation: who is refused because the store is unavailable, or has too many
// reservations of others, has done nothing wrong. It was a violation, and led to a penalty.
func TestOutageIsNoViolation(t *testing.T) {
	for _, mode := range []ruleset.Mode{ruleset.Enforce, ruleset.Shadow} {
		for _, reason := range []weir.Reason{weir.StoreDown, weir.QueueFull} {
			synctest.Test(t, func(t *testing.T) {
				l := &interposed{Limiter: newTable(t)}
				g := guardOn(t, l, Config{Mode: mode, Default: Endpoint{Name: "api", Limits: per(60, time.Minute)}, Penalties: &Penalties{}})
				l.answer = func(p *weir.Policy) (weir.Decision, bool) {
					return weir.Decision{Reason: reason, RetryAfter: time.Second}, p.Name() == "api" || p.Name() == "api//shadow"
				}
				for range 10 {
					if v := call(t, g, "/x", User("alice")); v.Allowed != (mode == ruleset.Shadow) || v.Allowed && v.Shadow < 0 {
						t.Fatalf("%v, %v: %+v", mode, reason, v)
					}
					time.Sleep(time.Second)
				}
				if s := g.Stats(); s.Violations[Exceeded]+s.Violations[Penalized]+s.Shadowed[Exceeded]+s.Shadowed[Penalized] != 0 || len(g.Offenders(1)) != 0 {
					t.Errorf("%v, %v: in force %v, in shadow %v", mode, reason, s.Violations, s.Shadowed)
				}
			})
		}
	}
}

// TestNoPenaltyFromAnOutage: a store that refuses because it is unavailable does not say that the
// score was reached, nor that there is a penalty.
func TestNoPenaltyFromAnOutage(t *testing.T) {
	for _, down := range []string{"guard/score", "guard/penalty"} {
		synctest.Test(t, func(t *testing.T) {
			l := &interposed{Limiter: newTable(t)}
			g := guardOn(t, l, Config{Default: Endpoint{Limits: per(1, time.Hour)}, Penalties: &Penalties{After: 3}})
			l.answer = func(p *weir.Policy) (weir.Decision, bool) {
				return weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Hour}, p.Name() == down
			}
			for range 10 {
				if v := call(t, g, "/x", User("alice")); v.Penalized {
					t.Fatalf("%s is unavailable: penalized", down)
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// TestPenaltyDuringLookup: a reply of the store that is older than a penalty does not hide it.
func TestPenaltyDuringLookup(t *testing.T) {
	l := &interposed{Limiter: newTable(t)}
	g := guardOn(t, l, Config{Default: Endpoint{Limits: per(1, time.Hour)}, Penalties: &Penalties{After: 1}})
	mallory := User("mallory")
	first := true
	l.after = func(b *weir.Batch) {
		if b.Op == weir.PeekEach && first { // two other requests begin a penalty before the reply arrives
			first = false
			call(t, g, "/x", mallory)
			call(t, g, "/x", mallory)
		}
	}
	if v := call(t, g, "/x", mallory); v.Penalized {
		t.Errorf("%+v: the penalty was not known when the request began", v)
	}
	if v := call(t, g, "/x", mallory); !v.Penalized {
		t.Error("the penalty is not applied")
	}
	if err := g.Pardon(t.Context(), mallory.Key); err != nil {
		t.Fatal(err)
	}
	if v := call(t, g, "/x", mallory); v.Penalized {
		t.Error("penalized after the pardon")
	}
}

// TestPenaltiesBeginAtOnce: neither of an enforced penalty and one in shadow is lost.
func TestPenaltiesBeginAtOnce(t *testing.T) {
	c := newPenaltyCache()
	for range 2000 {
		c.end("user:mallory", 1, 16)
		var wg sync.WaitGroup
		for score := range 2 {
			wg.Go(func() { c.begin("user:mallory", score, 100, 1, 16) })
		}
		wg.Wait()
		if p, _ := c.get("user:mallory", 0); p != (penalized{100, 100}) {
			t.Fatalf("one was lost: %v", p)
		}
	}
}

// TestPenaltyIsTheSubjectsOwn: a penalty does not slow down the limits that a subject shares with
// others, here those of an organization and of an address. One that is of the subject itself is
// reduced, by whatever attribute it is.
func TestPenaltyIsTheSubjectsOwn(t *testing.T) {
	for _, by := range []string{"org", "ip"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, Config{
				Default:   Endpoint{Limits: per(1, 24*time.Hour)},
				Endpoints: []Endpoint{{Pattern: "/shared", Limits: []ruleset.Limit{{By: by, Limit: weir.PerMinute(60)}}}},
				Penalties: &Penalties{},
			})
			send := func(s Subject) (admitted int) {
				var p Pass
				defer p.Done(t.Context(), false)
				if through(t, g, &p, Request{Path: "/shared", Address: localAddr, Attributes: []ruleset.Attribute{{Name: "org", Value: "acme"}}}, s).Allowed {
					return 1
				}
				return 0
			}
			inAMinute := func(subjects ...Subject) (admitted int) {
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					for _, s := range subjects {
						admitted += send(s)
					}
				}
				return admitted
			}
			mallory := User("mallory")
			penalize(t, g, "/x", mallory)
			inAMinute(mallory)
			if n := inAMinute(mallory, User("bob")); n != 60 {
				t.Errorf("by %s: %d admitted, want 60", by, n)
			}
			address := g.Identifier().AddressSubject(localAddr)
			penalize(t, g, "/x", address)
			inAMinute(address)
			want := map[string]int{"org": 60, "ip": 30}[by]
			if n := inAMinute(address); n != want {
				t.Errorf("by %s: %d of the address admitted, want %d", by, n, want)
			}
		})
	}
}

// TestInputIsNoError: a caller cannot choose an attribute or a cost that no decision can be made on, in
// the hope that the server admits requests then. Long values are told apart.
func TestInputIsNoError(t *testing.T) {
	g := newGuard(t, Config{Default: Endpoint{Limits: []ruleset.Limit{{By: "org", Limit: weir.PerMinute(1)}}}})
	long := strings.Repeat("x", weir.MaxKeyBytes+1)
	for i, tt := range []struct {
		value, subject string
		cost           int64
		allowed        bool
	}{
		{long, "user:a", 0, true},
		{long, "user:b", 0, false},
		{long + "y", "user:a", 0, true},
		{"acme", "user:" + long, 0, true},
		{"other", "user:a", weir.MaxCost + 1, false},
		{"other", "user:a", 1, true},
	} {
		request := Request{Path: "/x", Address: localAddr, Cost: tt.cost, Attributes: []ruleset.Attribute{{Name: "org", Value: tt.value}}}
		var p Pass
		v := through(t, g, &p, request, Subject{Key: tt.subject, Verified: true})
		p.Done(t.Context(), false)
		if v.Allowed != tt.allowed {
			t.Errorf("request %d: allowed %v", i, v.Allowed)
		}
		if request.Attributes[0].Value != tt.value {
			t.Errorf("request %d: the attributes were changed", i)
		}
	}
}

// TestErrorIsNoAdmission: the verdict of an error does not say that the request was admitted.
func TestErrorIsNoAdmission(t *testing.T) {
	for _, count := range []Count{CountAll, CountFailures} {
		g := newGuard(t, Config{InFlight: 5, Default: Endpoint{Limits: per(1, time.Minute), Count: count}})
		ctx, cancel := context.WithCancel(t.Context())
		var p Pass
		if v, err := g.Enter(ctx, &p, Request{Path: "/x", Address: localAddr}); err != nil || !v.Allowed {
			t.Fatal(v, err)
		}
		cancel()
		if v, err := g.Identify(ctx, &p, User("alice")); err == nil || v.Allowed {
			t.Errorf("%d: allowed %v, error %v", count, v.Allowed, err)
		}
		p.Done(ctx, false)
		checkIdle(t, g)
	}
}

// TestSharedLimitsStay: plans and overrides do not change limits whose count is shared with others.
func TestSharedLimitsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := append(per(2, time.Hour), ruleset.Limit{By: "ip", Limit: weir.Limit{Name: "ip", Rate: 10, Per: weir.Every(time.Hour)}})
		c := Config{Plans: []Plan{{Name: "pro", Multiplier: 100}}, Endpoints: []Endpoint{{Pattern: "/x", Limits: limits}}}
		g := newGuard(t, c)
		pro := User("p")
		pro.Plan = "pro"
		if n := burst(t, g, 50, "/x", pro); n != 10 {
			t.Errorf("%d admitted, want the 10 of the address", n)
		}
		byIP := []ruleset.Limit{limits[1]}
		c.Endpoints[0].Plans = []ruleset.Plan{{Name: "pro", Limits: byIP}}
		wantProblem(t, c, "guard: Endpoints[0].Plans.pro.Limits[0]: the limit is by ip")
		c.Endpoints[0].Plans, c.Endpoints[0].Overrides = nil, []ruleset.Override{{Key: "user:a", Limits: byIP}}
		wantProblem(t, c, "guard: Endpoints[0].Overrides.user:a.Limits[0]: the limit is by ip")
	})
}

func wantProblem(t *testing.T, c Config, want string) {
	t.Helper()
	if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestCountsOfEndpointsThatAreGone: what is counted does not grow with each change of names.
func TestCountsOfEndpointsThatAreGone(t *testing.T) {
	g := newGuard(t, Config{})
	for i := range 20 {
		if err := g.Set(t.Context(), Config{Endpoints: []Endpoint{{Pattern: fmt.Sprintf("/%d", i), Limits: per(1, time.Hour)}}}); err != nil {
			t.Fatal(err)
		}
		call(t, g, fmt.Sprintf("/%d", i), User("a"))
	}
	if list := g.Stats().Endpoints; len(list) != 1 || list[0].Name != "19" || list[0].Allowed != 1 {
		t.Errorf("%+v", list)
	}
}

// TestIdentifyTwice is an error that leaks nothing.
func TestIdentifyTwice(t *testing.T) {
	g := newGuard(t, Config{InFlight: 1, Default: Endpoint{Limits: per(1, time.Hour)}})
	var p Pass
	if _, err := g.Identify(t.Context(), &p, User("a")); err == nil {
		t.Error("no error without Enter")
	}
	through(t, g, &p, Request{Path: "/x", Address: localAddr}, User("a"))
	if _, err := g.Identify(t.Context(), &p, User("b")); err == nil {
		t.Error("no error")
	}
	p.Done(t.Context(), false)
	checkIdle(t, g)
}

// TestChargeOfALongSubject: a message of a subject with a long key is charged like a request of it.
func TestChargeOfALongSubject(t *testing.T) {
	g := newGuard(t, Config{Default: Endpoint{Limits: per(2, time.Hour)}})
	s, r := Subject{Key: "user:" + strings.Repeat("x", 300), Verified: true}, Request{Path: "/x", Address: localAddr}
	var p, message Pass
	through(t, g, &p, r, s)
	for _, want := range []bool{true, false} {
		if v, err := g.Charge(t.Context(), &message, r, s); err != nil || v.Allowed != want {
			t.Errorf("%v, %v; want %v", v.Allowed, err, want)
		}
	}
}
