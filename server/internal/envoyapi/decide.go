package envoyapi

import (
	"context"
	"errors"
	"slices"

	"github.com/weirlimit/weir"
)

// errStoreDown is for decisions that were refused because the store did not answer: Envoy
// is to know that.
var errStoreDown = errors.New("the store does not answer")

// decide answers all questions. Refunds take turns.
func (a *asking) decide(ctx context.Context, l weir.Limiter, refunds *turns) error {
	for i := range a.list {
		if q := &a.list[i]; q.limit != nil && !q.counts() { // of 0 requests, or unlimited
			q.over = !q.limit.Unlimited && q.hits > 0 && !q.refund
		}
	}
	err := a.take(ctx, l)
	if err == nil {
		err = a.giveBack(ctx, l, refunds)
	}
	return err
}

func (a *asking) take(ctx context.Context, l weir.Limiter) error {
	if !a.domain.Compat {
		return a.allOrNothing(ctx, l)
	}
	err := a.ask(ctx, l, weir.DebitEach, a.places(ordinary, shadow, quota))
	a.admitted = a.passes()
	return err
}

// places returns which questions a limiter is asked, of those in some modes.
func (a *asking) places(modes ...mode) (list []int) {
	for _, m := range modes {
		for i := range a.list {
			if q := &a.list[i]; q.counts() && !q.refund && q.limit.mode == m {
				list = append(list, i)
			}
		}
	}
	return list
}

// passes says whether what was found admits the request: no ordinary limit is exceeded, and
// of those in quota mode, if there are any, not all.
func (a *asking) passes() bool {
	quotas, exceeded := 0, 0
	for i := range a.list {
		q := &a.list[i]
		if q.mode() == ordinary && q.over {
			return false
		}
		if q.mode() == quota {
			quotas++
			if q.over {
				exceeded++
			}
		}
	}
	return quotas == 0 || exceeded < quotas
}

// allOrNothing charges the ordinary limits and those quotas that have room, or nothing.
//
// A quota that has room by itself may have none when all are charged: another request was
// faster, or the same counter is in the request twice. Then it is done again without that
// quota, so each time there are fewer, until all are exceeded or the rest fits.
func (a *asking) allOrNothing(ctx context.Context, l weir.Limiter) error {
	plain, quotas, shadows := a.places(ordinary), a.places(quota), a.places(shadow)
	if err := a.ask(ctx, l, weir.PeekEach, quotas); err != nil {
		return err
	}
	for a.passes() { // as far as is known
		quotas = slices.DeleteFunc(quotas, a.isOver)
		wanted := append(slices.Clip(plain), quotas...)
		if err := a.ask(ctx, l, weir.TakeAll, wanted); err != nil {
			return err
		}
		if a.admitted = !slices.ContainsFunc(wanted, a.isOver); a.admitted {
			_ = a.ask(ctx, l, weir.TakeEach, shadows) // the request is charged: what only watches must not fail it
			return nil
		}
		if slices.ContainsFunc(plain, a.isOver) {
			return a.ask(ctx, l, weir.PeekEach, shadows)
		}
	}
	return a.ask(ctx, l, weir.PeekEach, append(plain, shadows...))
}

func (a *asking) isOver(place int) bool { return a.list[place].over }

// ask has a limiter decide some questions.
func (a *asking) ask(ctx context.Context, l weir.Limiter, op weir.Op, places []int) error {
	if len(places) == 0 {
		return nil
	}
	if q := &a.list[places[0]]; len(places) == 1 && (op == weir.TakeAll || op == weir.TakeEach) {
		d, err := l.Take(ctx, q.limit.policy, q.key, q.hits)
		return errors.Join(err, q.decided(op, &d))
	}
	b := weir.Batch{Op: op, Charges: make([]weir.Charge, len(places))}
	for i, place := range places {
		q := &a.list[place]
		b.Charges[i] = weir.Charge{Policy: q.limit.policy, Key: q.key, Cost: q.hits}
	}
	if err := l.Do(ctx, &b); err != nil {
		return err
	}
	for i, place := range places {
		if err := a.list[place].decided(op, &b.Decisions[i]); err != nil {
			return err
		}
	}
	return nil
}

// decided notes a decision.
func (q *question) decided(op weir.Op, d *weir.Decision) error {
	if d.Reason == weir.StoreDown {
		return errStoreDown
	}
	q.reset = d.ResetAfter
	if op == weir.DebitEach { // there is one unit more than is admitted
		if d.Estimate && d.Limit < 2 && q.limit.RequestsPerUnit > 0 { // a share that is too small to admit a hit
			return errStoreDown
		}
		q.over, q.remaining = d.Remaining <= 0, max(0, d.Remaining-1)
		return nil
	}
	q.over, q.remaining = !d.Allowed && d.Reason != weir.NotCharged, d.Remaining
	if op == weir.TakeAll && !q.over && !d.Allowed { // what would remain, had not another refused
		q.remaining += q.hits
	}
	return nil
}
