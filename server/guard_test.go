package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
)

// hourly is so many at once, of which little comes back.
func hourly(burst int64) []ruleset.Limit { return onePolicy("x", burst).Limits }

// loopbackGuard is a guard that trusts proxies on this machine.
func loopbackGuard(endpoints ...guard.Endpoint) *Guard {
	return &Guard{PrincipalHeader: "x-user", PlanHeader: "x-plan", Config: guard.Config{
		Identity: guard.Identity{
			ClientIP: clientip.Config{Header: "x-forwarded-for", Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			Keys:     map[guard.KeyHash]guard.Owner{guard.HashKey("mobile-key"): {ID: "mobile", Plan: "pro"}},
		},
		BeforeAuth: guard.BeforeAuth{PerIP: hourly(8)},
		Default:    guard.Endpoint{Limits: hourly(3)},
		Endpoints:  endpoints,
		Plans:      []guard.Plan{{Name: "pro", Multiplier: 2}},
	}}
}

// proxied sends what a proxy sends for a request.
type proxied struct {
	t      *testing.T
	client *http.Client
	url    string
}

type reply struct {
	status int
	header http.Header
	body   string
}

// ask asks for a request of a client. Headers are pairs.
func (p *proxied) ask(method, uri, ip string, headers ...string) reply {
	p.t.Helper()
	headers = append([]string{"X-Forwarded-Method", method, "X-Forwarded-Uri", uri, "X-Forwarded-For", ip}, headers...)
	return p.send("/v1/auth", headers...)
}

func (p *proxied) send(path string, headers ...string) reply {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodGet, p.url+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Add(headers[i], headers[i+1])
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Error(err)
		return reply{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Error(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// want checks a reply: its status, the RateLimit field, and parts of the body.
func (r reply) want(t *testing.T, what string, status int, rateLimit string, parts ...string) {
	t.Helper()
	if r.status != status || r.header.Get("RateLimit") != rateLimit {
		t.Errorf("%s: %d, RateLimit %q, want %d, %q; %s", what, r.status, r.header.Get("RateLimit"), status, rateLimit, r.body)
	}
	for _, part := range parts {
		if !strings.Contains(r.body, part) {
			t.Errorf("%s: the body has no %q: %s", what, part, r.body)
		}
	}
}

func runGuard(t *testing.T, live Live) (*running, *proxied) {
	t.Helper()
	srv := run(t, Config{Limiter: frozenTable(t), Live: live})
	return srv, &proxied{t, newClient(t), srv.url}
}

// Each endpoint has its own count, by subject; both stages apply.
func TestGuardAuth(t *testing.T) {
	_, p := runGuard(t, Live{Guard: loopbackGuard(
		guard.Endpoint{Pattern: "POST /users/{id}", Limits: hourly(2)},
		guard.Endpoint{Pattern: "/status", Disabled: true},
		guard.Endpoint{Pattern: "/secret", Limits: []ruleset.Limit{{Limit: hourly(1)[0].Limit, Hidden: true}}},
	)})
	p.ask("POST", "/users/1?a=b", "192.0.2.1").want(t, "first", 200, `"POST.users.id";r=1`)
	p.ask("POST", "//users/./2", "192.0.2.1").want(t, "another path of the endpoint", 200, `"POST.users.id";r=0;t=3600`)
	refused := p.ask("POST", "/users/1", "192.0.2.1")
	refused.want(t, "third", 429, `"POST.users.id";r=0;t=3600`, "quota-exceeded", "violated-policies")
	if refused.header.Get("Retry-After") != "3600" || refused.header.Get("RateLimit-Policy") != `"POST.users.id";q=2;w=7200` {
		t.Errorf("%v", refused.header)
	}
	p.send("/v1/auth?deny=403", "X-Original-Method", "POST", "X-Original-Uri", "/users/1", "X-Forwarded-For", "192.0.2.1").
		want(t, "for nginx", 403, `"POST.users.id";r=0;t=3600`)
	p.ask("GET", "/users/1", "192.0.2.1").want(t, "another method", 200, `"guard.default";r=2`)
	p.ask("GET", "/status", "192.0.2.1").want(t, "disabled", 200, "")
	p.ask("POST", "/users/1", "192.0.2.2").want(t, "another address", 200, `"POST.users.id";r=1`)
	p.ask("POST", "/users/1", "192.0.2.1", "X-User", "alice").want(t, "a principal", 200, `"POST.users.id";r=1`)
	p.ask("POST", "/users/1", "192.0.2.1", "X-Api-Key", "mobile-key").want(t, "an API key of a plan", 200, `"POST.users.id";r=3`)
	// Those were eight requests of the address, whoever sent them.
	blocked := p.ask("GET", "/status", "192.0.2.1", "X-User", "bob")
	blocked.want(t, "the stage before authentication", 429, "", "retry after")
	if blocked.header.Get("RateLimit-Policy") != "" || strings.Contains(blocked.body, "guard.ip") || blocked.header.Get("Retry-After") != "3600" {
		t.Errorf("the limit of addresses is shown: %v, %s", blocked.header, blocked.body)
	}
	p.ask("GET", "/secret", "192.0.2.3")
	hidden := p.ask("GET", "/secret", "192.0.2.3")
	hidden.want(t, "a hidden limit", 429, "")
	if hidden.header.Get("RateLimit-Policy") != "" || strings.Contains(hidden.body, "secret") {
		t.Errorf("it is shown: %v, %s", hidden.header, hidden.body)
	}
	p.ask("POST", "/users/1", "192.0.2.4", "X-User", "carol", "X-Plan", "pro").want(t, "a plan of a principal", 200, `"POST.users.id";r=3`)
}

// What identifies an endpoint or a client must be beyond doubt.
func TestGuardAuthHeaders(t *testing.T) {
	_, p := runGuard(t, Live{Guard: loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(100)})})
	const ip = "192.0.2.1"
	for _, tt := range []struct {
		what      string
		headers   []string
		rateLimit string // "" if it is refused
		part      string
	}{
		{"no URI", nil, "", "must send X-Forwarded-Uri"},
		{"a method alone", []string{"X-Original-Method", "GET"}, "", "must send X-Forwarded-Uri"},
		{"both, the same", []string{"X-Forwarded-Uri", "/a", "X-Forwarded-Method", "GET", "X-Original-Uri", "/a", "X-Original-Method", "GET"}, `"a";r=99`, ""},
		{"both, different", []string{"X-Forwarded-Uri", "/b", "X-Original-Uri", "/a"}, "", "differ"},
		{"another method", []string{"X-Forwarded-Uri", "/a", "X-Forwarded-Method", "GET", "X-Original-Uri", "/a", "X-Original-Method", "POST"}, "", "differ"},
		{"a method besides", []string{"X-Forwarded-Method", "GET", "X-Original-Uri", "/a"}, "", "differ"},
		{"twice", []string{"X-Forwarded-Uri", "/a", "X-Forwarded-Uri", "/b"}, "", "twice"},
		{"no path", []string{"X-Forwarded-Uri", "a"}, "", "is none"},
		// These identify nobody, so that the address is charged.
		{"two principals", []string{"X-Forwarded-Uri", "/a", "X-User", "alice", "X-User", "bob"}, `"a";r=98`, ""},
		{"an unknown key", []string{"X-Forwarded-Uri", "/a", "X-Api-Key", "guess"}, `"a";r=97`, ""},
	} {
		status := http.StatusOK
		if tt.rateLimit == "" {
			status = http.StatusBadRequest
		}
		p.send("/v1/auth", append(tt.headers, "X-Forwarded-For", ip)...).want(t, tt.what, status, tt.rateLimit, tt.part)
	}
	p.send("/v1/auth?deny=500").want(t, "a status", 400, "", "403 or 429")
}

// Callers that are no trusted proxies are clients of the daemon, and their headers identify nobody.
func TestGuardAuthUntrusted(t *testing.T) {
	g := loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(100)})
	g.Identity.ClientIP.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	token := strings.Repeat("t", 32)
	_, p := runGuard(t, Live{Guard: g, Clients: []Client{{Name: "shop", Tokens: []secret.Secret{secret.New(token)}}}})
	p.ask("GET", "/a", "192.0.2.7").want(t, "without a token", 401, "")
	bearer := "Bearer " + token
	p.ask("GET", "/a", "192.0.2.7", "Authorization", bearer, "X-User", "alice").want(t, "a client", 200, `"guard.default";r=2`)
	p.ask("GET", "/b", "192.0.2.8", "Authorization", bearer, "X-Api-Key", "mobile-key").want(t, "the same client", 200, `"guard.default";r=1`)
}

