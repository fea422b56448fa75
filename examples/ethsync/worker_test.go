package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/store/memstore"
)

// fake is a caller that answers as the provider does, counts, and can delay or fail.
type fake struct {
	mu     sync.Mutex // guards the fields below
	head   int64
	calls  map[string]int
	blocks []string // the ranges of getLogs
	waits  int64    // how many calls have been delayed
	delay  string   // the method whose calls are delayed
	fail   string   // the method whose calls fail
}

var errFake = errors.New("the provider is down")

func (f *fake) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[method]++
	if method == f.delay {
		f.waits++
	}
	if method == f.fail {
		return nil, errFake
	}
	data, err := json.Marshal(map[string]any{"method": method, "params": params})
	if err != nil {
		return nil, err
	}
	var c call
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	if method == getLogs {
		f.blocks = append(f.blocks, string(c.Params[0]))
	}
	text, err := result(c, f.head)
	return json.RawMessage(text), errors.Join(err, ctx.Err())
}

func (f *fake) delays() int64 { return f.waits }

func TestSync(t *testing.T) {
	type counts struct{ blocks, behind, delayed int64 }
	tests := []struct {
		name    string
		batched bool
		heads   []int64
		delay   string
		calls   map[string]int
		want    counts
	}{
		{
			"per block", false,
			[]int64{101, 102, 102, 104, 105},
			"",
			map[string]int{blockNumber: 5, getBlock: 5, getLogs: 5, getTransaction: 1, getReceipt: 1},
			counts{5, 1, 0},
		},
		{
			"batched", true,
			[]int64{101, 102, 102, 112},
			"",
			map[string]int{blockNumber: 4, getLogs: 3, getTransaction: 2, getReceipt: 2},
			counts{12, 9, 0},
		},
		{
			"batched, in ranges of 2,000", true,
			[]int64{1, 4001, 4002, 8003},
			"",
			map[string]int{blockNumber: 4, getLogs: 1 + 2 + 1 + 3, getTransaction: 1600, getReceipt: 1600},
			counts{8003, 4000, 0},
		},
		{
			"a block is delayed, not only its calls", false,
			[]int64{104, 106},
			getReceipt,
			map[string]int{blockNumber: 2, getBlock: 3, getLogs: 3, getTransaction: 1, getReceipt: 1},
			counts{3, 1, 1},
		},
		{
			"the call that finds blocks delays the first of them", false,
			[]int64{101, 101, 103},
			blockNumber,
			map[string]int{blockNumber: 3, getBlock: 3, getLogs: 3},
			counts{3, 1, 2},
		},
		{
			"a range is delayed", true,
			[]int64{104, 107, 109},
			getReceipt,
			map[string]int{blockNumber: 3, getLogs: 3, getTransaction: 1, getReceipt: 1},
			counts{6, 2, 3},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{delay: tt.delay}
			s := &syncer{client: f, delays: f.delays, batched: tt.batched}
			for _, f.head = range tt.heads {
				if err := s.poll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := (counts{s.blocks, s.behind, s.delayed}); got != tt.want || !maps.Equal(f.calls, tt.calls) {
				t.Errorf("%+v, calls %v, want %+v, calls %v", got, f.calls, tt.want, tt.calls)
			}
		})
	}
}

