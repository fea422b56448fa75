package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
)

// oneBudget is a budget of so many compute units per hour, without classes.
func oneBudget(name string, rate int64) budget.Config {
	return budget.Config{
		Name: name, Costs: weir.Must(budget.BuiltinTable("alchemy")), Classes: []budget.Class{},
		Limits: []ruleset.Limit{{Unit: "cu", Limit: weir.Limit{Rate: rate, Per: weir.Every(time.Hour)}}},
	}
}

// reserved is what a reservation and its end say.
type reserved struct {
	answer
	ID      string `json:"id"`
	Late    bool   `json:"late"`
	Renewed bool   `json:"renewed"`
}

// call sends a call of /v1.
func (r *running) call(t *testing.T, path, body string) (out reserved, status int) {
	t.Helper()
	resp, err := newClient(t).Post(r.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out, resp.StatusCode
}

// usage returns what operators see of a budget.
func (r *running) usage(t *testing.T, name string) (u budget.Usage) {
	t.Helper()
	text, status := getText(t, newClient(t), r.url+"/admin/v1/budgets/"+name)
	if err := json.Unmarshal([]byte(text), &u); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for unit, l := range u.Ledgers {
		if l.Granted+l.Overrun != l.Used+l.Returned+l.Expired+l.Open {
			t.Errorf("the ledger of %s does not close: %+v", unit, l)
		}
	}
	return u
}

// Two daemons on one Redis share a budget. Each has a ledger of its own, which closes also if the other one
// settles a reservation (S1.1, F1.6).
func TestBudgetShared(t *testing.T) {
	redis := redistest.Start(t)
	var ahead atomic.Int64 // of the daemons' clocks, by which reservations expire in their ledgers
	config := oneBudget("main", 1000)
	config.Clock = func() weir.Instant { return weir.Now().Add(time.Duration(ahead.Load())) }
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
		nodes = append(nodes, run(t, Config{Limiter: store, Backend: "redis", Live: Live{Budgets: []budget.Config{config}}}))
	}
	a, b := nodes[0], nodes[1]
	for i, n := range []*running{a, b, a} {
		if got, _ := n.call(t, "/v1/check", `{"policy":"main","method":"eth_getLogs"}`); !got.Allowed || got.Remaining != int64(1000-60*(i+1)) {
			t.Errorf("call %d: %+v", i, got)
		}
	}
	here, _ := a.call(t, "/v1/reserve", `{"policy":"main","cost":200}`)
	elsewhere, _ := a.call(t, "/v1/reserve", `{"policy":"main","cost":100}`)
	if u := a.usage(t, "main"); u.Ledgers["cu"] != (budget.Ledger{Granted: 420, Used: 120, Open: 300}) || u.Horizons[0].Used != 480 {
		t.Errorf("a: %+v, %+v", u.Ledgers, u.Horizons)
	}
	if got, _ := b.call(t, "/v1/commit", fmt.Sprintf(`{"id":%q,"used":30}`, elsewhere.ID)); got.Late {
		t.Errorf("%+v", got)
	}
	if got, _ := a.call(t, "/v1/commit", fmt.Sprintf(`{"id":%q,"used":250}`, here.ID)); got.Late {
		t.Errorf("%+v", got)
	}
	if l := a.usage(t, "main").Ledgers["cu"]; l != (budget.Ledger{Granted: 420, Overrun: 50, Used: 370, Open: 100}) {
		t.Errorf("the ledger of a, which does not know what b has settled: %+v", l)
	}
	ahead.Store(int64(2 * time.Minute))
	if l := a.usage(t, "main").Ledgers["cu"]; l != (budget.Ledger{Granted: 420, Overrun: 50, Used: 370, Expired: 100}) {
		t.Errorf("the ledger of a when that would have expired: %+v", l)
	}
	if u := b.usage(t, "main"); u.Ledgers["cu"] != (budget.Ledger{Granted: 60, Used: 60}) || u.Horizons[0].Used != 60*3+250+30 || u.Methods["eth_getLogs"] != 1 {
		t.Errorf("b: %+v, %+v", u.Ledgers, u.Horizons)
	}
	if got, _ := b.call(t, "/v1/check", `{"policy":"main","cost":541}`); got.Allowed || got.Remaining != 540 {
		t.Errorf("more than there is: %+v", got)
	}
}

