package upstream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func concurrency(n int) func(*Endpoint) { return func(e *Endpoint) { e.Concurrency = n } }

// TestConcurrencyIsBounded offers a random load: calls of any length that succeed, fail, are refused, or whose callers
// leave. Never are more in flight than an endpoint may have, and in the end none is.
func TestConcurrencyIsBounded(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{Cooldown: 10 * time.Millisecond, Endpoints: []Endpoint{
				endpointAt("three", concurrency(3), from("x")), endpointAt("one", concurrency(1), limited(Rate{PerSecond: 50}), from("y")),
			}})
			random := rand.New(rand.NewPCG(seed, 0)) // guarded by p.mu
			upTo := func(most time.Duration) time.Duration {
				p.mu.Lock()
				defer p.mu.Unlock()
				return time.Duration(random.Int64N(int64(most)))
			}
			flying, most := map[string]int{}, map[string]int{}
			p.answer = func(r *http.Request, _ string) (*http.Response, error) {
				p.mu.Lock()
				flying[r.URL.Host]++
				most[r.URL.Host] = max(most[r.URL.Host], flying[r.URL.Host])
				p.mu.Unlock()
				err := sleep(r.Context(), upTo(40*time.Millisecond), nil)
				p.mu.Lock()
				defer p.mu.Unlock()
				flying[r.URL.Host]--
				switch n := random.IntN(40); {
				case err != nil:
					return nil, err
				case n == 0:
					return nil, errors.New("connection reset by peer")
				case n == 1:
					return reply(429, tooMany), nil
				case n == 2:
					return reply(500, ""), nil
				}
				return reply(200, "{}"), nil
			}
			var all sync.WaitGroup
			for i := range 1000 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), upTo(300*time.Millisecond))
					defer cancel()
					if reply, err := pool.Send(request(ctx, i), call()); err == nil {
						reply.Body.Close()
					}
				})
				if i%20 == 0 { // so that many come at once
					time.Sleep(upTo(200 * time.Millisecond))
				}
			}
			all.Wait()
			synctest.Wait()
			want(t, "most calls in flight", most, map[string]int{"three.example": 3, "one.example": 1})
			s := pool.Stats()
			for _, e := range s.Endpoints {
				if e.InFlight != 0 {
					t.Errorf("seed %d: %+v", seed, e)
				}
			}
			if s.Cancelled == 0 || s.Retries == 0 || s.Waited == 0 || s.Waiting != 0 {
				t.Errorf("seed %d: %+v: some should have left, some waited, and some been sent again", seed, s)
			}
		})
	}
}

// TestSlotsAtOnce lets calls ask for the slots of an endpoint at the same time.
func TestSlotsAtOnce(t *testing.T) {
	pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", concurrency(2))}})
	e := pool.set.Load().endpoints[0]
	for range 20_000 {
		var got atomic.Int64
		var all sync.WaitGroup
		start, end := make(chan struct{}), make(chan struct{})
		var tried sync.WaitGroup
		for range 6 {
			tried.Add(1)
			all.Go(func() {
				<-start
				l := &lease{pool: pool, endpoint: e, call: call()}
				_, ok := l.enter(time.Now())
				tried.Done()
				if !ok {
					return
				}
				got.Add(1)
				<-end
				l.leave()
			})
		}
		close(start)
		tried.Wait()
		close(end)
		all.Wait()
		if n := got.Load(); n > 2 {
			t.Fatalf("%d calls have one of two slots", n)
		}
	}
	want(t, "in flight", pool.Stats().Endpoints[0].InFlight, int64(0))
}

