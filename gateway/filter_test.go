package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/internal/mockrpc"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// newMocks returns a route to two mock providers that do not know each other's filters.
func newMocks(t testing.TB) (*Route, map[string]*mockrpc.Provider) {
	t.Helper()
	providers := map[string]*mockrpc.Provider{}
	c := Config{Logger: quiet, Pool: upstream.Config{Name: "eth", JSONRPC: true, Logger: quiet, Strategy: upstream.Balanced}}
	for _, alias := range []string{"a", "b"} {
		providers[alias] = weir.Must(mockrpc.New(mockrpc.Config{Preset: mockrpc.Generic}))
		c.Pool.Endpoints = append(c.Pool.Endpoints, upstream.Endpoint{Alias: alias, RPC: secret.New("http://" + alias + ".example/")})
	}
	c.Pool.Transport = transport(func(r *http.Request) (*http.Response, error) { return providers[aliasOf(r)].RoundTrip(r) })
	return weir.Must(New(weir.Must(memstore.New(memstore.Config{})), c)), providers
}

type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func result(t *testing.T, route http.Handler, body string) gjson.Result {
	t.Helper()
	w := ask(route, post(body))
	r := gjson.Parse(w.Body.String())
	if w.Code != http.StatusOK || r.Get("error").Exists() {
		t.Fatalf("%s: %d %s", body, w.Code, w.Body)
	}
	return r.Get("result")
}

// TestFilters makes filters at two endpoints and uses them, over two routes as of two processes.
func TestFilters(t *testing.T) {
	one, providers := newMocks(t)
	settings := one.settings.Load()
	two := weir.Must(New(weir.Must(memstore.New(memstore.Config{})), Config{Logger: quiet, Pool: configOf(one)}))
	perEndpoint := map[string]int{}
	for i := range 40 {
		id := result(t, one, `{"id":1,"method":"eth_newBlockFilter","params":[]}`).Str
		alias, own := settings.filters.find(id)
		if perEndpoint[alias]++; alias == "" || len(own) != 18 {
			t.Fatalf("id %q is of %q", id, alias)
		}
		for j, method := range []string{"eth_getFilterChanges", "eth_getFilterChanges", "eth_uninstallFilter"} {
			r := result(t, []*Route{one, two}[(i+j)%2], fmt.Sprintf(`{"id":1,"params":[%q],"method":%q}`, id, method))
			if method == "eth_uninstallFilter" && !r.Bool() || method != "eth_uninstallFilter" && !r.IsArray() {
				t.Errorf("%s: %s", method, r.Raw)
			}
		}
	}
	if perEndpoint["a"] == 0 || perEndpoint["b"] == 0 {
		t.Errorf("%v: both endpoints make filters", perEndpoint)
	}
	for alias, p := range providers {
		if refused := p.Stats().Total.Refused; len(refused) > 0 {
			t.Errorf("%s has refused %v", alias, refused)
		}
	}
}

// configOf returns the configuration of a route of newMocks.
func configOf(r *Route) upstream.Config {
	c := upstream.Config{Name: "eth", JSONRPC: true, Logger: quiet}
	for alias := range r.settings.Load().filters.tags {
		c.Endpoints = append(c.Endpoints, upstream.Endpoint{Alias: alias, RPC: secret.New("http://" + alias + ".example/")})
	}
	c.Transport = transport(func(q *http.Request) (*http.Response, error) {
		reply, err := r.pool.Send(q, &upstream.Call{Pinned: aliasOf(q), Methods: []string{"eth_x"}})
		if err != nil {
			return nil, err
		}
		return reply.Response, nil
	})
	return c
}

