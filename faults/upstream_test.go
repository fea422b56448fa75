package faults

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/internal/mockrpc"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

const (
	upstreamDelay = 50 * time.Millisecond  // how long an upstream takes
	callsEach     = 5 * time.Millisecond   // between two calls of the load
	spare         = 500 * time.Millisecond // what a busy machine may take to pass on what was sent before

	upstreamTimeout = 10 * time.Second // how long the route waits: so long that no upstream is taken for slow
	shortTimeout    = 250 * time.Millisecond
)

// proxied is a gateway route in this process with two upstreams, a and b, which are accounts with one provider. It
// prefers a.
type proxied struct {
	*trial
	provider *mockrpc.Provider
	route    *gateway.Route
	url      string
	client   *http.Client

	mu   sync.Mutex // guards the field below
	seen []arrival
}

// arrival is a request that the provider got.
type arrival struct {
	key        string
	at, end    time.Time
	status     int // 0 if there was no response
	retryAfter string
}

func startProxied(tr *trial, timeout time.Duration) *proxied {
	tr.Helper()
	provider, err := mockrpc.New(mockrpc.Config{
		Preset: mockrpc.Generic, Latency: upstreamDelay, Accounts: []mockrpc.Account{{Name: "a", Keys: []string{"a"}}, {Name: "b", Keys: []string{"b"}}},
	})
	if err != nil {
		tr.Fatal(err)
	}
	p := &proxied{trial: tr, provider: provider, client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
	upstreams := httptest.NewUnstartedServer(p)
	upstreams.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	upstreams.Start()
	c := gateway.Config{Logger: slog.New(slog.DiscardHandler), Pool: upstream.Config{
		Name: "chain", JSONRPC: true, Timeout: timeout, MaxWait: -1, Logger: slog.New(slog.DiscardHandler),
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext},
		Endpoints: []upstream.Endpoint{
			{Alias: "a", RPC: secret.New(upstreams.URL + mockrpc.Path("a")), Priority: 10, Provider: "a"},
			{Alias: "b", RPC: secret.New(upstreams.URL + mockrpc.Path("b")), Priority: 20, Provider: "b"},
		},
	}}
	if p.route, err = gateway.New(weir.Must(memstore.New(memstore.Config{})), c); err != nil {
		tr.Fatal(err)
	}
	server := httptest.NewServer(p.route)
	p.url = server.URL
	tr.Cleanup(func() {
		server.Close()
		p.client.CloseIdleConnections()
		c.Pool.Transport.(*http.Transport).CloseIdleConnections()
		upstreams.Close()
	})
	return p
}

// ServeHTTP is the provider, whose requests are recorded.
func (p *proxied) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := arrival{key: path.Base(r.URL.Path), at: time.Now()}
	defer func() {
		a.end = time.Now()
		a.retryAfter = w.Header().Get("Retry-After")
		p.mu.Lock()
		p.seen = append(p.seen, a)
		p.mu.Unlock()
	}()
	p.provider.ServeHTTP(&statusNoter{w, &a.status}, r)
}

type statusNoter struct {
	http.ResponseWriter
	status *int
}

func (w *statusNoter) WriteHeader(status int) {
	*w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusNoter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// arrivals returns the requests with a key, in order.
func (p *proxied) arrivals(key string) (list []arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.seen {
		if a.key == key {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b arrival) int { return a.at.Compare(b.at) })
	return list
}

// fail puts a fault into force, and returns when.
func (p *proxied) fail(faults ...mockrpc.Fault) time.Time {
	p.Helper()
	for _, f := range faults {
		if _, err := p.provider.AddFault(f); err != nil {
			p.Fatal(err)
		}
	}
	return time.Now()
}

// await polls until something is so, and returns when.
func (p *proxied) await(what string, is func() bool) time.Time {
	p.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("not %s after %v: %+v", what, patience, p.route.Pool().Stats())
		}
	}
	return time.Now()
}

// isDown reports whether the route sends nothing to an upstream.
func (p *proxied) isDown(alias string) bool {
	for _, e := range p.route.Pool().Stats().Endpoints {
		if e.Alias == alias {
			return e.Health == "down"
		}
	}
	return false
}

// answered returns a condition: that so many calls with a key have been answered since a time.
func (p *proxied) answered(key string, n int, since time.Time) func() bool {
	return func() bool {
		for _, a := range p.arrivals(key) {
			if a.status == http.StatusOK && a.at.After(since) {
				n--
			}
		}
		return n <= 0
	}
}

// calls is a load: a call each 5 ms, every fifth of which is a transaction of its own. Nothing waits for answers.
type calls struct {
	stopped chan struct{}
	all     sync.WaitGroup

	mu   sync.Mutex // guards the field below
	made []made
}

