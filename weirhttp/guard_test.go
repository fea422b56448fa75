package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
)

func newGuard(t testing.TB, l weir.Limiter, c guard.Config) *guard.Guard {
	t.Helper()
	g, err := guard.New(l, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// limits are of n requests per minute.
func limits(n int64) []ruleset.Limit { return []ruleset.Limit{{Limit: weir.PerMinute(n)}} }

// hidden limits of n requests per minute.
func hiddenLimits(n int64) []ruleset.Limit {
	return []ruleset.Limit{{Limit: weir.PerMinute(n), Hidden: true}}
}

func mode(m ruleset.Mode, l ...ruleset.Limit) []ruleset.Limit {
	for i := range l {
		l[i].Mode = m
	}
	return l
}

// login answers as the field X-Password says.
var login = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Password") != "right" {
		http.Error(w, "wrong", http.StatusUnauthorized)
	}
})

// TestGuardWire holds complete responses, the last of some requests each.
func TestGuardWire(t *testing.T) {
	blocked := guard.Hooks{Blocked: func(guard.Subject) (time.Time, bool) { return time.Time{}, true }}
	blockedFor := guard.Hooks{Blocked: func(guard.Subject) (time.Time, bool) { return time.Now().Add(90 * time.Second), true }}
	penalties := &guard.Penalties{After: 1}
	tests := []struct {
		name     string
		config   guard.Config
		options  []Option
		requests int // the last one is shown
	}{
		{"no limits", guard.Config{}, nil, 1},
		{"admitted", guard.Config{Default: guard.Endpoint{Limits: limits(10)}}, nil, 1},
		{"admitted, two limits", guard.Config{Default: guard.Endpoint{Limits: []ruleset.Limit{
			{Limit: weir.PerMinute(10)},
			{Limit: weir.Limit{Name: "daily", Rate: 5, Per: weir.Calendar(weir.Day, nil)}},
		}}}, nil, 1},
		{"admitted, one of two limits is hidden", guard.Config{Default: guard.Endpoint{Limits: []ruleset.Limit{
			{Limit: weir.PerMinute(10)}, {Limit: weir.Limit{Name: "abuse", Rate: 50, Per: weir.Every(time.Hour)}, Hidden: true},
		}}}, nil, 1},
		{"admitted, one of two limits is in shadow", guard.Config{Default: guard.Endpoint{Limits: []ruleset.Limit{
			{Limit: weir.PerMinute(10)}, {Limit: weir.Limit{Name: "next", Rate: 1, Per: weir.Every(time.Hour)}, Mode: ruleset.Shadow},
		}}}, nil, 3},
		{"admitted, only addresses are limited", guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(10)}}, nil, 1},
		{"admitted, delta", guard.Config{Default: guard.Endpoint{Limits: limits(10)}}, []Option{LegacyHeaders(LegacyDelta)}, 1},
		{"admitted, delta, hidden", guard.Config{Default: guard.Endpoint{Limits: hiddenLimits(10)}}, []Option{LegacyHeaders(LegacyDelta)}, 1},
		{"refused", guard.Config{Default: guard.Endpoint{Limits: limits(2)}}, nil, 3},
		{"refused, hidden", guard.Config{Default: guard.Endpoint{Limits: hiddenLimits(2)}}, []Option{LegacyHeaders(LegacyDelta)}, 3},
		{"refused, with a penalty", guard.Config{Default: guard.Endpoint{Limits: limits(2)}, Penalties: penalties}, nil, 4},
		{"refused, address", guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(2)}, Default: guard.Endpoint{Limits: limits(9)}}, nil, 3},
		{"refused, too costly", guard.Config{Default: guard.Endpoint{Limits: limits(2), Cost: 3}}, nil, 1},
		{"blocked", guard.Config{Hooks: blocked}, nil, 1},
		{"blocked for a while", guard.Config{Hooks: blockedFor}, nil, 1},
	}
	var b strings.Builder
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			h := Guard(newGuard(t, newTable(t), tt.config), tt.options...)(bare)
			var w *httptest.ResponseRecorder
			for range tt.requests {
				w = send(h, request("GET", "/v1/things", "Origin: https://a.example"))
			}
			fmt.Fprintf(&b, "# %s\n%s\n", tt.name, dump(w))
		}
		for _, c := range []guard.Config{
			{BeforeAuth: guard.BeforeAuth{InFlight: 1}},
			{BeforeAuth: guard.BeforeAuth{InFlightPerIP: 1}},
			{InFlight: 1},
		} {
			var h http.Handler
			h = Guard(newGuard(t, newTable(t), c))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				w := send(h, request("GET", "/")) // while the first is in flight
				fmt.Fprintf(&b, "# in flight %+v, per address %+v, per subject %+v\n%s\n", c.BeforeAuth.InFlight, c.BeforeAuth.InFlightPerIP, c.InFlight, dump(w))
			}))
			send(h, request("GET", "/"))
		}
		h := Guard(newGuard(t, newTable(t), guard.Config{}))(bare)
		fmt.Fprintf(&b, "# dot segment\n%s\n", dump(send(h, request("GET", "/static/../v1/x"))))
	})
	golden.Check(t, "testdata/guard.txt", []byte(b.String()))
}

