package ruleset

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Query describes a request for a decision.
type Query struct {
	// Key is the rate-limit key, for example "alice". "" means that there is none: then all
	// limits must be by attributes.
	Key string

	// Plan is the plan of the request's subject, for example "pro". "" means that it has none.
	// A plan that the policy does not have means the policy's own limits.
	Plan string

	// Class is the class of work, for example "realtime", under a policy with classes. "" means
	// the class with the least guaranteed share, the last one of several.
	Class string

	// Scale is the share of their rates at which enforced limits are charged, and
	// ShadowScale that of limits in shadow, for example 5,000 for a caller that is limited to
	// half. Bursts, the units in use and limits of concurrency stay as they are; windows have
	// no burst and admit that share of their units, at least one. 0 and All mean that rates are
	// unchanged. For a key that the rollout does not include, all limits are in shadow.
	//
	// Limits by an attribute are scaled only if its value is Key: otherwise other keys share
	// their state, and would be slowed down as well.
	//
	// A key may owe so many units that they would be paid only after more than 40 years at the
	// scaled rate. Then the limiter returns weir.ErrInvalid, as it does for overrides.
	Scale, ShadowScale Share

	// SkipShadow means that limits in shadow are not charged or evaluated, because an earlier
	// stage in shadow would have refused the request.
	SkipShadow bool

	// Keys are the values of attributes. Of two with the same name, the first is used. An
	// empty value counts as missing. Attributes that no limit is by are ignored.
	Keys []Attribute

	// Cost is the cost as a plain number. Its unit is requests if the policy counts
	// requests, else the only unit that the policy counts. If the policy counts several
	// others, a plain number other than 0 is an error.
	Cost int64

	// Implied means that the caller gave no plain number, and Cost is the default. Beside
	// Costs it is charged only if the policy counts requests.
	Implied bool

	// Costs are the costs in units by their names. The policy must count each of them.
	Costs []Cost

	// Methods are what the request calls, for example "eth_getLogs". Package budget makes Costs of
	// them; an Engine ignores them.
	Methods []string

	// MaxWait is how long the request may wait for capacity, in the order of arrival. The default
	// is not to wait. It has no effect on Peek.
	MaxWait time.Duration

	// With are charges that no rule describes, made together with those of the rule that are
	// enforced: all of them or none. Put their policies in force with Engine.Apply.
	With []weir.Charge

	// Shadow asks for Verdict.ShadowRefusals.
	Shadow bool

	// Client is the client to which tickets belong, and whose share of waiting requests and
	// open reservations is used.
	Client string

	// Alone means that there are no other clients: then the share is all.
	Alone bool
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

// UntilDone as Query.MaxWait means that the request waits until its context ends.
const UntilDone = weir.Never

// InputError says what is wrong with a query.
type InputError struct {
	Field   string // for example "keys"
	Problem string
}

func (e *InputError) Error() string { return fmt.Sprintf("%q %s", e.Field, e.Problem) }

// keyOf returns the key of a group's charge.
func (q *Query) keyOf(g *group) (string, error) {
	if g.by == "" {
		if q.Key == "" {
			return "", &InputError{"key", "is missing: the rate-limit key, such as a user's name"}
		}
		return q.Key, nil
	}
	for i := range q.Keys {
		if q.Keys[i].Name == g.by && q.Keys[i].Value != "" {
			return q.Keys[i].Value, nil
		}
	}
	return "", &InputError{"keys", fmt.Sprintf("lacks %q, by which the policy limits", g.by)}
}

// costIn returns the cost in a unit.
func (q *Query) costIn(r *Rule, unit string) int64 {
	for i := range q.Costs {
		if q.Costs[i].Unit == unit {
			return q.Costs[i].Amount
		}
	}
	if unit != r.plainUnit() || !q.isPlain() && unit != Requests {
		return 0
	}
	return q.Cost
}

// isPlain reports whether the plain number is a cost in the policy's plain unit, whatever that
// is. Otherwise it is the default beside other costs.
func (q *Query) isPlain() bool { return !q.Implied || len(q.Costs) == 0 }

// check returns an error if the query is invalid for a rule.
func (q *Query) check(r *Rule) error {
	if err := r.checkCosts("cost", q.Cost != 0 && q.isPlain(), q.Costs); err != nil {
		return err
	}
	if err := q.checkScale(); err != nil {
		return err
	}
	if err := r.checkClass(q.Class); err != nil {
		return err
	}
	if (q.MaxWait < 0 || q.MaxWait > MaxWait) && q.MaxWait != UntilDone {
		return &InputError{"max_wait_ms", fmt.Sprintf("must be between 0 and %d", MaxWait.Milliseconds())}
	}
	return nil
}

// checkCosts returns an error if the rule does not count a unit, or if there are two costs in a
// unit. Plain says whether there is a plain number besides.
func (r *Rule) checkCosts(field string, plain bool, costs []Cost) error {
	for i, c := range costs {
		switch {
		case !r.Counts(c.Unit):
			return &InputError{field, fmt.Sprintf("has the unit %q, which no limit of the policy counts; it counts %s", c.Unit, r.unitNames())}
		case plain && c.Unit == r.plainUnit():
			return &InputError{field, fmt.Sprintf("is in %q as a plain number, and has that unit besides", c.Unit)}
		case slices.ContainsFunc(costs[:i], func(o Cost) bool { return o.Unit == c.Unit }):
			return &InputError{field, fmt.Sprintf("has the unit %q twice", c.Unit)}
		}
	}
	if plain && r.plainUnit() == "" {
		return &InputError{field, fmt.Sprintf("is a plain number, and the policy counts %s: say which, such as {%q: 1}", r.unitNames(), r.units[0])}
	}
	return nil
}

// Verdict is the decision on a query.
type Verdict struct {
	weir.Decision

	// Variant is the rule, or its override or plan, that was applied, at the query's scale.
	Variant *Variant

	// Limit is the index in Variant.Limits of the limit that refused or, if the query was
	// admitted, of the tightest one; -1 if there is none.
	Limit int

	// With is the policy of Query.With that refused or is the tightest one, nil if it is the rule.
	With *weir.Policy

	// Shadow is the index of the limit in shadow that would have refused, -1 if none would.
	// It is for operators: callers must not be able to tell a policy in shadow from none.
	Shadow int

	// ShadowRefusals are all limits in shadow that would have refused, if the query asked for
	// them.
	ShadowRefusals []ShadowRefusal

	// Waited is how long the request waited for capacity.
	Waited time.Duration
}

// A ShadowRefusal is what a limit in shadow would have decided.
type ShadowRefusal struct {
	weir.Decision
	Limit int // its index in Variant.Limits, -1 if it is unknown
}

// Policy returns the policy's name.
func (v *Verdict) Policy() string { return v.Variant.rule.policy.Name }

// LimitedBy returns the name of the limit that refused, "" if none did.
func (v *Verdict) LimitedBy() string {
	switch {
	case v.Allowed || v.Reason == weir.NotCharged: // NotCharged: another query of the batch was refused
		return ""
	case v.With != nil:
		return v.With.LimitName(int(v.By))
	case v.Limit < 0:
		return ""
	}
	return v.Variant.names[v.Limit]
}

// decided sets the decision of a group.
func (v *Verdict) decided(g *group, d weir.Decision) {
	v.Decision, v.Limit, v.With = d, g.place(d), nil
	if g.outside {
		v.With = g.policy
	}
}
