package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/store/memstore"
)

// openapiFile is openapi.yaml, and its schemas.
type openapiFile struct {
	t        *testing.T
	root     map[string]any
	compiler *jsonschema.Compiler
}

func openapiOpen(t *testing.T) *openapiFile {
	t.Helper()
	var parsed any
	openapiMust(t, yaml.Unmarshal(openAPI, &parsed))
	text, err := json.Marshal(parsed) // by way of JSON, so that its values are of the kinds that schemas know
	openapiMust(t, err)
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	openapiMust(t, err)
	f := &openapiFile{t: t, root: root.(map[string]any), compiler: jsonschema.NewCompiler()}
	f.compiler.AssertFormat()
	openapiMust(t, f.compiler.AddResource("openapi.json", root))
	return f
}

func openapiMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openapiNode is a place in the file: its value, and how to point at it.
type openapiNode struct {
	file    *openapiFile
	value   any
	pointer string
}

func (f *openapiFile) at(names ...string) openapiNode {
	return openapiNode{file: f, value: f.root}.at(names...)
}

// at goes down, and through references. What is not there has the value nil.
func (n openapiNode) at(names ...string) openapiNode {
	for _, name := range names {
		object, _ := n.value.(map[string]any)
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		n = openapiNode{n.file, object[name], n.pointer + "/" + escaped}
		if object, ok := n.value.(map[string]any); ok {
			if ref, ok := object["$ref"].(string); ok && len(object) == 1 {
				n = n.file.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
		}
	}
	return n
}

// each calls do for the entries of an object, in order.
func (n openapiNode) each(do func(name string, value openapiNode)) {
	object, _ := n.value.(map[string]any)
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		do(name, n.at(name))
	}
}

// check holds a value to the schema at n.
func (n openapiNode) check(value any) error {
	n.file.t.Helper()
	schema, err := n.file.compiler.Compile("openapi.json#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(n.pointer))
	if err != nil {
		n.file.t.Fatalf("%s is no schema: %v", n.pointer, err)
	}
	return schema.Validate(value)
}

// openapiParse reads a value as schemas want it.
func openapiParse(t *testing.T, text string) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

var openapiMethods = []string{"get", "head", "post", "put", "patch", "delete", "options"}

// operations calls do for each method of each path.
func (f *openapiFile) operations(do func(path, method string, op openapiNode)) {
	f.at("paths").each(func(path string, item openapiNode) {
		for _, method := range openapiMethods {
			if op := item.at(method); op.value != nil {
				do(path, method, op)
			}
		}
	})
}

// openapiWorld is the real handlers, and what they stand on.
type openapiWorld struct {
	limiter *openapiLimiter
	state   *State
	ready   bool
	handler http.Handler
}

// openapiLimiter counts in memory, unless a test sets the response.
type openapiLimiter struct {
	weir.Limiter
	decision *weir.Decision
	err      error
}

func (l *openapiLimiter) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if l.err != nil {
		return weir.Decision{}, l.err
	}
	if l.decision != nil {
		return *l.decision, nil
	}
	return l.Limiter.Take(ctx, p, key, cost)
}

func (l *openapiLimiter) Do(ctx context.Context, b *weir.Batch) error {
	if l.err != nil {
		return l.err
	}
	return l.Limiter.Do(ctx, b)
}

// openapiNew serves the policies that the file's examples name, with a clock that stands
// still.
func openapiNew(t *testing.T) *openapiWorld {
	t.Helper()
	noon := weir.Instant(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
	table, err := memstore.New(memstore.Config{Now: func() weir.Instant { return noon }})
	openapiMust(t, err)
	w := &openapiWorld{limiter: &openapiLimiter{Limiter: table}, ready: true}
	second, minute := weir.Every(time.Second), weir.Every(time.Minute)
	rules, err := ruleset.Compile(append(guardConfig().Policies(), []ruleset.Policy{
		{Name: "default", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: second, Burst: 100}}}},
		{Name: "api", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 3, Per: second, Burst: 10}},
			{Limit: weir.Limit{Name: "daily", Rate: 12, Per: weir.Calendar(weir.Day, nil)}},
		}},
		{Name: "llm", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Name: "calls", Rate: 10, Per: minute}, By: "user"},
			{Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: minute}, By: "user", Unit: "tokens"},
		}},
		{Name: "slots", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Algorithm: weir.Concurrency}}}},
		{Name: "off", Mode: ruleset.Off, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: second}}}},
	}...), nil)
	openapiMust(t, err)
	g, err := ruleset.New(w.limiter, rules)
	openapiMust(t, err)
	proxies, err := clientip.New(clientip.Config{})
	openapiMust(t, err)
	w.state = &State{State: &call.State{Rules: rules, Authenticator: &identity.Authenticator{}, Guard: newGuard(t, g, rules)}, Proxies: proxies}
	w.handler = New(Config{
		Core: &call.Core{
			Engine: g, Log: slog.New(slog.DiscardHandler),
			Observe: func(*ruleset.Record) {}, ObserveEach: apitest.Each(func(*ruleset.Record) {}),
		},
		State: func() *State { return w.state },
		Ready: func() (bool, string) { return w.ready, "the store is unavailable" },
	})
	return w
}

