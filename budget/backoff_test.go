package budget

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

func none(int64) int64 { return 0 }

// most returns the largest number that it may.
func most(n int64) int64 { return n - 1 }

func TestBackoff(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	tests := []struct {
		name string
		b    *Backoff
		want []time.Duration
	}{
		{"defaults", &Backoff{Rand: none}, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10 * s, 10 * s}},
		{"the most jitter", &Backoff{Rand: most}, []time.Duration{110 * ms, 220 * ms, 440 * ms, 880 * ms, 1760 * ms, 3520 * ms, 7040 * ms, 11 * s, 11 * s}},
		{"a power of two", &Backoff{Base: s, Max: 4 * s, Rand: none}, []time.Duration{s, 2 * s, 4 * s, 4 * s}},
		{"the maximum at once", &Backoff{Base: s, Max: s, Rand: none}, []time.Duration{s, s}},
		{"a maximum below the base", &Backoff{Base: 3 * s, Max: s, Rand: none}, []time.Duration{3 * s, 3 * s}},
		{"negative", &Backoff{Base: -1, Max: -1, Rand: none}, []time.Duration{100 * ms, 200 * ms}},
		{"short", &Backoff{Base: 1, Max: 3, Rand: most}, []time.Duration{1, 2, 3, 3}},
		{"long", &Backoff{Base: math.MaxInt64 / 3, Max: math.MaxInt64, Rand: none}, []time.Duration{math.MaxInt64 / 3, math.MaxInt64 / 3 * 2, math.MaxInt64}},
		{"long with jitter", &Backoff{Base: math.MaxInt64, Max: math.MaxInt64, Rand: most}, []time.Duration{math.MaxInt64}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // the second after a success
				var got []time.Duration
				for range tt.want {
					got = append(got, tt.b.Failure())
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got %v, want %v", got, tt.want)
				}
				tt.b.Success()
			}
		})
	}
}

func TestBackoffConcurrently(t *testing.T) {
	var b Backoff
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				if d := b.Failure(); d < 100*time.Millisecond || d > 11*time.Second {
					t.Errorf("delay %v", d)
				}
				if i%10 == 9 {
					b.Success()
				}
			}
		})
	}
	wg.Wait()
}
