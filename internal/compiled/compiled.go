// Package compiled is what package weir shows of a policy to the limiters of this module:
// the limits as package algo counts by them. It is internal, so that users of weir need
// not know of it.
package compiled

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir/algo"
)

// Policy is a policy as stores use it. It must not be changed.
type Policy struct {
	Serial uint64      // no other policy of this process has the same; for caches
	Names  []string    // of the limits
	Rules  []algo.Rule // one for each limit
	Word   *algo.Word  // how the state of all limits shares one word; nil if it needs more
	Fills  []algo.Fill // the share of each limit that is missing at the start

	// SlotsOnly says that all limits are of concurrency, so that reservations need not
	// expire.
	SlotsOnly bool

	// Override says that the limits are for some keys only. Set replaces the limits of a
	// policy wherever they are used, but never those of an override, which may be the same.
	// storeapi.Override sets it before the policy is used.
	Override bool

	// Class is the class of charges under this policy, "" if it has no classes. Policies that
	// differ only in it have the same limits, and act on the same state.
	Class string
}

// Capacity returns the most units that limit i ever admits at once, for charges of the policy's
// class.
func (p *Policy) Capacity(i int) int64 {
	if l, ok := p.Rules[i].(*algo.Lending); ok {
		return l.CapacityOf(p.Class)
	}
	return p.Rules[i].Capacity()
}

// Continues says, for each of p's limits, which of old's it continues: the one with the
// same name, or -1. It is for algo.Ledger.Set.
func (p *Policy) Continues(old *Policy) []int {
	from := make([]int, len(p.Names))
	for i, name := range p.Names {
		from[i] = slices.Index(old.Names, name)
	}
	return from
}

// RefusalConverts says whether a charge under p that is refused leaves a row under p's limits, if it was
// under old's before and has no open holds. In a batch, that is the first charge of the row: RetryAfter is
// computed by the rates of p, so it is right only if the units in use are replenished by them from then on.
// That is so for GCRA, which converts units exactly. Other limits keep the row as it was: units would be lost
// with a window that is shorter. So do limits of the rates that the row is under already: RetryAfter is right.
func (p *Policy) RefusalConverts(old *Policy) bool {
	return p.isGCRA() && old.isGCRA() && !p.hasRatesOf(old)
}

// hasRatesOf says whether two policies of GCRA have limits of the same names and rates.
func (p *Policy) hasRatesOf(o *Policy) bool {
	return slices.Equal(p.Names, o.Names) && slices.EqualFunc(p.Rules, o.Rules, func(r, o algo.Rule) bool {
		return r.(*algo.GCRA).SameRate(o.(*algo.GCRA))
	})
}

func (p *Policy) isGCRA() bool {
	return !slices.ContainsFunc(p.Rules, func(r algo.Rule) bool { _, ok := r.(*algo.GCRA); return !ok })
}

// Bounds of reservations and charges. Package weir documents them under the same names.
const (
	DefaultTTL  = time.Minute
	MaxTTL      = time.Hour
	NoExpiry    = time.Duration(-1)
	MaxKeyBytes = 256
)

// ErrInvalid is weir.ErrInvalid.
var ErrInvalid = errors.New("weir: invalid input")

// ErrLimits is an ErrInvalid: the store cannot count by such limits, or a key has more units
// in use than they can represent. It is the operator's concern, not the caller's.
var ErrLimits = Invalid("the limits do not fit")

// An inputError is an error that wraps ErrInvalid, with a text of its own.
type inputError struct{ text string }

func (e *inputError) Error() string { return "weir: " + e.text }

// Unwrap returns ErrInvalid.
func (e *inputError) Unwrap() error { return ErrInvalid }

// Invalid returns an error that wraps ErrInvalid.
func Invalid(format string, args ...any) error { return &inputError{fmt.Sprintf(format, args...)} }

// Expiry returns when a reservation of ttl made at now ends.
func (p *Policy) Expiry(now int64, ttl time.Duration) (int64, error) {
	now = min(now, algo.Never-1-int64(MaxTTL)) // so that it is not taken for never
	switch {
	case ttl == 0:
		return now + int64(DefaultTTL), nil
	case ttl == NoExpiry && p.SlotsOnly:
		return algo.Never, nil
	case ttl == NoExpiry:
		return 0, Invalid("ttl NoExpiry: only concurrency slots may be held without an expiry")
	case ttl < 0 || ttl > MaxTTL:
		return 0, Invalid("ttl %v: must be positive and at most %v", ttl, MaxTTL)
	}
	return now + int64(ttl), nil
}

// CheckCost returns an error unless 0 ≤ cost ≤ algo.MaxCost.
func CheckCost(cost int64) error {
	if cost < 0 || cost > algo.MaxCost {
		return Invalid("cost %d: must be between 0 and %d", cost, int64(algo.MaxCost))
	}
	return nil
}

// CheckKey returns an error if key is too long. Any bytes may be in it, and the empty key
// is a key like others.
func CheckKey(key string) error {
	if len(key) > MaxKeyBytes {
		return Invalid("key of %d bytes: at most %d fit; hash longer ones", len(key), MaxKeyBytes)
	}
	return nil
}

// Until returns the time from now to at: not less than 0, and the longest duration if at is
// algo.Never.
func Until(at, now int64) time.Duration {
	if d := at - now; d >= 0 && at != algo.Never {
		return time.Duration(d)
	}
	return untilOdd(at, now)
}

// untilOdd is the rare part of Until, apart so that the rest is inlined.
func untilOdd(at, now int64) time.Duration {
	if at > now { // never, or further than a duration reaches
		return math.MaxInt64
	}
	return 0
}
