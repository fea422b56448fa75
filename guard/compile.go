package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// How much a policy may have.
const (
	maxName      = 64     // of policies and limits
	maxAttribute = 24     // of attributes and units; with the rest of a group's name that makes 128
	maxOverrides = 10_000 // of one policy
)

// compiler collects what is wrong while it compiles.
type compiler struct {
	rules    *Rules
	previous *Rules
	problems []error
}

// complain notes a problem. at is without a problem yet.
func (c *compiler) complain(at Error, field, format string, args ...any) {
	at.Field, at.Problem = field, fmt.Sprintf(format, args...)
	c.problems = append(c.problems, &at)
}

func (c *compiler) rule(p *Policy) {
	at := Error{Policy: p.Name, Limit: -1}
	r := &Rule{policy: *p}
	r.policy.Mode = p.Mode.or(Enforce)
	if r.policy.Rollout == 0 {
		r.policy.Rollout = All
	}
	switch {
	case !isName(p.Name, maxName):
		c.complain(at, "name", "must be 1 to %d letters, digits or -_.", maxName)
	case c.rules.byName[p.Name] != nil:
		c.complain(at, "name", "is taken by another policy")
	case p.Rollout > All:
		c.complain(at, "rollout", "must be at most 100%%")
	case len(p.Overrides) > maxOverrides:
		c.complain(at, "overrides", "there are %d: at most %d fit", len(p.Overrides), maxOverrides)
	}
	before := len(c.problems)
	limits := c.ownLimits(at, p)
	if len(c.problems) > before {
		return // overrides of wrong limits are wrong, too
	}
	r.base = c.variant(at, r, nil, limits)
	c.overrides(r, limits)
	c.rules.list, c.rules.byName[p.Name] = append(c.rules.list, r), r
}

// ownLimits returns the policy's limits with defaults.
func (c *compiler) ownLimits(at Error, p *Policy) []Limit {
	if len(p.Limits) == 0 {
		c.complain(at, "limits", "there is none; say at least {rate: 100, per: 1s}, or mode: off")
	}
	limits := slices.Clone(p.Limits)
	for i := range limits {
		l := &limits[i]
		at.Limit = i
		if l.Name == "" {
			l.Name = "main"
		}
		if l.Unit == "" {
			l.Unit = Requests
		}
		l.Mode = l.Mode.or(p.Mode.or(Enforce))
		c.checkLimit(at, l, limits[:i])
	}
	return limits
}

// checkLimit checks a limit by itself and beside those before it.
func (c *compiler) checkLimit(at Error, l *Limit, before []Limit) {
	switch {
	case !isName(l.Name, maxName):
		c.complain(at, "name", "must be 1 to %d letters, digits or -_.", maxName)
	case slices.ContainsFunc(before, func(o Limit) bool { return o.Name == l.Name }):
		c.complain(at, "name", "%q is taken by another limit of the policy; name them apart", l.Name)
	case l.By != "" && !isName(l.By, maxAttribute):
		c.complain(at, "by", "must be 1 to %d letters, digits or -_.", maxAttribute)
	case !isName(l.Unit, maxAttribute):
		c.complain(at, "unit", "must be 1 to %d letters, digits or -_.", maxAttribute)
	}
	c.checkNumbers(at, l)
}

// checkNumbers has weir look at a limit.
func (c *compiler) checkNumbers(at Error, l *Limit) {
	_, err := weir.NewPolicy("x", l.Limit)
	for _, e := range split(err) {
		if bad, ok := errors.AsType[*weir.LimitError](e); !ok {
			c.complain(at, "limits", "%v", e)
		} else if bad.Field != "name" { // of which checkLimit has told
			c.complain(at, bad.Field, "%v %s", bad.Value, bad.Problem)
		}
	}
}

// overrides compiles those of a rule.
func (c *compiler) overrides(r *Rule, limits []Limit) {
	for i := range r.policy.Overrides {
		o := &r.policy.Overrides[i]
		at := Error{Policy: r.policy.Name, Override: o.Key, Limit: -1}
		prefix, pattern := o.isPattern()
		switch {
		case o.Key == "":
			c.complain(at, "overrides", "an override needs a key, such as alice or partner-*")
			continue
		case strings.Contains(prefix, "*"):
			c.complain(at, "overrides", "a * may only stand at the end")
			continue
		case weir.CheckKey(o.Key) != nil:
			c.complain(at, "overrides", "a key has at most %d bytes", weir.MaxKeyBytes)
			continue
		case len(o.Limits) == 0:
			c.complain(at, "limits", "there is none, so it changes nothing")
			continue
		}
		v := c.variant(at, r, o, c.override(at, o, limits))
		switch {
		case v == nil:
		case pattern:
			r.prefixes = append(r.prefixes, v)
		case r.exact == nil:
			r.exact = map[string]*Variant{o.Key: v}
		default:
			r.exact[o.Key] = v // the last one counts: those of the store follow those of the file
		}
	}
	slices.Reverse(r.prefixes)
	slices.SortStableFunc(r.prefixes, func(a, b *Variant) int { return len(b.override.Key) - len(a.override.Key) })
}