const openapiToken = "carol-0123456789abcdef0123456789abcdef"

// close lets in only carol, who may use the policy api.
func (w *openapiWorld) close(t *testing.T) {
	t.Helper()
	clients, err := identity.NewClients([]identity.Client{{Name: "carol", Tokens: []secret.Secret{secret.New(openapiToken)}, Grants: identity.Grants{Policies: []string{"api"}}}})
	openapiMust(t, err)
	w.state.Authenticator = &identity.Authenticator{Clients: clients, Failures: &identity.Failures{}}
}

// ask sends a request. Headers are pairs.
func (w *openapiWorld) ask(method, path string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(strings.ToUpper(method), path, body)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	w.handler.ServeHTTP(out, r)
	return out
}

// checkResponse holds a response to what the file says of an operation.
func (f *openapiFile) checkResponse(op openapiNode, got *httptest.ResponseRecorder) {
	f.t.Helper()
	said := op.at("responses", strconv.Itoa(got.Code))
	if said.value == nil {
		f.t.Errorf("%s does not know %d: %s", op.pointer, got.Code, got.Body)
		return
	}
	f.checkHeaders(said, got)
	kind, _, _ := strings.Cut(got.Header().Get("Content-Type"), ";")
	schema := said.at("content", kind, "schema")
	switch {
	case schema.value == nil && (kind != "" || got.Body.Len() > 0):
		f.t.Errorf("%s has no %q: %s", said.pointer, kind, got.Body)
	case schema.value == nil && said.at("content").value != nil:
		f.t.Errorf("%s: there is no body", said.pointer)
	case schema.value == nil:
	default:
		var value any = got.Body.String()
		if kind != "text/plain" {
			value = openapiParse(f.t, got.Body.String())
		}
		if err := schema.check(value); err != nil {
			f.t.Errorf("%s: %v\n%s", said.pointer, err, got.Body)
		}
	}
}

// checkHeaders holds the fields that are there to their schemas, and expects those that
// must be.
func (f *openapiFile) checkHeaders(said openapiNode, got *httptest.ResponseRecorder) {
	f.t.Helper()
	known := map[string]bool{"Content-Type": true, "Connection": true} // the latter closes after a long body
	said.at("headers").each(func(name string, header openapiNode) {
		name = http.CanonicalHeaderKey(name)
		known[name] = true
		value := got.Header().Get(name)
		if value == "" {
			if header.at("required").value == true {
				f.t.Errorf("%s: there is no %s", said.pointer, name)
			}
			return
		}
		if err := header.at("schema").check(value); err != nil {
			f.t.Errorf("%s: %s: %s: %v", said.pointer, name, value, err)
		}
	})
	for name := range got.Header() {
		if !known[name] {
			f.t.Errorf("%s does not know %s: %s", said.pointer, name, got.Header().Get(name))
		}
	}
}

// TestOpenAPISchemas: all schemas compile, all references lead somewhere, and all examples
// are what their schemas say.
func TestOpenAPISchemas(t *testing.T) {
	f := openapiOpen(t)
	f.at("components", "schemas").each(func(_ string, schema openapiNode) {
		if err := schema.check(nil); err == nil {
			t.Errorf("%s takes null", schema.pointer)
		}
	})
	examples := 0
	var walk func(openapiNode)
	walk = func(n openapiNode) {
		switch value := n.value.(type) {
		case nil:
			t.Errorf("%s leads nowhere", n.pointer)
		case map[string]any:
			schema := openapiNode{f, value["schema"], n.pointer + "/schema"}
			if value["example"] != nil && schema.value != nil {
				examples++
				openapiMust(t, schema.check(value["example"]))
			}
			list, _ := value["examples"].(map[string]any)
			for name := range list {
				examples++
				if err := schema.check(n.at("examples", name, "value").value); err != nil {
					t.Errorf("%s: example %s: %v", n.pointer, name, err)
				}
			}
			for name := range value {
				if name != "examples" && name != "example" && name != "default" {
					walk(n.at(name))
				}
			}
		}
	}
	walk(f.at("paths"))
	walk(f.at("components"))
	if examples < 30 {
		t.Errorf("only %d examples were looked at", examples)
	}
}

