package envoyapi

import (
	"fmt"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weirlimit/weir/algo"
)

// Unit is a unit of time. Its values are those of the protocol, both in requests and in responses,
// and not in order of length.
type Unit int32

// The units.
const (
	Second = Unit(rlsv3.RateLimitResponse_RateLimit_SECOND)
	Minute = Unit(rlsv3.RateLimitResponse_RateLimit_MINUTE)
	Hour   = Unit(rlsv3.RateLimitResponse_RateLimit_HOUR)
	Day    = Unit(rlsv3.RateLimitResponse_RateLimit_DAY)
	Month  = Unit(rlsv3.RateLimitResponse_RateLimit_MONTH)
	Year   = Unit(rlsv3.RateLimitResponse_RateLimit_YEAR)
	Week   = Unit(rlsv3.RateLimitResponse_RateLimit_WEEK)
)

// A compile-time check that the units of requests have the same values. They have no week yet.
var _ = [1]struct{}{}[int32(rlsv3.RateLimitResponse_RateLimit_YEAR)-int32(typev3.RateLimitUnit_YEAR)]

const day = 24 * time.Hour

var units = map[Unit]struct {
	name   string
	length time.Duration
}{
	Second: {"second", time.Second},
	Minute: {"minute", time.Minute},
	Hour:   {"hour", time.Hour},
	Day:    {"day", day},
	Week:   {"week", 7 * day},
	Month:  {"month", 30 * day},
	Year:   {"year", 365 * day},
}

// ParseUnit returns the unit with a name, such as "minute".
func ParseUnit(name string) (Unit, bool) {
	for u, x := range units {
		if x.name == name {
			return u, true
		}
	}
	return 0, false
}

func (u Unit) String() string { return units[u].name }

// period is a number of units.
type period struct {
	unit  Unit
	times uint32 // at least 1
}

// length returns the duration of a period.
func (p period) length() (time.Duration, error) {
	unit := units[p.unit].length
	switch {
	case unit == 0:
		return 0, fmt.Errorf("unknown unit %d", p.unit)
	case p.times == 0:
		return 0, fmt.Errorf("unit_multiplier must be at least 1")
	case int64(p.times) > algo.MaxPer/int64(unit):
		return 0, fmt.Errorf("%d %ss are too long: a period has at most 40 years", p.times, units[p.unit].name)
	}
	return unit * time.Duration(p.times), nil
}
