package weir

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/algo"
)

// Period is the length of time that a limit's rate is for. Make one with Every
// or Calendar.
type Period struct {
	every time.Duration
	unit  algo.Unit
	zone  *time.Location
}

// CalendarUnit is the length of a calendar period.
type CalendarUnit = algo.Unit

// The calendar periods. Weeks start on Monday.
const (
	Day   = algo.Day
	Week  = algo.Week
	Month = algo.Month
	Year  = algo.Year
)

// Every returns a period of length d. Windows of it are aligned to the Unix
// epoch, so that those of a minute begin with the minute.
func Every(d time.Duration) Period { return Period{every: d} }

// Calendar returns the days, weeks, months or years of a zone; nil is UTC. Each
// begins at the first instant that has its date there, whatever the zone's
// clocks do at midnight.
func Calendar(unit CalendarUnit, zone *time.Location) Period {
	if zone == nil {
		zone = time.UTC
	}
	return Period{unit: unit, zone: zones.one(zone)}
}

// zones lets periods be equal if their zones are, however often those were loaded.
var zones = zoneSet{byName: map[string][]*time.Location{"UTC": {time.UTC}}, count: 1}

type zoneSet struct {
	mu     sync.Mutex // guards the fields below
	byName map[string][]*time.Location
	count  int
}

// maxZones bounds the zones that are remembered. There are 600 in the database.
const maxZones = 1000

// one returns the first location that had the same name and clocks.
func (s *zoneSet) one(zone *time.Location) *time.Location {
	name := zone.String()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.byName[name] {
		if known == zone || sameClocks(known, zone) {
			return known
		}
	}
	if s.count < maxZones {
		s.byName[name] = append(s.byName[name], zone)
		s.count++
	}
	return zone
}

func (p Period) isCalendar() bool { return p.zone != nil }

// Duration returns the length of a period made by Every, and 0 for a calendar's.
func (p Period) Duration() time.Duration { return p.every }

// Calendar returns the unit and the zone of a calendar's period. The zone of others
// is nil.
func (p Period) Calendar() (CalendarUnit, *time.Location) { return p.unit, p.zone }

// String returns the period as the configuration writes it, such as "1m0s", "day"
// or "month in Europe/Berlin".
func (p Period) String() string {
	switch {
	case !p.isCalendar():
		return p.every.String()
	case p.zone == time.UTC:
		return p.unit.String()
	}
	return fmt.Sprintf("%v in %v", p.unit, p.zone)
}

// parsePeriod is the inverse of String.
func parsePeriod(text string) (Period, error) {
	name, zone, inZone := strings.Cut(text, " in ")
	for unit := Day; unit <= Year; unit++ {
		if name != unit.String() {
			continue
		}
		if !inZone {
			return Calendar(unit, nil), nil
		}
		loc, err := loadZone(zone)
		if err != nil {
			return Period{}, fmt.Errorf("weir: period %q: %w", text, err)
		}
		return Calendar(unit, loc), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || inZone {
		return Period{}, fmt.Errorf("weir: period %q: must be a duration such as 1m30s, or day, week, month or year, which may be in a zone: month in Europe/Berlin", text)
	}
	return Every(d), nil
}

// loadZone is time.LoadLocation, to which no name at all means UTC.
func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, errors.New("the zone has no name")
	}
	return time.LoadLocation(name)
}

// MarshalText returns String. It fails if UnmarshalText would not understand that:
// if the zone is not one of the time zone database, as those of time.FixedZone are
// not.
func (p Period) MarshalText() ([]byte, error) {
	if p.isCalendar() && p.zone != time.UTC {
		zone, err := loadZone(p.zone.String())
		if err != nil || !sameClocks(p.zone, zone) {
			return nil, fmt.Errorf("weir: period %q: cannot be written: the zone is not that of the time zone database; use time.LoadLocation", p)
		}
	}
	return []byte(p.String()), nil
}

// sameClocks says whether the clocks of two zones agree in the winters and summers
// of many years.
func sameClocks(a, b *time.Location) bool {
	for month := range 12 * 20 {
		at := time.Date(2020, time.Month(month), 1, 0, 0, 0, 0, time.UTC)
		_, x := at.In(a).Zone()
		if _, y := at.In(b).Zone(); x != y {
			return false
		}
	}
	return true
}

// UnmarshalText is the inverse of MarshalText.
func (p *Period) UnmarshalText(text []byte) (err error) {
	*p, err = parsePeriod(string(text))
	return err
}

// Fill is how full a limit starts. The zero value is full.
type Fill struct{ missing float64 }

// Filled returns a share between 0 (empty) and 1 (full), to a millionth.
func Filled(share float64) Fill {
	return Fill{missing: math.Round((1-share)*algo.FillSteps) / algo.FillSteps}
}

// String returns the share as a percentage, such as "50%".
func (f Fill) String() string {
	millionths := math.Round((1 - f.missing) * algo.FillSteps)
	return strconv.FormatFloat(millionths/(algo.FillSteps/100), 'f', -1, 64) + "%"
}

// MarshalText returns String.
func (f Fill) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (f *Fill) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	share, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return fmt.Errorf("weir: initial %q: must be a percentage such as 50%%", text)
	}
	*f = Filled(share / 100)
	return nil
}

func (f Fill) millionths() (algo.Fill, error) {
	if !(f.missing >= 0 && f.missing <= 1) { // also refuses NaN
		return 0, badField("initial", f.String(), "must be a share between 0 and 1")
	}
	return algo.Fill(f.missing*algo.FillSteps + 0.5), nil
}

// Bounds returns the beginning and the end of the calendar period that an instant is in, and false
// if the period is none of a calendar.
func (p Period) Bounds(at time.Time) (start, end time.Time, ok bool) {
	if !p.isCalendar() {
		return time.Time{}, time.Time{}, false
	}
	cal := algo.NewCalendar(p.unit, p.zone)
	s, e := cal.Bounds(cal.Number(at.UnixNano()))
	return time.Unix(0, s).In(p.zone), time.Unix(0, e).In(p.zone), true
}
