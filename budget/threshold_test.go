package budget

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

func TestThresholdsValidate(t *testing.T) {
	tests := []struct {
		name string
		t    Thresholds
		want string // "" if they are right
	}{
		{"the defaults", Thresholds{}, ""},
		{"all", Thresholds{Warning: new(1), Pause: new(2), Critical: new(3), Resume: new(1)}, ""},
		{"equal", Thresholds{Warning: new(50), Pause: new(50), Critical: new(50), Resume: new(50)}, ""},
		{"zero", Thresholds{Warning: new(0), Pause: new(0), Critical: new(0), Resume: new(0)}, ""},
		{"a pause at 0", Thresholds{Warning: new(0), Pause: new(0)}, ""},
		{"a warning below the resume mark", Thresholds{Warning: new(60)}, ""},
		{"a pause below the resume mark", Thresholds{Warning: new(50), Pause: new(60)}, ""},
		{"off", Thresholds{Warning: new(Off), Pause: new(Off), Critical: new(Off)}, ""},
		{"no pause", Thresholds{Pause: new(Off), Resume: new(100)}, ""},
		{"negative", Thresholds{Warning: new(-2)}, "budget: Warning -2: must be 0 to 100 percent, or Off"},
		{"above 100", Thresholds{Critical: new(101)}, "budget: Critical 101: must be 0 to 100 percent, or Off"},
		{"only one problem", Thresholds{Warning: new(101)}, "budget: Warning 101: must be 0 to 100 percent, or Off"},
		{"warning above pause", Thresholds{Warning: new(95)}, "budget: Pause 90: must not be less than Warning, which is 95"},
		{"pause above critical", Thresholds{Critical: new(85)}, "budget: Critical 85: must not be less than Pause, which is 90"},
		{"warning above critical", Thresholds{Pause: new(Off), Critical: new(70)}, "budget: Critical 70: must not be less than Warning, which is 80"},
		{"resume above pause", Thresholds{Resume: new(91)}, "budget: Resume 91: must not be more than Pause, which is 90"},
		{"resume off", Thresholds{Resume: new(Off)}, "budget: Resume -1: must be 0 to 100 percent"},
		{"never resumes", Thresholds{Resume: new(0)}, "budget: Resume 0: no utilisation is below 0, so a pause would never end: use at least 1"},
		{
			"several",
			Thresholds{Warning: new(-5), Resume: new(200)},
			"budget: Warning -5: must be 0 to 100 percent, or Off\nbudget: Resume 200: must be 0 to 100 percent",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := tt.t.Validate(); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestGauge(t *testing.T) {
	type step struct {
		used int64 // of 500
		want Level
	}
	tests := []struct {
		name  string
		t     Thresholds
		steps []step
	}{
		{"document 001", Thresholds{}, []step{{400, Warning}, {450, Paused}, {480, Paused}, {449, Paused}, {375, Paused}, {374, Normal}}},
		{"just below", Thresholds{}, []step{{399, Normal}, {449, Warning}, {499, Paused}}},
		{"up at once", Thresholds{}, []step{{500, Critical}, {499, Paused}, {600, Critical}, {0, Normal}}},
		{"a warning ends below the resume mark", Thresholds{}, []step{{400, Warning}, {399, Warning}, {375, Warning}, {374, Normal}, {375, Normal}}},
		{"paused again", Thresholds{}, []step{{450, Paused}, {374, Normal}, {449, Warning}, {450, Paused}}},
		{"a pause ends in a warning", Thresholds{Warning: new(60)}, []step{{450, Paused}, {375, Paused}, {374, Warning}, {300, Warning}, {299, Normal}}},
		{"no distance", Thresholds{Resume: new(90)}, []step{{450, Paused}, {449, Warning}, {400, Warning}, {399, Normal}}},
		{"always paused", Thresholds{Warning: new(0), Pause: new(0)}, []step{{0, Paused}, {500, Critical}, {0, Paused}}},
		{"always warned", Thresholds{Warning: new(0)}, []step{{0, Warning}, {450, Paused}, {374, Warning}}},
		{"never paused", Thresholds{Pause: new(Off)}, []step{{450, Warning}, {500, Critical}, {499, Warning}, {375, Warning}, {374, Normal}}},
		{"never warned", Thresholds{Warning: new(Off)}, []step{{449, Normal}, {450, Paused}, {375, Paused}, {374, Normal}}},
		{"never critical", Thresholds{Critical: new(Off)}, []step{{500, Paused}, {5000, Paused}}},
		{"only critical", Thresholds{Warning: new(Off), Pause: new(Off)}, []step{{499, Normal}, {500, Critical}, {499, Normal}}},
		{"all off", Thresholds{Warning: new(Off), Pause: new(Off), Critical: new(Off)}, []step{{500, Normal}, {0, Normal}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.t.Validate(); err != nil {
				t.Fatal(err)
			}
			var g gauge
			before := Normal
			for i, s := range tt.steps {
				got, changed := g.observe(utilisation(s.used, 500), tt.t.marks())
				if got != s.want || changed != (got != before) {
					t.Errorf("step %d, %d of 500: %v, changed %v; want %v", i, s.used, got, changed, s.want)
				}
				before = got
			}
		})
	}
}

func TestLevelString(t *testing.T) {
	if got := fmt.Sprint(Normal, Warning, Paused, Critical, Level(9)); got != "normal warning paused critical Level(9)" {
		t.Error(got)
	}
}

func TestUtilisation(t *testing.T) {
	tests := []struct{ used, limit, want int64 }{
		{0, 500, 0},
		{400, 500, 800_000},
		{449, 500, 898_000},
		{500, 500, full},
		{1, 3, 333_333},
		{2, 3, 666_666},
		{750, 500, 1_500_000},
		{-5, 500, 0},
		{0, 0, full},
		{5, -1, full},
		{100, 1, maxUtilisation},
		{math.MaxInt64, 1, maxUtilisation},
		{math.MaxInt64, math.MaxInt64, full},
		{math.MaxInt64 / 2, math.MaxInt64, 499_999},
	}
	for _, tt := range tests {
		if got := utilisation(tt.used, tt.limit); got != tt.want {
			t.Errorf("%d of %d: %d, want %d", tt.used, tt.limit, got, tt.want)
		}
	}
}

func TestMeter(t *testing.T) {
	const second = weir.Instant(time.Second)
	const start = 1_700_000_000 * second
	type add struct {
		at   weir.Instant // after start
		used int64        // percent
	}
	tests := []struct {
		name string
		adds []add
		at   weir.Instant
		want int64 // millionths
	}{
		{"nothing", nil, second, 0},
		{"the first counts at once", []add{{0, 90}}, 0, 900_000},
		{"and stays", []add{{0, 90}}, 10 * second, 900_000},
		{"and stays between two slots", []add{{0, 90}}, 10*second + 7_000_000, 900_000},
		{"the last at one instant counts", []add{{0, 90}, {0, 10}}, 0, 100_000},
		{"since the first", []add{{0, 100}, {second / 4, 0}}, second / 2, 500_000},
		{"the time between counts", []add{{0, 0}, {second, 100}}, second + second/4, 250_000},
		{"a short burst", []add{{0, 0}, {5 * second, 100}, {5*second + second/10, 0}}, 5*second + second/2, 100_000},
		{"a burst leaves", []add{{0, 0}, {second, 100}, {second + second/2, 0}}, 2*second + second/4, 250_000},
		{"a burst has left", []add{{0, 0}, {second, 100}, {second + second/2, 0}}, 2*second + second/2, 0},
		{"after a long time", []add{{0, 0}, {3600 * second, 100}}, 3600*second + second/2, 500_000},
		{"used up for a second", []add{{0, 0}, {second, 100}}, 2 * second, full},
		{"a clock that goes back", []add{{second, 80}, {0, 40}}, second, 400_000},
		{"an average in the past", []add{{0, 0}, {second, 100}, {2 * second, 50}}, second, full},
		{"steps", []add{{0, 80}, {second, 90}, {second + second/2, 96}}, 2 * second, 930_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m meter
			for _, a := range tt.adds {
				m.add(start+a.at, a.used, 100)
			}
			for range 2 { // asking changes nothing
				if got := m.average(start + tt.at); got != tt.want {
					t.Errorf("got %d, want %d", got, tt.want)
				}
			}
		})
	}
}

// TestMeterModel compares with a model that remembers everything. They differ by what one slot can hold.
func TestMeterModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var m meter
		var model exactMeter
		at := weir.Instant(r.Int64N(3 * meterSpan))
		for range 100 {
			if r.IntN(10) == 0 {
				at += weir.Instant(r.Int64N(3 * meterSpan))
			} else {
				at += weir.Instant(r.Int64N(meterSpan / 20))
			}
			used := r.Int64N(101)
			m.add(at, used, 100)
			model.add(at, utilisation(used, 100))
			at += weir.Instant(r.Int64N(meterSpan / 50))
			got, want := m.average(at), model.average(at)
			if diff := got - want; diff < -full/meterSlots || diff > full/meterSlots {
				t.Fatalf("at %d: %d, exactly %d", at, got, want)
			}
		}
	}
}

