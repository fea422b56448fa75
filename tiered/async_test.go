package tiered_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

func async(t testing.TB, store *flaky, c tiered.Config) *tiered.Limiter {
	c.Store, c.Mode = store, tiered.Async
	return newTier(t, c)
}

// A busy key is decided by its allowance, and a flush charges the store.
func TestAsyncTellsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		store.takes = 2 * time.Millisecond
		l, p := async(t, store, tiered.Config{}), newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		began := time.Now()
		take(t, l, p, "k", 1) // a key without an allowance calls the store
		if waited := time.Since(began); waited != store.takes {
			t.Errorf("the first took %v", waited)
		}
		for range 200 {
			took := time.Now()
			if d := take(t, l, p, "k", 1); !d.Allowed || !d.Estimate || time.Since(took) != 0 {
				t.Fatalf("%+v after %v", d, time.Since(took))
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(60 * time.Millisecond)
		if left := store.remaining(t, p, "k"); left != 1000-201 {
			t.Errorf("%d remain in the store, want 799", left)
		}
		if s := l.Stats(); s.Async != 200 || s.Store != 1 || s.Unsynced != 0 || s.StoreCalls > 7 {
			t.Errorf("stats %+v", s)
		}
	})
}

// When the unsynced usage is at its cap, the store is called.
func TestAsyncIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l, p := async(t, store, tiered.Config{MaxUnsynced: 10}), newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		take(t, l, p, "k", 1)
		takeMany(t, l, p, "k", 25)
		if s := l.Stats(); s.Async != 23 || s.Unsynced != 3 || s.Store != 3 || s.StoreCalls != 3 {
			t.Errorf("stats %+v", s)
		}
		time.Sleep(55 * time.Millisecond)
		if left := store.remaining(t, p, "k"); left != 1000-26 {
			t.Errorf("%d remain, want 974", left)
		}
	})
}

// The allowance after a flush includes charges and resets of other nodes.
func TestAllowanceFollowsTheStore(t *testing.T) {
	for name, limit := range map[string]weir.Limit{
		"gcra":    {Rate: 1, Per: weir.Every(time.Hour), Burst: 100},
		"fixed":   {Rate: 100, Per: weir.Every(24 * time.Hour), Algorithm: weir.FixedWindow},
		"sliding": {Rate: 100, Per: weir.Every(24 * time.Hour), Algorithm: weir.SlidingWindow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				l, p := async(t, store, tiered.Config{}), newPolicy(t, limit)
				step := func() int64 {
					d := take(t, l, p, "k", 1)
					time.Sleep(time.Millisecond)
					return d.Remaining
				}
				var used int64
				for range 60 {
					step()
					used++
				}
				if _, err := store.table.Take(ctx, p, "k", 20); err != nil { // another node
					t.Fatal(err)
				}
				for range 5 { // until the flush is over: the allowance may lag
					step()
					used++
				}
				time.Sleep(50 * time.Millisecond)
				if got, want := step(), 100-used-20-1; got < want-1 || got > want {
					t.Errorf("%d remain after another node has taken 20, want %d", got, want)
				}
				if err := weir.Reset(ctx, store.table, p, "k"); err != nil { // another node
					t.Fatal(err)
				}
				step()
				time.Sleep(50 * time.Millisecond)
				if got := step(); got < 96 {
					t.Errorf("%d remain after a reset by another node", got)
				}
			})
		})
	}
}