// Without a guard there is nothing at /v1/auth.
func TestNoGuard(t *testing.T) {
	_, p := runGuard(t, Live{})
	p.ask("GET", "/a", "192.0.2.1").want(t, "no guard", 404, "", "no guard is configured")
}

// The guard's policies are the guard's: operators see them, callers cannot name them. Decisions are counted
// under the endpoint's policy.
func TestGuardPolicies(t *testing.T) {
	srv, p := runGuard(t, Live{Policies: []ruleset.Policy{onePolicy("api", 5)}, Guard: loopbackGuard(guard.Endpoint{Pattern: "/a", Name: "a", Limits: hourly(1)})})
	for _, name := range []string{"a", "guard.ip", "guard.default"} {
		resp, err := p.client.Post(srv.url+"/v1/check", "application/json", strings.NewReader(fmt.Sprintf(`{"policy":%q,"key":"x"}`, name)))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 403 || !strings.Contains(string(body), "belongs to the guard") {
			t.Errorf("%s: %d, %s", name, resp.StatusCode, body)
		}
	}
	p.send("/v1/auth/a", "X-Forwarded-For", "192.0.2.1").want(t, "the policy of an endpoint", 403, "", "belongs to the guard")
	p.send("/v1/auth/api").want(t, "another policy", 200, `"api";r=4`)
	p.ask("GET", "/a", "192.0.2.1").want(t, "first", 200, `"a";r=0;t=3600`)
	p.ask("GET", "/a", "192.0.2.1").want(t, "second", 429, `"a";r=0;t=3600`)
	policies, _ := getText(t, p.client, srv.url+"/admin/v1/policies")
	for _, name := range []string{`"name":"a"`, `"name":"guard.ip"`, `"name":"api"`} {
		if !strings.Contains(policies, name) {
			t.Errorf("operators do not see %s: %s", name, policies)
		}
	}
	metrics, _ := getText(t, p.client, srv.url+"/metrics")
	for _, want := range []string{
		`weir_decisions_total{backend="memory",decision="allowed",policy="a",reason="admitted"} 1`,
		`weir_decisions_total{backend="memory",decision="denied",policy="a",reason="exhausted"} 1`,
		`weir_decisions_total{backend="memory",decision="allowed",policy="guard.ip",reason="admitted"} 2`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, grep(metrics, "weir_decisions_total"))
		}
	}
}

