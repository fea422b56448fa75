package budget

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// compile returns the rules of budgets.
func compile(t *testing.T, previous *ruleset.Rules, list ...Config) *ruleset.Rules {
	t.Helper()
	var policies []ruleset.Policy
	for _, c := range list {
		p, err := c.Policy()
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p)
	}
	rules, err := ruleset.Compile(policies, previous)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// attach returns an engine in memory and the account of its only policy.
func attach(t *testing.T, c Config) (*ruleset.Engine, *Account) {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	engine, err := ruleset.New(weir.Must(memstore.New(memstore.Config{})), compile(t, nil, c))
	if err != nil {
		t.Fatal(err)
	}
	a, err := Attach(engine, c)
	if err != nil {
		t.Fatal(err)
	}
	return engine, a
}

// replace puts another configuration in force, as the daemon does.
func replace(t *testing.T, engine *ruleset.Engine, a *Account, c Config) {
	t.Helper()
	if err := engine.Set(t.Context(), compile(t, engine.Rules(), c)); err != nil {
		t.Fatal(err)
	}
	c.Logger = slog.New(slog.DiscardHandler)
	if err := a.Replace(c); err != nil {
		t.Fatal(err)
	}
}

// TestReplace: limits, classes, costs and thresholds change; what was counted stays.
func TestReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, err := BuiltinTable("alchemy")
		if err != nil {
			t.Fatal(err)
		}
		limit := ruleset.Limit{Unit: "cu", Limit: weir.Limit{Rate: 500, Per: weir.Every(time.Hour)}}
		engine, a := attach(t, Config{Name: "main", Limits: []ruleset.Limit{limit}, Costs: table})
		c := controller(t, a, "backfill")
		if d, err := c.Try(t.Context(), Method("eth_call")); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if _, err := c.Try(t.Context(), Method("eth_madeUp")); err != nil {
			t.Fatal(err)
		}
		held, err := c.Reserve(t.Context(), time.Minute, Units(100))
		if err != nil {
			t.Fatal(err)
		}
		a.Cool(time.Hour)
		before := usage(t, a)

		limit.Rate = 1000
		dearer, err := table.With(Overrides{Methods: map[string]Amounts{"eth_call": {"cu": 90}}})
		if err != nil {
			t.Fatal(err)
		}
		replace(t, engine, a, Config{
			Name: "main", Limits: []ruleset.Limit{limit}, Costs: dearer,
			Classes: []Class{{Name: "live", Share: 50}, {Name: "bulk", Share: 50}},
		})
		u := usage(t, a)
		if u.Horizons[0].Capacity != 1000 || u.Horizons[0].Used != before.Horizons[0].Used || u.Classes[0].Class != "live" {
			t.Errorf("horizons %+v, classes %+v; before %+v", u.Horizons, u.Classes, before.Horizons)
		}
		if u.Ledgers["cu"] != before.Ledgers["cu"] || u.Methods["eth_call"] != 1 || u.UnknownMethods["eth_madeUp"] != 1 || u.CooldownMs != before.CooldownMs {
			t.Errorf("what was counted: %+v, before %+v", u, before)
		}
		if _, err := held.Settle(t.Context(), Units(40)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if l := usage(t, a).Ledgers["cu"]; l.Open != 0 || l.Returned != 60 {
			t.Errorf("settled after the change: %+v", l)
		}
		live := controller(t, a, "live")
		if d, err := live.Try(t.Context(), Method("eth_call")); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		if l := usage(t, a).Ledgers["cu"]; l.Granted != before.Ledgers["cu"].Granted+90 {
			t.Errorf("a dearer call: %+v, before %+v", l, before.Ledgers["cu"])
		}
	})
}

// TestReplaceRefused: a configuration with something wrong changes nothing.
func TestReplaceRefused(t *testing.T) {
	table, err := BuiltinTable("alchemy")
	if err != nil {
		t.Fatal(err)
	}
	_, a := attach(t, document001())
	before := a.config()
	for want, c := range map[string]Config{
		"cannot be renamed":             {Name: "other", Limits: []ruleset.Limit{perSecond(1)}},
		"is no preset":                  {Name: "main", Preset: "x"},
		"name a preset":                 {Name: "main"},
		"must not be less than Warning": {Name: "main", Limits: []ruleset.Limit{perSecond(1)}, Thresholds: Thresholds{Warning: new(95)}},
		"burst":                         {Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: -1}}}},
		`"x": is a unit which table`:    {Name: "main", Costs: table, Limits: []ruleset.Limit{{Unit: "x", Limit: weir.PerSecond(100)}}},
	} {
		if err := a.Replace(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if a.config() != before {
			t.Errorf("%s: it was replaced", want)
		}
	}
}

