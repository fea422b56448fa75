package budget

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// hourly is an account of so many requests per hour, so that none comes back during a test.
func hourly(t *testing.T, requests int64) *Account {
	return newAccount(t, Config{Name: "main", Classes: []Class{}, Limits: []ruleset.Limit{
		{Limit: weir.Limit{Rate: requests, Per: weir.Every(time.Hour)}},
	}})
}

// serving returns a server that counts the requests that it gets, and a client of it that charges an account.
func serving(t *testing.T, tr *Transport, h http.HandlerFunc) (*http.Client, string, *atomic.Int64) {
	t.Helper()
	served := new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	if tr.Base == nil {
		tr.Base = base
	}
	return &http.Client{Transport: tr}, s.URL, served
}

// fetch makes a request and reads the response.
func fetch(t *testing.T, c *http.Client, method, url, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// wantLedger compares the ledger of a unit, and what the store says.
func wantLedger(t *testing.T, a *Account, unit string, want Ledger) {
	t.Helper()
	u := usage(t, a)
	if got := u.Ledgers[unit]; got != want {
		t.Errorf("ledger of %s: %+v, want %+v", unit, got, want)
	}
	for _, h := range u.Horizons {
		if used := want.Used + want.Expired + want.Open; h.Unit == unit && h.Used != used {
			t.Errorf("limit %s has %d used, want %d", h.Limit, h.Used, used)
		}
	}
}

// stuck is a transport that never sends a request, as in a process that is killed.
type stuck struct{}

func (stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestTransportOfDeadProcess: what a process had reserved when it was killed is not missing for long.
func TestTransportOfDeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider", nil)
		if err != nil {
			t.Fatal(err)
		}
		go (&Transport{Account: a, Class: "backfill", Base: stuck{}, Cost: FixedCost(Units(200))}).RoundTrip(r)
		synctest.Wait()
		backfill := controller(t, a, "backfill")
		if d := try(t, backfill, 100); d.Allowed {
			t.Errorf("what is reserved can be used: %v", d)
		}
		time.Sleep(holdToSend + time.Second)
		if d := try(t, backfill, 200); !d.Allowed {
			t.Errorf("what the process had reserved is still missing: %v", d)
		}
	})
}

// refusing is a provider that refuses its first request, and answers when it got each.
type refusing struct {
	began time.Time
	mu    sync.Mutex // guards the field below
	at    []time.Duration
}

func (p *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, time.Since(p.began))
	if len(p.at) > 1 {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}
	return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Header: http.Header{"Retry-After": {"10"}}}, nil
}

// TestTransportRefusedMeanwhile: requests that wait for the budget when the provider refuses another one are sent after
// the time that it wants, and as evenly as if they had come then.
func TestTransportRefusedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		try(t, controller(t, a, "backfill"), 200)
		p := &refusing{began: time.Now()}
		client := &http.Client{Transport: &Transport{Account: a, Class: "backfill", Base: p, Cost: FixedCost(Units(200))}}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				resp, err := client.Get("http://provider")
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
		}
		all.Wait()
		ms := time.Millisecond
		second := p.at[1] // up to 50 ms after the time: the queue takes the refusal for a race that was lost
		if got, want := p.at, []time.Duration{400 * ms, second, second + 400*ms, second + 800*ms}; second < 10_400*ms || second > 10_450*ms || !slices.Equal(got, want) {
			t.Errorf("requests were sent at %v, want %v", got, want)
		}
		if got, want := usage(t, a).Ledgers["requests"], (Ledger{Granted: 1000, Used: 1000}); got != want {
			t.Errorf("ledger %+v, want %+v: none was reserved in vain", got, want)
		}
	})
}

