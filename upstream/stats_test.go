package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
)

// TestRequestsPerTime counts the requests of the last seconds and of the last minute (S0.52).
func TestRequestsPerTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}})
		rates := func(qps float64, qpm int64) {
			t.Helper()
			if e := pool.Stats().Endpoints[0]; e.QPS != qps || e.QPM != qpm {
				t.Errorf("%v per second and %d per minute, want %v and %d", e.QPS, e.QPM, qps, qpm)
			}
		}
		rates(0, 0)
		for range 900 { // ten per second
			_, _, _ = send(pool, call())
			time.Sleep(100 * time.Millisecond)
		}
		rates(10, 600)
		time.Sleep(3 * time.Second) // three of the five seconds are empty
		rates(4, 570)
		time.Sleep(61 * time.Second)
		rates(0, 0)
	})
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.0K", 1520: "1.5K", 999_949: "999.9K", 999_950: "1.0M", 3_400_000: "3.4M"} {
		if got := Short(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// TestReadingRefillsNothing is F0.30's case: a limit that is used up, quiet seconds, and then a look at the statistics.
func TestReadingRefillsNothing(t *testing.T) {
	for _, aligned := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 100, PerMinute: 60, Aligned: aligned}))}})
			for range 61 {
				_, _, _ = send(pool, call())
			}
			time.Sleep(3 * time.Second)
			_ = pool.Stats()
			if _, err := pool.Candidates(t.Context(), call()); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if _, _, err := send(pool, call()); err == nil {
					t.Errorf("aligned %v: a request beyond the limit was sent", aligned)
				}
			}
			if n := len(p.times("a")); n != 60 {
				t.Errorf("aligned %v: %d requests were sent, want 60", aligned, n)
			}
		})
	}
}

// TestSkippedPercent skips one request at three endpoints, sends it to a fourth that fails, skips it at the three again, and
// sends it to a fifth: what is counted is exact for each endpoint, and no share is above 100 % (F0.10).
func TestSkippedPercent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := perHour("", 1)
		empty.Initial = weir.Filled(0)
		pool, p := newPool(t, Config{Strategy: Sticky, MaxWait: -1, Endpoints: []Endpoint{
			endpointAt("empty", withLimits(empty)), endpointAt("used", withLimits(perHour("", 1))), endpointAt("half", withLimits(perHour("", 3))), endpointAt("fails"), endpointAt("works"),
		}})
		p.answer = onHost("fails", func() (*http.Response, error) { return reply(500, ""), nil })
		for _, alias := range []string{"used", "half", "half", "half"} {
			if _, _, err := send(pool, &Call{Methods: []string{"eth_call"}, Pinned: alias}); err != nil {
				t.Fatal(err)
			}
		}
		if alias, status, err := send(pool, call()); alias != "works" || status != 200 || err != nil {
			t.Fatalf("%q, %d, %v", alias, status, err)
		}
		type counts struct {
			Attempts, Sent, Skipped int64
			Percent                 float64
		}
		got := map[string]counts{}
		s := pool.Stats()
		for _, e := range s.Endpoints {
			got[e.Alias] = counts{e.Attempts, e.Sent, e.Skipped, e.SkippedPercent}
		}
		want(t, "counts", got, map[string]counts{
			"empty": {2, 0, 2, 100}, "used": {3, 1, 2, 66.66}, "half": {5, 3, 2, 40}, "fails": {1, 1, 0, 0}, "works": {1, 1, 0, 0},
		})
		if s.Requests != 5 || s.Retries != 1 || s.Limited != 0 || s.Failed != 0 || len(p.times("")) != 6 {
			t.Errorf("%d were sent, %+v", len(p.times("")), s)
		}
	})
}

// TestLatencyFindsTiers measures endpoints, prefers the fast one, and notices when the slow one gets fast.
func TestLatencyFindsTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("fast"), endpointAt("slow")}})
		late := 300 * time.Millisecond
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			if r.URL.Host == "slow.example" {
				time.Sleep(late)
			} else {
				time.Sleep(20 * time.Millisecond)
			}
			return reply(200, "{}"), nil
		}
		pinned := func(n int, aliases ...string) {
			for range n {
				for _, alias := range aliases {
					_, _, _ = send(pool, &Call{Methods: []string{"eth_call"}, Pinned: alias})
				}
			}
		}
		pinned(20, "fast", "slow")
		if s := pool.Stats().Endpoints; s[0].LatencyMs != 20 || s[1].LatencyMs != 300 {
			t.Errorf("latencies %v and %v", s[0].LatencyMs, s[1].LatencyMs)
		}
		if got := first(pool, 200); got["fast"] != 200 {
			t.Errorf("%v: want the fast one only", got)
		}
		late = 20 * time.Millisecond
		pinned(1, "slow")
		if got := pool.Stats().Endpoints[1].LatencyMs; got != 244 { // a fifth of the difference
			t.Errorf("a moving average of %v ms, want 244", got)
		}
		pinned(20, "slow")
		if got := first(pool, 1000); got["slow"] < 350 || got["fast"] < 350 {
			t.Errorf("%v: want both", got)
		}
	})
}

