package adminapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// ErrTooMany is what Config.PutOverride returns if no more overrides fit.
var ErrTooMany = errors.New("adminapi: too many overrides")

// overrideAnswer is an override of a policy.
type overrideAnswer struct {
	Key    string          `json:"key"`
	Limits []numbersAnswer `json:"limits"`
	Until  string          `json:"until"`
}

func overrideOf(o *ruleset.Override) overrideAnswer {
	return overrideAnswer{Key: o.Key, Limits: numbersOf(o.Limits), Until: untilText(o.Until)}
}

// setAnswer is an override that an operator has set.
type setAnswer struct {
	Policy string `json:"policy"`
	overrideAnswer
}

// put answers PUT /admin/v1/keys/override.
func (a *api) put(x *exchange) (any, error) {
	rule, err := x.rule(x.req.policy)
	if err != nil {
		return nil, err
	}
	until, err := x.req.end(time.Now())
	if err != nil {
		return nil, err
	}
	o := Override{Policy: rule.Name(), Override: ruleset.Override{Key: x.req.key, Limits: x.req.limits, Until: until}}
	if err := fits(rule, &o.Override); err != nil {
		return nil, err
	}
	switch err := a.PutOverride(x.r.Context(), o); {
	case errors.Is(err, ErrTooMany):
		return nil, call.Errorf(call.Conflict, "too many overrides are set; remove some, or write a pattern such as partner-*")
	case err != nil:
		return nil, err
	}
	return setAnswer{o.Policy, overrideOf(&o.Override)}, nil
}

// end returns when the override ends, the zero time for never.
func (req *request) end(now time.Time) (time.Time, error) {
	switch {
	case req.ttl > 0:
		return now.Add(req.ttl).UTC().Truncate(time.Millisecond), nil
	case req.until.IsZero():
		return time.Time{}, nil
	case !req.until.After(now):
		return time.Time{}, call.Invalid(`"until" is over already`)
	case req.until.After(now.Add(maxTTL)):
		return time.Time{}, call.Invalid(`"until" must be within ten years; say "never" for longer`)
	}
	return req.until, nil
}

// fits says what is wrong with an override.
func fits(rule *ruleset.Rule, o *ruleset.Override) error {
	err := rule.CheckOverride(*o)
	if err == nil {
		return nil
	}
	var ofLimits, others []string
	for _, e := range split(err) {
		if bad, ok := errors.AsType[*ruleset.Error](e); ok && bad.Limit >= 0 {
			ofLimits = append(ofLimits, explain(o, bad))
		} else {
			others = append(others, explain(o, e))
		}
	}
	if len(ofLimits) > 0 { // the others follow from them
		others = ofLimits
	}
	return call.Invalid("%s", strings.Join(others, "; "))
}

// explain tells a problem in the words of the body.
func explain(o *ruleset.Override, err error) string {
	bad, ok := errors.AsType[*ruleset.Error](err)
	switch {
	case !ok:
		return err.Error()
	case bad.Limit >= 0 && bad.Field == "per" && perText(o.Limits[bad.Limit].Per) == "":
		return fmt.Sprintf(`"limits[%d].per" is missing: a period such as "1s", "1m" or "day"`, bad.Limit)
	case bad.Limit >= 0:
		return fmt.Sprintf(`"limits[%d].%s": %s`, bad.Limit, bad.Field, bad.Problem)
	case bad.Field == "overrides":
		return `"key": ` + bad.Problem
	}
	return fmt.Sprintf("%q: %s", bad.Field, bad.Problem)
}

// split returns the errors that were joined.
func split(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// removedAnswer is the override that is no more.
type removedAnswer struct {
	Policy  string `json:"policy"`
	Key     string `json:"key"`
	Removed bool   `json:"removed"`
}

// remove answers DELETE /admin/v1/keys/override. The policy may be gone already.
func (a *api) remove(x *exchange) (any, error) {
	if err := cmp.Or(x.need("policy", "the name of a policy"), x.need("key", "whose override it is")); err != nil {
		return nil, err
	}
	was, err := a.RemoveOverride(x.r.Context(), x.req.policy, x.req.key)
	switch {
	case err != nil:
		return nil, err
	case !was:
		return nil, call.Errorf(call.NotFound, "no operator has set an override of this key for the policy %s; those of the file stay", strictjson.Quote(x.req.policy))
	}
	return removedAnswer{Policy: x.req.policy, Key: x.req.key, Removed: true}, nil
}

// listedAnswer is one of all overrides that operators have set.
type listedAnswer struct {
	setAnswer
	InForce bool `json:"in_force"` // false if the policies have changed so that it does not fit
}

// list answers GET /admin/v1/overrides.
func (a *api) list(x *exchange) (any, error) {
	list, err := a.ListOverrides(x.r.Context())
	if err != nil {
		return nil, err
	}
	out := []listedAnswer{}
	for i := range list {
		o := &list[i]
		out = append(out, listedAnswer{setAnswer{o.Policy, overrideOf(&o.Override)}, x.state.inForce(o)})
	}
	slices.SortFunc(out, func(a, b listedAnswer) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key))
	})
	return map[string]any{"overrides": out}, nil
}

// inForce says whether the rules have an override.
func (s *State) inForce(o *Override) bool {
	rule := s.Rules.Rule(o.Policy)
	if rule == nil {
		return false
	}
	applied := rule.For(o.Key, time.Now()).Override() // a pattern matches itself
	return applied != nil && same(applied, &o.Override)
}
