package upstream

import (
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// BenchmarkSend measures what a call costs in an endpoint without limits, and in one whose limits are used up but for this
// call. The metric state-B is how much memory those limits take then.
func BenchmarkSend(b *testing.B) {
	for _, bench := range []struct {
		name string
		rate Rate
	}{
		{"no limit", Rate{}},
		{"50 per s, 2400 per min", Rate{PerSecond: 50, PerMinute: 2400}},
		{"50 per s, 2400 per min, aligned", Rate{PerSecond: 50, PerMinute: 2400, Aligned: true}},
		{"4096 per s", Rate{PerSecond: 4096}},
		{"50000 per s, 2400000 per min", Rate{PerSecond: 50_000, PerMinute: 2_400_000}},
	} {
		b.Run(bench.name, func(b *testing.B) { benchmarkSend(b, bench.rate) })
	}
}

func benchmarkSend(b *testing.B, r Rate) {
	var clock atomic.Int64 // of the limits
	clock.Store(int64(weir.Now()))
	table := weir.Must(memstore.New(memstore.Config{Now: func() weir.Instant { return weir.Instant(clock.Load()) }}))
	pool := weir.Must(New(table, Config{
		Name: "eth", JSONRPC: true, MaxWait: -1, Transport: okAtOnce{}, Logger: slog.New(slog.DiscardHandler), Endpoints: []Endpoint{endpointAt("a", limited(r))},
	}))
	gap := gapOf(r)
	before := heap()
	for used := time.Duration(0); gap > 0 && used < 3*time.Minute; used += gap {
		clock.Add(int64(gap))
		if d, err := table.Take(b.Context(), pool.set.Load().endpoints[0].policy, endpointKey, 1); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
	state := heap() - before
	b.ReportAllocs()
	one := call()
	for b.Loop() {
		clock.Add(int64(gap))
		if _, _, err := send(pool, one); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(max(0, state)), "state-B")
	runtime.KeepAlive(pool)
}

// gapOf returns the time between calls that just fit into a rate, whose log may count them up to a 256th of a period longer.
func gapOf(r Rate) (gap time.Duration) {
	if r.PerSecond > 0 {
		gap = time.Second / time.Duration(r.PerSecond)
	}
	if r.PerMinute > 0 {
		gap = max(gap, time.Minute/time.Duration(r.PerMinute))
	}
	return gap + gap/200
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below the greatest
}

// okAtOnce answers as a transport whose network takes no time.
type okAtOnce struct{}

func (okAtOnce) RoundTrip(*http.Request) (*http.Response, error) {
	return reply(http.StatusOK, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
}
