package algo

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Unit is the length of a calendar window. The zero Unit is not valid.
type Unit uint8

// The units. Weeks start on Monday, as in ISO 8601.
const (
	Day Unit = iota + 1
	Week
	Month
	Year
)

// String returns the word the configuration uses, for example "day".
func (u Unit) String() string {
	switch u {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	case Year:
		return "year"
	}
	return fmt.Sprintf("Unit(%d)", uint8(u))
}

// Calendar numbers the days, weeks, months or years of a time zone.
//
// It promises that every instant of [Epoch, Horizon] lies in exactly one
// window, that the number of that window is ≥ 0 and never decreases as time
// advances, and that [Calendar.Bounds] maps the number back to the window.
// Number 1 is the window that holds the date 2020-01-01; number 0 is needed
// because west of Greenwich it is still 2019 at Epoch.
//
// It costs one pointer and one window of 24 bytes. Everything is exact to the
// nanosecond. A lookup of the same window as the last one is one atomic load
// and a few compares; any other instant costs one to four microseconds and one
// allocation.
//
// The formula, for a window whose first date is D:
//
//	midnight(D) = 00:00 of D, read as if the zone were UTC
//	local(t)    = t + offset(t)
//	start(D)    = min { t : local(t) ≥ midnight(D) }
//	number(now) = max { n : start(first date of n) ≤ now }
//
// On a stretch [s, e) of constant offset o the minimum is max(s, midnight − o),
// if that is before e. Offsets are at most a day, so a walk over the stretches
// that begins a day before midnight(D) finds the start within two days.
//
// For example, Cuba's clocks went from 23:59:59 on 2024-03-09 to 01:00:00 on
// 2024-03-10, at 05:00Z, when the offset rose from −5 h to −4 h. In the stretch
// before, midnight − o = 00:00Z + 5 h = 05:00Z, which is no longer in it. In the
// stretch after, max(05:00Z, 00:00Z + 4 h) = 05:00Z: the day starts there, and is
// 23 hours long. time.Date(2024, 3, 10, 0, 0, 0, 0, havana) answers 04:00Z, which
// is 23:00 on the 9th.
//
// The edges:
//
//   - Midnight does not exist: the window starts at the first instant after the
//     gap, as above. Midnight comes twice: it starts at the first one.
//   - Clocks fall back over midnight, so that the local date decreases: the new
//     window has started and stays. The repeated hour of the old date counts as
//     the new one.
//   - A date is skipped (Samoa had no 2011-12-30): its day is empty, start equals
//     end, and no instant has its number.
//   - An instant before Epoch counts as Epoch, one after Horizon as Horizon.
//     The first window may start before Epoch and the last end after Horizon.
//   - An offset of more than a day, which no zone ever had, counts as a day.
//   - Zone data is read once, by whoever made the [time.Location]. Nodes with
//     different versions of it may disagree about future windows.
//
// Sources: ISO 8601 for weeks; RFC 9636 for what zone data can say.
//
// A Calendar is safe for concurrent use. The zero Calendar is not usable; call
// [NewCalendar].
type Calendar struct {
	// Set by NewCalendar, never reassigned.
	unit Unit
	zone *time.Location
	last int64 // the number of the window that holds Horizon

	// recent is the window that Number found last, and is never nil. A window is
	// immutable and true for ever, so the protocol is short: anybody may replace
	// it at any time, with any window. A reader that finds another window than it
	// needs computes its own and stores that. When two store at once one is lost,
	// which costs the loser's next call the computation again and nothing else.
	recent atomic.Pointer[calendarWindow]
}

// calendarWindow is [start, end) and its number.
type calendarWindow struct {
	number, start, end int64
}

// NewCalendar returns the calendar of the zone's days, weeks, months or years.
// A nil zone means UTC. It panics if u is not one of the four units.
func NewCalendar(u Unit, zone *time.Location) *Calendar {
	if u < Day || u > Year {
		panic("algo: NewCalendar: no such unit: " + u.String())
	}
	if zone == nil {
		zone = time.UTC
	}
	c := &Calendar{unit: u, zone: zone}
	c.last = c.find(Horizon).number
	c.recent.Store(c.find(Epoch))
	return c
}

