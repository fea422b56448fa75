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

// Part says on which of two parts a key lies.
func (s *polite) Part(_ *weir.Policy, key string) int { return min(1, strings.Count(key, "/")) }

func (s *polite) Parts() int { return 2 }

// turnTest is a tier in Async mode, with an hourly limit of so many units.
func turnTest(t *testing.T, units int64, c tiered.Config) (*polite, *tiered.Limiter, *weir.Policy) {
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

// Who tells the debt for all may leave: the others are served, and what was owed is told.
func TestTellerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10, OnError: weir.FailClosed})
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
		if d, err := weir.Peek(ctx, store.Table, p, "all", 0); err != nil || d.Remaining != 1000-26 || l.Stats().Lost != 0 {
			t.Errorf("%+v, %v; want 974 left: %+v", d, err, l.Stats())
		}
	})
}

// Who waits for another to tell the debt may leave, and is charged nothing.
func TestWaiterLeaves(t *testing.T) {
	for op, name := range map[weir.Op]string{weir.TakeEach: "TakeEach", weir.TakeAll: "TakeAll"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10})
				store.takes = 4 * time.Millisecond
				takeMany(t, l, p, "all", 6)
				var all sync.WaitGroup
				all.Go(func() {
					if ok, err := both(ctx, l, p, "all", "first"); !ok {
						t.Errorf("who stayed: %v", err)
					}
				})
				time.Sleep(time.Millisecond)
				leaves, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Millisecond, cancel)
				b := weir.Batch{Op: op, Charges: []weir.Charge{{Policy: p, Key: "all", Cost: 1}, {Policy: p, Key: "all", Cost: 2}}}
				if err := l.Do(leaves, &b); !errors.Is(err, context.Canceled) {
					t.Errorf("who left: %v", err)
				}
				all.Wait()
				if d, err := weir.Peek(ctx, store.Table, p, "all", 0); err != nil || d.Remaining != 1000-7 {
					t.Errorf("%+v, %v; want 993 left: %+v", d, err, l.Stats())
				}
			})
		})
	}
}

// A caller who leaves while the store is told of what the copy has granted loses none of that.
func TestLeavingLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := turnTest(t, 20, tiered.Config{MaxUnsynced: 5, FlushEvery: time.Second})
		admitted := 0
		for range 40 {
			leaves, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond/2, func() {
				if l.Stats().Owed == 5 {
					cancel()
				}
			})
			if d, err := l.Take(leaves, p, "k", 1); err == nil && d.Allowed {
				admitted++
			}
			cancel()
		}
		time.Sleep(3 * time.Second)
		if admitted += takeMany(t, l, p, "k", 40); admitted != 20 || l.Stats().Lost != 0 {
			t.Errorf("%d of 20 were admitted: %+v", admitted, l.Stats())
		}
	})
}

// A part of the store that hangs holds up nobody who waits for another part to be told.
func TestPartsAreToldByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10, OnError: weir.FailClosed})
		takeMany(t, l, p, "here", 4)
		takeMany(t, l, p, "there/", 4)
		store.hook = func(ctx context.Context, b *weir.Batch) error {
			if store.Part(p, b.Charges[0].Key) == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		var all sync.WaitGroup
		all.Go(func() {
			if ok, err := both(ctx, l, p, "here", "there/"); ok || err != nil {
				t.Errorf("a batch on both parts: %t, %v", ok, err)
			}
		})
		time.Sleep(time.Millisecond)
		began := time.Now()
		if ok, err := both(ctx, l, p, "here", "also here"); !ok || time.Since(began) > 2*store.takes {
			t.Errorf("a batch on the part that answers: %t, %v after %v", ok, err, time.Since(began))
		}
		all.Wait()
	})
}

// What shares have granted is told in the end, also if telling what copies have failed first.
func TestSharesAreToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		var failing atomic.Bool
		l := newTier(t, tiered.Config{Store: &noDebits{store, &failing}, Mode: tiered.Async, Nodes: 1})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 100})
		breakStore(t, store, l, p) // five keys owe what they were granted before it was given up
		if d := take(t, l, p, "k", 50); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		failing.Store(true)
		store.set(func(f *flaky) { f.down = nil })
		time.Sleep(time.Second)
		failing.Store(false)
		time.Sleep(3 * time.Second)
		if left := store.remaining(t, p, "k"); left != 50 || l.Stats().Owed != 0 {
			t.Errorf("%d remain, want 50: %+v", left, l.Stats())
		}
	})
}

type noDebits struct {
	*flaky
	failing *atomic.Bool
}

func (s *noDebits) Do(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.DebitEach && s.failing.Load() {
		return errDown
	}
	return s.flaky.Do(ctx, b)
}

