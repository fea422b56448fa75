package guard

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Quota is the status of a limit for a subject. Of limits that are charged together, it is the tightest.
type Quota struct {
	Endpoint  string        // the name of the endpoint's policy
	Limit     string        // the limit's name in headers
	Capacity  int64         // what the limit admits at once
	Remaining int64         // what is left
	Reset     time.Duration // until it is as if unused
	Hidden    bool          // clients are not shown the limit
	Shadow    bool          // it is not enforced
}

// Quotas returns the status of the limits of an endpoint for a subject, or of all endpoints if the path
// is "". It charges nothing. Limits by other attributes than the subject are left out.
func (g *Guard) Quotas(ctx context.Context, s Subject, method, path string) ([]Quota, error) {
	r := g.rules.Load()
	if path != "" {
		return g.quotas(ctx, r, r.find(method, path), s, nil)
	}
	var list []Quota
	for _, e := range r.all() {
		var err error
		if list, err = g.quotas(ctx, r, e, s, list); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// quotas appends the status of an endpoint's limits.
func (g *Guard) quotas(ctx context.Context, r *Rules, e *endpoint, s Subject, list []Quota) ([]Quota, error) {
	if e.rule == nil {
		return list, nil
	}
	q := ruleset.Query{Key: s.Key, Plan: s.Plan}
	if r.penalties != nil {
		now := weir.Now()
		p := g.penaltyOf(ctx, r, s.Key, now)
		q.Scale, q.ShadowScale = p.share(r.penalties, enforced, now), p.share(r.penalties, shadow, now)
	}
	v, statuses, err := g.engine.Inspect(ctx, e.rule, &q)
	if err != nil {
		return nil, err
	}
	for _, x := range statuses {
		l := v.Limits()[x.Limit]
		list = append(list, Quota{
			Endpoint: e.name, Limit: v.LimitName(x.Limit), Capacity: x.Capacity, Remaining: x.Remaining, Reset: x.Reset,
			Hidden: l.Hidden, Shadow: l.Mode == ruleset.Shadow,
		})
	}
	return list, nil
}
