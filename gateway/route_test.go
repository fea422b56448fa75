package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/upstream"
)

// TestBatchesAreCharged charges a batch for all of its calls, also those that get no response, and refuses it as a whole.
func TestBatchesAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := account("main", perHour(100))
		c.Classes = []budget.Class{}
		c.Costs = weir.Must(budget.BuiltinTable("alchemy"))
		c.Limits[0].Unit = "throughput"
		route, p := newRouteTo(t, to(endpointAt("a", withBudget("main"))), c)
		two := `[{"id":1,"method":"eth_call"},{"method":"eth_call"}]` // 26 each
		for i, tt := range []struct {
			body   string
			status int
			left   string
		}{
			{two, 200, `"a.budget";r=48`},
			{`[` + strings.Repeat(`{"method":"eth_call"},`, 2) + `{"id":1,"method":"eth_call"}]`, 429, ""}, // 78 would be too many
			{`{"id":1,"method":"eth_call"}`, 200, `"a.budget";r=22`},
			{`{"id":1,"method":"eth_call","method":"eth_call"}`, 400, ""},
			{`[]`, 400, ""},
			{`{"id":1,"method":"eth_getFilterLogs","params":["0x1"]}`, 200, ""},
			{`{"id":1,"method":`, 400, ""},
			{`[[{"id":1,"method":"eth_call"}]]`, 400, ""},
			{`[` + strings.Repeat(`{"method":"eth_call"},`, 100) + `{"id":1,"method":"eth_call"}]`, 400, ""},
			{`{"id":1,"method":"eth_call","params":["` + strings.Repeat("x", jsonrpc.MaxRequest) + `"]}`, 413, ""},
			{`{"id":2,"method":"eth_chainId"}`, 200, `"a.budget";r=22`}, // which is free
		} {
			w := ask(route, post(tt.body))
			if left := w.Result().Header.Get("RateLimit"); w.Code != tt.status || left != tt.left {
				t.Errorf("request %d: %d, %s left, want %d, %s: %s", i, w.Code, left, tt.status, tt.left, w.Body)
			}
			synctest.Wait()
		}
		want(t, "received", p.received(), []string{"a " + two, `a {"id":1,"method":"eth_call"}`, `a {"id":2,"method":"eth_chainId"}`})
	})
}

func perHour(n int64) weir.Limit { return weir.Limit{Rate: n, Per: weir.Every(time.Hour)} }

// TestClass charges the class of the request's context.
func TestClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, _ := newRouteTo(t, to(endpointAt("a", withBudget("main"))), account("main", perHour(10)))
		for class, left := range map[string]string{"realtime": `"a.budget";r=5`, "backfill": `"a.budget";r=3`} {
			r := post(blockNumber, "Weir-Class", "other")
			w := ask(route, r.WithContext(budget.WithClass(t.Context(), class)))
			if got := w.Result().Header.Get("RateLimit"); got != left {
				t.Errorf("%s: %s left, want %s", class, got, left)
			}
		}
	})
}

// TestRepeatable sends a call again only if it may be executed twice: whole, and with the URL and the headers of the endpoint
// that gets it.
func TestRepeatable(t *testing.T) {
	for _, tt := range []struct {
		body, more string
		sent       int
	}{
		{blockNumber, "", 2},
		{`{"id":1,"method":"eth_sendRawTransaction"}`, "", 1},
		{`{"id":1,"method":"eth_sendRawTransaction"}`, "eth_send*", 2},
		{`{"id":1,"method":"eth_unknown"}`, "", 1},
		{`[{"id":1,"method":"eth_call"},{"id":2,"method":"eth_sendRawTransaction"}]`, "", 1},
		{`[{"id":1,"method":"eth_call"},{"id":2,"method":"eth_chainId"}]`, "", 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := to(endpointAt("a", withHeader("X-Key-Of-A", "1")), endpointAt("b", withHeader("X-Key-Of-B", "2")))
			if tt.more != "" {
				c.Repeatable = []string{tt.more}
			}
			route, p := newRouteTo(t, c)
			p.answer = always(500, "{}")
			ask(route, post(tt.body))
			want(t, fmt.Sprintf("received, repeatable %q", tt.more), p.received(), []string{"a " + tt.body, "b " + tt.body}[:tt.sent])
			for i, key := range []string{"X-Key-Of-A", "X-Key-Of-B"}[:len(p.requests)] {
				got := p.requests[i]
				want(t, "URL", got.URL.String(), "https://"+aliasOf(got)+".example/v2/"+canary+"?key="+canary)
				want(t, "headers", got.Header, http.Header{
					"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"weir"}, key: {fmt.Sprint(i + 1)},
				})
				if n := got.ContentLength; n != int64(len(tt.body)) {
					t.Errorf("a body of %d bytes was announced as one of %d", len(tt.body), n)
				}
			}
		})
	}
}

