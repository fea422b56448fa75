package adminapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// ErrTooMany is what Config.PutOverride returns if no more overrides fit.
var ErrTooMany = errors.New("adminapi: too many overrides")

// setAnswer is an override that an operator has set.
type setAnswer struct {
	Policy string          `json:"policy"`
	Key    string          `json:"key"`
	Limits []numbersAnswer `json:"limits"`
	Until  string          `json:"until"`
}

func setOf(o *Override) setAnswer {
	return setAnswer{Policy: o.Policy, Key: o.Key, Limits: numbersOf(o.Limits), Until: untilText(o.Until)}
}

// put answers PUT /admin/v1/keys/override.
func (a *api) put(c *call) (any, error) {
	rule, err := c.rule(c.req.policy)
	if err != nil {
		return nil, err
	}
	until, err := c.req.end(time.Now())
	if err != nil {
		return nil, err
	}
	o := Override{Policy: rule.Name(), Override: ruleset.Override{Key: c.req.key, Limits: c.req.limits, Until: until}}
	if err := fits(rule, &o.Override); err != nil {
		return nil, err
	}
	switch err := a.PutOverride(c.r.Context(), o); {
	case errors.Is(err, ErrTooMany):
		return nil, problemf(http.StatusConflict, "too many overrides are set; remove some, or write a pattern such as partner-*")
	case err != nil:
		return nil, err
	}
	return setOf(&o), nil
}

// end returns when the override ends, the zero time for never.
func (req *request) end(now time.Time) (time.Time, error) {
	switch {
	case req.ttl > 0:
		return now.Add(req.ttl).UTC().Truncate(time.Millisecond), nil
	case req.until.IsZero():
		return time.Time{}, nil
	case !req.until.After(now):
		return time.Time{}, problemf(http.StatusBadRequest, `"until" is over already`)
	case req.until.After(now.Add(maxTTL)):
		return time.Time{}, problemf(http.StatusBadRequest, `"until" must be within ten years; say "never" for longer`)
	}
	return req.until, nil
}

// fits says what is wrong with an override, by compiling its policy with it.
func fits(rule *ruleset.Rule, o *ruleset.Override) error {
	p := *rule.Policy()
	p.Overrides = []ruleset.Override{*o}
	_, err := ruleset.Compile([]ruleset.Policy{p}, nil)
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
	return problemf(http.StatusBadRequest, "%s", strings.Join(others, "; "))
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
func (a *api) remove(c *call) (any, error) {
	was, err := a.RemoveOverride(c.r.Context(), c.req.policy, c.req.key)
	switch {
	case err != nil:
		return nil, err
	case !was:
		return nil, problemf(http.StatusNotFound, "no operator has set an override of this key for the policy %s; those of the file stay", strictjson.Quote(c.req.policy))
	}
	return removedAnswer{Policy: c.req.policy, Key: c.req.key, Removed: true}, nil
}

// overridesAnswer is all that operators have set.
type overridesAnswer struct {
	Overrides []listedAnswer `json:"overrides"`
}

type listedAnswer struct {
	setAnswer
	InForce bool `json:"in_force"` // false if the policies have changed so that it does not fit
}

// list answers GET /admin/v1/overrides.
func (a *api) list(c *call) (any, error) {
	if err := c.noParams(); err != nil {
		return nil, err
	}
	list, err := a.ListOverrides(c.r.Context())
	if err != nil {
		return nil, err
	}
	out := overridesAnswer{Overrides: []listedAnswer{}}
	for i := range list {
		out.Overrides = append(out.Overrides, listedAnswer{setOf(&list[i]), c.state.inForce(&list[i])})
	}
	slices.SortFunc(out.Overrides, func(a, b listedAnswer) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key))
	})
	return out, nil
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
