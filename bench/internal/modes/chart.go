package modes

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/svg"
	"github.com/weirlimit/weir/tiered"
)

// The files of the charts, beside the page.
const (
	ThroughputChart = "modes-throughput.svg"
	CallsChart      = "modes-calls.svg"
	OvershootChart  = "modes-overshoot.svg"
)

// The charts' measures, in pixels.
const (
	chartWidth, chartHeight = 760, 320
	margin                  = 20

	plotLeft, plotRight = 76, chartWidth - margin
	plotTop, plotBottom = 104, chartHeight - 40
	columnWidth         = 44
	columnGap           = 4
)

const style = svg.Style + `
  .exact { fill: #0969da; }
  .leased { fill: #1a7f37; }
  .async { fill: #bc4c00; }
  path { fill: none !important; stroke-width: 2; stroke-linecap: round; }
  path.exact { stroke: #0969da; }
  path.leased { stroke: #1a7f37; }
  path.async { stroke: #bc4c00; }
  path.dot { stroke-width: 8; }
  .bound { stroke: #cf222e; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    .exact { fill: #4493f8; }
    .leased { fill: #3fb950; }
    .async { fill: #f0883e; }
    path.exact { stroke: #4493f8; }
    path.leased { stroke: #3fb950; }
    path.async { stroke: #f0883e; }
    .bound { stroke: #ff7b72; }
  }
`

// Charts returns the pictures by their file names.
func (f Figures) Charts() map[string][]byte {
	return map[string][]byte{
		ThroughputChart: f.throughput(),
		CallsChart:      f.calls(),
		OvershootChart:  f.overshoot(),
	}
}

func (f Figures) throughput() []byte {
	c := f.newChart("A hot key with plenty of room: decisions per second", "Decisions per second of all nodes together, by mode and number of nodes.")
	most := 0.0
	for _, r := range f.Rooms {
		most = max(most, r.PerSecond)
	}
	c.up = svg.Linear(0, most, plotBottom, plotTop, 6)
	c.frame(svg.Number)
	c.legend()
	for _, r := range f.Rooms {
		c.column(r.Mode, r.Nodes, r.PerSecond, svg.Number(r.PerSecond))
	}
	return c.Bytes()
}

func (f Figures) calls() []byte {
	c := f.newChart("The same runs: store calls per decision, on a logarithmic scale", "Calls to the store for each decision, by mode and number of nodes, on a logarithmic scale.")
	least, most := 1.0, 1.0
	for _, r := range f.Rooms {
		if r.Calls > 0 {
			least, most = min(least, r.Calls), max(most, r.Calls)
		}
	}
	c.up = svg.Log(least/2, most, plotBottom, plotTop)
	c.frame(oneIn)
	c.legend()
	for _, m := range All {
		var line svg.Path
		for _, r := range f.Rooms {
			if r.Mode == m {
				line.LineTo(c.middle(r.Nodes), c.up.At(r.Calls))
			}
		}
		c.Path(m.String(), line)
	}
	for _, r := range f.Rooms {
		var dot svg.Path
		dot.LineTo(c.middle(r.Nodes), c.up.At(r.Calls))
		c.Path("dot "+r.Mode.String(), dot)
	}
	return c.Bytes()
}

func (f Figures) overshoot() []byte {
	c := f.newChart("A hot key under attack: units admitted above B + r·Δ, at worst", "The greatest excess of grants over burst and rate, by mode and number of nodes, with the bound of async mode.")
	most := 1.0
	for _, a := range f.Attacks {
		most = max(most, a.Excess, a.Bound)
	}
	c.up = svg.Linear(0, most, plotBottom, plotTop, 6)
	c.frame(svg.Number)
	x := c.legend()
	c.Line("bound", x, 74, x+14, 74)
	c.Text("", svg.Start, x+20, 78, "bound of async: nodes × b")
	for _, a := range f.Attacks {
		c.column(a.Mode, a.Nodes, a.Excess, svg.Number(a.Excess))
		if a.Bound > 0 {
			left := c.columnLeft(a.Mode, a.Nodes)
			c.Line("bound", left-4, c.up.At(a.Bound), left+columnWidth+4, c.up.At(a.Bound))
		}
	}
	return c.Bytes()
}

// A chart has groups, one for each number of nodes, from left to right.
type chart struct {
	*svg.Document
	nodes []int
	up    svg.Axis
}

func (f Figures) newChart(title, desc string) *chart {
	c := &chart{Document: svg.New(chartWidth, chartHeight, title, desc, style), nodes: f.Sizes.Nodes}
	c.Rect("page", 0.5, 0.5, chartWidth-1, chartHeight-1)
	c.Text("title", svg.Start, margin, 32, title)
	c.Text("dim", svg.Start, margin, 52, fmt.Sprintf("%s, %d cores for all nodes and Redis, %s, %s", f.Machine.CPU, f.Machine.Cores, f.Redis, f.Date.UTC().Format(time.DateOnly)))
	return c
}

// frame draws what is behind the figures.
func (c *chart) frame(label func(float64) string) {
	for _, tick := range c.up.Ticks {
		y := c.up.At(tick)
		c.Line("grid", plotLeft, y, plotRight, y)
		c.Text("dim", svg.End, plotLeft-8, y+4, label(tick))
	}
	c.Line("axis", plotLeft, plotBottom, plotRight, plotBottom)
	for _, n := range c.nodes {
		name := fmt.Sprintf("%d nodes", n)
		if n == 1 {
			name = "1 node"
		}
		c.Text("", svg.Middle, c.middle(n), plotBottom+20, name)
	}
}

// oneIn writes 0.001 as "1 in 1k".
func oneIn(v float64) string {
	if v >= 1 {
		return svg.Number(v)
	}
	return "1 in " + svg.Number(1/v)
}

// legend names the modes, and returns where more can be named.
func (c *chart) legend() (x float64) {
	x = plotLeft
	for _, m := range All {
		c.Rect(m.String(), x, 68, 12, 12)
		c.Text("", svg.Start, x+18, 78, m.String())
		x += 90
	}
	return x
}

// middle returns where the group of so many nodes is.
func (c *chart) middle(nodes int) float64 {
	for i, n := range c.nodes {
		if n == nodes {
			return plotLeft + (float64(i)+0.5)*(plotRight-plotLeft)/float64(len(c.nodes))
		}
	}
	return plotLeft
}

// columnLeft returns where a mode's column in a group begins.
func (c *chart) columnLeft(m tiered.Mode, nodes int) float64 {
	whole := float64(len(All)*columnWidth + (len(All)-1)*columnGap)
	return c.middle(nodes) - whole/2 + float64(m)*(columnWidth+columnGap)
}

func (c *chart) column(m tiered.Mode, nodes int, v float64, label string) {
	left, top := c.columnLeft(m, nodes), c.up.At(v)
	c.Rect(m.String(), left, top, columnWidth, plotBottom-top)
	c.Text("dim", svg.Middle, left+columnWidth/2, top-6, label)
}
