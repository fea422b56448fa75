package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/secret"
)

// behindProxy is a fixture that believes 10.0.0.1, which sends the rate-limit key in X-User.
func behindProxy(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, frozenTable(t))
	proxies, err := clientip.New(clientip.Config{Header: "x-forwarded-for", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}})
	if err != nil {
		t.Fatal(err)
	}
	f.state.Proxies, f.state.KeyFrom = proxies, "X-User"
	return f
}

// ask sends a forward-auth request from an address.
func ask(h http.Handler, from, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, nil)
	r.RemoteAddr = from
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestForwardAuthWhoPays(t *testing.T) {
	const proxy = "10.0.0.1:4000"
	tests := []struct {
		name, from string
		headers    []string
		want       string // the key
	}{
		{"an untrusted peer", "192.0.2.7:1", nil, "192.0.2.7"},
		{"an untrusted peer's headers", "192.0.2.7:1", []string{"X-User", "alice", "X-Forwarded-For", "1.1.1.1"}, "192.0.2.7"},
		{"the proxy's user", proxy, []string{"X-User", "alice"}, "alice"},
		{"the proxy's client", proxy, []string{"X-Forwarded-For", "192.0.2.9"}, "192.0.2.9"},
		{"forged first entry", proxy, []string{"X-Forwarded-For", "6.6.6.6, 192.0.2.9"}, "192.0.2.9"},
		{"no header at all", proxy, nil, "10.0.0.1"},
		{"a wide address", proxy, []string{"X-Forwarded-For", "2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"},
		{"another header", proxy, []string{"X-Real-Ip", "192.0.2.9", "Forwarded", "for=192.0.2.9"}, "10.0.0.1"},
		{"nobody knows", "@", nil, "unknown"},
		{"a name as long as keys can be", proxy, []string{"X-User", strings.Repeat("a", 256)}, strings.Repeat("a", 256)},
		{"a longer name", proxy, []string{"X-User", strings.Repeat("a", 257)}, "sha256:e8d95cc2b4bc198c54b40bd214df958afb65f5e73d2c2eafe0593cf5c635c1f0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := behindProxy(t)
			w := ask(f.handler(), tt.from, "GET", "/v1/auth/default", tt.headers...)
			if w.Code != http.StatusOK || w.Body.Len() != 0 || len(f.records) != 1 || f.records[0].Key != tt.want {
				t.Errorf("%d %s, records %+v", w.Code, w.Body, f.records)
			}
		})
	}
}

func TestForwardAuthRefuses(t *testing.T) {
	tests := []struct {
		query  string
		status int
		kind   string
	}{
		{"", 429, "#quota-exceeded"}, {"?deny=403", 403, "#quota-exceeded"}, {"?deny=429", 429, "#quota-exceeded"}, {"?deny=200", 400, "about:blank"},
	}
	for _, tt := range tests {
		f := behindProxy(t)
		h := f.handler()
		for range 10 {
			if w := ask(h, "192.0.2.7:1", "POST", "/v1/auth/api"); w.Code != http.StatusOK || w.Header().Get("RateLimit") == "" {
				t.Fatalf("%d %v", w.Code, w.Header())
			}
		}
		w := ask(h, "192.0.2.7:1", "DELETE", "/v1/auth/api"+tt.query)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.kind) || strings.Contains(w.Body.String(), "192.0.2.7") {
			t.Errorf("%s: %d %s", tt.query, w.Code, w.Body)
		}
		if tt.status != 400 && (w.Header().Get("Retry-After") != "1" || w.Header().Get("RateLimit") != `"api";r=0;t=1`) {
			t.Errorf("%s: %v", tt.query, w.Header())
		}
	}
}

