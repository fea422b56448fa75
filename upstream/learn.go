package upstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
)

// learn applies what the headers of a response say about limits: to the account that pays for the endpoint, or else to
// the endpoint's own limits. It only ever tightens them, and begins no cooldown: units come back before they are full.
func (p *Pool) learn(ctx context.Context, e *endpoint, h http.Header) {
	var err error
	switch {
	case e.budget != nil: // several endpoints may share it, so what is left is not this endpoint's
		err = e.budget.Learn(ctx, h)
	case len(e.views) > 0:
		err = e.memory.learning.Learn(time.Now(), h, func(views []budget.View) error { return p.compare(ctx, e, views) })
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, weir.ErrUnavailable) {
		p.set.Load().config.Logger.Warn("upstream: what the provider says cannot be applied", "pool", p.name, "upstream", e.Alias, "error", err)
	}
}

// compare charges the endpoint's limits what the provider has counted and they have not. They count requests.
func (p *Pool) compare(ctx context.Context, e *endpoint, views []budget.View) error {
	usage, err := p.usage(ctx, e)
	if err != nil {
		return err
	}
	n := budget.Drift(views, []string{ruleset.Requests}, usage)[ruleset.Requests]
	if n == 0 {
		return nil
	}
	b := &weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: e.policy, Key: endpointKey, Cost: n}}}
	if err := p.do(ctx, b); err != nil {
		return err
	}
	e.memory.stats.drift.Add(n)
	return nil
}

// usage returns what is left of each of the endpoint's own limits.
func (p *Pool) usage(ctx context.Context, e *endpoint) (list []ruleset.LimitUsage, err error) {
	b := &weir.Batch{Op: weir.PeekEach}
	for _, view := range e.views {
		b.Charges = append(b.Charges, weir.Charge{Policy: view, Key: endpointKey})
	}
	if err := p.do(ctx, b); err != nil {
		return nil, err
	}
	for i, d := range b.Decisions {
		l := ruleset.Limit{Limit: e.views[i].Limits()[0], Unit: ruleset.Requests}
		list = append(list, ruleset.LimitUsage{Limit: l, Capacity: d.Limit, Remaining: d.Remaining})
	}
	return list, nil
}

// viewsOf returns a policy for each limit of one, on the same state, because a decision tells only of the tightest limit.
// There are none if calls in flight are limited, which cannot be charged for what others do.
func viewsOf(policy *weir.Policy) (list []*weir.Policy, err error) {
	if policy.ReserveOnly() {
		return nil, nil
	}
	for _, l := range policy.Limits() {
		view, err := storeapi.Override(policy, l)
		if err != nil {
			return nil, err
		}
		list = append(list, view)
	}
	return list, nil
}