// TestSyncCatchesUp: how far sync is behind, and what is delayed, counts from when it has reached the head.
func TestSyncCatchesUp(t *testing.T) {
	type counts struct{ polls, blocks, matches, behind, delayed int64 }
	for _, tt := range []struct {
		batched bool
		want    counts
	}{
		{false, counts{5, 23, 4, 2, 4}},
		{true, counts{5, 23, 4, 5, 12}},
	} {
		f := &fake{delay: getLogs}
		s := &syncer{client: f, delays: f.delays, batched: tt.batched, back: 10}
		for _, f.head = range []int64{101, 107, 109, 110, 113} {
			if err := s.poll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := (counts{s.polls, s.blocks, s.matches, s.behind, s.delayed}); got != tt.want {
			t.Errorf("batched %v: %+v, want %+v", tt.batched, got, tt.want)
		}
	}
}

// TestSyncRepeats: what a failure has interrupted is read again by the next poll.
func TestSyncRepeats(t *testing.T) {
	f := &fake{head: 100, fail: getLogs}
	s := &syncer{client: f, delays: f.delays}
	if err := s.poll(t.Context()); !errors.Is(err, errFake) || s.blocks != 0 {
		t.Fatalf("%v after %d blocks", err, s.blocks)
	}
	f.fail, f.head = "", 101
	if err := s.poll(t.Context()); err != nil || s.blocks != 2 {
		t.Errorf("%v after %d blocks, want 2", err, s.blocks)
	}
}

func TestBackfill(t *testing.T) {
	f := &fake{head: firstHead}
	b := newBackfiller(f, &scripted{}, 4500)
	if err := b.run(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"fromBlock":"0x0","toBlock":"0x1f4"}`, `{"fromBlock":"0x1f5","toBlock":"0x9c4"}`, `{"fromBlock":"0x9c5","toBlock":"0x1194"}`,
	}
	if slices.Sort(f.blocks); !slices.Equal(f.blocks, want) {
		t.Errorf("ranges %q, want %q", f.blocks, want)
	}
	if calls := map[string]int{getLogs: 3, getTransfers: 6}; !maps.Equal(f.calls, calls) || b.ranges.Load() != 3 {
		t.Errorf("calls %v and %d ranges, want %v", f.calls, b.ranges.Load(), calls)
	}
}

// scripted is a pauser that says true so many times.
type scripted struct{ pauses int }

func (s *scripted) ShouldPause(context.Context) bool {
	s.pauses--
	return s.pauses >= 0
}

// TestBackfillPauses: no call is made while the budget is nearly used up, and one reader waits for all.
func TestBackfillPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{head: firstHead}
		b := newBackfiller(f, &scripted{pauses: 5}, 4500)
		go func() {
			time.Sleep(5*pauseStep - 1)
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.calls) > 0 {
				t.Errorf("calls during the pause: %v", f.calls)
			}
		}()
		began := time.Now()
		if err := b.run(t.Context(), 3); err != nil || time.Since(began) != 5*pauseStep || b.pauses != 1 || b.ranges.Load() != 3 {
			t.Errorf("%v after %v, %d pauses, %d ranges", err, time.Since(began), b.pauses, b.ranges.Load())
		}

		ctx, cancel := context.WithTimeout(t.Context(), pauseStep/2)
		defer cancel()
		b = newBackfiller(f, &scripted{pauses: 1000}, 4500)
		if err := b.run(ctx, 3); !errors.Is(err, context.DeadlineExceeded) || b.ranges.Load() != 0 {
			t.Errorf("the worker ends while it pauses: %v, %d ranges", err, b.ranges.Load())
		}
	})
}

// TestClient: a call that the provider refuses is made again after the time that it tells, and the end of the
// context ends the wait. The budget knows nothing of what the first client uses.
func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(chain{time.Second}, map[string]int64{getLogs: 5000}, 0, 1)
		if w := post(p, rpc(getLogs, `[{"fromBlock":"0x1","toBlock":"0x1"}]`)); w.Code != http.StatusOK {
			t.Fatal(w.Code)
		}
		config, err := options{account: "main"}.accountConfig(nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := budget.New(weir.Must(memstore.New(memstore.Config{})), config)
		if err != nil {
			t.Fatal(err)
		}
		c := &client{http: &http.Client{Transport: &budget.Transport{Account: a, Base: direct{p}}}, url: "http://provider"}
		call := func(ctx context.Context, method string) error {
			_, err := c.call(ctx, method, []any{filter(1, 1)})
			return err
		}
		if err := call(t.Context(), getLogs); err != nil {
			t.Fatal(err)
		}
		longest := time.Duration(c.longest.Load())
		if s := p.snapshot(); c.calls.Load() != 1 || c.delays() != 2 || longest != 10*time.Second || s.Refused != 1 || s.Granted != 10_000 {
			t.Errorf("%d calls, %d delays, the longest of %v, provider %+v", c.calls.Load(), c.delays(), longest, s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := call(ctx, getLogs); err == nil || c.refused.Load() != 2 {
			t.Errorf("the provider wants 10 s and the caller has one: %v", err)
		}
		if err := call(t.Context(), "eth_unknown"); err == nil {
			t.Error("an unknown method succeeds")
		}
	})
}

// direct is a transport to a handler in this process.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GetConn("provider")
		if trace.WroteHeaders != nil {
			trace.WroteHeaders()
		}
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestLog: the workers log what those of document 001 do, each once: that they are ready, and the begin and the end of
// a pause (S1.31).
func TestLog(t *testing.T) {
	var text bytes.Buffer
	before, flags := slog.Default(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr)
		log.SetFlags(flags)
	}()
	o := bnb()
	o.behind = 20
	out := simulation{options: o}.run(t)
	for line, times := range map[string]int64{
		`level=INFO msg="the rate controller of the compute-unit budget is ready" class=backfill`:                        1,
		`level=INFO msg="rate limiting is enabled, with a guaranteed share of the budget" chain=ethereum class=realtime`: 1,
		`level=INFO msg="pausing: more than 90% of the compute-unit budget is in use"`:                                   out.backfill.pauses,
		`level=INFO msg="resuming: budget is available"`:                                                                 out.backfill.pauses,
	} {
		if n := strings.Count(text.String(), line+"\n"); int64(n) != times || n == 0 {
			t.Errorf("%d lines, want %d: %s", n, times, line)
		}
	}
}
