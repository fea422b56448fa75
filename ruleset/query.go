package ruleset

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Query describes a request for a decision.
type Query struct {
	// Key is the rate-limit key, for example "alice".
	Key string

	// NoKey means that there is no key. Then all limits must be by attributes.
	NoKey bool

	// Keys are the values of attributes. Of two with the same name, the first is used.
	// Attributes that no limit is by are ignored.
	Keys []Attribute

	// Cost is the cost in requests.
	Cost int64

	// Costs are the costs in other units. The cost in a unit that is not listed is 0.
	Costs []Cost

	// MaxWait is how long the request may wait for capacity. The default is not to wait. It
	// has no effect on Peek and Reserve.
	MaxWait time.Duration

	// Client is the client to which tickets belong.
	Client string
}

// Attribute is a property of a request by which it can be limited.
type Attribute struct{ Name, Value string }

// Cost is an amount of a unit.
type Cost struct {
	Unit   string
	Amount int64
}

// MaxWait is the maximum of Query.MaxWait.
const MaxWait = 10 * time.Second

// InputError says what is wrong with a query.
type InputError struct {
	Field   string // for example "keys"
	Problem string
}

func (e *InputError) Error() string { return fmt.Sprintf("%q %s", e.Field, e.Problem) }

// keyOf returns the key of a group's charge.
func (q *Query) keyOf(g *group) (string, error) {
	if g.by == "" {
		if q.NoKey {
			return "", &InputError{"key", "is missing: the rate-limit key, such as a user's name"}
		}
		return q.Key, nil
	}
	for i := range q.Keys {
		if q.Keys[i].Name == g.by {
			return q.Keys[i].Value, nil
		}
	}
	return "", &InputError{"keys", fmt.Sprintf("lacks %q, by which the policy limits", g.by)}
}

// costOf returns the cost in a group's unit.
func (q *Query) costOf(g *group) int64 {
	if g.unit == Requests {
		return q.Cost
	}
	for i := range q.Costs {
		if q.Costs[i].Unit == g.unit {
			return q.Costs[i].Amount
		}
	}
	return 0
}

// check returns an error if the query is invalid for v.
func (q *Query) check(v *Variant) error {
	for i, c := range q.Costs {
		switch {
		case c.Unit == Requests:
			return &InputError{"cost", fmt.Sprintf("has the unit %q among the others", Requests)}
		case c.Unit == "" || !v.counts(c.Unit):
			return &InputError{"cost", fmt.Sprintf("has the unit %q, which no limit of the policy counts", c.Unit)}
		case slices.ContainsFunc(q.Costs[:i], func(o Cost) bool { return o.Unit == c.Unit }):
			return &InputError{"cost", fmt.Sprintf("has the unit %q twice", c.Unit)}
		}
	}
	if q.MaxWait < 0 || q.MaxWait > MaxWait {
		return &InputError{"max_wait_ms", fmt.Sprintf("must be between 0 and %d", MaxWait.Milliseconds())}
	}
	return nil
}

// counts reports whether a limit counts a unit.
func (v *Variant) counts(unit string) bool {
	for i := range v.rule.policy.Limits { // including those that are off
		if v.rule.policy.Limits[i].Unit == unit {
			return true
		}
	}
	return false
}

// Verdict is the decision on a query.
type Verdict struct {
	weir.Decision

	// Variant is the rule, or its override, that was applied.
	Variant *Variant

	// Limit is the index in Variant.Limits of the limit that refused or, if the query was
	// admitted, of the tightest one; -1 if there is none.
	Limit int

	// Shadow is the index of the limit in shadow that would have refused, -1 if none would.
	Shadow int

	// Waited is how long the request waited for capacity.
	Waited time.Duration
}

// Policy returns the policy's name.
func (v *Verdict) Policy() string { return v.Variant.rule.policy.Name }

// LimitedBy returns the name of the limit that refused, "" if none did.
func (v *Verdict) LimitedBy() string {
	if v.Allowed || v.Limit < 0 || v.Reason == weir.NotCharged { // NotCharged: another query of the batch was refused
		return ""
	}
	return v.Variant.names[v.Limit]
}

// decided sets the decision of a group.
func (v *Verdict) decided(g *group, d weir.Decision) {
	v.Decision, v.Limit = d, g.place(d)
}
