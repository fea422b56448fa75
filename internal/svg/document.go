package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// Style is a style sheet with the classes page, title, dim, grid and axis, for text and
// for the parts around the data. It has a background of its own (class page), so that a
// picture can be read on a page of either colour, even where the page does not tell
// which.
const Style = `
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  .title { font-size: 16px; font-weight: 600; }
  .dim { fill: #57606a; }
  .grid { stroke: #d8dee4; }
  .axis { stroke: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; stroke: #30363d; }
    .dim { fill: #9da7b3; }
    .grid { stroke: #21262d; }
    .axis { stroke: #6e7681; }
  }
`

// Anchor says which part of a text stands at its place.
type Anchor string

// The anchors.
const (
	Start  Anchor = "start"
	Middle Anchor = "middle"
	End    Anchor = "end"
)

// Document is a picture that is being drawn. It is not safe for concurrent use.
type Document struct {
	b      bytes.Buffer
	groups int // that are open
}

// New starts a picture of so many pixels. The title and the description are for those
// who cannot see it; style is CSS, trusted, usually [Style] and more.
func New(width, height int, title, desc, style string) *Document {
	d := &Document{}
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&d.b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n", escape(title), escape(desc))
	fmt.Fprintf(&d.b, "<style>%s</style>\n", style)
	return d
}

// Group opens a group of what follows, until EndGroup.
func (d *Document) Group(class string) {
	fmt.Fprintf(&d.b, "<g class=\"%s\">\n", escape(class))
	d.groups++
}

// EndGroup closes the group that was opened last. Without one it does nothing.
func (d *Document) EndGroup() {
	if d.groups == 0 {
		return
	}
	d.b.WriteString("</g>\n")
	d.groups--
}

// Rect draws a rectangle.
func (d *Document) Rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&d.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`+"\n",
		escape(class), coord(x), coord(y), coord(max(0, width)), coord(max(0, height)))
}

// Line draws a straight line.
func (d *Document) Line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n",
		escape(class), coord(x1), coord(y1), coord(x2), coord(y2))
}

// Path draws a path; an empty one draws nothing.
func (d *Document) Path(class string, p Path) {
	if len(p.d) == 0 {
		return
	}
	fmt.Fprintf(&d.b, `<path class="%s" d="%s"/>`+"\n", escape(class), p.d)
}

// Text writes s with its anchor at x, on the base line y.
func (d *Document) Text(class string, anchor Anchor, x, y float64, s string) {
	fmt.Fprintf(&d.b, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`+"\n",
		escape(class), anchor, coord(x), coord(y), escape(s))
}

// Bytes returns the picture so far as a complete file: open groups are closed in it.
func (d *Document) Bytes() []byte {
	out := bytes.Clone(d.b.Bytes())
	for range d.groups {
		out = append(out, "</g>\n"...)
	}
	return append(out, "</svg>\n"...)
}

// escape makes s safe as text and in attributes. What XML cannot hold becomes U+FFFD.
func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a Buffer never fails
	return b.String()
}

// coord keeps one decimal, which is finer than anybody sees.
func coord(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	f = math.Round(f*10) / 10
	return strconv.FormatFloat(f+0, 'f', -1, 64) // + 0 turns -0 into 0
}