// TestTransportRedirects: each physical call is charged once, F1.17.
func TestTransportRedirects(t *testing.T) {
	a := hourly(t, 100)
	c, url, served := serving(t, &Transport{Account: a}, func(w http.ResponseWriter, r *http.Request) {
		if n := len(r.URL.Path); n < 4 {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusTemporaryRedirect)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	if status, text := fetch(t, c, "POST", url, "the body"); status != 200 || text != "the body" {
		t.Errorf("%d %q", status, text)
	}
	if n := served.Load(); n != 4 {
		t.Errorf("the server got %d requests, want 4", n)
	}
	wantLedger(t, a, "requests", Ledger{Granted: 4, Used: 4})
}

// TestTransportHTTP2: as many calls on one connection are charged one by one.
func TestTransportHTTP2(t *testing.T) {
	a := hourly(t, 100)
	var protocols atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocols.Add(int64(r.ProtoMajor)) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	client := s.Client()
	client.Transport = &Transport{Account: a, Base: client.Transport}
	var all sync.WaitGroup
	for range 10 { // at once, over one connection
		all.Go(func() { fetch(t, client, "POST", s.URL, "x") })
	}
	all.Wait()
	if n := protocols.Load(); n != 20 {
		t.Errorf("the protocols add up to %d, want 10 requests over HTTP/2", n)
	}
	wantLedger(t, a, "requests", Ledger{Granted: 10, Used: 10})
}

// TestTransportRetries: what the base transport sends twice, since the server has closed an idle connection, is
// charged twice.
func TestTransportRetries(t *testing.T) {
	a := hourly(t, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan int, 10) // the number of the connection, for each request that was read
	go func() {
		for i := 1; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			_, _ = conn.Read(buffer)
			got <- i
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			if i == 1 {
				_, _ = conn.Read(buffer) // the second request is read, and the connection closed instead of an answer
				got <- i
			}
			_ = conn.Close()
		}
	}()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: &Transport{Account: a, Base: base}}
	fetch(t, c, "GET", "http://"+l.Addr().String(), "")
	fetch(t, c, "GET", "http://"+l.Addr().String(), "")
	for _, want := range []int{1, 1, 2} {
		if n := <-got; n != want {
			t.Errorf("a request on connection %d, want %d", n, want)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for usage(t, a).Ledgers["requests"].Used < 3 && time.Now().Before(deadline) { // what is sent again is charged in the background
		time.Sleep(time.Millisecond)
	}
	wantLedger(t, a, "requests", Ledger{Granted: 2, Overrun: 1, Used: 3})
}

// TestTransportUnsent: what was not sent is not charged.
func TestTransportUnsent(t *testing.T) {
	a := hourly(t, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // so that nobody listens there
	c := &http.Client{Transport: &Transport{Account: a, Base: &http.Transport{}}}
	if _, err := c.Post("http://"+l.Addr().String(), "text/plain", strings.NewReader("x")); err == nil {
		t.Fatal("nobody listens, and there is a response")
	}
	wantLedger(t, a, "requests", Ledger{Granted: 1, Returned: 1})

	failing := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") })}}
	if _, err := failing.Get("http://localhost"); err == nil {
		t.Fatal("no error")
	}
	wantLedger(t, a, "requests", Ledger{Granted: 2, Used: 1, Returned: 1}) // it may have been sent
}

// TestTransportWritesLate: a base transport that gives up, and writes the request after all, has sent it. It costs once.
func TestTransportWritesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := hourly(t, 100)
		late := func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GetConn("provider")
			time.AfterFunc(time.Second, trace.WroteHeaders)
			return nil, errors.New("given up")
		}
		c := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(late)}}
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(r); err == nil {
			t.Fatal("no error")
		}
		leave()
		if l := usage(t, a).Ledgers["requests"]; l != (Ledger{Granted: 1, Returned: 1}) {
			t.Errorf("before it was written: %+v", l)
		}
		time.Sleep(2 * time.Second)
		if l := usage(t, a).Ledgers["requests"]; l != (Ledger{Granted: 1, Returned: 1, Overrun: 1, Used: 1}) {
			t.Errorf("afterwards: %+v", l)
		}
	})
}

// TestTransportAnswered: what was answered was sent, also if the base transport did not report that it has written it.
func TestTransportAnswered(t *testing.T) {
	a := hourly(t, 100)
	answering := func(r *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(r.Context()).GetConn("provider")
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Header: http.Header{"Retry-After": {"10"}}}, nil
	}
	c := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(answering)}}
	resp, err := c.Get("http://provider")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	wantLedger(t, a, "requests", Ledger{Granted: 1, Used: 1})
	if d := a.Cooldown(); d < 5*time.Second {
		t.Errorf("the refusal is ignored: %v", d)
	}
}

