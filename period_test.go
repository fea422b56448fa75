package weir

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algo"
)

func loadZoneT(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func TestPeriodText(t *testing.T) {
	tests := map[string]Period{
		"1m0s":                      Every(time.Minute),
		"1ns":                       Every(1),
		"2562047h47m16.854775807s":  Every(math.MaxInt64),
		"-2562047h47m16.854775808s": Every(math.MinInt64),
		"0s":                        {}, // of concurrency
		"day":                       Calendar(Day, nil),
		"week":                      Calendar(Week, time.UTC),
		"month in Europe/Berlin":    Calendar(Month, loadZoneT(t, "Europe/Berlin")),
		"year in America/New_York":  Calendar(Year, loadZoneT(t, "America/New_York")),
		"day in Local":              Calendar(Day, time.Local),
		"day in EST":                Calendar(Day, loadZoneT(t, "EST")),
	}
	for text, p := range tests {
		got, err := p.MarshalText()
		if err != nil || string(got) != text {
			t.Errorf("%+v is written as %q, want %q: %v", p, got, text, err)
		}
		var back Period
		if err := back.UnmarshalText([]byte(text)); err != nil || back != p {
			t.Errorf("%q is read as %+v, want %+v: %v", text, back, p, err)
		}
	}
	if back, _ := parsePeriod("day in UTC"); back != Calendar(Day, nil) {
		t.Errorf("UTC by its name: %+v", back)
	}
}

func TestBadPeriodText(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "must be a duration such as 1m30s",
		"minute":              "or day, week, month or year",
		"Day":                 "must be",
		"days":                "must be",
		"1":                   "must be",
		"1m in Europe/Berlin": "must be",
		"fortnight in UTC":    "must be",
		"day in ":             "the zone has no name",
		"day in Nowhere":      "unknown time zone Nowhere",
		"day in ../../passwd": "time", // LoadLocation's own words
		"day  in UTC":         "must be",
	} {
		if p, err := parsePeriod(text); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `weir: period "`) {
			t.Errorf("%q: %+v, error %v, want %q", text, p, err, want)
		}
	}
}

// Periods are equal if their zones are, and not if those only have one name.
func TestZonesAreOne(t *testing.T) {
	tests := []struct {
		a, b *time.Location
		same bool
	}{
		{loadZoneT(t, "Asia/Tokyo"), loadZoneT(t, "Asia/Tokyo"), true},
		{time.FixedZone("here", 60), time.FixedZone("here", 60), true},
		{time.FixedZone("here", 60), time.FixedZone("here", 120), false},
		{time.FixedZone("UTC", 0), time.UTC, true},
		{time.FixedZone("UTC", 60), time.UTC, false},
		{loadZoneT(t, "Europe/Berlin"), loadZoneT(t, "Europe/Paris"), false}, // the same clocks today
	}
	for _, tt := range tests {
		if a, b := Calendar(Day, tt.a), Calendar(Day, tt.b); (a == b) != tt.same {
			t.Errorf("%v and %v: equal is %v", a, b, a == b)
		}
	}
}

// A zone that could not be read again, or only as another one, is not written.
func TestUnwritableZones(t *testing.T) {
	for _, zone := range []*time.Location{
		time.FixedZone("east", 3600), time.FixedZone("", 3600), time.FixedZone("UTC", 3600), time.FixedZone("CET", 3600),
	} {
		p := Calendar(Day, zone)
		if text, err := p.MarshalText(); err == nil || !strings.Contains(err.Error(), "time.LoadLocation") {
			t.Errorf("%+v is written as %q: %v", p, text, err)
		}
	}
	if _, err := json.Marshal(Limit{Rate: 1, Per: Calendar(Day, time.FixedZone("east", 3600))}); err == nil {
		t.Error("a limit with such a zone is written")
	}
}

