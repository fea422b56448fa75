package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// polite is a store that stops when a caller leaves: on its way there, or back.
type polite struct {
	*memstore.Table
	takes time.Duration
	hook  func(ctx context.Context, b *weir.Batch) error // unless it is nil, called first
}

func (s *polite) Do(ctx context.Context, b *weir.Batch) error {
	if s.hook != nil {
		if err := s.hook(ctx, b); err != nil {
			return err
		}
	}
	for _, do := range []func() error{func() error { return s.Table.Do(context.Background(), b) }, func() error { return nil }} {
		select {
		case <-time.After(s.takes / 2):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", weir.ErrUnknown, ctx.Err())
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func (s *polite) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	b := weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}, Decisions: make([]weir.Decision, 1)}
	err := s.Do(ctx, &b)
	return b.Decisions[0], err
}

// Partition returns on which of two partitions a key lies.
func (s *polite) Partition(_ *weir.Policy, key string) int { return min(1, strings.Count(key, "/")) }

func (s *polite) Partitions() int { return 2 }

func (s *polite) Rounds(*weir.Batch) int { return 1 }

// asyncTest is a tier in Async mode, with an hourly limit of so many units.
func asyncTest(t *testing.T, units int64, c tiered.Config) (*polite, *tiered.Limiter, *weir.Policy) {
	store := &polite{Table: newTable(t), takes: 2 * time.Millisecond}
	c.Store, c.Mode = store, tiered.Async
	return store, newTier(t, c), newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: units})
}

// both takes a unit of two keys, or nothing.
func both(ctx context.Context, l weir.Limiter, p *weir.Policy, a, b string) (bool, error) {
	batch := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: a, Cost: 1}, {Policy: p, Key: b, Cost: 1}}}
	err := l.Do(ctx, &batch)
	return err == nil && batch.Allowed(), err
}

// A caller whose batch carries the usage may leave: the others are served, and the usage is charged.
func TestCarrierLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := asyncTest(t, 1000, tiered.Config{MaxUnsynced: 10, OnError: weir.FailClosed})
		takeMany(t, l, p, "all", 6)
		var all sync.WaitGroup
		all.Go(func() {
			leaves, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond/2, cancel)
			if _, err := both(leaves, l, p, "all", "first"); !errors.Is(err, context.Canceled) {
				t.Errorf("who left: %v", err)
			}
		})
		for i := range 20 {
			all.Go(func() {
				time.Sleep(time.Microsecond)
				if ok, err := both(ctx, l, p, "all", strconv.Itoa(i)); !ok {
					t.Errorf("another: %v", err)
				}
			})
		}
		all.Wait()
		if d, err := weir.Peek(ctx, store.Table, p, "all", 0); err != nil || d.Remaining != 1000-27 || l.Stats().Lost != 0 {
			t.Errorf("%+v, %v; want 973 left, as who left was charged: %+v", d, err, l.Stats())
		}
	})
}

// A caller who leaves while its call flushes the usage loses none of that: at most its own units.
func TestLeavingLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := asyncTest(t, 20, tiered.Config{MaxUnsynced: 5, FlushEvery: time.Second})
		admitted, left := 0, 0
		for range 40 {
			leaves, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond/2, func() {
				if l.Stats().Unsynced == 5 {
					cancel()
				}
			})
			d, err := l.Take(leaves, p, "k", 1)
			switch {
			case err != nil:
				left++
			case d.Allowed:
				admitted++
			}
			cancel()
		}
		time.Sleep(3 * time.Second)
		if admitted += takeMany(t, l, p, "k", 40); admitted > 20 || admitted+left < 20 || left == 0 || l.Stats().Lost != 0 {
			t.Errorf("%d of 20 were admitted, and %d left: %+v", admitted, left, l.Stats())
		}
	})
}

// What shares have granted is charged in the end, also if the first flush fails.
func TestSharesAreChargedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		var failing atomic.Bool
		l := newTier(t, tiered.Config{Store: &noDebits{store, &failing}, Mode: tiered.Async, Nodes: 1})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 100})
		breakStore(t, store, l, p) // five keys have usage of before the breaker opened
		if d := take(t, l, p, "k", 50); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		failing.Store(true)
		store.set(func(f *flaky) { f.down = nil })
		time.Sleep(time.Second)
		failing.Store(false)
		time.Sleep(3 * time.Second)
		if left := store.remaining(t, p, "k"); left != 50 || l.Stats().Unsynced != 0 {
			t.Errorf("%d remain, want 50: %+v", left, l.Stats())
		}
	})
}

