// Package report collects what the rows of the fault matrix measured, and makes a page
// of it.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Report is all rows of a run.
type Report struct {
	Date    time.Time
	Machine string // such as "2 cores, go1.26.8, linux/amd64"

	mu   sync.Mutex // guards rows
	rows []*Row
}

// Row is one fault. Its methods may be called by any number of goroutines.
type Row struct {
	ID    string // "F1", or a name
	Fault string
	Must  string // what must hold

	mu      sync.Mutex // guards the fields below
	figures []Figure
	failed  bool
	busy    bool
}

// Figure is one thing that was measured.
type Figure struct {
	Name  string
	Value string
	Bound string // "≤ 200 = 2B", or "" for what is only reported
	Met   bool   // whether the bound holds
	Time  bool   // depends on how busy the machine was
}

// String returns, for example, "excess 57 ≤ 200 = 2B".
func (f Figure) String() string {
	text := strings.TrimSpace(f.Name + " " + f.Value + " " + f.Bound)
	if f.Bound != "" && !f.Met {
		text += " (missed)"
	}
	return text
}

// Begin adds a row.
func (r *Report) Begin(id, fault, must string) *Row {
	row := &Row{ID: id, Fault: fault, Must: must}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
	return row
}

// Add adds a figure to the row.
func (r *Row) Add(f Figure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures = append(r.figures, f)
}

// Fail marks the row as not met, for a reason that no figure shows.
func (r *Row) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

// Busy says that others had the machine, so that times that were missed are not judged.
func (r *Row) Busy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = true
}

// verdictLocked says whether all bounds of the row hold, and there are some.
func (r *Row) verdictLocked() string {
	bounds, excused := 0, 0
	for _, f := range r.figures {
		switch {
		case f.Bound == "":
		case f.Met:
			bounds++
		case f.Time && r.busy:
			excused++
		default:
			return "**no**"
		}
	}
	switch {
	case bounds == 0 || r.failed:
		return "**no**"
	case excused > 0:
		return "yes, but times not judged"
	}
	return "yes"
}

// IDs returns those of all rows, in order.
func (r *Report) IDs() (ids []string) {
	for _, row := range r.sorted() {
		ids = append(ids, row.ID)
	}
	return ids
}

// sorted returns the rows F1, F2, …, F10, then those without a number by name.
func (r *Report) sorted() []*Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(r.rows), func(a, b *Row) int {
		return cmp.Or(cmp.Compare(number(a.ID), number(b.ID)), cmp.Compare(a.ID, b.ID))
	})
}

// number returns 1 for F1 and F1b, and more than any for a name.
func number(id string) int {
	var n int
	if _, err := fmt.Sscanf(id, "F%d", &n); err != nil {
		return 1 << 30
	}
	return n
}

// WriteMarkdown writes the page.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, intro, r.Date.UTC().Format(time.DateOnly), r.Machine)
	b.WriteString("| | Fault | Must hold | Measured | Met |\n|---|---|---|---|---|\n")
	for _, row := range r.sorted() {
		b.WriteString(row.markdown())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Row) markdown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var figures []string
	for _, f := range r.figures {
		figures = append(figures, cell(f.String()))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", cell(r.ID), cell(r.Fault), cell(r.Must), strings.Join(figures, "<br>"), r.verdictLocked())
}

// cell writes text so that it stays in its cell.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(text)
}
