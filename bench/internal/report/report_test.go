package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sample() *Report {
	return &Report{
		Machine: Machine{
			CPU: "Abacus <2> & Sons", Cores: 2, System: "linux/amd64", Go: "go1.26.8",
			Modules: map[string]string{"golang.org/x/time": "v0.16.0", "example.com/limiter": "v1.1.0", "example.com/indirect": "v1.0.0"},
		},
		Date:     time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Settings: harness.Settings{Rounds: 25, PerRun: 60 * time.Millisecond},
		Sections: []Section{
			{Title: "One limiter", Chart: "chart.svg", Results: singleResults()},
			{Title: "Many keys", Note: "Keys are short.", Chart: "chart-keyed.svg", Results: keyedResults(), Answers: keyedAnswers()},
			{Title: "Pacing", Chart: "chart-pacing.svg", ChartFigure: "achieved / target", Results: pacingResults(), Answers: pacingAnswers()},
			{Title: "Redis", Chart: "chart-redis.svg", ChartFigure: "decisions/s", Answers: redisAnswers()},
			{Title: "Beads", Chart: "chart-beads.svg", Answers: missingAnswers()},
		},
	}
}

func singleResults() []harness.Result {
	return []harness.Result{
		{
			Case: harness.Case{
				Name: "allow, 1 goroutine", Note: "Every call is admitted.", Goroutines: 1, Against: "x/time/rate",
				Contenders: []harness.Contender{
					{Name: "weir Single.Allow", Goal: 2.5},
					{Name: "weir Single.Take", Goal: 2.5},
					{Name: "weir Prepaid.Allow"},
					{Name: "x/time/rate", Kind: harness.Peer, Module: "golang.org/x/time"},
					{Name: "failsafe-go", Kind: harness.Peer},
					{Name: "time.Since", Kind: harness.Floor},
				},
			},
			Measurements: []harness.Measurement{
				{Best: 40, Median: 44.44},
				{Best: 40.001, Median: 50, Allocs: 1},
				{Best: 8, Median: 9},
				{Best: 100, Median: 120},
				{Best: 50, Median: 51.23456, Allocs: 0.25},
				{Best: 32, Median: 33},
			},
		},
		{
			Case: harness.Case{
				Name: "clock", Goroutines: 1, Against: "time.Since",
				Contenders: []harness.Contender{{Name: "weir.Now"}, {Name: "time.Since", Kind: harness.Floor}},
			},
			Measurements: []harness.Measurement{{Best: 33, Median: 34}, {Best: 32, Median: 33}},
		},
	}
}

func keyedResults() []harness.Result {
	contenders := []harness.Contender{
		{Name: "weir Table.Take", Goal: 2},
		{Name: "sethvargo", Kind: harness.Peer, Module: "example.com/limiter"},
		{Name: "x/time/rate in a map", Kind: harness.Peer, Module: "golang.org/x/time"},
		{Name: "webriots", Kind: harness.Aside},
	}
	measurements := []harness.Measurement{
		{Best: 30, Median: 40, Runs: []float64{30, 40, 50}},
		{Best: 70, Median: 90, Runs: []float64{70, 90, 110}},
		{Best: 60, Median: 120, Runs: []float64{60, 120, 180}}, // lucky once
		{Best: 20, Median: 25, Runs: []float64{20, 25, 30}},
	}
	hot := harness.Case{Name: "1 hot key, 2 goroutines", Goroutines: 2, Against: harness.BestPeer, Contenders: contenders}
	off := harness.Case{Name: "off the chart", Goroutines: 1, NoChart: true, Against: harness.BestPeer, Contenders: contenders}
	return []harness.Result{
		{Case: hot, Measurements: measurements, Disturbed: 1},
		{Case: off, Measurements: measurements},
	}
}

