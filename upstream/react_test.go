package upstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
)

func withBudget(name string) func(*Endpoint) { return func(e *Endpoint) { e.Budget = name } }
func priority(n int) func(*Endpoint)         { return func(e *Endpoint) { e.Priority = n } }
func from(name string) func(*Endpoint)       { return func(e *Endpoint) { e.Provider = name } }

// account is a budget of so many requests per second.
func account(name string, rate int64) budget.Config {
	return budget.Config{Name: name, Limits: []ruleset.Limit{{Limit: weir.PerSecond(rate)}}}
}

// healths returns what the pool says of each endpoint.
func healths(pool *Pool) (list []string) {
	for _, e := range pool.Stats().Endpoints {
		text := e.Alias + " " + e.Health
		if e.Reason != "" {
			text += fmt.Sprintf(": %s, %dms", e.Reason, e.CooldownMs)
		}
		list = append(list, text)
	}
	return list
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// onHost answers requests to one endpoint, and others with success.
func onHost(alias string, answer func() (*http.Response, error)) func(*http.Request, string) (*http.Response, error) {
	return func(r *http.Request, _ string) (*http.Response, error) {
		if r.URL.Host == alias+".example" {
			return answer()
		}
		return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
	}
}

const tooMany = `{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"Your app has exceeded its compute units per second capacity"}}`

// TestReactions shows for each kind of failure who is left alone, and for how long.
func TestReactions(t *testing.T) {
	tests := []struct {
		name   string
		answer func() (*http.Response, error)
		want   []string // of a1 and a2, which share an account and a provider, and b, which has others
		later  time.Duration
		then   []string
	}{
		{
			"429 with Retry-After",
			func() (*http.Response, error) { return reply(429, "{}", "Retry-After", "7"), nil },
			[]string{"a1 down: rate (status 429), 7000ms", "a2 down: rate (status 429), 7000ms", "b ok"},
			7 * time.Second,
			[]string{"a1 recovering: rate (status 429), 0ms", "a2 recovering: rate (status 429), 0ms", "b ok"},
		},
		{
			"429 inside a 200",
			func() (*http.Response, error) { return reply(200, tooMany, "Retry-After", "2"), nil },
			[]string{"a1 down: rate (429), 2000ms", "a2 down: rate (429), 2000ms", "b ok"},
			0, nil,
		},
		{
			"429 in a batch",
			func() (*http.Response, error) {
				return reply(200, `[{"id":1,"result":1},`+tooMany+`]`, "Retry-After", "2"), nil
			},
			[]string{"a1 down: rate (429), 2000ms", "a2 down: rate (429), 2000ms", "b ok"},
			0, nil,
		},
		{
			"402 until midnight", // the bubble begins at midnight
			func() (*http.Response, error) {
				return reply(402, `{"jsonrpc":"2.0","id":1,"error":{"code":402,"event":-33000,"message":"daily credits"}}`), nil
			},
			[]string{"a1 down: quota (402/-33000), 82800000ms", "a2 down: quota (402/-33000), 82800000ms", "b ok"},
			23 * time.Hour,
			[]string{"a1 recovering: quota (402/-33000), 0ms", "a2 recovering: quota (402/-33000), 0ms", "b ok"},
		},
		{
			"402 unpaid",
			func() (*http.Response, error) { return reply(402, `{"error":"payment required"}`), nil },
			[]string{"a1 down: denied (status 402), -1ms", "a2 ok", "b ok"},
			48 * time.Hour,
			[]string{"a1 down: denied (status 402), -1ms", "a2 ok", "b ok"},
		},
		{
			"overloaded",
			func() (*http.Response, error) { return reply(503, "", "Retry-After", "3"), nil },
			[]string{"a1 down: overloaded (status 503), 3000ms", "a2 down: overloaded (status 503), 3000ms", "b ok"},
			3 * time.Second,
			[]string{"a1 recovering: overloaded (status 503), 0ms", "a2 recovering: overloaded (status 503), 0ms", "b ok"},
		},
		{
			"an error of the call",
			func() (*http.Response, error) {
				return reply(200, `{"id":1,"error":{"code":-32000,"message":"context deadline exceeded at block 4290000"}}`), nil
			},
			[]string{"a1 ok", "a2 ok", "b ok"},
			0, nil,
		},
		{
			"a page in place of an answer",
			func() (*http.Response, error) { return reply(500, "<html>", "Content-Type", "text/html"), nil },
			[]string{"a1 ok", "a2 ok", "b ok"},
			0, nil,
		},
		{
			"429 inside a 200 of another media type",
			func() (*http.Response, error) {
				return reply(200, tooMany, "Content-Type", "text/plain", "Retry-After", "2"), nil
			},
			[]string{"a1 down: rate (429), 2000ms", "a2 down: rate (429), 2000ms", "b ok"},
			0, nil,
		},
		{
			"one failure",
			func() (*http.Response, error) { return reply(500, "context deadline exceeded, 429"), nil },
			[]string{"a1 ok", "a2 ok", "b ok"},
			0, nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour) // 01:00
				pool, p := newPool(t, Config{Strategy: Sticky, Endpoints: []Endpoint{
					endpointAt("a1", withBudget("main"), from("a")), endpointAt("a2", withBudget("main"), from("a")), endpointAt("b"),
				}}, account("main", 100))
				p.answer = onHost("a1", tt.answer)
				alias, status, err := send(pool, &Call{Methods: []string{"eth_sendRawTransaction"}})
				if alias != "a1" || err != nil {
					t.Fatalf("%q has answered %d, %v: what is not repeatable must not be sent again", alias, status, err)
				}
				want(t, "health", healths(pool), tt.want)
				if tt.then != nil {
					time.Sleep(tt.later)
					want(t, "health later", healths(pool), tt.then)
				}
			})
		})
	}
}