// TestReplaceThresholds: the level follows the new thresholds from the next observation on. A pause
// that a threshold has begun which is not in force any more, ends.
func TestReplaceThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Hour)}}}}
		c.Thresholds = Thresholds{Warning: new(50), Pause: new(60), Resume: new(40)}
		engine, a := attach(t, c)
		try(t, controller(t, a, "realtime"), 60)
		time.Sleep(2 * time.Second)
		usage(t, a)
		time.Sleep(2 * time.Second)
		if u := usage(t, a); a.Level() != Paused {
			t.Fatalf("level %v at %v", a.Level(), u.Utilisation)
		}
		replace(t, engine, a, c)
		if usage(t, a); a.Level() != Paused {
			t.Errorf("the same thresholds: %v", a.Level())
		}
		c.Thresholds = Thresholds{Pause: new(Off), Resume: new(40)}
		replace(t, engine, a, c)
		if a.Level() != Paused {
			t.Errorf("before an observation: %v", a.Level())
		}
		if usage(t, a); a.Level() != Normal {
			t.Errorf("without a pause: %v", a.Level())
		}
	})
}

// TestRemoved: an account whose policy has left the rules does not crash, whoever uses it.
func TestRemoved(t *testing.T) {
	engine, a := attach(t, document001())
	c := controller(t, a, "")
	held, err := c.Reserve(t.Context(), 0, Units(10))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Set(t.Context(), compile(t, nil, Config{Name: "other", Limits: []ruleset.Limit{perSecond(1)}})); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"try":     func() error { _, err := c.Try(t.Context(), Units(1)); return err },
		"wait":    func() error { return c.WaitForBudget(t.Context(), Units(1)) },
		"reserve": func() error { _, err := c.Reserve(t.Context(), 0, Units(1)); return err },
		"quote":   func() error { _, err := c.Quote(t.Context(), Units(1)); return err },
		"usage":   func() error { _, err := a.Usage(t.Context()); return err },
		"learn": func() error {
			return a.Learn(t.Context(), map[string][]string{"X-Ratelimit-Limit-Requests": {"500"}, "X-Ratelimit-Remaining-Requests": {"0"}})
		},
	} {
		if err := call(); !errors.Is(err, ErrRemoved) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a.Classes() != nil || a.Units() != nil || c.Class() != "" || c.ShouldPause(t.Context()) {
		t.Errorf("classes %q, units %q, class %q", a.Classes(), a.Units(), c.Class())
	}
	if out, err := held.Settle(t.Context(), Units(4)); err != nil || out.Refunded != 6 {
		t.Errorf("settled: %+v, %v", out, err)
	}
	u, _ := a.Usage(t.Context())
	if l := u.Ledgers["requests"]; !l.closes() || l.Used != 4 || l.Open != 0 {
		t.Errorf("ledger: %+v", l)
	}
	if err := engine.Set(t.Context(), compile(t, nil, document001())); err != nil {
		t.Fatal(err)
	}
	if d := try(t, c, 1); !d.Allowed {
		t.Errorf("after its return: %v", d)
	}
}

// TestReplaceWhileInUse has charges and changes at the same time; under the race detector.
func TestReplaceWhileInUse(t *testing.T) {
	engine, a := attach(t, document001())
	var wg sync.WaitGroup
	for i := range 4 {
		c := controller(t, a, []string{"realtime", "backfill"}[i%2])
		wg.Go(func() {
			for range 200 {
				if _, err := c.Try(t.Context(), Units(1)); err != nil {
					t.Error(err)
				}
				if r, _, err := c.TryReserve(t.Context(), 0, Units(1)); err != nil {
					t.Error(err)
				} else if r != nil {
					_, _ = r.Cancel(t.Context())
				}
				_, _ = a.Usage(t.Context())
			}
		})
	}
	for i := range 50 {
		c := document001()
		c.Limits = []ruleset.Limit{perSecond(500 + int64(i))}
		replace(t, engine, a, c)
	}
	wg.Wait()
	if l := usage(t, a).Ledgers["requests"]; l.Open != 0 {
		t.Errorf("ledger: %+v", l)
	}
}
