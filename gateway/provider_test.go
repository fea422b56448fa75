package gateway

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// canary is in every URL and header of endpoints, and must be nowhere else.
const canary = "canary-5f2d81"

// A provider answers requests in place of the network. Endpoints are its hosts.
type provider struct {
	mu       sync.Mutex
	answer   func(r *http.Request, body string) (*http.Response, error) // nil means ok
	requests []*http.Request
	bodies   []string
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.requests, p.bodies = append(p.requests, r), append(p.bodies, string(body))
	answer := p.answer
	p.mu.Unlock()
	if answer == nil {
		return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
	}
	return answer(r, string(body))
}

// received returns the bodies of the requests, each after its endpoint.
func (p *provider) received() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.requests {
		list = append(list, aliasOf(r)+" "+p.bodies[i])
	}
	return list
}

func aliasOf(r *http.Request) string { return strings.TrimSuffix(r.URL.Host, ".example") }

// reply returns a response with JSON, unless the header says otherwise.
func reply(status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

func always(status int, body string, header ...string) func(*http.Request, string) (*http.Response, error) {
	return func(*http.Request, string) (*http.Response, error) { return reply(status, body, header...), nil }
}

func endpointAt(alias string, set ...func(*upstream.Endpoint)) upstream.Endpoint {
	e := upstream.Endpoint{
		Alias: alias, RPC: secret.New("https://" + alias + ".example/v2/" + canary + "?key=" + canary),
		Headers: []upstream.Header{{Name: "X-Api-Key", Value: secret.New(canary)}},
	}
	for _, f := range set {
		f(&e)
	}
	return e
}

func limited(r upstream.Rate) func(*upstream.Endpoint) {
	return func(e *upstream.Endpoint) { e.Limits = r.Limits() }
}

func withBudget(name string) func(*upstream.Endpoint) {
	return func(e *upstream.Endpoint) { e.Budget = name }
}

// withHeader gives an endpoint one header in place of its key.
func withHeader(name, value string) func(*upstream.Endpoint) {
	return func(e *upstream.Endpoint) {
		e.Headers = []upstream.Header{{Name: name, Value: secret.New(value)}}
	}
}

func account(name string, limits ...weir.Limit) budget.Config {
	c := budget.Config{Name: name, Logger: slog.New(slog.DiscardHandler)}
	for _, l := range limits {
		c.Limits = append(c.Limits, ruleset.Limit{Limit: l})
	}
	return c
}

// newRouteTo returns a route to endpoints that requests do not wait for, and what answers for them.
func newRouteTo(t testing.TB, c Config, accounts ...budget.Config) (*Route, *provider) {
	t.Helper()
	p := &provider{}
	c.Pool.Name, c.Pool.JSONRPC = "eth", true
	if c.Pool.Transport == nil {
		c.Pool.Transport = p
	}
	if c.Pool.MaxWait == 0 {
		c.Pool.MaxWait = -1
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Pool.Logger == nil {
		c.Pool.Logger = c.Logger
	}
	route, err := New(weir.Must(memstore.New(memstore.Config{})), c, accounts...)
	if err != nil {
		t.Fatal(err)
	}
	return route, p
}

func to(endpoints ...upstream.Endpoint) Config {
	return Config{Pool: upstream.Config{Strategy: upstream.Sticky, Endpoints: endpoints}}
}

// post returns a request of JSON-RPC. Headers are names and values; those without a value are taken away.
func post(body string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://gateway.example/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	return r
}

// ask sends a request and returns the response.
func ask(route http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	route.ServeHTTP(w, r)
	return w
}

// dump returns a response as it is on the wire, with its headers sorted.
func dump(w *httptest.ResponseRecorder) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n", w.Code, http.StatusText(w.Code))
	h := w.Result().Header
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String() + "\n" + strings.TrimSuffix(w.Body.String(), "\n") + "\n"
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var quiet = slog.New(slog.DiscardHandler)

const blockNumber = `{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}`

func zipped(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.Bytes()
}
