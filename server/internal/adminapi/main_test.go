package adminapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/topk"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is when the store's clock stands still, and when frozen tests begin.
var noon = apitest.Noon

// frozen runs a test at noon. Time passes only where the test sleeps.
func frozen(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon))
		f(t)
	})
}

// daemon is what package server is for the handler.
type daemon struct {
	t      *testing.T
	http   http.Handler
	engine *ruleset.Engine
	guard  *guard.Guard

	budgets []*budget.Account
	routes  []upstream.Stats
	resumed []string // budgets and upstreams
	state   atomic.Pointer[State]
	log     syncBuffer
	more    []ruleset.Policy // besides those that are configured

	mu      sync.Mutex // guards the fields below
	set     []Override
	broken  error               // what the store answers, if it does not
	records chan ruleset.Record // of Subscribe; nil if too many watch
	lost    int64
	left    int // how many have cancelled
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu   sync.Mutex // guards the field below
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// configured are the policies of these tests: "api" has limits of the key and one by ip,
// in shadow, "llm" counts tokens and is rolled out to a quarter, "slots" limits
// concurrency.
func configured() []ruleset.Policy {
	second := weir.Every(time.Second)
	return []ruleset.Policy{
		{
			Name: "api",
			Limits: []ruleset.Limit{
				{Limit: weir.Limit{Rate: 100, Per: second, Burst: 20}},
				{Limit: weir.Limit{Name: "daily", Rate: 1000, Per: weir.Calendar(weir.Day, nil), OnError: weir.FailOpen}},
				{Limit: weir.Limit{Name: "ip", Rate: 50, Per: second}, By: "ip", Mode: ruleset.Shadow},
			},
			Overrides: []ruleset.Override{{Key: "partner-*", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 500, Per: second}}}}},
		},
		{
			Name: "llm", Rollout: 2500,
			Limits: []ruleset.Limit{{
				Limit: weir.Limit{Name: "tokens", Rate: 90_000, Per: weir.Every(time.Minute), Initial: weir.Filled(0.5), MaxDebt: 1000},
				Unit:  "tokens",
			}},
		},
		{Name: "slots", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Algorithm: weir.Concurrency}}}},
	}
}

// The tokens of operators. Neither may appear in any answer or log.
var (
	readToken  = "canary-read-" + strings.Repeat("r", 32)
	writeToken = "canary-write-" + strings.Repeat("w", 32)
)

// newDaemon returns a daemon that everybody may administer, with more policies perhaps.
func newDaemon(t *testing.T, more ...ruleset.Policy) *daemon {
	t.Helper()
	d := &daemon{t: t, records: make(chan ruleset.Record, 100), more: more}
	rules, err := ruleset.Compile(append(configured(), more...), nil)
	d.must(err)
	d.engine, err = ruleset.New(apitest.Table(t, apitest.NewClock().Now), rules)
	d.must(err)
	d.state.Store(&State{Rules: rules, Authenticator: &identity.Authenticator{Failures: &identity.Failures{}}, Effective: []Setting{
		{Path: "policies.api.limits[0].rate", Value: 100, Source: "weir.yaml:12"},
		{Path: "store.redis.password", Value: secret.New("hidden"), Source: "WEIR__STORE__REDIS__PASSWORD"},
		{Path: "store.max_keys", Value: 1000000, Source: "default", Pending: &Pending{Value: 500, Source: "weir.yaml:3"}},
	}})
	d.guard, d.budgets, d.routes = newGuard(t), newBudgets(t), oneRoute()
	d.http = New(d.config())
	return d
}

func (d *daemon) config() Config {
	return Config{
		Engine: d.engine, State: d.state.Load, ListOverrides: d.list, PutOverride: d.put, RemoveOverride: d.remove,
		Top: func(n int) []topk.Entry {
			list := []topk.Entry{{Label: "api\x00alice", Count: 5000, Error: 20}, {Label: "llm\x00bob\n", Count: 7}}
			return list[:min(n, len(list))]
		},
		Subscribe: d.subscribe,
		Stats: func() map[string]any {
			return map[string]any{"kind": "memory", "memory": memstore.Stats{Keys: 2, Bytes: 4096, OverflowHits: 1}}
		},
		Guard:   func() *guard.Guard { return d.guard },
		Budgets: func() []*budget.Account { return d.budgets },
		Routes:  func() []upstream.Stats { return d.routes },

		ResumeBudget:   func(name string) { d.resumed = append(d.resumed, name) },
		ResumeUpstream: func(route, alias string) { d.resumed = append(d.resumed, route+"/"+alias) },

		Version: "v0.0.0-test",
		Log: slog.New(slog.NewTextHandler(&d.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})),
	}
}