// What was used and counted stays when the configuration changes, and a configuration that is wrong changes
// nothing.
func TestReloadKeepsBudgets(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Budgets: []budget.Config{oneBudget("main", 1000), oneBudget("old", 10)}}})
	srv.call(t, "/v1/check", `{"policy":"main","method":"eth_call"}`)
	held, _ := srv.call(t, "/v1/reserve", `{"policy":"main","method":"eth_getLogs"}`)
	gone, _ := srv.call(t, "/v1/reserve", `{"policy":"old","cost":5}`)
	main := srv.accounts()[0]
	main.Cool(time.Hour)
	before := srv.usage(t, "main")

	next := oneBudget("main", 2000)
	next.Costs = weir.Must(next.Costs.With(budget.Overrides{Methods: map[string]budget.Amounts{"eth_call": {"cu": 99}}}))
	next.Classes = []budget.Class{{Name: "live", Share: 50}, {Name: "bulk", Share: 50}}
	if err := srv.Reload(t.Context(), Live{Budgets: []budget.Config{next, oneBudget("new", 10)}}); err != nil {
		t.Fatal(err)
	}
	u := srv.usage(t, "main")
	if u.Horizons[0].Capacity != 2000 || u.Horizons[0].Used != 86 || len(u.Classes) != 2 || u.Ledgers["cu"] != before.Ledgers["cu"] || u.Methods["eth_call"] != 1 || u.CooldownMs < 1000 {
		t.Errorf("%+v", u)
	}
	if cost, err := main.Costs().Cost("eth_call"); err != nil || cost["cu"] != 99 {
		t.Errorf("eth_call costs %v, %v", cost, err)
	}
	if got, _ := srv.call(t, "/v1/commit", fmt.Sprintf(`{"id":%q,"used":20}`, held.ID)); got.Late {
		t.Errorf("%+v", got)
	}
	if got := srv.usage(t, "main").Ledgers["cu"]; got != (budget.Ledger{Granted: 86, Used: 46, Returned: 40}) {
		t.Errorf("%+v", got)
	}
	if _, status := srv.call(t, "/v1/check", `{"policy":"old","cost":1}`); status != http.StatusNotFound {
		t.Errorf("a budget that is gone: %d", status)
	}
	if _, status := srv.call(t, "/v1/commit", fmt.Sprintf(`{"id":%q,"used":1}`, gone.ID)); status != http.StatusOK {
		t.Errorf("its reservation: %d", status)
	}
	if got, _ := srv.call(t, "/v1/check", `{"policy":"new","cost":1}`); !got.Allowed {
		t.Errorf("a new one: %+v", got)
	}

	bad := oneBudget("main", 5)
	bad.Thresholds.Pause = new(101)
	for want, live := range map[string]Live{
		`Thresholds.Pause 101`:       {Budgets: []budget.Config{bad}},
		`is taken by another policy`: {Budgets: []budget.Config{oneBudget("main", 5)}, Policies: []ruleset.Policy{onePolicy("main", 1)}},
		`there are 101: at most 100`: {Budgets: make([]budget.Config, 101)},
	} {
		wantError(t, srv.Reload(t.Context(), live), want)
	}
	if u := srv.usage(t, "main"); u.Horizons[0].Capacity != 2000 || srv.accounts()[0] != main {
		t.Errorf("after bad reloads: %+v", u)
	}
}