// TestReplaceUnderLoad changes everything that can change while requests come and go, and loses none.
func TestReplaceUnderLoad(t *testing.T) {
	config := func(n int) Config {
		c := to(endpointAt("a", limited(upstream.Rate{PerMinute: 100_000})), endpointAt(fmt.Sprint("b", n%3), limited(upstream.Rate{PerMinute: 100_000})))
		c.Pool.Name, c.Pool.JSONRPC, c.Pool.Logger, c.Logger, c.Pool.Strategy = "eth", true, quiet, quiet, upstream.Balanced
		c.Origins, c.MaxBody, c.Repeatable = []string{fmt.Sprintf("http://localhost:%d", 3000+n)}, int64(len(blockNumber)+n), []string{fmt.Sprint("x", n)}
		return c
	}
	route, p := newRouteTo(t, config(0))
	server := httptest.NewServer(route)
	defer server.Close()
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := server.Client().Post(server.URL, "application/json", strings.NewReader(blockNumber))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || err != nil {
					t.Errorf("%d %s, %v", resp.StatusCode, body, err)
				}
				answered.Add(1)
			}
		})
	}
	for i := range 50 {
		c := config(i)
		c.Pool.Transport = p
		if err := route.Replace(t.Context(), c); err != nil {
			t.Error(err)
		}
		bad := config(i)
		bad.Origins = []string{"nonsense"}
		if err := route.Replace(t.Context(), bad); err == nil {
			t.Error("a bad configuration was accepted")
		}
		for until := answered.Load() + 10; answered.Load() < until && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	callers.Wait()
	want(t, "settings", fmt.Sprint(route.settings.Load().maxBody, route.settings.Load().origins.list, route.settings.Load().repeatable), fmt.Sprint(len(blockNumber)+49, " [http://localhost:3049] [x49]"))
	s := route.Pool().Stats()
	if s.Failed+s.Limited+s.Cancelled > 0 || s.Requests != answered.Load() || int64(len(p.received())) != answered.Load() {
		t.Errorf("%d requests, %d answered, %d received: %+v", s.Requests, answered.Load(), len(p.received()), s)
	}
}

// TestReplaceKeeps lets a call end at an endpoint that is removed, and counts what was used before.
func TestReplaceKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := to(endpointAt("a", limited(upstream.Rate{PerMinute: 3})), endpointAt("gone"))
		route, p := newRouteTo(t, c)
		for range 2 {
			ask(route, post(blockNumber))
		}
		p.answer = func(*http.Request, string) (*http.Response, error) {
			time.Sleep(time.Second)
			return reply(200, "{}"), nil
		}
		var flying sync.WaitGroup
		flying.Go(func() {
			r := post(`{"id":1,"method":"eth_getFilterLogs","params":["0x` + filterTag("eth", "gone") + `1"]}`)
			if w := ask(route, r); w.Code != 200 || w.Result().Header.Get("Weir-Upstream") != "gone" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
		synctest.Wait()
		next := to(endpointAt("a", limited(upstream.Rate{PerMinute: 3})))
		next.Pool.Name, next.Pool.JSONRPC, next.Pool.Transport, next.Pool.MaxWait, next.Pool.Logger = "eth", true, p, -1, quiet
		if err := route.Replace(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		for i, status := range []int{200, 429} {
			if w := ask(route, post(blockNumber)); w.Code != status {
				t.Errorf("request %d after two of three units were used: %d, want %d", i, w.Code, status)
			}
		}
		flying.Wait()
	})
}