// TestQueueTimeOfRetries includes failed tries, and what failed for good without having been sent again (S0.28).
func TestQueueTimeOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			if r.URL.Host == "a.example" {
				return reply(500, ""), nil
			}
			return reply(200, "{}"), nil
		}
		reply, err := pool.Send(request(t.Context(), 0), call())
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if s := pool.Stats(); reply.Queued != 200*time.Millisecond || s.QueueTime.Count != 1 || s.QueueTime.MeanMs < 195 || s.QueueTime.MeanMs > 205 {
			t.Errorf("%v, %+v: want one of 200 ms", reply.Queued, s.QueueTime)
		}
		if s := pool.Stats().Endpoints[1]; s.Latency.Count != 1 || s.Latency.MeanMs < 195 || s.Latency.MeanMs > 205 {
			t.Errorf("%+v: want a latency of 200 ms", s.Latency)
		}
	})
}

// TestPoolLearns applies what responses say about an account, which is no refusal (F0.15).
func TestPoolLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := account("main", 100)
		one.Limits[0].Limit, one.Classes = weir.Limit{Rate: 100, Per: weir.Every(time.Hour)}, []budget.Class{}
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withBudget("main"))}}, one)
		p.answer = func(*http.Request, string) (*http.Response, error) {
			return reply(200, "{}", "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "40", "X-RateLimit-Reset", "3600"), nil
		}
		_, _, _ = send(pool, call())
		u, err := pool.accounts("main").Usage(t.Context())
		if err != nil || u.Horizons[0].Remaining != 40 || u.Drift["requests"] != 59 {
			t.Errorf("%+v, drift %v, %v: want 40 that remain, of which somebody else has used 59", u.Horizons, u.Drift, err)
		}
		want(t, "health", healths(pool), []string{"a ok"})
		if _, _, err := send(pool, call()); err != nil {
			t.Errorf("a time to full is no pause: %v", err)
		}
	})
}

// TestCancelledBeforeItIsSent gives back what a call was charged whose caller leaves while a connection is opened (F0.16).
func TestCancelledBeforeItIsSent(t *testing.T) {
	pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", withBudget("main"), limited(Rate{PerMinute: 50}))}}, account("main", 100))
	dialled, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	c := pool.set.Load().config
	c.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { // which goes on without the call
		close(dialled)
		<-over
		return nil, errors.New("over")
	}}
	if err := pool.Replace(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-dialled
		cancel()
	}()
	if _, err := pool.Send(request(ctx, 0), call()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	u, err := pool.accounts("main").Usage(t.Context())
	if err != nil || u.Horizons[0].Used != 0 {
		t.Errorf("%+v, %v: the account is charged", u.Horizons, err)
	}
	d, err := weir.Peek(t.Context(), pool.engine.Limiter(), pool.set.Load().endpoints[0].policy, endpointKey, 0)
	if err != nil || d.Remaining != 50 {
		t.Errorf("%v, %v: the limit is charged", d, err)
	}
	if s := pool.Stats(); s.Cancelled != 1 || s.Endpoints[0].Sent != 0 || len(s.Endpoints[0].Failures) != 0 || s.Endpoints[0].Health != "ok" || s.QueueTime.Count != 1 {
		t.Errorf("%+v", s)
	}
}

// TestRefusedByTheAccount leaves the endpoint's own limit as it is.
func TestRefusedByTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := account("main", 3)
		one.Limits[0].Limit, one.Classes = weir.Limit{Rate: 3, Per: weir.Every(time.Hour)}, []budget.Class{}
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", withBudget("main"), limited(Rate{PerMinute: 10}))}}, one)
		for range 8 {
			_, _, _ = send(pool, call())
		}
		synctest.Wait()
		d, err := weir.Peek(t.Context(), pool.engine.Limiter(), pool.set.Load().endpoints[0].policy, endpointKey, 0)
		if err != nil || d.Remaining != 7 || len(p.times("a")) != 3 {
			t.Errorf("%v, %v, %d sent: want 7 that remain, and 3 sent", d, err, len(p.times("a")))
		}
	})
}
