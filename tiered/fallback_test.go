package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// What each OnError decides while the store is unavailable.
func TestOnError(t *testing.T) {
	with := func(o weir.OnError, l weir.Limit) weir.Limit {
		l.OnError = o
		return l
	}
	day := weir.Limit{Name: "day", Rate: 8, Per: weir.Every(24 * time.Hour), Algorithm: weir.FixedWindow}
	for _, tt := range []struct {
		name     string
		config   weir.OnError
		limits   []weir.Limit
		admitted int // of 200, on one of 4 nodes
		reason   weir.Reason
	}{
		{"local by default", 0, []weir.Limit{perSecond(100)}, 25, weir.Exhausted},
		{"a share is at least one", 0, []weir.Limit{perSecond(2)}, 1, weir.Exhausted},
		{"window", 0, []weir.Limit{day}, 2, weir.Exhausted},
		{"open", weir.FailOpen, []weir.Limit{perSecond(100)}, 200, weir.Admitted},
		{"closed", weir.FailClosed, []weir.Limit{perSecond(100)}, 0, weir.StoreDown},
		{"a limit says its own", weir.FailClosed, []weir.Limit{with(weir.FailOpen, perSecond(100))}, 200, weir.Admitted},
		{"one is closed", 0, []weir.Limit{perSecond(100), with(weir.FailClosed, day)}, 0, weir.StoreDown},
		{"one is open", 0, []weir.Limit{with(weir.FailOpen, perSecond(100)), day}, 2, weir.Exhausted},
		{"the tightest of two", 0, []weir.Limit{perSecond(4), day}, 1, weir.Exhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				l := newTier(t, tiered.Config{Store: store, OnError: tt.config, Nodes: 4})
				p := newPolicy(t, tt.limits...)
				breakStore(t, store, l, p)
				calls := store.count()
				if n := takeMany(t, l, p, "k", 200); n != tt.admitted {
					t.Errorf("%d of 200 were admitted, want %d", n, tt.admitted)
				}
				if d := take(t, l, p, "k", 1); d.Reason != tt.reason || !d.Estimate {
					t.Errorf("the last: %+v", d)
				}
				if n := store.count(); n != calls {
					t.Errorf("the store was called %d times after the breaker opened", n-calls)
				}
				if d, err := weir.Peek(ctx, l, p, "k", 1); err != nil || d.Reason != tt.reason || !d.Estimate {
					t.Errorf("peek: %+v, error %v", d, err)
				}
				heal(t, store, l)
			})
		})
	}
}

// A cost that fits the limit but not a node's share waits for the store.
func TestTooCostlyForAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l, p := newTier(t, tiered.Config{Store: store, Nodes: 4}), newPolicy(t, perSecond(100))
		breakStore(t, store, l, p)
		if d := take(t, l, p, "k", 26); d.Reason != weir.StoreDown || d.RetryAfter <= 0 {
			t.Errorf("cost 26 of a share of 25: %v", d)
		}
		if d := take(t, l, p, "k", 101); d.Allowed {
			t.Errorf("cost 101 of 100: %v", d)
		}
	})
}

// An outage begins where the store left off, and what it granted is charged when the
// store is back.
func TestOutageContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l := newTier(t, tiered.Config{Store: store, Nodes: 2})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 100})
		takeMany(t, l, p, "k", 60)
		breakStore(t, store, l, p)
		if n := takeMany(t, l, p, "k", 100); n != 20 {
			t.Errorf("%d were admitted in the outage, want 20: half of the 40 that remained", n)
		}
		heal(t, store, l)
		if left := store.remaining(t, p, "k"); left != 20 {
			t.Errorf("%d remain in the store, want 20", left)
		}
		if s := l.Stats(); s.Unsynced != 0 || s.Lost != 0 || s.Opened != 1 || s.Closed != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Coming and going mints nothing.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l := newTier(t, tiered.Config{Store: store, Nodes: 2})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(24 * time.Hour), Burst: 100})
		admitted := 0
		for range 10 {
			admitted += takeMany(t, l, p, "k", 8)
			breakStore(t, store, l, p)
			admitted += takeMany(t, l, p, "k", 50)
			heal(t, store, l)
		}
		if admitted > 100 {
			t.Errorf("%d were admitted of 100 by one node and a store that came and went", admitted)
		}
		if s := l.Stats(); s.Opened != 10 || s.Closed != 10 {
			t.Errorf("stats %+v", s)
		}
	})
}