// TestStreams passes a long response on as it comes, over HTTP/1.1 and HTTP/2.
func TestStreams(t *testing.T) {
	more := make(chan struct{})
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for _, part := range []string{`{"result":"` + strings.Repeat("x", 100_000), "y\n", "z\n", `"}`} {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
			if strings.HasSuffix(part, "\n") {
				select {
				case <-more:
				case <-r.Context().Done(): // the test has failed
				}
			}
		}
	}))
	defer provider.Close()
	own := http.DefaultTransport.(*http.Transport).Clone()
	defer own.CloseIdleConnections()
	c := to(endpointAt("a", func(e *upstream.Endpoint) { e.RPC = secret.New(provider.URL) }))
	c.Pool.Transport = own
	route, _ := newRouteTo(t, c)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			front := httptest.NewUnstartedServer(route)
			front.EnableHTTP2 = proto == "HTTP/2.0"
			front.StartTLS()
			defer front.Close()
			front.Client().Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS12
			resp, err := front.Client().Post(front.URL, "application/json", strings.NewReader(blockNumber))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			for _, end := range []string{"y\n", "z\n"} {
				line, err := in.ReadString('\n') // blocks if what was sent is held back
				if err != nil || !strings.HasSuffix(line, end) {
					t.Fatalf("%.10q, %v", line, err)
				}
				more <- struct{}{}
			}
			rest, err := io.ReadAll(in)
			if string(rest) != `"}` || err != nil || resp.Proto != proto {
				t.Errorf("%q, %v over %s", rest, err, resp.Proto)
			}
		})
	}
}

// TestGzip: endpoints may compress what they send, and refusals are seen all the same.
func TestGzip(t *testing.T) {
	var encodings []string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encodings = append(encodings, r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(zipped(`{"id":1,"error":{"code":429,"message":"too many"}}`))
	}))
	defer provider.Close()
	own := http.DefaultTransport.(*http.Transport).Clone()
	defer own.CloseIdleConnections()
	c := to(endpointAt("a", func(e *upstream.Endpoint) { e.RPC = secret.New(provider.URL) }))
	c.Pool.Transport = own
	route, _ := newRouteTo(t, c)
	w := ask(route, post(blockNumber, "Accept-Encoding", "br, zstd"))
	if h := w.Result().Header; h.Get("Content-Encoding") != "" || h.Get("Content-Length") != fmt.Sprint(w.Body.Len()) || !strings.Contains(w.Body.String(), "too many") {
		t.Errorf("%v %q", h, w.Body)
	}
	want(t, "Accept-Encoding", encodings, []string{"gzip"})
	if s := route.Pool().Stats().Endpoints[0]; s.Failures["rate"] != 1 {
		t.Errorf("%v: the refusal was not seen", s.Failures)
	}
}

// TestInformational keeps responses to callers that come before the response, and its trailers.
func TestInformational(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</"+canary+">; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Secret")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
		w.Header().Set("X-Secret", canary)
	}))
	defer provider.Close()
	own := http.DefaultTransport.(*http.Transport).Clone()
	defer own.CloseIdleConnections()
	c := to(endpointAt("a", func(e *upstream.Endpoint) { e.RPC = secret.New(provider.URL) }))
	c.Pool.Transport = own
	route, _ := newRouteTo(t, c)
	front := httptest.NewServer(route)
	defer front.Close()
	early := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		early++
		return nil
	}}
	r, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, front.URL, strings.NewReader(blockNumber))
	r.Header.Set("Content-Type", "application/json")
	resp, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if all := fmt.Sprint(resp.Header, resp.Trailer, string(body)); strings.Contains(all, canary) || string(body) != "{}" || early > 0 {
		t.Error(all)
	}
}

// TestNotificationsOfLostFilters have no response, as all notifications.
func TestNotificationsOfLostFilters(t *testing.T) {
	route, _ := newRouteTo(t, to(endpointAt("a")))
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"eth_getFilterChanges","params":["0x1"]}`, `[{"jsonrpc":"2.0","method":"eth_getFilterChanges","params":["0x1"]}]`,
	} {
		if w := ask(route, post(body)); w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

// TestDownSaysWhen has endpoints that want no calls for a time that is known.
func TestDownSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, p := newRouteTo(t, to(endpointAt("a")))
		p.answer = func(*http.Request, string) (*http.Response, error) { return reply(503, "{}", "Retry-After", "30"), nil }
		_ = ask(route, post(`{"id":1,"method":"eth_x"}`))
		w := ask(route, post(`{"id":1,"method":"eth_x"}`))
		if w.Code != 502 || w.Header().Get("Retry-After") != "30" || !strings.Contains(w.Body.String(), `"retry_after_ms":30000`) {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}
