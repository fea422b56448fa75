package keyed

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

// TestSurveys asks everything of small limiters and looks whether the answers can
// be true. Time always passes; memory is too little here to tell it from noise.
func TestSurveys(t *testing.T) {
	for _, s := range Surveys(tiny) {
		t.Run(s.Name, func(t *testing.T) {
			a, err := harness.Ask(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, sub := range s.Subjects {
				for k, f := range s.Figures {
					if v := a.Values[i][k]; v < 0 || v > 1e9 || v == 0 && strings.Contains(f.Unit, "s") {
						t.Errorf("%s, %s: %v %s", sub.Name, f.Name, v, f.Unit)
					}
				}
			}
		})
	}
}

// TestGrowFindsMemory holds a store's memory against what is known of it: each key
// keeps a string of 20 bytes, its header and at least a pointer.
func TestGrowFindsMemory(t *testing.T) {
	const n = 50_000
	v, err := grow(xTimeMap(), n, 1, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if bytes := v[1]; bytes < 20+16+8+64 || bytes > 500 {
		t.Errorf("%v bytes per key", bytes)
	}
}

// TestFlood makes sure that a table stays as large as it is allowed to be.
func TestFlood(t *testing.T) {
	const full, n = 2000, 20_000
	v, err := flooded(memstore.Config{MaxKeys: full}, slow, full, n, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	figure := func(name string) float64 {
		return v[slices.IndexFunc(floodFigures, func(f floodFigure) bool { return f.Name == name })]
	}
	if before, after := figure("before"), figure("after"); after > 1.5*before+256 {
		t.Errorf("%v KiB before, %v after", before, after)
	}
}

func TestBoundsDependOnTheNumberOfKeys(t *testing.T) {
	for n, want := range map[int][]float64{100_000: {0, 0, 0}, 1_000_000: {0, 0, 10}, 10_000_000: {0, 24, 10}} {
		var got []float64
		for _, f := range growthFigures(n) {
			got = append(got, f.AtMost)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d keys: bounds %v, want %v", n, got, want)
		}
	}
}
