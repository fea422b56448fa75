package measure

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/internal/golden"
)

// Four operations by hand: each figure can be checked on paper. Percentiles are the upper
// ends of buckets, which are 2 µs wide from 2.048 ms on, and 8 µs to 1 ms in the series.
func TestFiguresAreExact(t *testing.T) {
	r := recorded(
		op(0, 0, 1),                        // service 1, wait 0
		op(500, 501, 503),                  // service 2, wait 1
		failed(1000, 1002, 1005, "503"),    // service 3, wait 2
		failed(1500, 1600, 1700, "refuse"), // service 100, wait 100
	)
	got := r.Report(after(2000), Meta{Target: "x", Connections: 3, Unstarted: 7, Interrupted: true})
	want := Report{
		Target: "x", Started: t0.Time(), Connections: 3, Interrupted: true,
		DurationS: 2, LoadS: 2, AchievedRate: 2,
		Operations: 4, Errors: 2, Codes: map[string]int64{"200": 2, "503": 1, "refuse": 1}, Bytes: 200,
		Unfinished: 7,
		ServiceMS:  Latency{Min: 1, Mean: 26.5, P50: 2, P90: 100, P99: 100, P999: 100, P9999: 100, Max: 100},
		ResponseMS: Latency{Min: 1, Mean: 52.25, P50: 3.001, P90: 200, P99: 200, P999: 200, P9999: 200, Max: 200},
		WaitMS:     Wait{Mean: 25.75, P50: 1, P99: 100, Max: 100, Total: 103},
		Series: []Point{
			{TimeS: 0, WidthS: 1, AchievedRate: 2, Operations: 2, ServiceP50MS: 1.003, ServiceP99MS: 2.007, ResponseP50MS: 1.003, ResponseP99MS: 3.007},
			{TimeS: 1, WidthS: 1, AchievedRate: 2, Operations: 2, Errors: 2, ServiceP50MS: 3.007, ServiceP99MS: 100.351, ResponseP50MS: 5.023, ResponseP99MS: 200.703},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Percentiles agree with a sorted list within the three digits that they have.
func TestPercentilesAgreeWithASortedList(t *testing.T) {
	ops := stalled()
	got := recorded(ops...).Report(after(20_000), Meta{})
	service, response := make([]float64, len(ops)), make([]float64, len(ops))
	for i, o := range ops {
		service[i], response[i] = ms(o.Ended.Sub(o.Started)), ms(o.Ended.Sub(o.Scheduled))
	}
	for name, c := range map[string]struct {
		got   Latency
		times []float64
	}{
		"service":  {got.ServiceMS, service},
		"response": {got.ResponseMS, response},
	} {
		slices.Sort(c.times)
		for _, q := range []struct {
			percent, got float64
		}{{50, c.got.P50}, {90, c.got.P90}, {99, c.got.P99}, {99.9, c.got.P999}, {99.99, c.got.P9999}} {
			rank := int(q.percent/100*float64(len(ops)) + 0.5)
			if want := c.times[rank-1]; math.Abs(q.got-want) > want/1000 {
				t.Errorf("%s p%v = %v ms, the list says %v ms", name, q.percent, q.got, want)
			}
		}
	}
}

// The stall of a second in twenty is in the response time's p99, and hidden in the
// service time's.
func TestAStallIsSeen(t *testing.T) {
	got := recorded(stalled()...).Report(after(20_000), Meta{})
	if p := got.ServiceMS.P99; p != 1 {
		t.Errorf("service p99 = %v ms, want 1: one operation in 2,000 saw the stall", p)
	}
	if p := got.ResponseMS.P99; p < 800 || p > 900 {
		t.Errorf("response p99 = %v ms, want 800 to 900: a fifth of the 5 %% that were due in the stall", p)
	}
	if got.ServiceMS.Max != 1000 || got.ResponseMS.Max != 1000 {
		t.Errorf("max = %v and %v ms, want 1000", got.ServiceMS.Max, got.ResponseMS.Max)
	}
	for _, p := range got.Series {
		quiet := p.TimeS == 10 // nothing ended then
		if quiet != (p.Operations == 0) || quiet != (p.ResponseP99MS == 0) {
			t.Errorf("second %v: %+v", p.TimeS, p)
		}
		if late := p.TimeS == 11; late != (p.ResponseP50MS > 100) {
			t.Errorf("second %v: response p50 = %v ms", p.TimeS, p.ResponseP50MS)
		}
	}
}

// An operation that begins before its time has waited for nothing, and one whose clock
// runs backwards took no time.
func TestEarlyAndBackwards(t *testing.T) {
	got := recorded(op(10, 4, 6), op(10, 10, 7), op(-50, -20, -10)).Report(after(1000), Meta{})
	if got.ResponseMS.Max != 40 || got.ServiceMS.Max != 10 || got.ServiceMS.Min != 0 || got.WaitMS.Max != 30 {
		t.Errorf("service %+v, response %+v, wait %+v", got.ServiceMS, got.ResponseMS, got.WaitMS)
	}
	if len(got.Series) != 1 || got.Series[0].Operations != 3 {
		t.Errorf("series = %+v, want all in the first second", got.Series)
	}
}

// What takes longer than the histograms reach is at their end, and the report says so;
// the maximum is still exact.
func TestTooLong(t *testing.T) {
	hour := ms(time.Hour)
	got := recorded(op(0, 0, hour), op(0, 0, 1), op(0, 0, 600_000)).Report(after(hour), Meta{})
	if got.OverRange != 1 || got.ResponseMS.Max != hour || got.Operations != 3 {
		t.Errorf("over range %d, max %v", got.OverRange, got.ResponseMS.Max)
	}
	if p := got.ResponseMS.P99; p < 600_000 || p > 600_600 {
		t.Errorf("p99 = %v ms, want ten minutes", p)
	}
}

// Times below a microsecond round, and percentiles never leave what was seen.
func TestShortTimes(t *testing.T) {
	got := recorded(op(0, 0, 0.0004), op(0, 0, 0.001234)).Report(after(1000), Meta{})
	want := Latency{Min: 0.0004, Mean: 0.000817, P50: 0.0004, P90: 0.001, P99: 0.001, P999: 0.001, P9999: 0.001, Max: 0.001234}
	if diff := cmp.Diff(want, got.ServiceMS); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoOperations(t *testing.T) {
	empty := NewRun(t0).Report(t0, Meta{})
	if len(empty.Series) != 0 || empty.Series == nil || empty.AchievedRate != 0 {
		t.Errorf("a run that ended at once: %+v", empty)
	}
	r := NewRun(t0)
	r.SetTarget(t0, 10)
	r.Recorder().Begin(after(100), after(100))
	got := r.Report(after(3000), Meta{Unstarted: 29})
	if got.TargetRate != 10 || len(got.Series) != 3 || got.Unfinished != 30 || got.OldestUnfinishedMS != 2900 {
		t.Errorf("three silent seconds: %+v", got)
	}
	for _, r := range []Report{empty, got} {
		checkJSON(t, r)
		checkXML(t, r.SVG())
		if text := text(t, r); !strings.Contains(text, "No operation ended.") {
			t.Errorf("text:\n%s", text)
		}
	}
}

func TestOnlyErrors(t *testing.T) {
	r := recorded(failed(0, 0, 5000, "timeout"), failed(10, 10, 5010, "timeout"))
	got := r.Report(after(6000), Meta{})
	if got.Errors != 2 || got.Operations != 2 || got.Codes["timeout"] != 2 || got.ResponseMS.P50 != 5000 {
		t.Errorf("%+v", got)
	}
	if text := text(t, got); !strings.Contains(text, "2, 100 % of the operations") {
		t.Errorf("text:\n%s", text)
	}
	checkJSON(t, got)
	checkXML(t, got.SVG())
}

// No input makes a report that JSON cannot hold.
func TestStrangeInput(t *testing.T) {
	for _, rate := range []float64{math.NaN(), math.Inf(1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		r := recorded(Op{}, Op{Ended: math.MaxInt64}, Op{Scheduled: 1, Bytes: -5}, op(0, 0, 1))
		r.SetTarget(after(-5), rate)
		r.SetTarget(after(1000), rate)
		r.SetTarget(after(500), rate)
		r.Snapshot(after(-1))
		for _, end := range []float64{-1000, 2000} {
			got := r.Report(after(end), Meta{Target: "\xff\x00<&"})
			checkJSON(t, got)
			checkXML(t, got.SVG())
			text(t, got)
			Thresholds{MaxP99: 1, MinRate: 1}.Check(got)
		}
	}
}

// There are only so many codes.
func TestCodesAreBounded(t *testing.T) {
	r := NewRun(t0)
	rc := r.Recorder()
	for i := range 1000 {
		rc.Record(failed(0, 0, 1, strings.Repeat("x", i)))
	}
	codes := r.Report(after(1000), Meta{}).Codes
	if len(codes) != maxCodes+1 || codes[otherCode] != 1000-maxCodes || codes[""] != 1 {
		t.Errorf("%d codes, of which other %d", len(codes), codes[otherCode])
	}
}

func TestJSON(t *testing.T) {
	file, err := json.MarshalIndent(stalledReport(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/stalled.json", append(file, '\n'))
}

func TestText(t *testing.T) {
	golden.Check(t, "testdata/stalled.txt", []byte(text(t, stalledReport())))
}

func text(t *testing.T, r Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"NaN", "Inf"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%s in:\n%s", bad, b.String())
		}
	}
	return b.String()
}

// checkJSON reads back what it writes: NaN and Inf would be an error.
func checkJSON(t *testing.T, r Report) {
	t.Helper()
	file, err := json.Marshal(r)
	if err != nil {
		t.Errorf("%v in %+v", err, r)
		return
	}
	var back Report
	if err := json.Unmarshal(file, &back); err != nil {
		t.Error(err)
	}
	if back.Operations != r.Operations || len(back.Series) != len(r.Series) {
		t.Errorf("%+v came back as %+v", r, back)
	}
}
