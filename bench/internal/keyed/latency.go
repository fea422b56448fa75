package keyed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

// latencies lets a table take n new keys and returns p50, p99 and p99.99 of what
// a decision took, in nanoseconds, the longest in microseconds, and the most rows
// that one decision moved. A decision's
// latency is the time since the one before, so that nothing is left out. The keys
// are ready before: nothing but the table allocates.
func latencies(c memstore.Config, n int) ([]float64, error) {
	t, p, err := newTable(c, plenty.limit("main"))
	if err != nil {
		return nil, err
	}
	keys, took := keysFrom(0, n), make([]time.Duration, 0, n)
	ctx, base := context.Background(), time.Now()
	last := time.Since(base)
	for ; keys != ""; keys = keys[keyLen:] {
		d, err := t.Take(ctx, p, keys[:keyLen], 1)
		if err != nil {
			return nil, err
		}
		if !d.Allowed {
			return nil, fmt.Errorf("new key %q: %v", keys[:keyLen], d)
		}
		now := time.Since(base)
		took = append(took, now-last)
		last = now
	}
	slices.Sort(took)
	return []float64{
		harness.Percentile(took, 5000),
		harness.Percentile(took, 9900),
		harness.Percentile(took, 9999),
		float64(took[n-1]) / float64(time.Microsecond),
		float64(t.Stats().MostMoved),
	}, nil
}