// Every share that a Fill can be comes back exactly.
func TestFillText(t *testing.T) {
	step := 997 // a prime, so that all digits occur
	if long {
		step = 1
	}
	for n := 0; n <= algo.FillSteps; n += step {
		f := Filled(float64(n) / algo.FillSteps)
		text, err := f.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back Fill
		if err := back.UnmarshalText(text); err != nil || back != f {
			t.Fatalf("%d millionths: %+v is written as %q and read as %+v: %v", n, f, text, back, err)
		}
		a, _ := f.millionths()
		if b, err := back.millionths(); a != b || err != nil || int(a) != algo.FillSteps-n {
			t.Fatalf("%d millionths count as %d missing, read back as %d: %v", n, a, b, err)
		}
	}
	for f, want := range map[Fill]string{{}: "100%", Filled(0): "0%", Filled(0.5): "50%", Filled(1. / 3): "33.3333%", Filled(0.000001): "0.0001%"} {
		if f.String() != want {
			t.Errorf("%v, want %s", f, want)
		}
	}
}

func TestBadFillText(t *testing.T) {
	for _, text := range []string{"", "%", "50", "half", "5 %", "%50", "50%%", "0,5%"} {
		var f Fill
		if err := f.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "must be a percentage such as 50%") {
			t.Errorf("%q: %v, error %v", text, f, err)
		}
	}
	for _, text := range []string{"101%", "-1%", "NaN%", "Inf%", "1e300%"} { // numbers, and nonsense
		var f Fill
		if err := f.UnmarshalText([]byte(text)); err != nil {
			continue
		}
		if _, err := NewPolicy("p", Limit{Rate: 1, Per: Every(1), Initial: f}); err == nil {
			t.Errorf("%q makes a policy", text)
		}
	}
}

func TestAlgorithmText(t *testing.T) {
	for a := Auto; a <= Concurrency; a++ {
		text, _ := a.MarshalText()
		var back Algorithm
		if err := back.UnmarshalText(text); err != nil || back != a {
			t.Errorf("%v is written as %q and read as %v: %v", a, text, back, err)
		}
	}
	for _, text := range []string{"", "GCRA", "leaky", "algorithm(9)"} {
		var a Algorithm
		if err := a.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "token_bucket") {
			t.Errorf("%q: %v, error %v", text, a, err)
		}
	}
}

// What JSON makes of a policy's limits is the same policy.
func TestLimitsAsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{
			Name:      rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "name"),
			Rate:      rapid.Int64Range(1, 1000).Draw(t, "rate"),
			Algorithm: rapid.SampledFrom([]Algorithm{Auto, GCRA, TokenBucket, FixedWindow, AnchoredWindow, SlidingWindow, SlidingLog, DualWindow}).Draw(t, "algorithm"),
			Per:       rapid.SampledFrom([]Period{Every(time.Second), Every(time.Minute)}).Draw(t, "per"),
			Initial:   Filled(rapid.Float64Range(0, 1).Draw(t, "initial")),
		}
		if l.bursts() {
			l.Burst, l.MaxDebt = rapid.Int64Range(0, 2000).Draw(t, "burst"), rapid.Int64Range(0, 2000).Draw(t, "debt")
		}
		limits := []Limit{l, {Name: "Day", Rate: 1 << 40, Per: Calendar(Day, nil)}, {Rate: 5, Algorithm: Concurrency}}
		p, err := NewPolicy("p", limits...)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(p.Limits())
		var back []Limit
		if err != nil || json.Unmarshal(data, &back) != nil || !slices.Equal(p.Limits(), back) {
			t.Fatalf("%+v is written as %s and read as %+v: %v", p.Limits(), data, back, err)
		}
		if q, err := NewPolicy("p", back...); err != nil || !q.Same(p) {
			t.Fatalf("%s is another policy: %v", data, err)
		}
	})
}

// FuzzParsePeriod: what is read is written, and read as the same.
func FuzzParsePeriod(f *testing.F) {
	for _, text := range []string{"1m30s", "day", "month in Europe/Berlin", "year in UTC", "day in Local", "-1.5h", "week in ", "day in in UTC"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePeriod(text)
		if err != nil {
			if p != (Period{}) {
				t.Fatalf("%q: %+v beside the error %v", text, p, err)
			}
			return
		}
		again, err := p.MarshalText()
		if err != nil {
			t.Fatalf("%q is read as %+v and not written: %v", text, p, err)
		}
		back, err := parsePeriod(string(again))
		if err != nil || p != back {
			t.Fatalf("%q is read as %+v, written as %q and read as %+v: %v", text, p, again, back, err)
		}
	})
}
