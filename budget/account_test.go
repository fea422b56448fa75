package budget

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

func perSecond(n int64) ruleset.Limit { return ruleset.Limit{Limit: weir.PerSecond(n)} }

// document001 is document 001's budget: 500 per second, of which 300 are reserved for real-time work.
func document001() Config { return Config{Name: "main", Limits: []ruleset.Limit{perSecond(500)}} }

func newAccount(t *testing.T, c Config) *Account {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := New(weir.Must(memstore.New(memstore.Config{})), c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// testLog is a log that tests read.
type testLog struct{ text bytes.Buffer }

func (l *testLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&l.text, nil)) }

// lines returns the lines since the last call, without the time.
func (l *testLog) lines() (list []string) {
	for line := range strings.Lines(l.text.String()) {
		_, rest, _ := strings.Cut(line, " ")
		list = append(list, strings.TrimSuffix(rest, "\n"))
	}
	l.text.Reset()
	return list
}

func controller(t *testing.T, a *Account, class string) *Controller {
	t.Helper()
	c, err := a.Controller(class)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func try(t *testing.T, c *Controller, cost int64) weir.Decision {
	t.Helper()
	d, err := c.Try(t.Context(), Units(cost))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func usage(t *testing.T, a *Account) Usage {
	t.Helper()
	u, err := a.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for unit, l := range u.Ledgers {
		if !l.closes() {
			t.Errorf("the ledger of %s does not close: %+v", unit, l)
		}
	}
	return u
}

// TestDocument001 is its budget, with the corrections: priorities that lend (S1.9, S1.10, F1.2).
func TestDocument001(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		realtime, backfill := controller(t, a, "realtime"), controller(t, a, "backfill")
		if d := try(t, backfill, 200); !d.Allowed {
			t.Errorf("backfill's share: %v", d)
		}
		if d := try(t, backfill, 1); d.Allowed || d.RetryAfter != 2*time.Millisecond {
			t.Errorf("backfill beyond its share: %v, want a retry at the whole rate", d)
		}
		if d := try(t, realtime, 300); !d.Allowed {
			t.Errorf("realtime is disturbed: %v", d)
		}
		u := usage(t, a)
		if got := u.Horizons[0]; got.Used != 500 || got.Capacity != 500 {
			t.Errorf("usage: %+v", u)
		}
		want := []ClassUsage{{Class: "realtime", Guaranteed: 300, Used: 300, Capacity: 300}, {Class: "backfill", Guaranteed: 200, Used: 200, Capacity: 200}}
		if !slices.Equal(u.Classes, want) {
			t.Errorf("classes %+v, want %+v", u.Classes, want)
		}
	})
}

// TestCostLimits: F1.3, F1.21.
func TestCostLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		backfill := controller(t, a, "backfill")
		if err := backfill.WaitForBudget(t.Context(), Units(300)); !errors.Is(err, ErrTooCostly) || !strings.Contains(err.Error(), "at most 200") {
			t.Errorf("300 of a capacity of 200: %v", err)
		}
		if _, err := backfill.Reserve(t.Context(), 0, Units(300)); !errors.Is(err, ErrTooCostly) {
			t.Errorf("reserving 300 of a capacity of 200: %v", err)
		}
		if _, err := backfill.Try(t.Context(), Units(-1)); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("a negative cost: %v", err)
		}
		try(t, backfill, 200)
		if d := try(t, backfill, 0); !d.Allowed {
			t.Errorf("a cost of 0 is refused: %v", d)
		}
		if l := usage(t, a).Ledgers["requests"]; l.Granted != 200 {
			t.Errorf("ledger: %+v", l)
		}
	})
}

// TestWaitForBudget: S1.19, S1.34, F1.16.
func TestWaitForBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		backfill := controller(t, a, "backfill")
		try(t, backfill, 200)
		start := time.Now()
		if err := backfill.WaitForBudget(t.Context(), Units(150)); err != nil || time.Since(start) != 300*time.Millisecond {
			t.Errorf("150 units at 500 per second: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		before := usage(t, a).Ledgers["requests"]
		if err := backfill.WaitForBudget(ctx, Units(150)); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if after := usage(t, a).Ledgers["requests"]; after != before {
			t.Errorf("a cancelled wait was charged: %+v, then %+v", before, after)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start = time.Now()
		err := backfill.WaitForBudget(ctx, Units(150))
		if denied, ok := errors.AsType[*weir.DeniedError](err); !ok || denied.Decision.Reason != weir.TooLate || time.Since(start) != 0 {
			t.Errorf("too short a deadline: %v after %v", err, time.Since(start))
		}
	})
}

// outage is a limiter that is unavailable for a while.
type outage struct {
	weir.Limiter
	end time.Time
	err error // of calls before the end
}

func (o *outage) Do(ctx context.Context, b *weir.Batch) error {
	if time.Now().Before(o.end) {
		return o.err
	}
	return o.Limiter.Do(ctx, b)
}

func (o *outage) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if time.Now().Before(o.end) {
		return weir.Decision{}, o.err
	}
	return o.Limiter.Take(ctx, p, key, cost)
}

