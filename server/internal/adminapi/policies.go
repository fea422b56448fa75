package adminapi

import (
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// policyAnswer is a policy that is in force.
type policyAnswer struct {
	Name      string          `json:"name"`
	Mode      ruleset.Mode    `json:"mode"`
	Rollout   string          `json:"rollout"`
	Limits    []limitAnswer   `json:"limits"`
	Overrides []sourcedAnswer `json:"overrides"`
}

// sourcedAnswer is an override of a policy. Of two for the same key the operators' counts.
type sourcedAnswer struct {
	overrideAnswer
	Source string `json:"source"`
}

// policies answers GET /admin/v1/policies.
func (a *api) policies(x *exchange) (any, error) {
	out := []policyAnswer{}
	from, now := a.origins(x), time.Now()
	for _, rule := range x.state.Rules.All() {
		out = append(out, policyOf(rule, from, now))
	}
	return map[string]any{"policies": out}, nil
}

func policyOf(rule *ruleset.Rule, from origins, now time.Time) policyAnswer {
	p := rule.Policy()
	out := policyAnswer{Name: p.Name, Mode: p.Mode, Rollout: p.Rollout.String(), Limits: []limitAnswer{}, Overrides: []sourcedAnswer{}}
	for _, l := range p.Limits {
		out.Limits = append(out.Limits, limitOf(p, l))
	}
	for i := range p.Overrides {
		o := &p.Overrides[i]
		if o.Until.IsZero() || now.Before(o.Until) {
			out.Overrides = append(out.Overrides, sourcedAnswer{overrideOf(o), from.of(rule, o)})
		}
	}
	return out
}