// TestTransportBody: a body whose length was not known is sent with its length, and can be sent again.
func TestTransportBody(t *testing.T) {
	base := func(r *http.Request) (*http.Response, error) {
		again, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		for _, body := range []io.Reader{r.Body, again} {
			if text, err := io.ReadAll(body); err != nil || string(text) != "the body" || r.ContentLength != 8 || len(r.TransferEncoding) > 0 {
				t.Errorf("%q, %v of length %d and encoding %q", text, err, r.ContentLength, r.TransferEncoding)
			}
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}
	c := &http.Client{Transport: &Transport{Account: hourly(t, 100), Base: roundTripper(base)}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://provider", io.MultiReader(strings.NewReader("the body")))
	if err != nil {
		t.Fatal(err)
	}
	r.TransferEncoding = []string{"chunked"}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportCancelled: a call that is cancelled while it waits is neither sent nor charged; one that is cancelled
// afterwards is charged.
func TestTransportCancelled(t *testing.T) {
	a := hourly(t, 1)
	arrived := make(chan struct{})
	c, url, served := serving(t, &Transport{Account: a}, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
	if _, err := c.Do(r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wantLedger(t, a, "requests", Ledger{Granted: 1, Used: 1})
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute) // the next request is there in an hour
	defer cancel()
	r, _ = http.NewRequestWithContext(ctx, "GET", url, nil)
	_, err := c.Do(r)
	if denied, ok := errors.AsType[*weir.DeniedError](err); !ok || denied.Decision.Reason != weir.TooLate {
		t.Errorf("a call without budget: %v", err)
	}
	if n := served.Load(); n != 1 {
		t.Errorf("the server got %d requests, want 1", n)
	}
	wantLedger(t, a, "requests", Ledger{Granted: 1, Used: 1})
}

// TestTransportJSONRPC: costs by method and batch, the class of the context, and methods that are counted.
func TestTransportJSONRPC(t *testing.T) {
	a := newAccount(t, Config{Name: "main", Preset: "alchemy-free"})
	c, url, _ := serving(t, &Transport{Account: a, Class: "backfill"}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`)
	})
	fetch(t, c, "POST", url, `{"jsonrpc":"2.0","id":1,"method":"eth_getLogs"}`)
	fetch(t, c, "POST", url, `[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"},{"jsonrpc":"2.0","id":2,"method":"eth_sendRawTransaction"}]`)
	wantLedger(t, a, "cu", Ledger{Granted: 60 + 10 + 40, Used: 110})
	u := usage(t, a)
	if got := u.Ledgers["throughput"]; got != (Ledger{Granted: 60 + 10 + 250, Used: 320}) {
		t.Errorf("throughput: %+v", got)
	}
	if u.Methods["eth_getLogs"] != 1 || u.Methods["eth_blockNumber"] != 1 || u.Methods["eth_sendRawTransaction"] != 1 {
		t.Errorf("methods: %v", u.Methods)
	}
	r, _ := http.NewRequestWithContext(WithClass(t.Context(), "other"), "POST", url, strings.NewReader(`{"method":"eth_getLogs"}`))
	if _, err := c.Do(r); err == nil || !strings.Contains(err.Error(), `no class "other"`) {
		t.Errorf("another class: %v", err)
	}
	for _, body := range []string{`{"method":"eth_getLogs","method":"eth_chainId"}`, `{`, ``} {
		if _, err := c.Post(url, "application/json", strings.NewReader(body)); err == nil {
			t.Errorf("%q was sent", body)
		}
	}
	wantLedger(t, a, "cu", Ledger{Granted: 110, Used: 110})
}

// TestTransportSettles: a cost that is known afterwards, as of tokens.
func TestTransportSettles(t *testing.T) {
	a := newAccount(t, Config{Name: "llm", Classes: []Class{}, Limits: []ruleset.Limit{
		{Unit: "tokens", Limit: weir.Limit{Rate: 10_000, Per: weir.Every(time.Hour)}},
	}})
	tr := &Transport{
		Account: a, MaxBody: 100,
		Cost: FixedCost(In(Amounts{"tokens": 1000})),
		Settle: func(_ *http.Response, body []byte) (Cost, bool) {
			var usage struct{ Tokens int64 }
			err := json.Unmarshal(body, &usage)
			return In(Amounts{"tokens": usage.Tokens}), err == nil
		},
	}
	answer := ""
	c, url, _ := serving(t, tr, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	answer = `{"tokens":137}`
	fetch(t, c, "POST", url, "")
	wantLedger(t, a, "tokens", Ledger{Granted: 1000, Used: 137, Returned: 863})
	answer = `{"tokens":1200}`
	fetch(t, c, "POST", url, "")
	wantLedger(t, a, "tokens", Ledger{Granted: 2000, Overrun: 200, Used: 1337, Returned: 863})
	answer = "not known"
	fetch(t, c, "POST", url, "")
	wantLedger(t, a, "tokens", Ledger{Granted: 3000, Overrun: 200, Used: 2337, Returned: 863})
	answer = strings.Repeat(" ", 100) + `{"tokens":1}` // too long to be looked at
	fetch(t, c, "POST", url, "")
	wantLedger(t, a, "tokens", Ledger{Granted: 4000, Overrun: 200, Used: 3337, Returned: 863})

	resp, err := c.Post(url, "text/plain", nil) // which is closed before it was read
	if err != nil {
		t.Fatal(err)
	}
	if l := usage(t, a).Ledgers["tokens"]; l.Open != 1000 {
		t.Errorf("before the response was read: %+v", l)
	}
	resp.Body.Close()
	resp.Body.Close()
	wantLedger(t, a, "tokens", Ledger{Granted: 5000, Overrun: 200, Used: 4337, Returned: 863})

	if _, err := c.Post(url, "text/plain", strings.NewReader(strings.Repeat("x", 101))); !errors.Is(err, ErrBodyTooLong) {
		t.Errorf("a long body: %v", err)
	}
	if _, err := c.Post(url, "text/plain", io.MultiReader(strings.NewReader(strings.Repeat("x", 101)))); !errors.Is(err, ErrBodyTooLong) {
		t.Errorf("a long body of unknown length: %v", err)
	}
}

// TestTransportFailuresAreFree: at a vendor that does not count them.
func TestTransportFailuresAreFree(t *testing.T) {
	a := newAccount(t, testAccount(t))
	status := http.StatusBadGateway
	c, url, _ := serving(t, &Transport{Account: a}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	fetch(t, c, "POST", url, `{"method":"m"}`)
	wantLedger(t, a, "b", Ledger{Granted: 10, Returned: 10})
	status = http.StatusOK
	fetch(t, c, "POST", url, `{"method":"m"}`)
	wantLedger(t, a, "b", Ledger{Granted: 20, Used: 10, Returned: 10})
}

// TestTransportListens: refusals of the provider let the account wait, as long as they say, F0.15.
func TestTransportListens(t *testing.T) {
	tests := []struct {
		name, headers string
		status        int
		body          string
		least, most   time.Duration // of the cooldown
	}{
		{"Retry-After", "Retry-After: 7", 429, "", 7 * time.Second, 7 * time.Second},
		{"unavailable", "Retry-After: 3", 503, "", 3 * time.Second, 3 * time.Second},
		{"it does not say", "", 429, "", 100 * time.Millisecond, 110 * time.Millisecond},
		{"another status", "Retry-After: 7", 404, "", 0, 0},
		{"JSON-RPC", "", 200, `{"error":{"code":429,"message":"x"}}`, 100 * time.Millisecond, 110 * time.Millisecond},
		{"JSON-RPC with a time", "", 200, `[{"result":1},{"error":{"code":-32005,"data":{"rate":{"backoff_seconds":2.5}}}}]`, 2500 * time.Millisecond, 2500 * time.Millisecond},
		{"too many results", "", 200, `{"error":{"code":-32005,"message":"query returned more than 10000 results, 429"}}`, 0, 0},
		{"a year", "Retry-After: 31536000", 429, "", 32 * 24 * time.Hour, 32 * 24 * time.Hour},
		{"for ever", "Retry-After: 99999999999999999999", 429, "", 32 * 24 * time.Hour, 32 * 24 * time.Hour},
		{"a date in 2099", "Retry-After: Wed, 18 Nov 2099 12:00:00 GMT", 503, "", 32 * 24 * time.Hour, 32 * 24 * time.Hour},
		{"a quota for a year", "Retry-After: 31536000", 402, `{"error":{"code":402,"event":-33000}}`, 32 * 24 * time.Hour, 32 * 24 * time.Hour},
		{"a quota", "", 402, `{"error":{"code":402,"event":-33000}}`, time.Second, 24 * time.Hour},
		{"denied", "", 401, "", 0, 0},
		{"no money", "Retry-After: 7", 429, `{"error":{"code":"insufficient_quota"}}`, 0, 0},
		{"the sender", "Retry-After: 7", 429, `{"error":{"code":-32017,"message":"sender is over rate limit"}}`, 0, 0},
		{"an error in a long body", "", 429, `{"error":{"code":402}}` + strings.Repeat(" ", maxRefusal), 100 * time.Millisecond, 110 * time.Millisecond},
		{"a block that is called 4,290,000", "", 200, `{"error":{"code":-32000,"message":"block 4290000 exceeded"}}`, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, Config{Name: "main", Preset: "alchemy-free"})
				tr := &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					w.Header().Set("Content-Type", "application/json")
					if name, value, ok := strings.Cut(tt.headers, ": "); ok {
						w.Header().Set(name, value)
					}
					w.WriteHeader(tt.status)
					_, _ = w.WriteString(tt.body)
					return w.Result(), nil
				})}
				c := &http.Client{Transport: tr}
				if status, text := fetch(t, c, "POST", "http://provider", `{"method":"eth_blockNumber"}`); status != tt.status || text != tt.body {
					t.Errorf("the caller gets %d %.100q", status, text)
				}
				if got := a.Cooldown(); got < tt.least || got > tt.most {
					t.Errorf("the account waits for %v, want %v to %v", got, tt.least, tt.most)
				}
				wantLedger(t, a, "cu", Ledger{Granted: 10, Used: 10}) // refused or not
				for class, n := range usage(t, a).Refusals {
					if n != 1 {
						t.Errorf("%d refusals of class %s", n, class)
					}
				}
			})
		})
	}
}

// TestTransportFreeCalls: calls that cost nothing are sent while nothing is left, and charged nothing.
func TestTransportFreeCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hourlyUnits(t)
		c.Limits[0].Rate = 20
		a := newAccount(t, c)
		sent := 0
		client := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}}
		charge(t, controller(t, a, ""), "eth_madeUp") // all of it
		began := time.Now()
		for _, body := range []string{`{"method":"eth_chainId"}`, `[{"id":1,"method":"eth_chainId"},{"id":2,"method":"net_version"}]`} {
			fetch(t, client, http.MethodPost, "http://provider", body)
		}
		if took := time.Since(began); sent != 2 || took != 0 {
			t.Errorf("%d requests were sent after %v", sent, took)
		}
		wantLedger(t, a, "cu", Ledger{Granted: 20, Used: 20})
	})
}