// TestShadowIsInvisible: responses are those of the bare handler, however many requests are sent.
func TestShadowIsInvisible(t *testing.T) {
	const origin = "Origin: https://a.example"
	low := guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: limits(1), InFlight: 1, InFlightPerIP: 1}, InFlight: 1,
		Default:   guard.Endpoint{Limits: limits(1)},
		Endpoints: []guard.Endpoint{{Pattern: "POST /login", Limits: limits(1), Count: guard.CountFailures}},
		Penalties: &guard.Penalties{After: 1},
	}
	shadow, off, rollout := low, low, low
	shadow.Mode, off.Mode = ruleset.Shadow, ruleset.Off
	rollout.Rollout, rollout.BeforeAuth.InFlight = 1, 0 // 0.01 %; in-flight caps have no rollout
	rollout.BeforeAuth.InFlightPerIP, rollout.InFlight = 0, 0
	single := guard.Config{Default: guard.Endpoint{Limits: mode(ruleset.Shadow, limits(1)...)}}
	for name, c := range map[string]guard.Config{"shadow": shadow, "off": off, "rollout": rollout, "limit": single} {
		t.Run(name, func(t *testing.T) {
			h := Guard(newGuard(t, newTable(t), c), LegacyHeaders(LegacyGitHub))(login)
			for range 10 {
				for _, r := range []*http.Request{request("GET", "/a", origin), request("POST", "/login", origin), request("GET", "/a/../b", origin)} {
					if c.Mode == ruleset.ModeDefault && hasDotSegment(r.URL.Path) {
						continue // which is no limit
					}
					if got, want := dump(send(h, r)), dump(send(login, r)); got != want {
						t.Fatalf("%s %s:\n%s\nwant\n%s", r.Method, r.URL, got, want)
					}
				}
			}
		})
	}
}

// TestParallelGuesses: of 1,000 wrong passwords that are sent at once, exactly five reach the
// handler, and afterwards right ones are not charged.
func TestParallelGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, newTable(t), guard.Config{
			Endpoints: []guard.Endpoint{{Pattern: "POST /login", Count: guard.CountFailures, Limits: limits(5)}},
		})
		var tried atomic.Int64
		h := Guard(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tried.Add(1)
			time.Sleep(100 * time.Millisecond) // the password is checked
			login(w, r)
		}))
		var refused atomic.Int64
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if send(h, request("POST", "/login", "X-Password: wrong")).Code == http.StatusTooManyRequests {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		if tried.Load() != 5 || refused.Load() != 995 {
			t.Errorf("%d reached the handler and %d were refused, want 5 and 995", tried.Load(), refused.Load())
		}
		time.Sleep(time.Minute)
		for i := range 100 {
			if w := send(h, request("POST", "/login", "X-Password: right")); w.Code != http.StatusOK {
				t.Fatalf("right password %d: %d", i, w.Code)
			}
		}
	})
}

// TestOutcome: what counts as a failure.
func TestOutcome(t *testing.T) {
	status := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
	}
	tests := []struct {
		name    string
		leave   bool // the client leaves while the request is handled
		handler http.HandlerFunc
		options []Option
		counts  bool
	}{
		{"200", false, status(200), nil, false},
		{"no status", false, func(http.ResponseWriter, *http.Request) {}, nil, false},
		{"a body only", false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x"); w.WriteHeader(401) }, nil, false},
		{"flushed", false, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(401) }, nil, false},
		{"401", false, status(401), nil, true},
		{"403", false, status(403), nil, true},
		{"500", false, status(500), nil, false},
		{"early hints, then 401", false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, nil, true},
		{"a panic", false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, true},
		{"a panic after 200", false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("x") }, nil, true},
		{"the client left", true, func(http.ResponseWriter, *http.Request) {}, nil, true},
		{"the client left after 200", true, status(200), nil, false},
		{"500 with an option", false, status(500), []Option{Failed(func(_ *http.Request, s int) bool { return s >= 500 })}, true},
		{"401 with an option", false, status(401), []Option{Failed(func(_ *http.Request, s int) bool { return s >= 500 })}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuard(t, newTable(t), guard.Config{Default: guard.Endpoint{Count: guard.CountFailures, Limits: limits(1)}, InFlight: 1})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			h := Guard(g, tt.options...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tt.leave {
					leave()
				}
				tt.handler(w, r)
			}))
			func() {
				defer func() { _ = recover() }()
				send(h, request("GET", "/").WithContext(ctx))
			}()
			quotas, err := g.Quotas(t.Context(), guard.Subject{Key: "ip:192.0.2.1"}, "GET", "/")
			if err != nil {
				t.Fatal(err)
			}
			if counted := quotas[0].Remaining == 0; counted != tt.counts {
				t.Errorf("counted = %v, want %v", counted, tt.counts)
			}
			if n := g.Stats().InFlight; n != 0 {
				t.Errorf("%d requests are in flight", n)
			}
		})
	}
}

