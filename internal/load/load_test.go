package load

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/load/measure"
	"github.com/weirlimit/weir/internal/load/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func schedule(t *testing.T, specs ...string) Schedule {
	t.Helper()
	s, err := ParseSchedule(specs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustRun(t *testing.T, c Config) measure.Report {
	t.Helper()
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Everything that was due was sent, or is said to be unfinished.
func TestRun(t *testing.T) {
	var requests atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%10 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	for name, c := range map[string]Config{
		"constant": {Schedule: schedule(t, "500")},
		"burst":    {Schedule: schedule(t, "500,1.5")},
		"ramp":     {Schedule: schedule(t, "100..900/1s")},
		"steps":    {Schedule: schedule(t, "200/500ms", "800/500ms")},
		"poisson":  {Schedule: schedule(t, "500"), Poisson: true},
	} {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			var lines atomic.Int64
			c.Target, c.For = target.Config{URL: url, Connections: 4}, time.Second
			c.Progress, c.ProgressEvery = func(measure.Snapshot) { lines.Add(1) }, 100*time.Millisecond
			r := mustRun(t, c)
			if r.Operations != requests.Load() || r.Codes["200"]+r.Codes["429"] != r.Operations || r.Errors != r.Operations/10 {
				t.Errorf("%d requests came: %+v", requests.Load(), r)
			}
			due := float64(r.Operations + r.Unfinished)
			tolerance := 5 + 0.02*500 // the schedule's last slice, and the steering
			if c.Poisson {
				tolerance += 5 * math.Sqrt(500)
			}
			if math.Abs(due-500*r.LoadS) > tolerance {
				t.Errorf("%v operations were due in %v s, want 500 per second", due, r.LoadS)
			}
			if lines.Load() < 2 || r.Interrupted {
				t.Errorf("%d lines, %+v", lines.Load(), r)
			}
		})
	}
}

// A server that stalls shows in the response time of all operations that were due
// meanwhile. A client that waits for its answers sends less, and sees it
// a few times only: once per connection and stall, which is below what a p99 shows.
func TestStall(t *testing.T) {
	every, stall, duration := 2*time.Second, 200*time.Millisecond, 4*time.Second
	if os.Getenv("WEIR_TEST") == "all" {
		every, stall, duration = 10*time.Second, time.Second, 20*time.Second
	}
	const rate, connections = 400, 4
	server := stalls{every: every, stall: stall, begin: time.Now(), seen: map[int64]int{}}
	url := serve(t, server.answer)
	r := mustRun(t, Config{
		Target:   target.Config{URL: url, Connections: connections},
		Schedule: schedule(t, "400"),
		For:      duration,
	})
	t.Logf("open loop: response p99 %.1f ms, service p99 %.1f ms", r.ResponseMS.P99, r.ServiceMS.P99)
	if r.ResponseMS.P99 < float64(stall.Milliseconds())/2 {
		t.Errorf("a stall of %v gives a response p99 of %v ms", stall, r.ResponseMS.P99)
	}
	closed := closedLoop(t, url, rate, connections, duration)
	t.Logf("closed loop: p99 %.1f ms", closed.ServiceMS.P99)
	for n, held := range server.seen {
		if held > connections {
			t.Errorf("the stall number %d held %d calls over %d connections", n, held, connections)
		}
	}
}

// stalls is a server that answers at once, but for a pause now and then.
type stalls struct {
	every, stall time.Duration
	begin        time.Time

	mu   sync.Mutex
	seen map[int64]int // how many calls each pause held
}

func (s *stalls) answer(http.ResponseWriter, *http.Request) {
	since := time.Since(s.begin)
	if into := since % s.every; into > s.every-s.stall {
		s.mu.Lock()
		s.seen[int64(since/s.every)]++
		s.mu.Unlock()
		time.Sleep(s.every - into)
	}
}

// closedLoop calls a target as most tools do: each connection waits for its answer
// and then until its next turn, which is not there while it waits.
func closedLoop(t *testing.T, url string, rate, connections int, duration time.Duration) measure.Report {
	tgt, err := target.Open(context.Background(), target.Config{URL: url, Connections: connections})
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	m := measure.NewRun(weir.Now())
	end := weir.Now().Add(duration)
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			caller, rec := tgt.Caller(i), m.Recorder()
			for seq := int64(0); weir.Now() < end; seq++ {
				began := weir.Now()
				res := caller.Call(context.Background(), seq)
				ended := weir.Now()
				rec.Record(measure.Op{Scheduled: began, Started: began, Ended: ended, OK: res.OK, Code: res.Code})
				time.Sleep(time.Second*time.Duration(connections)/time.Duration(rate) - ended.Sub(began))
			}
		})
	}
	all.Wait()
	return m.Report(weir.Now(), measure.Meta{})
}

func TestNobodyAnswers(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	_, err := Run(context.Background(), Config{Target: target.Config{URL: s.URL}, Schedule: schedule(t, "1"), For: time.Second})
	if err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), strings.TrimPrefix(s.URL, "http://")) {
		t.Errorf("%v, want what was tried, and that it was refused", err)
	}
}

// A run that is interrupted returns the report so far, and cancels what is in flight.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var n atomic.Int64
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 20 {
			cancel()
			<-r.Context().Done() // for ever, as far as the client knows
		}
	})
	r, err := Run(ctx, Config{Target: target.Config{URL: url, Connections: 1}, Schedule: schedule(t, "1000"), For: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || r.Operations != 20 || r.Errors != 0 || r.Unfinished == 0 {
		t.Errorf("%+v", r)
	}
}

func TestBadConfig(t *testing.T) {
	_, err := Run(context.Background(), Config{})
	for _, want := range []string{"URL", "no rate", "for 0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
