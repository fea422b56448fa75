package upstream

import (
	"log/slog"
	"net/http"
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
		server := redisstore.Server{Addrs: []string{redis.Addr()}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second}
		store, err := redisstore.New(t.Context(), redisstore.Config{Redis: server, Timeout: 30 * time.Second}) // the test is not about a slow machine
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		pools = append(pools, weir.Must(New(store, c, main)))
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
