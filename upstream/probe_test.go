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

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
)

// node answers probes.
type node struct {
	chain, head uint64
	status      int  // 0 means that it answers
	hangs       bool // it does not answer at all
}

// nodes lets a provider answer as nodes, by alias.
func nodes(p *provider, list map[string]*node) {
	p.answer = func(r *http.Request, body string) (*http.Response, error) {
		alias, _, _ := strings.Cut(r.URL.Host, ".")
		p.mu.Lock()
		n := *list[alias]
		p.mu.Unlock()
		switch {
		case n.hangs:
			<-r.Context().Done()
			return nil, r.Context().Err()
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
func monitored(t *testing.T, c Config, list map[string]*node, test func(pool *Pool, p *provider, set func(func())), accounts ...budget.Config) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, c, accounts...)
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
		time.Sleep(time.Second) // the probe of this minute has ended
		before := len(p.times("b"))
		if err := pool.Replace(t.Context(), pool.set.Load().config); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := len(p.times("b")) - before; n != 1 {
			t.Errorf("b got %d probes in the second after a reload, want that it is tried again", n)
		}
		want(t, "health after a reload", healths(pool), []string{"a ok", "b down: denied (status 402), -1ms"})
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
		if n := len(p.times("a")); n < 10 || n > 20 { // three failures, and then one call each 0.25 to 0.8 s, which are 16
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

// TestProbesAreChargedToAccounts charges an account for the probes of its endpoints: its most urgent class.
func TestProbesAreChargedToAccounts(t *testing.T) {
	list := map[string]*node{"a": {}, "b": {}}
	c := Config{Endpoints: []Endpoint{endpointAt("a", withBudget("main")), endpointAt("b", withBudget("main"))}}
	main := budget.Config{
		Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Hour)}}},
		Classes: []budget.Class{{Name: "rest"}, {Name: "much", Share: 60, NoBorrow: true}, {Name: "little", Share: 40, NoBorrow: true}},
	}
	monitored(t, c, list, func(pool *Pool, p *provider, _ func(func())) {
		time.Sleep(2 * time.Minute)
		n := int64(len(p.times("")))
		u, err := pool.accounts("main").Usage(t.Context())
		if err != nil || n < 16 {
			t.Fatalf("%d probes, %v", n, err)
		}
		want(t, "ledger", u.Ledgers, map[string]budget.Ledger{ruleset.Requests: {Granted: n, Used: n}})
		returned := int64(60 * 2 / 60) // units per minute, of those that were used first
		for i, used := range map[int]int64{0: 0, 1: n - returned, 2: 0} {
			if got := u.Classes[i]; got.Used < used || got.Used > used+1 {
				t.Errorf("%d of class %s are used by %d probes, want %d", got.Used, got.Class, n, used)
			}
		}
	}, main)
}

// TestProbesOfBusyAccounts probes an endpoint whose account is never without calls of the least urgent class in line: they take
// nothing from the share of the most urgent one.
func TestProbesOfBusyAccounts(t *testing.T) {
	list := map[string]*node{"a": {}}
	c := Config{MaxWait: 10 * time.Minute, Endpoints: []Endpoint{endpointAt("a", withBudget("main"))}}
	main := budget.Config{Name: "main", Limits: []ruleset.Limit{{Limit: weir.PerMinute(10)}}}
	monitored(t, c, list, func(pool *Pool, p *provider, _ func(func())) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _, _ = send(pool, &Call{Methods: []string{"eth_call"}, Class: "backfill"})
				}
			})
		}
		before := pool.Stats().Endpoints[0].Probes
		time.Sleep(5 * time.Minute)
		if n, all := pool.Stats().Endpoints[0].Probes-before, len(p.times("a")); n != 20 || all < 5*10 {
			t.Errorf("%d probes among %d requests in five minutes: want 20, one each 15 s", n, all)
		}
		cancel()
		wg.Wait()
	}, main)
}