type noDebits struct {
	*flaky
	failing *atomic.Bool
}

func (s *noDebits) Do(ctx context.Context, b *weir.Batch) error {
	if b.Used != nil && s.failing.Load() {
		return errDown
	}
	return s.flaky.Do(ctx, b)
}

// Batches of many callers on few keys take no longer than the store does.
func TestBatchesDoNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := asyncTest(t, 300_000, tiered.Config{OnError: weir.FailClosed})
		began := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			all.Go(func() {
				for time.Since(began) < 100*time.Millisecond {
					time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
					asked := time.Now()
					b := weir.Batch{Op: weir.TakeAll}
					for _, k := range random.Perm(20)[:5] {
						b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: strconv.Itoa(k), Cost: 1})
					}
					if err := l.Do(ctx, &b); err != nil || !b.Allowed() || time.Since(asked) > 2*store.takes {
						t.Errorf("%v %v after %v", b.Decisions, err, time.Since(asked))
					}
				}
			})
		}
		all.Wait()
	})
}

// A caller that a panic of the store has ended leaves the key to others.
func TestPanicEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := asyncTest(t, 1000, tiered.Config{MaxUnsynced: 10})
		store.hook = func(context.Context, *weir.Batch) error { panic("once") }
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			take(t, l, p, "k", 1)
		}()
		store.hook = nil
		if d := take(t, l, p, "k", 1); !d.Allowed || d.Estimate {
			t.Errorf("%+v: %+v", d, l.Stats())
		}
	})
}

// What is granted on the account of a key that was evicted meanwhile is flushed, too.
func TestEvictedKeysAreFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		s := &failsLate{flaky: store}
		l := newTier(t, tiered.Config{Store: s, MaxKeys: 1, Nodes: 1})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 4})
		take(t, l, p, "k", 2)
		s.failing.Store(true)
		var all sync.WaitGroup
		all.Go(func() {
			if d := take(t, l, p, "k", 1); !d.Allowed {
				t.Errorf("%+v", d)
			}
		})
		time.Sleep(time.Millisecond)
		take(t, l, p, "x", 2) // evicts it
		all.Wait()
		s.failing.Store(false)
		breakStore(t, store, l, p)
		heal(t, store, l)
		if left := store.remaining(t, p, "k"); left != 1 || l.Stats().Unsynced != 0 {
			t.Errorf("%d remain, want 1: %+v", left, l.Stats())
		}
	})
}

// failsLate is a store that takes a while to fail for the key k.
type failsLate struct {
	*flaky
	failing atomic.Bool
}

func (s *failsLate) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if key == "k" && s.failing.Load() {
		time.Sleep(5 * time.Millisecond)
		return weir.Decision{}, errDown
	}
	return s.flaky.Take(ctx, p, key, cost)
}

// Close does not lose usage that is in flight.
func TestCloseWaitsForAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := asyncTest(t, 1000, tiered.Config{MaxUnsynced: 10})
		takeMany(t, l, p, "k", 6)
		time.Sleep(48500 * time.Microsecond) // in the middle of it
		l.Close()
		if d, err := weir.Peek(ctx, store.Table, p, "k", 0); err != nil || d.Remaining != 994 || l.Stats().Lost != 0 {
			t.Errorf("%+v, %v; want 994 left: %+v", d, err, l.Stats())
		}
	})
}

// If a partition hangs, Close still flushes the others, and takes two seconds at most.
func TestCloseWithAHangingPartition(t *testing.T) {
	for range 10 { // Close comes at some moment of the flush
		synctest.Test(t, func(t *testing.T) {
			store, l, p := asyncTest(t, 1000, tiered.Config{MaxUnsynced: 10})
			store.hook = func(ctx context.Context, b *weir.Batch) error {
				if b.Used != nil && store.Partition(p, b.Charges[0].Key) == 0 {
					<-ctx.Done()
				}
				return ctx.Err()
			}
			takeMany(t, l, p, "here", 6)
			time.Sleep(120 * time.Millisecond)
			takeMany(t, l, p, "there/", 6)
			began := time.Now()
			l.Close()
			if d, err := weir.Peek(ctx, store.Table, p, "there/", 0); err != nil || d.Remaining != 994 || time.Since(began) > 2*time.Second {
				t.Errorf("after %v: %+v, %v; want 994 left: %+v", time.Since(began), d, err, l.Stats())
			}
		})
	}
}