func keyedAnswers() []harness.Answers {
	return []harness.Answers{
		{
			Survey: harness.Survey{
				Name: "1,000 new keys", Note: "New keys enter an empty limiter.",
				Figures: []harness.Figure{{Name: "insert", Unit: "ns/key"}, {Name: "memory", Unit: "B/key", AtMost: 24}, {Name: "forced collection", Unit: "ms", AtMost: 10}},
				Subjects: []harness.Subject{
					{Name: "weir Table.Take"},
					{Name: "sethvargo", Kind: harness.Peer, Module: "example.com/limiter"},
					{Name: "webriots", Kind: harness.Aside},
				},
			},
			Values: [][]float64{{123.456, 24.0625, 0}, {246.912, 144, 463.2}, {1, 8.4, 1}},
		},
		{
			Survey: harness.Survey{
				Name: "flood", Figures: []harness.Figure{{Name: "evicted"}}, Subjects: []harness.Subject{{Name: "weir Table.Take"}},
			},
			Values: [][]float64{{1000}},
		},
	}
}

func pacingResults() []harness.Result {
	late := func(name string, atMost float64) harness.Case {
		return harness.Case{Name: name, Goroutines: 1, Against: "x/time/rate", Contenders: []harness.Contender{
			{Name: "weir Pacer.Wait", AtMost: atMost},
			{Name: "x/time/rate", Kind: harness.Peer, Module: "golang.org/x/time"},
		}}
	}
	measurements := []harness.Measurement{{Best: 15.004, Median: 16}, {Best: 150, Median: 160}}
	return []harness.Result{
		{Case: late("late", 15.5), Measurements: measurements},
		{Case: late("later", 15), Measurements: measurements},
	}
}

func pacingAnswers() []harness.Answers {
	subjects := []harness.Subject{
		{Name: "weir Pacer.Wait"},
		{Name: "weir Pacer.Wait, plain", NoGoal: true},
		{Name: "x/time/rate", Kind: harness.Peer, Module: "golang.org/x/time"},
		{Name: "uber", Kind: harness.Peer},
	}
	figures := []harness.Figure{{Name: "achieved / target", AtLeast: 0.999, AtMost: 1.0005}, {Name: "CPU", Unit: "cores"}}
	return []harness.Answers{
		{
			Survey: harness.Survey{Name: "slow pace", Figures: figures, Subjects: subjects},
			Values: [][]float64{{0.99985, 0.06}, {0.5, 0.05}, {3.2, 0.9}, {0.03125, 0.01}},
		},
		{
			Survey:    harness.Survey{Name: "fast pace", Figures: figures, Subjects: subjects[:1]},
			Values:    [][]float64{{1.00052, 0.5}},
			Disturbed: 1,
		},
		{
			Survey: harness.Survey{Name: "hits", Figures: []harness.Figure{{Name: "hit", Unit: "%", AtLeast: 90}}, Subjects: subjects[:1]},
			Values: [][]float64{{45}},
		},
	}
}

func redisAnswers() []harness.Answers {
	return append([]harness.Answers{{
		Survey: harness.Survey{
			Name:    "redis, 1 hot key",
			Figures: []harness.Figure{{Name: "decisions/s", More: true}, {Name: "times redis_rate", AtLeast: 10, More: true}},
			Subjects: []harness.Subject{
				{Name: "weir Store.Take"},
				{Name: "redis_rate", Kind: harness.Peer, Module: "example.com/limiter"},
				{Name: "ulule", Kind: harness.Peer},
			},
		},
		Values: [][]float64{{200_000, 8}, {25_000, 1}, {40_000, 1.6}},
	}}, missingAnswers()...)
}

func missingAnswers() []harness.Answers {
	return []harness.Answers{{Survey: harness.Survey{Name: "beads, 1 rod"}, Missing: "there is no abacus on this machine"}}
}

