package adminapi

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
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

// limitAnswer is a limit of a policy, with its defaults filled in.
type limitAnswer struct {
	Name      string         `json:"name"` // as headers have it
	Rate      int64          `json:"rate"`
	Per       string         `json:"per"` // "" for concurrency
	Burst     int64          `json:"burst"`
	Algorithm weir.Algorithm `json:"algorithm"`
	By        string         `json:"by"` // "" for the key
	Unit      string         `json:"unit"`
	Mode      ruleset.Mode   `json:"mode"`
	OnError   weir.OnError   `json:"on_error"`
	Initial   weir.Fill      `json:"initial,omitzero"`
	MaxDebt   int64          `json:"max_debt,omitempty"`
	Classes   []classAnswer  `json:"classes,omitempty"`
	Pace      []string       `json:"pace,omitempty"`
}

// classAnswer is a class of a limit.
type classAnswer struct {
	Name       string `json:"name"`
	Guaranteed int64  `json:"guaranteed"`
	Burst      int64  `json:"burst,omitempty"` // 0 is its part of the limit's
	Borrow     bool   `json:"borrow"`
}

func classesOf(l weir.Limit) (list []classAnswer) {
	for _, c := range l.Classes.List() {
		list = append(list, classAnswer{Name: c.Name, Guaranteed: c.Guaranteed, Burst: c.Burst, Borrow: !c.NoBorrow})
	}
	return list
}

// limitOf shows a limit of a policy that has been compiled.
func limitOf(p *ruleset.Policy, l ruleset.Limit) limitAnswer {
	compiled, err := weir.NewPolicy(p.Name, l.Limit)
	if err != nil { // it was compiled before
		panic(err)
	}
	normal := compiled.Limits()[0]
	var pace []string
	if l.Pace != "" {
		pace = strings.Split(l.Pace, ",")
	}
	return limitAnswer{
		Name: compiled.LimitName(0), Rate: normal.Rate, Per: perText(normal.Per), Burst: normal.Burst, Algorithm: normal.Algorithm,
		By: l.By, Unit: cmp.Or(l.Unit, ruleset.Requests), Mode: cmp.Or(l.Mode, p.Mode), OnError: normal.OnError, Initial: l.Initial, MaxDebt: normal.MaxDebt,
		Classes: classesOf(l.Limit), Pace: pace,
	}
}

// numbersAnswer is a limit of an override, with what was given. It is what a PUT takes.
type numbersAnswer struct {
	Name      string         `json:"name"` // among the policy's limits
	Rate      int64          `json:"rate"`
	Per       string         `json:"per,omitempty"`
	Burst     int64          `json:"burst,omitempty"`
	Algorithm weir.Algorithm `json:"algorithm,omitzero"`
	Initial   weir.Fill      `json:"initial,omitzero"`
	MaxDebt   int64          `json:"max_debt,omitempty"`
	OnError   weir.OnError   `json:"on_error,omitzero"`
}

// numbersOf shows the limits of an override.
func numbersOf(limits []ruleset.Limit) []numbersAnswer {
	list := []numbersAnswer{}
	for _, l := range limits {
		list = append(list, numbersAnswer{
			Name: cmp.Or(l.Name, "main"), Rate: l.Rate, Per: perText(l.Per), Burst: l.Burst, Algorithm: l.Algorithm,
			Initial: l.Initial, MaxDebt: l.MaxDebt, OnError: l.OnError,
		})
	}
	return list
}

func perText(p weir.Period) string {
	if p == (weir.Period{}) {
		return ""
	}
	return p.String()
}

// Where an override comes from.
const (
	fromFile     = "file"
	fromOperator = "operator"
	fromUnknown  = "unknown" // the store that would know cannot be asked
)

// origins are the overrides that operators have set, nil if the store cannot be asked.
type origins map[target]*ruleset.Override

// target is what an override is for.
type target struct{ policy, key string }

// origins asks the store. If it does not answer, the call is answered without.
func (a *api) origins(x *exchange) origins {
	list, err := a.ListOverrides(x.r.Context())
	if err != nil {
		a.Log.Warn("cannot read the operators' overrides", "error", err)
		return nil
	}
	from := make(origins, len(list))
	for i := range list {
		from[target{list[i].Policy, list[i].Key}] = &list[i].Override
	}
	return from
}

// of returns where an override of a rule comes from. The file may have one for a key for
// which an operator has set another.
func (from origins) of(rule *ruleset.Rule, o *ruleset.Override) string {
	if from == nil {
		return fromUnknown
	}
	if set := from[target{rule.Name(), o.Key}]; set != nil && same(set, o) {
		return fromOperator
	}
	return fromFile
}

// same says whether two overrides are.
func same(a, b *ruleset.Override) bool {
	return a.Key == b.Key && a.Until.Equal(b.Until) && slices.Equal(a.Limits, b.Limits)
}
