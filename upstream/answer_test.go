package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/secret"
)

// TestAnswersAreJSON has an endpoint that answers with what is none. Another one is asked, if that may be, and the endpoint
// goes out of use.
func TestAnswersAreJSON(t *testing.T) {
	page := "<html>" + strings.Repeat("x", 2*maxPeek)
	for name, body := range map[string]string{
		"cut off": `{"jsonrpc":"2.0","id":`, "empty": "", "blank": " \r\n", "two": `{} {}`, "a page": "<html>", "a long page": page, "text": `"ok"`,
	} {
		for _, length := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{Strategy: Sticky, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
				p.answer = onHost("a", func() (*http.Response, error) {
					resp := reply(200, body)
					if !length {
						resp.ContentLength = -1
					}
					return resp, nil
				})
				for range 30 { // so that it may retry
					pool.retries.request()
				}
				for i := range failuresToClose {
					if alias, _, err := send(pool, call()); alias != "b" {
						t.Errorf("%s, request %d: answered by %q, %v", name, i, alias, err)
					}
				}
				if e := pool.Stats().Endpoints[0]; e.Health != "down" || e.Reason != "the answer is not JSON" {
					t.Errorf("%s: %s, %q", name, e.Health, e.Reason)
				}
				_, _, err := send(pool, &Call{Methods: []string{"eth_sendRawTransaction"}, Pinned: "a"})
				if err == nil {
					t.Errorf("%s: it was used", name)
				}
			})
		}
	}
}

// TestNoAnswer takes an empty response for the answer to a notification, and of no other call.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}})
		p.answer = func(*http.Request, string) (*http.Response, error) { return reply(200, ""), nil }
		if _, status, err := send(pool, &Call{Methods: []string{"eth_x"}, NoAnswer: true}); status != 200 {
			t.Errorf("%d, %v", status, err)
		}
		_, _, err := send(pool, &Call{Methods: []string{"eth_x"}})
		if e := (*TryError)(nil); !errors.As(err, &e) || !e.Sent {
			t.Errorf("%v, want that it may have been executed", err)
		}
	})
}

// TestRefusalsInLongBatches finds a refusal among many long responses.
func TestRefusalsInLongBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a")}})
		one := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("0", 100_000) + `"}`
		p.answer = func(*http.Request, string) (*http.Response, error) {
			return reply(200, "["+one+","+one+","+tooMany+"]", "Retry-After", "2"), nil
		}
		if _, status, err := send(pool, &Call{Methods: []string{"eth_x", "eth_y", "eth_z"}}); status != 200 {
			t.Fatal(status, err)
		}
		want(t, "health", healths(pool), []string{"a down: rate (429), 2000ms"})
	})
}

// TestDenialOfAMethod has a provider that denies one method and no other: the endpoint stays in use where probes, or other
// calls, succeed, and is out of use where they are denied, too.
func TestDenialOfAMethod(t *testing.T) {
	denies := func(all *atomic.Bool) func(r *http.Request, body string) (*http.Response, error) {
		return func(r *http.Request, body string) (*http.Response, error) {
			if all.Load() || strings.Contains(body, `"id":7,`) {
				return reply(403, "{}"), nil
			}
			return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
		}
	}
	bad := func(pool *Pool) {
		resp, err := pool.Send(request(context.Background(), 7), &Call{Methods: []string{"txpool_content"}})
		if err == nil {
			resp.Body.Close()
		}
	}
	t.Run("monitored", func(t *testing.T) {
		monitored(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a")}}, map[string]*node{"a": {}}, func(pool *Pool, p *provider, set func(func())) {
			var all atomic.Bool
			set(func() { p.answer = denies(&all) })
			for range 100 {
				bad(pool)
				if _, status, err := send(pool, call()); status != 200 {
					t.Fatalf("after the denial of another method: %d, %v", status, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			want(t, "health", healths(pool), []string{"a ok"})
			all.Store(true)
			_, _, _ = send(pool, call())
			time.Sleep(lookEvery)
			synctest.Wait()
			want(t, "health when all is denied", healths(pool), []string{"a down: denied (status 403), -1ms"})
		})
	})
	t.Run("not monitored", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var all atomic.Bool
			pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) { e.Unmonitored = true })}})
			p.answer = denies(&all)
			for range 20 {
				bad(pool)
				if _, status, err := send(pool, call()); status != 200 {
					t.Fatalf("after the denial of another method: %d, %v", status, err)
				}
			}
			all.Store(true)
			for range failuresToClose {
				want(t, "health", healths(pool), []string{"a ok"})
				_, _, _ = send(pool, call())
			}
			want(t, "health when all is denied", healths(pool), []string{"a down: denied (status 403), -1ms"})
		})
	})
}

// TestSecretsInOtherForms lets a provider repeat parts of what it was sent, in other forms, in bodies and in headers.
func TestSecretsInOtherForms(t *testing.T) {
	pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) {
		e.RPC = secret.New("https://a.example/v2/canary-path1")
		e.Headers = []Header{{"X-Auth", secret.New("key=canary-auth,realm=x")}, {"Cookie", secret.New(`session=canary-cookie; a="canary/b+c/d"`)}}
	})}})
	for body, want := range map[string]string{
		`{"message":"Invalid key canary-path1"}`:           `{"message":"Invalid key ***"}`,
		`{"result":"canary-auth canary-cookie"}`:           `{"result":"*** ***"}`,
		`{"error":"canary\/b+c\/d canary/b\u002bc/d"}`:     `{"error":"*** ***"}`,
		`{"error":"canary/b\u002Bc/d"}`:                    `{"error":"***"}`,
		`{"result":"nothing","error":null,"more":[1,2,3]}`: `{"result":"nothing","error":null,"more":[1,2,3]}`,
	} {
		p.answer = func(*http.Request, string) (*http.Response, error) {
			return reply(200, body, "RateLimit", `"canary-path1";r=1`, "Cache-Control", "private=canary-auth"), nil
		}
		resp, err := pool.Send(request(t.Context(), 0), call())
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		if string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
		if text := fmt.Sprint(resp.Header); strings.Contains(text, "canary") || !strings.Contains(text, "private=***") {
			t.Errorf("%s", text)
		}
	}
}

// TestBodiesThatStop reads a long response of which no more comes after its beginning.
func TestBodiesThatStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}, Timeout: 2 * time.Second})
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			resp := reply(200, "")
			resp.ContentLength, resp.Body = -1, io.NopCloser(io.MultiReader(strings.NewReader("["+strings.Repeat("1,", maxPeek)), stopped{r.Context()}))
			return resp, nil
		}
		resp, err := pool.Send(request(t.Context(), 0), call())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if e := (*TryError)(nil); !errors.As(err, &e) || !e.Timeout || len(body) != 1+2*maxPeek || time.Since(began) != 2*time.Second {
			t.Errorf("%d bytes and %v after %v, want a timeout after 2 s", len(body), err, time.Since(began))
		}
	})
}
