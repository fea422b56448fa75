package algo_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the zones below, on machines that have none

	"github.com/weirlimit/weir/algo"
	"pgregory.net/rapid"
)

func ExampleNewCalendar() {
	havana, err := time.LoadLocation("America/Havana")
	if err != nil {
		panic(err)
	}
	days := algo.NewCalendar(algo.Day, havana)

	noon := time.Date(2024, 3, 10, 12, 0, 0, 0, havana)
	number := days.Number(noon.UnixNano())
	start, end := days.Bounds(number)
	fmt.Println(number)
	fmt.Println(time.Unix(0, start).In(havana))
	fmt.Println(time.Unix(0, end).In(havana))
	fmt.Println(time.Duration(end - start))
	// Output:
	// 1531
	// 2024-03-10 01:00:00 -0400 CDT
	// 2024-03-11 00:00:00 -0400 CDT
	// 23h0m0s
}

func TestCalendarWindows(t *testing.T) {
	tests := []struct {
		name       string
		zone       string
		unit       algo.Unit
		now        string
		number     int64
		start, end string
	}{
		{"first day", "UTC", algo.Day, "2020-01-01T00:00:00Z", 1, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"},
		{"first week", "UTC", algo.Week, "2020-01-01T00:00:00Z", 1, "2019-12-30T00:00:00Z", "2020-01-06T00:00:00Z"},
		{"first month", "UTC", algo.Month, "2020-01-01T00:00:00Z", 1, "2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z"},
		{"first year", "UTC", algo.Year, "2020-01-01T00:00:00Z", 1, "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"},
		{"still 2019, day", "Pacific/Pago_Pago", algo.Day, "2020-01-01T00:00:00Z", 0, "2019-12-31T11:00:00Z", "2020-01-01T11:00:00Z"},
		{"still 2019, month", "Pacific/Pago_Pago", algo.Month, "2020-01-01T00:00:00Z", 0, "2019-12-01T11:00:00Z", "2020-01-01T11:00:00Z"},
		{"still 2019, year", "Pacific/Pago_Pago", algo.Year, "2020-01-01T00:00:00Z", 0, "2019-01-01T11:00:00Z", "2020-01-01T11:00:00Z"},
		{"long 2020", "Pacific/Kiritimati", algo.Day, "2020-01-01T00:00:00Z", 1, "2019-12-31T10:00:00Z", "2020-01-01T10:00:00Z"},

		{"leap February", "UTC", algo.Month, "2024-02-29T23:59:59.999999999Z", 50, "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"leap day", "UTC", algo.Day, "2024-02-29T12:00:00Z", 1521, "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"leap year", "UTC", algo.Year, "2024-12-31T23:59:59.999999999Z", 5, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"},
		{"2100 is not a leap year", "UTC", algo.Month, "2100-02-28T23:59:59.999999999Z", 962, "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"},
		{"December", "UTC", algo.Month, "2023-12-31T12:00:00Z", 48, "2023-12-01T00:00:00Z", "2024-01-01T00:00:00Z"},
		{"January", "UTC", algo.Month, "2024-01-01T00:00:00Z", 49, "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z"},

		{"Sunday ends the week", "UTC", algo.Week, "2021-01-03T23:59:59.999999999Z", 53, "2020-12-28T00:00:00Z", "2021-01-04T00:00:00Z"},
		{"Monday starts it", "UTC", algo.Week, "2021-01-04T00:00:00Z", 54, "2021-01-04T00:00:00Z", "2021-01-11T00:00:00Z"},
		{"week of two years", "UTC", algo.Week, "2024-12-30T00:00:00Z", 262, "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z"},

		{"23 hours", "Europe/Berlin", algo.Day, "2024-03-31T12:00:00Z", 1552, "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z"},
		{"25 hours", "Europe/Berlin", algo.Day, "2024-10-27T00:30:00Z", 1762, "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z"},
		{"167 hours", "Europe/Berlin", algo.Week, "2024-03-31T12:00:00Z", 222, "2024-03-24T23:00:00Z", "2024-03-31T22:00:00Z"},
		{"half an hour", "Australia/Lord_Howe", algo.Day, "2024-04-07T00:00:00Z", 1559, "2024-04-06T13:00:00Z", "2024-04-07T13:30:00Z"},

		{"no midnight", "America/Havana", algo.Day, "2024-03-10T05:00:00Z", 1531, "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z"},
		{"no midnight, before", "America/Havana", algo.Day, "2024-03-10T04:59:59.999999999Z", 1530, "2024-03-09T05:00:00Z", "2024-03-10T05:00:00Z"},
		{"two midnights", "America/Havana", algo.Day, "2024-11-03T05:30:00Z", 1769, "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"},
		{"no midnight", "Asia/Beirut", algo.Day, "2024-03-31T12:00:00Z", 1552, "2024-03-30T22:00:00Z", "2024-03-31T21:00:00Z"},
		{"back to 23:00 at 24:00", "Asia/Beirut", algo.Day, "2024-10-26T21:30:00Z", 1761, "2024-10-25T21:00:00Z", "2024-10-26T22:00:00Z"},
		{"no midnight", "Africa/Cairo", algo.Day, "2024-04-26T12:00:00Z", 1578, "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"},
		{"no midnight", "Atlantic/Azores", algo.Day, "2024-03-31T12:00:00Z", 1552, "2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"},
		{"no midnight", "America/Santiago", algo.Day, "2023-09-03T12:00:00Z", 1342, "2023-09-03T04:00:00Z", "2023-09-04T03:00:00Z"},
		{"no first midnight of the week", "Asia/Tehran", algo.Week, "2021-03-24T12:00:00Z", 65, "2021-03-21T20:30:00Z", "2021-03-28T19:30:00Z"},
		{"no first midnight of the month", "America/Asuncion", algo.Month, "2023-10-20T12:00:00Z", 46, "2023-10-01T04:00:00Z", "2023-11-01T03:00:00Z"},

		{"before Epoch", "UTC", algo.Day, "1969-07-20T20:17:00Z", 1, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"},
		{"after Horizon", "UTC", algo.Year, "2200-01-01T00:00:00Z", 101, "2120-01-01T00:00:00Z", "2121-01-01T00:00:00Z"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s/%s/%s", test.zone, test.unit, test.name), func(t *testing.T) {
			c := algo.NewCalendar(test.unit, loadZone(t, test.zone))
			wantWindow(t, c, instant(t, test.now), test.number, instant(t, test.start), instant(t, test.end))
		})
	}
}

// TestCalendarOddZones moves what zones did before 2020 into the calendar's range.
func TestCalendarOddZones(t *testing.T) {
	// Samoa crossed the date line, −10 h to +14 h, and had no 30 December.
	samoa := madeZone(t, "", -10*3600, transition{instant(t, "2021-12-30T10:00:00Z"), 14 * 3600})
	// St John's went back an hour at 00:01 until 2011, to 23:01 of the day before.
	stJohns := madeZone(t, "", -9000, transition{instant(t, "2021-11-07T02:31:00Z"), -12600})
	// Kwajalein's way round in 1969: a whole day repeated, +11 h to −12 h, here exactly 24 h.
	again := madeZone(t, "", 12*3600, transition{instant(t, "2021-10-01T12:00:00Z"), -12 * 3600})
	always := madeZone(t, summer, 0)

	tests := []struct {
		name       string
		zone       *time.Location
		unit       algo.Unit
		now        string
		number     int64
		start, end string
	}{
		{"last before the skipped day", samoa, algo.Day, "2021-12-30T09:59:59.999999999Z", 729, "2021-12-29T10:00:00Z", "2021-12-30T10:00:00Z"},
		{"after the skipped day", samoa, algo.Day, "2021-12-30T10:00:00Z", 731, "2021-12-30T10:00:00Z", "2021-12-31T10:00:00Z"},
		{"month with a skipped day", samoa, algo.Month, "2021-12-30T10:00:00Z", 24, "2021-12-01T10:00:00Z", "2021-12-31T10:00:00Z"},
		{"week with a skipped day", samoa, algo.Week, "2021-12-30T10:00:00Z", 105, "2021-12-27T10:00:00Z", "2022-01-02T10:00:00Z"},

		{"a minute into the new day", stJohns, algo.Day, "2021-11-07T02:30:30Z", 677, "2021-11-07T02:30:00Z", "2021-11-08T03:30:00Z"},
		{"its date decreases, its number stays", stJohns, algo.Day, "2021-11-07T03:00:00Z", 677, "2021-11-07T02:30:00Z", "2021-11-08T03:30:00Z"},
		{"the day before is short", stJohns, algo.Day, "2021-11-07T02:29:59.999999999Z", 676, "2021-11-06T02:30:00Z", "2021-11-07T02:30:00Z"},

		{"before the day comes again", again, algo.Day, "2021-10-01T11:59:59.999999999Z", 640, "2021-09-30T12:00:00Z", "2021-10-02T12:00:00Z"},
		{"a day of 48 hours", again, algo.Day, "2021-10-02T11:59:59.999999999Z", 640, "2021-09-30T12:00:00Z", "2021-10-02T12:00:00Z"},
		{"the day after", again, algo.Day, "2021-10-02T12:00:00Z", 641, "2021-10-02T12:00:00Z", "2021-10-03T12:00:00Z"},

		{"the last day of summer", always, algo.Day, "2020-12-31T23:00:00Z", 366, "2020-12-31T00:00:00Z", "2021-01-01T01:00:00Z"},
		{"the first day of summer", always, algo.Day, "2021-01-01T01:00:00Z", 367, "2021-01-01T01:00:00Z", "2021-01-02T00:00:00Z"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := algo.NewCalendar(test.unit, test.zone)
			wantWindow(t, c, instant(t, test.now), test.number, instant(t, test.start), instant(t, test.end))
		})
	}

	skipped := instant(t, "2021-12-30T10:00:00Z")
	if start, end := algo.NewCalendar(algo.Day, samoa).Bounds(730); start != skipped || end != skipped {
		t.Errorf("Bounds of the skipped day = %s, %s, want %s twice", utc(start), utc(end), utc(skipped))
	}
}

// TestCalendarZoneRuleLeapYears walks the last days of the leap years that zone
// data covers by its rule only, where ZoneBounds stands still (golang/go#81583).
func TestCalendarZoneRuleLeapYears(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/Havana", "Pacific/Auckland"} {
		for _, year := range []int{2040, 2044, 2096, 2104} {
			c := algo.NewCalendar(algo.Day, loadZone(t, zone))
			newYear := time.Date(year+1, 1, 1, 0, 0, 0, 0, loadZone(t, zone))
			number := c.Number(newYear.UnixNano())
			for back := range 3 {
				want := newYear.AddDate(0, 0, -back).UnixNano()
				if start, _ := c.Bounds(number - int64(back)); start != want {
					t.Errorf("%s: day %d before %d starts at %s, want %s", zone, back, year+1, utc(start), utc(want))
				}
			}
		}
	}
}

