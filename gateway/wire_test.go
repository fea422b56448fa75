package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// TestAnswers keeps what callers get in a golden file, for whatever can happen.
func TestAnswers(t *testing.T) {
	const batch = `[{"jsonrpc":"2.0","id":"a","method":"eth_blockNumber"},{"jsonrpc":"2.0","method":"eth_chainId"},{"jsonrpc":"2.0","id":3,"method":"eth_chainId"}]`
	second, three := limited(upstream.Rate{PerSecond: 2}), limited(upstream.Rate{PerSecond: 3})
	tests := []struct {
		name    string
		config  Config
		account []budget.Config
		before  int // requests that are sent before
		request *http.Request
		answer  func(r *http.Request, body string) (*http.Response, error)
		sent    int // how often the request is sent
	}{
		{name: "an answer", request: post(blockNumber), sent: 1},
		{name: "an answer with a limit", config: to(endpointAt("a", second)), request: post(blockNumber), sent: 1},
		{name: "the last unit of a limit", config: to(endpointAt("a", second)), before: 1, request: post(blockNumber), sent: 1},
		{
			name: "an answer with a budget", config: to(endpointAt("a", withBudget("secret-account"))), account: []budget.Config{account("secret-account", weir.PerSecond(5))},
			request: post(blockNumber), sent: 1,
		},
		{
			name: "an answer that has limits of its own", config: to(endpointAt("a", second)), request: post(blockNumber), sent: 1,
			answer: always(200, `{"id":1,"result":1}`, "RateLimit", `"vendor";r=7`, "RateLimit-Policy", `"vendor";q=10;w=1`),
		},
		{name: "a notification", request: post(`{"jsonrpc":"2.0","method":"eth_chainId"}`), answer: always(204, ""), sent: 1},
		{name: "a notification, answered with 200", request: post(`{"jsonrpc":"2.0","method":"eth_chainId"}`), answer: always(200, ""), sent: 1},
		{name: "an error of the call", request: post(blockNumber), answer: always(200, `{"id":1,"error":{"code":3,"message":"execution reverted"}}`), sent: 1},
		{name: "a refusal", request: post(blockNumber), answer: always(429, `{"id":1,"error":{"code":429,"message":"too many"}}`, "Retry-After", "7"), sent: 1},
		{name: "a page in place of an answer", request: post(blockNumber), answer: always(404, "<html>not found", "Content-Type", "text/html"), sent: 1},
		{name: "a page with a status of 200", request: post(blockNumber), answer: always(200, "<html>"+canary, "Content-Type", "text/html"), sent: 1},
		{name: "another media type of the answer", request: post(blockNumber), answer: always(200, "{}", "Content-Type", "text/html"), sent: 1},
		{name: "a redirect", request: post(blockNumber), answer: always(302, "", "Location", "https://elsewhere.example/"), sent: 1},
		{name: "no answer", request: post(blockNumber), answer: func(*http.Request, string) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, sent: 1},
		{
			name: "no answer in time", request: post(blockNumber), sent: 1,
			answer: func(r *http.Request, _ string) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			},
		},
		{name: "an answer that breaks off", request: post(blockNumber), answer: brokenOff(100), sent: 1},
		{name: "all limited", config: to(endpointAt("a", second)), before: 2, request: post(blockNumber)},
		{name: "all limited, a batch", config: to(endpointAt("a", three)), before: 1, request: post(batch)},
		{name: "all limited, a batch of notifications", config: to(endpointAt("a", second)), before: 2, request: post(`[{"method":"m"}]`)},
		{
			name: "all limited by a budget", config: to(endpointAt("a", withBudget("secret-account"))), account: []budget.Config{account("secret-account", weir.PerMinute(1))},
			before: 1, request: post(blockNumber),
		},
		{name: "never possible", config: to(endpointAt("a", second)), request: post(batch)},
		{name: "never possible, and the limit is used up", config: to(endpointAt("a", second)), before: 2, request: post(batch)},
		{name: "too late", config: waiting(to(endpointAt("a", limited(upstream.Rate{PerMinute: 2})))), before: 2, request: post(blockNumber)},
		{name: "no endpoint takes the method", config: to(endpointAt("a", func(e *upstream.Endpoint) { e.Deny = []string{"eth_blockNumber"} })), request: post(blockNumber)},
		{name: "no JSON", request: post(`{"method":x}`)},
		{name: "no call", request: post(`{"id":1}`)},
		{name: "a duplicate method", request: post(`{"id":1,"method":"eth_call","method":"eth_sendRawTransaction"}`)},
		{name: "a method in another case", request: post(`{"id":1,"method":"eth_call","Method":"eth_sendRawTransaction"}`)},
		{name: "an empty batch", request: post(`[]`)},
		{name: "a batch in a batch", request: post(`[[{"id":1,"method":"m"}]]`)},
		{name: "a long batch", request: post("[" + strings.Repeat(`{"method":"m"},`, 100) + `{"method":"m"}]`)},
		{name: "a deep body", request: post(strings.Repeat(`[`, 101))},
		{name: "a long body", config: Config{MaxBody: 10, Pool: to(endpointAt("a")).Pool}, request: post(blockNumber)},
		{name: "a long body of unknown length", config: Config{MaxBody: 10, Pool: to(endpointAt("a")).Pool}, request: chunked(post(blockNumber))},
		{name: "a compressed body", request: post(blockNumber, "Content-Encoding", "gzip")},
		{name: "another media type", request: post(blockNumber, "Content-Type", "text/plain")},
		{name: "no media type", request: post(blockNumber, "Content-Type", "")},
		{name: "another path", request: at(post(blockNumber), "/v2/key")},
		{name: "another method", request: method(post(blockNumber), http.MethodGet)},
		{name: "CONNECT", request: method(post(blockNumber), http.MethodConnect)},
		{name: "an unknown filter", request: post(`{"id":7,"method":"eth_getFilterChanges","params":["0x1"]}`)},
	}
	var got strings.Builder
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.config.Pool.Endpoints == nil {
					tt.config = to(endpointAt("a"))
				}
				route, p := newRouteTo(t, tt.config, tt.account...)
				for range tt.before {
					ask(route, post(blockNumber))
				}
				p.answer = tt.answer
				text := dump(ask(route, tt.request))
				fmt.Fprintf(&got, "--- %s\n%s\n", tt.name, text)
				if n := len(p.received()) - tt.before; n != tt.sent {
					t.Errorf("it was sent %d times, want %d:\n%s", n, tt.sent, text)
				}
				for _, hidden := range []string{canary, "secret-account"} {
					if strings.Contains(text, hidden) {
						t.Errorf("%q is in the answer:\n%s", hidden, text)
					}
				}
			})
		})
	}
	golden.Check(t, "testdata/answers.golden", []byte(got.String()))
}