// TestOpenAPIIsTight: no object takes fields that are not described, and those of answers
// are all required, but for three.
func TestOpenAPIIsTight(t *testing.T) {
	f := openapiOpen(t)
	f.at("components", "schemas").each(func(name string, schema openapiNode) {
		if schema.at("properties").value != nil && schema.at("additionalProperties").value != false {
			t.Errorf("%s takes any field", name)
		}
	})
	for _, name := range []string{"Decision", "Decisions", "Reservation", "Settled", "Renewed", "Problem", "Admitted", "Quotas", "Quota"} {
		schema := f.at("components", "schemas", name)
		required, _ := schema.at("required").value.([]any)
		schema.at("properties").each(func(field string, _ openapiNode) {
			if field != "delay_ms" && field != "shadow" && field != "violated-policies" && !slices.Contains(required, any(field)) {
				t.Errorf("%s: %s is always there, and not required", name, field)
			}
		})
	}
}

// TestOpenAPIExamples: the handlers take the examples of requests, and their answers are
// what the file says. The id of the examples is replaced by that of a reservation.
func TestOpenAPIExamples(t *testing.T) {
	f, sent := openapiOpen(t), 0
	f.operations(func(path, method string, op openapiNode) {
		op.at("requestBody", "content", "application/json", "examples").each(func(name string, example openapiNode) {
			w := openapiNew(t)
			body := example.at("value").value.(map[string]any)
			if body["id"] != nil {
				held := w.ask("post", "/v1/reserve", strings.NewReader(`{"policy":"llm","keys":{"user":"a"},"cost":{"tokens":900}}`))
				body["id"] = openapiParse(t, held.Body.String()).(map[string]any)["id"]
			}
			if body["ticket"] != nil {
				held := w.ask("post", "/v1/guard", strings.NewReader(`{"path":"/search"}`))
				body["ticket"] = openapiParse(t, held.Body.String()).(map[string]any)["ticket"]
			}
			text, err := json.Marshal(body)
			openapiMust(t, err)
			got := w.ask(method, path, bytes.NewReader(text))
			if got.Code != http.StatusOK {
				t.Errorf("%s, example %s: %d %s", path, name, got.Code, got.Body)
			}
			f.checkResponse(op, got)
			sent++
		})
	})
	if sent < 18 {
		t.Errorf("only %d examples were sent", sent)
	}
}

// openapiCase is a request that gets a status.
type openapiCase struct {
	status     int
	method     string
	path, body string // the path as in the file, but for what is in braces
	prepare    func(*testing.T, *openapiWorld)
	headers    []string
}

