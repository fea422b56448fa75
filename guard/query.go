package guard

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Query is what a request asks for.
type Query struct {
	// Key is who pays, for example "alice".
	Key string

	// NoKey says that there is no key. Then all limits must be by attributes.
	NoKey bool

	// Keys are the values of the attributes that limits are by. Of two with the same
	// name the first counts. Those that no limit asks for are ignored.
	Keys []Attribute

	// Cost is how much is asked for, in requests.
	Cost int64

	// Costs is how much is asked for in other units. Units that are not named cost
	// nothing.
	Costs []Cost

	// MaxWait is how long the request may wait for its turn. The default is not at
	// all. It has no effect on Peek and Reserve.
	MaxWait time.Duration

	// Client is whom tickets are for.
	Client string
}

// Attribute is a property of a request by which it can be limited.
type Attribute struct{ Name, Value string }

// Cost is an amount of a unit.
type Cost struct {
	Unit   string
	Amount int64
}

// MaxWait is the longest time that a request may wait for its turn.
const MaxWait = 10 * time.Second

// InputError says what is wrong with a query.
type InputError struct {
	Field   string // for example "keys"
	Problem string
}

func (e *InputError) Error() string { return fmt.Sprintf("%q %s", e.Field, e.Problem) }

// keyOf returns what a group's charge is made to.
func (q *Query) keyOf(g *group) (string, error) {
	if g.by == "" {
		if q.NoKey {
			return "", &InputError{"key", "is missing: who pays, such as a user's name"}
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

// costOf returns how much of a group's unit is asked for.
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

// check returns why the query cannot be put to v.
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

// counts says whether some limit counts a unit.
func (v *Variant) counts(unit string) bool {
	for i := range v.rule.policy.Limits { // of which some may be off
		if v.rule.policy.Limits[i].Unit == unit {
			return true
		}
	}
	return false
}

// Verdict is what becomes of a query.
type Verdict struct {
	weir.Decision

	// Variant is what decided: the rule or one of its overrides.
	Variant *Variant

	// Limit is the place among Variant.Limits of the limit that refused or, if it
	// was admitted, of the tightest; -1 if there is none.
	Limit int

	// Shadow is the place of the limit in shadow that would have refused, -1 if none
	// would.
	Shadow int

	// Waited is how long the request waited for its turn.
	Waited time.Duration
}

// Policy returns the policy's name.
func (v *Verdict) Policy() string { return v.Variant.rule.policy.Name }

// LimitedBy returns the name of the limit that refused, "" if none did.
func (v *Verdict) LimitedBy() string {
	if v.Allowed || v.Limit < 0 || v.Reason == weir.NotCharged { // the last is of a batch that another refused
		return ""
	}
	return v.Variant.names[v.Limit]
}

// decided fills in the decision of a group.
func (v *Verdict) decided(g *group, d weir.Decision) {
	v.Decision, v.Limit = d, g.place(d)
}
