package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// BenchmarkHolds takes from a key with so many open reservations, and reserves and settles there.
func BenchmarkHolds(b *testing.B) {
	redis := redistest.Start(b)
	ctx := context.Background()
	for _, l := range []weir.Limit{
		{Rate: 1_000_000_000, Per: weir.Every(time.Hour)},
		{Name: "hourly", Rate: 1_000_000_000, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow},
	} {
		p := newPolicy(b, "p"+l.Name, l)
		for _, open := range []int{0, 1, 1000, 10_000 - 1} {
			s := openWithHolds(b, redis, p, open)
			bench := func(name string, f func() error) {
				b.Run(fmt.Sprintf("%s/%s/%d", l.Algorithm, name, open), func(b *testing.B) {
					redis.MustDo("CONFIG", "RESETSTAT")
					for b.Loop() {
						if err := f(); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(serverTime(redis)/float64(b.N), "server-µs/op")
				})
			}
			bench("take", func() error {
				_, err := s.Take(ctx, p, "k", 1)
				return err
			})
			if open == 0 {
				continue
			}
			bench("reserve+settle", func() error {
				res, err := weir.Reserve(ctx, s, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 2})
				if err != nil {
					return err
				}
				_, err = res.Commit(ctx, 1)
				return err
			})
		}
	}
}

// openWithHolds returns a store where so many reservations are open under p for the key k.
func openWithHolds(tb testing.TB, redis *redistest.Server, p *weir.Policy, n int) *Store {
	tb.Helper()
	s := open(tb, Config{Redis: server(redis.Addr()), Prefix: "holds" + strconv.Itoa(n) + ":"})
	for n > 0 {
		b := weir.Batch{Op: weir.ReserveAll, TTL: 30 * time.Minute}
		for range min(n, 500) {
			b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: "k", Cost: 1})
		}
		if err := s.Do(context.Background(), &b); err != nil || !b.Allowed() {
			tb.Fatalf("reserve: error %v, %+v", err, b.Decisions[0])
		}
		n -= len(b.Charges)
	}
	return s
}