// openapiCases get every status from every kind of handler.
func openapiCases() []openapiCase {
	closed := func(t *testing.T, w *openapiWorld) { w.close(t) }
	broken := func(_ *testing.T, w *openapiWorld) { w.limiter.err = errors.New("no") }
	decided := func(d weir.Decision) func(*testing.T, *openapiWorld) {
		return func(_ *testing.T, w *openapiWorld) { w.limiter.decision = &d }
	}
	used := func(_ *testing.T, w *openapiWorld) {
		w.ask("post", "/v1/check", strings.NewReader(`{"policy":"api","key":"alice","cost":10}`))
		w.ask("post", "/v1/check", strings.NewReader(`{"policy":"api","key":"192.0.2.1","cost":10}`))
	}
	guarded := func(_ *testing.T, w *openapiWorld) {
		for range 2 {
			w.ask("get", "/v1/auth", nil)
		}
	}
	throttled := func(t *testing.T, w *openapiWorld) {
		w.close(t)
		for range 20 {
			w.ask("post", "/v1/check", nil, "Authorization", "Bearer wrong")
		}
	}
	cases := []openapiCase{
		{200, "post", "/v1/check", `{"policy":"api","key":"alice"}`, used, nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice","cost":3}`, used, nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice","cost":11}`, nil, nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice","max_wait_ms":1}`, used, nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice","max_wait_ms":1}`, nil, nil},
		{200, "post", "/v1/check", `{"policy":"off","key":"alice"}`, nil, nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice"}`, decided(weir.Decision{Reason: weir.Blocked, RetryAfter: weir.Never}), nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice"}`, decided(weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second}), nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice"}`, decided(weir.Decision{Reason: weir.QueueFull, Limit: 3}), nil},
		{200, "post", "/v1/check", `{"policy":"api","key":"alice"}`, decided(weir.Decision{Reason: weir.Exhausted, Limit: 3, Remaining: -5, RetryAfter: time.Hour, ResetAfter: weir.Never}), nil},
		{200, "post", "/v1/check/batch", `{"checks":[{"policy":"api","key":"alice"},{"policy":"default","key":"b"},{"policy":"off","key":"b"}]}`, used, nil},
		{200, "post", "/v1/check/batch", `{"checks":[{"policy":"api","key":"alice"},{"policy":"default","key":"b"}],"atomic":true}`, used, nil},
		{200, "post", "/v1/reserve", `{"policy":"api","key":"alice"}`, used, nil},
		{200, "post", "/v1/reserve", `{"policy":"api","key":"alice","max_wait_ms":1}`, used, nil},
		{200, "get", "/v1/auth/api", "", nil, nil},
		{200, "get", "/v1/auth/off", "", nil, nil},
		{429, "get", "/v1/auth/api", "", used, nil},
		{429, "post", "/v1/auth/api?deny=429", "", decided(weir.Decision{Reason: weir.Blocked, RetryAfter: weir.Never}), nil},
		{403, "get", "/v1/auth/api?deny=403", "", used, nil},
		{403, "get", "/v1/auth/api", "", decided(weir.Decision{Reason: weir.Blocked, RetryAfter: weir.Never}), nil},
		{503, "get", "/v1/auth/api", "", decided(weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second}), nil},
		{503, "get", "/v1/auth/api", "", broken, nil},
		{400, "get", "/v1/auth/api?deny=500", "", nil, nil},
		{401, "get", "/v1/auth/api", "", closed, nil},
		{403, "get", "/v1/auth/default", "", closed, []string{"Authorization", "Bearer " + openapiToken}},
		{404, "get", "/v1/auth/nope", "", nil, nil},
		{429, "get", "/v1/auth/api", "", throttled, []string{"Authorization", "Bearer wrong"}},
		{200, "post", "/v1/guard", `{"path":"/a","method":"GET"}`, nil, nil},
		{200, "post", "/v1/guard", `{"path":"/a"}`, decided(weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second}), nil},
		{200, "post", "/v1/guard", `{"path":"/status","address":"192.0.2.1"}`, nil, nil},
		{200, "post", "/v1/guard", `{"path":"/login","method":"POST","api_key":"mobile-key"}`, nil, nil},
		{200, "post", "/v1/guard/quotas", `{"subject":"user:alice"}`, nil, nil},
		{200, "get", "/v1/auth", "", nil, nil},
		{429, "get", "/v1/auth", "", guarded, nil},
		{403, "get", "/v1/auth?deny=403", "", guarded, nil},
		{403, "get", "/v1/auth", "", closed, []string{"Authorization", "Bearer " + openapiToken}},
		{503, "get", "/v1/auth", "", broken, nil},
		{400, "get", "/v1/auth?deny=500", "", nil, nil},
		{401, "get", "/v1/auth", "", closed, nil},
		{404, "get", "/v1/auth", "", func(_ *testing.T, w *openapiWorld) { w.state.Guard = nil }, nil},
		{200, "get", "/healthz", "", nil, nil},
		{200, "head", "/healthcheck", "", nil, nil},
		{200, "get", "/readyz", "", nil, nil},
		{503, "get", "/readyz", "", func(_ *testing.T, w *openapiWorld) { w.ready = false }, nil},
		{405, "post", "/healthz", "", nil, nil},
		{405, "delete", "/readyz", "", nil, nil},
	}
	for path, body := range map[string]string{
		"/v1/check": `{"policy":"default","key":"alice"}`, "/v1/check/batch": `{"checks":[{"policy":"default","key":"alice"}]}`, "/v1/reserve": `{"policy":"default","key":"alice"}`,
	} {
		cases = append(cases,
			openapiCase{403, "post", path, body, closed, []string{"Authorization", "Bearer " + openapiToken}},
			openapiCase{404, "post", path, strings.Replace(body, "default", "nope", 1), nil, nil},
			openapiCase{503, "post", path, body, broken, nil})
	}
	for path, body := range map[string]string{
		"/v1/guard": `{"path":"/a"}`, "/v1/guard/finish": `{"ticket":"x"}`, "/v1/guard/quotas": `{"subject":"user:alice"}`,
	} {
		cases = append(cases,
			openapiCase{400, "post", path, `{"path":"/a","ticket":"x"`, nil, nil},
			openapiCase{401, "post", path, body, closed, nil},
			openapiCase{403, "post", path, body, closed, []string{"Authorization", "Bearer " + openapiToken}},
			openapiCase{404, "post", path, body, func(_ *testing.T, w *openapiWorld) { w.state.Guard = nil }, nil},
			openapiCase{405, "get", path, ``, nil, nil},
			openapiCase{413, "post", path, strings.Repeat(" ", maxBody+1), nil, nil},
			openapiCase{415, "post", path, openapiZipped(`{}`), nil, []string{"Content-Encoding", "gzip"}},
			openapiCase{429, "post", path, `{}`, throttled, []string{"Authorization", "Bearer wrong"}})
	}
	cases = append(cases, openapiCase{503, "post", "/v1/guard", `{"path":"/a"}`, broken, nil})
	for _, path := range []string{"/v1/check", "/v1/check/batch", "/v1/reserve", "/v1/commit", "/v1/cancel", "/v1/renew"} {
		cases = append(cases,
			openapiCase{400, "post", path, `{"id":"x","policy":"api","checks":[]`, nil, nil},
			openapiCase{401, "post", path, `{}`, closed, nil},
			openapiCase{401, "post", path, `{}`, closed, []string{"Authorization", "Bearer wrong"}},
			openapiCase{405, "get", path, ``, nil, nil},
			openapiCase{413, "post", path, strings.Repeat(" ", maxBody+1), nil, nil},
			openapiCase{415, "post", path, openapiZipped(`{}`), nil, []string{"Content-Encoding", "gzip"}},
			openapiCase{429, "post", path, `{}`, throttled, []string{"Authorization", "Bearer wrong"}})
	}
	return cases
}

