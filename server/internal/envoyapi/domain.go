package envoyapi

// Domain is a set of rules, with the name that Envoy sends.
type Domain struct {
	Name        string
	Descriptors []Descriptor

	// Compat charges as envoyproxy/ratelimit does: each descriptor on its own, and also for
	// refused hits.
	Compat bool

	// NegativeHits allows requests to refund hits (is_negative_hits), down to zero usage. A
	// concurrent charge may then be lost or, if another daemon refunds the same key at the
	// same instant, counted twice; with Compat, all refused hits but one are lost. The default
	// refuses such requests.
	NegativeHits bool

	// Headers adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the
	// tightest limit to responses.
	Headers bool

	// ShadowMode charges and reports, but admits every request.
	ShadowMode bool
}

// Label returns the domain's name in metrics and in clients' policies. See Label.
func (d *Domain) Label() string { return Label(d.Name) }

// Descriptor matches an entry of a request's descriptor. Of several patterns that match a value,
// the one with the most characters besides * applies, or with Compat the first.
type Descriptor struct {
	Key   string
	Value string // "" matches all values without a rule of their own; a * matches any text

	Limit          *Limit       // for descriptors whose last entry this is; nil for none
	ShadowMode     bool         // charge, but report OK
	QuotaMode      bool         // refuse only if all limits in quota mode refuse
	ShareThreshold bool         // all values that match share one counter; Value has a *
	Descriptors    []Descriptor // for the next entry
}

// Limit is a number of requests per unit of time.
type Limit struct {
	Unit            Unit
	UnitMultiplier  uint32 // 0 means 1
	RequestsPerUnit uint32 // 0 refuses all
	Unlimited       bool
	Name            string   // for the Replaces of other limits
	Replaces        []string // names of limits that do not apply to a request to which this one applies
}
