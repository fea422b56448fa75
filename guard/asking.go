package guard

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// asking is a query on its way to a decision: its charges, the enforced ones first. It is
// used again by later queries.
type asking struct {
	variant  *Variant
	query    *Query
	groups   []*group
	enforced int // how many of them are enforced
	charges  []weir.Charge
	batch    weir.Batch // of some of the charges
}

var askings = sync.Pool{New: func() any { return new(asking) }}

// newAsking makes the charges of a query. The caller frees it.
func newAsking(v *Variant, q *Query) (*asking, error) {
	if err := q.check(v); err != nil {
		return nil, err
	}
	if err := weir.CheckKey(q.Key); err != nil {
		return nil, err
	}
	a := askings.Get().(*asking)
	a.variant, a.query, a.enforced = v, q, v.enforced
	if !v.rule.policy.Rollout.includes(v.rule.policy.Name, q.Key) {
		a.enforced = 0
	}
	for i := range v.groups {
		g := &v.groups[i]
		key, err := q.keyOf(g)
		if err == nil {
			c := weir.Charge{Policy: g.policy, Key: key, Cost: q.costOf(g)}
			a.groups, a.charges = append(a.groups, g), append(a.charges, c)
			err = c.Check()
		}
		if err != nil {
			a.free()
			return nil, err
		}
	}
	return a, nil
}

func (a *asking) free() {
	clear(a.charges) // keys are not kept
	a.groups, a.charges, a.batch.Charges = a.groups[:0], a.charges[:0], nil
	a.variant, a.query = nil, nil
	askings.Put(a)
}

// put asks the limiter for the enforced charges.
func (a *asking) put(ctx context.Context, l weir.Limiter, op weir.Op) (Verdict, error) {
	out := Verdict{Decision: weir.Decision{Allowed: true}, Variant: a.variant, Limit: -1, Shadow: -1}
	if a.enforced == 0 {
		return out, nil
	}
	if op == weir.TakeAll && a.enforced == 1 {
		c := &a.charges[0]
		d, err := l.Take(ctx, c.Policy, c.Key, c.Cost)
		out.decided(a.groups[0], d)
		return out, err
	}
	b := a.part(op, 0, a.enforced)
	if err := l.Do(ctx, b); err != nil {
		return out, err
	}
	i := b.Worst()
	out.decided(a.groups[i], b.Decisions[i])
	return out, nil
}

// part returns a batch of some of the charges, in memory that the next one uses again.
func (a *asking) part(op weir.Op, from, to int) *weir.Batch {
	a.batch.Op, a.batch.Charges = op, a.charges[from:to]
	return &a.batch
}

// shadow asks for the charges that are not enforced, after those that are. What goes
// wrong is nobody's concern: the request has its answer.
func (a *asking) shadow(ctx context.Context, l weir.Limiter, op weir.Op, out *Verdict) {
	if a.enforced == len(a.groups) {
		return
	}
	b := a.part(op, a.enforced, len(a.groups))
	if err := l.Do(ctx, b); err != nil {
		return
	}
	i := b.Worst()
	d, g := b.Decisions[i], a.groups[a.enforced+i]
	if !d.Allowed && int(d.By) < len(g.limits) {
		out.Shadow = g.limits[d.By]
	}
	if a.enforced == 0 { // then there is nothing else to tell
		at := d
		at.Allowed, at.Reason, at.RetryAfter = true, weir.Admitted, 0
		out.decided(g, at)
	}
}

// wait takes the enforced charges when they fit, until ctx ends. One charge waits in
// line; several try again when they were told that they would fit, in no order.
func (a *asking) wait(ctx context.Context, q *weir.Queue) (Verdict, error) {
	if a.enforced == 1 {
		out := Verdict{Variant: a.variant, Limit: -1, Shadow: -1}
		c := &a.charges[0]
		d, err := q.Wait(ctx, c.Policy, c.Key, c.Cost)
		out.decided(a.groups[0], d)
		return out, err
	}
	for {
		out, err := a.put(ctx, q, weir.TakeAll)
		if err != nil || out.Allowed || out.Reason != weir.Exhausted || out.RetryAfter == weir.Never {
			return out, err
		}
		if deadline, _ := ctx.Deadline(); out.RetryAfter > time.Until(deadline) {
			out.Reason = weir.TooLate
			return out, nil
		}
		pause := time.NewTimer(out.RetryAfter)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return out, ctx.Err()
		}
	}
}

// tooLate is the answer when the time to wait is over.
func (a *asking) tooLate(ctx context.Context, l weir.Limiter) (Verdict, error) {
	out, err := a.put(ctx, l, weir.PeekEach)
	out.Allowed, out.Reason, out.RetryAfter = false, weir.TooLate, max(1, out.RetryAfter)
	return out, err
}
