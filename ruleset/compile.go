package ruleset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Maximum lengths and numbers.
const (
	maxName      = 64     // of policies and limits
	maxAttribute = 24     // of attributes and units; with the rest of a group's name that makes 128
	maxOverrides = 10_000 // of one policy
	maxGroups    = 24     // of one policy; this many charges fit into a ticket
)

// compiler compiles policies and collects all problems.
type compiler struct {
	rules    *Rules
	before   *Rules // of the previous configuration, or nil
	previous *Rule  // that of the policy that is being compiled, or nil
	problems []error
}

// complain adds a problem. At says where; its Field and Problem are replaced.
func (c *compiler) complain(at Error, field, format string, args ...any) {
	at.Field, at.Problem = field, fmt.Sprintf(format, args...)
	c.problems = append(c.problems, &at)
}

func (c *compiler) rule(p *Policy) {
	at := Error{Policy: p.Name, Limit: -1}
	r := &Rule{policy: *p}
	if c.previous = nil; c.before != nil {
		c.previous = c.before.Rule(p.Name)
	}
	r.policy.Mode = p.Mode.or(Enforce)
	if r.policy.Rollout == 0 {
		r.policy.Rollout = All
	}
	if c.checkName(at, "name", p.Name, maxName) && c.rules.byName[p.Name] != nil {
		c.complain(at, "name", "is taken by another policy")
	}
	c.checkMode(at, p.Mode)
	if p.Rollout > All {
		c.complain(at, "rollout", "must be at most 100%%")
	}
	if len(p.Overrides) > maxOverrides {
		c.complain(at, "overrides", "there are %d: at most %d fit", len(p.Overrides), maxOverrides)
	}
	if r.policy.RolloutGroup == "" {
		r.policy.RolloutGroup = p.Name
	} else {
		c.checkName(at, "rollout_group", p.RolloutGroup, maxName)
	}
	before := len(c.problems)
	r.limits = c.ownLimits(at, p)
	r.units = unitsOf(r.limits)
	c.classes(at, r)
	if len(c.problems) > before {
		for i := range r.limits { // so that what is wrong with overrides themselves is found, too
			r.limits[i].Limit = weir.Limit{Name: r.limits[i].Name, Rate: 1, Per: weir.Every(time.Second)}
		}
		if len(r.limits) > 0 {
			c.overrides(r)
		}
		return
	}
	if r.base = c.variant(at, r, nil, r.limits); r.base != nil {
		c.overrides(r)
		c.plans(r)
	}
	c.rules.list, c.rules.byName[p.Name] = append(c.rules.list, r), r
}

// checkName checks a name that must need no escape and have no separators of a group's name.
func (c *compiler) checkName(at Error, field, name string, most int) bool {
	const fit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || len(name) > most || strings.Trim(name, fit) != "" {
		c.complain(at, field, "must be 1 to %d letters, digits or -_.", most)
		return false
	}
	return true
}

func (c *compiler) checkMode(at Error, m Mode) {
	if m > Off {
		c.complain(at, "mode", "%v is none: it must be enforce, shadow or off", m)
	}
}

// unitsOf returns the units that limits count, also those that are off, with Requests first.
func unitsOf(limits []Limit) (units []string) {
	for _, l := range limits {
		switch {
		case slices.Contains(units, l.Unit):
		case l.Unit == Requests:
			units = slices.Insert(units, 0, Requests)
		default:
			units = append(units, l.Unit)
		}
	}
	return units
}