// The path's attributes come from a trusted proxy only.
func TestForwardAuthAttributes(t *testing.T) {
	f := behindProxy(t)
	h := f.handler()
	if w := ask(h, "10.0.0.1:1", "GET", "/v1/auth/mixed", "X-Forwarded-For", "192.0.2.9", "X-Original-Uri", "/a?token=x", "X-Forwarded-Method", "PUT"); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for i := range 3 { // 3 for each address, whoever the user is
		w := ask(h, "10.0.0.1:1", "GET", "/v1/auth/mixed", "X-Forwarded-For", "192.0.2.10", "X-User", fmt.Sprint("u", i))
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if w := ask(h, "10.0.0.1:1", "GET", "/v1/auth/mixed", "X-Forwarded-For", "192.0.2.10", "X-User", "u4"); w.Code != http.StatusTooManyRequests {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestPathOnly(t *testing.T) {
	for _, tt := range [][2]string{{"/a?b=c", "/a"}, {"/a#b", "/a"}, {"/a", "/a"}, {"", ""}} {
		if got := pathOnly(tt[0]); got != tt[1] {
			t.Errorf("%q: %q", tt[0], got)
		}
	}
}

// With clients, callers prove who they are; a trusted proxy does by its address.
func TestCallersProveWhoTheyAre(t *testing.T) {
	const token, other = "canary-token-of-checkout-0123456789", "canary-token-of-nobody-0123456789ab"
	f := behindProxy(t)
	clients, err := identity.NewClients([]identity.Client{{Name: "checkout", Tokens: []secret.Secret{secret.New(token)}, Grants: identity.Grants{Policies: []string{"default", "a*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	f.state.Authenticator = &identity.Authenticator{Clients: clients, Failures: &identity.Failures{}}
	h := f.handler()
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	post := func(path, body string, headers []string) *httptest.ResponseRecorder {
		return serve(h, "POST", path, body, headers...)
	}
	const check = `{"policy":"default","key":"a"}`
	reserved := post("/v1/reserve", check, bearer(token))
	id := ticketID.FindStringSubmatch(reserved.Body.String())
	if id == nil {
		t.Fatal(reserved.Body)
	}
	tests := []struct {
		name   string
		w      *httptest.ResponseRecorder
		status int
		detail string
	}{
		{"right", post("/v1/check", check, bearer(token)), 200, `"allowed":true`},
		{"scheme in other letters", post("/v1/check", check, []string{"Authorization", "bearer " + token}), 200, `"allowed":true`},
		{"a prefix of a name", post("/v1/check", `{"policy":"api","key":"a"}`, bearer(token)), 200, `"allowed":true`},
		{"another policy", post("/v1/check", `{"policy":"slots","key":"a"}`, bearer(token)), 403, `the client checkout may not use the policy`},
		{"another policy of a batch", post("/v1/check/batch", `{"checks":[{"policy":"slots","key":"a"}]}`, bearer(token)), 403, `checks[0]: the client checkout may not`},
		{"unknown policy", post("/v1/check", `{"policy":"anything","key":"a"}`, bearer(token)), 404, `no policy is called`},
		{"none", post("/v1/check", check, nil), 401, "missing client token"},
		{"another scheme", post("/v1/check", check, []string{"Authorization", "Basic " + token}), 401, "missing client token"},
		{"wrong", post("/v1/check", check, bearer(other)), 401, "unknown client token"},
		{"none, bad body", post("/v1/check", `{`, nil), 401, "missing client token"},
		{"none, commit", post("/v1/commit", `{"id":"`+id[1]+`"}`, nil), 401, "missing client token"},
		{"own reservation", post("/v1/cancel", `{"id":"`+id[1]+`"}`, bearer(token)), 200, `"refunded":1`},
		{"an untrusted peer's proxy", ask(h, "192.0.2.1:1", "GET", "/v1/auth/default"), 401, "missing client token"},
		{"a trusted proxy", ask(h, "10.0.0.1:1", "GET", "/v1/auth/default", bearer(other)...), 200, ""},
		{"health", serve(h, "GET", "/healthz", ""), 200, "ok"},
	}
	for _, tt := range tests {
		if tt.w.Code != tt.status || !strings.Contains(tt.w.Body.String(), tt.detail) || strings.Contains(tt.w.Body.String(), "canary") {
			t.Errorf("%s: %d %s", tt.name, tt.w.Code, tt.w.Body)
		}
		if (tt.status == 401) != (tt.w.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s: %v", tt.name, tt.w.Header())
		}
	}
	for _, r := range f.records {
		if r.Client != "checkout" && r.Key != "10.0.0.1" {
			t.Errorf("%+v", r)
		}
	}
	for range 30 {
		post("/v1/check", check, bearer(other))
	}
	if w := post("/v1/check", check, bearer(other)); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("after many wrong tokens: %d %v", w.Code, w.Header())
	}
	if w := post("/v1/check", check, bearer(token)); w.Code != http.StatusOK {
		t.Errorf("the right token after many wrong ones: %d %s", w.Code, w.Body)
	}
}

// A reservation is its client's.
func TestReservationsAreTheirClients(t *testing.T) {
	f := newFixture(t, frozenTable(t))
	var tokens []string
	var list []identity.Client
	for _, name := range []string{"a", "b"} {
		token := strings.Repeat(name, 40)
		tokens = append(tokens, token)
		list = append(list, identity.Client{Name: name, Tokens: []secret.Secret{secret.New(token)}})
	}
	clients, err := identity.NewClients(list)
	if err != nil {
		t.Fatal(err)
	}
	f.state.Authenticator = &identity.Authenticator{Clients: clients}
	h := f.handler()
	w := serve(h, "POST", "/v1/reserve", `{"policy":"default","key":"k"}`, "Authorization", "Bearer "+tokens[0])
	id := ticketID.FindStringSubmatch(w.Body.String())[1]
	for i, status := range []int{200, 400, 200} {
		w := serve(h, "POST", "/v1/cancel", `{"id":"`+id+`"}`, "Authorization", "Bearer "+tokens[i%2])
		if w.Code != status {
			t.Errorf("client %d: %d %s", i%2, w.Code, w.Body)
		}
	}
}
