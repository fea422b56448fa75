package budget

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestPrepare: what a query of somebody else costs, and what is refused.
func TestPrepare(t *testing.T) {
	table, err := BuiltinTable("alchemy")
	if err != nil {
		t.Fatal(err)
	}
	in := func(units ...string) Config {
		c := Config{Name: "main", Costs: table, Classes: []Class{}}
		for _, unit := range units {
			c.Limits = append(c.Limits, ruleset.Limit{Unit: unit, Limit: weir.Limit{Name: unit, Rate: 1000, Per: weir.Every(time.Second)}})
		}
		return c
	}
	requests := Config{Name: "main", Limits: []ruleset.Limit{perSecond(10)}}
	cost := func(list ...any) (out []ruleset.Cost) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, ruleset.Cost{Unit: list[i].(string), Amount: int64(list[i+1].(int))})
		}
		return out
	}
	tests := []struct {
		config Config
		q      ruleset.Query
		want   []ruleset.Cost
		err    string
	}{
		{requests, ruleset.Query{Cost: 1, Implied: true}, cost("requests", 1), ""},
		{requests, ruleset.Query{Key: "-", Cost: 3}, cost("requests", 3), ""},
		{requests, ruleset.Query{Key: "account", Cost: 0}, cost("requests", 0), ""},
		{requests, ruleset.Query{Key: "alice", Cost: 3}, nil, `"key" is not for "main", which is a budget`},
		{requests, ruleset.Query{Implied: true, Cost: 1, Methods: []string{"eth_call"}}, nil, `"method" has no cost: account "main" has no table of costs`},
		{in("cu"), ruleset.Query{Cost: 26}, cost("cu", 26), ""},
		{in("cu"), ruleset.Query{Cost: 1, Implied: true}, nil, `"cost" is missing: the budget counts cu`},
		{in("cu", "throughput"), ruleset.Query{Cost: 26}, cost("cu", 26, "throughput", 26), ""},
		{in("requests", "cu"), ruleset.Query{Cost: 26}, cost("requests", 1, "cu", 26), ""},
		{in("requests", "cu"), ruleset.Query{Cost: 1, Implied: true, Costs: cost("cu", 7)}, cost("cu", 7, "requests", 1), ""},
		{in("cu", "throughput"), ruleset.Query{Cost: 1, Implied: true, Costs: cost("throughput", 7)}, cost("throughput", 7, "cu", 0), ""},
		{in("cu"), ruleset.Query{Cost: 1, Implied: true, Costs: cost("x", 7)}, cost("x", 7, "cu", 0), ""},
		{in("cu", "throughput"), ruleset.Query{Cost: 1, Implied: true, Methods: []string{"eth_sendRawTransaction"}}, cost("cu", 40, "throughput", 250), ""},
		{in("requests", "cu"), ruleset.Query{Cost: 1, Implied: true, Methods: []string{"eth_call", "eth_getLogs"}}, cost("requests", 1, "cu", 86), ""},
		{in("cu"), ruleset.Query{Cost: 5, Methods: []string{"eth_call"}}, nil, `"method" says what the call costs`},
		{in("cu"), ruleset.Query{Cost: 1, Implied: true, Costs: cost("cu", 7), Methods: []string{"eth_call"}}, nil, `"method" says what the call costs`},
	}
	for _, tt := range tests {
		_, a := attach(t, tt.config)
		r, err := a.rule()
		if err != nil {
			t.Fatal(err)
		}
		q := tt.q
		err = a.Prepare(r, &q)
		if tt.err != "" {
			_, bad := errors.AsType[*ruleset.InputError](err)
			if !bad || !strings.Contains(err.Error(), tt.err) || q.Key != tt.q.Key {
				t.Errorf("%+v: %v, want %s", tt.q, err, tt.err)
			}
			continue
		}
		if err != nil || q.Key != "account" || !q.Implied || !slices.Equal(q.Costs, tt.want) {
			t.Errorf("%+v: %+v, %v; want %v", tt.q, q, err, tt.want)
		}
	}
}