// ownLimits returns the policy's limits with defaults.
func (c *compiler) ownLimits(at Error, p *Policy) []Limit {
	if len(p.Limits) == 0 {
		c.complain(at, "limits", "there is none; say at least {rate: 100, per: 1s}, or mode: off")
	}
	mode := p.Mode.or(Enforce)
	if mode > Off { // c.rule has reported it
		mode = Enforce
	}
	limits := slices.Clone(p.Limits)
	for i := range limits {
		l := &limits[i]
		at.Limit = i
		if l.Name == "" {
			l.Name = "main"
		}
		switch other := slices.IndexFunc(limits[:i], func(o Limit) bool { return o.Name == l.Name }); {
		case other >= 0 && p.Limits[i].Name == "" && p.Limits[other].Name == "":
			c.complain(at, "name", `two limits have no name: add one to the second, such as "name: hourly"`)
		case other >= 0:
			c.complain(at, "name", "%q is taken by another limit of the policy; name them apart", l.Name)
		}
		if l.Unit == "" {
			l.Unit = Requests
		}
		l.Mode = l.Mode.or(mode)
		c.checkLimit(at, l)
	}
	return limits
}

// checkLimit checks a limit.
func (c *compiler) checkLimit(at Error, l *Limit) {
	c.checkName(at, "name", l.Name, maxName)
	if l.By != "" {
		c.checkName(at, "by", l.By, maxAttribute)
	}
	c.checkName(at, "unit", l.Unit, maxAttribute)
	c.checkMode(at, l.Mode)
	unnamed := l.Limit
	unnamed.Name = "" // so that a wrong name does not hide other problems
	_, err := weir.NewPolicy("x", unnamed)
	c.complainOf(at, err)
}

// complainOf adds the problems of package weir's error for limits.
func (c *compiler) complainOf(at Error, err error) {
	for _, e := range fielderr.Split(err) {
		if bad, ok := errors.AsType[*weir.LimitError](e); !ok {
			c.complain(at, "limits", "%v", e)
		} else if bad.Field != "name" { // c.rule and checkLimit have reported it
			c.complain(at, bad.Field, "%v: %s", bad.Value, bad.Problem)
		}
	}
}

// overrides compiles those of a rule.
func (c *compiler) overrides(r *Rule) {
	for i := range r.policy.Overrides {
		if v := c.overrideVariant(r, &r.policy.Overrides[i]); v != nil {
			r.own.add(v)
		}
	}
}

// replace returns limits with those of an override or a plan in place of those with the same name.
func (c *compiler) replace(at Error, replacements, limits []Limit) []Limit {
	limits = slices.Clone(limits)
	seen := map[string]bool{}
	for i, l := range replacements {
		at.Limit = i
		if l.Name == "" {
			l.Name = "main"
		}
		place := slices.IndexFunc(limits, func(b Limit) bool { return b.Name == l.Name })
		switch {
		case place < 0:
			c.complain(at, "name", "the policy has no limit %q; it has %s", l.Name, namesOf(limits))
			continue
		case seen[l.Name]:
			c.complain(at, "name", "%q is overridden twice", l.Name)
			continue
		}
		seen[l.Name] = true
		l = l.inherit(limits[place])
		c.checkLimit(at, &l)
		if l.By != limits[place].By || l.Unit != limits[place].Unit || l.Mode != limits[place].Mode {
			c.complain(at, "by", "%s changes rate, per and burst; by, unit and mode stay the policy's", at.kind())
		}
		limits[place] = l
	}
	return limits
}

// inherit returns l with the fields that it does not set from the limit that it replaces.
func (l Limit) inherit(from Limit) Limit {
	if l.By == "" {
		l.By = from.By
	}
	if l.Unit == "" {
		l.Unit = from.Unit
	}
	l.Mode = l.Mode.or(from.Mode)
	l.Hidden = from.Hidden
	if l.Algorithm == weir.Auto && isCalendar(l.Per) == isCalendar(from.Per) {
		l.Algorithm = from.Algorithm
	}
	if l.OnError == weir.OnError(0) {
		l.OnError = from.OnError
	}
	if lends := l.Algorithm == weir.Lending || l.Algorithm == weir.Auto && !isCalendar(l.Per); lends && l.Classes == (weir.Classes{}) {
		l.Classes = from.classesFor(l)
	}
	if l.Pace == "" {
		l.Pace = from.Pace
	}
	return l
}

func isCalendar(p weir.Period) bool {
	_, zone := p.Calendar()
	return zone != nil
}

