package pacing

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// Note is what a reader must know of all of it.
const Note = `Callers ask for the next start in a loop and do nothing else. weir's pacer is in the
mode Average, with its default credit of 10 ms. The peers have a burst of 1, which is
what keeps their starts apart; uber's slack, a burst of 10, is its default. Where there
is a context, it is one that never ends. An idle Go program is woken up to a millisecond
late, and a pacer that does not catch up loses that time at every start. If the machine stands
still for longer than the credit, weir loses the rest of that too: a run in which others
had more than 2 % of a core, or a thread of its own was woken more than 10 ms late, is made
again, up to three times, and the quietest counts.`

// How long a run of a survey lasts.
const (
	Whole = 5 * time.Second
	Quick = 300 * time.Millisecond
)

// Achieved is the figure for the chart: starts as a share of what they should be.
const Achieved = "achieved / target"

// What weir is to achieve. In shorter runs the last start weighs more, which may be
// late by the credit when time is over.
const (
	least, most           = 0.999, 1.0005
	leastBrief, mostBrief = 0.95, 1.01
)

// Goals of even gaps.
const (
	mostOff   = 10  // µs, in the median
	mostCores = 0.5 // busy
)

// Surveys returns the figures that are no time per call, in runs as long as d.
func Surveys(d time.Duration) []harness.Survey {
	var surveys []harness.Survey
	for _, perSecond := range []int{10_000, 100_000, 1_000_000} {
		for _, goroutines := range []int{1, 8} {
			surveys = append(surveys, pace(perSecond, goroutines, d))
		}
	}
	return append(surveys, smooth(10_000, d))
}

// pace asks how much of a rate is delivered.
func pace(perSecond, goroutines int, d time.Duration) harness.Survey {
	s := harness.Survey{
		Name:    fmt.Sprintf("pace, %s per second, %s", harness.Grouped(perSecond), harness.Goroutines(goroutines)),
		Note:    fmt.Sprintf("Starts within %v, as a share of the target, and how many cores the process kept busy.", d),
		Quiet:   true,
		Figures: []harness.Figure{achievedFigure(d), {Name: "CPU", Unit: "cores"}},
	}
	for _, w := range append([]waiter{weirPacer(weirName, false)}, peers()...) {
		s.Subjects = append(s.Subjects, w.subject(func(w waiter) ([]float64, error) {
			share, cores, err := achieved(w, perSecond, goroutines, d)
			return []float64{share, cores}, err
		}))
	}
	return s
}

func achievedFigure(d time.Duration) harness.Figure {
	if d < Whole {
		return harness.Figure{Name: Achieved, AtLeast: leastBrief, AtMost: mostBrief}
	}
	return harness.Figure{Name: Achieved, AtLeast: least, AtMost: most}
}

const smoothNote = "How far gaps between starts are from %v, by the clock after each start, in %v, and how many cores the process kept busy. " +
	"The goals are for a pacer with Smooth, which wakes up in time; without it, starts that are due come together."

// smooth asks how even the gaps are.
func smooth(perSecond int, d time.Duration) harness.Survey {
	s := harness.Survey{
		Name:  fmt.Sprintf("smooth, %s per second, %s", harness.Grouped(perSecond), harness.Goroutines(1)),
		Note:  fmt.Sprintf(smoothNote, time.Second/time.Duration(perSecond), d),
		Quiet: true,
		Figures: []harness.Figure{
			{Name: "gap error p50", Unit: "µs", AtMost: mostOff},
			{Name: "gap error p99", Unit: "µs"},
			{Name: "CPU", Unit: "cores", AtMost: mostCores},
		},
	}
	ask := func(w waiter) ([]float64, error) {
		off, cores, err := gapErrors(w, perSecond, d)
		if err != nil {
			return nil, err
		}
		return []float64{micros(off, 5000), micros(off, 9900), cores}, nil
	}
	plain := weirPacer(weirName, false).subject(ask)
	plain.NoGoal = true
	s.Subjects = append(s.Subjects, weirPacer(weirName+", smooth", true).subject(ask), plain)
	for _, w := range peers() {
		s.Subjects = append(s.Subjects, w.subject(ask))
	}
	return s
}

// micros is a percentile in microseconds.
func micros(sorted []time.Duration, tenThousandths int) float64 {
	return harness.Percentile(sorted, tenThousandths) / float64(time.Microsecond)
}