type exactMeter struct {
	at    []weir.Instant
	value []int64
}

func (m *exactMeter) add(at weir.Instant, value int64) {
	m.at, m.value = append(m.at, at), append(m.value, value)
}

func (m *exactMeter) average(at weir.Instant) int64 {
	from := max(m.at[0], at-meterSpan)
	if from == at {
		return m.value[len(m.value)-1]
	}
	var sum int64
	for i, begin := range m.at {
		end := at
		if i+1 < len(m.at) {
			end = m.at[i+1]
		}
		sum += m.value[i] * max(0, int64(end-max(begin, from)))
	}
	return sum / int64(at-from)
}

// TestMeterPauses shows the two together: a burst of 100 ms does not pause, 900 ms above the mark do.
func TestMeterPauses(t *testing.T) {
	const ms = weir.Instant(time.Millisecond)
	var m meter
	var g gauge
	steps := []struct {
		at   weir.Instant
		used int64 // of 500
		want Level
	}{
		{0, 100, Normal},
		{1000 * ms, 500, Normal},
		{1100 * ms, 100, Normal},  // 28 %
		{2100 * ms, 500, Normal},  // 20 %
		{2900 * ms, 500, Warning}, // 84 %
		{3000 * ms, 500, Paused},  // 92 %
		{3125 * ms, 0, Critical},
		{3200 * ms, 0, Paused},
		{3375 * ms, 0, Paused}, // 75 %
		{3400 * ms, 0, Normal}, // 72.5 %
	}
	for _, s := range steps {
		m.add(s.at, s.used, 500)
		if got, _ := g.observe(m.average(s.at), Thresholds{}.marks()); got != s.want {
			t.Errorf("at %v: %v (%d), want %v", time.Duration(s.at), got, m.average(s.at), s.want)
		}
	}
}

// TestLevelsAreLogged: without a callback each change of the level is one line, a warning on the way up (S1.21, S1.31).
func TestLevelsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := document001()
		c.Limits[0].Per, c.Classes, c.Logger = weir.Every(100*time.Hour), []Class{}, slog.New(slog.NewTextHandler(&log, nil))
		a := newAccount(t, c)
		all := controller(t, a, "")
		for _, cost := range []int64{400, 50, 30, 20} {
			try(t, all, cost)
			time.Sleep(2 * time.Second)
			usage(t, a)
		}
		time.Sleep(26 * time.Hour)
		usage(t, a)
		lines := regexp.MustCompile(`level=(\w+) msg="budget: utilisation (\w+)" account=main from=(\w+) utilisation=`).FindAllStringSubmatch(log.String(), -1)
		var got []string
		for _, line := range lines {
			got = append(got, strings.Join(line[1:], " "))
		}
		want := []string{"WARN warning normal", "WARN paused warning", "WARN critical paused", "INFO normal critical"}
		if !slices.Equal(got, want) || strings.Count(log.String(), "\n") != len(want) {
			t.Errorf("%q, want %q:\n%s", got, want, log.String())
		}
	})
}
