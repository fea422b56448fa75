package harness_test

import (
	"testing"

	"github.com/weirlimit/weir/bench/internal/harness"
)

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 10_000_000: "10,000,000", -100: "-100", -1234: "-1,234"} {
		if got := harness.Grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}
