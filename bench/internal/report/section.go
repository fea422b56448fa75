package report

import "github.com/weirlimit/weir/bench/internal/harness"

// Section is a part of a report: cases and surveys about one thing.
type Section struct {
	// Title is for example "One limiter".
	Title string

	// Note is what a reader must know of all of it. It may be empty.
	Note string

	// Chart is the file name of its chart, for example "benchmarks.svg".
	Chart string

	Results []harness.Result
	Answers []harness.Answers
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