// TestOnlyOutcomesAreWrapped: elsewhere the handler gets the writer as it came.
func TestOnlyOutcomesAreWrapped(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{
		Default:   guard.Endpoint{Limits: limits(10)},
		Endpoints: []guard.Endpoint{{Pattern: "/login", Count: guard.CountFailures, Limits: limits(10)}},
	})
	var got http.ResponseWriter
	h := Guard(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		got = w
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}))
	for _, path := range []string{"/", "/login"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("GET", path))
		if same := got == http.ResponseWriter(w); same != (path == "/") {
			t.Errorf("%s: the handler got the writer itself: %v", path, same)
		}
		if !w.Flushed {
			t.Errorf("%s: not flushed", path)
		}
	}
}

// authenticate is the authentication of a program.
func authenticate(verified *atomic.Int64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verified.Add(1)
			user := r.Header.Get("X-User")
			if user == "" {
				http.Error(w, "who?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(guard.WithSubject(r.Context(), guard.User(user))))
		})
	}
}

// TestStages: addresses are limited before authentication, and users after it.
func TestStages(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: limits(6), InFlightPerIP: 1}, Default: guard.Endpoint{Limits: limits(2)},
	})
	var verified atomic.Int64
	before, after := Stages(g)
	h := before(authenticate(&verified)(after(after(bare)))) // a second one has nothing to do
	alice, bob, nobody := request("GET", "/", "X-User: alice"), request("GET", "/", "X-User: bob"), request("GET", "/")
	got := statuses(h, alice, alice, alice, bob, nobody, nobody, nobody, bob)
	if want := "200 200 429 200 401 401 429 429"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if n := verified.Load(); n != 6 {
		t.Errorf("%d requests were authenticated, want 6", n)
	}
	if n := g.Stats().InFlight; n != 0 {
		t.Errorf("%d requests are in flight", n)
	}
}

// TestAfterAlone: without before, both stages are run.
func TestAfterAlone(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}})
	_, after := Stages(g)
	if got := statuses(after(bare), request("GET", "/"), request("GET", "/")); got != "200 429" {
		t.Errorf("%s, want 200 429", got)
	}
}

// TestStagesWithTimeout: the first stage ends while the handler is still at work.
func TestStagesWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, newTable(t), guard.Config{
			Default:  guard.Endpoint{Limits: limits(1), Count: guard.CountFailures, Settle: true},
			InFlight: 1,
		})
		before, after := Stages(g)
		h := before(http.TimeoutHandler(after(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			guard.Settle(r.Context(), 0)
		})), time.Second, ""))
		if got := statuses(h, request("GET", "/"), request("GET", "/")); got != "503 429" {
			t.Errorf("%s, want 503 and, as a timeout is a failure, 429", got)
		}
		time.Sleep(time.Minute)
		if n := g.Stats().InFlight; n != 0 {
			t.Errorf("%d requests are in flight", n)
		}
	})
}

// TestSettle: the handler sets the cost, also after the request has ended, which has no effect.
func TestSettle(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{Default: guard.Endpoint{Limits: limits(10), Cost: 10, Settle: true}})
	var wg sync.WaitGroup
	var cost int64
	h := Guard(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !guard.Settle(r.Context(), cost) {
			t.Error("the cost cannot be set")
		}
		wg.Go(func() { guard.Settle(r.Context(), 10) }) // it may be before the end or after it
		wg.Wait()
		guard.Settle(r.Context(), cost)
		wg.Go(func() {
			<-r.Context().Done()
			if guard.Settle(r.Context(), 10) {
				t.Error("the cost was set after the end")
			}
		})
	}))
	for i, want := range []int{200, 200, 429} {
		cost = int64(i)
		ctx, cancel := context.WithCancel(t.Context())
		if w := send(h, request("GET", "/").WithContext(ctx)); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
		cancel()
	}
	wg.Wait()
}