// TestCancelledWhileHalfOpen closes an endpoint, its account or its provider, and lets the caller leave of the one call that
// may be in flight after that: it is no failure, and the next call takes its place at once.
func TestCancelledWhileHalfOpen(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func() (*http.Response, error)
		calls  int // that close it
		class  string
	}{
		{"the endpoint", func() (*http.Response, error) { return reply(500, ""), nil }, failuresToClose, "failed"},
		{"its account", func() (*http.Response, error) { return reply(429, tooMany, "Retry-After", "1"), nil }, 1, "rate"},
		{"its provider", func() (*http.Response, error) { return reply(503, "", "Retry-After", "1"), nil }, 1, "overloaded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", withBudget("main"))}}, account("main", 100))
				p.answer = onHost("a", tt.answer)
				for range tt.calls {
					_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
				}
				time.Sleep(time.Second)
				want(t, "health", pool.Stats().Endpoints[0].Health, "recovering")

				p.answer = func(r *http.Request, _ string) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() {
					if _, err := pool.Send(request(ctx, 1), call()); !errors.Is(err, context.Canceled) {
						t.Errorf("%v, want that the caller has left", err)
					}
				})
				synctest.Wait()
				all.Go(func() {
					if _, status, err := send(pool, call()); status != http.StatusOK || err != nil {
						t.Errorf("the next call: %d, %v", status, err)
					}
				})
				synctest.Wait()
				want(t, "sent while one is in flight", len(p.times("a")), tt.calls+1)
				p.mu.Lock()
				p.answer = nil
				p.mu.Unlock()
				left := time.Now()
				cancel()
				all.Wait()
				if n := len(p.times("a")); n != tt.calls+2 || !time.Now().Equal(left) {
					t.Errorf("%d were sent, the last one %v after the caller had left", n, time.Since(left))
				}
				e := pool.Stats().Endpoints[0]
				want(t, "failures", e.Failures, map[string]int64{tt.class: int64(tt.calls)})
				if e.Health != "recovering" || e.InFlight != 0 {
					t.Errorf("%+v", e)
				}
				for range fullRamp {
					if _, _, err := send(pool, call()); err != nil {
						t.Fatal(err)
					}
				}
				want(t, "health after successes", healths(pool), []string{"a ok"})
			})
		})
	}
}

// TestStreamsAreInFlight counts a call until its response has ended: at its end, when it is closed or when it breaks off.
func TestStreamsAreInFlight(t *testing.T) {
	long := "[" + strings.Repeat("1,", maxPeek)
	for name, end := range map[string]func(*Reply, *io.PipeWriter){
		"read to the end": func(r *Reply, w *io.PipeWriter) {
			go w.Close()
			_, _ = io.Copy(io.Discard, r.Body)
		},
		"closed": func(r *Reply, _ *io.PipeWriter) { _ = r.Body.Close() },
		"broken": func(r *Reply, w *io.PipeWriter) {
			go w.CloseWithError(errors.New("connection reset by peer"))
			_, _ = io.Copy(io.Discard, r.Body)
		},
		"late": func(r *Reply, _ *io.PipeWriter) { _, _ = io.Copy(io.Discard, r.Body) },
	} {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{MaxWait: -1, Timeout: time.Second, Endpoints: []Endpoint{endpointAt("a", concurrency(1))}})
			body, w := io.Pipe()
			p.answer = func(*http.Request, string) (*http.Response, error) {
				resp := reply(200, "")
				resp.ContentLength, resp.Body = -1, struct {
					io.Reader
					io.Closer
				}{io.MultiReader(strings.NewReader(long), body), body}
				return resp, nil
			}
			first, err := pool.Send(request(t.Context(), 0), call())
			if err != nil {
				t.Fatal(err)
			}
			p.answer = nil
			want(t, name+": in flight", pool.Stats().Endpoints[0].InFlight, int64(1))
			_, _, err = send(pool, call())
			if e := (*LimitedError)(nil); !errors.As(err, &e) || e.Limit != limitedByInFlight {
				t.Errorf("%s: %v, want that the concurrency limits", name, err)
			}
			end(first, w)
			want(t, name+": in flight after that", pool.Stats().Endpoints[0].InFlight, int64(0))
			if _, status, err := send(pool, call()); status != 200 {
				t.Errorf("%s: %d, %v", name, status, err)
			}
			_ = first.Body.Close()
			want(t, name+": in flight in the end", pool.Stats().Endpoints[0].InFlight, int64(0))
		})
	}
}

// TestLongRefusalIsSentAgain refuses with a long response: the request that is sent again does not wait for its end.
func TestLongRefusalIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", concurrency(1))}})
		n := 0
		p.answer = func(*http.Request, string) (*http.Response, error) {
			if n++; n > 1 {
				return reply(200, "{}"), nil
			}
			return reply(429, strings.Repeat(" ", 2*maxPeek)), nil
		}
		if _, status, err := send(pool, call()); status != 200 || n != 2 {
			t.Errorf("%d, %v after %d tries", status, err, n)
		}
		want(t, "in flight", pool.Stats().Endpoints[0].InFlight, int64(0))
	})
}
