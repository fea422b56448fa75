package ruleset

// Plan is a named set of limits, for example those of the tier "pro". Its limits act on the same
// state as those of the policy: the units in use are kept when a subject gets another plan.
//
// The limits of a request are those of the first of these that exists:
//
//   - the override for its key,
//   - the override for the longest non-empty prefix of its key,
//   - the plan that Query.Plan names,
//   - the override for "*", that is for all keys,
//   - the policy itself.
//
// The limits of an override are not combined with those of a plan.
type Plan struct {
	// Name is 1 to 64 letters, digits or -_.
	Name string

	// Limits replace those of the policy with the same name, as Override.Limits do.
	Limits []Limit
}

// maxPlans is the maximum number of plans of one policy.
const maxPlans = 100

// plans compiles those of a rule.
func (c *compiler) plans(r *Rule) {
	at := Error{Policy: r.policy.Name, Limit: -1}
	if n := len(r.policy.Plans); n > maxPlans {
		c.complain(at, "plans", "there are %d: at most %d fit", n, maxPlans)
		return
	}
	for i := range r.policy.Plans {
		p := &r.policy.Plans[i]
		if v := c.planVariant(r, p); v != nil {
			if r.plans == nil {
				r.plans = make(map[string]*Variant, len(r.policy.Plans))
			}
			r.plans[p.Name] = v
		}
	}
}

// planVariant compiles a plan. It returns nil if that is invalid.
func (c *compiler) planVariant(r *Rule, p *Plan) *Variant {
	at := Error{Policy: r.policy.Name, Plan: p.Name, Limit: -1}
	before := len(c.problems)
	switch {
	case !c.checkName(at, "plans", p.Name, maxName):
	case r.plans[p.Name] != nil:
		c.complain(at, "plans", "the name is taken by another plan of the policy")
	case len(p.Limits) == 0:
		c.complain(at, "limits", "there is none, so it changes nothing")
	default:
		own := c.replace(at, p.Limits, r.limits)
		if len(c.problems) == before {
			return c.variant(at, r, nil, own)
		}
	}
	return nil
}

// planned returns the variant of a plan, or the rule itself if it does not have the plan.
func (r *Rule) planned(plan string) *Variant {
	if v := r.plans[plan]; v != nil {
		return v
	}
	return r.base
}

// Plan returns the name of the variant's plan, "" if its limits are not those of a plan.
func (v *Variant) Plan() string { return v.plan }

// isBase reports whether the variant is the rule itself.
func (v *Variant) isBase() bool { return v.override == nil && v.plan == "" }

// kind names what a problem is in, for messages.
func (e *Error) kind() string {
	if e.Plan != "" {
		return "a plan"
	}
	return "an override"
}
