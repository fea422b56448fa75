package keyed

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

const (
	growthTimes = 3  // limiters that are filled; the fastest counts
	collections = 25 // forced collections; the median counts
)

// grow fills limiters of the store with n keys and returns the figures of
// growthFigures.
func grow(st store, n, times int, progress func(string)) ([]float64, error) {
	var last grown
	var best time.Duration
	for try := range times {
		progress(fmt.Sprintf("limiter %d of %d", try+1, times))
		last = grown{} // is garbage before the next is made
		var err error
		if last, err = growOnce(st, n); err != nil {
			return nil, err
		}
		if try == 0 || last.took < best {
			best = last.took
		}
	}
	progress("collecting")
	pause := collect(collections)
	runtime.KeepAlive(last.limiter)
	return []float64{
		float64(best) / float64(n),
		last.bytes / float64(n),
		float64(pause) / float64(time.Millisecond),
	}, nil
}

// grown is a limiter that was filled.
type grown struct {
	limiter opened
	took    time.Duration // making keys aside
	bytes   float64
}

func growOnce(st store, n int) (grown, error) {
	before := heap()
	o, err := st.open(plenty)
	if err != nil {
		return grown{}, err
	}
	g := grown{limiter: o}
	for from := 0; from < n; from += block {
		some := min(block, n-from)
		keys := keysFrom(from, some)
		began := time.Now()
		got := o.take(keys)
		g.took += time.Since(began)
		if got != some {
			return grown{}, fmt.Errorf("admitted %d of %d new keys", got, some)
		}
	}
	g.bytes = max(0, heap()-before)
	return g, o.check(n)
}

// heap returns how many bytes are alive.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what only a finalizer or a pool still held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// collect returns the median time of several forced collections.
func collect(times int) time.Duration {
	took := make([]time.Duration, times)
	for i := range took {
		began := time.Now()
		runtime.GC()
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[times/2]
}
