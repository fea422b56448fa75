package ruleset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Rules are policies that were compiled together. They are immutable but for the overrides of
// operators, so a request that loads them once is decided by one version of the configuration.
type Rules struct {
	list   []*Rule
	byName map[string]*Rule
}

// Compile compiles policies. Its error joins an *Error for each problem. Policies that did not
// change since previous, which may be nil, are reused from there, so that stores can look them
// up by pointer.
func Compile(policies []Policy, previous *Rules) (*Rules, error) {
	c := compiler{rules: &Rules{byName: make(map[string]*Rule, len(policies))}, before: previous}
	for i := range policies {
		c.rule(&policies[i])
	}
	if len(c.problems) > 0 {
		return nil, errors.Join(c.problems...)
	}
	return c.rules, nil
}

// Rule returns the policy called name, or nil.
func (r *Rules) Rule(name string) *Rule { return r.byName[name] }

// RuleNamed is Rule for bytes that are not a string yet.
func (r *Rules) RuleNamed(name []byte) *Rule { return r.byName[string(name)] }

// All returns the policies in the order in which they were given. The caller must not
// change it.
func (r *Rules) All() []*Rule { return r.list }

// Policies returns the limiter's policies, without those of overrides.
func (r *Rules) Policies() (list []*weir.Policy) {
	for _, rule := range r.list {
		for i := range rule.base.groups {
			list = append(list, rule.base.groups[i].policy)
		}
	}
	return list
}

// Rule is a compiled Policy.
type Rule struct {
	policy Policy
	base   *Variant
	own    index    // the overrides of the policy
	limits []Limit  // with defaults; also those that are off
	units  []string // what the limits count; Requests first
	plans  map[string]*Variant

	classes      []string // of the limit that has some
	defaultClass string
	urgentClass  string

	// operators has the overrides of operators, nil if there were none yet. Override and RemoveOverride replace it.
	operators atomic.Pointer[index]
}

// Name returns the policy's name.
func (r *Rule) Name() string { return r.policy.Name }

// Policy returns the compiled policy's source. The caller must not change it.
func (r *Rule) Policy() *Policy { return &r.policy }

// Counts reports whether a limit of the rule counts a unit, be it off.
func (r *Rule) Counts(unit string) bool { return slices.Contains(r.units, unit) }

// Units returns what the limits count, requests first. The caller must not change it.
func (r *Rule) Units() []string { return r.units }

// plainUnit returns the unit of costs that are plain numbers: Requests if the rule counts them,
// else its only unit, "" if it has several.
func (r *Rule) plainUnit() string {
	if r.units[0] == Requests || len(r.units) == 1 {
		return r.units[0]
	}
	return ""
}

// unitNames returns the units for an error text.
func (r *Rule) unitNames() string {
	const most = 8
	if len(r.units) > most {
		return strings.Join(r.units[:most], ", ") + " and others"
	}
	return strings.Join(r.units, ", ")
}

// Base returns the rule without overrides and plans.
func (r *Rule) Base() *Variant { return r.base }

// For returns the variant that applies to key at now, without a plan.
func (r *Rule) For(key string, now time.Time) *Variant { return r.find(key, "", now) }

// find returns the variant that applies to key with a plan at now. Overrides for the key or a
// prefix of it precede the plan, which precedes those for all keys.
func (r *Rule) find(key, plan string, now time.Time) *Variant {
	operators := r.ofOperators()
	if v := operators.exact[key].at(now); v != nil {
		return v
	}
	if v := r.own.exact[key].at(now); v != nil {
		return v
	}
	v, n := r.own.prefixAt(key, now)
	if w, m := operators.prefixAt(key, now); m >= n && w != nil {
		v, n = w, m
	}
	if n > 0 {
		return v
	}
	if plan != "" && r.plans[plan] != nil {
		return r.plans[plan]
	}
	if v != nil {
		return v
	}
	return r.base
}

// at returns v or, if it has expired at now, the last earlier one that has not; nil if there is
// none.
func (v *Variant) at(now time.Time) *Variant {
	for v != nil && !v.override.Until.IsZero() && !now.Before(v.override.Until) {
		v = v.before
	}
	return v
}

