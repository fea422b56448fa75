package upstream

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/budget"
)

// TestManyCallers uses all methods at once, in real time: for the race detector, and to see that nothing is granted
// twice.
func TestManyCallers(t *testing.T) {
	const callers, each, limit = 16, 50, 200
	b := budget.Config{Name: "main", Classes: []budget.Class{}, Limits: account("main", 1_000_000).Limits}
	pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{
		endpointAt("a", limited(Rate{PerMinute: limit}), withBudget("main")), endpointAt("b", limited(Rate{PerMinute: limit}), withBudget("main")),
	}}, b)
	var sent atomic.Int64
	p.answer = func(*http.Request, string) (*http.Response, error) {
		sent.Add(1)
		return reply(200, "{}"), nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var observers, all sync.WaitGroup
	observe := func(look func()) {
		observers.Go(func() {
			for ctx.Err() == nil {
				look()
			}
		})
	}
	observe(func() { _ = pool.Stats() })
	observe(func() { _, _ = pool.Candidates(context.Background(), call()) })
	observe(func() {
		if err := pool.Replace(ctx, pool.set.Load().config); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	for range callers {
		all.Go(func() {
			for range each {
				_, _, _ = send(pool, call())
			}
		})
	}
	all.Wait()
	cancel()
	observers.Wait()
	if n := sent.Load(); n != 2*limit {
		t.Errorf("%d of %d calls were sent, want %d", n, callers*each, 2*limit)
	}
	used, err := pool.accounts("main").Usage(t.Context())
	if err != nil || used.Ledgers["requests"].Granted != 2*limit {
		t.Errorf("%+v, %v: want %d charged to the account", used.Ledgers, err, 2*limit)
	}
}