// newBudgetTransactions is newTransactions with a budget.
func newBudgetTransactions(t *testing.T, fail *atomic.Bool) (*Server, Live) {
	t.Helper()
	s, _ := newTransactions(t, fail)
	live := Live{Policies: []ruleset.Policy{onePolicy("api", 10)}, Budgets: []budget.Config{oneBudget("main", 1000)}}
	if err := s.Reload(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	return s, live
}

// A commit that fails restores the configurations of accounts, and forgets those that are new.
func TestBudgetFailedCommit(t *testing.T) {
	var fail atomic.Bool
	s, live := newBudgetTransactions(t, &fail)
	s.charge(t, "main", 100)
	account := s.accounts()[0]
	costs := account.Costs()
	fail.Store(true)
	changed := oneBudget("main", 5)
	changed.Costs = weir.Must(costs.With(budget.Overrides{Unknown: &budget.Unknown{Refuse: true}}))
	if err := s.Reload(t.Context(), Live{Budgets: []budget.Config{changed, oneBudget("new", 5)}}); err == nil {
		t.Fatal("it did not fail")
	}
	if list := s.accounts(); len(list) != 1 || list[0] != account || account.Costs() != costs {
		t.Errorf("accounts %v, costs %v", list, account.Costs().Info())
	}
	if v := s.charge(t, "main", 100); v.Decision.Limit != 1000 || v.Remaining != 800 {
		t.Errorf("after the failed reload: %+v", v)
	}
	fail.Store(false)
	if err := s.Reload(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if u, err := account.Usage(t.Context()); err != nil || u.Ledgers["cu"].Used != 200 || s.accounts()[0] != account {
		t.Errorf("%+v, %v", u, err)
	}
}

// charge charges a budget as every protocol does.
func (s *Server) charge(t *testing.T, name string, cost int64) ruleset.Verdict {
	t.Helper()
	v, bad := s.core.Check(context.Background(), call.Caller{State: s.state.Load().call}, []byte(name), &ruleset.Query{Cost: cost}, false)
	if bad != nil {
		t.Error(bad)
	}
	return v
}

// Under load, failing and succeeding reloads add, change and remove budgets. No call crashes or fails, but
// for one whose budget is not there.
func TestBudgetTransactionsUnderLoad(t *testing.T) {
	var fail, done atomic.Bool
	s, live := newBudgetTransactions(t, &fail)
	var wg sync.WaitGroup
	var granted atomic.Int64
	for range 4 {
		wg.Go(func() {
			for !done.Load() {
				caller := call.Caller{State: s.state.Load().call}
				if s.charge(t, "main", 1).Allowed {
					granted.Add(1)
				}
				v, ticket, bad := s.core.Reserve(t.Context(), caller, []byte("main"), &ruleset.Query{Cost: 2}, time.Minute)
				if bad != nil {
					t.Error(bad)
					return
				}
				if v.Allowed {
					if _, bad := s.core.Settle(t.Context(), caller, ticket.String(), ruleset.Used{HaveCost: true, Cost: 1}); bad != nil {
						t.Error(bad)
					}
					granted.Add(1)
				}
				if _, bad := s.core.Check(t.Context(), caller, []byte("comes"), &ruleset.Query{Cost: 1}, false); bad != nil && bad.Kind != call.NotFound {
					t.Error(bad)
				}
				s.budgetUsages(t.Context())
			}
		})
	}
	for n := range 60 {
		fail.Store(n%3 == 1)
		next := Live{Policies: live.Policies, Budgets: []budget.Config{oneBudget("main", int64(1000+n))}}
		if n%2 == 0 {
			next.Budgets = append(next.Budgets, oneBudget("comes", 100))
		}
		if err := s.Reload(t.Context(), next); (err != nil) != fail.Load() {
			t.Fatalf("reload %d: %v", n, err)
		}
	}
	done.Store(true)
	wg.Wait()
	u, err := s.accounts()[len(s.accounts())-1].Usage(t.Context())
	if l := u.Ledgers["cu"]; err != nil || l.Used != granted.Load() || l.Open != 0 || l.Granted != l.Used+l.Returned {
		t.Errorf("%d granted: %+v, %v", granted.Load(), u, err)
	}
}

// At the level paused classes stop borrowing, also those of callers of the daemon. The change is logged once
// and told to those who watch (S1.20, S1.21, F1.14).
func TestPausedBudget(t *testing.T) {
	for _, pause := range []int{30, budget.Off} {
		now := atomic.Int64{}
		now.Store(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
		var log syncBuffer
		c := oneBudget("main", 100)
		c.Classes, c.Thresholds = nil, budget.Thresholds{Warning: new(budget.Off), Pause: new(pause), Resume: new(20)}
		srv := run(t, Config{
			Limiter: weir.Must(memstore.New(memstore.Config{Now: func() weir.Instant { return weir.Instant(now.Load()) }})),
			Live:    Live{Budgets: []budget.Config{c}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		changes, _, cancel, err := srv.observer.SubscribeLevels()
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		if got, _ := srv.call(t, "/v1/check", `{"policy":"main","cost":40}`); !got.Allowed { // of the class backfill
			t.Errorf("%+v", got)
		}
		if pause != budget.Off { // utilisation is averaged over a second, which must pass
			waitForLevel(t, srv, "paused")
		}
		now.Add(int64(36 * time.Second)) // one unit is back, of which 0.4 are backfill's
		got, _ := srv.call(t, "/v1/check", `{"policy":"main","cost":1}`)
		if paused := pause != budget.Off; got.Allowed == paused {
			t.Errorf("pause at %d: %+v", pause, got)
		}
		if pause == budget.Off {
			if text := log.String(); strings.Contains(text, "level=paused") || len(changes) > 0 {
				t.Errorf("%s", text)
			}
			continue
		}
		if c := <-changes; c.Account != "main" || c.From != budget.Normal || c.To != budget.Paused || c.Utilisation < 0.3 || c.Utilisation > 0.4 {
			t.Errorf("%+v", c)
		}
		if text := log.String(); strings.Count(text, "msg=budget budget=main level=paused from=normal utilisation=0.") != 1 {
			t.Errorf("%s", text)
		}
		if u := srv.usage(t, "main"); u.Level != "paused" || u.Classes[0].Available != 60 {
			t.Errorf("%+v", u)
		}
	}
}

// waitForLevel waits until the budget "main" has a level.
func waitForLevel(t *testing.T, srv *running, level string) {
	t.Helper()
	for began := time.Now(); srv.usage(t, "main").Level != level; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("the level is %s, want %s", srv.usage(t, "main").Level, level)
		}
	}
}

// Metrics show what is used, and look without charging. Names of methods and keys are not in them.
func TestBudgetMetrics(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Budgets: []budget.Config{oneBudget("main", 1000)}}})
	client := newClient(t)
	srv.call(t, "/v1/check", `{"policy":"main","methods":["eth_call","eth_madeUp"]}`)
	for range 2 {
		text, _ := getText(t, client, srv.url+"/metrics")
		for _, want := range []string{
			`weir_budget_used{budget="main",limit="main"} 46`, `weir_budget_limit{budget="main",limit="main"} 1000`, `weir_budget_level{budget="main"} 0`,
			`weir_budget_unknown_method_calls_total{budget="main"} 1`, `weir_budget_unreadable{budget="main"} 0`,
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("the metrics lack %s", want)
			}
		}
		// It is averaged over a second, so it depends on when it is read.
		if got := metric(t, text, `weir_budget_utilisation{budget="main"}`); got < 0 || got > 0.046 {
			t.Errorf("the utilisation is %v, want at most 46 of 1000", got)
		}
		if strings.Contains(text, "eth_") {
			t.Error("methods are in the metrics")
		}
	}
}

