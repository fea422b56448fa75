package upstream

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestResume lets each gate be closed for long, and opened by an operator: the next call is sent. If the provider still
// refuses, it is closed again; otherwise it recovers.
func TestResume(t *testing.T) {
	const denied = `{"error":{"code":-32000,"message":"Must be authenticated!"}}`
	unmonitored := func(e *Endpoint) { e.Unmonitored = true }
	for _, tt := range []struct {
		name   string
		status int
		body   string
		header []string
		calls  int // until it is closed
		set    func(*Endpoint)
		health string
	}{
		{"rate", 429, tooMany, []string{"Retry-After", "31536000"}, 1, func(*Endpoint) {}, "a down: rate (429), 2764800000ms"},
		{"the account's", 429, tooMany, []string{"Retry-After", "31536000"}, 1, withBudget("main"), "a down: rate (429), 2764800000ms"},
		{"the provider's", 503, "{}", []string{"Retry-After", "31536000"}, 1, func(*Endpoint) {}, "a down: overloaded (status 503), 2764800000ms"},
		{"denied", 401, denied, nil, failuresToClose, unmonitored, "a down: denied (status 401), -1ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", tt.set)}}, account("main", 100))
				refuse := onHost("a", func() (*http.Response, error) { return reply(tt.status, tt.body, tt.header...), nil })
				call := func() {
					_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
					synctest.Wait()
				}
				p.answer = refuse
				for range tt.calls + 5 {
					call()
				}
				want(t, "when it is closed", healths(pool), []string{tt.health})
				want(t, "sent", len(p.times("a")), tt.calls)

				if pool.Resume("b") || !pool.Resume("a") {
					t.Error("the wrong endpoint is known")
				}
				if h := healths(pool)[0]; !strings.HasPrefix(h, "a recovering") {
					t.Errorf("after it was resumed: %s", h)
				}
				call()
				call()
				want(t, "when it is closed again", healths(pool), []string{tt.health})
				want(t, "sent", len(p.times("a")), tt.calls+1)

				pool.Resume("a")
				p.answer = nil
				for range fullRamp {
					call()
					time.Sleep(20 * time.Millisecond)
				}
				want(t, "after it has recovered", healths(pool), []string{"a ok"})
				pool.Resume("a") // which changes nothing
				want(t, "in use", healths(pool), []string{"a ok"})
			})
		})
	}
}

// TestResumeBudget opens the gate of an account, which others than this pool's calls have closed, too, and no other.
func TestResumeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoints := []Endpoint{endpointAt("a", withBudget("main")), endpointAt("b", withBudget("other"))}
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: endpoints}, account("main", 100), account("other", 100))
		p.answer = func(*http.Request, string) (*http.Response, error) {
			return reply(429, tooMany, "Retry-After", "1800"), nil
		}
		for _, alias := range []string{"a", "b"} {
			_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}, Pinned: alias})
		}
		pool.accounts("main").Cool(24 * time.Hour) // by another pool
		pool.ResumeBudget("unknown")
		want(t, "before", healths(pool), []string{"a down: the account cools down, 86400000ms", "b down: rate (429), 1800000ms"})
		pool.ResumeBudget("main")
		want(t, "after", healths(pool), []string{"a recovering: rate (429), 0ms", "b down: rate (429), 1800000ms"})
		p.answer = nil
		for range fullRamp {
			if alias, _, err := send(pool, call()); err != nil || alias != "a" {
				t.Fatalf("%s, %v", alias, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		want(t, "after it has recovered", healths(pool)[:1], []string{"a ok"})
	})
}

// TestResumeProbesFirst: an endpoint of another chain gets no calls until a probe says that it is on the right one.
func TestResumeProbesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a")}})
		pool.wrong(pool.set.Load().find("a"), "it is 9 blocks behind")
		pool.Resume("a")
		want(t, "health", healths(pool), []string{"a down: it is 9 blocks behind, -1ms"})
		if len(pool.probes) != 1 {
			t.Error("it is not probed")
		}
	})
}
