package budget_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
)

// openStore returns a connection to a server of its own, as each process has one.
func openStore(t *testing.T, redis *redistest.Server) *redisstore.Store {
	t.Helper()
	return openStoreAt(t, redis.Addr())
}

func openStoreAt(t *testing.T, address string) *redisstore.Store {
	t.Helper()
	server := redisstore.Server{Addrs: []string{address}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second}
	s, err := redisstore.New(t.Context(), redisstore.Config{Redis: server, Timeout: 30 * time.Second}) // tests are not about a slow machine
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// slow is a budget of which nothing comes back during a test, in three horizons: a unit takes at least half an hour.
func slow(capacity int64) budget.Config {
	return budget.Config{
		Name: "main", Logger: slog.New(slog.DiscardHandler),
		Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: capacity, Per: weir.Every(8766 * time.Hour)}},
			{Limit: weir.Limit{Name: "month", Rate: 100 * capacity, Per: weir.Calendar(weir.Month, nil)}},
			budget.Prepaid("", 1000*capacity),
		},
	}
}

// ledgerOf returns what a worker has counted. Its sides must be equal.
func ledgerOf(t *testing.T, a *budget.Account) budget.Ledger {
	t.Helper()
	u, err := a.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := u.Ledgers[ruleset.Requests]
	if l.Granted+l.Overrun != l.Used+l.Returned+l.Expired+l.Open {
		t.Fatalf("the ledger does not close: %+v", l)
	}
	return l
}

// A thousand reservations at once, by workers that use some of them, cancel or overlook them, over Redis:
// not a unit too much is granted, and not one is lost.
func TestConcurrentReservationsOverRedis(t *testing.T) {
	const workers, callers, capacity = 4, 1000, 20_000
	redis := redistest.Start(t)
	accounts := make([]*budget.Account, workers)
	for i := range accounts {
		accounts[i] = weir.Must(budget.New(openStore(t, redis), slow(capacity)))
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 23)) //nolint:gosec // the same every time
			class := []string{"realtime", "backfill"}[i%2]
			c := weir.Must(accounts[i%workers].Controller(class))
			for range 3 {
				cost := 1 + rnd.Int64N(20)
				r, _, err := c.TryReserve(t.Context(), time.Duration(1+rnd.IntN(2000))*time.Millisecond, budget.Units(cost))
				switch {
				case err != nil:
					t.Errorf("reserve: %v", err)
				case r == nil: // refused
				case rnd.IntN(3) == 0: // its caller crashes
				default:
					if _, err := r.Settle(t.Context(), budget.Units(rnd.Int64N(cost+1))); err != nil {
						t.Errorf("settle: %v", err)
					}
				}
			}
		})
	}
	all.Wait()

	var sum budget.Ledger
	for _, a := range accounts {
		for ledgerOf(t, a).Open > 0 { // until what was overlooked has expired
			time.Sleep(10 * time.Millisecond)
		}
		for _, class := range a.Classes() { // what is left
			c := weir.Must(a.Controller(class))
			for d := weir.Must(c.Try(t.Context(), budget.Units(1))); d.Allowed; {
				d = weir.Must(c.Try(t.Context(), budget.Units(1)))
			}
		}
		l := ledgerOf(t, a)
		sum.Granted, sum.Returned = sum.Granted+l.Granted, sum.Returned+l.Returned
		sum.Used, sum.Expired = sum.Used+l.Used, sum.Expired+l.Expired
	}
	t.Logf("all workers: %+v", sum)
	if sum.Expired == 0 || sum.Returned == 0 {
		t.Errorf("nothing has expired, or nothing was returned: %+v", sum)
	}
	if used := sum.Used + sum.Expired; used != capacity {
		t.Errorf("%d units of %d are used, counted by the workers", used, capacity)
	}
	for _, h := range weir.Must(accounts[0].Usage(t.Context())).Horizons {
		if h.Used != capacity {
			t.Errorf("%d units are used of %q, want %d", h.Used, h.Limit, capacity)
		}
	}
}

// stores open a store of each kind.
var stores = map[string]func(*testing.T) weir.Limiter{
	"memory": func(*testing.T) weir.Limiter { return weir.Must(memstore.New(memstore.Config{})) },
	"redis":  func(t *testing.T) weir.Limiter { return openStore(t, redistest.Start(t)) },
}

