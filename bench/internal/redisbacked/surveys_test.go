package redisbacked

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

var tiny = Sizes{Keys: 50, Rounds: 2, PerRun: 10 * time.Millisecond}

// TestSurveys runs every survey briefly and checks that the answers are plausible.
func TestSurveys(t *testing.T) {
	for _, s := range Surveys(tiny) {
		t.Run(s.Name, func(t *testing.T) {
			a, err := harness.Ask(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a.Missing != "" {
				t.Fatal(a.Missing)
			}
			for i, sub := range s.Subjects {
				for k, f := range s.Figures {
					if v := a.Values[i][k]; !plausible(sub, f, v) {
						t.Errorf("%s, %s: %v %s", sub.Name, f.Name, v, f.Unit)
					}
				}
			}
		})
	}
}

// plausible: throttled fails when a key is hot, and may have no answer at all.
func plausible(sub harness.Subject, f harness.Figure, v float64) bool {
	impatient := sub.Name == "throttled"
	switch {
	case f.Unit == "%":
		return v >= 0 && v <= 100 && (v < 50 || impatient)
	case impatient:
		return v >= 0
	case f.Name == "commands each":
		return v >= 0 && v < 1000 && (v >= 1 || sub.Kind == harness.Weir)
	case strings.HasPrefix(f.Name, "CPU"):
		return v >= 0 && v < 1e6
	}
	return v > 0 && v < 1e7
}

func TestGoals(t *testing.T) {
	type bound struct{ least, most float64 }
	goals := func(s Sizes) map[string]bound {
		found := make(map[string]bound)
		for _, survey := range Surveys(s) {
			for _, f := range survey.Figures {
				if f.Bounded() {
					found[strings.TrimSuffix(survey.Name, ", 64 goroutines")+": "+f.Name] = bound{f.AtLeast, f.AtMost}
				}
			}
		}
		return found
	}
	want := map[string]bound{
		"redis, 1 hot key: times redis_rate":                                                  {least: 10},
		"redis, 100,000 keys: times redis_rate":                                               {least: 3},
		"redis, 1 hot key with plenty of room: times redis_rate":                              {least: 100},
		"redis, 1 hot key with plenty of room: commands each":                                 {most: 0.01},
		"redis, 100,000 keys with plenty of room: times redis_rate":                           {least: 3},
		"redis, 1 hot key of one per second: commands each":                                   {most: 0.0001},
		"redis, 1 key with open reservations, 1 goroutine: times as long as with the fewest":  {most: 3},
		"redis, budget, reserve and settle: pairs/s":                                          {least: 15_000},
		"redis, budget, reserve and settle: commands each":                                    {most: 2.05},
		"redis, budget with open reservations, 1 goroutine: times as long as with the fewest": {most: 3},
	}
	if got := goals(Whole); !maps.Equal(got, want) {
		t.Errorf("goals %v, want %v", got, want)
	}
	delete(want, "redis, 100,000 keys: times redis_rate")
	delete(want, "redis, 100,000 keys with plenty of room: times redis_rate")
	if got := goals(Quick); !maps.Equal(got, want) {
		t.Errorf("goals of a quick run %v, want %v", got, want)
	}
}

// TestMissing makes sure that a machine without Redis is no failure.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, s := range Surveys(tiny) {
		a, err := harness.Ask(s, nil)
		if err != nil || a.Missing != "there is no redis-server on this machine" {
			t.Errorf("%s: missing %q, error %v", s.Name, a.Missing, err)
		}
	}
	if note := Note(); !strings.Contains(note, "one no redis-server") {
		t.Errorf("the note is %q", note)
	}
}