// However many keys the store is told of, one of them is not held up by the others.
func TestFlushHoldsFewTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10, OnError: weir.FailClosed})
		began := time.Now()
		var all sync.WaitGroup
		for i := range 256 * 20 {
			all.Go(func() {
				for time.Since(began) < 150*time.Millisecond {
					take(t, l, p, strconv.Itoa(i), 1)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for i := 0; time.Since(began) < 150*time.Millisecond; i++ {
			if ok, err := both(ctx, l, p, strconv.Itoa(i%5000), "other"+strconv.Itoa(i)); !ok {
				t.Fatal(err)
			}
		}
		all.Wait()
		if s := l.Stats(); s.Fallback > 0 {
			t.Errorf("the store was there: %+v", s)
		}
	})
}

// Batches of many callers on few keys take no longer than the store does.
func TestBatchesDoNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := turnTest(t, 300_000, tiered.Config{OnError: weir.FailClosed})
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
func TestPanicEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10})
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

// A debit that comes while a copy is being made outdates it.
func TestDebitWhileTheCopyIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := turnTest(t, 100, tiered.Config{MaxUnsynced: 10, Local: &pauses{Limiter: newTable(t)}})
		var all sync.WaitGroup
		all.Go(func() { take(t, l, p, "k", 1) })
		time.Sleep(2500 * time.Microsecond) // the store has answered
		b := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 99}}}
		if err := l.Do(ctx, &b); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if n := takeMany(t, l, p, "k", 10); n > 0 {
			t.Errorf("%d admitted, and none was left: %+v", n, l.Stats())
		}
	})
}

// pauses is a table that is slow to say for the first time how a copy stands.
type pauses struct {
	weir.Limiter
	paused atomic.Bool
}

func (l *pauses) Do(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.PeekEach && strings.HasPrefix(b.Charges[0].Policy.Name(), "copy:") && !l.paused.Swap(true) {
		time.Sleep(10 * time.Millisecond)
	}
	return l.Limiter.Do(ctx, b)
}

// A charge of a key for which there was no room is known to the copy that is made when there is.
func TestNoRoomForAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := turnTest(t, 2, tiered.Config{MaxUnsynced: 1, MaxKeys: 1, FlushEvery: 4 * time.Millisecond})
		takeMany(t, l, p, "a", 2) // one is owed, so that it stays
		var slow atomic.Bool
		store.hook = func(_ context.Context, b *weir.Batch) error {
			if b.Charges[0].Key == "k" && !slow.Swap(true) {
				time.Sleep(6 * time.Millisecond)
			}
			return nil
		}
		var admitted atomic.Int64
		try := func() {
			if take(t, l, p, "k", 1).Allowed {
				admitted.Add(1)
			}
		}
		var all sync.WaitGroup
		all.Go(try)
		time.Sleep(5 * time.Millisecond) // by now there is room
		try()
		all.Wait()
		try()
		if n := admitted.Load(); n != 2 {
			t.Errorf("%d of 2 were admitted: %+v", n, l.Stats())
		}
	})
}

// A batch that asks for a key for which there was no room knows what a copy has granted since there
// is.
func TestNoRoomForAKeyOfABatch(t *testing.T) {
	for op, name := range map[weir.Op]string{weir.TakeEach: "TakeEach", weir.TakeAll: "TakeAll"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, l, p := turnTest(t, 20, tiered.Config{MaxUnsynced: 10, MaxKeys: 2, FlushEvery: 100 * time.Millisecond, Timeout: time.Second})
				takeMany(t, l, p, "b", 2)
				takeMany(t, l, p, "a", 2)
				var slow atomic.Bool
				store.hook = func(_ context.Context, b *weir.Batch) error {
					if b.Op == weir.DebitEach && b.Charges[0].Key == "a" && !slow.Swap(true) {
						time.Sleep(40 * time.Millisecond)
					}
					return nil
				}
				time.Sleep(80 * time.Millisecond)
				var (
					all      sync.WaitGroup
					admitted = 0
				)
				all.Go(func() {
					b := weir.Batch{Op: op, Charges: []weir.Charge{{Policy: p, Key: "a", Cost: 11}, {Policy: p, Key: "k", Cost: 19}}}
					if err := l.Do(ctx, &b); err != nil {
						t.Error(err)
					}
					if b.Decisions[1].Allowed {
						admitted += 19
					}
				})
				time.Sleep(25 * time.Millisecond) // b was told, and can go
				n := takeMany(t, l, p, "k", 10)
				all.Wait()
				if admitted += n; admitted > 20 {
					t.Errorf("%d of 20 were admitted: %+v", admitted, l.Stats())
				}
			})
		})
	}
}