// TestCalendarClamps holds numbers and offsets that nobody should have.
func TestCalendarClamps(t *testing.T) {
	for _, unit := range units {
		c := algo.NewCalendar(unit, nil)
		last := c.Number(algo.Horizon)
		for _, pair := range [][2]int64{{-1, 0}, {-1 << 63, 0}, {last + 1, last}, {1<<63 - 1, last}} {
			start, end := c.Bounds(pair[0])
			wantStart, wantEnd := c.Bounds(pair[1])
			if start != wantStart || end != wantEnd {
				t.Errorf("%s: Bounds(%d) = %d, %d, want those of %d", unit, pair[0], start, end, pair[1])
			}
		}
	}
	for _, hours := range []int{-1000, -25, -24, 24, 25, 1000} {
		c := algo.NewCalendar(algo.Day, time.FixedZone("far", hours*3600))
		want := int64(0)
		if hours > 0 {
			want = 2
		}
		wantWindow(t, c, algo.Epoch, want, algo.Epoch, algo.Epoch+24*int64(time.Hour))
	}
}

func TestCalendarAccessors(t *testing.T) {
	c := algo.NewCalendar(algo.Week, nil)
	if c.Unit() != algo.Week || c.Zone() != time.UTC {
		t.Errorf("NewCalendar(Week, nil) has unit %v and zone %v", c.Unit(), c.Zone())
	}
	got := fmt.Sprint(algo.Day, algo.Week, algo.Month, algo.Year, algo.Unit(9))
	if want := "day week month year Unit(9)"; got != want {
		t.Errorf("units are %q, want %q", got, want)
	}
	for _, unit := range []algo.Unit{0, algo.Year + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewCalendar(%v) did not panic", unit)
				}
			}()
			algo.NewCalendar(unit, nil)
		}()
	}
}

