package envoyapi

import "github.com/weirlimit/weir"

// Domain is a set of rules, under the name that Envoy asks with.
type Domain struct {
	Name        string
	Descriptors []Descriptor

	// Compat counts as envoyproxy/ratelimit does: each descriptor on its own, and refused
	// hits, too.
	Compat bool

	// NegativeHits lets requests give hits back (is_negative_hits), down to none used.
	// Hits that are counted at the same instant may then be forgotten or, if another daemon
	// gives some back at that very instant, counted twice; with Compat, those that were
	// refused, all but one, are forgotten. The default refuses such requests.
	NegativeHits bool

	// Headers adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the
	// tightest limit to answers.
	Headers bool

	// ShadowMode counts and reports, but admits every request.
	ShadowMode bool
}

// Descriptor is what an entry of a request must be, and the limit then.
type Descriptor struct {
	Key   string
	Value string // "" fits any that has no rule of its own; a * at the end fits any rest

	Limit       *Limit       // for requests whose last entry this is; nil for none
	ShadowMode  bool         // count, but report OK
	QuotaMode   bool         // refuse only if all that are of this kind refuse
	Descriptors []Descriptor // for requests that have further entries
}

// Limit is so many requests per unit of time.
type Limit struct {
	Unit            Unit
	UnitMultiplier  uint32 // 0 means 1
	RequestsPerUnit uint32 // 0 refuses all
	Unlimited       bool
	Name            string   // what Replaces of others call it
	Replaces        []string // limits that do not count for a request that has this one, too
}

// Check returns why the limit's numbers cannot be counted, if they cannot.
func (l *Limit) Check() error {
	if l.Unlimited {
		return nil
	}
	numbers, err := numbersOf(max(1, l.RequestsPerUnit), period{l.Unit, max(1, l.UnitMultiplier)}, true)
	if err == nil {
		_, err = weir.NewPolicy("check", *numbers)
	}
	return err
}
