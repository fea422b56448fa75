package keyed

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

// slow keeps a key in use for six minutes after each call, longer than a flood.
var slow = setting{units: 10, per: time.Hour}

// A flooding is what came of a flood.
type flooding struct {
	calls      int
	admitted   int
	took       time.Duration
	start, end float64 // bytes that the table held
	stats      memstore.Stats
}

// A floodFigure is a figure and how a flood answers it.
type floodFigure struct {
	harness.Figure
	of func(f flooding) float64
}

// floodFigures is what a flood is asked for.
var floodFigures = []floodFigure{
	{harness.Figure{Name: "call", Unit: "ns"}, func(f flooding) float64 { return float64(f.took) / float64(f.calls) }},
	{harness.Figure{Name: "before", Unit: "KiB"}, func(f flooding) float64 { return f.start / 1024 }},
	{harness.Figure{Name: "after", Unit: "KiB"}, func(f flooding) float64 { return f.end / 1024 }},
	{harness.Figure{Name: "refused"}, func(f flooding) float64 { return float64(f.calls - f.admitted) }},
	{harness.Figure{Name: "evicted"}, func(f flooding) float64 { return float64(f.stats.Evicted) }},
	{harness.Figure{Name: "units forgiven"}, func(f flooding) float64 { return float64(f.stats.Forgiven) }},
	{harness.Figure{Name: "overflow hits"}, func(f flooding) float64 { return float64(f.stats.OverflowHits) }},
}

// flooded fills a table with so many keys, lets n others come, and returns
// floodFigures.
func flooded(c memstore.Config, s setting, full, n int, progress func(string)) ([]float64, error) {
	empty := heap()
	t, p, err := newTable(c, s.limit("main"))
	if err != nil {
		return nil, err
	}
	o := opened{take: takes(t, p), size: sizeOf(t)}
	if err := o.fill(full); err != nil {
		return nil, err
	}
	f := flooding{calls: n, start: heap() - empty}
	progress("flooding")
	for from := full; from < full+n; from += block {
		keys := keysFrom(from, min(block, full+n-from))
		began := time.Now()
		f.admitted += o.take(keys)
		f.took += time.Since(began)
	}
	f.end = heap() - empty
	f.stats = t.Stats()
	if f.stats.Keys > full {
		return nil, fmt.Errorf("%d keys in a table for %d", f.stats.Keys, full)
	}
	values := make([]float64, len(floodFigures))
	for i, figure := range floodFigures {
		values[i] = max(0, figure.of(f))
	}
	return values, nil
}
