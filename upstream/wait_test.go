package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// TestDeadlineOfTheCaller refuses at once what cannot be sent before the caller's deadline, and lets the rest wait.
func TestDeadlineOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 1}))}})
		_, _, _ = send(pool, call())
		for _, tt := range []struct {
			within time.Duration
			sent   bool
		}{
			{990 * time.Millisecond, false}, // there is room in one second
			{10 * time.Millisecond, false},
			{1010 * time.Millisecond, true},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), tt.within)
			began := time.Now()
			reply, err := pool.Send(request(ctx, 0), call())
			refused := (*LimitedError)(nil)
			switch {
			case tt.sent && err != nil:
				t.Errorf("within %v: %v", tt.within, err)
			case tt.sent:
				reply.Body.Close()
			case !errors.As(err, &refused) || refused.Reason != weir.TooLate || refused.RetryAfter != time.Second || time.Since(began) != 0:
				t.Errorf("within %v: %v after %v: want a refusal at once", tt.within, err, time.Since(began))
			}
			cancel()
		}
		if n := len(p.times("a")); n != 2 {
			t.Errorf("%d were sent, want 2", n)
		}
	})
}

// TestCancelledWhileWaiting leaves no hole: who came later takes the place.
func TestCancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 1}))}})
		_, _, _ = send(pool, call())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := pool.Send(request(ctx, 1), call()); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() { _, _, _ = send(pool, call()) })
		synctest.Wait()
		cancel()
		wg.Wait()
		if got := p.times("a"); len(got) != 2 || got[1] != time.Second {
			t.Errorf("calls were sent at %v: want the second after one second", got)
		}
	})
}

// TestQueueIsBounded refuses who finds the line full.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxQueue: 2, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 3}))}})
		var wg sync.WaitGroup
		full := 0
		for range 8 {
			wg.Go(func() {
				_, _, err := send(pool, call())
				if refused := (*LimitedError)(nil); errors.As(err, &refused) && refused.Reason == weir.QueueFull && refused.RetryAfter > 0 {
					p.mu.Lock()
					full++
					p.mu.Unlock()
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if n := len(p.times("a")); n != 5 || full != 3 {
			t.Errorf("%d were sent, and %d found the line full: want 5 and 3", n, full)
		}
	})
}

// TestEarlierElsewhere gives a waiting request the endpoint that has room first, though another was planned.
func TestEarlierElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{
			endpointAt("a", limited(Rate{PerSecond: 1})), endpointAt("b", func(e *Endpoint) { e.Concurrency = 1 }),
		}})
		p.answer = onHost("b", func() (*http.Response, error) {
			time.Sleep(300 * time.Millisecond)
			return reply(200, "{}"), nil
		})
		var wg sync.WaitGroup
		for range 3 { // one for each, and one that waits
			wg.Go(func() { _, _, _ = send(pool, call()) })
			synctest.Wait()
		}
		wg.Wait()
		if got := p.times("b"); len(got) != 2 || got[1] != 300*time.Millisecond {
			t.Errorf("b got calls at %v: want the second when the first has ended", got)
		}
	})
}

// TestQueueTime measures from when handling began until a call is sent, or has failed for good.
func TestQueueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: 2500 * time.Millisecond, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 1}))}})
		p.answer = func(*http.Request, string) (*http.Response, error) {
			time.Sleep(40 * time.Millisecond)
			return reply(200, "{}"), nil
		}
		began := time.Now()
		time.Sleep(100 * time.Millisecond) // for example to read the body
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				reply, err := pool.Send(request(t.Context(), 0), &Call{Methods: []string{"eth_call"}, Began: began})
				if err == nil {
					reply.Body.Close()
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		s := pool.Stats()
		const mean = (100 + 1100 + 2100 + 100) / 4 // three are sent, one is refused at once
		if q := s.QueueTime; q.Count != 4 || q.MeanMs < mean*0.98 || q.MeanMs > mean*1.02 {
			t.Errorf("%+v: want four of %d ms on average", q, mean)
		}
		if l := s.Endpoints[0].Latency; l.Count != 3 || l.P99Ms > 45 {
			t.Errorf("latency %+v: the time in line is not the endpoint's", l)
		}
		if s.Requests != 4 || s.Waited != 2 || s.Limited != 1 || s.Failed != 0 || s.Endpoints[0].Waited != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestCandidatesSayWhen returns endpoints that cool down, with the time at which they are tried again.
func TestCandidatesSayWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, MaxWait: -1, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b"), endpointAt("c")}})
		status := map[string]string{"a.example": "7", "b.example": "", "c.example": "3"}
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			if r.URL.Host == "b.example" {
				return reply(401, "{}"), nil
			}
			return reply(429, "{}", "Retry-After", status[r.URL.Host]), nil
		}
		for _, alias := range []string{"a", "b", "c"} {
			_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}, Pinned: alias})
		}
		candidates, err := pool.Candidates(t.Context(), call())
		if err != nil {
			t.Fatal(err)
		}
		want(t, "candidates", candidates, []Candidate{
			{"a", time.Now().Add(7 * time.Second)}, {"b", time.Time{}}, {"c", time.Now().Add(3 * time.Second)},
		})
		limited := (*LimitedError)(nil)
		if _, _, err := send(pool, call()); !errors.As(err, &limited) || limited.Alias != "c" || limited.RetryAfter != 3*time.Second || limited.Limit != "cooldown" {
			t.Errorf("%v: want the time of the first that comes back", err)
		}
		if len(p.times("")) != 3 {
			t.Errorf("%d calls were sent, want 3", len(p.times("")))
		}
	})
}

