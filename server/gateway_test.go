package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/internal/tracetest"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/upstream"
)

// A provider answers calls of JSON-RPC, and records what it got. The path of its URLs has the canary in it.
type provider struct {
	*httptest.Server
	hold chan struct{} // if set, an answer waits for one

	mu       sync.Mutex // guards the fields below
	received []*http.Request
	status   int // of answers, 0 for 200

	retryAfter string // of those that are no 200
}

// canary is in the URLs and headers of endpoints.
const canary = "CANARY-0123456789"

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	p.mu.Lock()
	p.received = append(p.received, r)
	status, retryAfter := p.status, p.retryAfter
	p.mu.Unlock()
	if p.hold != nil {
		select {
		case <-p.hold:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if status != 0 {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`)
}

func (p *provider) requests() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.received)
}

// endpoint returns an endpoint at the provider without probes.
func (p *provider) endpoint(alias string, change ...func(*upstream.Endpoint)) upstream.Endpoint {
	e := upstream.Endpoint{Alias: alias, RPC: secret.New(p.URL + "/v2/" + canary), Unmonitored: true}
	for _, f := range change {
		f(&e)
	}
	return e
}

func withRate(r upstream.Rate) func(*upstream.Endpoint) {
	return func(e *upstream.Endpoint) { e.Limits = r.Limits() }
}

func withAccount(name string) func(*upstream.Endpoint) {
	return func(e *upstream.Endpoint) { e.Budget = name }
}

// routeOf returns a route with some endpoints, whose requests do not wait.
func routeOf(name string, list ...upstream.Endpoint) gateway.Config {
	return gateway.Config{Pool: upstream.Config{Name: name, JSONRPC: true, MaxWait: -1, Endpoints: list}}
}

const blockNumber = `{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}`

// rpc sends a call to a route, with headers. It returns the status, the header and the body.
func (r *running) rpc(t *testing.T, route string, headers ...string) (int, http.Header, string) {
	t.Helper()
	return send(t, http.MethodPost, r.url+"/gw/"+route, blockNumber, headers...)
}

func send(t *testing.T, method, url, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	return resp.StatusCode, resp.Header, string(text)
}

// upstreams returns what operators see of a route.
func (r *running) upstreams(t *testing.T, route string) upstream.Stats {
	t.Helper()
	text, status := getText(t, newClient(t), r.url+"/admin/v1/upstreams/"+route)
	var answer struct{ Routes []upstream.Stats }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || len(answer.Routes) != 1 {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	return answer.Routes[0]
}

// Clients use the routes and the classes that are granted to them, and endpoints see nothing of who they are.
func TestRouteGrants(t *testing.T) {
	p := newProvider(t)
	client := func(name string, g Grants) Client {
		return Client{Name: name, Tokens: []secret.Secret{secret.New(tokenOf(name))}, Grants: g}
	}
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{
		Budgets: []budget.Config{{Name: "main", Preset: "alchemy-free"}},
		Routes: []gateway.Config{
			routeOf("ethereum", p.endpoint("one", withAccount("main"), func(e *upstream.Endpoint) {
				e.Headers = []upstream.Header{{Name: "x-key", Value: secret.New(canary)}}
			})),
			routeOf("plain", p.endpoint("one")),
		},
		Clients: []Client{
			client("all", Grants{}), client("dapp", Grants{Routes: Patterns{"ethereum"}}), client("policies", Grants{Policies: Patterns{"*"}}),
			client("worker", Grants{Routes: Patterns{"*"}, Classes: Patterns{"backfill"}}),
			client("live", Grants{Routes: Patterns{"*"}, Classes: Patterns{"real*"}}), client("wrong", Grants{Routes: Patterns{"*"}, Classes: Patterns{"urgent"}}),
		},
	}})
	tests := []struct {
		client, route, class string
		status               int
		want                 string
	}{
		{"", "ethereum", "", 401, "missing client token"},
		{"nobody", "ethereum", "", 401, "unknown client token"},
		{"all", "ethereum", "", 200, "0x1"},
		{"all", "ethereum", "realtime", 200, "0x1"},
		{"all", "ethereum", "urgent", 400, `Weir-Class is "urgent", and the budgets of the route have realtime, backfill`},
		{"all", "plain", "realtime", 400, `the budgets of the route have no classes`},
		{"all", "plain", "", 200, "0x1"},
		{"all", "none", "", 404, `no route is called "none"`},
		{"all", "ethereum/below", "", 404, "there is nothing below the route"},
		{"dapp", "ethereum", "", 200, "0x1"},
		{"dapp", "plain", "", 403, `the client dapp may not use the route "plain"`},
		{"dapp", "none", "", 403, `the client dapp may not use the route "none"`}, // which there are is not said
		{"policies", "ethereum", "", 403, "may not use the route"},
		{"worker", "ethereum", "", 200, "0x1"},
		{"worker", "ethereum", "backfill", 200, "0x1"},
		{"worker", "ethereum", "realtime", 403, `the client worker may not use the class "realtime"`},
		{"worker", "plain", "", 200, "0x1"},
		{"live", "ethereum", "", 200, "0x1"},
		{"wrong", "ethereum", "", 403, "may not use any class of the route, which has realtime, backfill"},
	}
	for _, tt := range tests {
		var headers []string
		if tt.client != "" {
			headers = append(headers, "Authorization", "Bearer "+tokenOf(tt.client))
		}
		if tt.class != "" {
			headers = append(headers, "Weir-Class", tt.class)
		}
		status, header, text := srv.rpc(t, tt.route, append(headers, "Cookie", "a=b", "X-Api-Key", "caller")...)
		if status != tt.status || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), tt.want) {
			t.Errorf("%+v: %d %s", tt, status, text)
		}
		if kind := header.Get("Content-Type"); status == 403 && kind != "application/problem+json" || status == 200 && header.Get("Weir-Upstream") != "one" {
			t.Errorf("%+v: %v", tt, header)
		}
	}
	for _, r := range p.requests() {
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "Weir-Class", "X-Forwarded-For", "Forwarded"} {
			if r.Header.Get(name) != "" {
				t.Errorf("the endpoint got %s: %s", name, r.Header.Get(name))
			}
		}
	}
	if n := len(p.requests()); n != 8 {
		t.Errorf("%d requests were sent", n)
	}
	text, _ := getText(t, newClient(t), srv.url+"/metrics")
	for _, want := range []string{
		`weir_auth_failures_total{kind="client",reason="forbidden"} 5`, `weir_auth_failures_total{kind="client",reason="missing"} 1`,
		`weir_auth_failures_total{kind="client",reason="unknown"} 1`, `weir_upstream_requests_total{outcome="succeeded",route="ethereum",upstream="one"} 6`,
		`weir_route_requests_total{route="plain"} 2`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

func tokenOf(name string) string { return name + "-0123456789abcdef0123456789abcdef" }

// The class of a request is that of its header, else the only one that the client may use.
func TestRouteClass(t *testing.T) {
	p := newProvider(t)
	account := oneBudget("main", 1000)
	account.Classes = []budget.Class{{Name: "live", Share: 50}, {Name: "jobs", Share: 50}}
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{
		Budgets: []budget.Config{account}, Routes: []gateway.Config{routeOf("ethereum", p.endpoint("one", withAccount("main")))},
		Clients: []Client{{Name: "shop", Tokens: []secret.Secret{secret.New(rightToken)}, Grants: Grants{Routes: Patterns{"ethereum"}, Classes: Patterns{"live"}}}},
	}})
	if status, _, text := srv.rpc(t, "ethereum", "Authorization", "Bearer "+rightToken); status != 200 {
		t.Fatal(status, text)
	}
	classes := srv.usage(t, "main").Classes
	if used := classes[0].Capacity - classes[0].Available; used != 10 || classes[1].Available != classes[1].Capacity {
		t.Errorf("%+v", classes)
	}
}

// A reload changes limits and endpoints. What was used and counted stays, calls in flight end, and what is removed gets
// no more calls (S0.54, F0.21).
func TestReloadRoutes(t *testing.T) {
	p, other := newProvider(t), newProvider(t)
	p.hold = make(chan struct{}, 100)
	for range 3 {
		p.hold <- struct{}{}
	}
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{
		Routes: []gateway.Config{routeOf("ethereum", p.endpoint("one", withRate(upstream.Rate{PerMinute: 4}))), routeOf("old", p.endpoint("one"))},
	}})
	for range 3 {
		if status, _, text := srv.rpc(t, "ethereum"); status != 200 {
			t.Fatal(status, text)
		}
	}
	answers := make(chan int, 2)
	for _, route := range []string{"ethereum", "old"} {
		go func() {
			status, _, _ := srv.rpc(t, route)
			answers <- status
		}()
	}
	eventually(t, func() bool { return len(p.requests()) == 5 })
	next := Live{Routes: []gateway.Config{
		routeOf("ethereum", p.endpoint("one", withRate(upstream.Rate{PerMinute: 5}))), routeOf("new", other.endpoint("one", withRate(upstream.Rate{PerMinute: 1}))),
	}}
	if err := srv.Reload(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if status, _, text := srv.rpc(t, "old"); status != 404 {
		t.Errorf("a route that is removed: %d %s", status, text)
	}
	if status, _, text := srv.rpc(t, "new"); status != 200 {
		t.Errorf("a route that is new: %d %s", status, text)
	}
	for range 3 {
		p.hold <- struct{}{}
	}
	for range 2 {
		if status := <-answers; status != 200 {
			t.Errorf("a call in flight has ended with %d", status)
		}
	}
	for i, want := range []int{200, 429} {
		if status, _, text := srv.rpc(t, "ethereum"); status != want {
			t.Errorf("call %d of a minute with 5: %d %s", 5+i, status, text)
		}
	}
	if s := srv.upstreams(t, "ethereum"); s.Requests != 6 || s.Endpoints[0].Sent != 5 || s.Endpoints[0].Failures["failed"] != 0 {
		t.Errorf("%+v", s)
	}
	if err := srv.Reload(t.Context(), Live{}); err != nil {
		t.Fatal(err)
	}
	if err := srv.Reload(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if status, _, text := srv.rpc(t, "ethereum"); status != 429 {
		t.Errorf("a route that was away for a moment has its limit anew: %d %s", status, text)
	}
}

// A reload that fails, before the routes or after them, changes nothing.
func TestReloadRoutesFails(t *testing.T) {
	p := newProvider(t)
	account := oneBudget("main", 1000)
	live := Live{Budgets: []budget.Config{account}, Routes: []gateway.Config{
		routeOf("ethereum", p.endpoint("one", withRate(upstream.Rate{PerMinute: 4}), withAccount("main")), p.endpoint("spare", func(e *upstream.Endpoint) { e.Priority = 20 })),
	}}
	srv := run(t, Config{Limiter: frozenTable(t), Live: live})
	for range 6 {
		if status, _, text := srv.rpc(t, "ethereum"); status != 200 {
			t.Fatal(status, text)
		}
	}
	before := srv.upstreams(t, "ethereum")
	unknownBudget := Live{Routes: []gateway.Config{routeOf("ethereum", p.endpoint("one", withAccount("none")))}}
	if err := srv.Reload(t.Context(), unknownBudget); err == nil || !strings.Contains(err.Error(), `no budget is called "none"`) {
		t.Errorf("%v", err)
	}
	twice := Live{Routes: []gateway.Config{routeOf("ethereum", p.endpoint("one")), routeOf("ethereum", p.endpoint("one"))}}
	if err := srv.Reload(t.Context(), twice); err == nil || !strings.Contains(err.Error(), "is the name of another route") {
		t.Errorf("%v", err)
	}
	broken := errors.New("a later section fails")
	srv.changing.Lock()
	srv.sections = append(slices.Clone(srv.sections), section{name: "last", prepare: func(*Server, *state, *state) error { return nil }, commit: func(*Server, *transaction, *state) error { return broken }})
	srv.changing.Unlock()
	next := Live{Routes: []gateway.Config{routeOf("ethereum", p.endpoint("one", withRate(upstream.Rate{PerMinute: 40}))), routeOf("new", p.endpoint("one"))}}
	if err := srv.Reload(t.Context(), next); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if status, _, _ := srv.rpc(t, "new"); status != 404 {
		t.Errorf("a route of the configuration that failed: %d", status)
	}
	after := srv.upstreams(t, "ethereum")
	if len(after.Endpoints) != 2 || after.Endpoints[0].Limit != before.Endpoints[0].Limit || after.Endpoints[0].Budget != "main" ||
		after.Endpoints[1].Sent != before.Endpoints[1].Sent || after.Requests != before.Requests {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	if status, header, _ := srv.rpc(t, "ethereum"); status != 200 || header.Get("Weir-Upstream") != "spare" {
		t.Errorf("the limit is %d for %s", status, header.Get("Weir-Upstream"))
	}
}

// Probes run from the start of a server to its stop, those of new routes from the reload on, and those of routes that
// are removed no longer.
func TestRouteProbes(t *testing.T) {
	first, second := newProvider(t), newProvider(t)
	probed := func(name string, p *provider) gateway.Config {
		c := routeOf(name, p.endpoint("one", func(e *upstream.Endpoint) { e.Unmonitored = false }))
		c.Pool.Probe.Every = 5 * time.Millisecond
		return c
	}
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Routes: []gateway.Config{probed("first", first)}}})
	eventually(t, func() bool { return len(first.requests()) > 2 })
	if err := srv.Reload(t.Context(), Live{Routes: []gateway.Config{probed("second", second)}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(second.requests()) > 2 })
	n := len(first.requests())
	more := len(second.requests()) + 2
	eventually(t, func() bool { return len(second.requests()) > more })
	if got := len(first.requests()); got > n+1 { // one may have been under way
		t.Errorf("a route that was removed is probed: %d more", got-n)
	}
	stopped(t, srv) // the goroutines of probes have ended, too: TestMain looks for them
}

// A stop waits for calls in flight, and those that come meanwhile are answered.
func TestRoutesDrain(t *testing.T) {
	p := newProvider(t)
	p.hold = make(chan struct{})
	log := watch("stopping")
	srv := run(t, Config{Limiter: frozenTable(t), Log: slog.New(log), Live: Live{Routes: []gateway.Config{routeOf("ethereum", p.endpoint("one"))}}})
	answer := make(chan int, 1)
	go func() {
		status, _, _ := srv.rpc(t, "ethereum")
		answer <- status
	}()
	eventually(t, func() bool { return len(p.requests()) == 1 })
	srv.stop()
	<-log.seen
	p.hold <- struct{}{}
	if status := <-answer; status != 200 {
		t.Errorf("a call in flight has ended with %d", status)
	}
	if err := <-srv.done; err != nil {
		t.Error(err)
	}
}

// Browsers reach a route from the pages that its configuration lists, preflight included, and from no others; and
// from no page if their name for the server is not known.
func TestRouteOrigins(t *testing.T) {
	p := newProvider(t)
	public := routeOf("public", p.endpoint("one"))
	public.Origins = []string{"https://app.example.com"}
	open := routeOf("open", p.endpoint("one"))
	open.Origins = []string{"*"}
	live := Live{Hosts: []string{"weir.example.com"}, Routes: []gateway.Config{public, open, routeOf("closed", p.endpoint("one"))}}
	srv := run(t, Config{Limiter: frozenTable(t), Live: live})
	const app, evil = "https://app.example.com", "https://evil.example.com"
	tests := []struct {
		method, route, origin, host string
		status                      int
		allow                       string
	}{
		{"POST", "public", app, "", 200, app},
		{"POST", "public", evil, "", 403, ""},
		{"POST", "public", "null", "", 403, ""},
		{"POST", "open", evil, "", 200, "*"},
		{"POST", "closed", app, "", 403, ""},
		{"POST", "none", app, "", 403, ""},
		{"OPTIONS", "public", app, "", 204, app},
		{"OPTIONS", "public", evil, "", 204, ""},
		{"OPTIONS", "closed", app, "", 204, ""},
		{"OPTIONS", "none", app, "", 404, ""},
		{"POST", "public", app, "weir.example.com", 200, app},
		{"OPTIONS", "public", app, "weir.example.com", 204, app},
		{"POST", "public", app, "rebound.example.com", 421, ""},
		{"OPTIONS", "public", app, "rebound.example.com", 421, ""},
		{"POST", "closed", "http://rebound.example.com", "rebound.example.com", 421, ""},
	}
	sent := 0
	for _, tt := range tests {
		headers := []string{"Origin", tt.origin, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}
		if tt.host != "" {
			headers = append(headers, "Host", tt.host)
		}
		body := blockNumber
		if tt.method == "OPTIONS" {
			headers, body = append(headers, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type,authorization"), ""
		}
		status, header, text := send(t, tt.method, srv.url+"/gw/"+tt.route, body, headers...)
		if status != tt.status || header.Get("Access-Control-Allow-Origin") != tt.allow {
			t.Errorf("%+v: %d %v %s", tt, status, header, text)
		}
		if status == 200 {
			sent++
		}
	}
	if n := len(p.requests()); n != sent {
		t.Errorf("%d requests were sent, %d of them answered", n, sent)
	}

	// With clients, a preflight has no token, and the request itself needs one.
	live.Clients = []Client{{Name: "app", Tokens: []secret.Secret{secret.New(rightToken)}}}
	if err := srv.Reload(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if status, header, _ := send(t, "OPTIONS", srv.url+"/gw/public", "", "Origin", app, "Access-Control-Request-Method", "POST"); status != 204 || header.Get("Access-Control-Allow-Origin") != app {
		t.Errorf("preflight: %d %v", status, header)
	}
	if status, _, _ := srv.rpc(t, "public", "Origin", app); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	if status, _, text := srv.rpc(t, "public", "Origin", app, "Authorization", "Bearer "+rightToken); status != 200 {
		t.Errorf("with a token: %d %s", status, text)
	}
}

// Two daemons on one Redis share the limit of an endpoint and the budget of an account (F0.17).
func TestRoutesShareLimits(t *testing.T) {
	redis, p := redistest.Start(t), newProvider(t)
	var nodes []*running
	for range 2 {
		store, err := redisstore.New(t.Context(), redisstore.Config{
			Redis:   redisstore.Server{Addrs: []string{redis.Addr()}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second},
			Timeout: 10 * time.Second, // the test is not about a slow machine
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		nodes = append(nodes, run(t, Config{Limiter: store, Backend: "redis", Live: Live{
			Budgets: []budget.Config{oneBudget("main", 1000)},
			Routes: []gateway.Config{
				routeOf("ethereum", p.endpoint("one", withRate(upstream.Rate{PerMinute: 6}), withAccount("main"))), routeOf("base", p.endpoint("one", withAccount("main"))),
			},
		}}))
	}
	statuses := map[int]int{}
	for i := range 10 {
		status, _, _ := nodes[i%2].rpc(t, "ethereum")
		statuses[status]++
	}
	if want := map[int]int{200: 6, 429: 4}; !maps.Equal(statuses, want) || len(p.requests()) != 6 {
		t.Errorf("%v, want %v; %d were sent", statuses, want, len(p.requests()))
	}
	if status, _, text := nodes[1].rpc(t, "base"); status != 200 { // another route: another limit, the same account
		t.Error(status, text)
	}
	for _, n := range nodes {
		eventually(t, func() bool { return n.usage(t, "main").Horizons[0].Used == 70 })
	}
}

// The URLs and headers of endpoints are nowhere that anybody can look.
func TestRouteSecrets(t *testing.T) {
	p := newProvider(t)
	var log syncBuffer
	spans := tracetest.New(t)
	config := routeOf("ethereum", p.endpoint("one"), p.endpoint("gone", func(e *upstream.Endpoint) {
		e.RPC, e.Priority = secret.New("http://user:"+canary+"@127.0.0.1:1/"+canary+"?key="+canary), 5
		e.Headers = []upstream.Header{{Name: "x-key", Value: secret.New(canary)}}
	}))
	srv := run(t, Config{
		Limiter: frozenTable(t), Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Tracing: &Tracing{Endpoint: secret.New(spans.URL), Sample: new(1.0)}, Live: Live{Routes: []gateway.Config{config}},
	})
	seen := func(what, text string) {
		t.Helper()
		if strings.Contains(text, canary) || strings.Contains(text, "CANARY") {
			t.Errorf("%s shows the secret:\n%s", what, text)
		}
	}
	for _, status := range []int{200, 401, 429, 500, 301} {
		p.mu.Lock()
		p.status = status
		p.mu.Unlock()
		for range 2 {
			code, header, text := srv.rpc(t, "ethereum")
			seen(fmt.Sprint("an answer with ", code), fmt.Sprint(header, text))
		}
	}
	for _, path := range []string{"/admin/v1/upstreams", "/admin/v1/config", "/admin/v1/stats", "/metrics", "/readyz", "/"} {
		text, _ := getText(t, newClient(t), srv.url+path)
		seen(path, text)
	}
	bad := config
	bad.Pool.Endpoints = []upstream.Endpoint{{Alias: "one", RPC: secret.New("ftp://" + canary)}, {Alias: "one", RPC: secret.New(":" + canary + "\n")}}
	err := srv.Reload(t.Context(), Live{Routes: []gateway.Config{bad}})
	seen("the error of a reload", fmt.Sprint(err))
	seen("a configuration", fmt.Sprintf("%v %+v %#v", config, config, config))
	stopped(t, srv)
	seen("the log", log.String())
	if spans.Contains("CANARY") || len(spans.Spans()) == 0 {
		t.Errorf("spans: %v", spans)
	}
}

// A request has a span, and so has each request that it causes at an endpoint, which goes on with the trace.
func TestRouteTraces(t *testing.T) {
	p, c := newProvider(t), tracetest.New(t)
	srv := run(t, Config{Limiter: frozenTable(t), Tracing: &Tracing{Endpoint: secret.New(c.URL), Sample: new(0.0)}, Live: Live{Routes: []gateway.Config{routeOf("ethereum", p.endpoint("one"))}}})
	for _, parent := range []string{tracedBy, untracedBy} {
		if status, _, text := srv.rpc(t, "ethereum", "traceparent", parent, "tracestate", "congo=1"); status != 200 {
			t.Fatal(status, text)
		}
	}
	srv.rpc(t, "none", "traceparent", tracedBy)
	srv.rpc(t, "ethereum")
	stopped(t, srv)
	host, port, _ := strings.Cut(strings.TrimPrefix(p.URL, "http://"), ":")
	const server = "SERVER POST /gw/{route} http.request.method=POST http.response.status_code=%d http.route=/gw/{route} network.protocol.version=1.1 url.scheme=http"
	wantSpans(t, c,
		fmt.Sprintf(server, 200)+" weir.route=ethereum",
		fmt.Sprintf("CLIENT POST http.request.method=POST http.response.status_code=200 server.address=%s server.port=%s url.scheme=http", host, port),
		fmt.Sprintf(server, 404))
	traced, untraced := p.requests()[0].Header.Get("Traceparent"), p.requests()[1].Header.Get("Traceparent")
	if client := c.One("POST"); client.Trace != tracedTrace || traced != "00-"+tracedTrace+"-"+client.ID+"-01" {
		t.Errorf("the endpoint got %q, the span is %+v", traced, client)
	}
	for i, want := range []string{"congo=1", "congo=1", ""} { // the last one had no caller's
		if state := p.requests()[i].Header.Get("Tracestate"); state != want {
			t.Errorf("call %d: the endpoint got the tracestate %q, want %q", i, state, want)
		}
	}
	if !strings.HasPrefix(untraced, "00-cccc1111cccc1111cccc1111cccc1111-") || !strings.HasSuffix(untraced, "-00") {
		t.Errorf("of a call that is not traced the endpoint got %q", untraced)
	}
}

// A caller that does not read its response is cut off, and so is the endpoint's; one that does may take any time.
func TestRouteStalls(t *testing.T) {
	aborted := make(chan struct{})
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		part := []byte(strings.Repeat(" ", 64<<10))
		for {
			if _, err := w.Write(part); err != nil {
				close(aborted)
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	config := routeOf("ethereum", upstream.Endpoint{Alias: "one", RPC: secret.New(endless.URL), Unmonitored: true})
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Routes: []gateway.Config{config}}})
	srv.gateway.stall = 100 * time.Millisecond
	conn, err := net.Dial("tcp", srv.bound.HTTP.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /gw/ethereum HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(blockNumber), blockNumber); err != nil {
		t.Fatal(err)
	}
	select {
	case <-aborted:
	case <-time.After(20 * time.Second):
		t.Error("the response is still being written")
	}
}

// eventually waits until something is true.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not happen")
		case <-time.After(2 * time.Millisecond):
		}
	}
}