// Methods that the table refuses are the caller's mistake.
func TestPrepareUnknownMethod(t *testing.T) {
	table, err := BuiltinTable("alchemy")
	if err != nil {
		t.Fatal(err)
	}
	if table, err = table.With(Overrides{Unknown: &Unknown{Refuse: true}}); err != nil {
		t.Fatal(err)
	}
	_, a := attach(t, Config{Name: "main", Preset: "alchemy-free", Costs: table})
	r, _ := a.rule()
	q := ruleset.Query{Cost: 1, Implied: true, Methods: []string{"eth_madeUp"}}
	err = a.Prepare(r, &q)
	if bad, ok := errors.AsType[*ruleset.InputError](err); !ok || bad.Field != "method" || !strings.Contains(bad.Problem, `"eth_madeUp"`) {
		t.Error(err)
	}
	batch := ruleset.Query{Implied: true, Methods: []string{"eth_call", "eth_madeUp"}}
	if err := a.Prepare(r, &batch); err == nil || !strings.Contains(err.Error(), `has no cost: call 1 of the batch: unknown method "eth_madeUp"`) {
		t.Errorf("in a batch: %v", err)
	}
	if n := usage(t, a).UnknownMethods["eth_madeUp"]; n != 2 {
		t.Errorf("%d unknown calls", n)
	}
}

// foreign charges an account as the daemon does: with a query that was made elsewhere.
type foreign struct {
	t      *testing.T
	engine *ruleset.Engine
	a      *Account
}

func (f *foreign) reserve(n int64, ttl time.Duration) *ruleset.Ticket {
	f.t.Helper()
	r, q := f.engine.Rules().Rule(f.a.Name()), &ruleset.Query{Cost: n, Alone: true}
	if err := f.a.Prepare(r, q); err != nil {
		f.t.Fatal(err)
	}
	v, ticket, err := f.engine.Reserve(f.t.Context(), r, q, ttl)
	if err != nil || ticket == nil {
		f.t.Fatal(v, err)
	}
	f.a.Held(f.t.Context(), q, &v, ticket, ttl)
	if ticket, err = ruleset.ParseTicket(ticket.String(), ""); err != nil { // as callers hold it
		f.t.Fatal(err)
	}
	return ticket
}

// TestForeignLedger: the ledger closes whoever settles a reservation, and however.
func TestForeignLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Name: "main", Limits: []ruleset.Limit{
			{Unit: "cu", Limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)}},
			{Unit: "requests", Limit: weir.Limit{Name: "calls", Rate: 1000, Per: weir.Every(time.Hour)}},
		}}
		engine, a := attach(t, c)
		_, other := attach(t, c) // another process, which settles what it has not granted
		f := &foreign{t, engine, a}
		settle := func(a *Account, ticket *ruleset.Ticket, used ruleset.Used) {
			t.Helper()
			for range 2 { // a repeated call changes nothing
				if _, err := a.Settle(t.Context(), ticket, used); err != nil {
					t.Error(err)
				}
			}
		}
		settle(a, f.reserve(100, 0), ruleset.Used{All: true})
		settle(a, f.reserve(100, 0), ruleset.Used{None: true})
		settle(a, f.reserve(100, 0), ruleset.Used{HaveCost: true, Cost: 30})
		settle(a, f.reserve(100, 0), ruleset.Used{Costs: []ruleset.Cost{{Unit: "cu", Amount: 130}}})
		want := Ledger{Granted: 400, Overrun: 30, Used: 100 + 30 + 130, Returned: 100 + 70}
		if l := usage(t, a).Ledgers["cu"]; l != want {
			t.Errorf("settled here: %+v, want %+v", l, want)
		}
		if l := usage(t, a).Ledgers["requests"]; l.Granted != 4 || l.Used != 3 || l.Returned != 1 {
			t.Errorf("requests: %+v", l)
		}

		elsewhere := f.reserve(50, time.Minute)
		if _, err := engine.Settle(t.Context(), elsewhere, ruleset.Used{None: true}); err != nil { // by another process
			t.Fatal(err)
		}
		renewed := f.reserve(20, time.Minute)
		if ok, err := a.Renew(t.Context(), renewed, 3*time.Minute); err != nil || !ok {
			t.Fatal(ok, err)
		}
		time.Sleep(2 * time.Minute)
		want.Granted, want.Expired, want.Open = 470, 50, 20
		if l := usage(t, a).Ledgers["cu"]; l != want {
			t.Errorf("one that was settled elsewhere, and a renewed one: %+v, want %+v", l, want)
		}
		settle(a, renewed, ruleset.Used{HaveCost: true, Cost: 5})
		settle(a, elsewhere, ruleset.Used{All: true})
		want.Open, want.Used, want.Returned = 0, want.Used+5, want.Returned+15
		if l := usage(t, a).Ledgers["cu"]; l != want {
			t.Errorf("afterwards: %+v, want %+v", l, want)
		}
		if len(usage(t, other).Ledgers) != 0 {
			t.Error("what another process was granted is counted here")
		}
		if ok, err := a.Renew(t.Context(), renewed, time.Minute); ok || err != nil {
			t.Errorf("a settled one was renewed: %v, %v", ok, err)
		}
	})
}

