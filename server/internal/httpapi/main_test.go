package httpapi

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frozenTable goes by a clock that stands still.
func frozenTable(t *testing.T) *memstore.Table {
	t.Helper()
	return apitest.Table(t, apitest.NewClock().Now)
}

// fixture is what the handlers of a test stand on.
type fixture struct {
	engine  *ruleset.Engine
	state   *State
	records []ruleset.Record
	log     *slog.Logger
}

// policies are "default", "api" with two limits, "slots", which only reservations can
// take, "mixed", with limits by address and in tokens, one of them in shadow, "quiet", which is off,
// and "jobs", of which the classes realtime and backfill each have a part.
func policies() []ruleset.Policy {
	second := weir.Every(time.Second)
	return []ruleset.Policy{
		{Name: "default", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: second, Burst: 100}}}},
		{Name: "api", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 3, Per: second, Burst: 10}},
			{Limit: weir.Limit{Name: "daily", Rate: 12, Per: weir.Calendar(weir.Day, nil)}},
		}, Overrides: []ruleset.Override{{Key: "partner-*", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 30, Per: second, Burst: 20}}}}}},
		{Name: "slots", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Algorithm: weir.Concurrency}}}},
		{Name: "mixed", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 5, Per: second}},
			{Limit: weir.Limit{Name: "per-ip", Rate: 3, Per: second}, By: "ip"},
			{Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: weir.Every(time.Minute)}, Unit: "tokens"},
			{Limit: weir.Limit{Name: "trial", Rate: 1, Per: second}, Mode: ruleset.Shadow},
		}},
		{Name: "jobs", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: second, Classes: weir.ClassesOf(
			weir.Class{Name: "realtime", Guaranteed: 6, NoBorrow: true}, weir.Class{Name: "backfill", Guaranteed: 4, NoBorrow: true},
		)}}}},
		{Name: "quiet", Mode: ruleset.Off, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: second}}}},
	}
}

func newFixture(t testing.TB, l weir.Limiter) *fixture {
	t.Helper()
	rules, err := ruleset.Compile(policies(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := ruleset.New(l, rules)
	if err != nil {
		t.Fatal(err)
	}
	proxies, err := clientip.New(clientip.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{engine: g, log: slog.New(slog.DiscardHandler), state: &State{
		State: &call.State{Rules: rules, Authenticator: &identity.Authenticator{}}, Proxies: proxies,
	}}
}

func (f *fixture) handler() http.Handler {
	observe := func(r *ruleset.Record) { f.records = append(f.records, *r) }
	return New(Config{
		Core:  &call.Core{Engine: f.engine, Log: f.log, Observe: observe, ObserveEach: apitest.Each(observe)},
		State: func() *State { return f.state },
		Ready: func() (bool, string) { return true, "" },
	})
}

// handler serves the policies with a limiter.
func handler(t testing.TB, l weir.Limiter) http.Handler { return newFixture(t, l).handler() }

// serve answers one request that names loopback as its host.
func serve(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8080"+path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// scripted is a limiter that answers from its fields and counts how often it is
// asked.
type scripted struct {
	weir.Limiter // nil: other methods are not called
	decision     weir.Decision
	err          error
	calls        int
}

func (s *scripted) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	s.calls++
	return s.decision, s.err
}

func (s *scripted) Do(_ context.Context, b *weir.Batch) error {
	s.calls++
	b.Decisions = make([]weir.Decision, len(b.Charges))
	for i := range b.Decisions {
		b.Decisions[i] = s.decision
	}
	return s.err
}

// post sends body over a real connection and returns the status and the body.
func post(t *testing.T, client *http.Client, url, body string) (int, []byte) {
	t.Helper()
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.Bytes()
}