// grep returns the lines that have a text.
func grep(text, part string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// Endpoints that count by outcome count every request of a proxy, which does not tell the outcome.
func TestGuardAuthOutcome(t *testing.T) {
	_, p := runGuard(t, Live{Guard: loopbackGuard(
		guard.Endpoint{Pattern: "/login", Limits: hourly(2), Count: guard.CountFailures},
		guard.Endpoint{Pattern: "/search", Limits: hourly(10), Cost: 4, Settle: true},
	)})
	p.ask("POST", "/login", "192.0.2.1").want(t, "first", 200, `"login";r=1`)
	p.ask("POST", "/login", "192.0.2.1").want(t, "second", 200, `"login";r=0`)
	p.ask("POST", "/login", "192.0.2.1").want(t, "third", 429, `"login";r=0;t=3600`)
	p.ask("GET", "/search", "192.0.2.1").want(t, "search", 200, `"search";r=6`)
	p.ask("GET", "/search", "192.0.2.1").want(t, "search again", 200, `"search";r=2`)
}

// A reload adds, changes and removes the guard; counts are kept.
func TestGuardReload(t *testing.T) {
	srv, p := runGuard(t, Live{})
	set := func(g *Guard) {
		t.Helper()
		if err := srv.Reload(t.Context(), Live{Guard: g}); err != nil {
			t.Fatal(err)
		}
	}
	endpoint := func(burst int64) *Guard { return loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(burst)}) }
	set(endpoint(2))
	p.ask("GET", "/a", "192.0.2.1").want(t, "added", 200, `"a";r=1`)
	set(endpoint(5))
	p.ask("GET", "/a", "192.0.2.1").want(t, "changed", 200, `"a";r=3`)
	set(loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(5)}, guard.Endpoint{Pattern: "/b", Limits: hourly(4)}))
	p.ask("GET", "/b", "192.0.2.1").want(t, "an endpoint is added", 200, `"b";r=3`)
	set(nil)
	p.ask("GET", "/a", "192.0.2.1").want(t, "removed", 404, "")
	if a, status := check(t, p.client, srv.url, `{"policy":"default","key":"x"}`); status != 200 || !a.Allowed {
		t.Errorf("%d, %+v", status, a)
	}
	set(endpoint(5))
	p.ask("GET", "/a", "192.0.2.1").want(t, "added again", 200, `"a";r=2`)
	bad := endpoint(5)
	bad.Endpoints[0].Pattern = "/a/*/b"
	if err := srv.Reload(t.Context(), Live{Guard: bad}); err == nil {
		t.Error("a bad pattern was accepted")
	}
	taken := Live{Policies: []ruleset.Policy{onePolicy("a", 1)}, Guard: endpoint(5)}
	if err := srv.Reload(t.Context(), taken); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("a policy of the same name: %v", err)
	}
	p.ask("GET", "/a", "192.0.2.1").want(t, "still there", 200, `"a";r=1`)
}

