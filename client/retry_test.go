package client_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

// TestStopping: calls that cross the end of their connections are sent again, once each, and are
// charged once.
func TestStopping(t *testing.T) {
	p := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	table, err := memstore.New(memstore.Config{})
	must(t, err)
	to, _ := daemon(t, server.Config{Limiter: table, Live: server.Live{Policies: rules(p)}})
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	var stopping, calls atomic.Int64 // how many calls are still refused
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if stopping.Add(-1) >= 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "weir is stopping", http.StatusRequestTimeout)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(relay.Close)
	c := dial(t, client.Config{Address: relay.Listener.Addr().String()})

	stopping.Store(1)
	if d, err := c.Take(ctx, p, "k", 3); err != nil || d.Remaining != 7 {
		t.Errorf("a Take that was refused once: %+v, error %v", d, err)
	}
	stopping.Store(1)
	b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 3}}}
	if err := c.Do(ctx, &b); err != nil || b.Decisions[0].Remaining != 4 {
		t.Errorf("a batch that was refused once: %+v, error %v", b.Decisions, err)
	}
	if calls.Load() != 4 {
		t.Errorf("%d calls came, want 4", calls.Load())
	}
	stopping.Store(2)
	if _, err := c.Take(ctx, p, "k", 3); err == nil {
		t.Error("what was refused twice has an answer")
	}
}
