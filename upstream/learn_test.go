package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/store/memstore"
)

func perHour(name string, rate int64) weir.Limit {
	return weir.Limit{Name: name, Rate: rate, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog}
}

func withLimits(list ...weir.Limit) func(*Endpoint) { return func(e *Endpoint) { e.Limits = list } }

// saying answers with headers, written as "Name: value, Name: value".
func saying(headers string) func(*http.Request, string) (*http.Response, error) {
	return func(*http.Request, string) (*http.Response, error) {
		resp := reply(200, "{}")
		for line := range strings.SplitSeq(headers, " | ") {
			name, value, _ := strings.Cut(line, ": ")
			resp.Header.Set(name, value)
		}
		return resp, nil
	}
}

// remaining returns what is left of each of an endpoint's own limits.
func remaining(t *testing.T, pool *Pool) (list []int64) {
	t.Helper()
	usage, err := pool.usage(t.Context(), pool.set.Load().endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range usage {
		list = append(list, u.Remaining)
	}
	return list
}

// TestOwnLimitsLearn has providers say what is left to an endpoint that has limits of its own and no budget (F0.15).
func TestOwnLimitsLearn(t *testing.T) {
	hour := []weir.Limit{perHour("hour", 100)}
	both := Rate{PerSecond: 20, PerMinute: 100}
	aligned := both
	aligned.Aligned = true
	smooth := Rate{PerMinute: 600, Smooth: true} // 10 at once
	for _, tt := range []struct {
		name    string
		limits  []weir.Limit
		headers string
		want    []int64 // what is left of each limit after one call
		drift   int64
	}{
		{"less than we know", hour, `RateLimit: "default";r=40;t=3600`, []int64{40}, 59},
		{"nothing", hour, `RateLimit: "default";r=0;t=3600`, []int64{0}, 99},
		{"of no limit that is named, which may be of a second", hour, `RateLimit: "default";r=0;t=1`, []int64{99}, 0},
		{"with a name and a limit", hour, `RateLimit: "default";r=40 | RateLimit-Policy: "default";q=100;w=3600`, []int64{40}, 59},
		{"full in six minutes", hour, "X-RateLimit-Limit-Requests: 100 | X-RateLimit-Remaining-Requests: 40 | X-RateLimit-Reset-Requests: 6m0s", []int64{40}, 59},
		{"as much", hour, `RateLimit: "default";r=99`, []int64{99}, 0},
		{"more", hour, "X-RateLimit-Limit: 1000 | X-RateLimit-Remaining: 999", []int64{99}, 0},
		{"tokens", hour, "X-RateLimit-Limit-Tokens: 100 | X-RateLimit-Remaining-Tokens: 0", []int64{99}, 0},
		{"units of the draft", hour, `RateLimit: "default";r=0 | RateLimit-Policy: "default";q=100;qu="compute-units"`, []int64{99}, 0},
		{"requests beside tokens", hour, "X-RateLimit-Remaining-Tokens: 0 | X-RateLimit-Remaining-Requests: 40 | X-RateLimit-Limit-Requests: 100", []int64{40}, 59},
		{"a smaller limit that is unused", hour, "X-RateLimit-Limit: 10 | X-RateLimit-Remaining: 9", []int64{99}, 0},
		{"a smaller limit that others use", hour, "X-RateLimit-Limit: 10 | X-RateLimit-Remaining: 4", []int64{94}, 5},
		{"an old answer", hour, "X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 0 | Age: 1", []int64{99}, 0},
		{"the limit of the same size", both.Limits(), "X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 90", []int64{10, 90}, 9},
		{"the longest limit, by and by", both.Limits(), "X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 10", []int64{10, 90}, 9},
		{"the shortest limit", both.Limits(), "X-RateLimit-Limit: 20 | X-RateLimit-Remaining: 0", []int64{19, 99}, 0},
		{"a limit that is not named", both.Limits(), `RateLimit: "default";r=12`, []int64{19, 99}, 0},
		{"aligned", aligned.Limits(), "X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 90", []int64{10, 90}, 9},
		{"smooth", smooth.Limits(), "X-RateLimit-Limit: 600 | X-RateLimit-Remaining: 3", []int64{3}, 6},
		{"calls in flight", []weir.Limit{{Name: "calls", Rate: 5, Algorithm: weir.Concurrency}}, `RateLimit: "default";r=0;t=60`, nil, 0},
		{"no limit", nil, `RateLimit: "default";r=0;t=60`, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withLimits(tt.limits...))}})
				p.answer = saying(tt.headers)
				if _, _, err := send(pool, call()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				want(t, "remaining", remaining(t, pool), tt.want)
				want(t, "drift", pool.Stats().Endpoints[0].Drift, tt.drift)
				want(t, "health", healths(pool), []string{"a ok"})
			})
		})
	}
}