// TestCancelledIsNoFailure lets callers leave, and endpoints be slow.
func TestCancelledIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 100}))}, Timeout: time.Second})
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			<-r.Context().Done()
			return nil, fmt.Errorf("Post %q: %w", r.URL, r.Context().Err())
		}
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err := pool.Send(request(ctx, 0), call())
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v, want the context's error", err)
			}
		}
		want(t, "after callers have left", healths(pool), []string{"a ok"})
		for range failuresToClose {
			_, err := pool.Send(request(t.Context(), 0), call())
			if e := (*TryError)(nil); !errors.As(err, &e) || !e.Timeout || !e.Sent || strings.Contains(err.Error(), "canary") {
				t.Fatalf("%v, want a timeout without the URL", err)
			}
		}
		if e := pool.Stats().Endpoints[0]; e.Health != "down" || e.Reason != "timeout" || e.Failures["timeout"] != failuresToClose || e.Sent != 8 {
			t.Errorf("%+v", e)
		}
	})
}

// TestManyRefusalsAreOne lets ten calls of one account be refused at the same time.
func TestManyRefusalsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, MaxWait: -1, Endpoints: []Endpoint{
			endpointAt("a", withBudget("one")), endpointAt("b", withBudget("two")), endpointAt("c", withBudget("three")),
		}}, account("one", 100), account("two", 100), account("three", 100))
		p.answer = onHost("a", func() (*http.Response, error) {
			time.Sleep(50 * time.Millisecond)
			return reply(429, tooMany), nil
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { _, _, _ = send(pool, &Call{Methods: []string{"eth_sendRawTransaction"}}) })
		}
		wg.Wait()
		s := pool.Stats()
		a := s.Endpoints[0]
		if a.Health != "down" || a.CooldownMs < 50 || a.CooldownMs > 110 || a.Failures["rate"] != 10 {
			t.Errorf("%+v: want one pause of 100 ms and up to a tenth", a)
		}
		if s.Endpoints[1].Health != "ok" || s.Endpoints[2].Health != "ok" || len(p.times("b"))+len(p.times("c")) != 0 {
			t.Errorf("other accounts are blamed: %v", healths(pool))
		}
	})
}