// TestWaitForStore: who waits goes on when the store is available again, whichever way the outage shows: as an
// error, or as a refusal of what a tier must not or cannot decide alone.
func TestWaitForStore(t *testing.T) {
	table := func() weir.Limiter { return weir.Must(memstore.New(memstore.Config{})) }
	tests := []struct {
		name  string
		tier  bool
		on    weir.OnError
		nodes int
		cost  int64
		wait  bool // for the end of the outage
	}{
		{"error", false, 0, 0, 150, true},
		{"fails closed", true, weir.FailClosed, 1, 150, true},
		{"more than the share of a node", true, weir.FailLocal, 2, 150, true},
		{"the share of a node", true, weir.FailLocal, 2, 100, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lasts = 3 * time.Second
				o := &outage{table(), time.Now().Add(lasts), weir.ErrUnavailable}
				var l weir.Limiter = o
				if tt.tier {
					tier := weir.Must(tiered.New(tiered.Config{Store: o, Local: table(), Nodes: tt.nodes}))
					defer tier.Close()
					l = tier
				}
				c := document001()
				c.OnError, c.Logger = tt.on, slog.New(slog.DiscardHandler)
				a, err := New(l, c)
				if err != nil {
					t.Fatal(err)
				}
				backfill, began := controller(t, a, "backfill"), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), lasts/2)
				defer cancel()
				if err := backfill.WaitForBudget(ctx, Units(tt.cost)); tt.wait && !errors.Is(err, context.DeadlineExceeded) || !tt.wait && err != nil {
					t.Errorf("during the outage: %v", err)
				}
				r, err := backfill.Reserve(t.Context(), 0, Units(tt.cost))
				if err != nil {
					t.Fatal(err)
				}
				if waited := !time.Now().Before(o.end); waited != tt.wait {
					t.Errorf("reserved after %v", time.Since(began))
				}
				if _, err := r.Commit(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestWaitBacksOff: errors of the store are retried after 100 ms, 200 ms and so on, and after a success after 100 ms again
// (S1.12, S1.18, S1.19, F1.15). The end of the context shows with its cause (F1.16).
func TestWaitBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outage{Limiter: weir.Must(memstore.New(memstore.Config{})), err: weir.ErrUnavailable}
		backfill := controller(t, weir.Must(New(o, document001())), "backfill")
		for range 2 {
			began := time.Now()
			o.end = began.Add(500 * time.Millisecond)
			if err := backfill.WaitForBudget(t.Context(), Units(1)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < 700*time.Millisecond || took > 770*time.Millisecond { // each is up to a tenth longer
				t.Errorf("an outage of 500 ms delays by %v, want 100 + 200 + 400 ms", took)
			}
		}
		o.end, o.err = time.Now().Add(time.Second), errors.Join(weir.ErrUnavailable, weir.ErrUnknown)
		if err := backfill.WaitForBudget(t.Context(), Units(1)); !errors.Is(err, weir.ErrUnknown) {
			t.Errorf("what may have been charged is tried again: %v", err)
		}
		o.end, o.err = time.Now().Add(time.Hour), weir.ErrUnavailable
		ctx, cancel := context.WithCancelCause(t.Context())
		stopping := errors.New("stopping")
		time.AfterFunc(time.Minute, func() { cancel(stopping) })
		if err := backfill.WaitForBudget(ctx, Units(1)); !errors.Is(err, context.Canceled) || !errors.Is(err, stopping) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestWaitingIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		backfill, realtime := controller(t, a, "backfill"), controller(t, a, "realtime")
		try(t, backfill, 200)
		var mu sync.Mutex
		var order []int
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				r, err := backfill.Reserve(t.Context(), 0, Units(10))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				_, _ = r.Commit(t.Context())
			})
			synctest.Wait()
		}
		if d := try(t, realtime, 300); !d.Allowed {
			t.Errorf("realtime stands behind backfill: %v", d)
		}
		wait.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("order %v", order)
			}
		}
	})
}

// TestReserveSettle: what is not used comes back at that instant.
func TestReserveSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)}}}, Classes: []Class{}})
		c := controller(t, a, "")
		r, err := c.Reserve(t.Context(), time.Minute, Units(1000))
		if err != nil {
			t.Fatal(err)
		}
		if d := try(t, c, 1); d.Allowed {
			t.Errorf("1,000 are reserved: %v", d)
		}
		if out, err := r.Settle(t.Context(), Units(137)); err != nil || out.Refunded != 863 {
			t.Errorf("settled: %+v, %v", out, err)
		}
		if d := try(t, c, 863); !d.Allowed {
			t.Errorf("863 are back: %v", d)
		}
		if l := usage(t, a).Ledgers["requests"]; l != (Ledger{Granted: 1863, Used: 1000, Returned: 863}) {
			t.Errorf("ledger: %+v", l)
		}
	})
}

// TestConcurrentReservations: never a unit too much, and the ledger closes after abandoned ones expire.
func TestConcurrentReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 500, Per: weir.Every(24 * time.Hour)}}}, Classes: []Class{{Name: "all", Share: 100}}})
		c := controller(t, a, "all")
		var granted atomic.Int64
		var wait sync.WaitGroup
		for i := range 1000 {
			wait.Go(func() {
				r, _, err := c.TryReserve(t.Context(), time.Minute, Units(7))
				if err != nil {
					t.Error(err)
				}
				if r == nil {
					return
				}
				granted.Add(7)
				if i%2 == 0 {
					_, _ = r.Settle(t.Context(), Units(7))
				} // else its worker has crashed
			})
		}
		wait.Wait()
		if n := granted.Load(); n != 497 {
			t.Errorf("%d units were granted of 500, want 71 × 7", n)
		}
		time.Sleep(2 * time.Minute)
		l := usage(t, a).Ledgers["requests"]
		if l.Open != 0 || l.Granted != 497 || l.Used+l.Expired != 497 {
			t.Errorf("after the expiry: %+v", l)
		}
	})
}

// TestThresholds: S1.20, S1.21, F1.14: 400, 450, 480 of 500 run, pause, pause.
func TestThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := document001()
		c.Limits[0].Per = weir.Every(100 * time.Hour) // so slow that nothing comes back meanwhile
		var changes []string
		c.OnLevel = func(l LevelChange) { changes = append(changes, l.From.String()+"-"+l.To.String()) }
		c.Classes = []Class{{Name: "all", Share: 100}}
		a := newAccount(t, c)
		all := controller(t, a, "all")
		for _, step := range []struct {
			take        int64
			pause       bool
			utilisation float64
		}{{400, false, 0.8}, {50, true, 0.9}, {30, true, 0.96}} {
			try(t, all, step.take)
			time.Sleep(2 * time.Second) // the average of a second
			if got := all.ShouldPause(t.Context()); got != step.pause {
				t.Errorf("after %d more: pause %v at %+v", step.take, got, usage(t, a).Horizons)
			}
			if got, err := a.Utilisation(t.Context()); err != nil || got != step.utilisation {
				t.Errorf("after %d more: utilisation %v, %v, want %v", step.take, got, err, step.utilisation)
			}
		}
		for all.ShouldPause(t.Context()) {
			if u := usage(t, a); u.Utilisation < 0.75 {
				t.Fatalf("paused at %v", u.Utilisation)
			}
			time.Sleep(10 * time.Minute)
		}
		if got := strings.Join(changes, " "); got != "normal-warning warning-paused paused-normal" {
			t.Errorf("levels: %s", got)
		}
	})
}

// TestPausedDoesNotBorrow: at the level Paused a class keeps its own share and borrows nothing, not even of an idle class.
func TestPausedDoesNotBorrow(t *testing.T) {
	for pause, want := range map[int]time.Duration{40: 100 * time.Hour / 200, 41: 100 * time.Hour / 500} {
		synctest.Test(t, func(t *testing.T) {
			c := document001()
			c.Limits[0].Per = weir.Every(100 * time.Hour)
			c.Thresholds = Thresholds{Warning: new(Off), Pause: new(pause)}
			a := newAccount(t, c)
			realtime, backfill := controller(t, a, "realtime"), controller(t, a, "backfill")
			try(t, backfill, 200)
			time.Sleep(2 * time.Second) // the average of a second
			if paused := pause == 40; backfill.ShouldPause(t.Context()) != paused {
				t.Fatalf("40%% are used, and a pause is at %d%%: %+v", pause, usage(t, a))
			}
			if d := try(t, backfill, 1); d.Allowed || d.RetryAfter != want-2*time.Second {
				t.Errorf("backfill with a pause at %d%%: %v, want a retry after %v", pause, d, want)
			}
			if d := try(t, realtime, 300); !d.Allowed {
				t.Errorf("realtime has its share: %v", d)
			}
		})
	}
}

