package weirhttp

import (
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Quota is a limit as header fields name it. The text of its fields is made once,
// by NewQuota. The zero value is no quota.
type Quota struct {
	policy string // its member of RateLimit-Policy, such as "api";q=100;w=1
	member string // the start of its RateLimit field, such as "api";r=

	// rest is, for GCRA and the token bucket, how long all of the burst but one
	// unit takes to come back, rounded down; otherwise 0. See untilMore.
	rest time.Duration
}

// NewQuota returns the quota of a limit. The name is what weir.Policy.LimitName
// returns, such as "api.daily". The unit is what is counted, such as "tokens"; ""
// is "requests", which goes without saying. Limits of concurrency count
// "concurrent-requests" whatever the unit is.
func NewQuota(name string, l weir.Limit, unit string) Quota {
	b := appendString(nil, name)
	q := Quota{member: string(b) + ";r="}
	b = append(b, ";q="...)
	b = appendNumber(b, capacity(l))
	if w := window(l); w > 0 {
		b = append(b, ";w="...)
		b = appendNumber(b, w)
	}
	if u := unitOf(l, unit); u != "" {
		b = append(b, ";qu="...)
		b = appendString(b, u)
	}
	q.policy = string(b)
	if bursts(l) && l.Classes == (weir.Classes{}) { // a class is reset sooner or later than the whole limit
		q.rest = refill(l)
	}
	return q
}

// String returns the quota's member of RateLimit-Policy.
func (q Quota) String() string { return q.policy }

// Quotas are all the quotas that one charge is made against, in the order of the
// policy. Make them with NewQuotas or PolicyQuotas; the zero value has none.
type Quotas struct {
	list []Quota

	// policy is the value of RateLimit-Policy, or nil. All responses share it, so
	// it has no room: who appends to it gets a copy.
	policy []string
}

// NewQuotas returns quotas that share a header field. A zero Quota keeps its index and is
// left out of the field: it is for limits that clients should not see.
func NewQuotas(list ...Quota) Quotas {
	var members []string
	for _, q := range list {
		if q.policy != "" {
			members = append(members, q.policy)
		}
	}
	if len(members) == 0 {
		return Quotas{}
	}
	return Quotas{list: slices.Clone(list), policy: []string{strings.Join(members, ", ")}}
}

// PolicyQuotas returns the quotas of a policy's limits, all of the same unit, in
// the order in which weir.Decision.By counts them.
func PolicyQuotas(p *weir.Policy, unit string) Quotas {
	var list []Quota
	for i, l := range p.Limits() {
		list = append(list, NewQuota(p.LimitName(i), l, unit))
	}
	return NewQuotas(list...)
}

// VariantQuotas returns the quotas of the limits of a policy of package ruleset, in the order in which
// ruleset.Verdict.Limit counts them. Limits that are hidden or in shadow are zero Quotas, so that
// clients do not see them. It is made once for each variant.
func VariantQuotas(v *ruleset.Variant) Quotas { return v.Derived(newQuotas).(Quotas) }

func newQuotas(v *ruleset.Variant) any {
	var list []Quota
	for i, l := range v.Limits() {
		var q Quota
		if l.Mode == ruleset.Enforce && !l.Hidden {
			q = NewQuota(v.LimitName(i), l.Limit, l.Unit)
		}
		list = append(list, q)
	}
	return NewQuotas(list...)
}

// Shows says whether clients are shown the limit at an index.
func (q Quotas) Shows(i int) bool { return i >= 0 && i < len(q.list) && q.list[i].policy != "" }

// String returns the value of RateLimit-Policy, "" if there are no quotas.
func (q Quotas) String() string { return strings.Join(q.policy, ", ") }

// bursts says whether the limit has a burst and fills it bit by bit. Limits that
// went through no policy may still say Auto.
func bursts(l weir.Limit) bool {
	_, zone := l.Per.Calendar()
	switch l.Algorithm {
	case weir.GCRA, weir.TokenBucket, weir.Lending:
		return l.Rate > 0
	case weir.Auto:
		return l.Rate > 0 && zone == nil
	}
	return false
}

// capacity returns the most that the limit admits at once.
func capacity(l weir.Limit) int64 {
	if bursts(l) && l.Burst > 0 {
		return l.Burst
	}
	return l.Rate
}

// window returns the seconds in which the whole quota comes back, 0 for slots, which
// come back when they are let go.
func window(l weir.Limit) int64 {
	unit, zone := l.Per.Calendar()
	switch {
	case l.Algorithm == weir.Concurrency:
		return 0
	case zone != nil:
		return nominal(unit)
	case bursts(l):
		return ceilSeconds(capacity(l), l.Per.Duration(), l.Rate)
	}
	return ceilSeconds(1, l.Per.Duration(), 1)
}

// nominal returns the seconds of a calendar's unit. Headers have one number for
// months that differ.
func nominal(unit weir.CalendarUnit) int64 {
	const day = 86400
	switch unit {
	case weir.Day:
		return day
	case weir.Week:
		return 7 * day
	case weir.Month:
		return 30 * day
	case weir.Year:
		return 365 * day
	}
	return 0
}

// unitOf returns the unit as fields have it, "" for the default.
func unitOf(l weir.Limit, unit string) string {
	switch {
	case l.Algorithm == weir.Concurrency:
		return "concurrent-requests"
	case unit == "requests":
		return ""
	}
	return unit
}

// ceilSeconds returns ⌈n × per / rate⌉ in seconds, between 1 and 15 digits. The
// product may need more than 64 bits; this is not on the path of a request.
func ceilSeconds(n int64, per time.Duration, rate int64) int64 {
	nanos := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(per)))
	second := new(big.Int).Mul(big.NewInt(rate), big.NewInt(int64(time.Second)))
	whole, rest := new(big.Int).QuoRem(nanos, second, new(big.Int))
	if !whole.IsInt64() {
		return maxInteger
	}
	if rest.Sign() > 0 {
		return max(1, clamp(whole.Int64()+1))
	}
	return max(1, clamp(whole.Int64()))
}

// refill returns ⌊(burst − 1) × per / rate⌋, or 0 if that is more than a Duration.
func refill(l weir.Limit) time.Duration {
	n := new(big.Int).Mul(big.NewInt(capacity(l)-1), big.NewInt(int64(l.Per.Duration())))
	if n.Quo(n, big.NewInt(l.Rate)); !n.IsInt64() {
		return 0
	}
	return max(0, time.Duration(n.Int64()))
}