// The allowance is within each of several limits.
func TestAsyncSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		l := async(t, store, tiered.Config{MaxUnsynced: 1000})
		p := newPolicy(t, perSecond(10), weir.Limit{Name: "day", Rate: 25, Per: weir.Every(24 * time.Hour), Algorithm: weir.FixedWindow})
		admitted := 0
		var d weir.Decision
		for range 500 {
			if d = take(t, l, p, "k", 1); d.Allowed {
				admitted++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if admitted != 25 || d.By != 1 {
			t.Errorf("%d were admitted in 5 s, the last was %+v; want 25, refused by the second", admitted, d)
		}
		if s := l.Stats(); s.Async < 5 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Two nodes that are hit at once admit what the formula says at most.
func TestAsyncExcessIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		p := newPolicy(t, weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 100})
		nodes := []*tiered.Limiter{async(t, store, tiered.Config{MaxUnsynced: 40}), async(t, store, tiered.Config{MaxUnsynced: 40})}
		take(t, nodes[0], p, "k", 60)
		for _, l := range nodes {
			take(t, l, p, "k", 1) // both know that 38 remain
		}
		admitted := takeMany(t, nodes[0], p, "k", 100) + takeMany(t, nodes[1], p, "k", 100)
		// Σ min(39 + 10 × 0.06, 40, 100) − (38 + 10 × 0.06), give or take that one knew of 39
		if admitted < 38+19 || admitted > 38+39+1 {
			t.Errorf("%d were admitted of 38", admitted)
		}
		time.Sleep(60 * time.Millisecond)
		d, err := weir.Peek(ctx, store, p, "k", 1)
		if err != nil || d.Allowed || d.RetryAfter < time.Duration(admitted-38-1)*100*time.Millisecond {
			t.Errorf("then: %v; want the excess of %d to be charged", d, admitted-38)
		}
	})
}

// A batch carries the unsynced usage of its keys, and the allowance does not grant units that a
// batch has taken.
func TestBatchesCarryUsage(t *testing.T) {
	for op, name := range map[weir.Op]string{weir.TakeEach: "TakeEach", weir.TakeAll: "TakeAll", weir.ReserveAll: "ReserveAll", weir.DebitEach: "DebitEach"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				store.takes = 2 * time.Millisecond
				l := async(t, store, tiered.Config{MaxUnsynced: 10})
				p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 100})
				take(t, l, p, "k", 70)
				takeMany(t, l, p, "k", 5) // by the allowance: 25 are left, and 30 in the store
				do := func(cost int64) weir.Decision {
					b := weir.Batch{Op: op, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: cost}, {Policy: p, Key: "other", Cost: 1}}}
					if op == weir.ReserveAll {
						b.TTL = time.Minute
					}
					if err := l.Do(t.Context(), &b); err != nil {
						t.Fatal(err)
					}
					return b.Decisions[0]
				}
				if op != weir.DebitEach {
					if d := do(30); d.Allowed {
						t.Errorf("30 of 25 units were admitted: %+v", d)
					}
				}
				if d := do(25); !d.Allowed {
					t.Errorf("25 of 25 units were refused: %+v", d)
				}
				if d := take(t, l, p, "k", 1); d.Allowed {
					t.Errorf("1 of 0 units was admitted: %+v", d)
				}
				if s := l.Stats(); s.Fallback != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// Batches that are all or nothing and charge the same key call the store concurrently, and the
// first of them carries the usage.
func TestConcurrentBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		store.takes = 2 * time.Millisecond
		l := async(t, store, tiered.Config{MaxUnsynced: 10})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		take(t, l, p, "all", 1)
		takeMany(t, l, p, "all", 5)
		began, calls := time.Now(), store.count()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: "all", Cost: 1}, {Policy: p, Key: strconv.Itoa(i), Cost: 1}}}
				if err := l.Do(t.Context(), &b); err != nil || !b.Allowed() {
					t.Errorf("%v %+v", err, b.Decisions)
				}
			})
		}
		all.Wait()
		if took, calls := time.Since(began), store.count()-calls; took != store.takes || calls != 50 {
			t.Errorf("it took %v, want %v, and %d calls, want 50", took, store.takes, calls)
		}
		if left, s := store.remaining(t, p, "all"), l.Stats(); left != 1000-56 || s.Fallback != 0 {
			t.Errorf("%d remain, want 944: %+v", left, s)
		}
		time.Sleep(100 * time.Millisecond)
		if d := take(t, l, p, "all", 1); !d.Allowed || d.Estimate || d.Remaining != 1000-57 {
			t.Errorf("the next: %+v", d)
		}
		if d := take(t, l, p, "all", 1); !d.Allowed || !d.Estimate || d.Remaining != 1000-58 {
			t.Errorf("the allowance says %+v, want 942 units", d)
		}
	})
}