// TestQuote: the instant of a quote is the one that execution gets.
func TestQuote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "a", Preset: "alchemy-free"})
		backfill := controller(t, a, "backfill")
		for i := range 200 {
			cost := Method([]string{"eth_getLogs", "eth_getBlockReceipts", "eth_call"}[i%3])
			q, err := backfill.Quote(t.Context(), cost)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := backfill.WaitForBudget(t.Context(), cost); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != q.Wait {
				t.Fatalf("call %d: quoted %v, took %v", i, q.Wait, took)
			}
		}
		b := newAccount(t, Config{Name: "b", Preset: "alchemy-free"})
		other := controller(t, b, "backfill")
		best, q, err := QuoteBest(t.Context(), Method("eth_getBlockReceipts"), backfill, other)
		if err != nil || best != other || !q.Allowed || q.Account != "b" {
			t.Errorf("best: %+v, %v", q, err)
		}

		b.Cool(time.Minute) // longer than a has to wait
		best, q, err = QuoteBest(t.Context(), Method("eth_getBlockReceipts"), backfill, other)
		if err != nil || best != backfill || q.Wait >= time.Minute {
			t.Errorf("best while the provider wants no calls of b: %+v, %v", q, err)
		}
		if q, err := other.Quote(t.Context(), Units(0)); err != nil || q.Allowed || q.Wait != time.Minute {
			t.Errorf("of a cost of 0: %+v, %v", q, err)
		}
		q, err = other.Quote(t.Context(), Method("eth_call"))
		start := time.Now()
		if err := errors.Join(err, other.WaitForBudget(t.Context(), Method("eth_call"))); err != nil || q.Allowed || q.Wait != time.Since(start) {
			t.Errorf("quoted %+v, took %v: %v", q, time.Since(start), err)
		}
	})
}

// TestQuoteWhilePaused: nobody is admitted later than the quote says, and who could borrow is admitted earlier if the
// pause ends before. A cost that needs to borrow waits for the end of the pause.
func TestQuoteWhilePaused(t *testing.T) {
	for _, tt := range []struct {
		what         string
		cost         int64
		resume       int           // percent of utilisation
		quoted, took time.Duration // 2 s after it has used 200 of its own, of which 2 per second are back, and 100 of nobody's
	}{
		{"the pause goes on", 50, 10, 23 * time.Second, 23 * time.Second},
		{"the pause ends before", 100, 18, 48 * time.Second, 37*time.Second + 250*time.Millisecond},
		{"it needs to borrow", 250, 18, 250 * time.Millisecond, 48 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := document001()
			c.Limits[0].Per, c.Limits[0].Burst = weir.Every(100*time.Second), 600
			c.Classes = []Class{{Name: "realtime", Share: 60, Burst: 300}, {Name: "backfill", Share: 40, Burst: 200}}
			c.Thresholds = Thresholds{Warning: new(Off), Pause: new(40), Resume: &tt.resume}
			a := newAccount(t, c)
			backfill := controller(t, a, "backfill")
			try(t, backfill, 300)
			time.Sleep(2 * time.Second)
			if !backfill.ShouldPause(t.Context()) {
				t.Fatalf("%+v", usage(t, a))
			}
			q, err := backfill.Quote(t.Context(), Units(tt.cost))
			start := time.Now()
			if err := errors.Join(err, backfill.WaitForBudget(t.Context(), Units(tt.cost))); err != nil {
				t.Fatal(err)
			}
			// A caller whose quarter of a second is over several times comes up to 50 ms later, as if others had been faster.
			took := time.Since(start)
			if q.Wait != tt.quoted || took < tt.took || took > tt.took+50*time.Millisecond || tt.took <= tt.quoted && took > q.Wait {
				t.Errorf("%s: quoted %v, took %v, want %v and %v", tt.what, q.Wait, took, tt.quoted, tt.took)
			}
		})
	}
}

// TestQuoteBehindOthers: a quote includes what waiting callers of the class get before, and is exact as long as all of that
// fits at once.
func TestQuoteBehindOthers(t *testing.T) {
	hundred := document001()
	hundred.Limits[0].Per = weir.Every(5 * time.Second)
	for name, tt := range map[string]struct {
		config Config
		most   int64 // what backfill can have at once
	}{"one limit": {hundred, 200}, "several limits": {Config{Name: "main", Preset: "alchemy-free"}, 500}} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				synctest.Test(t, func(t *testing.T) {
					tt.config.Thresholds = Thresholds{Pause: new(Off)}
					a, random := newAccount(t, tt.config), rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // the same every time
					realtime, backfill := controller(t, a, "realtime"), controller(t, a, "backfill")
					for range 40 {
						try(t, realtime, random.Int64N(150))
						try(t, backfill, random.Int64N(150))
						time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					}
					for try(t, backfill, 1).Allowed {
					}
					left := tt.most
					for range random.IntN(10) {
						cost := 1 + random.Int64N(left/2)
						left -= cost
						go func() {
							if err := backfill.WaitForBudget(t.Context(), Units(cost)); err != nil {
								t.Error(err)
							}
						}()
						synctest.Wait()
					}
					q, err := backfill.Quote(t.Context(), Units(left))
					start := time.Now()
					if err := errors.Join(err, backfill.WaitForBudget(t.Context(), Units(left))); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(start); took != q.Wait || took == 0 {
						t.Errorf("seed %d: quoted %v for %d units, took %v", seed, q.Wait, left, took)
					}
				})
			}
		})
	}
}

// TestQuoteOfReservation: a quote is for units that are used. What classes hold beyond their own is limited, so that a
// reservation may have to wait longer.
func TestQuoteOfReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{
			Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 10}}},
			Classes: []Class{{Name: "a", Guaranteed: 1, Burst: 1}, {Name: "b", Guaranteed: 1, Burst: 1}, {Name: "c", Guaranteed: 1, Burst: 6}}, // 2 are nobody's
		})
		try(t, controller(t, a, "c"), 6)
		time.Sleep(600 * time.Millisecond) // in which c gets none of its own back
		held, err := controller(t, a, "a").Reserve(t.Context(), time.Minute, Units(3))
		if err != nil {
			t.Fatal(err)
		}
		b := controller(t, a, "b")
		if q, err := b.Quote(t.Context(), Units(2)); err != nil || !q.Allowed {
			t.Errorf("quote: %+v, %v", q, err)
		}
		if r, d, err := b.TryReserve(t.Context(), time.Minute, Units(2)); r != nil || err != nil {
			t.Errorf("reserved: %v, %v", d, err)
		}
		if d := try(t, b, 2); !d.Allowed {
			t.Errorf("used: %v", d)
		}
		if _, err := held.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestQuoteOfClasses: a quote says which limit refuses a class, and which class of an account is served first.
func TestQuoteOfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		realtime, backfill := controller(t, a, "realtime"), controller(t, a, "backfill")
		try(t, backfill, 200)
		for cost, want := range map[int64]Quote{
			10:  {Account: "main", Class: "backfill", Wait: 20 * time.Millisecond, LimitedBy: "main"},
			300: {Account: "main", Class: "backfill", Never: true, Wait: weir.Never, LimitedBy: "main"},
		} {
			if got, err := backfill.Quote(t.Context(), Units(cost)); err != nil || got != want {
				t.Errorf("%d units: %+v, %v, want %+v", cost, got, err, want)
			}
		}
		want := Quote{Account: "main", Class: "realtime", Allowed: true}
		if best, got, err := QuoteBest(t.Context(), Units(10), backfill, realtime); err != nil || best != realtime || got != want {
			t.Errorf("best: %+v, %v, want %+v", got, err, want)
		}
	})
}

// TestMonthPacing: non-urgent use is at most the ramp at the end of any day; what was not used stays.
func TestMonthPacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which begins on 2000-01-01
		april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(april))
		a := newAccount(t, Config{
			Name: "main", Pace: []string{"backfill"},
			Limits: []ruleset.Limit{perSecond(1_000_000), {Limit: weir.Limit{Name: "month", Rate: 30_000_000, Per: weir.Calendar(weir.Month, nil)}}},
		})
		realtime, backfill := controller(t, a, "realtime"), controller(t, a, "backfill")
		if d := try(t, realtime, 10_000); !d.Allowed {
			t.Errorf("realtime is paced: %v", d)
		}
		for day := 1; day <= 30; day++ {
			time.Sleep(time.Until(april.AddDate(0, 0, day).Add(-time.Minute))) // on the last day, the month is not over
			before := usage(t, a).Horizons[1].Used
			for day%3 != 2 && try(t, backfill, 10_000).Allowed { // every third day has nothing to do: it is carried over
				time.Sleep(20 * time.Millisecond)
			}
			used, ramp := usage(t, a).Horizons[1].Used, int64(time.Since(april)/(24*time.Hour/1_000_000))
			if day%3 != 2 && (used > ramp || used <= ramp-10_000) || day%3 == 2 && used != before {
				t.Errorf("at the end of day %d %d are used, and %d were before; the ramp is at %d", day, used, before, ramp)
			}
		}
		time.Sleep(time.Until(april.AddDate(0, 1, 0)))
		if used, d := usage(t, a).Horizons[1].Used, try(t, backfill, 1); used != 0 || d.Allowed {
			t.Errorf("as May begins %d are used, and backfill gets %v", used, d)
		}
	})
}

// TestLearn: the provider's view tightens, never loosens.
func TestLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{
			Name: "llm", Classes: []Class{},
			Limits: []ruleset.Limit{
				{Unit: "tokens", Limit: weir.PerMinute(10_000)},
				{Unit: "requests", Limit: weir.Limit{Name: "requests", Rate: 100, Per: weir.Every(time.Minute)}},
			},
		})
		c := controller(t, a, "")
		if _, err := c.Try(t.Context(), In(Amounts{"tokens": 1000})); err != nil {
			t.Fatal(err)
		}
		learn := func(remaining string) int64 {
			time.Sleep(time.Millisecond)
			h := http.Header{}
			h.Set("X-Ratelimit-Limit-Tokens", "10000")
			h.Set("X-Ratelimit-Remaining-Tokens", remaining)
			h.Set("X-Ratelimit-Reset-Tokens", "6s")
			a.learning.last.Store(0)
			if err := a.Learn(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			return usage(t, a).Horizons[0].Remaining
		}
		if got := learn("9900"); got != 9000 {
			t.Errorf("the provider has more, and the account has %d now", got)
		}
		if got := learn("4000"); got != 4000 {
			t.Errorf("the provider has 4,000 left, the account %d", got)
		}
		if got := usage(t, a).Drift["tokens"]; got != 5000 {
			t.Errorf("drift %d, want 5,000", got)
		}
	})
}

func TestCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		c := controller(t, a, "backfill")
		a.Cool(2 * time.Second)
		a.Cool(time.Second) // never shortened
		if d := try(t, c, 1); d.Allowed || d.RetryAfter != 2*time.Second {
			t.Errorf("while cooling: %v", d)
		}
		start := time.Now()
		if err := c.WaitForBudget(t.Context(), Units(1)); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		for _, want := range []time.Duration{100, 200, 400} {
			if d := c.RecordFailure(); d < want*time.Millisecond || d > want*time.Millisecond*11/10 {
				t.Errorf("back-off %v, want %d ms and up to a tenth", d, want)
			}
			if d := c.RecordFailure(); d > want*time.Millisecond*11/10 {
				t.Errorf("another call that was refused before the back-off: %v", d)
			}
			time.Sleep(a.Cooldown())
		}
		c.RecordSuccess()
		if d := c.RecordFailure(); d > 110*time.Millisecond {
			t.Errorf("after a success: %v", d)
		}
	})
}

// TestWaitForNothing: what costs nothing needs no room, and waits in no line, but for the provider.
func TestWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		c := controller(t, a, "backfill")
		try(t, c, 200)
		began := time.Now()
		wait := func(what string, deadline, returns time.Duration, late bool) {
			t.Helper()
			ctx, cancel := context.WithDeadline(t.Context(), began.Add(deadline))
			defer cancel()
			err := c.WaitForBudget(ctx, Units(0))
			denied, _ := errors.AsType[*weir.DeniedError](err)
			if tooLate := denied != nil && denied.Decision.Reason == weir.TooLate; (err != nil) != late || tooLate != late || time.Since(began) != returns {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		const s = time.Second
		wait("nothing is left", s, 0, false)
		a.Cool(2 * s)
		wait("a deadline in the cooldown", s, 0, true)
		wait("until its end", 3*s, 2*s, false)
		a.Cool(2 * s)
		time.AfterFunc(s/2, func() { a.Cool(9*s + s/2) })
		wait("a cooldown that is extended beyond the deadline", 6*s, 3*s, true)
		wait("a cooldown that was extended", 20*s, 12*s, false)
		if l := usage(t, a).Ledgers["requests"]; l != (Ledger{Granted: 200, Used: 200}) {
			t.Errorf("ledger: %+v", l)
		}
	})
}

