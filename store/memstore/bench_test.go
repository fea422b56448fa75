package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// many is a limit that nobody reaches.
var many = weir.Limit{Rate: 1_000_000_000, Per: weir.Every(time.Second), Burst: 1_000_000_000}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%015d", i)
	}
	rand.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1, 100_000, 1_000_000} {
		for _, snapshots := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/snapshots=%t", n, snapshots), func(b *testing.B) {
				table := newTable(b, Config{MaxKeys: max(n, 1000), Snapshots: snapshots})
				p := policy(b, "p", many)
				keys := benchKeys(n)
				for _, k := range keys {
					take(b, table, p, k, 1)
				}
				runtime.GC()
				ctx := context.Background()
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.IntN(n); pb.Next(); i++ {
						if i >= n {
							i = 0
						}
						if d, err := table.Take(ctx, p, keys[i], 1); err != nil || !d.Allowed {
							b.Fatal(d, err)
						}
					}
				})
			})
		}
	}
}

func BenchmarkInsert(b *testing.B) {
	table := newTable(b, Config{MaxKeys: max(b.N, 1000)})
	p := policy(b, "p", perHour(10))
	keys := benchKeys(b.N)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for _, k := range keys {
		if d, err := table.Take(ctx, p, k, 1); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
	b.StopTimer()
	s := table.Stats()
	b.ReportMetric(float64(s.Bytes)/float64(s.Keys), "B/key")
	began := time.Now()
	runtime.GC()
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-gc")
	b.ReportMetric(float64(s.MostMoved), "moved")
}

func BenchmarkFlood(b *testing.B) {
	for _, rate := range []int64{10, 1_000_000} {
		b.Run(fmt.Sprint(rate), func(b *testing.B) {
			table := newTable(b, Config{MaxKeys: 100_000})
			p := policy(b, "p", perHour(rate))
			keys := benchKeys(b.N)
			ctx := context.Background()
			b.ReportAllocs()
			b.ResetTimer()
			for _, k := range keys {
				if d, err := table.Take(ctx, p, k, 1); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

func BenchmarkTwoLimits(b *testing.B) {
	table := newTable(b, Config{})
	p := policy(b, "p", many, named("b", many))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if d, err := table.Take(ctx, p, "alice", 1); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
}

// BenchmarkTakeEach takes from 16 keys at once, and beside that from one after the other.
func BenchmarkTakeEach(b *testing.B) {
	const n = 100_000
	table := newTable(b, Config{MaxKeys: n})
	p := policy(b, "p", many)
	keys := benchKeys(n)
	for _, k := range keys {
		take(b, table, p, k, 1)
	}
	at := 0
	benchEach(b, table, p, 16, func() string { at++; return keys[at%n] })
}

// BenchmarkInsertEach takes from 100 new keys at once, and beside that from one after the
// other, in a table that is full.
func BenchmarkInsertEach(b *testing.B) {
	table := newTable(b, Config{MaxKeys: 100_000})
	p := policy(b, "p", perHour(10))
	at := 0
	next := func() string { at++; return strconv.Itoa(at) }
	for range 200_000 {
		take(b, table, p, next(), 1)
	}
	benchEach(b, table, p, 100, next)
}

func benchEach(b *testing.B, table *Table, p *weir.Policy, together int, next func() string) {
	ctx := context.Background()
	b.Run("together", func(b *testing.B) {
		batch := weir.Batch{Op: weir.TakeEach, Charges: make([]weir.Charge, together)}
		b.ReportAllocs()
		for b.Loop() {
			for i := range batch.Charges {
				batch.Charges[i] = weir.Charge{Policy: p, Key: next(), Cost: 1}
			}
			if err := table.Do(ctx, &batch); err != nil || !batch.Allowed() {
				b.Fatal(batch.Decisions, err)
			}
		}
	})
	b.Run("singly", func(b *testing.B) {
		for b.Loop() {
			for range together {
				if d, err := table.Take(ctx, p, next(), 1); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		}
	})
}

// BenchmarkTakeBesideHolds takes from a key on which so many reservations are open.
func BenchmarkTakeBesideHolds(b *testing.B) {
	for _, n := range []int{0, 1, 1_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			table, p := holdingTable(b, n)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if d, err := table.Take(ctx, p, "alice", 1); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// BenchmarkReserveBesideHolds reserves and settles on a key on which so many
// reservations are open.
func BenchmarkReserveBesideHolds(b *testing.B) {
	for _, n := range []int{1, 1_000, 9_999} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			table, p := holdingTable(b, n)
			ctx := context.Background()
			batch := weir.Batch{Charges: []weir.Charge{{Policy: p, Key: "alice", Cost: 1}}}
			b.ReportAllocs()
			for b.Loop() {
				batch.Op = weir.ReserveAll
				if err := table.Do(ctx, &batch); err != nil || !batch.Allowed() {
					b.Fatal(batch.Decisions, err)
				}
				batch.Op = weir.Settle
				if err := table.Do(ctx, &batch); err != nil || batch.Settled[0].Late {
					b.Fatal(batch.Settled, err)
				}
			}
		})
	}
}

// BenchmarkOverrideBesideHolds takes by turns under two sets of limits.
func BenchmarkOverrideBesideHolds(b *testing.B) {
	for _, n := range []int{1, 1_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			table, p := holdingTable(b, n)
			other, err := p.With(weir.Limit{Rate: 2_000_000_000, Per: weir.Every(time.Second)})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d, err := table.Take(ctx, []*weir.Policy{p, other}[i%2], "alice", 1); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// holdingTable is a table in which alice has n reservations open, of different
// lengths.
func holdingTable(b *testing.B, n int) (*Table, *weir.Policy) {
	table := newTable(b, Config{})
	p := policy(b, "p", weir.Limit{Rate: 1_000_000_000, Per: weir.Every(time.Second)})
	take(b, table, p, "alice", 1)
	for i := range n {
		reserve(b, table, 30*time.Minute+time.Duration(i*7919%1000)*time.Second, weir.Charge{Policy: p, Key: "alice", Cost: 1})
	}
	return table, p
}
