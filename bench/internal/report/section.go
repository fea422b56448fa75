package report

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// Section is a part of a report: cases and surveys about one thing.
type Section struct {
	// Title is for example "One limiter".
	Title string

	// Note is what a reader must know of all of it. It may be empty.
	Note string

	// Chart is the file name of its chart, for example "benchmarks.svg".
	Chart string

	// ChartFigure is the surveys' figure that the chart shows, for example
	// "achieved / target". If empty it shows the cases' times.
	ChartFigure string

	Results []harness.Result
	Answers []harness.Answers
}

// charted names what the chart shows.
func (s Section) charted() string { return cmp.Or(s.ChartFigure, "nanoseconds per decision") }

// Measured says whether there is anything to draw: not if all was left out because the
// machine lacks what it needs.
func (s Section) Measured() bool {
	return len(s.Results) > 0 || slices.ContainsFunc(s.Answers, func(a harness.Answers) bool { return a.Missing == "" })
}

// Rows returns the section as rows: of each case the times and the allocations,
// then the surveys.
func (s Section) Rows() []Row {
	var rows []Row
	for _, res := range s.Results {
		rows = append(rows, timeRows(res)...)
		rows = append(rows, allocRows(res)...)
	}
	for _, a := range s.Answers {
		rows = append(rows, surveyRows(a)...)
	}
	return rows
}