// TestSoftAndPrepaid: a soft limit admits; a prepaid amount does not come back, and can be raised.
func TestSoftAndPrepaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soft := ruleset.Limit{Limit: weir.Limit{Name: "day", Rate: 100, Per: weir.Calendar(weir.Day, nil)}, Mode: ruleset.Shadow}
		prepaid := func(n int64) Config {
			return Config{Name: "main", Limits: []ruleset.Limit{perSecond(500), soft, Prepaid("", n)}}
		}
		engine, a := attach(t, prepaid(1000))
		c := controller(t, a, "backfill")
		for range 5 {
			if d := try(t, c, 200); !d.Allowed {
				t.Fatalf("beyond the soft limit: %v", d)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(1000 * time.Hour)
		if d := try(t, c, 1); d.Allowed {
			t.Errorf("the prepaid amount is used up: %v", d)
		}
		u := usage(t, a)
		if u.SoftExceeded != 5 || !u.Horizons[2].Soft || u.Horizons[1].Used != 1000 {
			t.Errorf("usage: %+v", u)
		}
		replace(t, engine, a, prepaid(1500))
		for _, cost := range []int64{200, 200, 100} {
			if d := try(t, c, cost); !d.Allowed {
				t.Errorf("%d of the 500 that were added: %v", cost, d)
			}
			time.Sleep(time.Second)
		}
		if d := try(t, c, 1); d.Allowed {
			t.Errorf("more than was added: %v", d)
		}
	})
}

// TestSoftIsLogged: the first call beyond a soft limit is a warning, and then every thousandth.
func TestSoftIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testLog
		soft := ruleset.Limit{Limit: weir.Limit{Name: "day", Rate: 100, Per: weir.Calendar(weir.Day, nil)}, Mode: ruleset.Shadow}
		a := newAccount(t, Config{Name: "main", Limits: []ruleset.Limit{perSecond(1_000_000), soft}, Logger: log.logger()})
		c := controller(t, a, "realtime")
		const line = `level=WARN msg="budget: a call was admitted beyond a soft limit" account=main limit=main.day calls=%d`
		for i, step := range []struct {
			calls int
			want  []string
		}{{100, nil}, {5, []string{fmt.Sprintf(line, 1)}}, {995, nil}, {1, []string{fmt.Sprintf(line, 1001)}}} {
			for range step.calls {
				try(t, c, 1)
			}
			if got := log.lines(); !slices.Equal(got, step.want) {
				t.Errorf("step %d: logged %q, want %q", i, got, step.want)
			}
		}
	})
}

func TestUsageJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 4, 11, 0, 0, 0, 0, time.UTC)))
		a := newAccount(t, Config{Name: "main", Preset: "alchemy-free"})
		c := controller(t, a, "realtime")
		if err := c.WaitForBudget(t.Context(), In(Amounts{"cu": 20_000_000, "throughput": 250})); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitForBudget(t.Context(), Method("eth_call")); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(usage(t, a))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`"account":"main"`, `"limit":"month","unit":"cu","soft":false,"capacity":30000000,"used":20000026`,
			`"since":"2026-04-01T00:00:00Z","per_day":2000002.6`, `"exhausted":"2026-04-15T`, `"methods":{"eth_call":1}`, `{"class":"realtime","guaranteed":291,"used":276,"capacity":750,"available":474}`,
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("usage lacks %s:\n%s", want, text)
			}
		}
	})
}

// TestShares: shares are rounded down to whole units, and classes of a limit's own are paused, too.
func TestShares(t *testing.T) {
	c := document001()
	c.Classes = []Class{{Name: "a", Share: 12.35}, {Name: "b", Share: 87.65}, {Name: "c"}}
	own := document001()
	own.Limits[0].Classes = weir.ClassesOf(weir.Class{Name: "x", Guaranteed: 100}, weir.Class{Name: "y"})
	for want, c := range map[string]Config{"[a=61 b=438 c=0] [a=61! b=438! c=0]": c, "[x=100 y=0] [x=100! y=0]": own} {
		p, err := c.Policy()
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(p.Limits[0].Classes.List(), p.Plans[0].Limits[0].Classes.List())
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no limits", func(c *Config) { c.Limits = nil }, "name a preset"},
		{"preset", func(c *Config) { c.Preset = "x" }, "is no preset: use alchemy-free"},
		{"shares", func(c *Config) { c.Classes = []Class{{Name: "a", Share: 60}, {Name: "b", Share: 50}} }, "at most the rate 500"},
		{"more than all", func(c *Config) { c.Classes = []Class{{Name: "a", Share: 100.01}} }, "Classes[0].Share 100.01: must be 0 to 100 percent"},
		{"less than a hundredth", func(c *Config) { c.Classes = []Class{{Name: "a"}, {Name: "b", Share: 12.345}} }, "Classes[1].Share 12.345: must be"},
		{"class burst", func(c *Config) { c.Classes = []Class{{Name: "b"}, {Name: "a", Share: 50, Burst: 600}} }, "Classes[1].burst"},
		{"limit", func(c *Config) { c.Preset, c.Limits[0].Name, c.Limits[0].Rate = "alchemy-free", "mine", 0 }, "Limits[0].rate"},
		{"share and guaranteed", func(c *Config) { c.Classes = []Class{{Name: "a", Share: 60, Guaranteed: 1}} }, "say one of them"},
		{"nothing to share", func(c *Config) {
			c.Classes = []Class{{Name: "a", Share: 60}}
			c.Limits[0].Per = weir.Calendar(weir.Month, nil)
		}, "and there is none"},
		{"nothing for the default classes", func(c *Config) { c.Limits[0].Per = weir.Calendar(weir.Month, nil) }, "Limits: the default classes (realtime 60 %, backfill 40 %) need a limit with a period such as a second or a minute: add one, or write Classes: []Class{}"},
		{"thresholds", func(c *Config) { c.Thresholds.Pause = new(101) }, "Pause"},
		{"pace", func(c *Config) {
			c.Pace = []string{"x"}
			c.Limits = append(c.Limits, Prepaid("", 1))
			c.Limits = append(c.Limits, ruleset.Limit{Limit: weir.Limit{Name: "m", Rate: 1, Per: weir.Calendar(weir.Month, nil)}})
		}, `"x" is no class`},
		{"pace of two limits", func(c *Config) {
			c.Pace = []string{"x"}
			for _, unit := range []weir.CalendarUnit{weir.Day, weir.Month} {
				c.Limits = append(c.Limits, ruleset.Limit{Limit: weir.Limit{Name: fmt.Sprint("n", unit), Rate: 1, Per: weir.Calendar(unit, nil)}})
			}
		}, `"x" is no class`},
		{"units", func(c *Config) { c.Costs = weir.Must(BuiltinTable("alchemy")); c.Limits[0].Unit = "tokens" }, "which table"},
	}
	for _, tt := range tests {
		c := document001()
		tt.change(&c)
		if _, err := New(weir.Must(memstore.New(memstore.Config{})), c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		} else if lines := strings.Split(err.Error(), "\n"); len(slices.Compact(slices.Clone(lines))) != len(lines) {
			t.Errorf("%s: a problem is there twice: %v", tt.name, err)
		}
	}
}