// TestCalendarModel judges windows by a walk over the minutes before them, in
// the world's odder zones and in zones that are odder still.
func TestCalendarModel(t *testing.T) {
	t.Run("real zones", rapid.MakeCheck(func(t *rapid.T) {
		zone := loadZone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		c := algo.NewCalendar(rapid.SampledFrom(units).Draw(t, "unit"), zone)
		checkCalendar(t, c, drawInstant(t, zone))
	}))
	t.Run("made zones", rapid.MakeCheck(func(t *rapid.T) {
		zone, around := drawZone(t)
		c := algo.NewCalendar(rapid.SampledFrom(units).Draw(t, "unit"), zone)
		checkCalendar(t, c, around)
	}))
}

func TestCalendarNumberNeverDecreases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, around := drawZone(t)
		c := algo.NewCalendar(algo.Day, zone)
		var last int64
		for now := around - 3*24*int64(time.Hour); now < around+3*24*int64(time.Hour); now += 17 * int64(time.Minute) {
			number := c.Number(now)
			if number < last {
				t.Fatalf("at %s the number falls from %d to %d", utc(now), last, number)
			}
			last = number
		}
	})
}

// TestCalendarConcurrent has goroutines fight over the cached window.
func TestCalendarConcurrent(t *testing.T) {
	c := algo.NewCalendar(algo.Day, loadZone(t, "America/Havana"))
	edge := instant(t, "2024-03-10T05:00:00Z")
	var wg sync.WaitGroup
	for g := range int64(8) {
		wg.Go(func() {
			for i := range int64(2000) {
				now := edge + (i%7-3)*(g+1)*int64(time.Hour)
				number := c.Number(now)
				if start, end := c.Bounds(number); now < start || now >= end {
					t.Errorf("window %d = [%s, %s) does not hold %s", number, utc(start), utc(end), utc(now))
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestCalendarAllocs(t *testing.T) {
	c := algo.NewCalendar(algo.Month, loadZone(t, "Europe/Berlin"))
	now := instant(t, "2024-03-10T05:00:00Z")
	allocs := testing.AllocsPerRun(1000, func() {
		now += int64(time.Minute)
		c.Bounds(c.Number(now))
	})
	if allocs != 0 {
		t.Errorf("%v allocations per call in the steady state, want 0", allocs)
	}
}

func BenchmarkCalendarNumber(b *testing.B) {
	havana := loadZone(b, "America/Havana")
	b.Run("same window", func(b *testing.B) {
		c := algo.NewCalendar(algo.Day, havana)
		now := instant(b, "2024-03-10T12:00:00Z")
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.Number(now)
			}
		})
	})
	for _, now := range []string{"2024-03-10T12:00:00Z", "2050-03-10T12:00:00Z"} {
		b.Run("another window in "+now[:4], func(b *testing.B) {
			c := algo.NewCalendar(algo.Day, havana)
			now := instant(b, now)
			b.ReportAllocs()
			for b.Loop() {
				c.Number(now)
				c.Number(now + 24*int64(time.Hour))
			}
		})
	}
}

var units = []algo.Unit{algo.Day, algo.Week, algo.Month, algo.Year}

// zones are the odd ones: midnights that do not exist or come twice, changes of
// half an hour, three hours or at odd times, rules that follow the moon, and the
// ends of the range of offsets.
var zones = strings.Fields(`
	Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Juba Africa/Monrovia
	America/Asuncion America/Godthab America/Havana America/New_York
	America/Sao_Paulo America/Santiago America/Scoresbysund America/St_Johns
	America/Tijuana Antarctica/Casey Antarctica/Troll Antarctica/Vostok
	Asia/Amman Asia/Almaty Asia/Beirut Asia/Damascus Asia/Gaza Asia/Kathmandu
	Asia/Tehran Atlantic/Azores Australia/Lord_Howe Europe/Berlin Europe/Dublin
	Europe/Volgograd Pacific/Apia Pacific/Auckland Pacific/Chatham Pacific/Easter
	Pacific/Fiji Pacific/Kiritimati Pacific/Kwajalein Pacific/Norfolk
	Pacific/Pago_Pago UTC`)

// loaded keeps each zone, since loading one parses it anew.
var loaded sync.Map

func loadZone(t rapid.TB, name string) *time.Location {
	t.Helper()
	if zone, ok := loaded.Load(name); ok {
		return zone.(*time.Location)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, zone)
	return zone
}

func instant(t rapid.TB, s string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

func utc(now int64) string { return time.Unix(0, now).UTC().Format(time.RFC3339Nano) }

func wantWindow(t *testing.T, c *algo.Calendar, now, number, start, end int64) {
	t.Helper()
	if got := c.Number(now); got != number {
		t.Errorf("Number(%s) = %d, want %d", utc(now), got, number)
	}
	gotStart, gotEnd := c.Bounds(number)
	if gotStart != start || gotEnd != end {
		t.Errorf("Bounds(%d) = %s, %s, want %s, %s", number, utc(gotStart), utc(gotEnd), utc(start), utc(end))
	}
}

// drawInstant draws an instant, often one near a transition of the zone.
func drawInstant(t *rapid.T, zone *time.Location) int64 {
	now := rapid.Int64Range(algo.Epoch, algo.Horizon).Draw(t, "now")
	if !rapid.Bool().Draw(t, "near a transition") {
		return now
	}
	if _, end := time.Unix(0, now).In(zone).ZoneBounds(); !end.IsZero() {
		now = end.UnixNano()
	}
	near := rapid.Int64Range(-30*int64(time.Hour), 30*int64(time.Hour))
	return min(max(now+near.Draw(t, "apart"), algo.Epoch), algo.Horizon)
}

// summer is a rule for summer time all year, UTC there, and winter never. Go sees
// an hour of winter at New Year, which ZoneBounds denies when asked in December.
const summer = "XXX1YYY,0/0,J365/25"

// drawZone draws a zone that nobody lives in, and an instant of interest there:
// one that changes its offset every few hours for some days, or one with a rule
// that goes on for ever. All is in whole minutes, as the model needs it.
//
// The two are not mixed: for the year that the test runs in, a Location applies
// the rule to instants before the last transition too, and ZoneBounds does not.
func drawZone(t *rapid.T) (zone *time.Location, around int64) {
	rule := rapid.SampledFrom([]string{
		"",
		"XXX3YYY,M10.1.0/0,M3.1.0/0", // 00:00 becomes 01:00 in October, 23:00 in March
		summer,
	}).Draw(t, "rule")
	if rule != "" {
		zone = madeZone(t, rule, 0)
		return zone, drawInstant(t, zone)
	}

	minutes := rapid.IntRange(-24*60, 24*60)
	at := rapid.Int64Range(0, 36500*24*60).Draw(t, "minute")*int64(time.Minute) + algo.Epoch
	around = at + rapid.Int64Range(0, 96*int64(time.Hour)).Draw(t, "later")
	first := 60 * minutes.Draw(t, "first offset")
	var changes []transition
	for range rapid.IntRange(0, 8).Draw(t, "changes") {
		changes = append(changes, transition{at, 60 * minutes.Draw(t, "offset")})
		at += rapid.Int64Range(1, 40*60).Draw(t, "minutes") * int64(time.Minute)
	}
	return madeZone(t, "", first, changes...), min(around, algo.Horizon)
}

// transition is an instant and the offset in seconds from then on.
type transition struct {
	at     int64
	offset int
}

// madeZone writes zone data (RFC 9636) with a first offset, the transitions in
// order, and a rule for the time after them.
func madeZone(t rapid.TB, rule string, first int, changes ...transition) *time.Location {
	t.Helper()
	header := func(times, types int) []byte {
		b := slices.Concat([]byte("TZif2"), make([]byte, 15))
		for _, n := range []int{0, 0, 0, times, types, 4} {
			b = binary.BigEndian.AppendUint32(b, uint32(n))
		}
		return b
	}
	ttinfo := func(offset int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(int32(offset))), 0, 0)
	}
	name := []byte("LMT\x00")
	data := slices.Concat(header(0, 1), ttinfo(first), name, header(len(changes), len(changes)+1))
	for _, change := range changes {
		data = binary.BigEndian.AppendUint64(data, uint64(change.at/int64(time.Second)))
	}
	for i := range changes {
		data = append(data, byte(i+1))
	}
	data = append(data, ttinfo(first)...)
	for _, change := range changes {
		data = append(data, ttinfo(change.offset)...)
	}
	data = slices.Concat(data, name, []byte("\n"+rule+"\n"))
	zone, err := time.LoadLocationFromTZData("made", data)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// checkCalendar judges the window that holds now, and both its edges.
func checkCalendar(t rapid.TB, c *algo.Calendar, now int64) {
	t.Helper()
	number := c.Number(now)
	start, end := c.Bounds(number)
	if number < 0 || now < start || now >= end {
		t.Fatalf("window %d = [%s, %s) should be ≥ 0 and hold %s", number, utc(start), utc(end), utc(now))
	}
	for _, at := range []int64{now, start, start - 1, end - 1, end} {
		if at < algo.Epoch || at > algo.Horizon {
			continue
		}
		got, want := c.Number(at), modelNumber(c, at)
		if got != want {
			t.Fatalf("Number(%s) = %d, want %d", utc(at), got, want)
		}
		if inside := start <= at && at < end; inside != (got == number) {
			t.Fatalf("window %d = [%s, %s), but %s is in %d", number, utc(start), utc(end), utc(at), got)
		}
	}
	// A cache that has seen other windows since, and one that has seen none.
	for _, c := range []*algo.Calendar{c, algo.NewCalendar(c.Unit(), c.Zone())} {
		if s, e := c.Bounds(number); s != start || e != end {
			t.Fatalf("Bounds(%d) = %s, %s and then %s, %s", number, utc(start), utc(end), utc(s), utc(e))
		}
	}
}

// modelNumber is the slow, obvious answer: the number of the latest local date
// that any instant up to now has had. Offsets of at most a day let no date from
// more than two days ago be the latest, and zones in whole minutes let the date
// change at whole minutes only.
func modelNumber(c *algo.Calendar, now int64) int64 {
	var latest int64
	minute := int64(time.Minute)
	for at := (now/minute - 48*60) * minute; at <= now; at += minute {
		latest = max(latest, dateNumber(c.Unit(), time.Unix(0, at).In(c.Zone())))
	}
	return latest
}

// dateNumber numbers a local date, with the window of 2020-01-01 as 1.
func dateNumber(unit algo.Unit, local time.Time) int64 {
	y, m, d := local.Date()
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	days := date.Sub(time.Date(2019, 12, 31, 0, 0, 0, 0, time.UTC)) / (24 * time.Hour)
	switch unit {
	case algo.Day:
		return int64(days)
	case algo.Week: // 2019-12-31 was a Tuesday
		return int64(days+8) / 7
	case algo.Month:
		return int64(y*12+int(m)) - (2019*12 + 12)
	default:
		return int64(y - 2019)
	}
}