// TestFilterCalls shows what endpoints and callers get. Tags are those of the pool "eth".
func TestFilterCalls(t *testing.T) {
	tagA, tagB := filterTag("eth", "a"), filterTag("eth", "b")
	const ok = `{"id":1,"result":"0x1"}`
	tests := []struct {
		name, body string
		answer     string
		received   []string // alias and body
		want       string
		status     int
	}{
		{
			"a filter is used", ` { "params" : [ "0x` + tagB + `0aF" , 1e3 ] , "x":"\u0061", "method":"eth_getFilterLogs","id":1}`, ok,
			[]string{`b  { "params" : [ "0x0aF" , 1e3 ] , "x":"\u0061", "method":"eth_getFilterLogs","id":1}`},
			ok, 200,
		},
		{"its tag is in upper case", `{"id":1,"params":["0x` + strings.ToUpper(tagB) + `1"],"method":"eth_uninstallFilter"}`, ok, []string{`b {"id":1,"params":["0x1"],"method":"eth_uninstallFilter"}`}, ok, 200},
		{"its id is escaped", `{"id":1,"params":["\u0030x` + tagB + `1"],"method":"eth_uninstallFilter"}`, ok, []string{`b {"id":1,"params":["0x1"],"method":"eth_uninstallFilter"}`}, ok, 200},
		{"an id that is no number", `{"id":1,"params":["abc"],"method":"eth_getFilterLogs"}`, ok, []string{`a {"id":1,"params":["abc"],"method":"eth_getFilterLogs"}`}, ok, 200},
		{"no id", `{"id":1,"params":[],"method":"eth_getFilterLogs"}`, ok, []string{`a {"id":1,"params":[],"method":"eth_getFilterLogs"}`}, ok, 200},
		{"parameters by name", `{"id":1,"params":{"0":"0x` + tagB + `1"},"method":"eth_getFilterLogs"}`, ok, []string{`a {"id":1,"params":{"0":"0x` + tagB + `1"},"method":"eth_getFilterLogs"}`}, ok, 200},
		{"the id of a filter elsewhere", `{"id":1,"params":["0x` + tagB + `1"],"method":"eth_getBalance"}`, ok, []string{`a {"id":1,"params":["0x` + tagB + `1"],"method":"eth_getBalance"}`}, ok, 200},
		{"an unknown filter", `{"id":1,"params":["0x123456789"],"method":"eth_getFilterLogs"}`, ok, nil, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"filter not found"}}`, 200},
		{"a tag alone", `{"id":1,"params":["0x` + tagB + `"],"method":"eth_getFilterLogs"}`, ok, nil, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"filter not found"}}`, 200},
		{
			"filters of two endpoints", `[{"id":1,"params":["0x` + tagA + `1"],"method":"eth_getFilterLogs"},{"id":2,"params":["0x` + tagB + `1"],"method":"eth_getFilterLogs"}]`, ok, nil,
			`[{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the batch uses filters of a and of b: send a batch for each"}},{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"the batch uses filters of a and of b: send a batch for each"}}]`,
			400,
		},
		{
			"a batch with filters of one", `[{"id":1,"params":["0x` + tagB + `1"],"method":"eth_getFilterLogs"},{"id":2,"method":"eth_chainId"},{"id":3,"params":["0x` + tagB + `2"],"method":"eth_getFilterChanges"}]`,
			`[]`,
			[]string{`b [{"id":1,"params":["0x1"],"method":"eth_getFilterLogs"},{"id":2,"method":"eth_chainId"},{"id":3,"params":["0x2"],"method":"eth_getFilterChanges"}]`},
			`[]`, 200,
		},
		{
			"a batch with unknown filters", `[{"id":1,"params":["0x1"],"method":"eth_getFilterLogs"}, {"id":2,"params":["0x` + tagB + `1"],"method":"eth_getFilterLogs"},{"params":["0x1"],"method":"eth_uninstallFilter"}]`,
			`[ {"id":2,"result":[]} ]`,
			[]string{`b [{"id":2,"params":["0x1"],"method":"eth_getFilterLogs"}]`},
			`[ {"id":2,"result":[]} ,{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"filter not found"}}]`, 200,
		},
		{
			"a batch with an unknown filter and a notification", `[{"id":1,"params":["0x1"],"method":"eth_getFilterLogs"},{"method":"eth_chainId"}]`, ``,
			[]string{`a [{"method":"eth_chainId"}]`},
			`[{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"filter not found"}}]`, 200,
		},
		{
			"a batch of unknown filters", `[{"id":1,"params":["0x1"],"method":"eth_getFilterLogs"}]`, ``, nil,
			`[{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"filter not found"}}]`, 200,
		},
		{
			"a filter is made", `{"id":1,"method":"eth_newFilter","params":[{}]}`, ` {"jsonrpc":"2.0","result" : "0x0aF","id":1.0,"x":1e3}`,
			[]string{`a {"id":1,"method":"eth_newFilter","params":[{}]}`},
			` {"jsonrpc":"2.0","result" : "0x` + tagA + `0aF","id":1.0,"x":1e3}`, 200,
		},
		{"its id is no number", `{"id":1,"method":"eth_newFilter"}`, `{"id":1,"result":"abc"}`, []string{`a {"id":1,"method":"eth_newFilter"}`}, `{"id":1,"result":"abc"}`, 200},
		{"it fails", `{"id":1,"method":"eth_newFilter"}`, `{"id":1,"error":{"code":-32000}}`, []string{`a {"id":1,"method":"eth_newFilter"}`}, `{"id":1,"error":{"code":-32000}}`, 200},
		{
			"filters are made in a batch", `[{"id":1,"method":"eth_newFilter"},{"id":2,"method":"eth_chainId"},{"id":"a","method":"eth_newBlockFilter"}]`,
			`[{"id":"\u0061","result":"0x7"},{"id":2,"result":"0x1"},{"id":1.0,"result":"0x8"}]`,
			[]string{`a [{"id":1,"method":"eth_newFilter"},{"id":2,"method":"eth_chainId"},{"id":"a","method":"eth_newBlockFilter"}]`},
			`[{"id":"\u0061","result":"0x` + tagA + `7"},{"id":2,"result":"0x1"},{"id":1.0,"result":"0x` + tagA + `8"}]`, 200,
		},
		{
			"one id for two calls", `[{"id":1,"method":"eth_newFilter"},{"id":1.0,"method":"eth_chainId"}]`, ``, nil,
			`[{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the batch has a call that makes a filter and another with the same id: give each an id of its own"}},{"jsonrpc":"2.0","id":1.0,"error":{"code":-32600,"message":"the batch has a call that makes a filter and another with the same id: give each an id of its own"}}]`,
			400,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			route, p := newRouteTo(t, to(endpointAt("a"), endpointAt("b")))
			p.answer = always(200, tt.answer)
			if tt.answer == "" {
				p.answer = always(204, "")
			}
			w := ask(route, post(tt.body))
			want(t, "received", p.received(), tt.received)
			want(t, "response", strings.TrimSuffix(w.Body.String(), "\n"), tt.want)
			want(t, "status", w.Code, tt.status)
		})
	}
}