// made is a call that was answered.
type made struct {
	at          time.Time
	transaction bool
	status      int // 0 if there was no answer
}

func (p *proxied) startCalls() *calls {
	c := &calls{stopped: make(chan struct{})}
	c.all.Go(func() {
		ticker := time.NewTicker(callsEach)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-c.stopped:
				return
			case <-ticker.C:
				c.all.Go(func() { c.one(p, i) })
			}
		}
	})
	return c
}

func (c *calls) one(p *proxied, i int) {
	m := made{at: time.Now(), transaction: i%5 == 0}
	body := `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{},"latest"]}`
	if m.transaction {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x02%08x"]}`, i)
	}
	resp, err := p.client.Post(p.url, "application/json", strings.NewReader(body))
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		m.status = resp.StatusCode
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, m)
}

// stop ends the load and returns its calls, when all are answered.
func (c *calls) stop() []made {
	close(c.stopped)
	c.all.Wait()
	return c.made
}

// failures counts calls that were not answered with success.
func failures(list []made, is func(made) bool) (n int) {
	for _, m := range list {
		if m.status != http.StatusOK && is(m) {
			n++
		}
	}
	return n
}

func isTransaction(m made) bool { return m.transaction }
func isRead(m made) bool        { return !m.transaction }

// F17: a provider refuses a call, and says when the account may be used again.
func TestUpstreamRefuses(t *testing.T) {
	tr := try(t, "F17", "one of two upstreams of a route, which takes 50 ms for a call, answers a call 429 with `Retry-After: 5`, three times, under 200 calls per second",
		"nothing is sent there later than one call takes, and before Retry-After has elapsed; it is used again ≤ 1 s after; no call fails")
	p := startProxied(tr, upstreamTimeout)
	load := p.startCalls()
	pause := pick(5*time.Second, time.Second)
	for range pick(3, 1) {
		began := p.fail(mockrpc.Fault{Key: "a", Method: "eth_call", Refusal: "rate", RetryAfter: pause, Count: 1})
		p.await("refused", func() bool { return p.isDown("a") })
		p.await("used again", p.answered("a", 50, began.Add(pause)))
	}
	list := load.stop()

	refusals, early := 0, 0
	var last, resumed time.Duration
	all := p.arrivals("a")
	for i, refused := range all {
		if refused.status != http.StatusTooManyRequests {
			continue
		}
		refusals++
		until := refused.at.Add(pause)
		next := time.Duration(0)
		for _, a := range all[i+1:] {
			switch {
			case a.at.Before(refused.end):
			case a.at.Before(until):
				last = max(last, a.at.Sub(refused.end))
				if a.at.Sub(refused.end) > spare {
					early++
				}
			case next == 0:
				next = a.at.Sub(until)
			}
		}
		resumed = max(resumed, next)
	}
	tr.note("calls", "%d", len(list))
	tr.atLeast("refusals", float64(refusals), float64(pick(3, 1)), "those that were made")
	tr.within("the last call was sent after the refusal by", last, upstreamDelay)
	tr.countWithin("sent after that, and before Retry-After had elapsed", early, 0)
	tr.within("used again after", resumed, time.Second)
	tr.none("calls that failed", failures(list, func(made) bool { return true }))
	tr.judgeTries(p, list)
}

// judgeTries compares what was sent with what was called.
func (tr *trial) judgeTries(p *proxied, list []made) {
	tr.Helper()
	s := p.provider.Stats()
	tr.atMost("tries", float64(s.Tries()), 1.1*float64(len(list)), fmt.Sprintf("1.1 × %d calls", len(list)))
	tr.note("transactions executed", "%d", s.Transactions.Executed)
	tr.none("executed twice", int(s.Transactions.Duplicates))
}

// F18: all upstreams fail, and recover.
func TestUpstreamsFail(t *testing.T) {
	for _, tt := range []struct {
		id, what string
		fault    mockrpc.Fault
		timeout  time.Duration
	}{
		{"F18", "answer 500", mockrpc.Fault{Status: 500}, upstreamTimeout},
		{"F18b", "execute calls and do not answer: the route waits for 250 ms", mockrpc.Fault{Delay: 2 * time.Second}, shortTimeout},
		{"F18c", "execute calls and reset the connection", mockrpc.Fault{Reset: true, Execute: true}, upstreamTimeout},
	} {
		t.Run(tt.id, func(t *testing.T) {
			tr := try(t, tt.id, "both upstreams of a route, which take 50 ms for a call, "+tt.what+", for 10 s, under 200 calls per second of which a fifth are transactions",
				"tries ≤ 1.1 × calls; breakers open ≤ 1 s; then one call at a time, and one each second at least; traffic ≤ 2 s after recovery; no transaction is executed twice")
			tr.upstreamsFail(tt.fault, tt.timeout)
		})
	}
}

