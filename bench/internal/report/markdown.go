package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// WriteMarkdown writes the page. The chart is the file chart beside it.
func (r *Report) WriteMarkdown(w io.Writer, chart string) error {
	var b bytes.Buffer
	r.writeIntro(&b, chart)
	r.writeGoals(&b)
	for _, res := range r.Results {
		writeCase(&b, res)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Report) writeIntro(b *bytes.Buffer, chart string) {
	fmt.Fprintf(b, `# Benchmarks

Written by `+"`make bench`"+`; do not edit. weir and other Go limiters, measured
side by side in one process.

![Nanoseconds per decision, weir and its peers](%s)

| | |
|---|---|
| Date | %s |
| Processor | %s, %d cores used |
| System | %s, %s |
| Peers | %s |

## How to reproduce

`+"```"+`
make bench                  # a few minutes; writes this page and its chart
make bench ARGS=-quick      # about half a minute; prints only
make bench ARGS=-json       # one JSON object per line
`+"```"+`

In each case the contenders run in turns, %d runs of about %v each, every run on
a fresh limiter. A figure is elapsed time divided by the calls of all goroutines
together. With one goroutine the best run counts. Every answer is checked: a case of admissions
in which one call is refused fails, and the other way round. Allocations are
counted in a loop of their own.

With several goroutines there are fewer runs, each five times as long, and a run
counts only if nobody else had a core meanwhile, neither another process nor another
machine on the host. There the median counts, and a ratio is the median of the
ratios within each round: how dear it is that two cores write one cache line depends
on where the host puts them at the moment, which helps or hurts everyone in the
round alike, and the best run would be the luckiest.

This was one machine, shared with others and noisy. **Trust the ratios
within a case, not the nanoseconds**, and no difference below 15 %%. The median,
beside the best run, shows how noisy it was. time.Since is no limiter but the
clock alone, which all but the prepaid limiter read for every decision.
`,
		chart, r.Date.UTC().Format("2006-01-02"), r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Machine.System,
		strings.Join(r.peerVersions(), ", "), r.Settings.Rounds, r.Settings.PerRun)
}

// peerVersions lists the peers' modules as "path version", sorted.
func (r *Report) peerVersions() []string {
	var list []string
	for _, res := range r.Results {
		for _, con := range res.Case.Contenders {
			if con.Module != "" {
				list = append(list, con.Module+" "+r.Machine.Modules[con.Module])
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (r *Report) writeGoals(b *bytes.Buffer) {
	fmt.Fprint(b, `
## Goals

How many times faster than the peer weir wants to be, and is.

| | against | goal | ratio | |
|---|---|---|---|---|
`)
	allocating, counted := 0, 0
	for _, res := range r.Results {
		for _, row := range timeRows(res) {
			if row.Goal > 0 {
				fmt.Fprintf(b, "| %s | %s | ≥ %s | %.2f | %s |\n", row.Case, row.Against, number(row.Goal), down(row.Ratio, 2), metOrMissed(row.Met()))
			}
		}
		for _, row := range allocRows(res) {
			counted++
			if !row.Met() {
				allocating++
			}
		}
	}
	fmt.Fprintf(b, "| no allocation in any of weir's %d figures | | 0 allocate | %d allocate | %s |\n",
		counted, allocating, metOrMissed(allocating == 0))
}

func metOrMissed(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

func writeCase(b *bytes.Buffer, r harness.Result) {
	fmt.Fprintf(b, "\n## %s\n", strings.ToUpper(r.Case.Name[:1])+r.Case.Name[1:])
	if r.Case.Note != "" {
		fmt.Fprintf(b, "\n%s\n", r.Case.Note)
	}
	if r.Disturbed > 0 {
		fmt.Fprintf(b, "\n%d runs were counted although somebody else had a core during them.\n", r.Disturbed)
	}
	fmt.Fprintf(b, "\n| | ns/op | median | allocs/op | times as fast as %s |\n|---|---:|---:|---:|---:|\n", r.Case.Against)
	for i, con := range r.Case.Contenders {
		m := r.Measurements[i]
		name := con.Name
		if con.Kind == harness.Weir {
			name = "**" + name + "**"
		}
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %s | %.2f |\n", name, m.Best, m.Median, number(m.Allocs), down(r.Ratio(i), 2))
	}
}