func TestRows(t *testing.T) {
	over := func(a, b float64) float64 { return a / b } // rounded, unlike a constant
	want := []Row{
		{"weir Single.Allow, allow, 1 goroutine", 40, 50, "failsafe-go", "x/time/rate", 2.5, 2.5},
		{"weir Single.Take, allow, 1 goroutine", 40.001, 50, "failsafe-go", "x/time/rate", 100 / 40.001, 2.5},
		{"weir Prepaid.Allow, allow, 1 goroutine", 8, 50, "failsafe-go", "x/time/rate", 12.5, 0},
		{"weir Single.Allow, allow, 1 goroutine, allocations", 0, 0, "x/time/rate", "at most 0", 1, 1},
		{"weir Single.Take, allow, 1 goroutine, allocations", 1, 0, "x/time/rate", "at most 0", 0.5, 1},
		{"weir Prepaid.Allow, allow, 1 goroutine, allocations", 0, 0, "x/time/rate", "at most 0", 1, 1},
		{"weir.Now, clock", 33, 0, "", "time.Since", 32.0 / 33, 0},
		{"weir.Now, clock, allocations", 0, 0, "", "at most 0", 1, 1},
		{"weir Table.Take, 1 hot key, 2 goroutines", 40, 90, "sethvargo", "sethvargo", 90.0 / 40, 2},
		{"weir Table.Take, 1 hot key, 2 goroutines, allocations", 0, 0, "sethvargo", "at most 0", 1, 1},
		{"weir Table.Take, off the chart", 30, 60, "x/time/rate in a map", "x/time/rate in a map", 2, 2},
		{"weir Table.Take, off the chart, allocations", 0, 0, "sethvargo", "at most 0", 1, 1},
		{"weir Table.Take, 1,000 new keys, insert, ns/key", 123.456, 246.912, "sethvargo", "sethvargo", 2, 0},
		{"weir Table.Take, 1,000 new keys, memory, B/key", 24.0625, 144, "sethvargo", "at most 24", 24 / 24.0625, 1},
		{"weir Table.Take, 1,000 new keys, forced collection, ms", 0, 463.2, "sethvargo", "at most 10", 11, 1},
		{"weir Table.Take, flood, evicted", 1000, 0, "", "", 0, 0},
		{"weir Pacer.Wait, late", 15.004, 150, "x/time/rate", "at most 15.5 ns", over(15.5, 15.004), 1},
		{"weir Pacer.Wait, late, allocations", 0, 0, "x/time/rate", "at most 0", 1, 1},
		{"weir Pacer.Wait, later", 15.004, 150, "x/time/rate", "at most 15 ns", over(15, 15.004), 1},
		{"weir Pacer.Wait, later, allocations", 0, 0, "x/time/rate", "at most 0", 1, 1},
		{"weir Pacer.Wait, slow pace, achieved / target", 0.99985, 0.03125, "uber", "0.999 to 1.0005", over(1.0005, 0.99985), 1},
		{"weir Pacer.Wait, slow pace, CPU, cores", 0.06, 0.01, "uber", "uber", over(0.01, 0.06), 0},
		{"weir Pacer.Wait, plain, slow pace, achieved / target", 0.5, 0.03125, "uber", "", 0, 0},
		{"weir Pacer.Wait, plain, slow pace, CPU, cores", 0.05, 0.01, "uber", "uber", over(0.01, 0.05), 0},
		{"weir Pacer.Wait, fast pace, achieved / target", 1.00052, 0, "", "0.999 to 1.0005", over(1.0005, 1.00052), 1},
		{"weir Pacer.Wait, fast pace, CPU, cores", 0.5, 0, "", "", 0, 0},
		{"weir Pacer.Wait, hits, hit, %", 45, 0, "", "at least 90", 0.5, 1},
		{"weir Store.Take, redis, 1 hot key, decisions/s", 200_000, 40_000, "ulule", "ulule", 5, 0},
		{"weir Store.Take, redis, 1 hot key, times redis_rate", 8, 1.6, "ulule", "at least 10", 0.8, 1},
	}
	got := sample().Rows()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
}

func TestMeasured(t *testing.T) {
	for _, s := range sample().Sections {
		if got, want := s.Measured(), s.Title != "Beads"; got != want {
			t.Errorf("%s: measured is %t", s.Title, got)
		}
	}
}

func TestMet(t *testing.T) {
	for _, tt := range []struct {
		ratio, goal float64
		want        bool
	}{
		{2.5, 2.5, true},
		{2.4999, 2.5, false},
		{0.1, 0, true}, // only informs
	} {
		if got := (Row{Ratio: tt.ratio, Goal: tt.goal}).Met(); got != tt.want {
			t.Errorf("ratio %v, goal %v: met is %t", tt.ratio, tt.goal, got)
		}
	}
}

