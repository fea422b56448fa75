package mockrpc

import (
	"math"
	"time"
)

// account is the limits of an Account.
type account struct {
	name     string
	limits   []limit
	observed rolling // what was admitted, for Stats
	units    int64   // all of it

	notBefore time.Duration // when the last Retry-After that was sent has passed
}

func newAccount(c Config, a Account) *account {
	own := &account{name: a.Name, observed: rolling{most: math.MaxInt64, period: span}}
	if c.Preset == Alchemy {
		seconds := int64(span / time.Second)
		own.limits = []limit{newBucket(a.Rate, span), &rolling{most: a.Rate * seconds, period: span}}
		return own
	}
	if a.Rate > 0 {
		own.limits = append(own.limits, &rolling{most: a.Rate, period: time.Second})
	}
	if a.PerMinute > 0 {
		own.limits = append(own.limits, &rolling{most: a.PerMinute, period: time.Minute})
	}
	return own
}

// capacity is the most that the account ever admits at once.
func (a *account) capacity() int64 {
	most := int64(math.MaxInt64)
	for _, l := range a.limits {
		most = min(most, l.capacity())
	}
	return most
}

// take charges units to all limits and returns 0. Or it charges nothing and returns how long it is until all
// of them have room.
func (a *account) take(now time.Duration, units int64) (wait time.Duration) {
	if units == 0 {
		return 0
	}
	for _, l := range a.limits {
		wait = max(wait, l.wait(now, units))
	}
	if wait > 0 {
		return wait
	}
	for _, l := range a.limits {
		l.take(now, units)
	}
	a.observed.take(now, units)
	a.units += units
	return 0
}
