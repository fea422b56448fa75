package tiered_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// BenchmarkTake is a hot key of which there is plenty, and one of which there is
// nothing, over a store in memory.
func BenchmarkTake(b *testing.B) {
	for _, mode := range []tiered.Mode{tiered.Exact, tiered.Leased, tiered.Async} {
		for _, burst := range []int64{10_000_000, 1} {
			b.Run(fmt.Sprintf("%v/burst=%d", mode, burst), func(b *testing.B) {
				store, _ := memstore.New(memstore.Config{})
				l := newTier(b, tiered.Config{Store: store, Mode: mode, MaxUnsynced: 1 << 30})
				p := newPolicy(b, weir.Limit{Rate: burst, Per: weir.Every(time.Second)})
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := l.Take(context.Background(), p, "key", 1); err != nil {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(l.Stats().CallsPerDecision(), "calls/op")
			})
		}
	}
}
