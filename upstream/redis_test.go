package upstream

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/redisstore"
)

// TestPoolsShareLimitsOverRedis has two processes with the same key: its limit is that of both.
func TestPoolsShareLimitsOverRedis(t *testing.T) {
	redis := redistest.Start(t)
	var sent atomic.Int64
	p := &provider{answer: func(*http.Request, string) (*http.Response, error) {
		sent.Add(1)
		return reply(200, "{}"), nil
	}}
	c := Config{Name: "eth", Transport: p, Logger: slog.New(slog.DiscardHandler), MaxWait: -1, Endpoints: []Endpoint{
		endpointAt("a", limited(Rate{PerMinute: 30}), withBudget("main")), endpointAt("b", limited(Rate{PerMinute: 30}), withBudget("main")),
	}}
	main := budget.Config{Name: "main", Classes: []budget.Class{}, Limits: []ruleset.Limit{budget.Prepaid("", 1000)}}
	var pools []*Pool
	for range 2 {
		pools = append(pools, weir.Must(New(storeAt(t, redis.Addr()), c, main)))
	}
	for range 50 {
		for _, pool := range pools {
			_, _, _ = send(pool, call())
		}
	}
	if n := sent.Load(); n != 60 {
		t.Errorf("%d of 100 calls were sent, want 60: 30 for each endpoint", n)
	}
	for i, pool := range pools {
		if u, err := pool.accounts("main").Usage(t.Context()); err != nil || u.Horizons[0].Used != 60 {
			t.Errorf("process %d: %+v, %v", i, u.Horizons, err)
		}
	}
}

// storeAt returns the store of a process. Its times are such that the tests are not about a slow machine.
func storeAt(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	server := redisstore.Server{Addrs: []string{addr}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second}
	store, err := redisstore.New(t.Context(), redisstore.Config{Redis: server, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// TestLearnedOverRedis has one process learn what another one keeps to, for limits of each kind.
func TestLearnedOverRedis(t *testing.T) {
	redis := redistest.Start(t)
	for name, limits := range map[string][]weir.Limit{
		"log": {perHour("", 100)}, "gcra": {{Rate: 100, Per: weir.Every(time.Hour), Algorithm: weir.GCRA}},
		"window": {{Rate: 100, Per: weir.Every(time.Hour), Algorithm: weir.SlidingWindow}}, "calendar": {{Rate: 100, Per: weir.Calendar(weir.Year, time.UTC)}},
	} {
		p := &provider{answer: saying("X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 1")}
		c := Config{Name: name, Transport: p, Logger: slog.New(slog.DiscardHandler), MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withLimits(limits...))}}
		first, second := weir.Must(New(storeAt(t, redis.Addr()), c)), weir.Must(New(storeAt(t, redis.Addr()), c))
		var errs []error
		for _, pool := range []*Pool{first, second, first, second} {
			_, _, err := send(pool, call())
			errs = append(errs, err)
		}
		if errs[0] != nil || errs[1] != nil || errs[2] == nil || errs[3] == nil || len(p.times("a")) != 2 {
			t.Errorf("%s: %v: want that the one request which is left is that of the other process", name, errs)
		}
		want(t, name+": drift", first.Stats().Endpoints[0].Drift, int64(98))
	}
}

// TestUnsentIsGivenBackOverRedis has a process that cannot connect: what it was charged is there for the other one.
func TestUnsentIsGivenBackOverRedis(t *testing.T) {
	redis := redistest.Start(t)
	p := &provider{answer: func(r *http.Request, _ string) (*http.Response, error) {
		httptrace.ContextClientTrace(r.Context()).GetConn(r.URL.Host)
		return nil, errors.New("connection refused")
	}}
	main := budget.Config{Name: "main", Classes: []budget.Class{}, Limits: []ruleset.Limit{budget.Prepaid("", 1000)}, Logger: slog.New(slog.DiscardHandler)}
	c := Config{Name: "eth", Transport: p, Logger: slog.New(slog.DiscardHandler), MaxWait: -1, Endpoints: []Endpoint{
		endpointAt("a", limited(Rate{PerMinute: 30}), withBudget("main")), endpointAt("b", limited(Rate{PerMinute: 30})),
	}}
	first, second := weir.Must(New(storeAt(t, redis.Addr()), c, main)), weir.Must(New(storeAt(t, redis.Addr()), c, main))
	if _, _, err := send(first, &Call{Methods: []string{"eth_sendRawTransaction"}}); err == nil || len(p.times("a")) != 1 || len(p.times("b")) != 1 {
		t.Fatalf("%v: want one try at each", err)
	}
	for _, pool := range []*Pool{first, second} {
		u, err := pool.accounts("main").Usage(t.Context())
		if err != nil || u.Horizons[0].Used != 0 {
			t.Errorf("%+v, %v: the account is charged", u.Horizons, err)
		}
		for _, e := range pool.set.Load().endpoints {
			d, err := weir.Peek(t.Context(), pool.engine.Limiter(), e.policy, endpointKey, 0)
			if err != nil || d.Remaining != 30 {
				t.Errorf("%s: %v, %v: the limit is charged", e.Alias, d, err)
			}
		}
	}
}