func (tr *trial) upstreamsFail(fault mockrpc.Fault, timeout time.Duration) {
	tr.Helper()
	p := startProxied(tr, timeout)
	load := p.startCalls()
	p.await("served", p.answered("a", 50, time.Time{}))
	faults := []mockrpc.Fault{fault, fault}
	faults[0].Key, faults[1].Key = "a", "b"
	began := p.fail(faults...)
	open := p.await("down", func() bool { return p.isDown("a") && p.isDown("b") })
	tr.within("breakers open after", open.Sub(began), time.Second)
	time.Sleep(time.Until(began.Add(pick(10*time.Second, 2*time.Second))))
	back := time.Now()
	p.provider.ClearFaults()
	served := p.await("served again", p.answered("a", 50, back))
	list := load.stop()

	tr.note("calls", "%d", len(list))
	tr.note("calls that failed", "%d", failures(list, func(made) bool { return true }))
	for _, key := range []string{"a", "b"} {
		most, gap := probes(p.arrivals(key), open.Add(spare), back, timeout)
		tr.countWithin("calls at once at "+key+" while its breaker is open", most, 1)
		tr.within("between these at most", gap, time.Second+shortTimeout)
	}
	tr.within("50 calls answered after", served.Sub(back), 2*time.Second)
	tr.judgeTries(p, list)
}

// probes returns how many of the requests between two times were in flight at once, and the longest time between them.
func probes(list []arrival, from, to time.Time, timeout time.Duration) (most int, gap time.Duration) {
	list = slices.DeleteFunc(list, func(a arrival) bool { return a.at.Before(from) || a.at.After(to) })
	last := from
	for i, a := range list {
		gap, last = max(gap, a.at.Sub(last)), a.at
		n := 0
		for _, other := range list[:i+1] {
			if given := max(1, min(other.end.Sub(other.at), timeout)); a.at.Sub(other.at) < given { // the route waits no longer
				n++
			}
		}
		most = max(most, n)
	}
	return most, max(gap, to.Sub(last))
}

// F18d: one of two upstreams fails and recovers all the time.
func TestUpstreamFlaps(t *testing.T) {
	tr := try(t, "F18d", "one of two upstreams of a route answers 500 for 1 s and recovers for 1 s, ten times, under 200 calls per second of which a fifth are transactions; the other works",
		"tries ≤ 1.1 × calls; no more calls fail than were answered 500; traffic ≤ 1 s after each recovery, and all of it ≤ 2 s after the last one; no transaction is executed twice")
	const period = 2 * time.Second
	cycles := pick(10, 2)
	p := startProxied(tr, upstreamTimeout)
	load := p.startCalls()
	p.await("served", p.answered("a", 50, time.Time{}))
	began := p.fail(mockrpc.Fault{Key: "a", Status: 500, On: period / 2, Off: period / 2})
	time.Sleep(time.Duration(cycles)*period - period/2) // until the end of the last failure
	p.provider.ClearFaults()
	back := time.Now()
	whole := p.await("served as before", func() bool {
		for _, e := range p.route.Pool().Stats().Endpoints {
			if e.Alias == "a" {
				return e.Health == "ok"
			}
		}
		return false
	})
	p.await("answered", p.answered("a", 50, whole))
	list := load.stop()

	var longest time.Duration
	failed := 0
	all := p.arrivals("a")
	for i := range cycles - 1 {
		recovered := began.Add(time.Duration(i)*period + period/2)
		next := slices.IndexFunc(all, func(a arrival) bool { return a.at.After(recovered) && a.status == http.StatusOK })
		if next < 0 {
			tr.Fatalf("nothing was sent after recovery %d", i)
		}
		longest = max(longest, all[next].at.Sub(recovered))
	}
	for _, a := range all {
		if a.status == http.StatusInternalServerError {
			failed++
		}
	}
	tr.note("calls", "%d", len(list))
	tr.atMost("calls that failed", float64(failures(list, func(made) bool { return true })), float64(failed), "those answered 500")
	tr.note("of these transactions", "%d", failures(list, isTransaction))
	tr.note("of these reads, beyond the retries", "%d", failures(list, isRead))
	tr.within("traffic after each recovery", longest, time.Second)
	tr.within("all of it after the last one", whole.Sub(back), 2*time.Second)
	tr.judgeTries(p, list)
}