func TestAtMost(t *testing.T) {
	for _, tt := range []struct{ allowed, measured, want float64 }{
		{0, 0, 1},
		{0, 1, 0.5},
		{0, 0.25, 0.8},
		{24, 24, 1},
		{24, 12, 2},
		{24, 0, 25},
		{10, 40, 0.25},
		{10, -40, 11},
	} {
		if got := AtMost(tt.allowed, tt.measured); got != tt.want {
			t.Errorf("AtMost(%v, %v) = %v, want %v", tt.allowed, tt.measured, got, tt.want)
		}
	}
}

func TestWithin(t *testing.T) {
	between := harness.Figure{AtLeast: 0.999, AtMost: 1.0005}
	for _, tt := range []struct {
		f       harness.Figure
		v, want float64
	}{
		{harness.Figure{AtMost: 24}, 12, 2},
		{harness.Figure{AtLeast: 24}, 12, 0.5},
		{harness.Figure{AtLeast: 24}, 0, 0},
		{between, 0.999, 1},
		{between, 1.0005, 1},
		{between, 0.4995, 0.5},
		{between, 2.001, 0.5},
	} {
		if got := within(tt.f, tt.v); got != tt.want || (got >= 1) != tt.f.Good(tt.v) {
			t.Errorf("%v in %+v: %v, want %v", tt.v, tt.f, got, tt.want)
		}
	}
}

func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		file  string
		write func(*Report, io.Writer) error
	}{
		{"report.json", (*Report).WriteJSON},
		{"report.txt", (*Report).WriteText},
		{"report.md", (*Report).WriteMarkdown},
		{"chart.svg", func(r *Report, w io.Writer) error { return r.WriteSVG(w, r.Sections[0]) }},
		{"chart-keyed.svg", func(r *Report, w io.Writer) error { return r.WriteSVG(w, r.Sections[1]) }},
		{"chart-pacing.svg", func(r *Report, w io.Writer) error { return r.WriteSVG(w, r.Sections[2]) }},
		{"chart-redis.svg", func(r *Report, w io.Writer) error { return r.WriteSVG(w, r.Sections[3]) }},
	} {
		t.Run(tt.file, func(t *testing.T) {
			var got bytes.Buffer
			if err := tt.write(sample(), &got); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", tt.file)
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("differs from %s (run with -update after looking):\n%s", path, got.Bytes())
			}
		})
	}
}

// TestJSONGoals makes sure that no goal is met or missed by rounding.
func TestJSONGoals(t *testing.T) {
	r := sample()
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	for _, want := range r.Rows() {
		var got Row
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Met() != want.Met() {
			t.Errorf("%s: met is %t in JSON, %t before", got.Case, got.Met(), want.Met())
		}
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteSVG(&b, sample().Sections[0]); err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	bars := 0
	dec := xml.NewDecoder(&b)
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if tok.Name.Local == "rect" {
				bars++
			}
		case xml.CharData:
			words.Write(tok)
		}
	}
	if want := 1 + 6; bars != want { // the page and a bar each; the clock has no peer
		t.Errorf("%d rectangles, want %d", bars, want)
	}
	for _, want := range []string{"Abacus <2> & Sons", "weir Single.Allow", "100.0 ns"} {
		if !strings.Contains(words.String(), want) {
			t.Errorf("the chart does not say %q", want)
		}
	}
}

func TestCPUModel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpuinfo")
	if err := os.WriteFile(file, []byte("processor\t: 0\nmodel name\t: Abacus: 2\nmodel name\t: other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := cpuModel(file); got != "Abacus: 2" {
		t.Errorf("model %q", got)
	}
	if got := cpuModel(file + "none"); got != "" {
		t.Errorf("model %q of a file that is not there", got)
	}
}

func TestValue(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12: "12", 1.234: "1.23", 23.45: "23.4", 1234.4: "1,234", 1e7: "10,000,000"} {
		if got := value(harness.Figure{AtMost: 0.25}, v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{1: "1.00000", 0.99896: "0.99896", 3.2: "3.20000"} {
		if got := value(harness.Figure{AtLeast: 0.999, AtMost: 1.0005}, v); got != want {
			t.Errorf("%v within fine bounds is written %s, want %s", v, got, want)
		}
	}
}