// TestRefusalsOfTwoKeysAreOne lets calls with two keys of one account be refused at the same time.
func TestRefusalsOfTwoKeysAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{
			endpointAt("a1", withBudget("one")), endpointAt("a2", withBudget("one")), endpointAt("b", withBudget("two")),
		}}, account("one", 100), account("two", 100))
		p.answer = func(*http.Request, string) (*http.Response, error) {
			time.Sleep(50 * time.Millisecond)
			return reply(429, tooMany), nil
		}
		var wg sync.WaitGroup
		for _, alias := range []string{"a1", "a2"} {
			for range 5 {
				wg.Go(func() { _, _, _ = send(pool, &Call{Methods: []string{"eth_sendRawTransaction"}, Pinned: alias}) })
			}
		}
		wg.Wait()
		s := pool.Stats().Endpoints
		for _, a := range s[:2] {
			if a.Health != "down" || a.Reason != "rate (429)" || a.CooldownMs < 50 || a.CooldownMs > 110 || a.Failures["rate"] != 5 {
				t.Errorf("%+v: want one pause of 100 ms and up to a tenth", a)
			}
		}
		if s[0].CooldownMs != s[1].CooldownMs || pool.accounts("one").Cooldown().Milliseconds() != s[0].CooldownMs {
			t.Errorf("%v, and the account pauses for %v: want that both keys have its pause", healths(pool), pool.accounts("one").Cooldown())
		}
		if s[2].Health != "ok" || pool.accounts("two").Cooldown() != 0 {
			t.Errorf("the other account is blamed: %v", healths(pool))
		}
	})
}

// TestNothingBeforeRetryAfter offers calls all the time to an endpoint that wants none for two seconds.
func TestNothingBeforeRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxQueue: 5, Endpoints: []Endpoint{endpointAt("a", withBudget("main"))}}, account("main", 1000))
		var until time.Duration
		p.answer = func(*http.Request, string) (*http.Response, error) {
			if now := time.Since(p.start); until == 0 {
				until = now + 2*time.Second
				return reply(429, tooMany, "Retry-After", "2"), nil
			}
			return reply(200, "{}"), nil
		}
		var wg sync.WaitGroup
		for range 400 {
			wg.Go(func() { _, _, _ = send(pool, &Call{Methods: []string{"eth_x"}}) })
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		times := p.times("a")
		for _, at := range times[1:] {
			if at < until {
				t.Fatalf("a call was sent at %v, before %v", at, until)
			}
		}
		if times[1] != until || len(times) < 200 {
			t.Errorf("%d calls, and the first one after the pause at %v, not at %v", len(times), times[1], until)
		}
	})
}

// TestRamp counts how many calls an endpoint gets at once after it was refused.
func TestRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}})
		refuse, flying, most := true, 0, []int{}
		p.answer = func(*http.Request, string) (*http.Response, error) {
			p.mu.Lock()
			flying++
			most = append(most, flying)
			refused := refuse
			refuse = false
			p.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			p.mu.Lock()
			flying--
			p.mu.Unlock()
			if refused {
				return reply(429, tooMany, "Retry-After", "1"), nil
			}
			return reply(200, "{}"), nil
		}
		_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _, _, _ = send(pool, &Call{Methods: []string{"eth_x"}}) })
		}
		synctest.Wait()
		rounds := []int{}
		count := func() (begun int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			rounds = append(rounds, flying)
			return len(most) - 1
		}
		for count() < 100 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		wg.Wait()
		for i, n := range rounds {
			if limit := min(1<<i, fullRamp); n > limit && i < 6 {
				t.Errorf("%d calls were in flight in round %d of %v, want at most %d", n, i, rounds, limit)
			}
		}
		if rounds[0] != 1 {
			t.Errorf("%v: want one call first", rounds)
		}
		want(t, "health", healths(pool), []string{"a ok"})
	})
}