// After an outage the store is charged for what a share's only limit still counts, also if another
// limit has failed open: that is charged, too, but for no more.
func TestChargedAfterOutage(t *testing.T) {
	window := weir.Limit{Name: "window", Rate: 5000, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog}
	for _, tt := range []struct {
		name    string
		window  weir.OnError
		charged bool // for all that was granted
	}{
		{"open", weir.FailOpen, false},
		{"local", weir.FailLocal, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				l := newTier(t, tiered.Config{Store: store, Nodes: 1})
				window.OnError = tt.window
				p := newPolicy(t, perSecond(100), window)
				breakStore(t, store, l, p)
				for range 60 {
					time.Sleep(time.Second)
					if n := takeMany(t, l, p, "k", 80); n != 80 {
						t.Fatalf("%d of 80 in a second were admitted", n)
					}
				}
				time.Sleep(time.Second)
				heal(t, store, l)
				d := take(t, l, p, "k", 50)
				if d.Allowed == tt.charged {
					t.Errorf("after the outage: %+v", d)
				}
			})
		})
	}
}

// A call that the store does not answer is decided within the timeout, or 5 ms before the
// caller's deadline, and not retried.
func TestDeadlines(t *testing.T) {
	for _, tt := range []struct{ caller, want time.Duration }{
		{0, 10 * time.Millisecond},
		{time.Second, 10 * time.Millisecond},
		{12 * time.Millisecond, 7 * time.Millisecond},
		{6 * time.Millisecond, 3 * time.Millisecond},
	} {
		t.Run(tt.caller.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				store.set(func(f *flaky) { f.hangs = true })
				l, p := newTier(t, tiered.Config{Store: store}), newPolicy(t, perSecond(10))
				ctx := ctx
				if tt.caller > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.caller)
					defer cancel()
				}
				began := time.Now()
				d, err := l.Take(ctx, p, "k", 1)
				if took := time.Since(began); err != nil || !d.Allowed || took != tt.want {
					t.Errorf("%v, error %v after %v; want a decision after %v", d, err, took, tt.want)
				}
				if s := l.Stats(); s.Unknown != 1 || s.Failures != 1 || s.Fallback != 1 || store.count() != 1 {
					t.Errorf("%d calls, stats %+v", store.count(), s)
				}
			})
		})
	}
}

// A caller who leaves gets his context's error, and that says nothing about the store.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		store.set(func(f *flaky) { f.hangs = true })
		l, p := newTier(t, tiered.Config{Store: store}), newPolicy(t, perSecond(10))
		for range 10 {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			if _, err := l.Take(ctx, p, "k", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		}
		if s := l.Stats(); s.OpenBreakers != 0 || s.Unknown != 10 || s.Failures != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// The breaker opens after five failures in a row, or if half of twenty calls fail.
func TestBreaker(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls string // x fails
		open  bool
	}{
		{"five", "xxxxx", true},
		{"four", "xxxx", false},
		{"four and four", "xxxx.xxxx", false},
		{"nine of twenty", "xx..xx..xx..xx..x...", false},
		{"ten of twenty", "xx..xx..xx..xx..xx", true},
		{"the last twenty count", "xx..xx..xx..xx..x................xx", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				l, p := newTier(t, tiered.Config{Store: store}), newPolicy(t, perSecond(1000))
				for _, c := range tt.calls {
					store.set(func(f *flaky) {
						if f.down = nil; c == 'x' {
							f.down = errDown
						}
					})
					take(t, l, p, "k", 1)
				}
				if open := l.Stats().OpenBreakers == 1; open != tt.open {
					t.Errorf("open: %t, want %t", open, tt.open)
				}
			})
		})
	}
}

// A store that can be read and not written is not back.
func TestProbeWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		var events []string
		var mu sync.Mutex
		l := newTier(t, tiered.Config{Store: store, OnBreaker: func(partition int, open bool, why error) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprint(partition, open, why))
		}})
		p := newPolicy(t, perSecond(1000))
		breakStore(t, store, l, p)
		probed := store.count()
		store.set(func(f *flaky) { f.down, f.full = nil, true })
		time.Sleep(2 * time.Second)
		if s := l.Stats(); s.OpenBreakers != 1 {
			t.Error("it is taken for back while nothing can be written")
		}
		if n := store.count() - probed; n < 6 || n > 11 {
			t.Errorf("it was tried %d times in 2 s", n)
		}
		heal(t, store, l)
		if left := store.remaining(t, p, "breaks0"); left != 999 && left != 1000 {
			t.Errorf("%d remain", left)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := fmt.Sprint([]string{"0 true connection refused", "0 false <nil>"}); fmt.Sprint(events) != want {
			t.Errorf("events %v, want %v", events, want)
		}
	})
}

// partitioned is a store of 8 partitions. The first character of a key selects its partition.
type partitioned struct{ *flaky }

