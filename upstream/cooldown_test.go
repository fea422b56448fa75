package upstream

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// within reports whether a back-off of d, and up to a tenth of jitter, is a duration.
func within(got, d time.Duration) bool {
	return got >= d-time.Millisecond && got <= d+d/10+time.Millisecond
}

// TestCooldownBacksOff lets a provider refuse again and again without saying for how long, and then answer.
func TestCooldownBacksOff(t *testing.T) {
	for _, tt := range []struct {
		cooldown time.Duration
		pauses   []time.Duration
	}{
		{0, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}},
		{4 * time.Second, []time.Duration{4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}},
		{time.Minute, []time.Duration{time.Minute, time.Minute}},
	} {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{Cooldown: tt.cooldown, MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withBudget("main"))}}, account("main", 100))
			refused := func() (*http.Response, error) { return reply(429, tooMany), nil }
			pause := func() time.Duration {
				_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
				return time.Duration(pool.Stats().Endpoints[0].CooldownMs) * time.Millisecond // rounded down
			}
			p.answer = onHost("a", refused)
			for i, want := range tt.pauses {
				got := pause()
				if !within(got, want) {
					t.Errorf("cooldown %v, refusal %d: a pause of %v, want %v", tt.cooldown, i, got, want)
				}
				if account := pool.accounts("main").Cooldown(); !within(account, want) {
					t.Errorf("cooldown %v, refusal %d: the account pauses for %v, want %v", tt.cooldown, i, account, want)
				}
				time.Sleep(got + time.Millisecond)
			}
			p.answer = nil
			for range fullRamp {
				_ = pause()
				time.Sleep(20 * time.Millisecond)
			}
			p.answer = onHost("a", refused)
			if got := pause(); !within(got, tt.pauses[0]) {
				t.Errorf("cooldown %v, after successes: a pause of %v, want %v", tt.cooldown, got, tt.pauses[0])
			}
		})
	}
}

// TestLateRefusals lets calls that were sent together be refused one after the other: the first decides how long their
// account pauses, in the pool and in the account.
func TestLateRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Cooldown: 100 * time.Millisecond, MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withBudget("main"))}}, account("main", 100))
		number := 0
		p.answer = func(*http.Request, string) (*http.Response, error) {
			p.mu.Lock()
			number++
			late := time.Duration(number) * 30 * time.Millisecond
			p.mu.Unlock()
			time.Sleep(late)
			return reply(429, tooMany), nil
		}
		var wg sync.WaitGroup
		for range 10 { // answered after 30 … 300 ms
			wg.Go(func() { _, _, _ = send(pool, &Call{Methods: []string{"eth_x"}}) })
		}
		time.Sleep(31 * time.Millisecond)
		at := time.Now().Add(time.Duration(pool.Stats().Endpoints[0].CooldownMs) * time.Millisecond)
		wg.Wait()
		s := pool.Stats().Endpoints[0]
		if end := at.Sub(p.start); !within(end-31*time.Millisecond, 99*time.Millisecond) || s.Health != "recovering" || s.Failures["rate"] != 10 {
			t.Errorf("the pause ends after %v, and then the endpoint is %+v: want one pause, from the first refusal", end, s)
		}
		if d := pool.accounts("main").Cooldown(); d > 0 {
			t.Errorf("the account pauses for another %v", d)
		}
	})
}

// TestCooldownIsExtended has calls in flight that are refused for different times: the longest counts.
func TestCooldownIsExtended(t *testing.T) {
	for _, set := range []func(*Endpoint){func(*Endpoint) {}, withBudget("main")} {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", set)}}, account("main", 100))
			number := 0
			p.answer = func(*http.Request, string) (*http.Response, error) {
				p.mu.Lock()
				n := number
				number++
				p.mu.Unlock()
				time.Sleep(time.Duration(n+1) * time.Millisecond)
				return reply(429, tooMany, "Retry-After", []string{"2", "7", "1"}[n]), nil
			}
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { _, _, _ = send(pool, &Call{Methods: []string{"eth_x"}}) })
			}
			wg.Wait()
			want(t, "health", healths(pool), []string{"a down: rate (429), 6999ms"}) // it was said a millisecond ago
		})
	}
}

// TestReturnToPrimary is document 001's: after a 429 the next account answers at once, and the primary is back after the
// cooldown of 60 s (S1.5), by itself (F1.9).
func TestReturnToPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, Cooldown: time.Minute, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
		refused := false
		p.answer = onHost("a", func() (*http.Response, error) {
			if !refused {
				refused = true
				return reply(429, tooMany), nil
			}
			return reply(200, "{}"), nil
		})
		var got []string
		for range 68 { // one each second
			alias, status, err := send(pool, call())
			if status != 200 {
				t.Fatal(alias, status, err)
			}
			if n := len(got); n == 0 || got[n-1] != alias {
				got = append(got, alias)
			}
			time.Sleep(time.Second)
		}
		want(t, "who has answered", got, []string{"b", "a"})
		if at := p.times("a"); len(at) < 2 || at[0] != 0 || at[1] < time.Minute || at[1] > 67*time.Second {
			t.Errorf("the primary was called at %v", at)
		}
	})
}

// TestProbesKeepToCooldowns has an endpoint on the wrong chain, whose probes pass its own gate, while the provider or
// the endpoint itself wants no calls.
func TestProbesKeepToCooldowns(t *testing.T) {
	for name, refusal := range map[string]func() (*http.Response, error){
		"provider": func() (*http.Response, error) { return reply(503, "", "Retry-After", "30"), nil },
		"account":  func() (*http.Response, error) { return reply(429, tooMany, "Retry-After", "30"), nil },
	} {
		list := map[string]*node{"a": {chain: 5}, "b": {chain: 1}}
		c := Config{Chain: Chain{ID: 1}, Endpoints: []Endpoint{endpointAt("a", from("x"), withBudget("main")), endpointAt("b", from("x"), withBudget("main"))}}
		t.Run(name, func(t *testing.T) {
			monitored(t, c, list, func(pool *Pool, p *provider, set func(func())) {
				if h := healths(pool); h[0] != "a down: its chain id is 5, not 1, -1ms" {
					t.Fatal(h)
				}
				was := p.answer
				set(func() { p.answer = onHost("b", refusal) })
				_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}, Pinned: "b"})
				set(func() { p.answer = was })
				before := len(p.times(""))
				time.Sleep(29 * time.Second)
				if n := len(p.times("")) - before; n != 0 {
					t.Errorf("%d probes were sent before Retry-After has passed", n)
				}
				time.Sleep(10 * time.Second)
				if n := len(p.times("a")); n < 2 {
					t.Errorf("no probes afterwards: %d", n)
				}
			}, account("main", 100))
		})
	}
}

// TestSendsOfARequest bounds how often one request is sent while every endpoint refuses it, although many that needed no
// retry went before.
func TestSendsOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var endpoints []Endpoint
		for i := range 6 {
			endpoints = append(endpoints, endpointAt(fmt.Sprint("e", i)))
		}
		pool, p := newPool(t, Config{MaxWait: time.Minute, Endpoints: endpoints})
		for range 200 {
			_, _, _ = send(pool, call())
		}
		for _, status := range []int{429, 500} {
			before := len(p.times(""))
			p.answer = func(*http.Request, string) (*http.Response, error) { return reply(status, "{}"), nil }
			if _, got, err := send(pool, call()); got != status {
				t.Errorf("%d, %v", got, err)
			}
			if n := len(p.times("")) - before; n != maxSends {
				t.Errorf("status %d: sent %d times, want %d", status, n, maxSends)
			}
		}
	})
}
