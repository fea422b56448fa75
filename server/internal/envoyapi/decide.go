package envoyapi

import (
	"context"
	"errors"
	"slices"

	"github.com/weirlimit/weir"
)

// errStoreDown is the error of decisions that were refused because the store is unavailable: the
// call fails, and Envoy's failure_mode_deny applies.
var errStoreDown = errors.New("the store does not answer")

// decide decides all descriptors. Refunds hold the lock of their key.
func (e *evaluation) decide(ctx context.Context, l weir.Limiter, refunds *keyLocks) error {
	for i := range e.list {
		if desc := &e.list[i]; desc.limit != nil && !desc.counts() { // a limit of 0 requests, or unlimited
			desc.over = !desc.limit.Unlimited && desc.hits > 0 && !desc.refund
		}
	}
	err := e.take(ctx, l)
	if err == nil {
		err = e.applyRefund(ctx, l, refunds)
	}
	return err
}

func (e *evaluation) take(ctx context.Context, l weir.Limiter) error {
	if !e.domain.Compat {
		return e.allOrNothing(ctx, l)
	}
	err := e.charge(ctx, l, weir.DebitEach, e.places(ordinary, shadow, quota))
	e.admitted = e.passes()
	return err
}

// places returns the indexes of the descriptors in some modes that the limiter decides.
func (e *evaluation) places(modes ...mode) (list []int) {
	for _, m := range modes {
		for i := range e.list {
			if desc := &e.list[i]; desc.counts() && !desc.refund && desc.limit.mode == m {
				list = append(list, i)
			}
		}
	}
	return list
}

// passes reports whether the decisions so far admit the request: no ordinary limit is exceeded,
// and not all of those in quota mode, if there are any.
func (e *evaluation) passes() bool {
	quotas, exceeded := 0, 0
	for i := range e.list {
		desc := &e.list[i]
		if desc.mode() == ordinary && desc.over {
			return false
		}
		if desc.mode() == quota {
			quotas++
			if desc.over {
				exceeded++
			}
		}
	}
	return quotas == 0 || exceeded < quotas
}

// allOrNothing charges the ordinary limits and the quotas that have room, or nothing.
//
// A quota that has room by itself may have none when all are charged together: a concurrent
// request was faster, or the request has the same counter twice. Then allOrNothing retries
// without that quota, until the rest fits or all quotas are exceeded.
func (e *evaluation) allOrNothing(ctx context.Context, l weir.Limiter) error {
	plain, quotas, shadows := e.places(ordinary), e.places(quota), e.places(shadow)
	if err := e.charge(ctx, l, weir.PeekEach, quotas); err != nil {
		return err
	}
	for e.passes() { // by the decisions so far
		quotas = slices.DeleteFunc(quotas, e.isOver)
		wanted := append(slices.Clip(plain), quotas...)
		if err := e.charge(ctx, l, weir.TakeAll, wanted); err != nil {
			return err
		}
		if e.admitted = !slices.ContainsFunc(wanted, e.isOver); e.admitted {
			_ = e.charge(ctx, l, weir.TakeEach, shadows) // the request is charged: an error in shadow must not fail it
			return nil
		}
		if slices.ContainsFunc(plain, e.isOver) {
			return e.charge(ctx, l, weir.PeekEach, shadows)
		}
	}
	return e.charge(ctx, l, weir.PeekEach, append(plain, shadows...))
}

func (e *evaluation) isOver(place int) bool { return e.list[place].over }

// charge has the limiter carry out op for some descriptors.
func (e *evaluation) charge(ctx context.Context, l weir.Limiter, op weir.Op, places []int) error {
	if len(places) == 0 {
		return nil
	}
	if desc := &e.list[places[0]]; len(places) == 1 && (op == weir.TakeAll || op == weir.TakeEach) {
		d, err := l.Take(ctx, desc.limit.policy, desc.key, desc.hits)
		return errors.Join(err, desc.decided(op, &d))
	}
	b := weir.Batch{Op: op, Charges: make([]weir.Charge, len(places))}
	for i, place := range places {
		desc := &e.list[place]
		b.Charges[i] = weir.Charge{Policy: desc.limit.policy, Key: desc.key, Cost: desc.hits}
	}
	if err := l.Do(ctx, &b); err != nil {
		return err
	}
	for i, place := range places {
		if err := e.list[place].decided(op, &b.Decisions[i]); err != nil {
			return err
		}
	}
	return nil
}

// decided stores a decision.
func (desc *descriptor) decided(op weir.Op, d *weir.Decision) error {
	if d.Reason == weir.StoreDown {
		return errStoreDown
	}
	desc.reset, desc.estimate = d.ResetAfter, d.Estimate
	if op == weir.DebitEach { // the limit has one unit more: see limiterLimit
		if d.Estimate && d.Limit < 2 && desc.limit.RequestsPerUnit > 0 { // the node's share is too small to admit a hit
			return errStoreDown
		}
		desc.over, desc.remaining = d.Remaining <= 0, max(0, d.Remaining-1)
		return nil
	}
	desc.over, desc.remaining = !d.Allowed && d.Reason != weir.NotCharged, d.Remaining
	if op == weir.TakeAll && !desc.over && !d.Allowed { // not charged, because another limit refused
		desc.remaining += desc.hits
	}
	return nil
}
