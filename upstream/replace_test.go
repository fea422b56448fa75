package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
)

// TestReplaceKeepsWhatIsUsed changes limits, endpoints and secrets while calls are in flight.
func TestReplaceKeepsWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 10})), endpointAt("gone")}})
		for range 10 {
			_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}, Pinned: "a"})
		}
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			time.Sleep(5 * time.Second)
			return reply(200, "{}"), nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if alias, status, err := send(pool, &Call{Methods: []string{"eth_x"}, Pinned: "gone"}); alias != "gone" || status != 200 || err != nil {
				t.Errorf("a call in flight to a removed endpoint: %q, %d, %v", alias, status, err)
			}
		})
		synctest.Wait()
		next := pool.set.Load().config
		next.Endpoints = []Endpoint{endpointAt("a", limited(Rate{PerMinute: 12})), endpointAt("new")}
		if err := pool.Replace(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			_, _, err := send(pool, &Call{Methods: []string{"eth_x"}, Pinned: "a"})
			if (err == nil) != (i < 2) {
				t.Errorf("request %d after the limit was raised from 10 to 12: %v", i, err)
			}
		}
		next.Endpoints = []Endpoint{endpointAt("a", limited(Rate{PerMinute: 5}))}
		if err := pool.Replace(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if _, _, err := send(pool, call()); err == nil {
			t.Error("the lowered limit begins anew")
		}
		wg.Wait()
		if s := pool.Stats().Endpoints; len(s) != 1 || s[0].Sent != 12 {
			t.Errorf("%+v: what was counted must stay", s)
		}
		bad := next
		bad.Endpoints = []Endpoint{endpointAt("a", withBudget("none"))}
		if err := pool.Replace(t.Context(), bad); err == nil || !strings.Contains(err.Error(), `there is no budget "none"`) {
			t.Errorf("%v", err)
		}
		bad.Name = "other"
		bad.Endpoints = next.Endpoints
		if err := pool.Replace(t.Context(), bad); err == nil {
			t.Error("a pool was renamed")
		}
		want(t, "limit after refused changes", pool.Stats().Endpoints[0].Limit, "5/m")
	})
}

// TestNewKeyIsTried gives an endpoint that denies access another key.
func TestNewKeyIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}})
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "canary") {
				return reply(401, "{}"), nil
			}
			return reply(200, "{}"), nil
		}
		_, _, _ = send(pool, call())
		if _, _, err := send(pool, call()); !errors.As(err, new(*DownError)) {
			t.Fatal(err)
		}
		next := pool.set.Load().config
		next.Endpoints[0].RPC = secret.New("https://a.example/v2/other")
		if err := pool.Replace(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if alias, status, err := send(pool, call()); status != 200 {
			t.Errorf("%q, %d, %v", alias, status, err)
		}
	})
}

// TestPoolsShareLimits has two processes with one store: an endpoint's limit is that of both.
func TestPoolsShareLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := weir.Must(memstore.New(memstore.Config{}))
		p := &provider{start: time.Now()}
		c := Config{Name: "eth", Transport: p, Logger: slog.New(slog.DiscardHandler), MaxWait: -1, Endpoints: []Endpoint{
			endpointAt("a", limited(Rate{PerSecond: 10}), withBudget("main")),
		}}
		sent := 0
		pools := []*Pool{weir.Must(New(store, c, account("main", 100))), weir.Must(New(store, c, account("main", 100)))}
		for range 10 {
			for _, pool := range pools {
				if _, _, err := send(pool, call()); err == nil {
					sent++
				}
			}
		}
		if sent != 10 || len(p.received) != 10 {
			t.Errorf("%d of 20 requests were sent, want 10", sent)
		}
		u, err := pools[1].accounts("main").Usage(context.Background())
		if err != nil || u.Horizons[0].Used != 10 {
			t.Errorf("%+v, %v: a refusal by the endpoint's limit must not charge the account", u.Horizons, err)
		}
	})
}
