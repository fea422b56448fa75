package upstream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
)

// TestNoReplayByTheTransport sends a call that may be executed once over a connection which the endpoint closes after it
// has executed it. net/http sends requests with an Idempotency-Key again by itself, on another connection.
func TestNoReplayByTheTransport(t *testing.T) {
	var executed, keyed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "eth_sendRawTransaction") {
			executed.Add(1)
			if r.Header.Get("Idempotency-Key")+r.Header.Get("X-Idempotency-Key") == "1" {
				keyed.Add(1)
			}
			panic(http.ErrAbortHandler) // closes the connection
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`)
	}))
	defer server.Close()
	pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}})
	c := pool.set.Load().config
	c.Transport = nil
	c.Endpoints[0].RPC = secret.New(server.URL)
	if err := pool.Replace(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	defer pool.own.CloseIdleConnections()
	if _, _, err := send(pool, call()); err != nil { // opens the connection
		t.Fatal(err)
	}
	for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
		executed.Store(0)
		r := callRequest(t, 1, "eth_sendRawTransaction", `"0x02"`).WithContext(context.Background())
		if header != "" {
			r.Header.Set(header, "1")
		}
		if _, err := pool.Send(r, &Call{Methods: []string{"eth_sendRawTransaction"}}); err == nil {
			t.Error("a connection that was closed is no error")
		}
		if n := executed.Load(); n != 1 {
			t.Errorf("with %q: executed %d times", header, n)
		}
		if _, _, err := send(pool, call()); err != nil {
			t.Fatal(err)
		}
	}
	if n := keyed.Load(); n != 2 {
		t.Errorf("%d of two requests had their key when they arrived", n)
	}
}

// TestReplaysAreCharged sends a repeatable call with an Idempotency-Key over a connection which the endpoint closes after it
// has read the request: net/http sends it again by itself, which is charged again.
func TestReplaysAreCharged(t *testing.T) {
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if received.Add(1) == 2 {
			panic(http.ErrAbortHandler) // closes the connection
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`)
	}))
	defer server.Close()
	c := Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 100}), withBudget("main"), func(e *Endpoint) { e.RPC = secret.New(server.URL) })}}
	pool, _ := newPool(t, c, budget.Config{Name: "main", Classes: []budget.Class{}, Limits: []ruleset.Limit{budget.Prepaid("", 100)}})
	c = pool.set.Load().config
	c.Transport = nil
	if err := pool.Replace(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	defer pool.own.CloseIdleConnections()
	used := func() (n int64, ledger budget.Ledger) {
		u, err := pool.accounts("main").Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return u.Horizons[0].Used, u.Ledgers[ruleset.Requests]
	}
	if _, _, err := send(pool, call()); err != nil { // opens the connection
		t.Fatal(err)
	}
	r := request(t.Context(), 1)
	r.Header.Set("Idempotency-Key", "1")
	reply, err := pool.Send(r, call())
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	eventually(t, func() bool {
		n, ledger := used()
		return n == received.Load() && ledger == budget.Ledger{Granted: 2, Overrun: 1, Used: 3}
	})
	eventually(t, func() bool { return remaining(t, pool)[0] == 97 })
	if s := pool.Stats().Endpoints[0]; received.Load() != 3 || s.Sent != 2 || reply.Tries != 1 {
		t.Errorf("%d requests were received, %d tries: %+v", received.Load(), reply.Tries, s)
	}
}
