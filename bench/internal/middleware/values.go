package middleware

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// valuesOf returns the values of the figures for each entrant, of which the first is bare.
func valuesOf(runs [][]run) [][]float64 {
	base := best(runs[0])
	peer := math.Inf(1)
	for i, e := range entrants() {
		if e.kind == harness.Peer {
			peer = min(peer, best(runs[i]).nanos-base.nanos)
		}
	}
	var values [][]float64
	for i, all := range runs {
		b := best(all)
		more := b.nanos - base.nanos
		times := 0.0
		if i > 0 {
			times = peer / more
		}
		values = append(values, []float64{more, max(0, round(b.allocs-base.allocs)), times, b.nanos, median(all)})
	}
	return values
}

// best returns the fastest run.
func best(runs []run) run {
	return slices.MinFunc(runs, func(a, b run) int {
		if a.nanos < b.nanos {
			return -1
		}
		return 1
	})
}

func median(runs []run) float64 {
	var all []float64
	for _, r := range runs {
		all = append(all, r.nanos)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// round rounds allocations to hundredths: the runtime and pools make one now and then.
func round(n float64) float64 { return math.Round(n*100) / 100 }