// A commit that fails after the guard's restores the guard: its rules, its limits and what it counted.
func TestGuardFailedCommit(t *testing.T) {
	var fail atomic.Bool
	s, committed := newTransactions(t, &fail)
	endpoint := func(burst int64) *Guard { return loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(burst)}) }
	live := func(g *Guard) Live { return Live{Policies: []ruleset.Policy{onePolicy("api", 10)}, Guard: g} }
	take := func() (int64, bool) {
		t.Helper()
		g := s.state.Load().call.Guard
		if g == nil {
			return 0, false
		}
		var p guard.Pass
		if _, err := g.Guard.Enter(t.Context(), &p, guard.Request{Method: "GET", Path: "/a"}); err != nil {
			t.Fatal(err)
		}
		defer p.Done(t.Context(), false)
		v, err := g.Guard.Identify(t.Context(), &p, guard.User("alice"))
		if err != nil {
			t.Fatal(err)
		}
		return v.Decision.Limit, true
	}
	fail.Store(true)
	if err := s.Reload(t.Context(), live(endpoint(7))); err == nil {
		t.Fatal("it did not fail")
	}
	if _, ok := take(); ok {
		t.Fatal("a guard whose reload failed is in force")
	}
	fail.Store(false)
	if err := s.Reload(t.Context(), live(endpoint(7))); err != nil {
		t.Fatal(err)
	}
	if limit, _ := take(); limit != 7 {
		t.Fatalf("limit %d, want 7", limit)
	}
	rules := s.guarding.guard.Rules()
	*committed = nil
	fail.Store(true)
	if err := s.Reload(t.Context(), live(endpoint(20))); err == nil {
		t.Fatal("it did not fail")
	}
	if want := []string{"policies", "budgets", "routes", "envoy", "guard", "guard", "envoy", "routes", "budgets", "policies"}; !slices.Equal(*committed, want) {
		t.Errorf("committed %v, want %v", *committed, want)
	}
	if limit, _ := take(); limit != 7 || s.guarding.guard.Rules() != rules {
		t.Errorf("after the failed reload the limit is %d, want 7", limit)
	}
	fail.Store(false)
	if err := s.Reload(t.Context(), live(endpoint(20))); err != nil {
		t.Fatal(err)
	}
	if limit, _ := take(); limit != 20 {
		t.Errorf("limit %d, want 20", limit)
	}
}

