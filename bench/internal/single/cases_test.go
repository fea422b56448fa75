package single_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/single"
)

// TestCases runs every case briefly, which checks the answers.
func TestCases(t *testing.T) {
	brief := harness.Settings{Rounds: 1, PerRun: 100 * time.Microsecond}
	names := make(map[string]bool)
	for _, c := range single.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if names[c.Name] {
				t.Error("two cases have this name")
			}
			names[c.Name] = true
			if _, err := harness.Measure(c, brief, nil); err != nil {
				t.Error(err)
			}
		})
	}
}