func (partitioned) Partitions() int { return 8 }

func (partitioned) Rounds(*weir.Batch) int { return 1 }

func (partitioned) Partition(_ *weir.Policy, key string) int { return int(key[0] - '0') }

// When a partition recovers the others are probed soon, and none of them more often than that.
func TestPartitionsRecoverTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		var mu sync.Mutex
		var closed []time.Time
		l := newTier(t, tiered.Config{Store: partitioned{store}, OnBreaker: func(_ int, open bool, _ error) {
			mu.Lock()
			defer mu.Unlock()
			if !open {
				closed = append(closed, time.Now())
			}
		}})
		p := newPolicy(t, perSecond(1000))
		store.set(func(f *flaky) { f.down = errDown })
		for partition := range 8 {
			for range 5 {
				take(t, l, p, fmt.Sprint(partition), 1)
			}
			time.Sleep(time.Duration(partition) * 7 * time.Millisecond) // out of step
		}
		time.Sleep(10 * time.Second)
		before := store.count()
		time.Sleep(10 * time.Second)
		if n := store.count() - before; n < 8*32 || n > 8*54 {
			t.Errorf("8 partitions were probed %d times in 10 s, want each every 188 to 312 ms", n)
		}
		heal(t, store, l)
		mu.Lock()
		defer mu.Unlock()
		if len(closed) != 8 {
			t.Fatalf("%d partitions recovered, want 8", len(closed))
		}
		if took := closed[7].Sub(closed[0]); took > 25*time.Millisecond {
			t.Errorf("they came back within %v, want 25 ms", took)
		}
	})
}

// flushCounter counts the keys whose usage was flushed, by partition.
type flushCounter struct {
	partitioned
	flushed *[8]atomic.Int64
}

func (s flushCounter) Do(ctx context.Context, b *weir.Batch) error {
	err := s.partitioned.Do(ctx, b)
	if err == nil {
		for i := range b.Used {
			s.flushed[s.Partition(b.Charges[i].Policy, b.Charges[i].Key)].Add(1)
		}
	}
	return err
}

// All usage of a partition is flushed before its breaker closes, also if others recover at the
// same time.
func TestPartitionsAreFlushedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 4000 // of each partition
		store := flushCounter{partitioned{newFlaky(t)}, new([8]atomic.Int64)}
		store.takes = 400 * time.Microsecond
		l := newTier(t, tiered.Config{Store: store, OnBreaker: func(partition int, open bool, _ error) {
			if n := store.flushed[partition].Load(); !open && n < keys {
				t.Errorf("the breaker of partition %d closed after %d of %d keys were flushed", partition, n, keys)
			}
		}})
		p := newPolicy(t, weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)})
		store.set(func(f *flaky) { f.down = errDown })
		for i := range keys {
			for partition := range 8 {
				take(t, l, p, fmt.Sprint(partition, "-", i), 1)
			}
		}
		heal(t, store.flaky, l)
	})
}

// Beyond MaxInFlight calls are decided without the store, which is not its failure.
func TestInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		store.takes = 5 * time.Millisecond
		l, p := newTier(t, tiered.Config{Store: store, MaxInFlight: 3}), newPolicy(t, perSecond(1000))
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { take(t, l, p, fmt.Sprint(i), 1) })
		}
		all.Wait()
		if s := l.Stats(); s.Busy != 7 || s.Fallback != 7 || s.Store != 3 || s.Failures != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A reservation that was made while the store was unavailable is settled in Local, and the store
// is charged for the units that were used.
func TestReserveInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l := newTier(t, tiered.Config{Store: store, Nodes: 2})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 100})
		before, err := weir.Reserve(ctx, l, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 10})
		if err != nil {
			t.Fatal(err)
		}
		breakStore(t, store, l, p)
		r, err := weir.Reserve(ctx, l, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 30}, weir.Charge{Policy: p, Key: "j", Cost: 5})
		if err != nil || !r.Decision.Allowed {
			t.Fatalf("reservation: %v, error %v", r.Decision, err)
		}
		if ok, err := r.Renew(ctx, time.Minute); !ok || err != nil {
			t.Errorf("renewed: %t, error %v", ok, err)
		}
		if s, err := r.Commit(ctx, 12, 7); err != nil || s[0].Refunded+s[1].Refunded != 18 || s[0].Overrun+s[1].Overrun != 2 {
			t.Errorf("settled %+v, error %v", s, err)
		}
		if _, err := before.Commit(ctx, 4); err == nil {
			t.Error("what the store holds was settled without it")
		}
		heal(t, store, l)
		if s, err := before.Commit(ctx, 4); err != nil || s[0].Refunded != 6 {
			t.Errorf("settled %+v, error %v", s, err)
		}
		if k, j := store.remaining(t, p, "k"), store.remaining(t, p, "j"); k != 100-12-4 || j != 100-7 {
			t.Errorf("%d and %d remain, want 84 and 93", k, j)
		}
	})
}