// Usage that the store refuses does not keep its breaker open.
func TestUnfitUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		store, l, p := asyncTest(t, 100_000, tiered.Config{MaxUnsynced: 10})
		store.hook = func(_ context.Context, b *weir.Batch) error {
			switch {
			case down.Load():
				return errDown
			case b.Used != nil:
				return weir.ErrInvalid
			}
			return nil
		}
		down.Store(true)
		takeMany(t, l, p, "k", 10)
		if l.Stats().Opened != 1 {
			t.Fatalf("%+v", l.Stats())
		}
		down.Store(false)
		for range 20 {
			take(t, l, p, "k", 1)
			time.Sleep(100 * time.Millisecond)
		}
		if s := l.Stats(); s.Closed != 1 || s.Lost == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The allowance does not grant what a reservation has used beyond what it held.
func TestOverrunLowersTheAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := asyncTest(t, 20, tiered.Config{MaxUnsynced: 10})
		b := weir.Batch{Op: weir.ReserveAll, TTL: time.Minute, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 2}}}
		if err := l.Do(ctx, &b); err != nil || !b.Allowed() {
			t.Fatalf("%+v, %v", b.Decisions, err)
		}
		n := takeMany(t, l, p, "k", 2)
		s := weir.Batch{Op: weir.Settle, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 16}}, Receipts: b.Receipts}
		if err := l.Do(ctx, &s); err != nil {
			t.Fatal(err)
		}
		if n += takeMany(t, l, p, "k", 9); n != 4 {
			t.Errorf("%d of 4 units were admitted besides the 16: %+v", n, l.Stats())
		}
	})
}

// Nor what was debited for a caller who left.
func TestLeavingADebitLowersTheAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := asyncTest(t, 20, tiered.Config{MaxUnsynced: 10})
		n := takeMany(t, l, p, "k", 2)
		leaves, cancel := context.WithCancel(ctx)
		time.AfterFunc(1500*time.Microsecond, cancel)
		b := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 16}}}
		if err := l.Do(leaves, &b); !errors.Is(err, weir.ErrUnknown) {
			t.Fatal(err)
		}
		if n += takeMany(t, l, p, "k", 9); n != 4 {
			t.Errorf("%d of 4 units were admitted besides the 16: %+v", n, l.Stats())
		}
	})
}

// Also after Close callers wait no longer than they said.
func TestDeadlineAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := asyncTest(t, 1000, tiered.Config{MaxUnsynced: 10, Timeout: time.Second})
		l.Close()
		store.hook = func(context.Context, *weir.Batch) error { return errDown }
		take(t, l, p, "here", 1)
		take(t, l, p, "there/", 1)
		store.hook = func(ctx context.Context, _ *weir.Batch) error { <-ctx.Done(); return ctx.Err() }
		within, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := both(within, l, p, "here", "there/"); err != nil || time.Since(began) > 20*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(2 * time.Second) // the call ends
	})
}

// One node exceeds a limit by its cap at most, also if there is room for few of its keys.
func TestFewKeys(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			_, l, p := asyncTest(t, 20, tiered.Config{MaxUnsynced: 5, MaxKeys: 2 + int(seed%4), Timeout: time.Second})
			var (
				admitted [12]atomic.Int64
				all      sync.WaitGroup
			)
			for i := range uint64(12) {
				random := rand.New(rand.NewPCG(seed, i))
				all.Go(func() {
					for range 40 {
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
						if k := random.IntN(len(admitted)); take(t, l, p, strconv.Itoa(k), 1).Allowed {
							admitted[k].Add(1)
						}
					}
				})
			}
			all.Wait()
			for k := range admitted {
				if n := admitted[k].Load(); n > 20+5 {
					t.Errorf("seed %d: %d of 20 units of key %d: %+v", seed, n, k, l.Stats())
				}
			}
		})
	}
}
