package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// The chart's measures, in pixels.
const (
	chartWidth  = 760
	margin      = 20
	labelWidth  = 160 // names, to the left of the bars
	valueWidth  = 70  // figures, to the right of the longest bar
	barHeight   = 16
	barPitch    = 22
	groupTitle  = 30 // from a group's top to its first bar
	groupGap    = 14
	chartTop    = 74 // title and subtitle
	chartBottom = 12
)

// chartStyle has a background of its own, so that the chart can be read on a
// page of either colour, even where the page does not tell which.
const chartStyle = `
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  .title { font-size: 16px; font-weight: 600; }
  .group { font-size: 13px; font-weight: 600; }
  .dim { fill: #57606a; }
  .weir { fill: #0969da; }
  .peer { fill: #8c959f; }
  .floor { fill: #d8dee4; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; stroke: #30363d; }
    .dim { fill: #9da7b3; }
    .weir { fill: #4493f8; }
    .peer { fill: #6e7681; }
    .floor { fill: #30363d; }
  }
`

// WriteSVG draws a bar chart of a section's cases that peers take part in.
func (r *Report) WriteSVG(w io.Writer, s Section) error {
	results, longest := charted(s.Results)
	height := chartTop + chartBottom
	for _, res := range results {
		height += groupHeight(res)
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s: nanoseconds per decision</title>\n<desc id=\"desc\">weir and other Go limiters, %s</desc>\n", escape(s.Title), escape(r.Machine.CPU))
	fmt.Fprintf(&b, "<style>%s</style>\n", chartStyle)
	fmt.Fprintf(&b, `<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`+"\n", chartWidth-1, height-1)
	text(&b, "title", "start", margin, 32, s.Title+", nanoseconds per decision: less is better")
	text(&b, "dim", "start", margin, 52, fmt.Sprintf("%s, %d cores, %s, %s", r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Date.UTC().Format("2006-01-02")))
	y := chartTop
	for _, res := range results {
		drawGroup(&b, y, res, longest)
		y += groupHeight(res)
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// charted returns the results for the chart, which have a peer, and their
// greatest figure.
func charted(results []harness.Result) (chosen []harness.Result, longest float64) {
	for _, res := range results {
		if _, name := bestPeer(res, res.Figure); name == "" || res.Case.NoChart {
			continue
		}
		chosen = append(chosen, res)
		for i := range res.Measurements {
			longest = max(longest, res.Figure(i))
		}
	}
	return chosen, longest
}

func groupHeight(r harness.Result) int {
	return groupTitle + len(r.Measurements)*barPitch + groupGap
}

func drawGroup(b *bytes.Buffer, y int, r harness.Result, longest float64) {
	text(b, "group", "start", margin, y+18, r.Case.Name)
	const left = margin + labelWidth
	const room = chartWidth - left - valueWidth - margin
	for i, con := range r.Case.Contenders {
		top := y + groupTitle + i*barPitch
		width := max(1, r.Figure(i)/longest*room)
		text(b, "", "end", left-8, top+12, barLabel(con))
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", barClass(con.Kind), left, top, width, barHeight)
		text(b, "dim", "start", left+int(width)+6, top+12, fmt.Sprintf("%.1f ns", r.Figure(i)))
	}
}

func barLabel(con harness.Contender) string {
	if con.Kind == harness.Floor {
		return con.Name + " (floor)"
	}
	return con.Name
}

func barClass(k harness.Kind) string {
	switch k {
	case harness.Weir:
		return "weir"
	case harness.Floor:
		return "floor"
	}
	return "peer"
}

func text(b *bytes.Buffer, class, anchor string, x, y int, s string) {
	fmt.Fprintf(b, `<text class="%s" text-anchor="%s" x="%d" y="%d">%s</text>`+"\n", class, anchor, x, y, escape(s))
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a Buffer never fails
	return b.String()
}