// TestProbesFail finds out without any request that endpoints do not answer, within seconds, and that they do again.
func TestProbesFail(t *testing.T) {
	list := map[string]*node{"hangs": {}, "fails": {}, "ok": {}}
	c := Config{Endpoints: []Endpoint{endpointAt("hangs"), endpointAt("fails"), endpointAt("ok")}}
	monitored(t, c, list, func(pool *Pool, p *provider, set func(func())) {
		want(t, "health", healths(pool), []string{"hangs ok", "fails ok", "ok ok"})
		set(func() { list["hangs"].hangs, list["fails"].status = true, 500 })
		time.Sleep(40 * time.Second) // 15 s until the next probe, and three that time out after 5 s each
		for i, reason := range []string{"timeout", "status 500", ""} {
			e := pool.Stats().Endpoints[i]
			if e.Health == "ok" != (reason == "") || e.Reason != reason {
				t.Errorf("%s is %s, because of %q", e.Alias, e.Health, e.Reason)
			}
		}
		set(func() { list["hangs"].hangs, list["fails"].status = false, 0 })
		time.Sleep(time.Minute)
		for _, e := range pool.Stats().Endpoints {
			if e.Health == "down" {
				t.Errorf("%+v, although it answers", e)
			}
		}
	})
}

// TestProbesWaitForRoom probes an endpoint that is never without a request in line.
func TestProbesWaitForRoom(t *testing.T) {
	list := map[string]*node{"a": {}}
	c := Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5}))}}
	monitored(t, c, list, func(pool *Pool, p *provider, _ func(func())) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		time.Sleep(130 * time.Millisecond) // so that there never is room when a probe is due
		for range 10 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _, _ = send(pool, call())
				}
			})
		}
		time.Sleep(5 * time.Minute)
		cancel()
		wg.Wait()
		if e := pool.Stats().Endpoints[0]; e.Probes < 10 || len(p.times("a")) > 5*303 {
			t.Errorf("%d of %d requests in five minutes were probes: want 20, or half of them", e.Probes, len(p.times("a")))
		}
	})
}

// TestLagOfTwo compares two endpoints with each other.
func TestLagOfTwo(t *testing.T) {
	list := map[string]*node{"a": {head: 100}, "b": {head: 96}}
	c := Config{Chain: Chain{MaxLag: 3}, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}}
	monitored(t, c, list, func(pool *Pool, _ *provider, set func(func())) {
		time.Sleep(20 * time.Second)
		want(t, "health", healths(pool), []string{"a ok", "b down: it is 4 blocks behind, -1ms"})
		set(func() { list["b"].head = 97 })
		time.Sleep(6 * time.Second)
		want(t, "health afterwards", healths(pool), []string{"a ok", "b ok"})
	})
}

// TestChainIsConfirmed sends nothing to an endpoint before a probe has confirmed its chain: not at first, not after a reload,
// and not to another URL.
func TestChainIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := map[string]*node{"a": {chain: 5}, "b": {chain: 1}}
		c := Config{Strategy: Sticky, Chain: Chain{ID: 1}, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}}
		pool, p := newPool(t, c)
		nodes(p, list)
		calls := func(alias string) (n int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, r := range p.received {
				if r.host == alias+".example" && strings.Contains(r.body, "eth_call") {
					n++
				}
			}
			return n
		}
		want(t, "health", healths(pool), []string{"a down: its chain id is not known yet, 0ms", "b down: its chain id is not known yet, 0ms"})
		var wg sync.WaitGroup
		wg.Go(func() { // before the first probe: it waits for that
			if alias, _, err := send(pool, call()); alias != "b" {
				t.Errorf("answered by %q, %v", alias, err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { pool.Run(ctx) })
		time.Sleep(time.Second)
		reload := func(endpoints ...Endpoint) {
			next := pool.set.Load().config
			next.Endpoints = endpoints
			if err := pool.Replace(t.Context(), next); err != nil {
				t.Error(err)
			}
			for range 20 {
				if alias, _, err := send(pool, call()); alias != "b" {
					t.Errorf("answered by %q, %v", alias, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		reload(endpointAt("a"), endpointAt("b"))
		moved := endpointAt("a")
		moved.RPC = secret.New("https://a.example/v3/canary")
		reload(moved, endpointAt("b"))
		if n := calls("a"); n != 0 {
			t.Errorf("%d calls were sent to another chain", n)
		}
		p.mu.Lock()
		list["a"].chain = 1
		p.mu.Unlock()
		time.Sleep(6 * time.Second)
		if alias, _, err := send(pool, call()); alias != "a" {
			t.Errorf("answered by %q, %v, when the chain is right", alias, err)
		}
		cancel()
		wg.Wait()
	})
}
