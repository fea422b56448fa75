package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/mockrpc"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// faulty is a route to mock providers in virtual time, and calls that come evenly.
type faulty struct {
	route     *Route
	providers []*mockrpc.Provider
	mu        sync.Mutex // guards the fields below
	statuses  map[int]int
	last      map[string]time.Duration // when an endpoint was last used, by alias
	first     map[string]time.Duration // when it was first used after its fault
	sent      int
	start     time.Time
	after     time.Duration
}

func newFaulty(t *testing.T, n int) *faulty {
	t.Helper()
	f := &faulty{statuses: map[int]int{}, last: map[string]time.Duration{}, first: map[string]time.Duration{}, start: time.Now()}
	c := Config{Logger: quiet, Pool: upstream.Config{Name: "eth", JSONRPC: true, Logger: quiet}}
	byAlias := map[string]*mockrpc.Provider{}
	for i := range n {
		alias := fmt.Sprint("node-", i)
		byAlias[alias] = weir.Must(mockrpc.New(mockrpc.Config{Preset: mockrpc.Generic, Latency: 5 * time.Millisecond}))
		f.providers = append(f.providers, byAlias[alias])
		c.Pool.Endpoints = append(c.Pool.Endpoints, upstream.Endpoint{Alias: alias, RPC: secret.New("http://" + alias + ".example/")})
	}
	c.Pool.Transport = transport(func(r *http.Request) (*http.Response, error) {
		alias, now := aliasOf(r), time.Since(f.start)
		f.mu.Lock()
		f.sent++
		f.last[alias] = now
		if _, known := f.first[alias]; !known && f.after > 0 && now >= f.after {
			f.first[alias] = now
		}
		f.mu.Unlock()
		return byAlias[alias].RoundTrip(r)
	})
	f.route = weir.Must(New(weir.Must(memstore.New(memstore.Config{})), c))
	return f
}

// offer sends a call every 5 ms for some time.
func (f *faulty) offer(d time.Duration, body string) {
	var flying sync.WaitGroup
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		flying.Go(func() {
			w := ask(f.route, post(body))
			f.mu.Lock()
			defer f.mu.Unlock()
			f.statuses[w.Code]++
		})
	}
	flying.Wait()
}

const sendRaw = `{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x01"]}`

// TestRetryAfterOfAProvider is fault F17: a provider answers 429 with Retry-After. Calls that are in flight end, no further
// one is sent before that time, and then they come again.
func TestRetryAfterOfAProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, 1)
		f.offer(time.Second, blockNumber)
		at := time.Since(f.start)
		f.after = at + 3*time.Second
		if _, err := f.providers[0].AddFault(mockrpc.Fault{Refusal: "rate", RetryAfter: 3 * time.Second, Count: 1}); err != nil {
			t.Fatal(err)
		}
		f.offer(6*time.Second, blockNumber)
		s := f.providers[0].Stats()
		if early := s.Keys[0].Early; early > 2 { // those that were in flight: 5 ms at one in 5 ms
			t.Errorf("%d calls were sent before Retry-After had passed", early)
		}
		if first := f.first["node-0"]; first < f.after || first > f.after+time.Second {
			t.Errorf("the first call after Retry-After was sent at %v, want %v", first, f.after)
		}
	})
}

// TestFlappingProvider is fault F18: one of two providers fails every other second. What can be repeated is answered
// nevertheless, with few more calls than requests, and what cannot is sent once.
func TestFlappingProvider(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		probes     bool
		fault      mockrpc.Fault
	}{
		{"5xx", blockNumber, false, mockrpc.Fault{Status: 500}},
		{"5xx, with probes", blockNumber, true, mockrpc.Fault{Status: 500}},
		{"reset", blockNumber, false, mockrpc.Fault{Reset: true}},
		{"reset, with probes", blockNumber, true, mockrpc.Fault{Reset: true}},
		{"5xx, not repeatable", sendRaw, false, mockrpc.Fault{Status: 500, Execute: true}},
		{"5xx, not repeatable, with probes", sendRaw, true, mockrpc.Fault{Status: 500, Execute: true}},
		{"reset, not repeatable", sendRaw, false, mockrpc.Fault{Reset: true, Execute: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, 2)
				if tt.probes {
					ctx, cancel := context.WithCancel(t.Context())
					var probes sync.WaitGroup
					probes.Go(func() { f.route.Run(ctx) })
					defer probes.Wait()
					defer cancel()
				}
				tt.fault.On, tt.fault.Off = time.Second, time.Second
				if _, err := f.providers[0].AddFault(tt.fault); err != nil {
					t.Fatal(err)
				}
				f.offer(10*time.Second, tt.body)
				f.mu.Lock() // probes go on
				requests := 0
				for _, n := range f.statuses {
					requests += n
				}
				failed := requests - f.statuses[200]
				sent := int64(f.sent)
				for _, e := range f.route.Pool().Stats().Endpoints {
					sent -= e.Probes
				}
				switch {
				case tt.body == sendRaw && sent > int64(requests):
					t.Errorf("%d requests were sent %d times", requests, sent)
				case float64(sent) > 1.1*float64(requests)+1:
					t.Errorf("%d requests were sent %d times", requests, sent)
				case failed > requests/20:
					t.Errorf("%v: too many have failed", f.statuses)
				}
				f.after = time.Since(f.start)
				f.mu.Unlock()
				f.providers[0].ClearFaults()
				f.offer(3*time.Second, tt.body)
				f.mu.Lock()
				defer f.mu.Unlock()
				if first, used := f.first["node-0"]; !used || first > f.after+2*time.Second {
					t.Errorf("after its recovery at %v the provider was used at %v", f.after, first)
				}
			})
		})
	}
}
