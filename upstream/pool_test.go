package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
)

// A provider answers requests in place of the network, in virtual time. Endpoints are its hosts.
type provider struct {
	mu       sync.Mutex
	answer   func(r *http.Request, body string) (*http.Response, error) // nil means ok
	received []received
	start    time.Time
}

type received struct {
	host string
	at   time.Duration
	body string
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.received = append(p.received, received{r.URL.Host, time.Since(p.start), string(body)})
	answer := p.answer
	p.mu.Unlock()
	if answer == nil {
		return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
	}
	return answer(r, string(body))
}

func (p *provider) times(host string) (list []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.received {
		if host == "" || r.host == host+".example" {
			list = append(list, r.at)
		}
	}
	return list
}

// inOrder returns what was received, and what came at one instant by the numbers of the requests.
func (p *provider) inOrder() []received {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Clone(p.received)
	number := func(r received) (n int) {
		_, _ = fmt.Sscanf(r.body, `{"id":%d,`, &n)
		return n
	}
	slices.SortStableFunc(list, func(a, b received) int { return cmp.Or(cmp.Compare(a.at, b.at), number(a)-number(b)) })
	return list
}

func reply(status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

func endpointAt(alias string, set ...func(*Endpoint)) Endpoint {
	e := Endpoint{Alias: alias, RPC: secret.New("https://" + alias + ".example/v2/canary")}
	for _, f := range set {
		f(&e)
	}
	return e
}

func limited(r Rate) func(*Endpoint) { return func(e *Endpoint) { e.Limits = r.Limits() } }

func newPool(t *testing.T, c Config, accounts ...budget.Config) (*Pool, *provider) {
	t.Helper()
	p := &provider{start: time.Now()}
	c.Name, c.Transport, c.Logger, c.JSONRPC = "eth", p, slog.New(slog.DiscardHandler), true
	for i := range accounts {
		accounts[i].Logger = c.Logger
	}
	pool, err := New(weir.Must(memstore.New(memstore.Config{})), c, accounts...)
	if err != nil {
		t.Fatal(err)
	}
	return pool, p
}

func request(ctx context.Context, n int) *http.Request {
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(fmt.Sprintf(`{"id":%d,"method":"eth_call"}`, n)))
	return r
}

func call() *Call { return &Call{Methods: []string{"eth_call"}, Repeatable: true} }

// send sends a request and returns who has answered, or the error.
func send(pool *Pool, c *Call) (string, int, error) {
	reply, err := pool.Send(request(context.Background(), 0), c)
	if err != nil {
		return "", 0, err
	}
	defer reply.Body.Close()
	_, _ = io.Copy(io.Discard, reply.Body)
	return reply.Alias, reply.StatusCode, nil
}

func TestOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		every := weir.Limit{Rate: 5, Per: weir.Every(time.Second), Burst: 1}
		pool, p := newPool(t, Config{MaxWait: time.Minute, Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) { e.Limits = []weir.Limit{every} })}})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				reply, err := pool.Send(request(t.Context(), i), call())
				if err != nil {
					t.Error(err)
					return
				}
				reply.Body.Close()
			})
			synctest.Wait()
		}
		wg.Wait()
		for i, r := range p.received {
			if want := time.Duration(i) * time.Second / 5; r.at.Round(time.Microsecond) != want || !strings.Contains(r.body, fmt.Sprintf(`"id":%d,`, i)) {
				t.Errorf("request %d of %v was sent at %v, want %v in the order of arrival", i, r, r.at, want)
			}
		}
	})
}

func TestTwentyAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		maxWait time.Duration
		sent    []time.Duration // at which each five are sent
		refused int
	}{
		{"in line", 0, []time.Duration{0, 1, 2, 3}, 0},
		{"a shorter line", 2 * time.Second, []time.Duration{0, 1, 2}, 5},
		{"without waiting", -1, []time.Duration{0}, 15},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{MaxWait: tt.maxWait, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5}))}})
				var wg sync.WaitGroup
				var refused []error
				for i := range 20 {
					wg.Go(func() {
						reply, err := pool.Send(request(t.Context(), i), call())
						if err != nil {
							p.mu.Lock()
							refused = append(refused, err)
							p.mu.Unlock()
							return
						}
						reply.Body.Close()
					})
					synctest.Wait()
				}
				wg.Wait()
				got := p.inOrder() // the five of one instant go their own ways to the provider
				for i, r := range got {
					if want := tt.sent[i/5] * time.Second; r.at != want || !strings.Contains(r.body, fmt.Sprintf(`"id":%d,`, i)) {
						t.Errorf("request %d of %v was sent at %v, want %v in the order of arrival", i, r, r.at, want)
					}
				}
				if len(got) != 5*len(tt.sent) || len(refused) != tt.refused {
					t.Fatalf("%d were sent, and %d refused, want %d", len(got), len(refused), tt.refused)
				}
				for _, err := range refused {
					want := &LimitedError{Reason: weir.TooLate, RetryAfter: 3 * time.Second, Alias: "a", Limit: "second"}
					if tt.maxWait < 0 {
						want.Reason, want.RetryAfter = weir.Exhausted, time.Second
					}
					if got := (*LimitedError)(nil); !errors.As(err, &got) || *got != *want {
						t.Errorf("%v, want %v", err, want)
					}
				}
				if n := pool.Stats().Waiting; n != 0 {
					t.Errorf("%d still wait", n)
				}
			})
		})
	}
}

// TestBodyOfCall sends the call's body in place of the request's, which needs no header either.
func TestBodyOfCall(t *testing.T) {
	pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) { e.Headers = []Header{{"X-Key", secret.New("k")}} })}})
	for body, want := range map[string]string{"of the call": "of the call", "": "of the request"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("of the request"))
		r.Header = nil
		c := call()
		if body != "" {
			c.Body = []byte(body)
		}
		if _, err := pool.Send(r, c); err != nil {
			t.Fatal(err)
		}
		if got := p.received[len(p.received)-1].body; got != want {
			t.Errorf("%q was sent, want %q", got, want)
		}
	}
}

// zeros is an endless body that counts what was read of it.
type zeros struct {
	read   int64
	closed bool
}

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.read += int64(len(p))
	return len(p), nil
}

func (z *zeros) Close() error {
	z.closed = true
	return nil
}

// TestLongRequests refuses bodies of requests that are too long to be kept, before anything is charged.
func TestLongRequests(t *testing.T) {
	for _, tt := range []struct {
		name   string
		length int64 // as the request says
		body   func(*zeros) io.Reader
		most   int64 // bytes that are read
		call   []byte
		err    error
	}{
		{"of that length", maxBody, func(z *zeros) io.Reader { return io.LimitReader(z, maxBody) }, maxBody, nil, nil},
		{"one byte more", -1, func(z *zeros) io.Reader { return io.LimitReader(z, maxBody+1) }, maxBody + 1, nil, ErrBodyTooLong},
		{"endless", -1, func(z *zeros) io.Reader { return z }, maxBody + 1, nil, ErrBodyTooLong},
		{"too long, and says so", maxBody + 1, func(z *zeros) io.Reader { return z }, 0, nil, ErrBodyTooLong},
		{"of the call", -1, func(z *zeros) io.Reader { return z }, 0, make([]byte, maxBody+1), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 10}))}})
				z := &zeros{}
				r := request(t.Context(), 0)
				r.ContentLength, r.Body = tt.length, struct {
					io.Reader
					io.Closer
				}{tt.body(z), z}
				c := call()
				c.Body = tt.call
				_, err := pool.Send(r, c)
				synctest.Wait()
				if !errors.Is(err, tt.err) || z.read > tt.most || !z.closed {
					t.Errorf("%v after %d bytes, closed: %v; want %v after at most %d", err, z.read, z.closed, tt.err, tt.most)
				}
				sent := int64(len(p.times("a")))
				if used := 10 - remaining(t, pool)[0]; sent != used || (sent == 1) != (tt.err == nil) {
					t.Errorf("%d were sent, and %d charged", sent, used)
				}
			})
		})
	}
}
