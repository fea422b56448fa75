package soak

import (
	"fmt"

	"github.com/weirlimit/weir/internal/svg"
)

// The picture's measures, in pixels.
const (
	width, height = 760, 300
	left, right   = 60.0, 740.0
	top, bottom   = 60.0, 262.0
)

// style adds a colour for each series to svg.Style.
const style = svg.Style + `
  .line { fill: none; stroke-width: 1.5; }
  .s0 { stroke: #0969da; }
  .s1 { stroke: #bc4c00; }
  .t0 { fill: #0969da; }
  .t1 { fill: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    .s0 { stroke: #4493f8; }
    .s1 { stroke: #f0883e; }
    .t0 { fill: #4493f8; }
    .t1 { fill: #f0883e; }
  }
`

// SVG draws the memory of all series over time, from 0 up: a leak of a tenth can be seen,
// and noise does not look like one.
func (p *Page) SVG() []byte {
	most := 0.0
	for _, s := range p.Series {
		for _, x := range s.Samples {
			most = max(most, RSS(x))
		}
	}
	up := svg.Linear(0, most, bottom, top, 6)
	along, labels := svg.Time(p.length(), left, right, 10)
	pic := svg.New(width, height, "Memory over a soak", "The resident memory of each daemon under a steady mixed load.", style)
	pic.Rect("page", 0.5, 0.5, width-1, height-1)
	pic.Text("title", svg.Start, 20, 28, "Memory (RSS) in MiB under a steady mixed load")
	for _, tick := range up.Ticks {
		pic.Line("grid", left, up.At(tick), right, up.At(tick))
		pic.Text("dim", svg.End, left-8, up.At(tick)+4, svg.Number(tick))
	}
	for i, tick := range along.Ticks {
		pic.Text("dim", svg.Middle, along.At(tick), bottom+20, labels[i])
	}
	for i, s := range p.Series {
		var line svg.Path
		for _, x := range s.Samples {
			line.LineTo(along.At(x.At.Seconds()), up.At(RSS(x)))
		}
		pic.Path(fmt.Sprintf("line s%d", i%2), line)
		pic.Text(fmt.Sprintf("t%d", i%2), svg.End, right-170*float64(i), 28, s.Name)
	}
	return pic.Bytes()
}