// TestRetries counts how often requests are sent while every endpoint fails, by their bodies: each has the whole of its own.
func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		name   string
		call   func() *Call
		answer func() (*http.Response, error)
		most   int
	}{
		{"repeatable", call, func() (*http.Response, error) { return reply(500, ""), nil }, 1100},
		{"repeatable, without an answer", call, func() (*http.Response, error) { return nil, errors.New("EOF") }, 1100},
		{"not repeatable", func() *Call { return &Call{Methods: []string{"eth_sendRawTransaction"}} }, func() (*http.Response, error) { return reply(500, ""), nil }, 1000},
		{"not repeatable, refused", func() *Call { return &Call{Methods: []string{"eth_sendRawTransaction"}} }, func() (*http.Response, error) { return reply(429, tooMany), nil }, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{MaxWait: time.Minute, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b"), endpointAt("c"), endpointAt("d"), endpointAt("e")}})
				p.answer = func(*http.Request, string) (*http.Response, error) { return tt.answer() }
				perRequest := map[string]int{}
				for i := range 1000 {
					reply, err := pool.Send(request(t.Context(), i), tt.call())
					if err == nil {
						reply.Body.Close()
					}
				}
				for _, r := range p.received {
					perRequest[r.body]++
				}
				most := 0
				for _, n := range perRequest {
					most = max(most, n)
				}
				if len(p.received) > tt.most || tt.most == 1000 && most > 1 || tt.most > 1000 && len(p.received) <= 1000 {
					t.Errorf("1,000 requests were sent %d times, one of them %d times", len(p.received), most)
				}
				if len(perRequest) != 1000 || most > 3 {
					t.Errorf("%d different bodies of 1,000 were received, one of them %d times", len(perRequest), most)
				}
			})
		})
	}
}

// TestConnectionsAreBounded counts how often it is tried to connect while every endpoint refuses that: at most four times for a
// request, and as often as an endpoint out of use is tried again.
func TestConnectionsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name string
		wait time.Duration // for an endpoint that is in use
		step time.Duration // from one request to the next, 0 if each waits for the end of the one before
		dial time.Duration // until a connection is refused
	}{
		{"one after the other", time.Minute, 0, 0},
		{"evenly", -1, 10 * time.Millisecond, time.Millisecond},
		{"evenly, and they wait", 3 * time.Second, 10 * time.Millisecond, time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				aliases := []string{"a", "b", "c", "d", "e"}
				c := Config{MaxWait: tt.wait}
				for _, alias := range aliases {
					c.Endpoints = append(c.Endpoints, endpointAt(alias))
				}
				pool, p := newPool(t, c)
				p.answer = func(r *http.Request, _ string) (*http.Response, error) {
					httptrace.ContextClientTrace(r.Context()).GetConn(r.URL.Host)
					time.Sleep(tt.dial)
					return nil, errors.New("connection refused")
				}
				var callers sync.WaitGroup
				for i := range 1000 {
					callers.Go(func() {
						if reply, err := pool.Send(request(t.Context(), i), call()); err == nil {
							reply.Body.Close()
						}
					})
					if tt.step == 0 {
						callers.Wait()
					}
					time.Sleep(tt.step)
				}
				callers.Wait()
				perRequest := map[string]int{}
				for _, r := range p.received {
					if perRequest[r.body]++; perRequest[r.body] > maxCandidates {
						t.Fatalf("%s was tried more than %d times", r.body, maxCandidates)
					}
				}
				for i, alias := range aliases {
					if n := most(p.times(alias), 10*time.Second); n < 10 || n > 20 { // three failures, then one each 0.25 to 0.8 s, which are 16
						t.Errorf("%d connections to %s in ten seconds", n, alias)
					}
					if e := pool.Stats().Endpoints[i]; e.Sent != 0 || e.Unsent != int64(len(p.times(alias))) {
						t.Errorf("%+v: want that nothing was sent", e)
					}
				}
			})
		})
	}
}

