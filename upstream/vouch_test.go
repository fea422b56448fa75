package upstream

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failsOne answers calls with the id 7 with status 500, and others as how says, which is guarded by the provider's lock.
func failsOne(p *provider, how *string) func(r *http.Request, body string) (*http.Response, error) {
	return func(r *http.Request, body string) (*http.Response, error) {
		p.mu.Lock()
		all := *how
		p.mu.Unlock()
		switch {
		case all == "hangs":
			<-r.Context().Done()
			return nil, r.Context().Err()
		case all == "fails" || strings.Contains(body, `"id":7,`):
			return reply(500, "{}"), nil
		}
		return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
	}
}

// failing7 sends calls that the provider always fails.
func failing7(pool *Pool, n int) {
	for range n {
		if resp, err := pool.Send(request(context.Background(), 7), &Call{Methods: []string{"debug_bad"}}); err == nil {
			resp.Body.Close()
		}
	}
}

// TestFailureOfAMethod has a provider that fails one method and no other: the endpoint stays in use where probes succeed, and
// is out of use within a second where they fail, too, or are not answered.
func TestFailureOfAMethod(t *testing.T) {
	for how, reason := range map[string]string{"fails": "status 500", "hangs": "timeout"} {
		c := Config{MaxWait: -1, Timeout: 100 * time.Millisecond, Endpoints: []Endpoint{endpointAt("a")}}
		monitored(t, c, map[string]*node{"a": {}}, func(pool *Pool, p *provider, set func(func())) {
			now := ""
			set(func() { p.answer = failsOne(p, &now) })
			for range 100 {
				failing7(pool, 5)
				if _, status, err := send(pool, call()); status != 200 {
					t.Fatalf("after failures of another method: %d, %v", status, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if s := pool.Stats().Endpoints[0]; s.Health != "ok" || s.Probes > 60 { // about four a second; without a bound there are 100
				t.Errorf("%s, with %d probes for 500 failures", s.Health, s.Probes)
			}
			set(func() { now = how })
			began := time.Now()
			for time.Since(began) < time.Second && pool.Stats().Endpoints[0].Health == "ok" {
				_, _, _ = send(pool, call())
				time.Sleep(time.Millisecond)
			}
			if e := pool.Stats().Endpoints[0]; e.Health != "down" || e.Reason != reason {
				t.Errorf("%s: %s, %q after a second", how, e.Health, e.Reason)
			}
		})
	}
}

// TestRecoveryWithABadMethod lets an endpoint come back of whose calls half are of a method that always fails.
func TestRecoveryWithABadMethod(t *testing.T) {
	c := Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a")}}
	monitored(t, c, map[string]*node{"a": {}}, func(pool *Pool, p *provider, set func(func())) {
		now := "fails"
		set(func() { p.answer = failsOne(p, &now) })
		_, _, _ = send(pool, call())
		failing7(pool, failuresToClose)
		time.Sleep(time.Millisecond)
		failing7(pool, failuresToClose)
		want(t, "health", pool.Stats().Endpoints[0].Health, "down")
		set(func() { now = "" })
		for range 500 {
			_, _, _ = send(pool, call())
			failing7(pool, 1)
			time.Sleep(10 * time.Millisecond)
		}
		want(t, "health after five seconds", healths(pool), []string{"a ok"})
	})
}

// TestOneCallWhileHalfOpen has an endpoint that fails again when it has recovered: probes vouch for it only if it has
// answered since it was closed.
func TestOneCallWhileHalfOpen(t *testing.T) {
	c := Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a")}}
	monitored(t, c, map[string]*node{"a": {}}, func(pool *Pool, p *provider, set func(func())) {
		now := "fails"
		set(func() { p.answer = failsOne(p, &now) })
		began := len(p.times("a"))
		for range 1000 {
			_, _, _ = send(pool, call())
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(p.times("a")) - began; n < 10 || n > 20 {
			t.Errorf("%d calls were sent in ten seconds to an endpoint that fails", n)
		}
	})
}

// TestChainIsAskedAgain lets an endpoint change its chain: that is found after 20 probes at most, and at once when it was out
// of use. An answer without an id changes nothing.
func TestChainIsAskedAgain(t *testing.T) {
	asked := func(p *provider) (n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.received {
			if strings.Contains(r.body, "eth_chainId") {
				n++
			}
		}
		return n
	}
	c := Config{MaxWait: -1, Chain: Chain{ID: 1}, Endpoints: []Endpoint{endpointAt("a")}}
	monitored(t, c, map[string]*node{"a": {chain: 1}}, func(pool *Pool, p *provider, set func(func())) {
		time.Sleep(19 * 15 * time.Second)
		want(t, "calls of eth_chainId in 19 probes", asked(p), 1)
		time.Sleep(15 * time.Second)
		want(t, "calls of eth_chainId in 20 probes", asked(p), 2)
	})
	list := map[string]*node{"a": {chain: 1}}
	monitored(t, c, list, func(pool *Pool, p *provider, set func(func())) {
		set(func() { list["a"].chain = 0 })
		time.Sleep(21 * 15 * time.Second)
		want(t, "health without an id", healths(pool), []string{"a ok"})
		set(func() { list["a"].chain = 5 })
		time.Sleep(21 * 15 * time.Second)
		want(t, "health on another chain", healths(pool), []string{"a down: its chain id is 5, not 1, -1ms"})
	})
	list = map[string]*node{"a": {chain: 1}}
	monitored(t, c, list, func(pool *Pool, p *provider, set func(func())) {
		set(func() { list["a"].status = 500 })
		for range 10 {
			_, _, _ = send(pool, call())
			time.Sleep(time.Millisecond)
		}
		want(t, "health", pool.Stats().Endpoints[0].Health, "down")
		set(func() { *list["a"] = node{chain: 5} })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if health := healths(pool); !slices.Equal(health, []string{"a down: its chain id is 5, not 1, -1ms"}) {
			t.Errorf("%v when it is back, want that it is on another chain", health)
		}
	})
}
