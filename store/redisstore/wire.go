package redisstore

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// wireLimit is the form of a limit in records in Redis.
type wireLimit struct {
	Name      string         `json:"name"`
	Rate      int64          `json:"rate"`
	Per       string         `json:"per,omitempty"`
	Zone      *wireZone      `json:"zone,omitempty"`
	Burst     int64          `json:"burst,omitempty"`
	Algorithm weir.Algorithm `json:"algorithm"`
	Initial   weir.Fill      `json:"initial"`
	MaxDebt   int64          `json:"max_debt,omitempty"`
	Classes   weir.Classes   `json:"classes,omitzero"`
	Pace      string         `json:"pace,omitempty"`
}

// wireZone is a zone with one fixed offset, which is not in the time zone database.
type wireZone struct {
	Name   string `json:"name"`
	Offset int    `json:"offset"` // seconds east of UTC
	Unit   string `json:"unit"`
}

func wireLimits(p *weir.Policy) ([]wireLimit, error) {
	var list []wireLimit
	for _, l := range p.Limits() {
		w := wireLimit{Name: l.Name, Rate: l.Rate, Burst: l.Burst, Algorithm: l.Algorithm, Initial: l.Initial, MaxDebt: l.MaxDebt, Classes: l.Classes, Pace: l.Pace}
		if err := w.setPer(l.Per); l.Algorithm != weir.Concurrency && err != nil {
			return nil, fmt.Errorf("limit %q: %w", l.Name, err)
		}
		list = append(list, w)
	}
	return list, nil
}

// setPer writes a period as text or, if its zone is not in the time zone database but has
// one fixed offset, as a wireZone.
func (w *wireLimit) setPer(p weir.Period) error {
	text, err := p.MarshalText()
	if err == nil {
		w.Per = string(text)
		return nil
	}
	unit, zone := p.Calendar()
	if zone == nil {
		return err
	}
	t := time.Now().In(zone)
	name, offset := t.Zone()
	if begin, end := t.ZoneBounds(); !begin.IsZero() || !end.IsZero() {
		return err // the offset changes, and other processes cannot know when
	}
	w.Zone = &wireZone{name, offset, unit.String()}
	return nil
}

var calendarUnits = map[string]weir.CalendarUnit{
	weir.Day.String(): weir.Day, weir.Week.String(): weir.Week, weir.Month.String(): weir.Month, weir.Year.String(): weir.Year,
}

func (w *wireLimit) limit() (weir.Limit, error) {
	l := weir.Limit{Name: w.Name, Rate: w.Rate, Burst: w.Burst, Algorithm: w.Algorithm, Initial: w.Initial, MaxDebt: w.MaxDebt, Classes: w.Classes, Pace: w.Pace}
	switch {
	case w.Zone != nil:
		unit, ok := calendarUnits[w.Zone.Unit]
		if !ok {
			return weir.Limit{}, fmt.Errorf("limit %q: %q is not a calendar unit", w.Name, w.Zone.Unit)
		}
		l.Per = weir.Calendar(unit, time.FixedZone(w.Zone.Name, w.Zone.Offset))
	case w.Per != "":
		if err := l.Per.UnmarshalText([]byte(w.Per)); err != nil {
			return weir.Limit{}, fmt.Errorf("limit %q: %w", w.Name, err)
		}
	}
	return l, nil
}