// TestUnsentIsGivenBack uses endpoints that nobody listens at, over real sockets.
func TestUnsentIsGivenBack(t *testing.T) {
	pool, _ := newPool(t, Config{Strategy: Sticky, Endpoints: []Endpoint{
		endpointAt("a", withBudget("main"), limited(Rate{PerMinute: 50})), endpointAt("b"),
	}}, account("main", 100))
	own := pool.set.Load().config
	own.Transport = nil // the pool's own
	for i := range own.Endpoints {
		own.Endpoints[i].RPC = closedPort(t)
	}
	if err := pool.Replace(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.own.CloseIdleConnections)
	_, _, err := send(pool, &Call{Methods: []string{"eth_sendRawTransaction"}})
	if e := (*TryError)(nil); !errors.As(err, &e) || e.Sent || e.Reason != "connection refused" {
		t.Fatalf("%v, want a refused connection", err)
	}
	s := pool.Stats()
	if a, b := s.Endpoints[0], s.Endpoints[1]; a.Unsent != 1 || a.Sent != 0 || b.Unsent != 1 {
		t.Errorf("%+v\n%+v: want one attempt at each", a, b)
	}
	u, err := pool.accounts("main").Usage(t.Context())
	if err != nil || u.Horizons[0].Used != 0 {
		t.Errorf("%+v, %v: the account is charged", u.Horizons, err)
	}
	d, err := weir.Peek(t.Context(), pool.engine.Limiter(), pool.set.Load().endpoints[0].policy, endpointKey, 0)
	if err != nil || d.Remaining != 50 {
		t.Errorf("%v, %v: the limit is charged", d, err)
	}
}

// TestCanary looks for the secret in whatever a pool says.
func TestCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}})
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			return nil, fmt.Errorf("Post %q: dial tcp: something about canary", r.URL)
		}
		for range 5 {
			_, _, err := send(pool, call())
			stats, _ := json.Marshal(pool.Stats())
			for _, text := range []string{fmt.Sprintf("%v %+v", err, err), string(stats), fmt.Sprintf("%+v", pool.set.Load().config)} {
				if strings.Contains(text, "canary") {
					t.Fatalf("the secret is in %s", text)
				}
			}
		}
		bad := Config{Name: "eth", Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) { e.RPC = closedScheme })}}
		if err := bad.Validate(); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	})
}

// TestResetIsNotThatOfTheHold sends a request that uses a fifth of a limit, which is full again after a fifth of a second.
func TestResetIsNotThatOfTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gcra := weir.Limit{Rate: 5, Per: weir.Every(time.Second), Algorithm: weir.GCRA}
		none := account("main", 5)
		none.Classes = []budget.Class{}
		pool, _ := newPool(t, Config{Endpoints: []Endpoint{
			endpointAt("a", func(e *Endpoint) { e.Limits = []weir.Limit{gcra} }), endpointAt("b", withBudget("main")), endpointAt("c", limited(Rate{PerSecond: 5})),
		}}, none)
		for alias, reset := range map[string]time.Duration{"a": time.Second / 5, "b": time.Second / 5, "c": time.Second} {
			reply, err := pool.Send(request(t.Context(), 0), &Call{Methods: []string{"eth_x"}, Pinned: alias})
			if err != nil {
				t.Fatal(err)
			}
			reply.Body.Close()
			if got := reply.Decision.ResetAfter.Round(time.Microsecond); got != reset || reply.Decision.Remaining != 4 {
				t.Errorf("%s: %v, want 4 that remain and %v", alias, reply.Decision, reset)
			}
		}
	})
}

// TestHiddenLimit sends a request to an account with a limit of which callers are told only when it refuses.
func TestHiddenLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hidden := account("main", 1)
		hidden.Limits[0].Hidden, hidden.Classes = true, []budget.Class{}
		pool, _ := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withBudget("main"))}}, hidden)
		reply, err := pool.Send(request(t.Context(), 0), call())
		if err != nil || reply.Limit != "" {
			t.Errorf("%+v, %v: want no limit", reply, err)
		}
		_, err = pool.Send(request(t.Context(), 0), call())
		if e := (*LimitedError)(nil); !errors.As(err, &e) || e.Limit != "budget" {
			t.Errorf("%v, want that the budget limits", err)
		}
	})
}

