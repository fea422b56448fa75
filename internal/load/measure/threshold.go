package measure

import (
	"fmt"
	"time"
)

// Thresholds say when a run has failed. Times are response times; 0 is no threshold.
type Thresholds struct {
	MaxP50, MaxP90, MaxP99, MaxP999 time.Duration

	MaxErrors float64 // the share of operations that may fail, such as 0.01; 0 is none of them, -1 no threshold
	MinRate   float64 // the share of the target rate to achieve, such as 0.95; 0 is no threshold
}

// Check returns a sentence for each threshold that a report violates. One that cannot be
// judged, because nothing ended, is violated: silence is not success.
func (t Thresholds) Check(r Report) []string {
	var problems []string
	for _, p := range []struct {
		name string
		got  float64
		most time.Duration
	}{
		{"p50", r.ResponseMS.P50, t.MaxP50},
		{"p90", r.ResponseMS.P90, t.MaxP90},
		{"p99", r.ResponseMS.P99, t.MaxP99},
		{"p99.9", r.ResponseMS.P999, t.MaxP999},
	} {
		switch {
		case p.most <= 0:
		case r.Operations == 0:
			problems = append(problems, fmt.Sprintf("The response time has no %s to compare with %v: no operation ended.", p.name, p.most))
		case duration(p.got) > p.most:
			problems = append(problems, fmt.Sprintf("The response time's %s of %v is above %v.", p.name, duration(p.got), p.most))
		}
	}
	return append(append(problems, t.checkErrors(r)...), t.checkRate(r)...)
}

func (t Thresholds) checkErrors(r Report) []string {
	if t.MaxErrors < 0 {
		return nil
	}
	if r.Operations == 0 {
		return []string{"There is no share of errors: no operation ended."}
	}
	share := float64(r.Errors) / float64(r.Operations)
	if share <= t.MaxErrors {
		return nil
	}
	return []string{fmt.Sprintf("%s of %s operations failed: %s, above %s.",
		thousands(r.Errors), thousands(r.Operations), percent(share), percent(t.MaxErrors))}
}

func (t Thresholds) checkRate(r Report) []string {
	if t.MinRate <= 0 {
		return nil
	}
	if r.TargetRate == 0 {
		return []string{"There is no target rate to compare the rate with."}
	}
	share := r.AchievedRate / r.TargetRate
	if share >= t.MinRate {
		return nil
	}
	return []string{fmt.Sprintf("The rate of %s per s is %s of the target of %s per s, below %s.",
		whole(r.AchievedRate), percent(share), whole(r.TargetRate), percent(t.MinRate))}
}