// TestNothingIsLeft sends requests to a provider that has nothing left: the endpoint's limit ends that, and no cooldown.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 100}))}})
		p.answer = saying(`RateLimit: "default";r=0;t=60`)
		var limited *LimitedError
		for range 20 {
			if _, _, err := send(pool, call()); err != nil && !errors.As(err, &limited) {
				t.Fatal(err)
			}
		}
		if n := len(p.times("a")); n != 1 || limited == nil || limited.Limit != "minute" || limited.RetryAfter != time.Minute {
			t.Errorf("%d of 20 were sent, and then %v: want 1, and that the limit is used up for a minute", n, limited)
		}
		want(t, "health", healths(pool), []string{"a ok"})
		time.Sleep(time.Minute)
		if _, _, err := send(pool, call()); err != nil {
			t.Errorf("after a minute: %v", err)
		}
	})
}

// TestInFlightIsNoDrift answers a call while others are in flight, which the provider has not counted yet.
func TestInFlightIsNoDrift(t *testing.T) {
	for name, limit := range map[string]weir.Limit{"log": perHour("", 10), "gcra": {Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.GCRA}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withLimits(limit))}})
				var received atomic.Int64
				release := make(chan struct{})
				p.answer = func(r *http.Request, body string) (*http.Response, error) {
					if received.Add(1) <= 3 {
						<-release
					}
					return saying("X-RateLimit-Limit: 10 | X-RateLimit-Remaining: 9")(r, body) // the provider knows of this one alone
				}
				for range 3 {
					go func() { _, _, _ = send(pool, call()) }()
				}
				synctest.Wait()
				if _, _, err := send(pool, call()); err != nil {
					t.Fatal(err)
				}
				want(t, "remaining with three in flight", remaining(t, pool), []int64{6})
				close(release)
				synctest.Wait()
				want(t, "remaining", remaining(t, pool), []int64{6})
				want(t, "drift", pool.Stats().Endpoints[0].Drift, int64(0))
			})
		})
	}
}

// TestLearnsSometimes compares ten times a second, or whenever nothing is left.
func TestLearnsSometimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withLimits(perHour("", 100)))}})
		for _, step := range []struct {
			says  string
			drift int64 // in all
			pass  time.Duration
		}{
			{"90", 9, 99 * time.Millisecond},
			{"80", 9, time.Millisecond}, // too early
			{"80", 17, 0},
			{"70", 17, 0},
			{"0", 95, 0},
		} {
			p.answer = saying("X-RateLimit-Limit: 100 | X-RateLimit-Remaining: " + step.says)
			if _, _, err := send(pool, call()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := pool.Stats().Endpoints[0].Drift; got != step.drift {
				t.Errorf("%s: drift %d, want %d", step.says, got, step.drift)
			}
			time.Sleep(step.pass)
		}
	})
}

// TestWhoLearns counts what responses ask of the store: nothing if the endpoint has no limit, and what is left of an
// account is not charged to the limit of one of its endpoints.
func TestWhoLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := account("main", 100)
		none.Classes, none.Logger = []budget.Class{}, slog.New(slog.DiscardHandler)
		store := &counting{Limiter: weir.Must(memstore.New(memstore.Config{}))}
		p := &provider{answer: saying(`RateLimit: "default";r=0;t=60`)}
		c := Config{Name: "eth", Transport: p, Logger: none.Logger, MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 50}), withBudget("main")), endpointAt("b")}}
		pool := weir.Must(New(store, c, none))
		to := func(alias string) {
			t.Helper()
			store.operations() // forget those before
			if _, _, err := send(pool, &Call{Methods: []string{"eth_x"}, Pinned: alias}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		to("b")
		want(t, "operations for an endpoint without limits", store.operations(), nil)
		to("a")
		if done := store.operations(); !slices.Contains(done, weir.DebitEach) {
			t.Errorf("%v: the account has not learnt", done)
		}
		want(t, "remaining of the endpoint", remaining(t, pool), []int64{49})
	})
}

// counting notes the operations of batches.
type counting struct {
	weir.Limiter
	mu   sync.Mutex
	done []weir.Op
}

func (c *counting) Do(ctx context.Context, b *weir.Batch) error {
	c.mu.Lock()
	c.done = append(c.done, b.Op)
	c.mu.Unlock()
	return c.Limiter.Do(ctx, b)
}

// operations returns those since it was last called.
func (c *counting) operations() (done []weir.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done, c.done = c.done, nil
	return done
}