// TestBrokenBodies lets short responses end early: nothing has reached the caller, so another endpoint is asked.
func TestBrokenBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, Timeout: time.Second, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
		for _, tt := range []struct {
			name string
			body func(ctx context.Context) io.Reader
			want string // counted as
		}{
			{"reset", func(context.Context) io.Reader {
				return failing{errors.New("read https://a.example/canary: connection reset by peer")}
			}, "failed"},
			{"stopped", func(ctx context.Context) io.Reader { return stopped{ctx} }, "timeout"},
		} {
			p.answer = func(r *http.Request, _ string) (*http.Response, error) {
				resp := reply(200, "{}")
				if r.URL.Host == "a.example" {
					resp.ContentLength, resp.Body = 100, io.NopCloser(tt.body(r.Context()))
				}
				return resp, nil
			}
			before := pool.Stats().Endpoints[0].Failures[tt.want]
			if alias, status, err := send(pool, call()); alias != "b" || status != 200 || err != nil {
				t.Errorf("%s: %q, %d, %v", tt.name, alias, status, err)
			}
			_, _, err := send(pool, &Call{Methods: []string{"eth_sendRawTransaction"}})
			if e := (*TryError)(nil); !errors.As(err, &e) || !e.Sent || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v, want that the endpoint has not answered", tt.name, err)
			}
			if n := pool.Stats().Endpoints[0].Failures[tt.want] - before; n != 2 {
				t.Errorf("%s: counted %d times as %s", tt.name, n, tt.want)
			}
			pool.set.Load().endpoints[0].memory.failures.Store(0)
			for range 20 { // so that it may retry again
				pool.retries.request()
			}
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type stopped struct{ ctx context.Context }

func (s stopped) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// TestLongBodies reads a response to the end that is too long to be looked at, and one that breaks off.
func TestLongBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}, Timeout: time.Second})
		long := "[" + strings.Repeat("x", 3*maxPeek)
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			resp := reply(200, "")
			resp.ContentLength, resp.Body = -1, io.NopCloser(io.MultiReader(strings.NewReader(long), failing{errors.New("canary")}))
			return resp, nil
		}
		reply, err := pool.Send(request(t.Context(), 0), call())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // longer than the timeout
		body, err := io.ReadAll(reply.Body)
		if e := (*TryError)(nil); !errors.As(err, &e) || strings.Contains(err.Error(), "canary") || string(body) != long {
			t.Errorf("%d bytes, %v", len(body), err)
		}
		reply.Body.Close()
	})
}

// TestRedirects counts them as failures: they are not followed.
func TestRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
		p.answer = onHost("a", func() (*http.Response, error) { return reply(301, "", "Location", "http://169.254.169.254/"), nil })
		if alias, status, err := send(pool, call()); alias != "b" || status != 200 || err != nil {
			t.Errorf("%q, %d, %v", alias, status, err)
		}
		want(t, "failures", pool.Stats().Endpoints[0].Failures, map[string]int64{"failed": 1})
	})
}

// TestPagesAreFailures has an endpoint that answers calls with a page.
func TestPagesAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
		p.answer = onHost("a", func() (*http.Response, error) { return reply(200, " <html>canary", "Content-Type", "text/html"), nil })
		if alias, status, err := send(pool, call()); alias != "b" || status != 200 || err != nil {
			t.Errorf("%q, %d, %v", alias, status, err)
		}
		_, _, err := send(pool, &Call{Methods: []string{"eth_sendRawTransaction"}})
		if e := (*TryError)(nil); !errors.As(err, &e) || e.Reason != "the answer is not JSON" || !e.Sent {
			t.Errorf("%v", err)
		}
	})
}

// TestErrorsAreRedacted lets a provider repeat what it was sent.
func TestErrorsAreRedacted(t *testing.T) {
	secretive := func(e *Endpoint) {
		e.RPC = secret.New("https://user-name:pass%2Fword@a.example/v2/canary-path1?apikey=canary-query1&v=2")
		e.Headers = []Header{{Name: "X-Auth", Value: secret.New("Bearer canary-header")}}
	}
	pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", secretive)}})
	basic := base64.StdEncoding.EncodeToString([]byte("user-name:pass/word"))
	echo := "https://user-name:pass/word@a.example/v2/canary-path1?apikey=canary-query1&v=2 canary-header canary-path1-and-more Basic " + basic
	for status, contentType := range map[int]string{400: "text/html", 404: "application/json", 200: "application/json"} {
		p.answer = func(*http.Request, string) (*http.Response, error) {
			return reply(status, fmt.Sprintf(`{"id":1,"error":{"message":%q}}`, echo), "Content-Type", contentType), nil
		}
		reply, err := pool.Send(request(t.Context(), 0), call())
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(reply.Body)
		text := `{"id":1,"error":{"message":"https://***:***@a.example/v2/***?apikey=***&v=2 *** ***-and-more Basic ***"}}`
		if string(body) != text || reply.ContentLength != int64(len(text)) {
			t.Errorf("%d: %d bytes, %s", status, reply.ContentLength, body)
		}
	}
}