// variant returns the variant that applies to a query now. It does not read the clock if there are
// no overrides.
func (r *Rule) variant(q *Query) *Variant {
	v := r.base
	if !r.own.isEmpty() || !r.operators.Load().isEmpty() {
		v = r.find(q.Key, q.Plan, time.Now())
	} else if q.Plan != "" {
		v = r.planned(q.Plan)
	}
	if q.Scale|q.ShadowScale != 0 {
		return v.scaledFor(q)
	}
	return v
}

// Variant is a rule with the limits of one of its overrides or plans, or with its own. It may be
// scaled.
type Variant struct {
	rule     *Rule
	override *Override // nil for the rule's own and for plans
	plan     string    // the plan's name, "" if it is not a plan
	before   *Variant  // the override for the same keys that applies when this one has expired
	limits   []Limit   // with defaults; without those that are off
	names    []string  // of limits, as in headers
	groups   []group   // enforced ones first
	enforced int       // the number of enforced groups
	simple   bool      // one enforced group, by the key and in the plain unit, without concurrency limits

	derived atomic.Pointer[any]
	usage   usageViews

	scales   scales                     // at which the limits are; zero if unscaled
	variants atomic.Pointer[[]*Variant] // scaled variants of this one; see scaled
}

// Derived returns what derive returned for the variant when it was first called, for what depends
// on the limits alone. All callers must pass the same function.
func (v *Variant) Derived(derive func(*Variant) any) any {
	if d := v.derived.Load(); d != nil {
		return *d
	}
	d := derive(v)
	v.derived.Store(&d)
	return d
}

// Rule returns the variant's rule.
func (v *Variant) Rule() *Rule { return v.rule }

// Override returns the variant's override, or nil if it is a plan or the rule itself.
func (v *Variant) Override() *Override { return v.override }

// Limits returns the limits that are in force, with defaults filled in, in the order in
// which they were written. The caller must not change it.
func (v *Variant) Limits() []Limit { return v.limits }

// LimitName returns the name of limit i in headers: the policy's name for the limit "main",
// otherwise "policy.limit".
func (v *Variant) LimitName(i int) string { return v.names[i] }

// Enforces reports whether limits are enforced for key: the rollout includes it, and not all
// limits are in shadow.
func (v *Variant) Enforces(key string) bool {
	return v.enforced > 0 && v.rule.includes(key)
}

// ReserveOnly reports whether there is a concurrency limit, so that only Reserve is possible.
func (v *Variant) ReserveOnly() bool {
	return slices.ContainsFunc(v.groups, func(g group) bool { return g.policy.ReserveOnly() })
}

// group returns the group whose policy is called name, or nil. A nil Variant has none.
func (v *Variant) group(name string) *group {
	if v == nil {
		return nil
	}
	for i := range v.groups {
		if v.groups[i].policy.Name() == name {
			return &v.groups[i]
		}
	}
	return nil
}

// A group is the limits of a variant with the same attribute and unit. They are charged with one
// key and cost: for a limiter, they are one policy.
type group struct {
	by, unit string
	mode     Mode
	policy   *weir.Policy
	limits   []int // indexes in Variant.limits
	outside  bool  // a policy of Query.With
}

// place returns the index in Variant.limits of the limit that a decision is about, -1 if the
// group does not have it: the limiter may have newer limits already.
func (g *group) place(d weir.Decision) int {
	if int(d.By) < len(g.limits) {
		return g.limits[d.By]
	}
	return -1
}

// Error is a problem of a policy.
type Error struct {
	Policy   string
	Override string // the override's key, "" if the problem is not in an override
	Plan     string // the plan's name, "" if the problem is not in a plan
	Limit    int    // the limit's index, -1 if the problem is not in a limit
	Field    string // the name of the field in configurations
	Problem  string
}

func (e *Error) Error() string {
	where := fmt.Sprintf("policy %q", e.Policy)
	if e.Override != "" {
		where += fmt.Sprintf(": override %q", e.Override)
	}
	if e.Plan != "" {
		where += fmt.Sprintf(": plan %q", e.Plan)
	}
	if e.Limit >= 0 {
		where += fmt.Sprintf(": limit %d", e.Limit+1)
	}
	return fmt.Sprintf("ruleset: %s: %s: %s", where, e.Field, e.Problem)
}