// All or none, also by the share.
func TestTakeAllInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l, p := newTier(t, tiered.Config{Store: store}), newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 10})
		breakStore(t, store, l, p)
		all := func(costs ...int64) []weir.Decision {
			b := weir.Batch{Op: weir.TakeAll}
			for i, c := range costs {
				b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: fmt.Sprint(i), Cost: c})
			}
			if err := l.Do(ctx, &b); err != nil {
				t.Fatal(err)
			}
			return b.Decisions
		}
		if ds := all(3, 8); !ds[0].Allowed || !ds[1].Allowed {
			t.Errorf("%v", ds)
		}
		if ds := all(3, 8); ds[0].Allowed || ds[1].Allowed || ds[1].Reason != weir.Exhausted {
			t.Errorf("%v", ds)
		}
		heal(t, store, l)
		if a, b := store.remaining(t, p, "0"), store.remaining(t, p, "1"); a != 7 || b != 2 {
			t.Errorf("%d and %d remain, want 7 and 2", a, b)
		}
	})
}

// A debit in an outage is remembered and counts for the share, which says how it stands.
func TestDebitInAnOutage(t *testing.T) {
	for _, tt := range []struct {
		on        weir.OnError
		remaining []int64 // after each debit of 3 units
		reason    weir.Reason
		then      bool // a Take of 3 more is admitted
	}{
		{weir.FailLocal, []int64{7, 4, 1}, weir.Admitted, false},
		{weir.FailOpen, []int64{20, 20, 20}, weir.Admitted, true},
		{weir.FailClosed, []int64{0, 0, 0}, weir.StoreDown, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newFlaky(t)
			l := newTier(t, tiered.Config{Store: store, Nodes: 2, OnError: tt.on})
			p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 20})
			breakStore(t, store, l, p)
			for i, want := range tt.remaining {
				b := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 3}}}
				if err := l.Do(ctx, &b); err != nil {
					t.Fatal(err)
				}
				if d := b.Decisions[0]; !d.Allowed || !d.Estimate || d.Reason != tt.reason || d.Remaining != want {
					t.Errorf("%v, debit %d: %+v, want %d to remain", tt.on, i, d, want)
				}
			}
			if got := take(t, l, p, "k", 3).Allowed; got != tt.then {
				t.Errorf("%v: more was admitted: %t", tt.on, got)
			}
			heal(t, store, l)
			if left := store.remaining(t, p, "k"); left != 20-9 {
				t.Errorf("%v: %d remain, want 11", tt.on, left)
			}
		})
	}
}

// A call that the store has carried out and not answered is charged once.
func TestUnknownIsNotChargedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l := newTier(t, tiered.Config{Store: store})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 100})
		store.set(func(f *flaky) { f.hangs = true })
		for range 3 {
			if !take(t, l, p, "k", 1).Allowed {
				t.Error("the share refuses")
			}
		}
		debit := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 5}}}
		if err := l.Do(ctx, &debit); err != nil || !debit.Decisions[0].Allowed {
			t.Errorf("debit: %v, error %v", debit.Decisions, err)
		}
		store.set(func(f *flaky) { f.hangs = false })
		time.Sleep(time.Second)
		if left := store.remaining(t, p, "k"); left != 92 {
			t.Errorf("%d remain of 100 after three calls and a debit of 5, want 92", left)
		}
		if s := l.Stats(); s.Unknown != 4 || s.Unsynced != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Units of a batch that was admitted under an unknown outcome are counted, also if the limits
// fail open.
func TestUnknownUnitsOfBatches(t *testing.T) {
	for _, on := range []weir.OnError{weir.FailLocal, weir.FailOpen} {
		synctest.Test(t, func(t *testing.T) {
			store := newFlaky(t)
			l, p := newTier(t, tiered.Config{Store: store, OnError: on}), newPolicy(t, perSecond(10))
			store.set(func(f *flaky) { f.hangs = true })
			b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: "j", Cost: 2}, {Policy: p, Key: "k", Cost: 3}}}
			if err := l.Do(ctx, &b); err != nil || !b.Allowed() {
				t.Errorf("%v: %v, error %v", on, b.Decisions, err)
			}
			if n := l.Stats().UnknownUnits; n != 5 {
				t.Errorf("%v: %d units were granted under an unknown outcome, want 5", on, n)
			}
		})
	}
}
