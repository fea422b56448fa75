package keyed

import (
	"fmt"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

// Bounds for weir, and from how many keys on they are judged.
const (
	mostBytes     = 24 // per key
	mostBytesFrom = 10_000_000
	mostPause     = 10 // ms of a forced collection
	mostPauseFrom = 1_000_000
	mostMoved     = 1024 // rows, by one decision
)

// Surveys returns the figures that are no time per call.
func Surveys(s Sizes) []harness.Survey {
	return []harness.Survey{
		growth(s.Most),
		vastGrowth(s.Vast),
		flood(s.Full, s.Vast),
	}
}

const growthNote = "New keys enter an empty limiter from one goroutine, every call admitted, the collector running as usual; best of %d times. " +
	"Memory is what the heap holds more after a collection than before the limiter was made, divided by the keys. " +
	"Keys come as parts of strings of 1,000 keys: a limiter that keeps the string needs 20 bytes for it, others need none. " +
	"The collection is runtime.GC with that limiter alive and nothing else of weight, median of %d."

// growth lets all stores take n new keys.
func growth(n int) harness.Survey {
	s := harness.Survey{
		Name:    harness.Grouped(n) + " new keys",
		Note:    fmt.Sprintf(growthNote, growthTimes, collections),
		Figures: growthFigures(n),
	}
	for _, st := range append([]store{weirTake(weirName, memstore.Config{MaxKeys: n}, 0)}, peers()...) {
		s.Subjects = append(s.Subjects, harness.Subject{
			Name: st.name, Kind: st.kind, Module: st.module,
			Ask: func(progress func(string)) ([]float64, error) { return grow(st, n, growthTimes, progress) },
		})
	}
	return s
}

func growthFigures(n int) []harness.Figure {
	return []harness.Figure{
		{Name: "insert", Unit: "ns/key"},
		{Name: "memory", Unit: "B/key", AtMost: from(mostBytesFrom, n, mostBytes)},
		{Name: "forced collection", Unit: "ms", AtMost: from(mostPauseFrom, n, mostPause)},
	}
}

// from returns the bound if there are enough keys to judge by it.
func from(enough, n int, bound float64) float64 {
	if n < enough {
		return 0
	}
	return bound
}

const vastNote = "weir only. As above, but once, and then once more with each decision timed on its own: " +
	"that includes one reading of the clock, and whatever else the machine did at that time."

// vastGrowth lets weir take n new keys, and times each decision.
func vastGrowth(n int) harness.Survey {
	c := memstore.Config{MaxKeys: n}
	return harness.Survey{
		Name: harness.Grouped(n) + " new keys",
		Note: vastNote,
		Figures: append(growthFigures(n),
			harness.Figure{Name: "p50", Unit: "ns"},
			harness.Figure{Name: "p99", Unit: "ns"},
			harness.Figure{Name: "p99.99", Unit: "ns"},
			harness.Figure{Name: "longest", Unit: "µs"},
			harness.Figure{Name: "moved at once", Unit: "rows", AtMost: mostMoved},
		),
		Subjects: []harness.Subject{{Name: weirName, Ask: func(progress func(string)) ([]float64, error) {
			values, err := grow(weirTake(weirName, c, 0), n, 1, progress)
			if err != nil {
				return nil, err
			}
			progress("timing each")
			l, err := latencies(c, n)
			return append(values, l...), err
		}}},
	}
}

const floodNote = "weir only. The table is full, with keys that were used once, when as many new keys come. " +
	"With 100,000 per second each key is as good as new soon after its call; with 10 per hour all are in use."

// flood lets n new keys meet a table that is full with full keys.
func flood(full, n int) harness.Survey {
	c := memstore.Config{MaxKeys: full}
	s := harness.Survey{
		Name: fmt.Sprintf("%s new keys into a table for %s", harness.Grouped(n), harness.Grouped(full)),
		Note: floodNote,
	}
	for _, f := range floodFigures {
		s.Figures = append(s.Figures, f.Figure)
	}
	for _, limit := range []struct {
		name string
		setting
	}{
		{weirName + ", 100,000 per second", plenty},
		{weirName + ", 10 per hour", slow},
	} {
		s.Subjects = append(s.Subjects, harness.Subject{Name: limit.name, Ask: func(progress func(string)) ([]float64, error) {
			return flooded(c, limit.setting, full, n, progress)
		}})
	}
	return s
}
