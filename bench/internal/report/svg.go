package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"

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
  .mark { stroke: #cf222e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; stroke: #30363d; }
    .dim { fill: #9da7b3; }
    .weir { fill: #4493f8; }
    .peer { fill: #6e7681; }
    .floor { fill: #30363d; }
    .mark { stroke: #ff7b72; }
  }
`

// A group is the bars of one case or survey.
type group struct {
	title string
	mark  float64 // the goal, where there is a line; 0 = none
	bars  []bar
}

// A bar is one contender's or subject's.
type bar struct {
	name  string
	kind  harness.Kind
	value float64
	label string // the value as it is written
}

// WriteSVG draws a bar chart of a section's cases that peers take part in, or of a
// figure of its surveys.
func (r *Report) WriteSVG(w io.Writer, s Section) error {
	groups, better := caseGroups(s.Results), "less is better"
	if s.ChartFigure != "" {
		groups, better = surveyGroups(s.Answers, s.ChartFigure)
	}
	height, longest := chartTop+chartBottom, 0.0
	for _, g := range groups {
		height += g.height()
		for _, bar := range g.bars {
			longest = max(longest, bar.value)
		}
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s: %s</title>\n<desc id=\"desc\">weir and other Go limiters, %s</desc>\n", escape(s.Title), escape(s.charted()), escape(r.Machine.CPU))
	fmt.Fprintf(&b, "<style>%s</style>\n", chartStyle)
	fmt.Fprintf(&b, `<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`+"\n", chartWidth-1, height-1)
	text(&b, "title", "start", margin, 32, fmt.Sprintf("%s, %s: %s", s.Title, s.charted(), better))
	text(&b, "dim", "start", margin, 52, fmt.Sprintf("%s, %d cores, %s, %s", r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Date.UTC().Format("2006-01-02")))
	y := chartTop
	for _, g := range groups {
		g.draw(&b, y, longest)
		y += g.height()
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// caseGroups returns the times of the cases for the chart, which have a peer.
func caseGroups(results []harness.Result) []group {
	var groups []group
	for _, res := range results {
		if _, name := bestPeer(res, res.Figure); name == "" || res.Case.NoChart {
			continue
		}
		g := group{title: res.Case.Name}
		for i, con := range res.Case.Contenders {
			g.bars = append(g.bars, bar{con.Name, con.Kind, res.Figure(i), fmt.Sprintf("%.1f ns", res.Figure(i))})
		}
		groups = append(groups, g)
	}
	return groups
}

// surveyGroups returns the values of a figure in the surveys that ask for it, and
// which are better.
func surveyGroups(answers []harness.Answers, figure string) (groups []group, better string) {
	better = "the line is the goal"
	for _, a := range answers {
		k := slices.IndexFunc(a.Survey.Figures, func(f harness.Figure) bool { return f.Name == figure })
		if k < 0 {
			continue
		}
		f := a.Survey.Figures[k]
		if f.More && !f.Bounded() {
			better = "more is better"
		}
		g := group{title: a.Survey.Name, mark: cmp.Or(f.AtLeast, f.AtMost)}
		for i, sub := range a.Survey.Subjects {
			v := a.Values[i][k]
			g.bars = append(g.bars, bar{sub.Name, sub.Kind, v, withUnit(value(f, v), f)})
		}
		groups = append(groups, g)
	}
	return groups, better
}

func (g group) height() int { return groupTitle + len(g.bars)*barPitch + groupGap }

func (g group) draw(b *bytes.Buffer, y int, longest float64) {
	text(b, "group", "start", margin, y+18, g.title)
	const left = margin + labelWidth
	const room = chartWidth - left - valueWidth - margin
	if g.mark > 0 {
		x := left + g.mark/longest*room
		fmt.Fprintf(b, `<line class="mark" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x, y+groupTitle-3, x, y+groupTitle+len(g.bars)*barPitch-3)
	}
	for i, bar := range g.bars {
		top := y + groupTitle + i*barPitch
		width := max(1, bar.value/longest*room)
		text(b, "", "end", left-8, top+12, barLabel(bar))
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", barClass(bar.kind), left, top, width, barHeight)
		text(b, "dim", "start", left+int(width)+6, top+12, bar.label)
	}
}

func barLabel(b bar) string {
	if b.kind == harness.Floor {
		return b.name + " (floor)"
	}
	return b.name
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