// TestPinnedToNobody uses a filter whose endpoint is no more, or takes no such calls.
func TestPinnedToNobody(t *testing.T) {
	deny := func(e *upstream.Endpoint) { e.Deny = []string{"eth_getFilter*"} }
	route, p := newRouteTo(t, to(endpointAt("a"), endpointAt("b", deny)))
	w := ask(route, post(`{"id":1,"method":"eth_getFilterLogs","params":["0x`+filterTag("eth", "b")+`1"]}`))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "filter not found") || len(p.received()) != 0 {
		t.Errorf("%d %s, %v", w.Code, w.Body, p.received())
	}
}

// TestTags: two aliases of one tag are found before they are used.
func TestTags(t *testing.T) {
	seen := map[string]string{}
	for i := 0; ; i++ {
		alias := fmt.Sprint("node-", i)
		tag := filterTag("eth", alias)
		if len(tag) != 8 || tag[0] < '8' {
			t.Fatalf("tag %q of %s", tag, alias)
		}
		other := seen[tag]
		seen[tag] = alias
		if other == "" {
			continue
		}
		c := to(endpointAt(other), endpointAt(alias))
		c.Pool.Name, c.Pool.JSONRPC = "eth", true
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("those of %q: choose another alias", other)) {
			t.Errorf("%s and %s: %v", other, alias, err)
		}
		return
	}
}

// FuzzFilters: whatever Parse accepts, nothing but ids of filters changes on its way, and what is made can be used.
func FuzzFilters(f *testing.F) {
	tag := filterTag("eth", "a")
	for _, seed := range []string{
		`{"id":1,"method":"eth_getFilterLogs","params":["0x` + tag + `12"]}`,
		`[{"id":1,"method":"eth_newFilter","params":[]}, {"p\u0061rams":[ "0x` + tag + `12",{}],"method":"eth_getFilterChanges"}]`,
		`[{"id":1,"method":"eth_uninstallFilter","params":["0x1"]},{"id":2,"method":"m"}]`,
		` {"params":{},"method":"eth_getFilterLogs"}`, `{"method":"eth_newBlockFilter","id":"\ud800"}`,
	} {
		f.Add([]byte(seed), []byte(`{"id":1,"result":"0x12"}`))
		f.Add([]byte(seed), []byte(`[{"id":1,"r\u0065sult":"0x12"},{}]`))
	}
	route, _ := newRouteTo(f, to(endpointAt("a"), endpointAt("b")))
	f.Fuzz(func(t *testing.T, body, answer []byte) {
		request, err := jsonrpc.Parse(body)
		if err != nil {
			return
		}
		x := newExchange(route, body, request)
		if x.pin() == nil && x.notFound == nil {
			untagged(t, body, x.call.Body, tag)
		}
		changed := x.tagFilters("a", answer)
		if !json.Valid(answer) && !bytes.Equal(changed, answer) {
			t.Errorf("%q became %q", answer, changed)
		}
		untagged(t, changed, answer, tag)
		if x.notFound != nil {
			if _, err := jsonrpc.Parse(x.call.Body); err != nil {
				t.Errorf("%q became %q: %v", body, x.call.Body, err)
			}
		}
	})
}

