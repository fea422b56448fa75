package measure

import (
	"maps"
	"math"
	"time"

	"github.com/weirlimit/weir"
)

// Meta is what a report says about a run that the run itself does not know.
type Meta struct {
	Target      string // what was loaded, without secrets, for example "http://localhost:8080/"
	Connections int
	Interrupted bool  // somebody stopped it before its time
	Unstarted   int64 // operations that were due and that no worker began
}

// Report is everything that a run found out. Its JSON has times in milliseconds (…_ms)
// or seconds (…_s), with fractions. Without operations all figures are 0.
type Report struct {
	Target      string    `json:"target"`
	Started     time.Time `json:"started"`
	Connections int       `json:"connections"`
	Interrupted bool      `json:"interrupted"`

	DurationS    float64 `json:"duration_s"`    // until the last operation ended
	LoadS        float64 `json:"load_s"`        // until the target was set to 0; rates refer to it
	TargetRate   float64 `json:"target_rate"`   // mean; 0 if there was none
	AchievedRate float64 `json:"achieved_rate"` // operations per second, failed ones included

	Operations int64            `json:"operations"` // that ended, failed ones included
	Errors     int64            `json:"errors"`
	Codes      map[string]int64 `json:"codes"`
	Bytes      int64            `json:"bytes"`

	Unfinished         int64   `json:"unfinished"`           // due, but not ended; in no other figure
	OldestUnfinishedMS float64 `json:"oldest_unfinished_ms"` // how long one that was begun had been due, at the end
	OverRange          int64   `json:"over_range"`           // responses above 10 minutes, which percentiles count as 10 minutes

	ServiceMS  Latency `json:"service_ms"`  // from the start of an operation
	ResponseMS Latency `json:"response_ms"` // from when it was due
	WaitMS     Wait    `json:"wait_ms"`     // the difference

	Series []Point `json:"series"`
}

// Latency is a distribution of times in milliseconds.
type Latency struct {
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	P9999 float64 `json:"p99_99"`
	Max   float64 `json:"max"`
}

// Wait is how long operations waited for their start, in milliseconds.
type Wait struct {
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	Total float64 `json:"total"`
}

// Point is one piece of a run, usually a second. An operation belongs to the one in which
// it ended. Percentiles are left out where none did.
type Point struct {
	TimeS         float64 `json:"t_s"` // its beginning, since the start of the run
	WidthS        float64 `json:"width_s"`
	TargetRate    float64 `json:"target_rate"`
	AchievedRate  float64 `json:"achieved_rate"`
	Operations    int64   `json:"operations"`
	Errors        int64   `json:"errors"`
	ServiceP50MS  float64 `json:"service_p50_ms,omitempty"`
	ServiceP99MS  float64 `json:"service_p99_ms,omitempty"`
	ResponseP50MS float64 `json:"response_p50_ms,omitempty"`
	ResponseP99MS float64 `json:"response_p99_ms,omitempty"`
}

// Report tells everything. Call it when the workers have stopped; those that have not,
// because somebody was too impatient to wait for them, have their operation counted as
// unfinished. An operation that ended after end moves the end.
func (r *Run) Report(end weir.Instant, meta Meta) Report {
	under := r.collect(end)
	r.mu.Lock()
	defer r.mu.Unlock()
	duration := max(r.offset(end), r.last)
	r.target.advance(duration, &r.series)
	period := r.target.period(duration)
	return Report{
		Target:      meta.Target,
		Started:     r.start.Time().Truncate(time.Millisecond),
		Connections: meta.Connections,
		Interrupted: meta.Interrupted,

		DurationS:    round(duration.Seconds(), 6),
		LoadS:        round(period.Seconds(), 6),
		TargetRate:   round(rate(r.target.due, period), 3),
		AchievedRate: round(perSecond(r.ops-r.late, period), 3),

		Operations: r.ops,
		Errors:     r.errors,
		Codes:      maps.Clone(r.codes),
		Bytes:      r.bytes,

		Unfinished:         meta.Unstarted + int64(under.count),
		OldestUnfinishedMS: ms(under.oldest),
		OverRange:          r.response.over,

		ServiceMS:  r.service.latency(),
		ResponseMS: r.response.latency(),
		WaitMS:     r.wait.waits(),
		Series:     r.pointsLocked(duration),
	}
}

func (r *Run) pointsLocked(duration time.Duration) []Point {
	points := []Point{} // an empty list in JSON, not null
	for _, s := range r.series.until(duration) {
		points = append(points, s.report())
	}
	return points
}

func (s span) report() Point {
	length := s.to - s.from
	p := Point{
		TimeS:        round(s.from.Seconds(), 6),
		WidthS:       round(length.Seconds(), 6),
		TargetRate:   round(rate(s.due, length), 3),
		AchievedRate: round(perSecond(s.ops, length), 3),
		Operations:   s.ops,
		Errors:       s.errors,
	}
	if s.ops > 0 {
		p.ServiceP50MS, p.ServiceP99MS = ms(s.service.quantile(50)), ms(s.service.quantile(99))
		p.ResponseP50MS, p.ResponseP99MS = ms(s.response.quantile(50)), ms(s.response.quantile(99))
	}
	return p
}

func (t *tally) latency() Latency {
	return Latency{
		Min:   ms(t.min),
		Mean:  ms(time.Duration(t.mean())),
		P50:   ms(t.quantile(50)),
		P90:   ms(t.quantile(90)),
		P99:   ms(t.quantile(99)),
		P999:  ms(t.quantile(99.9)),
		P9999: ms(t.quantile(99.99)),
		Max:   ms(t.max),
	}
}

func (t *tally) waits() Wait {
	return Wait{
		Mean:  ms(time.Duration(t.mean())),
		P50:   ms(t.quantile(50)),
		P99:   ms(t.quantile(99)),
		Max:   ms(t.max),
		Total: round(t.sum/1e6, 6),
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// duration is what ms was made of.
func duration(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }

// rate is like perSecond, for what is no whole number.
func rate(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}

func round(f float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(f*scale) / scale
}