// Events have the cost in the budget's unit, however a caller gives it.
func TestBudgetEvents(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Budgets: []budget.Config{oneBudget("main", 1000)}}})
	resp, err := newClient(t).Get(srv.url + "/admin/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, body := range []string{
		`{"policy":"main","cost":60}`, `{"policy":"main","cost":{"cu":60}}`, `{"policy":"main","method":"eth_getLogs"}`,
		`{"checks":[{"policy":"main","cost":{"cu":60}}]}`,
	} {
		path := "/v1/check"
		if strings.Contains(body, "checks") {
			path = "/v1/check/batch"
		}
		if _, status := srv.call(t, path, body); status != http.StatusOK {
			t.Fatal(body, status)
		}
		line := ""
		for !strings.HasPrefix(line, "data:") {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(line, `"cost":60,"unit":"cu",`) {
			t.Errorf("%s: %s", body, line)
		}
	}
}

// metric returns the value of a series of the metrics.
func metric(t *testing.T, text, series string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			return n
		}
	}
	t.Errorf("the metrics lack %s", series)
	return 0
}

// A budget is called over Connect as well: with costs in units, and without a key.
func TestBudgetOverConnect(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Budgets: []budget.Config{oneBudget("main", 1000)}}})
	for body, want := range map[string]string{
		`{"policy":"main","cost":"26"}`:                   `"allowed":true`,
		`{"policy":"main","costs":{"cu":"26"}}`:           `"allowed":true`,
		`{"policy":"main"}`:                               `"cost\" is missing`,
		`{"policy":"main","key":"alice","cost":"26"}`:     `has one key`,
		`{"policy":"main","costs":{"throughput":"26"}}`:   `which no limit of the policy counts`,
		`{"policy":"main","key":"-","cost":"2147483648"}`: `must be at most`,
	} {
		resp, err := newClient(t).Post(srv.url+"/weir.v1.LimiterService/Check", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		_, err = text.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(strings.ReplaceAll(text.String(), " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%s: %s, %v; want %s", body, text.String(), err, want)
		}
	}
	if u := srv.usage(t, "main"); u.Horizons[0].Used != 52 {
		t.Errorf("%+v", u.Horizons)
	}
}

