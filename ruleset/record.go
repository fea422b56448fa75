package ruleset

import "time"

// Record is a decision with its request, for observers.
type Record struct {
	Verdict
	Key    string
	Cost   int64  // in Unit
	Unit   string // of the limit that refused, or would have in shadow, or is the tightest; "" is Requests
	Client string
	Class  string // that was charged, "" if the policy has none
	Peek   bool
	At     time.Time     // set for observers that see the record later
	Took   time.Duration // the duration of the decision, without waiting for capacity; or Untimed

	// LimitName is the name of the limit that refused, if it is not one of Variant's.
	LimitName string
}

// NewRecord returns the record of a decision on a query.
func NewRecord(q *Query, v *Verdict, peek bool, took time.Duration) Record {
	r, unit := v.Variant.rule, ""
	switch {
	case v.Allowed && v.Shadow >= 0:
		unit = v.Variant.limits[v.Shadow].Unit
	case v.Limit >= 0:
		unit = v.Variant.limits[v.Limit].Unit
	default:
		unit = r.units[0]
	}
	return Record{Verdict: *v, Key: q.Key, Cost: q.costIn(r, unit), Unit: unit, Client: q.Client, Class: r.ClassOf(q), Peek: peek, Took: took}
}

// LimitedBy returns the name of the limit that refused, "" if none did.
func (r *Record) LimitedBy() string {
	if r.LimitName != "" {
		return r.LimitName
	}
	return r.Verdict.LimitedBy()
}

// Untimed is the Took of a decision that was not timed.
const Untimed time.Duration = -1
