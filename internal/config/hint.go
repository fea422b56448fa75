package config

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/algo"
)

// hinted is a type that knows what people write in its place. The hint says what is wrong with a
// text and what to write, "" if that is unknown.
type hinted interface{ hint(text string) string }

func (Units) hint(text string) string {
	if limit := limitIn(text); limit != "" {
		return "is a rate and a period: write " + limit
	}
	if n, ok := new(big.Int).SetString(text, 10); ok && n.String() == text {
		if n.IsInt64() && n.Int64() >= 1 && n.Int64() <= algo.MaxRate {
			return "is in quotes: write " + text
		}
		return fmt.Sprintf("must be between 1 and %d; leave the limit out for no limit", algo.MaxRate)
	}
	number, ok := new(big.Rat).SetString(text)
	switch {
	case !ok || !strings.Contains(text, ".") || len(text) > 12 || number.Sign() <= 0:
		return ""
	case number.IsInt():
		return "is not a whole number in digits: write " + number.Num().String()
	}
	return fmt.Sprintf("is not a whole number: for %s per second, write %s", text, limitIn(text+"/s"))
}

func (*Per) hint(text string) string {
	count, unit, ok := cutPeriod(text)
	switch {
	case !ok:
		return ""
	case count == 1 && unit.calendar != "":
		return "is not a period: write " + unit.calendar
	}
	return "is not a period: write " + unit.times(count)
}

func (*Limit) hint(text string) string    { return limitIn(text) }
func (*Policy) hint(text string) string   { return inLimits(text) }
func (*Override) hint(text string) string { return inLimits(text) }

func inLimits(text string) string {
	if limit := limitIn(text); limit != "" {
		return "{limits: [" + limit + "]}"
	}
	return ""
}

var rateAndPeriod = regexp.MustCompile(`^ *([0-9]{1,12}(?:\.[0-9]{1,6})?) *(?:r|req|requests)?(?:/| per ) *(.*)$`)

// limitIn returns the limit that a text such as 100/s means, "" if it means none.
func limitIn(text string) string {
	found := rateAndPeriod.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	rate, _ := new(big.Rat).SetString(found[1])
	count, unit, ok := cutPeriod(found[2])
	switch {
	case !ok || rate.Sign() == 0:
		return ""
	case count == 1 && unit.calendar != "" && rate.IsInt():
		return fmt.Sprintf("{rate: %v, per: %s}", rate.Num(), unit.calendar)
	}
	return fmt.Sprintf("{rate: %v, per: %s}", rate.Num(), unit.times(count*rate.Denom().Int64()))
}

// unit is a unit of time.
type unit struct {
	hours    int64
	suffix   string
	calendar string // "" for those that are durations
}

func (u unit) times(count int64) string { return strconv.FormatInt(count*u.hours, 10) + u.suffix }

var (
	unitWords = map[string]unit{
		"": {1, "s", ""}, "s": {1, "s", ""}, "sec": {1, "s", ""}, "second": {1, "s", ""},
		"m": {1, "m", ""}, "min": {1, "m", ""}, "minute": {1, "m", ""}, "h": {1, "h", ""}, "hr": {1, "h", ""}, "hour": {1, "h", ""},
		"d": {24, "h", "day"}, "day": {24, "h", "day"}, "w": {7 * 24, "h", "week"}, "week": {7 * 24, "h", "week"},
		"month": {30 * 24, "h", "month"}, "y": {365 * 24, "h", "year"}, "year": {365 * 24, "h", "year"},
	}
	countAndUnit = regexp.MustCompile(`^([0-9]{0,6}) *([a-z]*?)s?$`)
)

// cutPeriod returns the period that people may mean, such as 1 hour by hour, or 60 seconds by 60.
func cutPeriod(text string) (count int64, u unit, ok bool) {
	found := countAndUnit.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if found == nil || found[1]+found[2] == "" && text != "s" {
		return 0, u, false
	}
	u, ok = unitWords[found[2]]
	if found[1] == "" {
		return 1, u, ok
	}
	count, _ = strconv.ParseInt(found[1], 10, 64)
	return count, u, ok && count > 0
}