func newExchange(route *Route, body []byte, request jsonrpc.Request) *exchange {
	x := &exchange{route: route, settings: newSettings(to(endpointAt("a"), endpointAt("b"))), request: request}
	x.settings.filters = newFilters(upstream.Config{Name: "eth", Endpoints: []upstream.Endpoint{{Alias: "a"}}})
	x.call.Body = body
	return x
}

// untagged checks that two texts differ by tags only.
func untagged(t *testing.T, tagged, plain []byte, tag string) {
	t.Helper()
	if bytes.Equal(tagged, plain) {
		return
	}
	var a, b any
	if json.Unmarshal(tagged, &a) != nil || json.Unmarshal(plain, &b) != nil {
		t.Fatalf("%q and %q: one is no JSON", tagged, plain)
	}
	if !sameButTags(a, b, tag) {
		t.Errorf("%q and %q differ", tagged, plain)
	}
}

// sameButTags reports whether two values are equal but for strings that have a tag in the first.
func sameButTags(tagged, plain any, tag string) bool {
	switch a := tagged.(type) {
	case string:
		b, ok := plain.(string)
		return ok && (a == b || strings.EqualFold(a, "0x"+tag+strings.TrimPrefix(b, "0x")))
	case []any:
		b, ok := plain.([]any)
		return ok && slices.EqualFunc(a, b, func(x, y any) bool { return sameButTags(x, y, tag) })
	case map[string]any:
		b, ok := plain.(map[string]any)
		return ok && maps.EqualFunc(a, b, func(x, y any) bool { return sameButTags(x, y, tag) })
	}
	return tagged == plain
}

// TestMadeUpFilters uses ids that no endpoint has given: they send no call to an endpoint that it would not go to otherwise.
func TestMadeUpFilters(t *testing.T) {
	deny := func(method string) func(*upstream.Endpoint) {
		return func(e *upstream.Endpoint) { e.Deny = []string{method} }
	}
	hidden := func(e *upstream.Endpoint) { e.Unselectable = true }
	const changes, balance = `{"id":1,"method":"eth_getFilterChanges","params":["0x%sff"]}`, `{"id":2,"method":"eth_getBalance"}`
	for _, tt := range []struct {
		name     string
		of       func(*upstream.Endpoint) // the endpoint that the id is of
		batch    bool
		status   int
		received []string // endpoints
		answer   string   // a part of it
	}{
		{"a call", func(*upstream.Endpoint) {}, false, 200, []string{"b"}, `"result"`},
		{"a batch", func(*upstream.Endpoint) {}, true, 200, []string{"b"}, `"result"`},
		{"a call, not selectable", hidden, false, 200, nil, "filter not found"},
		{"a batch, not selectable", hidden, true, 200, []string{"a"}, "filter not found"},
		{"a call, denied", deny("eth_getFilter*"), false, 200, nil, "filter not found"},
		{"a batch, denied", deny("eth_getFilter*"), true, 200, []string{"a"}, "filter not found"},
		{"a batch, of which another call is denied", deny("eth_getBalance"), true, 400, nil, "a filter of b, which does not take all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			route, p := newRouteTo(t, to(endpointAt("a"), endpointAt("b", func(e *upstream.Endpoint) { e.Priority = 20 }, tt.of)))
			p.answer = func(_ *http.Request, body string) (*http.Response, error) {
				if strings.HasPrefix(body, "[") {
					return reply(200, `[{"id":2,"result":"0x1"}]`), nil
				}
				return reply(200, `{"id":1,"result":[]}`), nil
			}
			body := fmt.Sprintf(changes, filterTag("eth", "b"))
			if tt.batch {
				body = "[" + body + "," + balance + "]"
			}
			w := ask(route, post(body))
			var received []string
			for _, r := range p.requests {
				received = append(received, aliasOf(r))
			}
			want(t, "received", received, tt.received)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.answer) {
				t.Errorf("%d %s, want %d and %s", w.Code, w.Body, tt.status, tt.answer)
			}
		})
	}
}