func waiting(c Config) Config {
	c.Pool.MaxWait = time.Second
	return c
}

func chunked(r *http.Request) *http.Request {
	r.ContentLength = -1
	return r
}

func at(r *http.Request, path string) *http.Request {
	r.URL.Path = path
	return r
}

func method(r *http.Request, name string) *http.Request {
	r.Method = name
	return r
}

// brokenOff returns answers of which so many bytes come and no more.
func brokenOff(n int) func(*http.Request, string) (*http.Response, error) {
	return func(*http.Request, string) (*http.Response, error) {
		resp := reply(200, "")
		resp.ContentLength = -1
		body := io.MultiReader(strings.NewReader(`{"result":"`+strings.Repeat("x", n)), failing{errors.New("Post https://a.example/v2/" + canary + ": connection reset by peer")})
		resp.Body = io.NopCloser(body)
		return resp, nil
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestDown lets an endpoint deny access, and then asks again.
func TestDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, p := newRouteTo(t, to(endpointAt("a")))
		p.answer = always(401, `{"error":{"code":401,"message":"no such key: /v2/`+canary+`"}}`)
		first, then := dump(ask(route, post(blockNumber))), dump(ask(route, post(blockNumber)))
		golden.Check(t, "testdata/down.golden", []byte(first+"\n"+then))
	})
}

// TestLimiterDown has a store that cannot decide.
func TestLimiterDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := to(endpointAt("a", limited(upstream.Rate{PerSecond: 5})))
		var seen text
		c.Pool.Name, c.Pool.JSONRPC, c.Pool.Transport, c.Logger = "eth", true, &provider{}, slog.New(slog.NewTextHandler(&seen, nil))
		route, err := New(brokenStore{weir.Must(memstore.New(memstore.Config{}))}, c)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "testdata/undecided.golden", []byte(dump(ask(route, post(blockNumber)))))
		for range 10 {
			ask(route, post(blockNumber))
		}
		if n := strings.Count(seen.String(), "limits cannot be checked"); n != 1 {
			t.Errorf("logged %d times within a second:\n%s", n, seen.String())
		}
	})
}

// brokenStore cannot decide.
type brokenStore struct{ weir.Limiter }

func (brokenStore) Do(context.Context, *weir.Batch) error {
	return fmt.Errorf("store at redis.internal: %w", weir.ErrUnavailable)
}

// TestCallerGone lets the caller leave before the answer comes.
func TestCallerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, p := newRouteTo(t, to(endpointAt("a")))
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			w := ask(route, post(blockNumber).WithContext(ctx))
			if w.Code != statusCancelled || w.Body.Len() != 0 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if w := ask(route, post(blockNumber).WithContext(ctx)); w.Code != http.StatusGatewayTimeout {
			t.Errorf("%d %s: a deadline is no caller that has left", w.Code, w.Body)
		}
		s := route.Pool().Stats()
		if s.Cancelled != 6 || s.Failed != 0 || s.Endpoints[0].Health != "ok" || len(s.Endpoints[0].Failures) != 0 {
			t.Errorf("%+v: callers that leave are no failures", s)
		}
	})
}

// TestManyWaiting lets one request wait, and another come that may not.
func TestManyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := waiting(to(endpointAt("a", limited(upstream.Rate{PerSecond: 1}))))
		c.Pool.MaxQueue, c.Pool.MaxWait = 1, 10*time.Second
		route, p := newRouteTo(t, c)
		ask(route, post(blockNumber))
		var first sync.WaitGroup
		first.Go(func() {
			if w := ask(route, post(blockNumber)); w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		begun := time.Now()
		golden.Check(t, "testdata/queue-full.golden", []byte(dump(ask(route, post(blockNumber)))))
		if took := time.Since(begun); took != 0 {
			t.Errorf("it was refused after %v", took)
		}
		first.Wait()
		want(t, "sent", len(p.received()), 2)
	})
}