// TestNobodyOvertakes lets a request come in the very instant at which there is room for one that waits.
func TestNobodyOvertakes(t *testing.T) {
	for range 50 { // as which of the two runs first is a matter of chance
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 1}))}})
			var wg sync.WaitGroup
			for i, at := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
				wg.Go(func() {
					time.Sleep(at)
					reply, err := pool.Send(request(t.Context(), i), call())
					if err != nil {
						t.Error(err)
						return
					}
					reply.Body.Close()
				})
			}
			wg.Wait()
			for i, r := range p.received {
				if want := fmt.Sprintf(`"id":%d,`, i); r.at != time.Duration(i)*time.Second || !strings.Contains(r.body, want) {
					t.Fatalf("the calls came as %v", p.received)
				}
			}
		})
	}
}

// TestHeadsDoNotWakeEachOther bounds how often endpoints are tried in vain while requests wait, also where calls that end
// wake those who wait: for a slot, and while an endpoint recovers.
func TestHeadsDoNotWakeEachOther(t *testing.T) {
	for name, set := range map[string]func(*Endpoint){
		"concurrency": func(e *Endpoint) { e.Concurrency = 20 }, "recovering": func(*Endpoint) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{MaxWait: 20 * time.Second, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 2}), set)}})
			if name == "recovering" {
				p.answer = onHost("a", func() (*http.Response, error) { return reply(429, tooMany, "Retry-After", "1"), nil })
				_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
				p.answer = nil
				time.Sleep(1500 * time.Millisecond)
			}
			var wg sync.WaitGroup
			for i := range 20 { // of three classes, and so in three lines
				wg.Go(func() {
					c := call()
					c.Class = fmt.Sprint(i % 3)
					if _, _, err := send(pool, c); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := pool.Stats().Endpoints[0].Skipped; n > 200 { // 20 when they come, and a few for each that was sent
				t.Errorf("%s: the endpoint was tried in vain %d times", name, n)
			}
		})
	}
}

// TestClientsTakeTurns lets a client with many requests and one with few wait for the same endpoint: there would be no time for
// the latter if they stood in one line.
func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: 10500 * time.Millisecond, MaxQueue: 100, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5}))}})
		counts := map[string]int{}
		ask := func(client string, n int) {
			c := call()
			c.Client = client
			resp, err := pool.Send(request(context.Background(), n), c)
			p.mu.Lock()
			defer p.mu.Unlock()
			switch refused := (*LimitedError)(nil); {
			case err == nil:
				resp.Body.Close()
				counts[client+" sent"]++
			case errors.As(err, &refused):
				counts[fmt.Sprintf("%s %v", client, refused.Reason)]++
			default:
				t.Error(err)
			}
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { ask("greedy", i) })
			synctest.Wait()
		}
		for i := range 6 {
			wg.Go(func() { ask("modest", 1000+i) })
			synctest.Wait()
		}
		if n := pool.lines.waiting(); n != 50+6 {
			t.Errorf("%d wait, want half of the queue and 6", n)
		}
		wg.Wait()
		if counts["modest sent"] != 6 || counts["greedy sent"] < 40 {
			t.Errorf("%v: want all of the modest client's, and what fits into half of the queue of the other's", counts)
		}
	})
}

// TestWaitsForTheRecovering has one endpoint that cools down for an hour, and one that recovers: it gets one call at a time, and
// the others wait for that.
func TestWaitsForTheRecovering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("hour"), endpointAt("moments")}})
		wait := map[string]string{"hour.example": "3600", "moments.example": "1"}
		p.answer = func(r *http.Request, _ string) (*http.Response, error) {
			return reply(429, tooMany, "Retry-After", wait[r.URL.Host]), nil
		}
		for _, alias := range []string{"hour", "moments"} {
			_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}, Pinned: alias})
		}
		time.Sleep(2 * time.Second)
		p.answer = func(*http.Request, string) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return reply(200, "{}"), nil
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if alias, _, err := send(pool, call()); alias != "moments" {
					t.Errorf("%q has answered, %v", alias, err)
				}
			})
		}
		wg.Wait()
		limited := (*LimitedError)(nil)
		p.answer = nil
		if _, _, err := send(pool, &Call{Methods: []string{"eth_x"}, Pinned: "hour"}); !errors.As(err, &limited) || limited.RetryAfter < 59*time.Minute {
			t.Errorf("%v: want the hour of the only endpoint that can answer", err)
		}
	})
}

// TestSluggishStore: endpoints' own limits wait for the store as long as budgets do, since the provider may refuse what was
// sent without it.
func TestSluggishStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := weir.Must(memstore.New(memstore.Config{}))
		tier := weir.Must(tiered.New(tiered.Config{Store: sluggish{weir.Must(memstore.New(memstore.Config{}))}, Local: local}))
		defer tier.Close()
		p := &provider{start: time.Now()}
		pool := weir.Must(New(tier, Config{
			Name: "eth", Transport: p, Logger: slog.New(slog.DiscardHandler), JSONRPC: true,
			Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5}))},
		}))
		if alias, _, err := send(pool, call()); alias != "a" || err != nil {
			t.Error(alias, err)
		}
		synctest.Wait()                    // the charge is being settled
		time.Sleep(200 * time.Millisecond) // and now is
		if s := tier.Stats(); s.Failures > 0 || s.StoreCalls != 2 {
			t.Errorf("%d of %d calls of the store failed, want 0 of 2", s.Failures, s.StoreCalls)
		}
	})
}

// sluggish is a store that takes 150 ms for each call.
type sluggish struct{ *memstore.Table }

func (s sluggish) Do(ctx context.Context, b *weir.Batch) error {
	if err := sleep(ctx, 150*time.Millisecond, nil); err != nil {
		return err
	}
	return s.Table.Do(ctx, b)
}
