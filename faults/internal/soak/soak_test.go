package soak

import (
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// series makes one of values that are a minute apart.
func series(values ...float64) *Series {
	s := &Series{Name: "memory"}
	for i, v := range values {
		s.Samples = append(s.Samples, Sample{At: time.Duration(i) * time.Minute, RSS: v * (1 << 20), Goroutines: v, FDs: v})
	}
	return s
}

func TestSlope(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"nothing", nil, 0},
		{"one", []float64{5}, 0},
		{"flat", []float64{5, 5, 5, 5, 5}, 0},
		{"grows after the start only", []float64{0, 90, 90, 90, 90, 90}, 0},
		{"a unit each minute", []float64{0, 1, 2, 3, 4, 5, 6}, 10},
		{"less", []float64{9, 9, 9, 9, 8, 7, 6}, -10},
		{"as in the comment", []float64{0, 0, 0, 10, 12, 11, 13}, 8},
	} {
		if got := series(tt.values...).Slope(RSS); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPage(t *testing.T) {
	p := &Page{
		Date: time.Unix(0, 0), Machine: "a machine", Race: 5 * time.Minute,
		Series: []*Series{series(1, 2, 3), series(4, 5, 6, 7)},
		Rows:   []string{Row("RSS", 0.5, "< 1", true), Row("files", 9, "< 5", false)},
	}
	file := filepath.Join(t.TempDir(), "page.md")
	if err := p.WriteInto(file); err == nil {
		t.Error("there is no file")
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n" + Begin)
	if err := p.WriteInto(file); err == nil {
		t.Error("there is no end")
	}
	write("before\n" + Begin + "\nstale\n" + End + "\nafter\n")
	if err := p.WriteInto(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n" + Begin, End + "\nafter\n", "| RSS | 0.50 | < 1 | yes |", "| files | 9.00 | < 5 | **no** |",
		"| 0 s | 1.0 | 0.0 | 1 | 1 | 4.0 | 0.0 | 4 | 4 |", "| 2.0 min | 3.0 | 0.0 | 3 | 3 | 6.0 | 0.0 | 6 | 6 |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "stale") {
		t.Error("what was there before is still there")
	}
}

func TestPicture(t *testing.T) {
	p := &Page{Series: []*Series{series(1, 2, 3), series(4, 5, 6)}}
	for d := xml.NewDecoder(strings.NewReader(string(p.SVG()))); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