// What is granted on the account of a key that was evicted meanwhile is told, too.
func TestEvictedKeysAreTold(t *testing.T) {
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
		if left := store.remaining(t, p, "k"); left != 1 || l.Stats().Owed != 0 {
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

// Close loses nothing that the store is just being told.
func TestCloseWaitsForAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10})
		takeMany(t, l, p, "k", 6)
		time.Sleep(48500 * time.Microsecond) // in the middle of it
		l.Close()
		if d, err := weir.Peek(ctx, store.Table, p, "k", 0); err != nil || d.Remaining != 994 || l.Stats().Lost != 0 {
			t.Errorf("%+v, %v; want 994 left: %+v", d, err, l.Stats())
		}
	})
}

// Close waits for keys whose turn a caller has, and tells what they owe.
func TestCloseWaitsForTurns(t *testing.T) {
	for i := range 5 { // in either order of the keys
		synctest.Test(t, func(t *testing.T) {
			store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10})
			key := strconv.Itoa(i)
			takeMany(t, l, p, key, 6)
			store.hook = func(ctx context.Context, b *weir.Batch) error {
				if b.Charges[0].Key == "slow" {
					<-ctx.Done()
				}
				return ctx.Err()
			}
			var all sync.WaitGroup
			all.Go(func() { take(t, l, p, "slow", 1) })
			time.Sleep(time.Millisecond)
			leaves, cancel := context.WithCancel(ctx)
			time.AfterFunc(3*time.Millisecond, cancel)
			all.Go(func() { _, _ = both(leaves, l, p, key, "slow") }) // it leaves, or slow does not answer
			time.Sleep(time.Millisecond)
			l.Close()
			all.Wait()
			if d, err := weir.Peek(ctx, store.Table, p, key, 0); err != nil || d.Remaining != 994 {
				t.Errorf("%+v, %v; want 994 left: %+v", d, err, l.Stats())
			}
		})
	}
}

// A part that hangs keeps Close from telling no other, and for two seconds at most.
func TestCloseWithAPartThatHangs(t *testing.T) {
	for range 10 { // Close comes at some moment of the flush
		synctest.Test(t, func(t *testing.T) {
			store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10})
			store.hook = func(ctx context.Context, b *weir.Batch) error {
				if b.Op == weir.DebitEach && store.Part(p, b.Charges[0].Key) == 0 {
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

// A part that fails does not keep Close from waiting for a caller's turn on another.
func TestCloseWithAPartThatFails(t *testing.T) {
	for i := range 6 { // in either order of the keys
		synctest.Test(t, func(t *testing.T) {
			store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10, FlushEvery: time.Second})
			key := strconv.Itoa(i)
			takeMany(t, l, p, key, 6)
			takeMany(t, l, p, "there/", 6)
			store.hook = func(ctx context.Context, b *weir.Batch) error {
				switch key := b.Charges[0].Key; {
				case key == "slow":
					<-ctx.Done()
				case store.Part(p, key) == 1:
					return errDown
				}
				return ctx.Err()
			}
			var all sync.WaitGroup
			all.Go(func() { take(t, l, p, "slow", 1) })
			time.Sleep(time.Millisecond)
			leaves, cancel := context.WithCancel(ctx)
			time.AfterFunc(5*time.Millisecond, cancel)
			all.Go(func() { _, _ = both(leaves, l, p, key, "slow") }) // it leaves, or slow does not answer
			time.Sleep(time.Millisecond)
			l.Close()
			if d, err := weir.Peek(ctx, store.Table, p, key, 0); err != nil || d.Remaining != 994 {
				t.Errorf("%+v, %v; want 994 left: %+v", d, err, l.Stats())
			}
			all.Wait()
		})
	}
}

// A debt that the store does not take does not keep it given up.
func TestUnfitDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		store, l, p := turnTest(t, 100_000, tiered.Config{MaxUnsynced: 10})
		store.hook = func(_ context.Context, b *weir.Batch) error {
			switch {
			case down.Load():
				return errDown
			case b.Op == weir.DebitEach:
				return weir.ErrUnfit
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

// The copy does not grant what a reservation has used beyond what it held.
func TestOverrunOutdatesTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := turnTest(t, 20, tiered.Config{MaxUnsynced: 10})
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
func TestLeavingADebitOutdatesTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, p := turnTest(t, 20, tiered.Config{MaxUnsynced: 10})
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
		store, l, p := turnTest(t, 1000, tiered.Config{MaxUnsynced: 10, Timeout: time.Second})
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
		time.Sleep(2 * time.Second) // what is still told ends
	})
}

// One node exceeds nothing, also if there is room for few of its keys.
func TestFewKeys(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			_, l, p := turnTest(t, 20, tiered.Config{MaxUnsynced: 5, MaxKeys: 2 + int(seed%4), Timeout: time.Second})
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
				if n := admitted[k].Load(); n > 20 {
					t.Errorf("seed %d: %d of 20 units of key %d: %+v", seed, n, k, l.Stats())
				}
			}
		})
	}
}
