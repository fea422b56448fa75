package measure

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/svg"
)

// The picture's measures, in pixels.
const (
	pictureWidth  = 760
	pictureHeight = 560
	margin        = 20
	left          = 78                // of the panels; the labels of the vertical axes stand before it
	right         = pictureWidth - 32 // half a label wider than margin
	rateTop       = 112
	rateBottom    = 252
	latencyTop    = 312
	latencyBottom = 512
	legendRise    = 16  // from a legend's base line to its panel
	letterWidth   = 6.6 // of a legend, about
	boldWidth     = 7.9 // of a panel's title
	sampleWidth   = 24  // of a line in a legend
	longestTarget = 60  // characters of a URL in the subtitle
)

// pictureStyle has a broad line and a narrow one for what is often equal, so that both
// are seen: the narrow one is painted later.
const pictureStyle = svg.Style + `
  .panel { font-size: 13px; font-weight: 600; }
  path, .sample { fill: none; stroke-linecap: round; stroke-linejoin: round; }
  .achieved { stroke: #0969da; stroke-width: 3; }
  .target { stroke: #24292f; stroke-width: 1.5; stroke-dasharray: 5 4; }
  .errors { fill: #cf222e; stroke: #cf222e; stroke-width: 0; }
  .sample.errors { stroke-width: 6; stroke-linecap: butt; }
  .response { stroke: #0969da; stroke-width: 4; }
  .service { stroke: #bc4c00; stroke-width: 1.5; }
  .median { stroke-dasharray: 1 7; }
  @media (prefers-color-scheme: dark) {
    .achieved, .response { stroke: #4493f8; }
    .target { stroke: #e6edf3; }
    .errors { fill: #f85149; stroke: #f85149; }
    .service { stroke: #f0883e; }
  }
`

// SVG draws the run over time: the rates above, and below the percentiles on a
// logarithmic axis.
func (r Report) SVG() []byte {
	pic := svg.New(pictureWidth, pictureHeight, "Load test: rate and latency over time", r.describe(), pictureStyle)
	pic.Rect("page", 0.5, 0.5, pictureWidth-1, pictureHeight-1)
	pic.Text("title", svg.Start, margin, 34, "Load test: "+r.rateText())
	pic.Text("dim", svg.Start, margin, 56, r.subtitle())
	across, labels := svg.Time(r.length(), left, right, 9)
	r.drawRates(pic, across)
	r.drawLatency(pic, across)
	for i, tick := range across.Ticks {
		pic.Text("dim", svg.Middle, across.At(tick), latencyBottom+18, labels[i])
	}
	pic.Text("dim", svg.End, right, latencyBottom+36, "time since the start")
	return pic.Bytes()
}

// describe says in a sentence what the picture shows.
func (r Report) describe() string {
	return fmt.Sprintf("%s operations in %s. The response time's median is %s and its 99th percentile %s; of the service time they are %s and %s. Errors: %s.",
		thousands(r.Operations), r.took(),
		svg.Duration(duration(r.ResponseMS.P50)), svg.Duration(duration(r.ResponseMS.P99)),
		svg.Duration(duration(r.ServiceMS.P50)), svg.Duration(duration(r.ServiceMS.P99)), r.errorText())
}

func (r Report) subtitle() string {
	words := []string{r.Started.Format("2006-01-02 15:04:05 MST"), r.took()}
	if r.Connections > 0 {
		words = append(words, "connections: "+thousands(int64(r.Connections)))
	}
	if r.Target != "" {
		words = append([]string{shorten(r.Target, longestTarget)}, words...)
	}
	return strings.Join(words, ", ")
}

// shorten keeps so many characters of s.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// length is where the horizontal axis ends.
func (r Report) length() time.Duration {
	return time.Duration(r.DurationS * float64(time.Second))
}

