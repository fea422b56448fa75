package measure

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestThresholds(t *testing.T) {
	const millis = time.Millisecond
	report := Report{
		Operations: 2000, Errors: 20, TargetRate: 1000, AchievedRate: 940,
		ServiceMS:  Latency{P50: 0.5, P90: 0.5, P99: 0.5, P999: 0.5},
		ResponseMS: Latency{P50: 1, P90: 10, P99: 100.5, P999: 1000},
	}
	silent := Report{TargetRate: 1000}
	tests := []struct {
		name string
		t    Thresholds
		r    Report
		want []string
	}{
		{"none", Thresholds{MaxErrors: -1}, report, nil},
		{"met exactly", Thresholds{MaxP50: millis, MaxP90: 10 * millis, MaxP99: 100_500_000, MaxP999: time.Second, MaxErrors: 0.01, MinRate: 0.94}, report, nil},
		{"all", Thresholds{MaxP50: 1, MaxP90: 2 * millis, MaxP99: 100 * millis, MaxP999: 999 * millis, MaxErrors: 0.005, MinRate: 0.95}, report, []string{
			"The response time's p50 of 1ms is above 1ns.",
			"The response time's p90 of 10ms is above 2ms.",
			"The response time's p99 of 100.5ms is above 100ms.",
			"The response time's p99.9 of 1s is above 999ms.",
			"20 of 2,000 operations failed: 1 %, above 0.5 %.",
			"The rate of 940 per s is 94 % of the target of 1,000 per s, below 95 %.",
		}},
		{"no errors allowed", Thresholds{}, report, []string{"20 of 2,000 operations failed: 1 %, above 0 %."}},
		{"nothing ended, no threshold", Thresholds{MaxErrors: -1}, silent, nil},
		{"nothing ended", Thresholds{MaxP99: time.Second, MinRate: 0.5}, silent, []string{
			"The response time has no p99 to compare with 1s: no operation ended.",
			"There is no share of errors: no operation ended.",
			"The rate of 0 per s is 0 % of the target of 1,000 per s, below 50 %.",
		}},
		{"no target", Thresholds{MaxErrors: -1, MinRate: 0.5}, Report{Operations: 1}, []string{"There is no target rate to compare the rate with."}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.t.Check(tt.r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