// A slowPeek is a limiter whose peeks take a while, as over a network.
type slowPeek struct{ weir.Limiter }

func (s slowPeek) Do(ctx context.Context, b *weir.Batch) error {
	err := s.Limiter.Do(ctx, b)
	if b.Op == weir.PeekEach {
		time.Sleep(time.Millisecond)
	}
	return err
}

// TestLearnAtOnce: fifty responses that say at once that nothing is left are one difference.
func TestLearnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{
			Name: "llm", Classes: []Class{}, Logger: slog.New(slog.DiscardHandler),
			Limits: []ruleset.Limit{{Unit: "tokens", Limit: weir.Limit{Rate: 10_000, Per: weir.Every(time.Hour)}}},
		}
		a := weir.Must(New(slowPeek{weir.Must(memstore.New(memstore.Config{}))}, c))
		h := http.Header{}
		h.Set("X-Ratelimit-Limit-Tokens", "10000")
		h.Set("X-Ratelimit-Remaining-Tokens", "0")
		h.Set("X-Ratelimit-Reset-Tokens", "3600s")
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if err := a.Learn(t.Context(), h); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := usage(t, a).Drift["tokens"]; got != 10_000 {
			t.Errorf("%d units were charged, want 10,000", got)
		}
	})
}

// TestReload: what is reserved stays reserved when classes are renamed or the account's policy is removed
// from its engine, and can be settled; a removed policy admits nothing.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		compiled := func(policies ...ruleset.Policy) *ruleset.Rules {
			return weir.Must(ruleset.Compile(policies, nil))
		}
		c := document001()
		c.Logger = slog.New(slog.DiscardHandler)
		renamed := c
		renamed.Classes = []Class{{Name: "realtime", Share: 60}, {Name: "bulk", Share: 40}}
		other := ruleset.Policy{Name: "other", Limits: []ruleset.Limit{perSecond(1)}}
		engine := weir.Must(ruleset.New(weir.Must(memstore.New(memstore.Config{})), compiled(weir.Must(c.Policy()), other)))
		a := weir.Must(Attach(engine, c))
		backfill := controller(t, a, "backfill")
		held := weir.Must(backfill.Reserve(t.Context(), time.Minute, Units(150)))

		if err := engine.Set(t.Context(), compiled(weir.Must(renamed.Policy()), other)); err != nil {
			t.Fatal(err)
		}
		if _, err := backfill.Try(t.Context(), Units(1)); err == nil || !strings.Contains(err.Error(), "it has realtime, bulk") {
			t.Errorf("a class that was renamed: %v", err)
		}
		if d := try(t, controller(t, a, "bulk"), 51); d.Allowed {
			t.Errorf("150 of its 200 are held under its old name: %v", d)
		}
		if d := try(t, controller(t, a, "realtime"), 300); !d.Allowed {
			t.Errorf("the other class: %v", d)
		}

		if err := engine.Set(t.Context(), compiled(other)); err != nil {
			t.Fatal(err)
		}
		if _, err := backfill.Try(t.Context(), Units(1)); !errors.Is(err, ErrRemoved) {
			t.Errorf("after the removal: %v", err)
		}
		if out, err := held.Settle(t.Context(), Units(50)); err != nil || out.Refunded != 100 {
			t.Errorf("settled after the removal: %+v, %v", out, err)
		}
	})
}

// TestManyWait: a thousand callers wait for one class, and all are served, in their order.
func TestManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		backfill := controller(t, a, "backfill")
		try(t, backfill, 200)
		var served []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				if err := backfill.WaitForBudget(t.Context(), Units(1)); err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
				mu.Lock()
				defer mu.Unlock()
				served = append(served, i)
			})
			synctest.Wait()
		}
		all.Wait()
		if !slices.IsSorted(served) || len(served) != 1000 {
			t.Errorf("%d were served, sorted %v", len(served), slices.IsSorted(served))
		}
	})
}

// TestTryInOutage: OnError decides, a refusal says when to try again, and the usage is an error, not nothing used (S1.33, F1.19).
func TestTryInOutage(t *testing.T) {
	table := func() weir.Limiter { return weir.Must(memstore.New(memstore.Config{})) }
	tests := []struct {
		on      weir.OnError
		granted int64 // of 5 × 100 units, by one of two nodes
	}{{weir.FailClosed, 0}, {weir.FailLocal, 200}, {weir.FailOpen, 500}}
	for _, tt := range tests {
		t.Run(tt.on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &outage{table(), time.Now().Add(time.Minute), weir.ErrUnavailable}
				tier := weir.Must(tiered.New(tiered.Config{Store: o, Local: table(), Nodes: 2}))
				defer tier.Close()
				c := document001()
				c.OnError, c.Classes, c.Logger = tt.on, []Class{}, slog.New(slog.DiscardHandler)
				a := weir.Must(New(tier, c))
				all := controller(t, a, "")
				for range 5 {
					if d := try(t, all, 100); !d.Allowed && d.RetryAfter <= 0 {
						t.Errorf("a refusal without a time: %v", d)
					}
				}
				if got := a.ledger["requests"]; got == nil && tt.granted > 0 || got != nil && got.Granted != tt.granted {
					t.Errorf("granted: %+v, want %d", got, tt.granted)
				}
				bare := weir.Must(New(o, c))
				if _, err := bare.Usage(t.Context()); !errors.Is(err, weir.ErrUnavailable) {
					t.Errorf("the usage during an outage: %v", err)
				}
			})
		})
	}
}

