package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
			counts{5, 2, 0},
		},
		{
			"batched", true,
			[]int64{101, 102, 102, 112},
			"",
			map[string]int{blockNumber: 4, getLogs: 3, getTransaction: 2, getReceipt: 2},
			counts{12, 10, 0},
		},
		{
			"batched, in ranges of 2,000", true,
			[]int64{1, 4001, 4002, 8003},
			"",
			map[string]int{blockNumber: 4, getLogs: 1 + 2 + 1 + 3, getTransaction: 1600, getReceipt: 1600},
			counts{8003, 4001, 0},
		},
		{
			"a block is delayed, not only its calls", false,
			[]int64{104, 106},
			getReceipt,
			map[string]int{blockNumber: 2, getBlock: 3, getLogs: 3, getTransaction: 1, getReceipt: 1},
			counts{3, 2, 1},
		},
		{
			"the call that finds blocks delays the first of them", false,
			[]int64{101, 101, 103},
			blockNumber,
			map[string]int{blockNumber: 3, getBlock: 3, getLogs: 3},
			counts{3, 2, 2},
		},
		{
			"a range is delayed", true,
			[]int64{104, 107, 109},
			getReceipt,
			map[string]int{blockNumber: 3, getLogs: 3, getTransaction: 1, getReceipt: 1},
			counts{6, 3, 3},
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
	b := &backfiller{client: f, awaitBudget: func(ctx context.Context, _ func()) error { return ctx.Err() }}
	b.next.Store(4500)
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

func TestBackfillPauses(t *testing.T) {
	f := &fake{head: firstHead}
	b := &backfiller{client: f}
	b.next.Store(4500)
	pauses := 0
	b.awaitBudget = func(_ context.Context, paused func()) error {
		if pauses++; pauses == 3 {
			return errFake
		}
		paused()
		return nil
	}
	if err := b.run(t.Context(), 1); !errors.Is(err, errFake) || b.ranges.Load() != 2 || f.calls[getLogs] != 2 {
		t.Errorf("%v after %d ranges and %d calls, want the error after 2", err, b.ranges.Load(), f.calls[getLogs])
	}
}

// TestClient: a refused call is sent again after the time that the provider tells, and the end of the
// context ends the wait.
func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(chain{time.Second}, map[string]int64{getBlock: 5000}, 0, 1)
		c := &client{http: &http.Client{Transport: direct{p}}, url: "http://provider"}
		for range 2 {
			if _, err := c.call(t.Context(), getBlock, []any{"0x1"}); err != nil {
				t.Fatal(err)
			}
		}
		if s := p.snapshot(); c.calls.Load() != 2 || c.refused.Load() != 1 || s.Refused != 1 || s.Granted != 10_000 || s.ElapsedMS != 10_000 {
			t.Errorf("%d calls, %d refused, provider %+v", c.calls.Load(), c.refused.Load(), s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.call(ctx, getBlock, []any{"0x1"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the deadline: %v", err)
		}
		if _, err := c.call(t.Context(), "eth_unknown", []any{}); err == nil {
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
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w.Result(), nil
}