func (r Report) drawRates(pic *svg.Document, across svg.Axis) {
	most := 1.0
	for _, p := range r.Series {
		most = max(most, p.TargetRate, p.AchievedRate)
	}
	up := svg.Linear(0, most, rateBottom, rateTop, 5)
	drawFrame(pic, across, up, svg.Number)
	drawLegend(pic, rateTop, "operations per second", []sample{
		{"target", "target"},
		{"achieved", "achieved"},
		{"errors", "errors"},
	})
	var target, achieved svg.Path
	for _, p := range r.Series {
		drawErrors(pic, across, up, p)
		target.LineTo(across.At(p.TimeS), up.At(p.TargetRate)) // steps, as the target has
		target.LineTo(across.At(p.TimeS+p.WidthS), up.At(p.TargetRate))
		achieved.LineTo(across.At(p.middle()), up.At(p.AchievedRate))
	}
	pic.Path("achieved", achieved)
	if r.TargetRate > 0 {
		pic.Path("target", target)
	}
}

// drawErrors draws a bar that can be seen even if there is only one.
func drawErrors(pic *svg.Document, across, up svg.Axis, p Point) {
	if p.Errors == 0 || p.WidthS == 0 {
		return
	}
	top := min(up.At(float64(p.Errors)/p.WidthS), rateBottom-2)
	from, to := across.At(p.TimeS), across.At(p.TimeS+p.WidthS)
	pic.Rect("errors", from, top, to-from, rateBottom-top)
}

// curves are the percentiles in the order in which they are painted.
var curves = []struct {
	class string
	of    func(Point) float64
}{
	{"response", func(p Point) float64 { return p.ResponseP99MS }},
	{"response median", func(p Point) float64 { return p.ResponseP50MS }},
	{"service", func(p Point) float64 { return p.ServiceP99MS }},
	{"service median", func(p Point) float64 { return p.ServiceP50MS }},
}

func (r Report) drawLatency(pic *svg.Document, across svg.Axis) {
	lo, hi := r.latencyRange()
	up := svg.Log(lo, hi, latencyBottom, latencyTop)
	drawFrame(pic, across, up, func(ms float64) string { return svg.Duration(duration(ms)) })
	drawLegend(pic, latencyTop, "latency", []sample{
		{"response", "response p99"},
		{"response median", "response p50"},
		{"service", "service p99"},
		{"service median", "service p50"},
	})
	if r.Operations == 0 {
		pic.Text("dim", svg.Middle, (left+right)/2, (latencyTop+latencyBottom)/2, "no operation ended")
	}
	for _, c := range curves {
		pic.Path(c.class, curve(r.Series, across, up, c.of))
	}
}

// curve leaves a gap where no operation ended.
func curve(points []Point, across, up svg.Axis, of func(Point) float64) (path svg.Path) {
	for _, p := range points {
		if p.Operations == 0 {
			path.Gap()
			continue
		}
		path.LineTo(across.At(p.middle()), up.At(of(p)))
	}
	return path
}

// latencyRange returns the least and the greatest time to draw, with some air, or a range
// for an empty picture.
func (r Report) latencyRange() (lo, hi float64) {
	for _, p := range r.Series {
		for _, c := range curves {
			v := c.of(p)
			if v > 0 && (lo == 0 || v < lo) {
				lo = v
			}
			hi = max(hi, v)
		}
	}
	if hi == 0 {
		return 1, 1000
	}
	return lo * 0.8, hi * 1.2
}

func (p Point) middle() float64 { return p.TimeS + p.WidthS/2 }

// drawFrame draws the lines behind a panel's data, and the labels of its vertical axis.
func drawFrame(pic *svg.Document, across, up svg.Axis, label func(float64) string) {
	for _, tick := range across.Ticks {
		pic.Line("grid", across.At(tick), up.From, across.At(tick), up.To)
	}
	for _, tick := range up.Ticks {
		y := up.At(tick)
		pic.Line("grid", left, y, right, y)
		pic.Text("dim", svg.End, left-8, y+4, label(tick))
	}
	pic.Line("axis", left, up.From, right, up.From)
}

// sample is a line of a legend.
type sample struct{ class, name string }

// drawLegend writes a panel's title and what its lines are, above it.
func drawLegend(pic *svg.Document, top float64, title string, samples []sample) {
	y := top - legendRise
	pic.Text("panel", svg.Start, margin, y, title)
	x := margin + boldWidth*float64(len(title)) + 24
	for _, s := range samples {
		pic.Line("sample "+s.class, x, y-4, x+sampleWidth, y-4)
		pic.Text("", svg.Start, x+sampleWidth+8, y, s.name)
		x += sampleWidth + 8 + letterWidth*float64(len(s.name)) + 24
	}
}