func openapiZipped(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, text) // memory does not fail
	_ = z.Close()
	return out.String()
}

// operation finds what the file says of a request. A method that the path does not answer
// is spoken of by those that it does.
func (f *openapiFile) operation(path, method string) openapiNode {
	path, _, _ = strings.Cut(path, "?")
	if rest, ok := strings.CutPrefix(path, "/v1/auth/"); ok && rest != "" {
		path = "/v1/auth/{policy}"
	}
	for _, m := range []string{method, "post", "get"} {
		if op := f.at("paths", path, m); op.value != nil {
			return op
		}
	}
	f.t.Fatalf("the file does not know %s", path)
	return openapiNode{}
}

// TestOpenAPIResponses: every status that handlers answer with is as the file says.
func TestOpenAPIResponses(t *testing.T) {
	f := openapiOpen(t)
	for _, c := range openapiCases() {
		t.Run(fmt.Sprint(c.status, c.method, c.path), func(t *testing.T) {
			w := openapiNew(t)
			if c.prepare != nil {
				c.prepare(t, w)
			}
			got := w.ask(c.method, c.path, strings.NewReader(c.body), c.headers...)
			if c.method == "head" {
				got.Body.Reset() // as net/http does
				got.Body.WriteString("ok\n")
			}
			if got.Code != c.status {
				t.Errorf("%d, want %d: %s", got.Code, c.status, got.Body)
			}
			inner := *f
			inner.t = t
			inner.checkResponse(inner.operation(c.path, c.method), got)
		})
	}
}

// openapiSlow is a body that does not come.
type openapiSlow struct{}

