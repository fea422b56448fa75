package adminapi

import (
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// policiesAnswer is the policies that are in force.
type policiesAnswer struct {
	Policies []policyAnswer `json:"policies"`
}

type policyAnswer struct {
	Name      string           `json:"name"`
	Mode      ruleset.Mode     `json:"mode"`
	Rollout   string           `json:"rollout"`
	Limits    []limitAnswer    `json:"limits"`
	Overrides []overrideAnswer `json:"overrides"`
}

// overrideAnswer is an override of a policy. Of two for the same key the operators' counts.
type overrideAnswer struct {
	Key    string          `json:"key"`
	Limits []numbersAnswer `json:"limits"`
	Until  string          `json:"until"`
	Source string          `json:"source"`
}

// policies answers GET /admin/v1/policies.
func (a *api) policies(c *call) (any, error) {
	if err := c.noParams(); err != nil {
		return nil, err
	}
	out := policiesAnswer{Policies: []policyAnswer{}}
	from, now := a.origins(c), time.Now()
	for _, rule := range c.state.Rules.All() {
		out.Policies = append(out.Policies, policyOf(rule, from, now))
	}
	return out, nil
}

func policyOf(rule *ruleset.Rule, from *origins, now time.Time) policyAnswer {
	p := rule.Policy()
	out := policyAnswer{Name: p.Name, Mode: p.Mode, Rollout: p.Rollout.String(), Limits: []limitAnswer{}, Overrides: []overrideAnswer{}}
	for _, l := range p.Limits {
		out.Limits = append(out.Limits, limitOf(p, l))
	}
	for i := range p.Overrides {
		o := &p.Overrides[i]
		if o.Until.IsZero() || now.Before(o.Until) {
			out.Overrides = append(out.Overrides, overrideAnswer{
				Key: o.Key, Limits: numbersOf(o.Limits), Until: untilText(o.Until), Source: from.of(rule, o),
			})
		}
	}
	return out
}
