package svg

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	linear := func(lo, hi float64, most int) Axis { return Linear(lo, hi, 0, 100, most) }
	log := func(lo, hi float64) Axis { return Log(lo, hi, 0, 100) }
	nan, inf := math.NaN(), math.Inf(1)
	tests := []struct {
		name string
		axis Axis
		want string // the ticks; the axis ends at the first and last
	}{
		{"linear", linear(0, 100, 6), "0 20 40 60 80 100"},
		{"linear, widened", linear(0, 101, 6), "0 50 100 150"},
		{"linear, from somewhere", linear(3, 17, 6), "0 5 10 15 20"},
		{"linear, below zero", linear(-3, 4, 6), "-4 -2 0 2 4"},
		{"linear, small", linear(0, 0.3, 6), "0 0.1 0.2 0.3"},
		{"linear, large", linear(0, 5500, 6), "0 2000 4000 6000"},
		{"linear, few", linear(0, 5500, 3), "0 5000 10000"},
		{"linear, no room", linear(0, 10, 0), "0 5 10"},
		{"linear, empty", linear(7, 7, 3), "7 7.5 8"},
		{"linear, backwards", linear(7, 3, 3), "7 7.5 8"},
		{"linear, no numbers", linear(nan, inf, 3), "0 0.5 1"},
		{"log, decades", log(1, 10_000), "1 10 100 1000 10000"},
		{"log, few decades", log(1, 100), "1 2 5 10 20 50 100"},
		{"log, widened", log(0.3, 7), "0.2 0.5 1 2 5 10"},
		{"log, less than one", log(12, 13), "10 20"},
		{"log, one value", log(5, 5), "5 10 20 50"},
		{"log, zero", log(0, 5), "1 2 5"},
		{"log, no numbers", log(nan, inf), "1 2 5 10"},
		{"log, all of it", log(0.001, 600_000), "0.001 0.01 0.1 1 10 100 1000 10000 100000 1e+06"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := numbers(tt.axis.Ticks); got != tt.want {
				t.Errorf("ticks = %s, want %s", got, tt.want)
			}
			for _, tick := range tt.axis.Ticks {
				if at := tt.axis.At(tick); at < 0 || at > 100 {
					t.Errorf("tick %g stands at %g, outside", tick, at)
				}
			}
		})
	}
}

// A linear axis never has more ticks than asked for, and holds its range.
func TestLinearKeepsItsPromise(t *testing.T) {
	for hi := 0.013; hi < 1e7; hi *= 1.07 {
		for most := 3; most < 12; most++ {
			for _, lo := range []float64{0, hi / 3, -hi * 0.9} {
				a := Linear(lo, hi, 0, 1, most)
				if len(a.Ticks) > most || len(a.Ticks) < 2 || a.Lo > lo || a.Hi < hi {
					t.Errorf("Linear(%g, %g, most %d) = %v", lo, hi, most, a)
				}
			}
		}
	}
}

func TestTimeAxis(t *testing.T) {
	tests := []struct {
		total time.Duration
		most  int
		want  string
	}{
		{0, 6, "0 ms, 1 ms"},
		{450 * time.Millisecond, 6, "0 ms, 100 ms, 200 ms, 300 ms, 400 ms"},
		{20 * time.Second, 6, "0 s, 5 s, 10 s, 15 s, 20 s"},
		{20_100 * time.Millisecond, 6, "0 s, 5 s, 10 s, 15 s, 20 s"},
		{30 * time.Second, 8, "0 s, 5 s, 10 s, 15 s, 20 s, 25 s, 30 s"},
		{5 * time.Minute, 8, "0 min, 1 min, 2 min, 3 min, 4 min, 5 min"},
		{2 * time.Minute, 8, "0 s, 30 s, 60 s, 90 s, 120 s"},
		{90 * time.Minute, 8, "0 min, 15 min, 30 min, 45 min, 60 min, 75 min, 90 min"},
		{24 * time.Hour, 8, "0 h, 6 h, 12 h, 18 h, 24 h"},
		{1000 * time.Hour, 8, "0 h, 192 h, 384 h, 576 h, 768 h, 960 h"},
	}
	for _, tt := range tests {
		axis, labels := Time(tt.total, 0, 100, tt.most)
		if got := strings.Join(labels, ", "); got != tt.want || len(labels) != len(axis.Ticks) {
			t.Errorf("Time(%v, %d) = %s at %v, want %s", tt.total, tt.most, got, axis.Ticks, tt.want)
		}
	}
}

func TestPlaces(t *testing.T) {
	up := Linear(0, 10, 200, 100, 3) // from the bottom up
	log := Log(1, 100, 0, 200)
	tests := []struct {
		name string
		axis Axis
		v    float64
		want float64
	}{
		{"low end", up, 0, 200},
		{"high end", up, 10, 100},
		{"between", up, 2.5, 175},
		{"below", up, -5, 200},
		{"above", up, 1e300, 100},
		{"no number", up, math.NaN(), 200},
		{"infinite", up, math.Inf(1), 100},
		{"log", log, 10, 100},
		{"log, low end", log, 1, 0},
		{"log, zero", log, 0, 0},
		{"log, negative", log, -1, 0},
		{"log, above", log, 1000, 200},
	}
	for _, tt := range tests {
		if got := tt.axis.At(tt.v); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: At(%g) = %g, want %g", tt.name, tt.v, got, tt.want)
		}
	}
}

func numbers(values []float64) string {
	var words []string
	for _, v := range values {
		words = append(words, fmt.Sprintf("%.6g", v))
	}
	return strings.Join(words, " ")
}