func (openapiSlow) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestOpenAPITimeout(t *testing.T) {
	f, w := openapiOpen(t), openapiNew(t)
	got := w.ask("post", "/v1/renew", openapiSlow{})
	if got.Code != http.StatusRequestTimeout {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	f.checkResponse(f.operation("/v1/renew", "post"), got)
}

// TestOpenAPIStatuses: the file has no status that the tests above do not get.
func TestOpenAPIStatuses(t *testing.T) {
	f := openapiOpen(t)
	gets := map[string]bool{}
	for _, c := range openapiCases() {
		gets[fmt.Sprint(f.operation(c.path, c.method).at("responses", strconv.Itoa(c.status)).pointer)] = true
	}
	f.operations(func(path, method string, op openapiNode) {
		op.at("responses").each(func(status string, response openapiNode) {
			if status == "default" || status == "200" || status == "408" || gets[response.pointer] {
				return
			}
			// those of the same text as another method's, which YAML repeats, are got there
			if other := f.at("paths", path, "get", "responses", status); gets[other.pointer] || strings.HasPrefix(path, "/health") {
				return
			}
			t.Errorf("%s %s: nothing gets %s", method, path, status)
		})
	})
}

// TestOpenAPIPaths: the file and New know the same paths, and each answers the methods
// that the file says.
func TestOpenAPIPaths(t *testing.T) {
	f, w := openapiOpen(t), openapiNew(t)
	var described []string
	f.at("paths").each(func(path string, _ openapiNode) { described = append(described, path) })
	registered := openapiRegistered(t)
	if !slices.Equal(described, registered) {
		t.Errorf("the file has %q\nNew has %q", described, registered)
	}
	f.operations(func(path, method string, op openapiNode) {
		got := w.ask(method, strings.Replace(path, "{policy}", "default", 1), nil)
		if got.Code == http.StatusNotFound || got.Code == http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d", method, path, got.Code)
		}
	})
	if got := w.ask("get", "/v1/nope", nil); got.Code != http.StatusNotFound {
		t.Errorf("a path that there is not: %d", got.Code)
	}
}

// openapiRegistered reads in New which paths there are, since a ServeMux does not tell.
// The file itself and whatever has no path of its own are no part of the API.
func openapiRegistered(t *testing.T) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "handler.go", nil, 0)
	openapiMust(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || called.Sel.Name != "Handle" && called.Sel.Name != "HandleFunc" {
			return true
		}
		pattern, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
		openapiMust(t, err)
		_, path, found := strings.Cut(pattern, " ")
		if !found {
			path = pattern
		}
		if path != "/" && path != "/openapi.yaml" {
			paths = append(paths, path)
		}
		return true
	})
	slices.Sort(paths)
	return slices.Compact(paths)
}

