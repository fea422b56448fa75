package load

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// A Schedule is the rate over time: stages one after the other. The last one's rate
// holds to the end.
type Schedule struct {
	Stages     []Stage
	BurstRatio float64 // how fast to make lateness good, as in pacer.Config; 0 = at once
}

// A Stage leads from one rate to another, evenly. If they are the same it is a
// step.
type Stage struct {
	From, To float64       // per second
	For      time.Duration // 0 = to the end
}

// ParseSchedule reads stages, each as
//
//	rate[,burst_ratio]          5000 or 5k,1.1, to the end
//	rate/duration               500/10s, a step
//	rate..rate/duration         100..5000/30s, a ramp
//
// Only the last may be without a duration, and all have the same burst ratio.
func ParseSchedule(specs []string) (Schedule, error) {
	if len(specs) == 0 {
		return Schedule{}, errors.New("there is no rate")
	}
	var s Schedule
	for i, text := range specs {
		stage, ratio, err := parseStage(text)
		if err != nil {
			return Schedule{}, fmt.Errorf("rate %q: %w", text, err)
		}
		if stage.For == 0 && i < len(specs)-1 {
			return Schedule{}, fmt.Errorf("rate %q: has no end, but there is %q after it; write %s/10s", text, specs[i+1], text)
		}
		if i > 0 && ratio != s.BurstRatio {
			return Schedule{}, fmt.Errorf("rate %q: has another burst ratio than %q", text, specs[0])
		}
		s.BurstRatio = ratio
		s.Stages = append(s.Stages, stage)
	}
	return s, nil
}

func parseStage(text string) (stage Stage, ratio float64, err error) {
	rates, rest, hasRatio := strings.Cut(text, ",")
	rates, duration, hasDuration := strings.Cut(rates, "/")
	from, to, isRamp := strings.Cut(rates, "..")
	if !isRamp {
		to = from
	}
	if hasDuration {
		if stage.For, err = time.ParseDuration(duration); err != nil || stage.For <= 0 {
			return Stage{}, 0, fmt.Errorf("%q is not a duration such as 30s", duration)
		}
	}
	if isRamp && !hasDuration {
		return Stage{}, 0, fmt.Errorf("a ramp needs a duration: %s/30s", text)
	}
	if stage.From, err = parseRate(from); err != nil {
		return Stage{}, 0, err
	}
	if stage.To, err = parseRate(to); err != nil {
		return Stage{}, 0, err
	}
	if hasRatio {
		ratio, err = parseRatio(rest)
	}
	return stage, ratio, err
}

// parseRate reads a rate as pacers do: 5000, 5k, 0.5.
func parseRate(s string) (float64, error) {
	spec, err := pacer.ParseSpec(s)
	if err != nil || strings.Contains(s, ",") {
		return 0, fmt.Errorf("%q is not a rate such as 500, 2.5 or 5k", s)
	}
	if spec.Rate < minRate || spec.Rate > maxRate {
		return 0, fmt.Errorf("%q is not between %v and %v per second", s, minRate, maxRate)
	}
	return spec.Rate, nil
}

// parseRatio reads a burst ratio as pacers do. What else a pacer's spec may have
// makes no sense here.
func parseRatio(s string) (float64, error) {
	spec, err := pacer.ParseSpec("1," + s)
	if err != nil || spec.Mode != pacer.Burst || spec != (pacer.Spec{Rate: 1, BurstRatio: spec.BurstRatio, Mode: pacer.Burst}) {
		return 0, fmt.Errorf("%q is not a burst ratio above 1, such as 1.1", s)
	}
	return spec.BurstRatio, nil
}

// The rates that a schedule may have: one in a quarter of an hour, and more than one
// machine can do.
const (
	minRate = 0.001
	maxRate = 10_000_000
)

// For returns how long all stages take, or 0 if the last has no end.
func (s Schedule) For() (total time.Duration) {
	for _, st := range s.Stages {
		if st.For == 0 {
			return 0
		}
		total += st.For
	}
	return total
}

// at returns the rate after some time.
func (s Schedule) at(elapsed time.Duration) float64 {
	for _, st := range s.Stages {
		if st.For == 0 || elapsed < st.For {
			return st.at(elapsed)
		}
		elapsed -= st.For
	}
	return s.Stages[len(s.Stages)-1].To
}

func (st Stage) at(elapsed time.Duration) float64 {
	if st.For == 0 {
		return st.From
	}
	return st.From + (st.To-st.From)*float64(elapsed)/float64(st.For)
}

// changes says whether the rate is ever another than at the start.
func (s Schedule) changes() bool {
	for _, st := range s.Stages {
		if st.From != s.Stages[0].From || st.To != st.From {
			return true
		}
	}
	return false
}