// override returns limits with those of o in their places.
func (c *compiler) override(at Error, o *Override, limits []Limit) []Limit {
	limits = slices.Clone(limits)
	seen := map[string]bool{}
	for i, l := range o.Limits {
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
		l = l.instead(limits[place])
		c.checkLimit(at, &l, nil)
		if l.By != limits[place].By || l.Unit != limits[place].Unit || l.Mode != limits[place].Mode {
			c.complain(at, "by", "an override changes numbers; by, unit and mode stay the policy's")
		}
		limits[place] = l
	}
	return limits
}

// instead fills in what l leaves to the limit that it replaces.
func (l Limit) instead(of Limit) Limit {
	if l.By == "" {
		l.By = of.By
	}
	if l.Unit == "" {
		l.Unit = of.Unit
	}
	l.Mode = l.Mode.or(of.Mode)
	if l.Algorithm == weir.Auto && isCalendar(l.Per) == isCalendar(of.Per) {
		l.Algorithm = of.Algorithm
	}
	if l.OnError == weir.OnErrorDefault {
		l.OnError = of.OnError
	}
	return l
}

func isCalendar(p weir.Period) bool {
	_, zone := p.Calendar()
	return zone != nil
}

// variant makes the groups of limits. It returns nil if they cannot be.
func (c *compiler) variant(at Error, r *Rule, o *Override, limits []Limit) *Variant {
	v := &Variant{rule: r, id: len(c.rules.variants), override: o}
	for _, l := range limits {
		if l.Mode != Off {
			v.limits, v.names = append(v.limits, l), append(v.names, limitName(r.policy.Name, l.Name))
		}
	}
	before := len(c.problems)
	for _, mode := range []Mode{Enforce, Shadow} {
		v.gather(mode, func(g *group, limits []weir.Limit) {
			name := g.name(&r.policy)
			p, err := weir.NewPolicy(name, limits...)
			for _, e := range split(err) {
				c.complain(at, "limits", "%v", e)
			}
			g.policy = c.known(r, v, p)
		})
		if mode == Enforce {
			v.enforced = len(v.groups)
		}
	}
	if len(c.problems) > before {
		return nil
	}
	v.simple = len(v.groups) == 1 && v.enforced == 1 && v.groups[0].by == "" && v.groups[0].unit == Requests && r.policy.Rollout == All
	c.rules.variants = append(c.rules.variants, v)
	return v
}

// gather appends the groups of the limits that have a mode.
func (v *Variant) gather(mode Mode, compile func(*group, []weir.Limit)) {
	first := len(v.groups)
	for i := range v.limits {
		l := &v.limits[i]
		if l.Mode != mode {
			continue
		}
		at := slices.IndexFunc(v.groups[first:], func(g group) bool { return g.by == l.By && g.unit == l.Unit })
		if at < 0 {
			at = len(v.groups) - first
			v.groups = append(v.groups, group{by: l.By, unit: l.Unit, mode: mode})
		}
		g := &v.groups[first+at]
		g.limits = append(g.limits, i)
	}
	for i := range v.groups[first:] {
		g := &v.groups[first+i]
		var limits []weir.Limit
		for _, at := range g.limits {
			limits = append(limits, v.limits[at].Limit)
		}
		compile(g, limits)
	}
}

// name returns what the limiter calls the group's policy. State is kept under it. The
// characters that tell its parts apart cannot be in them.
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

// known returns the policy that was compiled before, if nothing has changed since.
func (c *compiler) known(r *Rule, v *Variant, p *weir.Policy) *weir.Policy {
	if c.previous == nil || p == nil {
		return p
	}
	was := c.previous.Rule(r.policy.Name)
	if was == nil {
		return p
	}
	old := was.base
	if v.override != nil {
		old = was.override(v.override.Key)
	}
	if old == nil {
		return p
	}
	if g := old.group(p.Name()); g != nil && g.policy.Same(p) && slices.Equal(g.policy.Limits(), p.Limits()) {
		return g.policy
	}
	return p
}

// override returns the variant for an override's key, or nil.
func (r *Rule) override(key string) *Variant {
	if v := r.exact[key]; v != nil {
		return v
	}
	for _, v := range r.prefixes {
		if v.override.Key == key {
			return v
		}
	}
	return nil
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

// split returns the errors that were joined.
func split(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// isName says whether a name is short and has nothing in it that has to be escaped
// somewhere, or that a group's name uses.
func isName(name string, most int) bool {
	return name != "" && len(name) <= most && strings.Trim(name, nameChars) == "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune(nameChars, c)
	})
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