// TestOpenAPIRefusals: what a schema refuses, the handler refuses too.
func TestOpenAPIRefusals(t *testing.T) {
	const check, id = `{"policy":"default","key":"alice"`, `{"id":"x"`
	long := `"` + strings.Repeat("k", 257) + `"`
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprintf(`"x%d":%d`, i, i))
	}
	units := "{" + strings.Join(many, ",") + "}"
	attributes := strings.NewReplacer(":", `:"`, ",", `",`, "}", `"}`).Replace(units)
	checks := strings.Repeat(check+"},", 1000) + check + "}"
	f := openapiOpen(t)
	for _, tt := range []struct{ path, body string }{
		{"/v1/check", `[]`},
		{"/v1/check", `null`},
		{"/v1/check", `{}`},
		{"/v1/check", `"default"`},
		{"/v1/check", `{"key":"alice"}`},
		{"/v1/check", check + `,"colour":"x"}`},
		{"/v1/check", check + `,"Cost":1}`},
		{"/v1/check", `{"policy":1,"key":"alice"}`},
		{"/v1/check", `{"policy":"default","key":null}`},
		{"/v1/check", `{"policy":"default","key":` + long + `}`},
		{"/v1/check", check + `,"cost":-1}`},
		{"/v1/check", check + `,"cost":2147483648}`},
		{"/v1/check", check + `,"cost":1.5}`},
		{"/v1/check", check + `,"cost":"1"}`},
		{"/v1/check", check + `,"cost":null}`},
		{"/v1/check", check + `,"cost":[1]}`},
		{"/v1/check", check + `,"cost":{"requests":-1}}`},
		{"/v1/check", check + `,"cost":{"requests":"1"}}`},
		{"/v1/check", check + `,"cost":` + units + `}`},
		{"/v1/check", check + `,"class":1}`},
		{"/v1/check", check + `,"class":` + long + `}`},
		{"/v1/reserve", check + `,"class":` + long + `}`},
		{"/v1/check", check + `,"peek":1}`},
		{"/v1/check", check + `,"peek":"true"}`},
		{"/v1/check", check + `,"keys":[]}`},
		{"/v1/check", check + `,"keys":{"ip":1}}`},
		{"/v1/check", check + `,"keys":{"ip":` + long + `}}`},
		{"/v1/check", check + `,"keys":` + attributes + `}`},
		{"/v1/check", check + `,"max_wait_ms":-1}`},
		{"/v1/check", check + `,"max_wait_ms":10001}`},
		{"/v1/check", check + `,"ttl_ms":1}`},
		{"/v1/check/batch", `{}`},
		{"/v1/check/batch", `[]`},
		{"/v1/check/batch", `{"checks":{}}`},
		{"/v1/check/batch", `{"checks":[1]}`},
		{"/v1/check/batch", `{"checks":[` + check + `,"cost":-1}]}`},
		{"/v1/check/batch", `{"checks":[{"key":"a"}]}`},
		{"/v1/check/batch", `{"checks":[],"atomic":"yes"}`},
		{"/v1/check/batch", `{"checks":[],"policy":"default"}`},
		{"/v1/check/batch", `{"checks":[` + checks + `]}`},
		{"/v1/reserve", check + `,"ttl_ms":-1}`},
		{"/v1/reserve", check + `,"ttl_ms":3600001}`},
		{"/v1/reserve", check + `,"ttl_ms":"1"}`},
		{"/v1/reserve", check + `,"peek":true}`},
		{"/v1/reserve", check + `,"max_wait_ms":-1}`},
		{"/v1/reserve", check + `,"max_wait_ms":10001}`},
		{"/v1/reserve", `{"key":"alice"}`},
		{"/v1/commit", `{}`},
		{"/v1/commit", `{"id":1}`},
		{"/v1/commit", id + `,"used":-1}`},
		{"/v1/commit", id + `,"used":{"tokens":-1}}`},
		{"/v1/commit", id + `,"used":null}`},
		{"/v1/commit", id + `,"used":` + units + `}`},
		{"/v1/commit", id + `,"cost":1}`},
		{"/v1/cancel", `{}`},
		{"/v1/cancel", `{"id":null}`},
		{"/v1/cancel", id + `,"used":1}`},
		{"/v1/renew", `{}`},
		{"/v1/renew", id + `,"ttl_ms":-1}`},
		{"/v1/renew", id + `,"ttl_ms":3600001}`},
		{"/v1/renew", id + `,"ttl":1}`},
		{"/v1/guard", `{}`},
		{"/v1/guard", `{"path":""}`},
		{"/v1/guard", `{"path":1}`},
		{"/v1/guard", `{"path":"/a","cost":-1}`},
		{"/v1/guard", `{"path":"/a","cost":"1"}`},
		{"/v1/guard", `{"path":"/a","attributes":` + attributes + `}`},
		{"/v1/guard", `{"path":"/a","attributes":{"x":` + long + `}}`},
		{"/v1/guard", `{"path":"/a","ip":"192.0.2.1"}`},
		{"/v1/guard/finish", `{}`},
		{"/v1/guard/finish", `{"ticket":""}`},
		{"/v1/guard/finish", `{"ticket":"x","cost":-1}`},
		{"/v1/guard/finish", `{"ticket":"x","failed":1}`},
		{"/v1/guard/quotas", `{}`},
		{"/v1/guard/quotas", `{"subject":` + long + `}`},
		{"/v1/guard/quotas", `{"subject":"user:a","endpoint":"/a"}`},
	} {
		op := f.operation(tt.path, "post")
		if err := op.at("requestBody", "content", "application/json", "schema").check(openapiParse(t, tt.body)); err == nil {
			t.Errorf("%s: the schema takes %.80s", tt.path, tt.body)
		}
		got := openapiNew(t).ask("post", tt.path, strings.NewReader(tt.body))
		if got.Code != http.StatusBadRequest {
			t.Errorf("%s: the handler says %d to %.80s", tt.path, got.Code, tt.body)
		}
		if strings.Contains(got.Body.String(), "no reservation of this client") {
			t.Errorf("%s: the handler minds only the id of %.80s", tt.path, tt.body)
		}
		f.checkResponse(op, got)
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	got := httptest.NewRecorder()
	serveOpenAPI(got, httptest.NewRequest("GET", "/openapi.yaml", nil))
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "application/yaml" || !bytes.Equal(got.Body.Bytes(), openAPI) {
		t.Errorf("%d %v", got.Code, got.Header())
	}
}