// guarded lets only operators with tokens in: "viewer" may read, "editor" may write.
func (d *daemon) guarded() *daemon {
	d.t.Helper()
	operators, err := identity.NewOperators([]identity.Operator{
		{Name: "viewer", Tokens: []secret.Secret{secret.New(readToken)}, Scopes: identity.Read},
		{Name: "editor", Tokens: []secret.Secret{secret.New(writeToken)}, Scopes: identity.Write},
	})
	d.must(err)
	state := *d.state.Load()
	auth := *state.Authenticator
	auth.Operators = operators
	state.Authenticator = &auth
	d.state.Store(&state)
	return d
}

func (d *daemon) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) list(context.Context) ([]Override, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.set), d.broken
}

func (d *daemon) put(ctx context.Context, o Override) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	d.dropLocked(o.Policy, o.Key)
	d.set = append(d.set, o)
	return d.refreshLocked(ctx)
}

func (d *daemon) remove(ctx context.Context, policy, key string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return false, d.broken
	}
	return d.dropLocked(policy, key), d.refreshLocked(ctx)
}

func (d *daemon) dropLocked(policy, key string) bool {
	before := len(d.set)
	d.set = slices.DeleteFunc(d.set, func(o Override) bool { return o.Policy == policy && o.Key == key })
	return len(d.set) < before
}

// refreshLocked puts the policies with the overrides that are set in force.
func (d *daemon) refreshLocked(ctx context.Context) error {
	policies := append(configured(), d.more...)
	for _, o := range d.set {
		if i := slices.IndexFunc(policies, func(p ruleset.Policy) bool { return p.Name == o.Policy }); i >= 0 {
			policies[i].Overrides = append(policies[i].Overrides, o.Override)
		}
	}
	state := *d.state.Load()
	rules, err := ruleset.Compile(policies, state.Rules)
	if err != nil {
		return err
	}
	state.Rules = rules
	d.state.Store(&state)
	return d.engine.Set(ctx, rules)
}

func (d *daemon) subscribe() (<-chan ruleset.Record, func() int64, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.records == nil {
		return nil, nil, nil, errors.New("too many")
	}
	return d.records, d.swapLost, d.cancel, nil
}

func (d *daemon) swapLost() (lost int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lost, d.lost = d.lost, 0
	return lost
}

func (d *daemon) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left++
}

// check charges a key, and returns what those who watch would see.
func (d *daemon) check(policy string, q ruleset.Query) ruleset.Record {
	d.t.Helper()
	rule := d.state.Load().Rules.Rule(policy)
	v, err := d.engine.Check(d.t.Context(), rule, &q)
	d.must(err)
	r := ruleset.NewRecord(&q, &v, false, 0)
	r.Client, r.At = "shop", noon
	return r
}

// send answers one request. What is a method, a path and, after a space, perhaps a body.
func (d *daemon) send(what string, headers ...string) *httptest.ResponseRecorder {
	method, rest, _ := strings.Cut(what, " ")
	path, body, _ := strings.Cut(rest, " ")
	r := httptest.NewRequest(method, "http://localhost:8080"+path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.http.ServeHTTP(w, r)
	return w
}

// bearer returns the header that shows a token; none for "".
func bearer(token string) []string {
	if token == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + token}
}

// converse sends one request after another, and returns the conversation.
func (d *daemon) converse(requests ...string) []byte {
	d.t.Helper()
	var out bytes.Buffer
	for _, what := range requests {
		w := d.send(what)
		fmt.Fprintf(&out, "> %s\n%d %s", what, w.Code, w.Body)
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			d.t.Errorf("%s: Cache-Control = %q", what, got)
		}
		want := "application/json"
		if w.Code >= 400 {
			want = "application/problem+json"
		}
		if got := w.Header().Get("Content-Type"); got != want {
			d.t.Errorf("%s: Content-Type = %q, want %q", what, got, want)
		}
	}
	return out.Bytes()
}
