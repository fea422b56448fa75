package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// node answers probes.
type node struct {
	chain, head uint64
	status      int // 0 means that it answers
}

// nodes lets a provider answer as nodes, by alias.
func nodes(p *provider, list map[string]*node) {
	p.answer = func(r *http.Request, body string) (*http.Response, error) {
		alias, _, _ := strings.Cut(r.URL.Host, ".")
		p.mu.Lock()
		defer p.mu.Unlock()
		switch n := list[alias]; {
		case n.status != 0:
			return reply(n.status, "{}"), nil
		case strings.Contains(body, "eth_chainId"):
			return reply(200, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":"0x%x"}`, n.chain)), nil
		case strings.Contains(body, "eth_blockNumber"):
			return reply(200, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":"0x%x"}`, n.head)), nil
		}
		return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
	}
}

// monitored runs a pool's probes for the duration of a test.
func monitored(t *testing.T, c Config, list map[string]*node, test func(pool *Pool, p *provider, set func(func()))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, c)
		nodes(p, list)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { pool.Run(ctx) })
		time.Sleep(time.Second)
		synctest.Wait()
		test(pool, p, func(change func()) {
			p.mu.Lock()
			defer p.mu.Unlock()
			change()
		})
		cancel()
		wg.Wait()
	})
}

func TestProbes(t *testing.T) {
	list := map[string]*node{"a": {chain: 1, head: 100}, "b": {chain: 5, head: 100}, "c": {chain: 1, head: 99}, "d": {chain: 1, head: 90}, "liar": {chain: 1, head: 1 << 60}}
	c := Config{Chain: Chain{ID: 1, MaxLag: 3}, Endpoints: []Endpoint{
		endpointAt("a"), endpointAt("b"), endpointAt("c"), endpointAt("d"), endpointAt("liar"), endpointAt("quiet", func(e *Endpoint) { e.Unmonitored = true }),
	}}
	monitored(t, c, list, func(pool *Pool, p *provider, set func(func())) {
		time.Sleep(20 * time.Second) // a second round: the heads of all are known
		want(t, "health", healths(pool), []string{
			"a ok", "b down: its chain id is 5, not 1, -1ms", "c ok", "d down: it is 10 blocks behind, -1ms", "liar ok", "quiet ok",
		})
		if n := len(p.times("quiet")); n != 0 {
			t.Errorf("an endpoint that is not monitored got %d probes", n)
		}
		if e := pool.Stats().Endpoints[0]; e.Probes != 3 || e.Sent != 3 || e.Head != 100 { // the chain once, and two heads
			t.Errorf("%+v", e)
		}
		set(func() { list["b"].chain, list["d"].head = 1, 98 })
		time.Sleep(6 * time.Second)
		want(t, "health after they have caught up", healths(pool), []string{"a ok", "b ok", "c ok", "d ok", "liar ok", "quiet ok"})
	})
}

// TestDenied comes back when an operator has acted: at the next probe, or at a reload.
func TestDenied(t *testing.T) {
	list := map[string]*node{"a": {status: 401}, "b": {status: 402}}
	c := Config{Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}, MaxWait: -1}
	monitored(t, c, list, func(pool *Pool, p *provider, set func(func())) {
		want(t, "health", healths(pool), []string{"a down: denied (status 401), -1ms", "b down: denied (status 402), -1ms"})
		began := len(p.times(""))
		for range 100 {
			if _, _, err := send(pool, call()); err == nil || !strings.Contains(err.Error(), "a: denied (status 401); b: denied (status 402)") {
				t.Fatalf("%v, want the reasons", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(p.times("")) - began; n != 0 {
			t.Errorf("%d calls were sent to endpoints that deny access", n)
		}
		set(func() { list["a"].status = 0 })
		time.Sleep(time.Minute)
		want(t, "health after a minute", healths(pool), []string{"a ok", "b down: denied (status 402), -1ms"})
		if err := pool.Replace(t.Context(), pool.set.Load().config); err != nil {
			t.Fatal(err)
		}
		if health := pool.Stats().Endpoints[1].Health; health != "recovering" {
			t.Errorf("b is %s after a reload, want one that is tried again", health)
		}
	})
}

// TestBreaks lets an endpoint fail and recover.
func TestBreaks(t *testing.T) {
	list := map[string]*node{"a": {}}
	c := Config{Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) { e.Unmonitored = true })}, MaxWait: -1}
	monitored(t, c, list, func(pool *Pool, p *provider, set func(func())) {
		set(func() { list["a"].status = 500 })
		for range 1000 { // 100 a second
			_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(p.times("a")); n < 10 || n > 16 { // three failures, and then one call each 0.25 to 1 s
			t.Errorf("%d calls were sent in ten seconds to an endpoint that fails", n)
		}
		set(func() { list["a"].status = 0 })
		recovered := len(p.times("a"))
		for range 200 {
			_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(p.times("a")) - recovered; n < 90 {
			t.Errorf("%d of 200 calls were sent in the two seconds after it has recovered", n)
		}
	})
}

// TestProbesAreCharged leaves out probes for which there is no room.
func TestProbesAreCharged(t *testing.T) {
	list := map[string]*node{"a": {}}
	c := Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 4}))}, Probe: Probe{Every: 5 * time.Second}}
	monitored(t, c, list, func(pool *Pool, p *provider, _ func(func())) {
		time.Sleep(58 * time.Second)
		if n := len(p.times("a")); n != 4 {
			t.Errorf("%d probes in the first minute of a limit of four", n)
		}
		want(t, "health", healths(pool), []string{"a ok"})
	})
}