// TestGuardIdentifies: a key is verified, and rotating others gains nothing.
func TestGuardIdentifies(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{
		Default:  guard.Endpoint{Limits: limits(2)},
		Identity: guard.Identity{Keys: map[guard.KeyHash]guard.Owner{guard.HashKey("secret"): {ID: "app"}}},
	})
	h := Guard(g)(bare)
	key := func(k string) *http.Request { return request("GET", "/", "X-Api-Key: "+k) }
	if got := statuses(h, key("secret"), key("a"), key("b"), key("c"), key("secret")); got != "200 200 200 429 200" {
		t.Errorf("%s, want 200 200 200 429 200", got)
	}
}

// TestGuardFree: preflights and probes pass, unless they are to be charged.
func TestGuardFree(t *testing.T) {
	c := guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}}
	probe := request("GET", "/healthz")
	preflight := request("OPTIONS", "/", "Origin: https://a.example", "Access-Control-Request-Method: PUT")
	before, after := Stages(newGuard(t, newTable(t), c), Skip(func(r *http.Request) bool { return r.URL.Path == "/free" }))
	for name, h := range map[string]http.Handler{
		"Guard":  Guard(newGuard(t, newTable(t), c), Skip(func(r *http.Request) bool { return r.URL.Path == "/free" }))(bare),
		"Stages": before(after(bare)),
	} {
		if got := statuses(h, probe, probe, preflight, preflight, request("GET", "/free"), request("GET", "/free"), request("GET", "/")); got != "200 200 200 200 200 200 200" {
			t.Errorf("%s: %s", name, got)
		}
	}
	h := Guard(newGuard(t, newTable(t), c), ChargeAll())(bare)
	if got := statuses(h, probe, preflight); got != "200 429" {
		t.Errorf("with ChargeAll: %s, want 200 429", got)
	}
}

// broken fails from the nth call on.
type broken struct {
	weir.Limiter
	after int
}

func (b *broken) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if b.after--; b.after < 0 {
		return weir.Decision{}, weir.ErrUnavailable
	}
	return b.Limiter.Take(ctx, p, key, cost)
}

// TestGuardOnError: in either stage, OnError decides, once for each error.
func TestGuardOnError(t *testing.T) {
	for _, after := range []int{0, 1} {
		for _, pass := range []bool{false, true} {
			for _, split := range []bool{false, true} {
				l := &broken{newTable(t), after}
				g := newGuard(t, l, guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(9), InFlight: 9}, Default: guard.Endpoint{Limits: limits(9)}})
				errs := 0
				on := OnError(func(_ *http.Request, err error) bool {
					if !errors.Is(err, weir.ErrUnavailable) {
						t.Error(err)
					}
					errs++
					return pass
				})
				h := Guard(g, on)(bare)
				if split {
					before, after := Stages(g, on)
					h = before(after(bare))
				}
				want := map[bool]int{false: 503, true: 200}[pass]
				if w := send(h, request("GET", "/")); w.Code != want || errs != 1 {
					t.Errorf("after %d, pass %v, split %v: %d with %d errors, want %d with 1", after, pass, split, w.Code, errs, want)
				}
				if n := g.Stats().InFlight; n != 0 {
					t.Errorf("%d requests are in flight", n)
				}
			}
		}
	}
}

// TestGuardLeavesTheBody: whatever refuses.
func TestGuardLeavesTheBody(t *testing.T) {
	for name, c := range map[string]guard.Config{
		"address":  {BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}},
		"endpoint": {Default: guard.Endpoint{Limits: limits(1)}},
	} {
		h := Guard(newGuard(t, newTable(t), c))(bare)
		send(h, request("GET", "/"))
		r := request("POST", "/")
		r.Body = unread{t}
		if w := send(h, r); w.Code != 429 {
			t.Errorf("%s: %d, want 429", name, w.Code)
		}
	}
}

// TestPanicsReleaseFlights: a handler that panics is no longer in flight.
func TestPanicsReleaseFlights(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{BeforeAuth: guard.BeforeAuth{InFlight: 1, InFlightPerIP: 1}, InFlight: 1})
	panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	before, after := Stages(g)
	for name, h := range map[string]http.Handler{
		"Guard": Guard(g)(panics), "Stages": before(after(panics)), "between the stages": before(panics),
	} {
		for range 3 {
			func() {
				defer func() {
					if recover() != http.ErrAbortHandler {
						t.Errorf("%s: the handler was not reached", name)
					}
				}()
				send(h, request("GET", "/"))
			}()
		}
		if n := g.Stats().InFlight; n != 0 {
			t.Errorf("%s: %d requests are in flight", name, n)
		}
	}
}

