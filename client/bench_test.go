package client_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/server"
)

// BenchmarkTake asks a daemon in this process: one caller, who waits for each exchange, and many,
// whose calls travel together.
func BenchmarkTake(b *testing.B) {
	p := newPolicy(b, "p", weir.Limit{Rate: 1_000_000_000, Per: weir.Every(time.Second)})
	address, _ := daemon(b, server.Config{Limiter: apitest.Table(b, nil), Live: server.Live{Policies: rules(p)}})
	c := dial(b, client.Config{Address: address})
	for _, callers := range []int{1, 16, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(max(callers/2, 1))
			if callers == 1 {
				for b.Loop() {
					if _, err := c.Take(ctx, p, "k", 1); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				key := fmt.Sprint("k", n.Add(1))
				for pb.Next() {
					if _, err := c.Take(ctx, p, key, 1); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