// TestClassUsage: what all workers have used of the parts of classes, with what they hold and without what
// they borrow (S1.22).
func TestClassUsage(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			config := slow(1000)
			config.Classes = []budget.Class{{Name: "realtime", Share: 60, Burst: 300}, {Name: "backfill", Share: 40, Burst: 200}}
			worker, operator := weir.Must(budget.New(store, config)), weir.Must(budget.New(store, config))
			realtime, backfill := weir.Must(worker.Controller("realtime")), weir.Must(worker.Controller("backfill"))
			want := func(what string, realtime, backfill int64) {
				t.Helper()
				u := weir.Must(operator.Usage(t.Context()))
				got := []int64{u.Classes[0].Guaranteed, u.Classes[0].Used, u.Classes[1].Guaranteed, u.Classes[1].Used}
				if !slices.Equal(got, []int64{600, realtime, 400, backfill}) {
					t.Errorf("%s: %+v, want %d and %d in use", what, u.Classes, realtime, backfill)
				}
			}
			want("unused", 0, 0)
			weir.Must(backfill.Try(t.Context(), budget.Units(150)))
			want("its own", 0, 150)
			weir.Must(backfill.Try(t.Context(), budget.Units(450)))
			want("borrowed", 0, 200)
			held := weir.Must(realtime.Reserve(t.Context(), time.Minute, budget.Units(100)))
			want("held", 100, 200)
			weir.Must(held.Settle(t.Context(), budget.Units(30)))
			want("settled", 30, 200)
			if u := weir.Must(operator.Usage(t.Context())); u.Horizons[0].Used != 630 || u.Classes[0].Available != 370 {
				t.Errorf("usage: %+v", u)
			}
		})
	}
}

// Who stops waiting is charged nothing, and its place is free.
func TestCancelledWaitsChargeNothing(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			config := slow(500)
			rules := weir.Must(ruleset.Compile([]ruleset.Policy{weir.Must(config.Policy())}, nil))
			engine := weir.Must(ruleset.New(open(t), rules))
			a := weir.Must(budget.Attach(engine, config))
			c := weir.Must(a.Controller("backfill"))
			held := weir.Must(c.Reserve(t.Context(), time.Minute, budget.Units(200)))

			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error)
			for i := range 20 {
				go func() {
					if i%2 == 0 {
						errs <- c.WaitForBudget(ctx, budget.Units(10))
						return
					}
					_, err := c.Reserve(ctx, time.Minute, budget.Units(10))
					errs <- err
				}()
			}
			for engine.Waiting() < 20 {
				time.Sleep(time.Millisecond)
			}
			cancel()
			for range 20 {
				if err := <-errs; !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
			}
			if n := engine.Waiting(); n != 0 {
				t.Errorf("%d wait after all were cancelled", n)
			}
			if l := ledgerOf(t, a); l != (budget.Ledger{Granted: 200, Open: 200}) {
				t.Errorf("ledger: %+v", l)
			}
			if out, err := held.Settle(t.Context(), budget.Units(150)); err != nil || out.Refunded != 50 {
				t.Errorf("settled: %+v, %v", out, err)
			}
			if d := weir.Must(c.Try(t.Context(), budget.Units(50))); !d.Allowed || d.Remaining != 0 {
				t.Errorf("the 50 that came back: %v", d)
			}
		})
	}
}