// TestPanicEndsTheCall has a transport that panics: the endpoint is as free as before.
func TestPanicEndsTheCall(t *testing.T) {
	pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) { e.Concurrency = 1 })}})
	p.answer = func(*http.Request, string) (*http.Response, error) { panic("of the transport") }
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _, _ = send(pool, call())
		}()
	}
	if s := pool.Stats().Endpoints[0]; s.InFlight != 0 || s.Health != "ok" {
		t.Errorf("%+v", s)
	}
}

// TestRefusedByGate asks an account that admits nothing for a while, for a reason that is no limit's.
func TestRefusedByGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withBudget("main"), limited(Rate{PerSecond: 5}))}}, account("main", 100))
		pool.engine.SetGate("main", func(context.Context) ruleset.Terms { return ruleset.Terms{Wait: 2 * time.Second} })
		_, _, err := send(pool, call())
		if e := (*LimitedError)(nil); !errors.As(err, &e) || e.Limit != "cooldown" || e.RetryAfter != 2*time.Second || len(p.received) != 0 {
			t.Errorf("%v", err)
		}
	})
}

// TestStoreFailsWhileWaiting has a store that fails when a request that has to wait asks it for how long.
func TestStoreFailsWhileWaiting(t *testing.T) {
	for name, set := range map[string]func(*Endpoint){"account": withBudget("main"), "limit": limited(Rate{PerSecond: 1})} {
		synctest.Test(t, func(t *testing.T) {
			c := Config{Name: "eth", Transport: &provider{}, Logger: slog.New(slog.DiscardHandler), Endpoints: []Endpoint{endpointAt("a", set)}}
			one := account("main", 1)
			one.Classes, one.Logger = []budget.Class{}, c.Logger
			pool := weir.Must(New(noPeek{weir.Must(memstore.New(memstore.Config{}))}, c, one))
			if _, _, err := send(pool, call()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := send(pool, call()); !errors.Is(err, weir.ErrUnavailable) {
				t.Errorf("%s: %v, want what the store has said", name, err)
			}
		})
	}
}

type noPeek struct{ weir.Limiter }

func (n noPeek) Do(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.PeekEach {
		return weir.ErrUnavailable
	}
	return n.Limiter.Do(ctx, b)
}

// TestInUseAgainOnce closes all gates of an endpoint, at once and one after the other, and reads in the log how often it was in use
// again.
func TestInUseAgainOnce(t *testing.T) {
	for name, apart := range map[string]int{"at once": 0, "apart": 10} {
		synctest.Test(t, func(t *testing.T) {
			pool, _ := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a")}})
			var text strings.Builder
			c := pool.set.Load().config
			c.Logger = slog.New(slog.NewTextHandler(&text, nil))
			if err := pool.Replace(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			for _, g := range pool.set.Load().endpoints[0].gates() {
				g.close(time.Now(), pass{}, time.Second, delays{}, "test")
				time.Sleep(time.Second)
				for range apart {
					_, _, _ = send(pool, call())
				}
			}
			for range fullRamp {
				if _, _, err := send(pool, call()); err != nil {
					t.Fatal(err)
				}
			}
			want(t, name+": health", healths(pool), []string{"a ok"})
			if n := strings.Count(text.String(), "in use again"); n != 1 {
				t.Errorf("%s: logged %d times:\n%s", name, n, text.String())
			}
		})
	}
}