// TestTransportLearns: what responses say about limits tightens the account, and never loosens it.
func TestTransportLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := hourly(t, 100)
		remaining := "40"
		answering := func(*http.Request) (*http.Response, error) {
			h := header("X-RateLimit-Limit: 100", "X-RateLimit-Remaining: "+remaining)
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: h}, nil
		}
		c := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(answering)}}
		for i, step := range []struct {
			remaining   string
			drift, left int64
		}{{"40", 59, 40}, {"90", 59, 39}, {"37", 60, 37}} {
			remaining = step.remaining
			fetch(t, c, http.MethodGet, "http://provider", "")
			u := usage(t, a)
			if got := u.Drift["requests"]; got != step.drift || u.Horizons[0].Remaining != step.left {
				t.Errorf("%s remain at the provider: drift %d and %d left, want %d and %d", remaining, got, u.Horizons[0].Remaining, step.drift, step.left)
			}
			if n := int64(i + 1); u.Ledgers["requests"] != (Ledger{Granted: n, Used: n}) {
				t.Errorf("the ledger has what others have used: %+v", u.Ledgers)
			}
			time.Sleep(learnEvery)
		}
	})
}

// TestTransportClassifiesBefore: a refusal takes effect before the caller has read it, and if it never does.
func TestTransportClassifiesBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := hourly(t, 100)
		kind := "application/problem+json"
		body := io.Reader(strings.NewReader(`{"error":{"type":"overloaded_error"}}`))
		closed, reads := 0, 0
		tr := &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			h := http.Header{"Content-Type": {kind}, "Retry-After": {"3"}}
			return &http.Response{StatusCode: 529, Header: h, ContentLength: -1, Body: countingBody{body, &closed, &reads}}, nil
		})}
		send := func() *http.Response {
			t.Helper()
			r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://provider", nil)
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if d := a.Cooldown(); d != 3*time.Second {
				t.Errorf("the account waits for %v", d)
			}
			return resp
		}
		resp := send()
		if resp.Body.Close(); closed != 1 {
			t.Errorf("closed %d times", closed)
		}
		body = iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(`{"error":{}}`))) // fails once, after a byte
		if text, err := io.ReadAll(send().Body); string(text) != `{` || !errors.Is(err, iotest.ErrTimeout) {
			t.Errorf("a body that breaks off: %q, %v", text, err)
		}
		kind, body, reads = "text/html", strings.NewReader("<html>"), 0
		if resp := send(); reads != 0 {
			t.Errorf("a body that is no JSON was read %d times", reads)
		} else if text, err := io.ReadAll(resp.Body); string(text) != "<html>" || err != nil {
			t.Errorf("a body that is no JSON: %q, %v", text, err)
		}
		if got := usage(t, a).Refusals; !maps.Equal(got, map[string]int64{"overloaded": 3}) {
			t.Errorf("refusals %v", got)
		}
	})
}

