package adminapi

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// failing is a limiter that fails while err is set.
type failing struct {
	weir.Limiter
	err error
}

func (f *failing) Do(ctx context.Context, b *weir.Batch) error {
	if f.err != nil {
		return f.err
	}
	return f.Limiter.Do(ctx, b)
}

// newBudgets returns the account of the budget "alchemy-main", of which calls cost compute units.
func newBudgets(t *testing.T) []*budget.Account {
	t.Helper()
	return []*budget.Account{newBudget(t, weir.Must(memstore.New(memstore.Config{})))}
}

func newBudget(t *testing.T, l weir.Limiter) *budget.Account {
	t.Helper()
	account, err := budget.New(l, budget.Config{
		Name: "alchemy-main", Costs: weir.Must(budget.BuiltinTable("alchemy")), Logger: slog.New(slog.DiscardHandler),
		Limits: []ruleset.Limit{
			{Unit: "cu", Limit: weir.Limit{Rate: 500, Per: weir.Every(time.Second)}},
			{Unit: "cu", Limit: weir.Limit{Name: "month", Rate: 1_000_000, Per: weir.Calendar(weir.Month, nil)}},
			{Unit: "cu", Limit: weir.Limit{Name: "daily", Rate: 100, Per: weir.Calendar(weir.Day, nil)}, Mode: ruleset.Shadow},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// callProvider calls methods that cost 292 units in all, of which 100 are held.
func (d *daemon) callProvider() {
	d.t.Helper()
	ctx, account := d.t.Context(), d.budgets[0]
	realtime, err := account.Controller("realtime")
	d.must(err)
	for _, method := range []string{"eth_getLogs", "eth_getLogs", "eth_call", "eth_call", "eth_newThing", "eth_chainId"} {
		decision, err := realtime.Try(ctx, budget.Method(method))
		d.must(err)
		if !decision.Allowed {
			d.t.Fatal(method, decision)
		}
	}
	backfill, err := account.Controller("backfill")
	d.must(err)
	_, decision, err := backfill.TryReserve(ctx, time.Minute, budget.Units(100))
	d.must(err)
	if !decision.Allowed {
		d.t.Fatal(decision)
	}
}

func TestBudgets(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		got := d.converse("GET /admin/v1/budgets")
		time.Sleep(250 * time.Millisecond) // so that the first call is observed
		d.callProvider()
		time.Sleep(250 * time.Millisecond) // utilisation is averaged over a second; 125 units are back
		d.budgets[0].Cool(1500 * time.Millisecond)
		got = append(got, d.converse("GET /admin/v1/budgets", "GET /admin/v1/budgets/alchemy-main", "GET /admin/v1/budgets/nope", "GET /admin/v1/budgets/",
			"GET /admin/v1/budgets/a/b", "GET /admin/v1/budgets/alchemy-main?top=1", "POST /admin/v1/budgets", "DELETE /admin/v1/budgets/alchemy-main")...)
		d.budgets = nil
		got = append(got, d.converse("GET /admin/v1/budgets", "GET /admin/v1/budgets/alchemy-main")...)
		golden.Check(t, "testdata/budgets.golden", got)
	})
}

// A store that does not answer leaves what this process knows.
func TestBudgetsOfABrokenStore(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		store := &failing{Limiter: weir.Must(memstore.New(memstore.Config{}))}
		d.budgets = []*budget.Account{newBudget(t, store)}
		d.callProvider()
		store.err = errors.New("dial: refused")
		got := d.send("GET /admin/v1/budgets").Body.String()
		for _, want := range []string{`"error":"the usage is unknown; the daemon's log says why"`, `"horizons":[],"classes":[]`, `"eth_getLogs":2`, `"open":100`} {
			if !strings.Contains(got, want) {
				t.Errorf("it lacks %s:\n%s", want, got)
			}
		}
		if log := d.log.String(); !strings.Contains(log, "budget=alchemy-main") || !strings.Contains(log, "dial: refused") || strings.Contains(got, "dial") {
			t.Errorf("log %s", log)
		}
	})
}

// Whatever an operator says the key is, it is the budget's only one. What is not, is refused.
func TestKeyOfABudget(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		state := *d.state.Load()
		p, err := budget.Config{Name: "alchemy-main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 5, Per: weir.Every(time.Hour)}}}}.Policy()
		d.must(err)
		state.Rules, err = ruleset.Compile(append(configured(), p), state.Rules)
		d.must(err)
		d.must(d.engine.Set(t.Context(), state.Rules))
		d.state.Store(&state)
		d.check("alchemy-main", ruleset.Query{Key: "account", Cost: 2})
		golden.Check(t, "testdata/budget-keys.golden", d.converse(
			"GET /admin/v1/keys?policy=alchemy-main",
			"GET /admin/v1/keys?policy=alchemy-main&key=-",
			"GET /admin/v1/keys?policy=alchemy-main&key=alice",
			`PUT /admin/v1/keys/override {"policy":"alchemy-main","key":"account","limits":[{"rate":7,"per":"1s"}],"ttl_s":60}`,
			`POST /admin/v1/keys/reset {"policy":"alchemy-main","key":"alice"}`,
			`POST /admin/v1/keys/reset {"policy":"alchemy-main"}`,
			"GET /admin/v1/keys?policy=alchemy-main",
		))
	})
}

// Changes of a level are events, for those who follow all policies or that one.
func TestLevelEvents(t *testing.T) {
	for query, want := range map[string]bool{"": true, "?policy=slots": true, "?policy=api": false, "?denied=true": false} {
		frozen(t, func(t *testing.T) {
			d := newDaemon(t)
			cfg := d.config()
			changes, left := make(chan budget.LevelChange, 1), 0
			changes <- budget.LevelChange{At: noon, Account: "slots", From: budget.Warning, To: budget.Paused, Utilisation: 0.93}
			cfg.SubscribeLevels = func() (<-chan budget.LevelChange, func() int64, func(), error) {
				return changes, func() int64 { return 0 }, func() { left++ }, nil
			}
			d.http = New(cfg)
			time.AfterFunc(time.Second, func() { close(d.records) })
			got := d.send("GET /admin/v1/events" + query).Body.String()
			event := "event: budget\n" + `data: {"time":"2026-05-17T12:00:00.000Z","budget":"slots","from":"warning","to":"paused","utilisation":0.93}` + "\n\n"
			if got != ": open\n\n"+event && want || !want && got != ": open\n\n" || left != 1 {
				t.Errorf("%s: %s, %d cancelled", query, got, left)
			}
		})
	}
	d := newDaemon(t)
	cfg := d.config()
	cfg.SubscribeLevels = func() (<-chan budget.LevelChange, func() int64, func(), error) {
		return nil, nil, nil, errors.New("too many")
	}
	d.http = New(cfg)
	if w := d.send("GET /admin/v1/events"); w.Code != 503 || d.left != 1 {
		t.Errorf("too many readers: %d, %d cancelled", w.Code, d.left)
	}
}