// TestLearnOtherLimit: a header may be about another limit than ours, such as one of a second beside ours of a minute.
// What the provider never has, nobody has used.
func TestLearnOtherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "llm", Classes: []Class{}, Limits: []ruleset.Limit{{Unit: "tokens", Limit: weir.PerMinute(600)}}})
		try(t, controller(t, a, ""), 7)
		learn := func(limit, remaining string) int64 {
			a.learning.last.Store(0)
			h := http.Header{}
			h.Set("X-Ratelimit-Limit-Tokens", limit)
			h.Set("X-Ratelimit-Remaining-Tokens", remaining)
			if err := a.Learn(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			return usage(t, a).Drift["tokens"]
		}
		for _, tt := range []struct {
			limit, remaining string
			drift            int64 // in all
		}{
			{"10", "3", 0},     // as many as we have used
			{"10", "1", 2},     // 2 more
			{"10", "0", 3},     // 1 more
			{"6000", "591", 3}, // of a greater limit, there is more left than of ours
			{"6000", "500", 93},
			{"600", "490", 103},
		} {
			if got := learn(tt.limit, tt.remaining); got != tt.drift {
				t.Errorf("%s of %s left: drift %d, want %d", tt.remaining, tt.limit, got, tt.drift)
			}
		}
	})
}

// TestLearnMatches: which limit a view is about, and that what several views say of a unit is one difference.
func TestLearnMatches(t *testing.T) {
	per := func(unit, name string, rate int64, period time.Duration) ruleset.Limit {
		return ruleset.Limit{Unit: unit, Limit: weir.Limit{Name: name, Rate: rate, Per: weir.Every(period)}}
	}
	soft := per("tokens", "soft", 50, time.Second)
	softDay := per("tokens", "day", 1000, 24*time.Hour)
	soft.Mode, softDay.Mode = ruleset.Shadow, ruleset.Shadow
	credits, tokens := []ruleset.Limit{per("credits", "", 100, time.Hour)}, []ruleset.Limit{per("tokens", "", 100, time.Hour)}
	several := []ruleset.Limit{per("tokens", "day", 1000, 24*time.Hour), per("tokens", "", 100, time.Hour), soft, per("credits", "credits", 100, time.Hour)}
	tests := []struct {
		name    string
		limits  []ruleset.Limit
		headers string
		want    map[string]int64 // the drift
	}{
		{"no unit is named, and there is one", credits, "X-Ratelimit-Limit: 100, X-Ratelimit-Remaining: 10", map[string]int64{"credits": 30}},
		{"no unit is named, and there are two", several, "X-Ratelimit-Limit: 100, X-Ratelimit-Remaining: 60", nil},
		{"another unit", credits, "X-Ratelimit-Limit-Tokens: 100, X-Ratelimit-Remaining-Tokens: 10", nil},
		{
			"requests beside the unit that is counted", tokens,
			"X-Ratelimit-Limit-Requests: 500, X-Ratelimit-Remaining-Requests: 0, X-Ratelimit-Limit-Tokens: 100, X-Ratelimit-Remaining-Tokens: 30",
			map[string]int64{"tokens": 10},
		},
		{"the longest limit, by and by", several, "X-Ratelimit-Limit-Tokens: 1000, X-Ratelimit-Remaining-Tokens: 70", map[string]int64{"tokens": 50}},
		{"the longest limit, a little", several, "X-Ratelimit-Limit-Tokens: 1000, X-Ratelimit-Remaining-Tokens: 970", map[string]int64{"tokens": 30}},
		{"the longest limit, which is given later", []ruleset.Limit{several[1], several[0]}, "X-Ratelimit-Limit-Tokens: 1000, X-Ratelimit-Remaining-Tokens: 70", map[string]int64{"tokens": 20}},
		{"a limit that has a longer one", several, "X-Ratelimit-Limit-Tokens: 100, X-Ratelimit-Remaining-Tokens: 70", nil},
		{"a soft limit is longer", []ruleset.Limit{tokens[0], softDay}, "X-Ratelimit-Limit-Tokens: 100, X-Ratelimit-Remaining-Tokens: 10", nil},
		{"an unknown limit is that of the shortest", several, "X-Ratelimit-Limit-Tokens: 5000, X-Ratelimit-Remaining-Tokens: 70", nil},
		{"an unknown limit, of the only one", tokens, "X-Ratelimit-Limit-Tokens: 5000, X-Ratelimit-Remaining-Tokens: 10", map[string]int64{"tokens": 30}},
		{"the capacity of a class", tokens, "X-Ratelimit-Limit-Tokens: 20, X-Ratelimit-Remaining-Tokens: 15", nil}, // no more than the 60
		{"no limit is named, nor when there is more", tokens, "X-Ratelimit-Remaining-Tokens: 0", nil},
		{"no limit is named, and there is more soon", tokens, "X-Ratelimit-Remaining-Tokens: 0, X-Ratelimit-Reset-Tokens: 1s", nil},
		{"no limit is named, and there is more in an hour", tokens, "X-Ratelimit-Remaining-Tokens: 10, X-Ratelimit-Reset-Tokens: 1h", map[string]int64{"tokens": 30}},
		{"no limit is named, of one that is short", []ruleset.Limit{per("tokens", "", 100, time.Minute)}, "X-Ratelimit-Remaining-Tokens: 10", map[string]int64{"tokens": 30}},
		{
			"twice the same", tokens,
			"X-Ratelimit-Limit-Tokens: 100, X-Ratelimit-Remaining-Tokens: 20, Anthropic-Ratelimit-Tokens-Limit: 100, Anthropic-Ratelimit-Tokens-Remaining: 10",
			map[string]int64{"tokens": 30},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, Config{Name: "main", Classes: []Class{{Name: "low", Share: 20}, {Name: "high", Share: 80}}, Limits: tt.limits})
				if tt.limits[0].Name == "" { // 60 are used
					all := Amounts{}
					for _, unit := range a.Units() {
						all[unit] = 60
					}
					if d := weir.Must(controller(t, a, "high").Try(t.Context(), In(all))); !d.Allowed {
						t.Fatal(d)
					}
				}
				h := http.Header{}
				for line := range strings.SplitSeq(tt.headers, ", ") {
					name, value, _ := strings.Cut(line, ": ")
					h.Set(name, value)
				}
				if err := a.Learn(t.Context(), h); err != nil {
					t.Fatal(err)
				}
				if got := usage(t, a).Drift; !maps.Equal(got, tt.want) {
					t.Errorf("drift %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// TestLearnOfWindows: an honest provider counts by windows, in which it has less left than a bucket has. Nobody else uses
// the account, so its month must have what was sent, and no more.
func TestLearnOfWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Classes: []Class{}, Limits: []ruleset.Limit{
			perSecond(100),
			{Limit: weir.Limit{Name: "month", Rate: 1_000_000, Per: weir.Calendar(weir.Month, time.UTC)}},
		}})
		window, left := int64(0), 0
		c := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			if now := time.Now().Unix(); now != window {
				window, left = now, 100
			}
			left--
			w := httptest.NewRecorder()
			w.Header().Set("X-Ratelimit-Limit", "100")
			w.Header().Set("X-Ratelimit-Remaining", strconv.Itoa(left))
			w.Header().Set("X-Ratelimit-Reset", "1")
			return w.Result(), nil
		})}}
		for range 600 {
			fetch(t, c, "GET", "http://provider", "")
			time.Sleep(time.Second / 60)
		}
		if u := usage(t, a); u.Horizons[1].Used != 600 || len(u.Drift) > 0 {
			t.Errorf("600 requests were sent, and %d of the month are used, of which others have used %v", u.Horizons[1].Used, u.Drift)
		}
	})
}

