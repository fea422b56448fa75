package harness_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 10_000_000: "10,000,000", -100: "-100", -1234: "-1,234"} {
		if got := harness.Grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	for _, tt := range []struct{ n, tenThousandths, want int }{
		{1, 5000, 1},
		{4, 5000, 2},
		{5, 5000, 3},
		{200, 9900, 198},
		{200, 9999, 200},
		{10_000, 9999, 9999},
		{10_001, 9999, 10_000},
	} {
		var took []time.Duration
		for i := range tt.n {
			took = append(took, time.Duration(i+1))
		}
		if got := harness.Percentile(took, tt.tenThousandths); got != float64(tt.want) {
			t.Errorf("%d/10,000 of 1 to %d: %v, want %d", tt.tenThousandths, tt.n, got, tt.want)
		}
	}
}

func TestGoroutines(t *testing.T) {
	for n, want := range map[int]string{1: "1 goroutine", 32: "32 goroutines"} {
		if got := harness.Goroutines(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