// TestForeignMisspelt: what was used of a unit that nobody counts is an error, and the reservation stays open. Of a
// unit that a reload has removed there is nothing to settle.
func TestForeignMisspelt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Name: "main", Limits: []ruleset.Limit{
			{Unit: "cu", Limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)}},
			{Unit: "tokens", Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: weir.Every(time.Hour)}},
		}}
		engine, a := attach(t, c)
		ticket := (&foreign{t, engine, a}).reserve(100, 0)
		settle := func(unit string) (weir.Settled, error) {
			return a.Settle(t.Context(), ticket, ruleset.Used{Costs: []ruleset.Cost{{Unit: "cu", Amount: 40}, {Unit: unit, Amount: 30}}})
		}
		_, err := settle("tokenz")
		if bad, ok := errors.AsType[*ruleset.InputError](err); !ok || bad.Field != "used" || !strings.Contains(bad.Problem, `"tokenz", which the budget does not count; it counts cu, tokens`) {
			t.Errorf("a misspelt unit: %v", err)
		}
		if l := usage(t, a).Ledgers["cu"]; l.Open != 100 {
			t.Errorf("after the error: %+v", l)
		}

		c.Limits, c.Logger = c.Limits[:1], slog.New(slog.DiscardHandler)
		if err := engine.Set(t.Context(), weir.Must(ruleset.Compile([]ruleset.Policy{weir.Must(c.Policy())}, nil))); err != nil {
			t.Fatal(err)
		}
		if err := a.Replace(c); err != nil {
			t.Fatal(err)
		}
		if out, err := settle("tokens"); err != nil || out.Late {
			t.Errorf("a unit that was removed meanwhile: %+v, %v", out, err)
		}
		if l := usage(t, a).Ledgers["cu"]; l.Used != 40 || l.Returned != 60 {
			t.Errorf("afterwards: %+v", l)
		}
	})
}

// TestExpiredAreForgotten: reservations that nobody settles do not stay in memory, also if nobody asks
// for the usage.
func TestExpiredAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, a := attach(t, Config{Name: "main", Limits: []ruleset.Limit{perSecond(1000)}})
		f := &foreign{t, engine, a}
		f.a.observed.Store(1 << 62) // nobody observes
		for range 100 {
			for range 10 {
				f.reserve(1, 5*time.Second)
			}
			time.Sleep(500 * time.Millisecond)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if n := len(a.open); n > 130 {
			t.Errorf("%d reservations are open, of which 100 have not expired", n)
		}
	})
}

// TestForeignPaused: at the level Paused no class borrows, whoever makes the charges.
func TestForeignPaused(t *testing.T) {
	for pause, level := range map[int]Level{20: Paused, Off: Normal} {
		synctest.Test(t, func(t *testing.T) {
			engine, a := attach(t, Config{
				Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Hour)}}},
				Thresholds: Thresholds{Warning: new(Off), Pause: new(pause), Resume: new(10)},
			})
			r := engine.Rules().Rule("main")
			charge := func(class string, n int64) bool {
				t.Helper()
				q := &ruleset.Query{Class: class, Cost: n, Alone: true}
				if err := a.Prepare(r, q); err != nil {
					t.Fatal(err)
				}
				v, err := engine.Check(t.Context(), r, q)
				if err != nil {
					t.Fatal(err)
				}
				a.Charged(t.Context(), q, &v)
				return v.Allowed
			}
			if !charge("backfill", 40) {
				t.Error("40 of 100 are refused")
			}
			time.Sleep(2 * time.Second) // the average of a second
			if usage(t, a); a.Level() != level {
				t.Errorf("pause at %d: level %v", pause, a.Level())
			}
			time.Sleep(34 * time.Second) // one unit is back, of which 0.4 are backfill's
			if borrows := charge("backfill", 1); borrows != (level == Normal) {
				t.Errorf("pause at %d: backfill borrows: %v", pause, borrows)
			}
			if !charge("realtime", 60) {
				t.Errorf("pause at %d: realtime does not get its own share", pause)
			}
		})
	}
}
