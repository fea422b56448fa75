package redisstore

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// BenchmarkTake asks with 64 goroutines, for one key and for many.
func BenchmarkTake(b *testing.B) {
	redis := redistest.Start(b)
	p, err := weir.NewPolicy("p", weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second)})
	if err != nil {
		b.Fatal(err)
	}
	for _, keys := range []int{1, 100_000} {
		names := make([]string, keys)
		for i := range names {
			names[i] = "user-" + strconv.Itoa(i)
		}
		b.Run(strconv.Itoa(keys)+"-keys", func(b *testing.B) {
			s := open(b, Config{Redis: server(redis.Addr())})
			var next atomic.Uint64
			b.SetParallelism(64 / max(1, 2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				i := next.Add(1) * 7919
				for pb.Next() {
					i += 7919
					if _, err := s.Take(context.Background(), p, names[i%uint64(keys)], 1); err != nil {
						b.Error(err)
						return
					}
				}
			})
			st := s.Stats()
			b.ReportMetric(float64(st.Decisions)/float64(st.Commands), "decisions/command")
		})
	}
}