// TestLearnOfMonth: of half a month that others have used the account learns bit by bit, and goes on meanwhile.
func TestLearnOfMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Classes: []Class{}, Limits: []ruleset.Limit{
			perSecond(100),
			{Limit: weir.Limit{Name: "month", Rate: 10_000, Per: weir.Calendar(weir.Month, time.UTC)}},
		}})
		h := http.Header{"X-Ratelimit-Limit": {"10000"}, "X-Ratelimit-Remaining": {"5000"}}
		c := controller(t, a, "")
		for second := 0; usage(t, a).Drift["requests"] < 5000; second++ {
			if second > 200 {
				t.Fatalf("after %d s, others have used %v", second, usage(t, a).Drift)
			}
			if err := a.Learn(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if q := weir.Must(c.Quote(t.Context(), Units(1))); !q.Allowed {
				t.Fatalf("nothing can be sent for %v", q.Wait)
			}
			time.Sleep(time.Second)
		}
		if left := usage(t, a).Horizons[1].Remaining; left != 5000 {
			t.Errorf("%d of the month are left, want 5,000", left)
		}
	})
}

// TestLearnSometimes: ten times a second, or whenever nothing is left.
func TestLearnSometimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Classes: []Class{}, Limits: []ruleset.Limit{{Unit: "tokens", Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Hour)}}}})
		for _, step := range []struct {
			remaining string
			drift     int64
			pass      time.Duration
		}{
			{"90", 10, 99 * time.Millisecond},
			{"80", 10, time.Millisecond}, // too early
			{"80", 20, 0},
			{"70", 20, 0},
			{"0", 100, 0},
		} {
			h := http.Header{}
			h.Set("X-Ratelimit-Limit-Tokens", "100")
			h.Set("X-Ratelimit-Remaining-Tokens", step.remaining)
			if err := a.Learn(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if got := usage(t, a).Drift["tokens"]; got != step.drift {
				t.Errorf("%s remain: drift %d, want %d", step.remaining, got, step.drift)
			}
			time.Sleep(step.pass)
		}
	})
}

// TestUnknownUnits: amounts of a unit that nobody counts are misspelt, and not free.
func TestUnknownUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Preset: "alchemy-free"})
		c := controller(t, a, "backfill")
		_, err := c.Try(t.Context(), In(Amounts{"thruput": 20}))
		if !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), `does not count "thruput"; it counts throughput`) {
			t.Errorf("a misspelt unit: %v", err)
		}
		if d, err := c.Try(t.Context(), In(Amounts{"cu": 20, "throughput": 20, "requests": 1})); err != nil || !d.Allowed {
			t.Errorf("units of the table: %v, %v", d, err)
		}
		held := weir.Must(c.Reserve(t.Context(), time.Minute, In(Amounts{"throughput": 20})))
		if _, err := held.Settle(t.Context(), In(Amounts{"tokens": 1})); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("settled in a misspelt unit: %v", err)
		}
		weir.Must(held.Cancel(t.Context()))
		wantLedger(t, a, "throughput", Ledger{Granted: 40, Used: 20, Returned: 20})
	})
}

// TestQuoteBestOfFailing: an account that cannot be asked does not keep the others from being used.
func TestQuoteBestOfFailing(t *testing.T) {
	good := controller(t, newAccount(t, Config{Name: "good", Preset: "alchemy-free"}), "backfill")
	bad := controller(t, newAccount(t, Config{Name: "bad", Limits: []ruleset.Limit{perSecond(500)}}), "backfill") // without a table
	best, q, err := QuoteBest(t.Context(), Method("eth_call"), bad, good)
	if err != nil || best != good || !q.Allowed {
		t.Errorf("best: %+v, %v", q, err)
	}
	if _, _, err := QuoteBest(t.Context(), Method("eth_call"), bad); err == nil || !strings.Contains(err.Error(), "no table of costs") {
		t.Errorf("of none: %v", err)
	}
	if _, _, err := QuoteBest(t.Context(), Units(1)); err == nil {
		t.Error("no controllers, and no error")
	}
}

// TestMoney: money in millionths beside tokens, and each family of models is an account of its own.
func TestMoney(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := weir.Must(memstore.New(memstore.Config{}))
		family := func(name string) *Account {
			return weir.Must(New(store, Config{
				Name: name, Classes: []Class{}, Logger: slog.New(slog.DiscardHandler),
				Limits: []ruleset.Limit{
					{Unit: "tokens", Limit: weir.PerMinute(1_000_000)},
					{Unit: "microdollars", Limit: weir.Limit{Name: "month", Rate: 2_500_000_000_000, Per: weir.Calendar(weir.Month, nil)}},
				},
			}))
		}
		large, small := family("large-models"), family("small-models")
		held := weir.Must(controller(t, large, "").Reserve(t.Context(), time.Minute, In(Amounts{"tokens": 200_000, "microdollars": 15_000_000})))
		weir.Must(held.Settle(t.Context(), In(Amounts{"tokens": 180_001, "microdollars": 13_500_075})))
		wantLedger(t, large, "microdollars", Ledger{Granted: 15_000_000, Used: 13_500_075, Returned: 1_499_925})
		if h := usage(t, large).Horizons[1]; h.Used != 13_500_075 || h.Remaining != 2_500_000_000_000-13_500_075 {
			t.Errorf("the month: %+v", h)
		}
		if u := usage(t, small); u.Horizons[0].Used != 0 || u.Horizons[1].Used != 0 {
			t.Errorf("another family has used %+v", u.Horizons)
		}
	})
}

// TestForgottenName: a limit whose name was forgotten does not replace the preset's main limit, which counts
// something else.
func TestForgottenName(t *testing.T) {
	month := weir.Limit{Rate: 30_000_000, Per: weir.Calendar(weir.Month, nil)}
	c := Config{Name: "main", Preset: "alchemy-free", Limits: []ruleset.Limit{{Unit: "cu", Limit: month}}}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "Limits[0]") {
		t.Errorf("without a name: %v", err)
	}
	month.Name = "month"
	c.Limits[0].Limit = month
	if err := c.Validate(); err != nil {
		t.Errorf("with a name: %v", err)
	}
}
