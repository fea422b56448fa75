package adminapi

import (
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// keyAnswer is the limit status of a key.
type keyAnswer struct {
	Policy   string         `json:"policy"`
	Key      string         `json:"key"`
	Class    string         `json:"class,omitempty"` // whose status it is, under a policy with classes
	Rollout  string         `json:"rollout"`
	Enforced bool           `json:"enforced"` // whether limits are enforced for this key
	Override *appliedAnswer `json:"override"` // null if the policy's own numbers apply
	Limits   []statusEntry  `json:"limits"`   // the tightest of each group
	Missing  []string       `json:"missing"`  // attributes by which there are limits, and that were not given
}

// appliedAnswer is the override that applies to a key.
type appliedAnswer struct {
	Key    string `json:"key"`
	Until  string `json:"until"`
	Source string `json:"source"`
}

// statusEntry is the status of a limit.
type statusEntry struct {
	Limit        string       `json:"limit"`
	Key          string       `json:"key"`
	By           string       `json:"by"`
	Unit         string       `json:"unit"`
	Mode         ruleset.Mode `json:"mode"` // what it is for this key
	Capacity     int64        `json:"capacity"`
	Remaining    int64        `json:"remaining"`
	ResetAfterMs int64        `json:"reset_after_ms"`
}

// inspect answers GET /admin/v1/keys.
func (a *api) inspect(x *exchange) (any, error) {
	rule, q, err := a.inspected(x)
	if err != nil {
		return nil, err
	}
	v, statuses, err := a.Engine.Inspect(x.r.Context(), rule, q)
	if bad, ok := errors.AsType[*ruleset.InputError](err); ok {
		return nil, call.Invalid("%v", bad)
	}
	if err != nil {
		return nil, err
	}
	enforced := v.Enforces(q.Key)
	out := keyAnswer{
		Policy: rule.Name(), Key: q.Key, Class: rule.ClassOf(q), Rollout: rule.Policy().Rollout.String(), Enforced: enforced,
		Limits: []statusEntry{}, Missing: missing(v, q),
	}
	if o := v.Override(); o != nil {
		out.Override = &appliedAnswer{Key: o.Key, Until: untilText(o.Until), Source: a.origins(x).of(rule, o)}
	}
	for _, s := range statuses {
		out.Limits = append(out.Limits, statusEntryOf(v, s, enforced))
	}
	return out, nil
}

// inspected returns the rule and the query of a call.
func (a *api) inspected(x *exchange) (*ruleset.Rule, *ruleset.Query, error) {
	if err := x.need("policy", "the name of a policy"); err != nil {
		return nil, nil, err
	}
	if len(x.req.keys) == 0 && a.account(x.req.policy) == nil {
		if err := x.need("key", "the rate-limit key, such as a user's name"); err != nil {
			return nil, nil, err
		}
	}
	rule, err := x.rule(x.req.policy)
	if err != nil {
		return nil, nil, err
	}
	q := &ruleset.Query{Key: x.req.key, Keys: x.req.keys, Class: x.params["class"]}
	return rule, q, a.keyed(q, rule.Name())
}

func statusEntryOf(v *ruleset.Variant, s ruleset.LimitStatus, enforced bool) statusEntry {
	l := v.Limits()[s.Limit]
	mode := l.Mode
	if !enforced {
		mode = ruleset.Shadow
	}
	return statusEntry{
		Limit: v.LimitName(s.Limit), Key: s.Key, By: l.By, Unit: l.Unit, Mode: mode,
		Capacity: s.Capacity, Remaining: s.Remaining, ResetAfterMs: ruleset.Millis(s.Reset),
	}
}

// missing returns the attributes that limits are by and the query lacks.
func missing(v *ruleset.Variant, q *ruleset.Query) []string {
	list := []string{}
	for _, l := range v.Limits() {
		given := slices.ContainsFunc(q.Keys, func(k ruleset.Attribute) bool { return k.Name == l.By })
		if l.By != "" && !given && !slices.Contains(list, l.By) {
			list = append(list, l.By)
		}
	}
	return list
}

// resetAnswer says what was reset: the names of the limits.
type resetAnswer struct {
	Policy string   `json:"policy"`
	Key    string   `json:"key"`
	Reset  []string `json:"reset"`
}

// reset answers POST /admin/v1/keys/reset.
func (a *api) reset(x *exchange) (any, error) {
	rule, err := x.rule(x.req.policy)
	if err != nil {
		return nil, err
	}
	q := ruleset.Query{Key: x.req.key, Keys: x.req.keys}
	if err := a.keyed(&q, rule.Name()); err != nil {
		return nil, err
	}
	err = a.Engine.Reset(x.r.Context(), rule, &q)
	if bad, ok := errors.AsType[*ruleset.InputError](err); ok {
		return nil, call.Invalid("%v", bad)
	}
	if err != nil {
		return nil, err
	}
	out := resetAnswer{Policy: rule.Name(), Key: q.Key, Reset: []string{}}
	v := rule.For(q.Key, time.Now())
	for i := range v.Limits() {
		out.Reset = append(out.Reset, v.LimitName(i))
	}
	return out, nil
}

// untilText returns when an override ends.
func untilText(t time.Time) string {
	if t.IsZero() {
		return never
	}
	return t.UTC().Format(time.RFC3339Nano)
}
