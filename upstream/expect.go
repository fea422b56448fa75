package upstream

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// expect returns when an endpoint can be expected to take a call, if that many others are planned before it: for
// the endpoint, and for endpoints of its account together. All are taken for as expensive as the call. That is exact
// for one limit, and otherwise an estimate. It charges nothing. Reservations are taken for calls that are being sent:
// not for as long as they are held.
func (p *Pool) expect(ctx context.Context, e *endpoint, c *Call, ahead, together int) (refusal, error) {
	now := time.Now()
	r, closed := e.closed(now, false)
	if closed && r.at.IsZero() {
		return r, nil
	}
	note := func(wait time.Duration, limit string) {
		switch at := now.Add(wait); {
		case wait == weir.Never:
			r.never, r.limit = true, limit
		case at.After(r.at):
			r.at, r.limit = at, limit
		}
	}
	if e.policy != nil {
		wait, limit, err := p.expectPolicy(ctx, e, c, ahead)
		if err != nil {
			return r, err
		}
		note(wait, limit)
	}
	if e.budget != nil {
		wait, limit, err := p.expectBudget(ctx, e, c, together)
		if err != nil {
			return r, err
		}
		note(wait, limit)
	}
	return r, nil
}

// A round is what fits into a limit at once: so many units come back in so long.
type round struct {
	units  int64
	length time.Duration
}

// roundOf returns the round of a limit that has so many units at once.
func roundOf(l weir.Limit, units int64) round {
	return round{units, time.Duration(float64(l.Per.Duration()) * float64(units) / float64(l.Rate))}
}

// wait returns how long to wait for a decision's charge: not longer than until all units are back, if open
// reservations could make it longer.
func (r round) wait(d weir.Decision) time.Duration {
	if d.Held {
		return min(d.RetryAfter, r.length)
	}
	return d.RetryAfter
}

// split returns how many calls of a cost are in the last, incomplete round of n, and how long the rounds before take.
func (r round) split(n, cost int64) (inLast int64, before time.Duration) {
	each := max(1, r.units/max(1, cost))
	return (n-1)%each + 1, time.Duration((n-1)/each) * r.length
}

// expectPolicy is expect for the endpoint's own limits.
func (p *Pool) expectPolicy(ctx context.Context, e *endpoint, c *Call, ahead int) (time.Duration, string, error) {
	charge := e.charges(c, nil)[0]
	peek := func(cost int64) (weir.Decision, error) {
		return weir.Peek(patient(ctx), p.engine.Limiter(), charge.Policy, charge.Key, cost)
	}
	d, err := peek(charge.Cost)
	if err != nil {
		return 0, "", err
	}
	if d.RetryAfter == weir.Never {
		name, _ := e.ownLimit(d.By)
		return d.RetryAfter, name, nil
	}
	least := round{}
	for _, l := range e.policy.Limits() {
		if units := capacity(l); least.units == 0 || units < least.units {
			least = roundOf(l, units)
		}
	}
	inLast, before := least.split(int64(ahead)+1, charge.Cost)
	if inLast > 1 {
		if d, err = peek(inLast * charge.Cost); err != nil {
			return 0, "", err
		}
	}
	name, _ := e.ownLimit(d.By)
	return before + least.wait(d), name, nil
}

// capacity returns how many units a limit has at once.
func capacity(l weir.Limit) int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Rate
}

// expectBudget is expect for the endpoint's account.
func (p *Pool) expectBudget(ctx context.Context, e *endpoint, c *Call, ahead int) (time.Duration, string, error) {
	rule, q, err := e.query(p.engine.Rules(), c)
	if err != nil {
		return 0, "", err
	}
	q.With = nil
	v, err := p.engine.Peek(ctx, rule, q)
	if err != nil {
		return 0, "", err
	}
	if v.Limit < 0 || v.RetryAfter == weir.Never || ahead == 0 && !v.Held {
		name, _, _ := e.limitOf(&v)
		return v.RetryAfter, name, nil
	}
	limit, cost := v.Variant.Limits()[v.Limit], int64(1)
	for _, each := range q.Costs {
		if each.Unit == limit.Unit {
			cost = max(1, each.Amount)
		}
	}
	all := roundOf(limit.Limit, v.Decision.Limit)
	inLast, before := all.split(int64(ahead)+1, cost)
	if inLast > 1 {
		for i := range q.Costs {
			q.Costs[i].Amount *= inLast
		}
		if v, err = p.engine.Peek(ctx, rule, q); err != nil {
			return 0, "", err
		}
	}
	if v.RetryAfter == weir.Never {
		v.RetryAfter = 0 // another unit has less room at once; the rounds before are an estimate enough
	}
	name, _, _ := e.limitOf(&v)
	return before + all.wait(v.Decision), name, nil
}
