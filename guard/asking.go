package guard

import (
	"context"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
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
	if err := storeapi.CheckKey(q.Key); err != nil {
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
			err = storeapi.CheckCharge(c.Policy, c.Key, c.Cost)
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
	clear(a.groups)
	a.groups, a.charges, a.batch.Charges = a.groups[:0], a.charges[:0], nil
	a.variant, a.query = nil, nil
	askings.Put(a)
}

// put asks the limiter for the enforced charges.
func (a *asking) put(ctx context.Context, l weir.Limiter, op weir.Op) (Verdict, error) {
	out := Verdict{Decision: weir.Decision{Allowed: true, Reason: weir.Admitted}, Variant: a.variant, Limit: -1, Shadow: -1}
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
// wrong is nobody's concern: the request has its answer. So slots, which cannot be taken,
// are left out then.
func (a *asking) shadow(ctx context.Context, l weir.Limiter, op weir.Op, out *Verdict) {
	if op == weir.TakeAll {
		a.leaveOutSlots()
	}
	if a.enforced < len(a.groups) {
		a.shadowPart(ctx, l, a.part(op, a.enforced, len(a.groups)), out)
	}
}

func (a *asking) leaveOutSlots() {
	kept := a.enforced
	for i := a.enforced; i < len(a.groups); i++ {
		if !a.groups[i].policy.ReserveOnly() {
			a.groups[kept], a.charges[kept] = a.groups[i], a.charges[i]
			kept++
		}
	}
	clear(a.groups[kept:])
	clear(a.charges[kept:])
	a.groups, a.charges = a.groups[:kept], a.charges[:kept]
}

// shadowPart carries out a batch of the charges in shadow, and reports what came of it. It
// returns false if they were not made.
func (a *asking) shadowPart(ctx context.Context, l weir.Limiter, b *weir.Batch, out *Verdict) bool {
	if err := l.Do(ctx, b); err != nil {
		return false
	}
	i := b.Worst()
	d, g := b.Decisions[i], a.groups[a.enforced+i]
	if !d.Allowed {
		out.Shadow = g.place(d)
	}
	if a.enforced == 0 { // then there is nothing else to tell
		at := d
		at.Allowed, at.Reason, at.RetryAfter = true, weir.Admitted, 0
		out.decided(g, at)
	}
	return b.Allowed()
}
