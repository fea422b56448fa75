package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// WriteMarkdown writes the page. The charts are the sections' files beside it.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	r.writeIntro(&b)
	r.writeGoals(&b)
	for _, s := range r.Sections {
		writeSectionHead(&b, s)
		for _, res := range s.Results {
			writeCase(&b, res)
		}
		for _, a := range s.Answers {
			writeSurveyMarkdown(&b, a)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func writeSectionHead(b *bytes.Buffer, s Section) {
	fmt.Fprintf(b, "\n## %s\n", s.Title)
	if s.Note != "" {
		fmt.Fprintf(b, "\n%s\n", s.Note)
	}
	if !s.Measured() {
		return // without a chart
	}
	fmt.Fprintf(b, "\n![%s: %s, weir and its peers](%s)\n", s.Title, s.charted(), s.Chart)
}

func (r *Report) writeIntro(b *bytes.Buffer) {
	fmt.Fprintf(b, `# Benchmarks

Compare weir with other Go limiters: [Goals](#goals) is the summary, and each section after it has the figures for
one kind of limiter, measured side by side in one run. Or measure them on your machine:

`+"```"+`
make bench                  # half an hour; writes this page and its charts
make bench ARGS=-quick      # a minute or two, with fewer keys; prints only
make bench ARGS="-run keys" # only what has keys in its name; prints only
make bench ARGS=-json       # one JSON object per line
`+"```"+`

This was one machine, shared with others and noisy. **Trust the ratios
within a case, not the nanoseconds**, and no difference below 15 %%. The median,
beside the best run, shows how noisy it was. time.Since is not a limiter but the
clock alone, which all but the prepaid limiter and the pacer read every time.

## How it is measured

Written by `+"`make bench`"+`; do not edit.

| | |
|---|---|
| Date | %s |
| Processor | %s, %d cores used |
| System | %s, %s |
| Peers | %s |

In each case the contenders run in turns, %d runs of about %v each, every run on
a fresh limiter unless the case says otherwise. A figure is elapsed time divided
by the calls of all goroutines together. With one goroutine the best run counts.
Every answer is checked: a case of admissions in which one call is refused fails,
and the other way round. Allocations are counted in a loop of their own.

With several goroutines there are fewer runs, each five times as long, and a run
counts only if no other process, and no other machine on the host, used a core
meanwhile. There the median counts, and a ratio is the median of the ratios within
each round: what it costs that two cores write one cache line depends on where the
host places them, which affects all contenders of a round alike, and the best run
would depend on that placement.
`,
		r.Date.UTC().Format("2006-01-02"), r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Machine.System,
		strings.Join(r.peerVersions(), ", "), r.Settings.Rounds, r.Settings.PerRun)
}

// peerVersions lists the peers' modules as "path version", sorted.
func (r *Report) peerVersions() []string {
	var list []string
	add := func(module string) {
		if module != "" {
			list = append(list, module+" "+r.Machine.Modules[module])
		}
	}
	for _, s := range r.Sections {
		for _, res := range s.Results {
			for _, con := range res.Case.Contenders {
				add(con.Module)
			}
		}
		for _, a := range s.Answers {
			for _, sub := range a.Survey.Subjects {
				add(sub.Module)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (r *Report) writeGoals(b *bytes.Buffer) {
	fmt.Fprint(b, `
## Goals

A goal is how many times faster than the peer weir should be, how much it should
need at most, or the bounds of a figure.

| | against | goal | reached | |
|---|---|---|---|---|
`)
	allocating, counted := 0, 0
	for _, s := range r.Sections {
		for _, res := range s.Results {
			writeTimeGoals(b, res)
			for _, row := range allocRows(res) {
				counted++
				if !row.Met() {
					allocating++
				}
			}
		}
		for _, a := range s.Answers {
			writeBoundGoals(b, a)
		}
	}
	fmt.Fprintf(b, "| no allocation in any of weir's %d times | | 0 allocate | %d allocate | %s |\n",
		counted, allocating, metOrMissed(allocating == 0))
}

func writeTimeGoals(b *bytes.Buffer, res harness.Result) {
	for i, con := range res.Case.Contenders {
		name, ratio, figure := con.Name+", "+res.Case.Name, res.Ratio(i), res.Figure(i)
		switch {
		case con.AtMost > 0:
			fmt.Fprintf(b, "| %s | | ≤ %s ns | %.1f ns | %s |\n", name, number(con.AtMost), figure, metOrMissed(figure <= con.AtMost))
		case con.Goal > 0:
			fmt.Fprintf(b, "| %s | %s | ≥ %s | %.2f | %s |\n", name, against(res), number(con.Goal), down(ratio, 2), metOrMissed(ratio >= con.Goal))
		}
	}
}

func metOrMissed(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

func writeCase(b *bytes.Buffer, r harness.Result) {
	writeHeading(b, r.Case.Name, r.Case.Note)
	if r.Disturbed > 0 {
		fmt.Fprintf(b, "\nRuns counted although somebody else had a core meanwhile: %d.\n", r.Disturbed)
	}
	fmt.Fprintf(b, "\n| | ns/op | median | allocs/op | times as fast as %s |\n|---|---:|---:|---:|---:|\n", against(r))
	for i, con := range r.Case.Contenders {
		m := r.Measurements[i]
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %s | %.2f |\n", bold(con.Name, con.Kind), m.Best, m.Median, number(m.Allocs), down(r.Ratio(i), 2))
	}
}

func writeHeading(b *bytes.Buffer, name, note string) {
	fmt.Fprintf(b, "\n### %s\n", strings.ToUpper(name[:1])+name[1:])
	if note != "" {
		fmt.Fprintf(b, "\n%s\n", note)
	}
}

// bold emphasizes what is weir's.
func bold(name string, k harness.Kind) string {
	if k == harness.Weir {
		return "**" + name + "**"
	}
	return name
}
