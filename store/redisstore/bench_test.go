package redisstore

import (
	"context"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// BenchmarkTake asks with 64 goroutines, for one key and for many, under a limit of
// each algorithm's.
func BenchmarkTake(b *testing.B) {
	redis := redistest.Start(b)
	million := weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second)}
	third := weir.Limit{Rate: 999_999, Per: weir.Every(3 * time.Second)}
	fixed := weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second), Algorithm: weir.FixedWindow}
	hour := weir.Limit{Name: "hour", Rate: 1_000_000_000, Per: weir.Every(time.Hour)}
	benchTake(b, redis, "gcra", 1, million)
	benchTake(b, redis, "gcra", 100_000, million)
	benchTake(b, redis, "gcra-in-thirds", 100_000, third)
	benchTake(b, redis, "fixed", 1, fixed)
	benchTake(b, redis, "fixed", 100_000, fixed)
	benchTake(b, redis, "two", 100_000, million, hour)
}

func benchTake(b *testing.B, redis *redistest.Server, name string, keys int, limits ...weir.Limit) {
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = "user-" + strconv.Itoa(i)
	}
	b.Run(name+"/"+strconv.Itoa(keys)+"-keys", func(b *testing.B) {
		s := open(b, Config{Redis: server(redis.Addr())})
		redis.MustDo("CONFIG", "RESETSTAT")
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
		b.ReportMetric(serverTime(redis)/float64(st.Decisions), "server-µs/op")
	})
}

// serverTime returns how many µs the server has spent in scripts.
func serverTime(redis *redistest.Server) (sum float64) {
	for _, m := range regexp.MustCompile(`cmdstat_eval(sha)?:calls=\d+,usec=(\d+)`).FindAllStringSubmatch(redis.MustDo("INFO", "commandstats").Text, -1) {
		n, _ := strconv.ParseFloat(m[2], 64)
		sum += n
	}
	return sum
}
