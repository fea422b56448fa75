package load

import (
	"strings"
	"testing"
	"time"
)

func TestParseSchedule(t *testing.T) {
	for _, c := range []struct {
		specs []string
		total time.Duration
		ratio float64
		at    map[time.Duration]float64
	}{
		{[]string{"5000"}, 0, 0, map[time.Duration]float64{0: 5000, time.Hour: 5000}},
		{[]string{"5k,1.1"}, 0, 1.1, map[time.Duration]float64{time.Second: 5000}},
		{[]string{"0.5/10s"}, 10 * time.Second, 0, map[time.Duration]float64{0: 0.5, time.Minute: 0.5}},
		{[]string{"100..5000/30s"}, 30 * time.Second, 0, map[time.Duration]float64{0: 100, 15 * time.Second: 2550, 30 * time.Second: 5000, time.Minute: 5000}},
		{[]string{"5000..100/30s,1.5"}, 30 * time.Second, 1.5, map[time.Duration]float64{15 * time.Second: 2550, 30 * time.Second: 100}},
		{
			[]string{"100/10s", "200/10s", "200..400/10s", "1k"},
			0, 0,
			map[time.Duration]float64{0: 100, 10 * time.Second: 200, 25 * time.Second: 300, 30 * time.Second: 1000},
		},
	} {
		s, err := ParseSchedule(c.specs)
		if err != nil {
			t.Errorf("%q: %v", c.specs, err)
			continue
		}
		if s.For() != c.total || s.BurstRatio != c.ratio {
			t.Errorf("%q: %v, ratio %v; want %v, %v", c.specs, s.For(), s.BurstRatio, c.total, c.ratio)
		}
		for elapsed, want := range c.at {
			if got := s.at(elapsed); got != want {
				t.Errorf("%q: %v per second after %v, want %v", c.specs, got, elapsed, want)
			}
		}
	}
}

func TestBadSchedule(t *testing.T) {
	for _, c := range []struct {
		specs []string
		want  string
	}{
		{nil, "no rate"},
		{[]string{""}, `"" is not a rate`},
		{[]string{"0"}, `"0" is not a rate`},
		{[]string{"-5"}, `"-5" is not a rate`},
		{[]string{"NaN"}, `"NaN" is not a rate`},
		{[]string{"5,0.9"}, `"0.9" is not a burst ratio`},
		{[]string{"5,1"}, `"1" is not a burst ratio`},
		{[]string{"5,-1"}, `"-1" is not a burst ratio`},
		{[]string{"5,1.1,stop"}, `"1.1,stop" is not a burst ratio`},
		{[]string{"5,stop"}, `"stop" is not a burst ratio`},
		{[]string{"100..200"}, "a ramp needs a duration"},
		{[]string{"100../10s"}, `"" is not a rate`},
		{[]string{"100..0/10s"}, `"0" is not a rate`},
		{[]string{"100/soon"}, `"soon" is not a duration`},
		{[]string{"100/0s"}, `"0s" is not a duration`},
		{[]string{"100", "200"}, `has no end, but there is "200" after it`},
		{[]string{"100/1s,1.1", "200/1s"}, "another burst ratio"},
		{[]string{"20M"}, "not between 0.001 and 10000000"},
	} {
		if _, err := ParseSchedule(c.specs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.specs, err, c.want)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"5000", "5k,1.1", "500/10s", "100..5000/30s", "1../1s", ",,", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchedule([]string{text})
		if err != nil {
			return
		}
		for _, d := range []time.Duration{0, time.Second, time.Hour} {
			if r := s.at(d); !(r > 0 && r <= maxRate) {
				t.Errorf("%v per second after %v", r, d)
			}
		}
	})
}