// variant makes a variant with the groups of limits. It returns nil if they are invalid.
func (c *compiler) variant(at Error, r *Rule, o *Override, limits []Limit) *Variant {
	v := &Variant{rule: r, override: o, plan: at.Plan}
	for _, l := range limits {
		if l.Mode != Off {
			v.limits, v.names = append(v.limits, l), append(v.names, limitName(r.policy.Name, l.Name))
		}
	}
	before := len(c.problems)
	v.gather(Enforce)
	v.enforced = len(v.groups)
	v.gather(Shadow)
	for i := range v.groups {
		v.groups[i].policy = c.policy(at, v, &v.groups[i])
	}
	if len(v.groups) > maxGroups && v.isBase() {
		c.complain(at, "limits", "they are of %d pairs of attribute and unit: at most %d fit", len(v.groups), maxGroups)
	}
	if len(c.problems) > before {
		return nil
	}
	v.simple = len(v.groups) == 1 && v.enforced == 1 && v.groups[0].by == "" && v.groups[0].unit == r.plainUnit() && r.policy.Rollout == All &&
		v.groups[0].policy != nil && !v.groups[0].policy.ReserveOnly()
	return v
}

// policy makes the policy of a variant's group.
//
// A limiter that has replaced a policy's old limits with new ones does so for every later charge
// with the old limits. An override may have the limits that its policy had before, and must not
// be replaced, so it is marked as one; the same holds for plans. A group that an override does not
// change is the policy's.
func (c *compiler) policy(at Error, v *Variant, g *group) *weir.Policy {
	name := g.name(&v.rule.policy)
	var limits []weir.Limit
	for _, i := range g.limits {
		limits = append(limits, v.limits[i].Limit)
	}
	p, err := weir.NewPolicy(name, limits...)
	c.complainOf(at, err)
	if err == nil && !v.isBase() {
		base := v.rule.base.group(name)
		if base != nil && slices.Equal(base.policy.Limits(), p.Limits()) {
			return base.policy
		}
		p, err = storeapi.Override(p, limits...)
		c.complainOf(at, err)
	}
	return c.known(v, p)
}

// gather appends the groups of the limits with a mode.
func (v *Variant) gather(mode Mode) {
	for i := range v.limits {
		l := &v.limits[i]
		if l.Mode != mode {
			continue
		}
		at := slices.IndexFunc(v.groups, func(g group) bool { return g.by == l.By && g.unit == l.Unit && g.mode == mode })
		if at < 0 {
			at = len(v.groups)
			v.groups = append(v.groups, group{by: l.By, unit: l.Unit, mode: mode})
		}
		v.groups[at].limits = append(v.groups[at].limits, i)
	}
}

// name returns the name of the group's weir.Policy, under which the store keeps state. The
// separators cannot occur in its parts.
func (g *group) name(p *Policy) string {
	name := p.Name
	if g.by != "" {
		name += "/" + g.by
	}
	if g.unit != Requests {
		name += ":" + g.unit
	}
	if g.mode != p.Mode {
		name += "//" + g.mode.String()
	}
	return name
}

// known returns the policy of the previous rule if it has the same limits, and p otherwise.
func (c *compiler) known(v *Variant, p *weir.Policy) *weir.Policy {
	if c.previous == nil || p == nil {
		return p
	}
	for old := c.previous.like(v); old != nil; old = old.before {
		if g := old.group(p.Name()); g != nil && g.policy.Same(p) && slices.Equal(g.policy.Limits(), p.Limits()) { // Same ignores OnError
			return g.policy
		}
	}
	return p
}

// like returns the rule's last variant for the same keys as v, which may be another rule's.
func (r *Rule) like(v *Variant) *Variant {
	if v.plan != "" {
		return r.plans[v.plan]
	}
	if v.override == nil {
		return r.base
	}
	if last := r.ofOperators().of(v.override); last != nil {
		return last
	}
	return r.own.of(v.override)
}

func limitName(policy, limit string) string {
	if limit == "main" {
		return policy
	}
	return policy + "." + limit
}

func namesOf(limits []Limit) string {
	var names []string
	for _, l := range limits {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}
