package tiered_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// BenchmarkManyKeys uses each key so rarely that none is leased.
func BenchmarkManyKeys(b *testing.B) {
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%015d", i)
	}
	l := newTier(b, tiered.Config{Store: timely{newTable(b)}, Mode: tiered.Leased})
	p := newPolicy(b, weir.Limit{Rate: 10_000_000, Per: weir.Every(time.Second)})
	for _, key := range keys {
		take(b, l, p, key, 1)
	}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := l.Take(ctx, p, keys[rand.IntN(len(keys))], 1); err != nil {
				b.Error(err)
			}
		}
	})
}
