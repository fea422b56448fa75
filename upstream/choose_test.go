package upstream

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// first returns how often each endpoint is the first candidate for a call.
func first(pool *Pool, n int) map[string]int {
	counts := map[string]int{}
	for range n {
		if list, err := pool.Candidates(context.Background(), call()); err == nil && len(list) > 0 {
			counts[list[0].Alias]++
		}
	}
	return counts
}

func slow(pool *Pool, alias string, d time.Duration) {
	pool.set.Load().find(alias).memory.latency.Store(int64(d))
}

func TestTiers(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		latencies []time.Duration
		want      int // how many are in the first tier
	}{
		{[]time.Duration{100 * ms}, 1},
		{[]time.Duration{100 * ms, 200 * ms, 201 * ms}, 2},
		{[]time.Duration{249 * ms, 498 * ms, 499 * ms}, 2},
		{[]time.Duration{250 * ms, 312 * ms, 313 * ms}, 2},
		{[]time.Duration{400 * ms, 500 * ms, 501 * ms}, 2},
		{[]time.Duration{0, 100 * ms, 200 * ms, 201 * ms}, 3}, // that of the first one is unknown
		{[]time.Duration{0, 0}, 2},
	} {
		var list []*endpoint
		for _, d := range tt.latencies {
			m := &memory{}
			m.latency.Store(int64(d))
			list = append(list, &endpoint{memory: m})
		}
		if got := tier(list); got != tt.want {
			t.Errorf("%v: %d in the first tier, want %d", tt.latencies, got, tt.want)
		}
	}
}

func TestChoose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		weight := func(n int) func(*Endpoint) { return func(e *Endpoint) { e.Weight = n } }
		pool, p := newPool(t, Config{Endpoints: []Endpoint{
			endpointAt("second", priority(20)), endpointAt("a", weight(300)), endpointAt("b"), endpointAt("slow"),
			endpointAt("hidden", func(e *Endpoint) { e.Unselectable = true }),
			endpointAt("picky", priority(1), func(e *Endpoint) { e.Allow, e.Deny = []string{"eth_get*"}, []string{"eth_getLogs"} }),
		}})
		slow(pool, "a", 100*time.Millisecond)
		slow(pool, "b", 150*time.Millisecond)
		slow(pool, "slow", 300*time.Millisecond)
		got := first(pool, 4000)
		if got["a"]+got["b"] != 4000 || got["a"] < 2800 || got["a"] > 3200 {
			t.Errorf("%v: want a and b at 3 : 1", got)
		}
		list, err := pool.Candidates(t.Context(), call())
		if err != nil || len(list) != 4 || list[2].Alias != "slow" || list[3].Alias != "second" {
			t.Errorf("%v: want the slow one and then the second priority behind a and b", list)
		}
		for method, want := range map[string]string{"eth_getBalance": "picky", "eth_getLogs": "", "eth_call": ""} {
			alias, _, _ := send(pool, &Call{Methods: []string{"eth_getBalance", method}})
			if (alias == "picky") != (want == "picky") {
				t.Errorf("a batch with %s was sent to %s", method, alias)
			}
		}
		if alias, _, err := send(pool, &Call{Methods: []string{"eth_call"}, Pinned: "slow"}); alias != "slow" {
			t.Errorf("a pinned call was answered by %q, %v", alias, err)
		}
		if _, _, err := send(pool, &Call{Methods: []string{"eth_call"}, Pinned: "hidden"}); err == nil {
			t.Error("an endpoint that is not selectable was used")
		}
		if n := len(p.times("hidden")); n != 0 {
			t.Errorf("the hidden one got %d requests", n)
		}
	})
}

// TestSelectionChargesNothing asks for candidates of an endpoint with one unit.
func TestSelectionChargesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 1}))}})
		for range 100 {
			if list, err := pool.Candidates(t.Context(), call()); len(list) != 1 || err != nil {
				t.Fatal(list, err)
			}
			_ = pool.Stats()
		}
		if _, _, err := send(pool, call()); err != nil {
			t.Error(err)
		}
		if _, _, err := send(pool, call()); err == nil {
			t.Error("a second request was sent")
		}
		if e := pool.Stats().Endpoints[0]; e.Sent != 1 || e.Skipped != 1 || e.Attempts != 2 || e.SkippedPercent != 50 || len(e.Failures) != 0 || e.Health != "ok" {
			t.Errorf("%+v: a skip is no failure", e)
		}
	})
}

// TestBalanced spreads by what is left: the endpoint with half of its units gets half as much.
func TestBalanced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
		now := time.Now()
		pool.set.Load().endpoints[0].memory.learn(now, weir.Decision{Limit: 100, Remaining: 50, ResetAfter: time.Second})
		if got := first(pool, 3000); got["a"] < 850 || got["a"] > 1150 {
			t.Errorf("%v: want 1 : 2", got)
		}
		time.Sleep(time.Second)
		if got := first(pool, 3000); got["a"] < 1350 || got["a"] > 1650 {
			t.Errorf("%v, when all units are back: want 1 : 1", got)
		}
	})
}

// TestSticky goes back to the first endpoint as soon as it can take a request.
func TestSticky(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{Strategy: Sticky, Endpoints: []Endpoint{endpointAt("b", priority(20)), endpointAt("a", limited(Rate{PerSecond: 2})), endpointAt("c", priority(20))}})
		var got []string
		for range 2 {
			for range 4 {
				alias, _, _ := send(pool, call())
				got = append(got, alias)
			}
			time.Sleep(time.Second)
		}
		if !slices.Equal(got, []string{"a", "a", "b", "b", "a", "a", "b", "b"}) {
			t.Error(got)
		}
	})
}

func TestIsRepeatable(t *testing.T) {
	for method, want := range map[string]bool{
		"eth_call": true, "eth_getBlockByNumber": true, "eth_sendRawTransaction": false, "eth_sendTransaction": false, "eth_getFilterChanges": false,
		"personal_sign": false, "anvil_mine": false, "unknown": false, "eth_callx": false, "": false, "mine_this": true,
	} {
		if got := IsRepeatable(method, []string{"mine_*"}); got != want {
			t.Errorf("%q: %v", method, got)
		}
	}
}
