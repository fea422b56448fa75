package measure

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What the series says adds up to what the report says.
func TestSeriesAndTotalsAgree(t *testing.T) {
	for _, seconds := range []float64{0.2, 1, 7.3, 599.9, 601, 5000} {
		r := recorded(random(1000, seconds)...)
		r.SetTarget(t0, 10)
		r.SetTarget(after(seconds*300), 50)
		checkSums(t, r.Report(after(seconds*1000), Meta{}))
	}
}

func checkSums(t *testing.T, r Report) {
	t.Helper()
	var ops, errors int64
	var due, done, end float64
	for i, p := range r.Series {
		if math.Abs(p.TimeS-end) > 1e-5 || p.WidthS < 0 {
			t.Errorf("point %d begins at %v s, the one before ended at %v s", i, p.TimeS, end)
		}
		ops += p.Operations
		errors += p.Errors
		due += p.TargetRate * p.WidthS
		done += p.AchievedRate * p.WidthS
		end = p.TimeS + p.WidthS
	}
	if ops != r.Operations || errors != r.Errors {
		t.Errorf("%v s: the series has %d operations and %d errors, the report %d and %d", r.DurationS, ops, errors, r.Operations, r.Errors)
	}
	if math.Abs(end-r.DurationS) > 1e-5 {
		t.Errorf("the series ends at %v s, the report at %v s", end, r.DurationS)
	}
	rounded := 0.001 * r.DurationS // what rates with three decimals may be off, in operations
	if want := r.TargetRate * r.LoadS; math.Abs(due-want) > rounded+1e-3 {
		t.Errorf("%v s: %v operations were due in the series, %v in the report", r.DurationS, due, want)
	}
	if want := float64(r.Operations); math.Abs(done-want) > rounded+1e-3 {
		t.Errorf("%v s: rates of the series make %v operations of %v", r.DurationS, done, want)
	}
}

// Ten hours take no more memory than ten minutes.
func TestLongRunsAreBounded(t *testing.T) {
	const seconds = 10 * 3600
	r := NewRun(t0)
	rc := r.Recorder()
	for i := range seconds {
		at := float64(i) * 1000
		r.SetTarget(after(at), float64(i%7))
		rc.Record(op(at, at, at+5))
	}
	got := r.Report(after(seconds*1000), Meta{})
	checkSums(t, got)
	if n := len(got.Series); n > maxPoints || n < maxPoints/2 {
		t.Errorf("%d points, want %d to %d", n, maxPoints/2, maxPoints)
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if mem.HeapAlloc > 40<<20 {
		t.Errorf("%d MB in use", mem.HeapAlloc>>20)
	}
	runtime.KeepAlive(r)
}

// Merged points have the percentiles of all their operations, not some mean of two.
func TestMergedPercentiles(t *testing.T) {
	r := NewRun(t0)
	rc := r.Recorder()
	for range 400 {
		rc.Record(op(0, 0, 1))
	}
	for range 600 {
		rc.Record(op(1000, 1100, 1900))
	}
	rc.Record(op(1e6, 1e6, 1e6+1)) // after a quarter of an hour
	p := r.Report(after(1e6+1000), Meta{}).Series[0]
	want := Point{WidthS: 2, AchievedRate: 500, Operations: 1000, ServiceP50MS: 802.815, ServiceP99MS: 802.815, ResponseP50MS: 901.119, ResponseP99MS: 901.119}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheLastPoint(t *testing.T) {
	tests := []struct {
		end    float64 // ms
		points int
		width  float64 // of the last, in seconds
	}{
		{1, 1, 0.001},
		{400, 1, 0.4},
		{1000, 1, 1},
		{1499, 1, 1.499},
		{1500, 2, 0.5},
		{3999, 4, 0.999},
		{599_900, 600, 0.9},
		{600_000, 300, 2}, // what ends then belongs to second 600
		{600_400, 300, 2.4},
		{601_000, 301, 1},
	}
	for _, tt := range tests {
		r := recorded(op(0, 0, 0.5), op(0, 0, 0.6), op(tt.end-1, tt.end-1, tt.end-0.1), op(0, 0, tt.end))
		got := r.Report(after(tt.end), Meta{})
		if n := len(got.Series); n != tt.points || got.Series[n-1].WidthS != tt.width {
			t.Errorf("%v ms: %d points, the last %v s wide; want %d and %v s", tt.end, n, got.Series[n-1].WidthS, tt.points, tt.width)
		}
		checkSums(t, got)
		if diff := cmp.Diff(got, r.Report(after(tt.end), Meta{})); diff != "" {
			t.Errorf("%v ms: a report changes the next (-first +second):\n%s", tt.end, diff)
		}
	}
}

// A ramp: each second has the mean of the rates in it.
func TestTargets(t *testing.T) {
	r := recorded(op(0, 0, 1), op(0, 0, 2200)) // the second one ends after the schedule
	r.SetTarget(t0, 10)
	r.SetTarget(after(500), 30)
	r.SetTarget(after(2000), 0)
	late := r.Recorder()
	late.Record(op(1900, 1900, 2400))
	got := r.Report(after(2600), Meta{})
	checkSums(t, got)
	for i, want := range []float64{20, 30, 0} {
		if p := got.Series[i]; p.TargetRate != want {
			t.Errorf("second %d: target %v, want %v", i, p.TargetRate, want)
		}
	}
	if got.TargetRate != 25 || got.LoadS != 2 || got.DurationS != 2.6 {
		t.Errorf("target %v over %v of %v s, want 25 over 2 of 2.6 s", got.TargetRate, got.LoadS, got.DurationS)
	}
	if got.AchievedRate != 0.5 { // three ended, one of them before the schedule did
		t.Errorf("achieved %v, want 0.5", got.AchievedRate)
	}
}

// The schedule may pause and go on.
func TestAPause(t *testing.T) {
	r := NewRun(t0)
	rc := r.Recorder()
	r.SetTarget(t0, 10)
	r.SetTarget(after(1000), 0)
	rc.Record(op(900, 900, 1100)) // late, as it seems
	r.Snapshot(after(1500))
	r.SetTarget(after(1200), 0)
	r.SetTarget(after(2000), 10)
	got := r.Report(after(4000), Meta{})
	if got.LoadS != 4 || got.TargetRate != 7.5 || got.AchievedRate != 0.25 {
		t.Errorf("load %v s, target %v, achieved %v; want 4 s, 7.5, 0.25", got.LoadS, got.TargetRate, got.AchievedRate)
	}
}

func TestPointsFarApart(t *testing.T) {
	s := series{width: time.Second}
	o := op(0, 0, 1)
	s.add(0, &o)
	s.add(maxOffset, &o)
	s.add(time.Hour, &o)
	if len(s.points) > maxPoints || s.points[0].ops != 2 || s.points[0].service.total != 2 {
		t.Errorf("%d points, the first has %d operations", len(s.points), s.points[0].ops)
	}
}
