package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Duration is a length of time such as 25ms or 1m30s.
type Duration struct{ time.Duration }

func (d *Duration) set(text string) (err error) {
	d.Duration, err = time.ParseDuration(text)
	if err != nil || d.Duration <= 0 {
		return errors.New("must be a duration such as 25ms, 10s or 1m30s")
	}
	return nil
}

func (*Duration) pattern() (string, string) {
	return `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`, "25ms"
}

// Per is the length of a limit's period: a duration, or a day, week, month or year of
// the calendar.
type Per struct{ weir.Period }

func (p *Per) set(text string) (err error) {
	err = p.Period.UnmarshalText([]byte(text))
	if err != nil || strings.Contains(text, " ") || !p.isPositive() {
		return errors.New("must be a duration such as 1s or 1m30s, or day, week, month or year")
	}
	return nil
}

func (p *Per) isPositive() bool { return p.isCalendar() || p.Duration() > 0 }

func (p *Per) isCalendar() bool {
	_, zone := p.Calendar()
	return zone != nil
}

func (*Per) pattern() (string, string) {
	return `^(day|week|month|year|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`, "1s"
}

// Zone is the name of a time zone, such as Europe/Berlin.
type Zone struct{ *time.Location }

func (z *Zone) set(text string) (err error) {
	z.Location, err = time.LoadLocation(text)
	if err != nil || text == "" || text == "Local" {
		return errors.New("must be the name of a time zone, such as UTC or Europe/Berlin")
	}
	return nil
}

// Percent is a part of a whole, such as 12.5%, to a hundredth of a percent.
type Percent struct{ ruleset.Share }

func (p *Percent) set(text string) error {
	hundredths, ok := parsePercent(text, 2)
	if !ok {
		return errors.New("must be between 0% and 100%, with at most two digits after the point, such as 12.5%")
	}
	p.Share = ruleset.Share(hundredths) //nolint:gosec // it is at most 10,000
	return nil
}

func (*Percent) pattern() (string, string) { return `^[0-9]{1,3}(\.[0-9]{1,2})?%$`, "12.5%" }

// parsePercent returns a percentage times 10 to the power of digits.
func parsePercent(text string, digits int) (int64, bool) {
	number, ok := strings.CutSuffix(text, "%")
	whole, part, point := strings.Cut(number, ".")
	if !ok || !isDigits(whole) || len(whole) > 3 || point && !isDigits(part) || len(part) > digits {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", digits-len(part)), 10, 64)
	return n, err == nil && n <= 100*int64(math.Pow10(digits))
}

// Initial is how full a limit starts: full, empty or a share such as 50%.
type Initial struct{ weir.Fill }

func (i *Initial) set(text string) error {
	switch text {
	case "full":
		i.Fill = (weir.Fill{})
		return nil
	case "empty":
		i.Fill = weir.Filled(0)
		return nil
	}
	tenThousandths, ok := parsePercent(text, 4)
	if !ok {
		return errors.New("must be full, empty or a share such as 50%")
	}
	i.Fill = weir.Filled(float64(tenThousandths) / 1e6)
	return nil
}

func (*Initial) pattern() (string, string) {
	return `^(full|empty|[0-9]{1,3}(\.[0-9]{1,4})?%)$`, "50%"
}

// Nodes is how many daemons there are: a number, or auto, which is 0.
type Nodes int

func (n *Nodes) set(text string) error {
	if text == "auto" {
		*n = 0
		return nil
	}
	i, err := parseInt(text, 1, maxNodes)
	if err != nil {
		return fmt.Errorf("must be auto or a number from 1 to %d", maxNodes)
	}
	*n = Nodes(i)
	return nil
}

const maxNodes = 10_000
