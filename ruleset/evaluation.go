package ruleset

import (
	"context"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// evaluation is the evaluation of a query: its charges, the enforced ones first. It is pooled.
type evaluation struct {
	variant  *Variant
	query    *Query
	groups   []*group
	enforced int // the number of enforced groups
	charges  []weir.Charge
	batch    weir.Batch // of some of the charges
}

var evaluations = sync.Pool{New: func() any { return new(evaluation) }}

// newEvaluation makes the charges of a query. The caller must free it.
func newEvaluation(v *Variant, q *Query) (*evaluation, error) {
	if err := q.check(v.rule); err != nil {
		return nil, err
	}
	if err := storeapi.CheckKey(q.Key); err != nil {
		return nil, err
	}
	e := evaluations.Get().(*evaluation)
	e.variant, e.query, e.enforced = v, q, v.enforced
	if !v.rule.includes(q.Key) {
		e.enforced = 0
	}
	if err := e.addOutside(q.With); err != nil {
		e.free()
		return nil, err
	}
	for i := range v.groups {
		g := &v.groups[i]
		key, err := q.keyOf(g)
		if err == nil {
			c := weir.Charge{Policy: g.charged(v.rule.ClassOf(q)), Key: key, Cost: q.costIn(v.rule, g.unit)}
			e.groups, e.charges = append(e.groups, g), append(e.charges, c)
			err = storeapi.CheckCharge(c.Policy, c.Key, c.Cost)
		}
		if err != nil {
			e.free()
			return nil, err
		}
	}
	if q.SkipShadow {
		e.leaveOutShadow()
	}
	return e, nil
}

// addOutside adds charges that are not the rule's, as enforced ones.
func (e *evaluation) addOutside(charges []weir.Charge) error {
	for _, c := range charges {
		e.groups, e.charges = append(e.groups, &group{policy: c.Policy, outside: true}), append(e.charges, c)
		e.enforced++
		if err := storeapi.CheckCharge(c.Policy, c.Key, c.Cost); err != nil {
			return err
		}
	}
	return nil
}

func (e *evaluation) free() {
	clear(e.charges) // keys are not kept
	clear(e.groups)
	e.groups, e.charges, e.batch.Charges = e.groups[:0], e.charges[:0], nil
	e.variant, e.query = nil, nil
	evaluations.Put(e)
}

// admitted is the decision on a query without enforced charges.
var admitted = weir.Decision{Allowed: true, Reason: weir.Admitted}

// verdict returns a decision that is not about one of the limits.
func (e *evaluation) verdict(d weir.Decision) Verdict {
	return Verdict{Decision: d, Variant: e.variant, Limit: -1, Shadow: -1}
}

// decide has the limiter carry out op for the enforced charges.
func (e *evaluation) decide(ctx context.Context, l weir.Limiter, op weir.Op) (Verdict, error) {
	if e.enforced == 0 {
		return e.verdict(admitted), nil
	}
	return e.carryOut(ctx, l, e.part(op, 0, e.enforced))
}

// carryOut has the limiter carry out a batch of the enforced charges.
func (e *evaluation) carryOut(ctx context.Context, l weir.Limiter, b *weir.Batch) (Verdict, error) {
	out := e.verdict(admitted)
	if err := do(ctx, l, b); err != nil {
		return out, err
	}
	i := worst(e.groups, b.Decisions)
	out.decided(e.groups[i], b.Decisions[i])
	return out, nil
}

// part returns a batch of some of the charges. The next call reuses its memory.
func (e *evaluation) part(op weir.Op, from, to int) *weir.Batch {
	e.batch.Op, e.batch.Charges = op, e.charges[from:to]
	return &e.batch
}

// shadow makes the charges in shadow, after the enforced ones. Errors are ignored, because the
// request is decided already. TakeAll leaves out limits of concurrency, which it cannot take.
func (e *evaluation) shadow(ctx context.Context, l weir.Limiter, op weir.Op, out *Verdict) {
	if op == weir.TakeAll {
		e.leaveOutSlots()
	}
	if e.enforced < len(e.groups) {
		e.shadowPart(ctx, l, e.part(op, e.enforced, len(e.groups)), out)
	}
}

func (e *evaluation) leaveOutSlots() {
	kept := e.enforced
	for i := e.enforced; i < len(e.groups); i++ {
		if !e.groups[i].policy.ReserveOnly() {
			e.groups[kept], e.charges[kept] = e.groups[i], e.charges[i]
			kept++
		}
	}
	clear(e.groups[kept:])
	clear(e.charges[kept:])
	e.groups, e.charges = e.groups[:kept], e.charges[:kept]
}

// shadowPart carries out a batch of the charges in shadow, and adds the decision to the verdict.
// It returns false if they were not made.
func (e *evaluation) shadowPart(ctx context.Context, l weir.Limiter, b *weir.Batch, out *Verdict) bool {
	if err := do(ctx, l, b); err != nil {
		return false
	}
	if i := b.Worst(); !b.Decisions[i].Allowed {
		out.Shadow = e.groups[e.enforced+i].place(b.Decisions[i])
	}
	for i, d := range b.Decisions {
		if e.query.Shadow && !d.Allowed && d.Reason != weir.NotCharged {
			out.ShadowRefusals = append(out.ShadowRefusals, ShadowRefusal{Decision: d, Limit: e.groups[e.enforced+i].place(d)})
		}
	}
	return b.Allowed()
}

// do carries out a batch. A single charge is taken as enforced ones are, so that limits in shadow decide
// as those do.
func do(ctx context.Context, l weir.Limiter, b *weir.Batch) (err error) {
	if b.Op != weir.TakeAll || len(b.Charges) != 1 {
		return l.Do(ctx, b)
	}
	c := &b.Charges[0]
	b.Decisions = append(b.Decisions[:0], weir.Decision{})
	b.Decisions[0], err = l.Take(ctx, c.Policy, c.Key, c.Cost)
	return err
}