// TestTransportPeeksLittle: of a long error only the beginning is read before the caller gets it.
func TestTransportPeeksLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const documented = 64 << 10 // in the comment of Transport
		a := hourly(t, 100)
		reader, writer := io.Pipe()
		body := `{"error":{"code":"insufficient_quota","message":"` + strings.Repeat("x", documented) + `"}}`
		tr := &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			h := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"3"}}
			return &http.Response{StatusCode: 429, Header: h, ContentLength: -1, Body: reader}, nil
		})}
		go func() {
			for part := range slices.Chunk([]byte(body), documented+1) { // the second one takes a minute
				_, _ = writer.Write(part)
				time.Sleep(time.Minute)
			}
			writer.Close()
		}()
		began := time.Now()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://provider", nil)
		resp, err := tr.RoundTrip(r)
		if d := time.Since(began); err != nil || d > 0 {
			t.Errorf("%v after %v", err, d)
		}
		if got := usage(t, a).Refusals; !maps.Equal(got, map[string]int64{"rate": 1}) || a.Cooldown() != 3*time.Second {
			t.Errorf("refusals %v, cooldown %v: want what the status is", got, a.Cooldown())
		}
		if text, err := io.ReadAll(resp.Body); string(text) != body || err != nil {
			t.Errorf("the caller gets %d bytes of %d, %v", len(text), len(body), err)
		}
	})
}

