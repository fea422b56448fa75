package pacing

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// TestCases runs every case briefly, which checks the answers.
func TestCases(t *testing.T) {
	brief := harness.Settings{Rounds: 1, PerRun: 100 * time.Microsecond}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			res, err := harness.Measure(c, brief, nil)
			if err != nil {
				t.Fatal(err)
			}
			if allocs := res.Measurements[0].Allocs; allocs != 0 {
				t.Errorf("%s allocates %v times per call", weirName, allocs)
			}
		})
	}
}