func TestDotSegments(t *testing.T) {
	for path, want := range map[string]bool{
		"": false, "*": false, "/": false, "/a": false, "/a/b": false, "/.well-known/x": false, "/a.b/..c": false, "/a/...": false,
		"/%2E%2E/a": false, "/..": true, "/.": true, "/a/./b": true, "/a/../b": true, "/a/..": true, "/.a/../b": true, "/...//..": true,
	} {
		if got := hasDotSegment(path); got != want {
			t.Errorf("hasDotSegment(%q) = %v", path, got)
		}
	}
	h := Guard(newGuard(t, newTable(t), guard.Config{}))(bare)
	encoded, literal := request("GET", "/a/%2e%2e/b"), request("GET", "/a/../b")
	if got := statuses(h, encoded, literal); got != "200 400" {
		t.Errorf("%s, want 200 400", got)
	}
}

// TestGuardChargesWhatOptionsSay: costs and attributes.
func TestGuardChargesWhatOptionsSay(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{Default: guard.Endpoint{Limits: []ruleset.Limit{{Limit: weir.PerMinute(5), By: "room"}}}})
	h := Guard(g, Cost(func(r *http.Request) int64 { return r.ContentLength }), Attributes(func(r *http.Request) []ruleset.Attribute {
		return []ruleset.Attribute{{Name: "room", Value: r.Header.Get("X-Room")}}
	}))(bare)
	post := func(room string, length int64) *http.Request {
		r := request("POST", "/", "X-Room: "+room)
		r.ContentLength = length
		return r
	}
	if got := statuses(h, post("a", 4), post("a", 2), post("b", 5), post("a", -1), post("a", 0)); got != "200 429 200 200 429" {
		t.Errorf("%s, want 200 429 200 200 429", got)
	}
}

// TestGuardRefuse: the reply can be replaced, and it is told who was refused.
func TestGuardRefuse(t *testing.T) {
	var got Denial
	h := Guard(newGuard(t, newTable(t), guard.Config{Default: guard.Endpoint{Limits: limits(1)}}),
		Refuse(func(w http.ResponseWriter, _ *http.Request, d Denial) { got = d; w.WriteHeader(420) }))(bare)
	if codes := statuses(h, request("GET", "/"), request("GET", "/")); codes != "200 420" {
		t.Errorf("%s, want 200 420", codes)
	}
	if got.Verdict.Cause != guard.ByLimit || got.Verdict.Subject.Key != "ip:192.0.2.1" || got.Hidden || got.Decision.Limit != 1 || got.Problem.Status != 429 {
		t.Errorf("%+v", got)
	}
}

func TestGuardPanics(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{})
	for name, f := range map[string]func(){
		"no guard":           func() { Guard(nil) },
		"no guard of stages": func() { Stages(nil) },
		"By":                 func() { Guard(g, By(policy(t, "x", weir.PerSecond(1)), ClientIP())) },
		"Failed of Limit":    func() { Limit(newTable(t), By(policy(t, "x", weir.PerSecond(1)), ClientIP()), Failed(isFailure)) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "weirhttp: ") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			f()
		}()
	}
}

// TestMessages: what a stream receives is charged to whom the request is.
func TestMessages(t *testing.T) {
	g := newGuard(t, newTable(t), guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}, Endpoints: []guard.Endpoint{{Pattern: "/sync", Name: "sync", Limits: limits(3)}}})
	charge := Messages(g)
	var got []string
	h := Guard(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range 4 {
			d, ok := charge(r)
			got = append(got, fmt.Sprint(ok, d.Problem.Status, d.Problem.Violated))
		}
	}))
	if w := send(h, request("GET", "/sync")); w.Code != http.StatusOK {
		t.Fatal(w.Code)
	}
	if want := "[true 0 [] true 0 [] false 429 [sync] false 429 [sync]]"; fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, pass := range []bool{false, true} {
		g := newGuard(t, &broken{newTable(t), 0}, guard.Config{Default: guard.Endpoint{Limits: limits(3)}})
		d, ok := Messages(g, OnError(func(*http.Request, error) bool { return pass }))(request("GET", "/"))
		if ok != pass || errors.Is(d.Err, weir.ErrUnavailable) == pass {
			t.Errorf("pass %v: %v, %v", pass, ok, d.Err)
		}
	}
	if _, ok := Messages(g)(request("GET", "/healthz")); !ok {
		t.Error("a probe is charged")
	}
}