// TestRowsOfAnAccount: an account has one row in Redis, with its name as the hash tag, for each set of limits that is decided at
// once. Classes, methods and time add none, and accounts share none. A call is one command
// (S1.15, S1.17, F1.13, F1.22).
func TestRowsOfAnAccount(t *testing.T) {
	redis := redistest.Start(t)
	store := openStore(t, redis)
	config := slowPreset(100_000, 100_000)                                  // whose rows do not expire while a slow machine compares them
	config.Clock = func() weir.Instant { return 1_800_000_000_000_000_000 } // it stands, so that the utilisation is observed once
	charge := func(account string, n int) {
		t.Helper()
		config.Name = account
		a := weir.Must(budget.New(store, config))
		for i := range n {
			c := weir.Must(a.Controller(a.Classes()[i%2]))
			method := []string{"eth_blockNumber", "eth_call", "eth_madeUp"}[i%3]
			if d, err := c.Try(t.Context(), budget.Method(method)); err != nil || !d.Allowed {
				t.Fatalf("%s: %v, %v", method, d, err)
			}
		}
	}
	charge("main", 1) // the server gets to know the scripts
	keys, commands := keysOf(t, redis), redis.CommandCalls("evalsha")
	charge("main", 12)
	if n := redis.CommandCalls("evalsha") - commands; n != 12+1 {
		t.Errorf("12 calls and an observation are %d commands", n)
	}
	if now := keysOf(t, redis); !slices.Equal(now, keys) {
		t.Errorf("12 calls of other methods and classes have changed the keys:\n%q\n%q", keys, now)
	}
	charge("other", 3)
	both := keysOf(t, redis)
	if own := len(both) - len(keys); own != strings.Count(strings.Join(both, " "), "{other") {
		t.Errorf("the keys of two accounts are %q, those of one %q", both, keys)
	}
	for _, key := range both {
		if tag := regexp.MustCompile(`\{[^{}]+\}`).FindAllString(key, -1); len(tag) != 1 || !strings.HasPrefix(key, "weir:") {
			t.Errorf("key %q has no prefix or not one hash tag", key)
		}
	}
}

// keysOf returns the keys that limits have in Redis.
func keysOf(t *testing.T, redis *redistest.Server) (keys []string) {
	t.Helper()
	for _, key := range redis.MustDo("KEYS", "*").Items {
		if key.Text != "weir:epoch" { // the store's, whatever it decides
			keys = append(keys, key.Text)
		}
	}
	slices.Sort(keys)
	return keys
}

// TestQuoteOverRedis: by the clock of Redis, a cost is refused before the instant of its quote, and admitted at that
// instant or later; who waits is not admitted earlier, either. The limits that refuse are a rate with classes and a window.
func TestQuoteOverRedis(t *testing.T) {
	redis := redistest.Start(t)
	a := weir.Must(budget.New(openStore(t, redis), budget.Config{
		Name: "main", Logger: slog.New(slog.DiscardHandler), Thresholds: budget.Thresholds{Pause: new(budget.Off)}, // at which a call may be admitted before the quoted instant
		Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 200, Per: weir.Every(time.Second), Burst: 100}},
			{Limit: weir.Limit{Name: "window", Rate: 150, Per: weir.Every(time.Second), Algorithm: weir.SlidingLog}},
		},
	}))
	c := weir.Must(a.Controller("backfill"))
	limits := map[string]int{}
	for i := 0; i < 30 || len(limits) < 2 && !t.Failed(); i++ { // on a slow machine there may be room each time
		cost := budget.Units(int64(7 + 11*(i%3)))
		before := clockOf(redis)
		q := weir.Must(c.Quote(t.Context(), cost))
		notBefore, notAfter := before.Add(q.Wait), clockOf(redis).Add(q.Wait) // the instant lies between them
		limits[q.LimitedBy]++
		if i%2 == 0 {
			if err := c.WaitForBudget(t.Context(), cost); err != nil {
				t.Fatal(err)
			}
			if now := clockOf(redis); now.Before(notBefore) {
				t.Errorf("call %d, limited by %q: who waits was admitted %v too early", i, q.LimitedBy, notBefore.Sub(now))
			}
			continue
		}
		for allowed := false; !allowed; {
			began := clockOf(redis)
			allowed = weir.Must(c.Try(t.Context(), cost)).Allowed
			if ended := clockOf(redis); allowed && ended.Before(notBefore) {
				t.Errorf("call %d, limited by %q: admitted %v before the quoted instant", i, q.LimitedBy, notBefore.Sub(ended))
			}
			if !allowed && began.After(notAfter) {
				t.Errorf("call %d, limited by %q: refused %v after the quoted instant", i, q.LimitedBy, began.Sub(notAfter))
			}
		}
	}
}

// clockOf returns the time of Redis, by which it decides.
func clockOf(redis *redistest.Server) time.Time {
	now := redis.MustDo("TIME").Items
	seconds, micros := weir.Must(strconv.ParseInt(now[0].Text, 10, 64)), weir.Must(strconv.ParseInt(now[1].Text, 10, 64))
	return time.Unix(seconds, micros*1000)
}
