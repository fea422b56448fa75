package weir

import (
	"fmt"
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
	return Period{unit: unit, zone: zone}
}

func (p Period) isCalendar() bool { return p.zone != nil }

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

// Fill is how full a limit starts. The zero value is full.
type Fill struct{ missing float64 }

// Full is the default: the whole burst is there at the start. Empty is the
// opposite.
var (
	Full  = Fill{}
	Empty = Fill{missing: 1}
)

// Filled returns a share between 0 (empty) and 1 (full), to a millionth.
func Filled(share float64) Fill { return Fill{missing: 1 - share} }

// String returns the share as a percentage.
func (f Fill) String() string { return fmt.Sprintf("%.4g%%", 100*(1-f.missing)) }

func (f Fill) millionths() (algo.Fill, error) {
	if !(f.missing >= 0 && f.missing <= 1) { // also refuses NaN
		return 0, badField("initial", f.String(), "must be a share between 0 and 1")
	}
	return algo.Fill(f.missing*algo.FillSteps + 0.5), nil
}