// Under load, reloads that add, change and remove the guard never make a request fail.
func TestGuardReloadUnderLoad(t *testing.T) {
	srv := run(t, Config{Limiter: weir.Must(memstore.New(memstore.Config{})), Live: Live{}})
	client := newClient(t)
	var done atomic.Bool
	var asked, decided atomic.Int64
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			p := &proxied{t, client, srv.url}
			for i := 0; !done.Load(); i++ {
				r := p.ask("GET", "/a", fmt.Sprintf("192.0.2.%d", 1+w+i%50), "X-User", fmt.Sprint("u", i%20))
				asked.Add(1)
				switch {
				case r.status == 200 && (strings.HasPrefix(r.header.Get("RateLimit"), `"a";r=`) || r.header.Get("RateLimit") == `"guard.default";r=999`):
					decided.Add(1)
				case r.status == 404 && strings.Contains(r.body, "no guard is configured"):
				case r.status == 200 && strings.HasPrefix(r.header.Get("RateLimit"), `"guard.default"`):
					decided.Add(1)
				default:
					t.Errorf("%d, %v, %s", r.status, r.header, r.body)
					return
				}
			}
		})
	}
	for n := range 60 {
		var g *Guard
		if n%3 != 0 {
			g = loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(int64(100_000 + n))})
			g.BeforeAuth.PerIP, g.Default.Limits = hourly(int64(100_000+n)), hourly(int64(100_000+n))
			g.Penalties = &guard.Penalties{For: time.Duration(1+n) * time.Minute}
			if n%2 == 0 {
				g.Endpoints = nil
			}
		}
		if err := srv.Reload(context.Background(), Live{Guard: g}); err != nil {
			t.Errorf("reload %d: %v", n, err)
		}
		time.Sleep(time.Millisecond) // so that requests meet every state
	}
	done.Store(true)
	wg.Wait()
	if asked.Load() == 0 || decided.Load() == 0 {
		t.Errorf("%d requests, %d decided", asked.Load(), decided.Load())
	}
	t.Logf("%d requests, %d of them decided, over 60 reloads", asked.Load(), decided.Load())
}

// Operators receive violations as events.
func TestGuardEvents(t *testing.T) {
	g := loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(1)}, guard.Endpoint{Pattern: "/b", Mode: ruleset.Shadow, Limits: hourly(1)})
	g.Penalties = &guard.Penalties{After: 1}
	srv, p := runGuard(t, Live{Guard: g})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.url+"/admin/v1/events?denied=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != ": open" {
		t.Fatal(lines.Text())
	}
	for range 2 {
		p.ask("GET", "/b", "192.0.2.2") // in shadow
		p.ask("GET", "/a", "192.0.2.1")
	}
	var got []string
	for len(got) < 2 && lines.Scan() {
		if lines.Text() != "event: violation" || !lines.Scan() {
			continue
		}
		var v struct{ Kind, Subject, Policy, Limit, Until string }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &v); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(v.Kind, " ", v.Subject, " ", v.Policy, " ", v.Limit, " ", v.Until != ""))
	}
	if want := []string{"exceeded ip:192.0.2.1 a a false", "penalized ip:192.0.2.1 a a true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Violations are logged, and the log is written when the server stops.
func TestGuardViolations(t *testing.T) {
	var log syncBuffer
	g := loopbackGuard(guard.Endpoint{Pattern: "/a", Limits: hourly(1)})
	srv := run(t, Config{Limiter: frozenTable(t), Log: slog.New(slog.NewTextHandler(&log, nil)), Live: Live{Guard: g}})
	p := &proxied{t, newClient(t), srv.url}
	p.ask("GET", "/a", "192.0.2.1")
	p.ask("GET", "/a", "192.0.2.1")
	p.ask("GET", "/a", "192.0.2.2")
	p.ask("GET", "/a", "192.0.2.2")
	if text := log.String(); !strings.Contains(text, `msg="guard: violation" kind=exceeded subject=ip:192.0.2.1 endpoint=a`) {
		t.Errorf("no violation in the log:\n%s", text)
	}
	srv.stop()
	if err := <-srv.done; err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, `msg="guard: more violations" kind=exceeded endpoint=a shadow=false count=1`) {
		t.Errorf("no summary at the end:\n%s", text)
	}
	srv.done <- nil
}