type countingBody struct {
	io.Reader
	closed, reads *int
}

func (c countingBody) Read(p []byte) (int, error) {
	*c.reads++
	return c.Reader.Read(p)
}

func (c countingBody) Close() error {
	*c.closed++
	return nil
}

// TestTransportBacksOff: refusals one after the other that do not say for how long, in responses of JSON-RPC with a
// status of 200, until a call succeeds.
func TestTransportBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Preset: "alchemy-free"})
		const refused = `{"error":{"code":429}}`
		for i, tt := range []struct {
			body string
			want time.Duration // up to a tenth is added
		}{{refused, 100}, {refused, 200}, {refused, 400}, {`{"result":1}`, 0}, {refused, 100}} {
			c := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				w.Header().Set("Content-Type", "application/json; charset=utf-8")
				_, _ = w.WriteString(tt.body)
				return w.Result(), nil
			})}}
			fetch(t, c, "POST", "http://provider", `{"method":"eth_blockNumber"}`)
			want := tt.want * time.Millisecond
			if d := a.Cooldown(); d < want || d > want*11/10 {
				t.Errorf("call %d: the account waits for %v, want %v", i, d, want)
			}
		}
	})
}

// TestTransportDenied: calls go on while access is denied, none waits, and it is logged once.
func TestTransportDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := newAccount(t, Config{
			Name: "main", Classes: []Class{}, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: weir.Every(24 * time.Hour), Algorithm: weir.SlidingLog}}},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
		})
		status, body := 429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`
		sent := 0
		c := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			sent++
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.WriteString(body)
			return w.Result(), nil
		})}}
		want := func(step string, sentUntilNow, errors int, denied *Denial) {
			t.Helper()
			u := usage(t, a)
			if (u.Denied == nil) != (denied == nil) || denied != nil && *u.Denied != *denied {
				t.Errorf("%s: denied %+v, want %+v", step, u.Denied, denied)
			}
			if n := strings.Count(log.String(), "the provider denies access"); n != errors || sent != sentUntilNow {
				t.Errorf("%s: %d calls, want %d, and %d errors in the log, want %d:\n%s", step, sent, sentUntilNow, n, errors, log.String())
			}
		}
		began := a.wallClock().UTC()
		for range 3 {
			fetch(t, c, "POST", "http://provider", "")
			time.Sleep(time.Second)
		}
		want("no money", 3, 1, &Denial{Since: began, Reason: "insufficient_quota"})
		status, body = 500, ""
		fetch(t, c, "POST", "http://provider", "")
		want("an error that says nothing about it", 4, 1, &Denial{Since: began, Reason: "insufficient_quota"})
		status = 401
		start := time.Now()
		fetch(t, c, "POST", "http://provider", "")
		want("another reason", 5, 2, &Denial{Since: began.Add(3 * time.Second), Reason: "status 401"})
		for range 3 { // as if only one method were denied
			status = 200
			fetch(t, c, "POST", "http://provider", "")
			want("a success", sent, 2, nil)
			status = 401
			fetch(t, c, "POST", "http://provider", "")
		}
		want("by turns", 11, 2, &Denial{Since: began.Add(3 * time.Second), Reason: "status 401"})
		if d := time.Since(start); d != 0 {
			t.Errorf("the calls have waited for %v", d)
		}
		time.Sleep(time.Minute)
		status = 200
		fetch(t, c, "POST", "http://provider", "")
		status = 401
		fetch(t, c, "POST", "http://provider", "")
		want("a minute later", 13, 3, &Denial{Since: began.Add(63 * time.Second), Reason: "status 401"})
		if got := usage(t, a).Refusals; !maps.Equal(got, map[string]int64{"denied": 8}) {
			t.Errorf("refusals %v", got)
		}
		wantLedger(t, a, "requests", Ledger{Granted: 13, Used: 13})
	})
}

// TestTransportHoldsNothing: while the provider works, nothing is held, so that a class can use all that it has.
func TestTransportHoldsNothing(t *testing.T) {
	a := newAccount(t, Config{Name: "main", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Hour)}}}})
	release := make(chan struct{})
	arrived := make(chan struct{}, 10)
	c, url, _ := serving(t, &Transport{Account: a, Class: "backfill"}, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	done := make(chan struct{})
	for range 4 {
		go func() {
			fetch(t, c, "GET", url, "")
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-arrived
	}
	for usage(t, a).Ledgers["requests"].Used < 4 { // they are committed in the background
		time.Sleep(time.Millisecond)
	}
	wantLedger(t, a, "requests", Ledger{Granted: 4, Used: 4})
	close(release)
	for range 4 {
		<-done
	}
}

// fakeRPC is a Caller that counts.
type fakeRPC struct {
	calls int
	err   error
}

func (f *fakeRPC) CallContext(context.Context, any, string, ...any) error {
	f.calls++
	return f.err
}

type codedError struct {
	code int
	data any
	text string
}

func (e *codedError) Error() string  { return e.text }
func (e *codedError) ErrorCode() int { return e.code }
func (e *codedError) ErrorData() any { return e.data }

// TestClient: the wrapper of a JSON-RPC client charges each call once.
func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Preset: "alchemy-free"})
		rpc := &fakeRPC{}
		c, err := NewClient(rpc, a, "backfill")
		if err != nil {
			t.Fatal(err)
		}
		call := func(ctx context.Context, want error) {
			t.Helper()
			if err := c.CallContext(ctx, nil, "eth_getLogs"); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		call(t.Context(), nil)
		call(WithClass(t.Context(), "realtime"), nil)
		rpc.err = errors.New("429 exceeded") // the text decides nothing
		call(t.Context(), rpc.err)
		if d := a.Cooldown(); d != 0 {
			t.Errorf("another error: the account waits for %v", d)
		}
		rpc.err = &codedError{code: 429}
		call(t.Context(), rpc.err)
		if d := a.Cooldown(); d < 100*time.Millisecond || d > 110*time.Millisecond {
			t.Errorf("after a refusal the account waits for %v", d)
		}
		time.Sleep(a.Cooldown())
		rpc.err = fmt.Errorf("quicknode: %w", &codedError{code: -32007, text: "50/second request limit reached"})
		call(t.Context(), rpc.err)
		if d := a.Cooldown(); d < 200*time.Millisecond || d > 220*time.Millisecond {
			t.Errorf("after another refusal the account waits for %v", d)
		}
		rpc.err = &codedError{code: -32005, data: map[string]any{"backoff_seconds": 3}}
		call(t.Context(), rpc.err)
		if d := a.Cooldown(); d != 3*time.Second {
			t.Errorf("after a refusal with a time the account waits for %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		call(ctx, context.Canceled)
		rpc.err = &codedError{code: 402, data: func() {}} // what is no JSON tells nothing
		call(t.Context(), rpc.err)
		if d := usage(t, a).Denied; d == nil || d.Reason != "402" {
			t.Errorf("after a call that has to be paid for: %+v", d)
		}
		rpc.err = &codedError{code: -32000, text: "429 exceeded"}
		call(t.Context(), rpc.err)
		if d := usage(t, a).Denied; d != nil {
			t.Errorf("after an answer: %+v", d)
		}
		if rpc.calls != 8 {
			t.Errorf("%d calls were made, want 8", rpc.calls)
		}
		wantLedger(t, a, "cu", Ledger{Granted: 8 * 60, Used: 8 * 60})
		if _, err := NewClient(rpc, a, "other"); err == nil {
			t.Error("a client of a class that does not exist")
		}
	})
}

// TestClassOfContext: a call is charged to its context's class, else to the client's (S1.25).
func TestClassOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{
			Name: "main", Costs: builtin(t, "alchemy"),
			Limits:  []ruleset.Limit{{Unit: "cu", Limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)}}},
			Classes: []Class{{Name: "realtime", Share: 60, NoBorrow: true}, {Name: "backfill", Share: 40, NoBorrow: true}},
		})
		overHTTP := &http.Client{Transport: &Transport{Account: a, Class: "backfill", Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}}
		rpc := weir.Must(NewClient(&fakeRPC{}, a, "backfill"))
		call := func(ctx context.Context, realtime, backfill int64) {
			t.Helper()
			r := weir.Must(http.NewRequestWithContext(ctx, http.MethodPost, "http://provider", strings.NewReader(`{"method":"eth_getLogs"}`)))
			resp, err := overHTTP.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if err := rpc.CallContext(ctx, nil, "eth_call"); err != nil {
				t.Fatal(err)
			}
			if got := usage(t, a).Classes; got[0].Available != realtime || got[1].Available != backfill {
				t.Errorf("left: %+v, want %d and %d", got, realtime, backfill)
			}
		}
		call(t.Context(), 600, 400-60-26)
		call(WithClass(t.Context(), "realtime"), 600-60-26, 400-60-26)
	})
}

// TestWatchedBodyConcurrently: a body may be closed while it is read. What it was is looked at once.
func TestWatchedBodyConcurrently(t *testing.T) {
	for range 200 {
		var times atomic.Int64
		b := &watchedBody{
			ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 5000))), most: 3000, length: -1,
			done: func(body []byte, known extent) {
				times.Add(1)
				if known == whole || len(body) > 3000 {
					t.Errorf("%d bytes, extent %v", len(body), known)
				}
			},
		}
		var all sync.WaitGroup
		all.Go(func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{b}) })
		all.Go(func() { b.Close() })
		all.Wait()
		if n := times.Load(); n != 1 {
			t.Fatalf("%d times", n)
		}
	}
}

// TestTransportSlowToConnect: a request that got no connection for half a minute costs nothing.
func TestTransportSlowToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := hourly(t, 100)
		unreachable := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(30 * time.Second)
			return nil, errors.New("no route to host")
		}}
		c := &http.Client{Transport: &Transport{Account: a, Base: unreachable}}
		if _, err := c.Get("http://192.0.2.1"); err == nil {
			t.Fatal("no error")
		}
		wantLedger(t, a, "requests", Ledger{Granted: 1, Returned: 1})
	})
}