// budgetService is what a test calls of LimiterService, over one protocol.
type budgetService struct {
	reserve func(context.Context, *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error)
	commit  func(context.Context, *weirv1.CommitRequest) (*weirv1.CommitResponse, error)
}

// Reservations of a budget's classes over Connect and gRPC: what was not used is given back, what was used beyond is
// charged, and each class is charged for its own.
func TestBudgetReservesOverRPC(t *testing.T) {
	for protocol, dial := range map[string]func(*running) budgetService{
		"Connect": func(r *running) budgetService {
			c := weirv1connect.NewLimiterServiceClient(newClient(t), r.url, connect.WithProtoJSON())
			return budgetService{c.Reserve, c.Commit}
		},
		"gRPC": func(r *running) budgetService {
			c := weirv1.NewLimiterServiceClient(dialGRPC(t, r, nil))
			return budgetService{
				func(ctx context.Context, q *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
					return c.Reserve(ctx, q)
				},
				func(ctx context.Context, q *weirv1.CommitRequest) (*weirv1.CommitResponse, error) {
					return c.Commit(ctx, q)
				},
			}
		},
	} {
		t.Run(protocol, func(t *testing.T) {
			config := oneBudget("main", 1000)
			config.Classes = []budget.Class{{Name: "realtime", Share: 60, NoBorrow: true}, {Name: "backfill", Share: 40, NoBorrow: true}}
			r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Live: Live{Budgets: []budget.Config{config}}})
			reservesOfClasses(t, dial(r))
			u := r.usage(t, "main")
			if got, want := u.Ledgers["cu"], (budget.Ledger{Granted: 500, Overrun: 50, Used: 370, Returned: 180}); got != want {
				t.Errorf("the ledger is %+v, want %+v", got, want)
			}
			if u.Horizons[0].Used != 370 || u.Classes[0].Used != 120 || u.Classes[1].Used != 250 {
				t.Errorf("used: %+v, %+v", u.Horizons, u.Classes)
			}
		})
	}
}

// reservesOfClasses reserves 300 for realtime, of which it uses 120, and 200 for backfill, which uses 250.
func reservesOfClasses(t *testing.T, s budgetService) {
	t.Helper()
	for _, tt := range []struct {
		query              *weirv1.ReserveRequest
		limit, remaining   int64 // of the class
		used               *weirv1.CommitRequest
		refunded, overruns int64
	}{
		{&weirv1.ReserveRequest{Class: "realtime", Costs: map[string]int64{"cu": 300}}, 600, 300, &weirv1.CommitRequest{UsedCosts: map[string]int64{"cu": 120}}, 180, 0},
		{&weirv1.ReserveRequest{Class: "backfill", Cost: new(int64(200)), Key: "-"}, 400, 200, &weirv1.CommitRequest{Used: new(int64(250))}, 0, 50},
	} {
		tt.query.Policy = "main"
		held, err := s.reserve(t.Context(), tt.query)
		if err != nil || !held.GetAllowed() || held.GetLimit() != tt.limit || held.GetRemaining() != tt.remaining {
			t.Errorf("%v: %v, %v", tt.query, held, err)
		}
		tt.used.Id = held.GetId()
		for range 2 { // again it changes nothing
			if end, err := s.commit(t.Context(), tt.used); err != nil || end.GetRefunded() != tt.refunded || end.GetOverrun() != tt.overruns || end.GetLate() {
				t.Errorf("%v: %v, %v", tt.used, end, err)
			}
		}
	}
	for want, q := range map[string]*weirv1.ReserveRequest{
		"which the policy does not have; it has realtime, backfill": {Class: "gold", Cost: new(int64(1))},
		`"cost" is missing`: {Class: "realtime"},
		"has one key":       {Class: "realtime", Cost: new(int64(1)), Key: "alice"},
	} {
		q.Policy = "main"
		if held, err := s.reserve(t.Context(), q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, %v, want %s", q, held, err, want)
		}
	}
}