// Unit returns the length of the windows.
func (c *Calendar) Unit() Unit { return c.unit }

// Zone returns the zone whose dates are counted.
func (c *Calendar) Zone() *time.Location { return c.zone }

// Number returns the number of the window that holds now, for example 1527 for
// 2024-03-06 in a calendar of days. It is ≥ 0 and never decreases in now.
// now is clamped to [Epoch, Horizon].
func (c *Calendar) Number(now int64) int64 {
	now = min(max(now, Epoch), Horizon)
	w := c.recent.Load()
	if now < w.start || now >= w.end {
		w = c.find(now)
		c.recent.Store(w)
	}
	return w.number
}

// Bounds returns the first instant of a window and the first instant after it,
// which is the first instant of the next window that is not empty. start equals
// end only for a date the zone skipped, a number that Number never returns.
// number is clamped to [0, Number(Horizon)].
func (c *Calendar) Bounds(number int64) (start, end int64) {
	number = min(max(number, 0), c.last)
	if w := c.recent.Load(); w.number == number {
		return w.start, w.end
	}
	return c.start(number), c.start(number + 1)
}

// find returns the window that holds now. The window of now's local date has
// started, because now itself is ≥ its midnight; a later one may have started too
// if the local date has decreased since, or if a date was skipped.
func (c *Calendar) find(now int64) *calendarWindow {
	offset, _ := c.stretch(now)
	w := &calendarWindow{number: c.holding(now + offset)}
	w.start, w.end = c.start(w.number), c.start(w.number+1)
	for w.end <= now {
		w.number++
		w.start, w.end = w.end, c.start(w.number+1)
	}
	return w
}

// start returns the first instant whose local date is not before the window's
// first date. It never decreases in number.
func (c *Calendar) start(number int64) int64 {
	midnight := c.midnight(number)
	t := midnight - day
	for {
		offset, end := c.stretch(t)
		if first := max(t, midnight-offset); first < end {
			return first
		}
		t = end
	}
}

// stretch returns the zone's offset at t, and an end until which it is certain to
// stay: the next transition or the next midnight UTC, whichever comes first.
//
// It stops at midnight because ZoneBounds cannot be trusted across years: where
// zone data ends and its rule takes over, it answers 2040-12-31T00:00Z even to
// those who ask at noon of that day (golang/go#81583), so a walk would never end;
// and it may answer with an end beyond a New Year at which the offset changes.
func (c *Calendar) stretch(t int64) (offset, end int64) {
	at := time.Unix(0, t).In(c.zone)
	_, seconds := at.Zone()
	offset = int64(seconds) * int64(time.Second)

	until := at.Truncate(24 * time.Hour).Add(24 * time.Hour)
	if _, transition := at.ZoneBounds(); transition.After(at) && transition.Before(until) {
		until = transition
	}
	return min(max(offset, -day), day), until.UnixNano()
}

// midnight returns 00:00 of the window's first date, read as if it were UTC.
// [time.Date] carries what overflows: 2019-12-(31+1) is 2020-01-01.
func (c *Calendar) midnight(number int64) int64 {
	y, m, d := 2019, time.January, 1
	switch n := int(number); c.unit {
	case Day:
		m, d = time.December, 31+n
	case Week:
		m, d = time.December, 23+7*n // 2019-12-23 is a Monday
	case Month:
		m = time.December + time.Month(n)
	case Year:
		y += n
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).UnixNano()
}

// holding is the inverse of midnight: it returns the number of the window that
// holds the date of local, a time of day read as if it were UTC.
func (c *Calendar) holding(local int64) int64 {
	y, m, _ := time.Unix(0, local).UTC().Date()
	switch c.unit {
	case Day:
		return (local - c.midnight(0)) / day
	case Week:
		return (local - c.midnight(0)) / (7 * day)
	case Month:
		return int64(y-2019)*12 + int64(m-time.December)
	default:
		return int64(y - 2019)
	}
}