// The breaker closes after an outage, even if batches charge a key all the time.
func TestBreakerClosesUnderBatches(t *testing.T) {
	for op, name := range map[weir.Op]string{weir.TakeEach: "TakeEach", weir.TakeAll: "TakeAll"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFlaky(t)
				l := async(t, store, tiered.Config{Local: slow{newTable(t)}})
				p := newPolicy(t, weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second)})
				breakStore(t, store, l, p)
				store.set(func(f *flaky) { f.down = nil })
				began := time.Now()
				var all sync.WaitGroup
				for i := range 4 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 250 * time.Microsecond)
						for time.Since(began) < time.Second {
							b := weir.Batch{Op: op, Charges: []weir.Charge{{Policy: p, Key: "a", Cost: 1}, {Policy: p, Key: "b", Cost: 1}}}
							if err := l.Do(t.Context(), &b); err != nil {
								t.Error(err)
							}
							time.Sleep(500 * time.Microsecond)
						}
					})
				}
				all.Wait()
				if s := l.Stats(); s.OpenBreakers > 0 {
					t.Errorf("the store is available and the breaker still open: %+v", s)
				}
			})
		})
	}
}

// slow is a table that takes its time to decide on shares.
type slow struct{ weir.Limiter }

func (l slow) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if strings.HasPrefix(p.Name(), "share:") {
		time.Sleep(time.Millisecond)
	}
	return l.Limiter.Take(ctx, p, key, cost)
}

func (l slow) Do(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.TakeAll && strings.HasPrefix(b.Charges[0].Policy.Name(), "share:") {
		time.Sleep(time.Millisecond)
	}
	return l.Limiter.Do(ctx, b)
}

// A charge that exceeds the greatest allowance calls the store, however busy the key is.
func TestLargeChargesCallTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(t)
		store.takes = 2 * time.Millisecond
		l := async(t, store, tiered.Config{MaxUnsynced: 10, OnError: weir.FailClosed})
		p := newPolicy(t, weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second), Burst: 1_000_000})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 400 {
					take(t, l, p, "k", 1)
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		for range 3 {
			if d := take(t, l, p, "k", 11); !d.Allowed || d.Estimate {
				t.Errorf("a charge of 11: %+v", d)
			}
			time.Sleep(3 * time.Millisecond)
		}
		all.Wait()
		if s := l.Stats(); s.Fallback != 0 || s.Failures != 0 || s.Async == 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// One node alone grants all available units, and never more, whatever calls are concurrent, and
// the store is charged for all of them in the end.
func TestOneNodeExceedsNothing(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			const burst = 60
			random := rand.New(rand.NewPCG(seed, 1))
			store := newFlaky(t)
			store.takes = time.Duration(random.IntN(4)) * time.Millisecond
			l := async(t, store, tiered.Config{MaxUnsynced: 1 + random.Int64N(8), FlushEvery: 20 * time.Millisecond, Timeout: time.Second})
			p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: burst})
			keys := []string{"a", "b", "c"}
			admitted := make([]atomic.Int64, len(keys))
			var all sync.WaitGroup
			for range 6 {
				mine := rand.New(rand.NewPCG(seed, random.Uint64()))
				all.Go(func() {
					for range 20 {
						time.Sleep(time.Duration(mine.IntN(3000)) * time.Microsecond)
						b := weir.Batch{Op: []weir.Op{weir.TakeEach, weir.TakeEach, weir.TakeAll, weir.ReserveAll}[mine.IntN(4)], TTL: time.Hour}
						of := mine.Perm(len(keys))[:1+mine.IntN(len(keys))]
						if b.Op == weir.TakeEach {
							of = append(of, of[0])
						}
						for _, k := range of {
							b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: keys[k], Cost: 1 + mine.Int64N(10)})
						}
						if err := l.Do(ctx, &b); err != nil {
							t.Error(err)
							return
						}
						for i, k := range of {
							if b.Decisions[i].Allowed && (b.Op == weir.TakeEach || b.Allowed()) {
								admitted[k].Add(b.Charges[i].Cost)
							}
						}
					}
				})
			}
			all.Wait()
			for k, key := range keys {
				for take(t, l, p, key, 1).Allowed {
					admitted[k].Add(1)
				}
				time.Sleep(50 * time.Millisecond)
				if n, left := admitted[k].Load(), store.remaining(t, p, key); n != burst || left != 0 {
					t.Errorf("seed %d, key %s: %d of %d units were admitted, and the store says that %d remain", seed, key, n, burst, left)
				}
			}
			if s := l.Stats(); s.Fallback != 0 || s.Unsynced != 0 {
				t.Errorf("seed %d: stats %+v", seed, s)
			}
		})
	}
}
