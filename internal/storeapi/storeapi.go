// Package storeapi is what the limiters of this module have in common: they check what
// they are given, and make decisions of what package algo says. It is internal; what a
// limiter outside the module needs is public in package weir.
package storeapi

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

type patienceKey struct{}

// WithPatience returns a context whose calls let a store decide for up to d, if that is longer than its own timeout. It is
// for calls whose callers wait anyway, and for which a decision without the store is worse than a late one.
func WithPatience(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, d)
}

// Timeout returns how long a store may take for a call: its own timeout, or the patience of the call's context.
func Timeout(ctx context.Context, own time.Duration) time.Duration {
	d, _ := ctx.Value(patienceKey{}).(time.Duration)
	return max(own, d)
}

// errPolicy is returned for a charge without a policy.
var errPolicy = compiled.Invalid("a charge has no policy")

// CheckCost returns an error unless 0 ≤ cost ≤ weir.MaxCost.
func CheckCost(cost int64) error { return compiled.CheckCost(cost) }

// CheckKey returns an error if key is too long.
func CheckKey(key string) error { return compiled.CheckKey(key) }

// CheckCharge returns why a charge cannot be made, if it cannot. Limiters also refuse, with
// weir.ErrReserveOnly, to take under a policy in force that limits concurrency.
func CheckCharge(p *weir.Policy, key string, cost int64) error {
	if p == nil {
		return errPolicy
	}
	if err := compiled.CheckCost(cost); err != nil {
		return err
	}
	return compiled.CheckKey(key)
}

// Override returns a policy with other limits for some keys, on the state of p. It is
// p.With(limits...), but a Set of p's limits never replaces it, not even if it has the limits that
// are replaced.
func Override(p *weir.Policy, limits ...weir.Limit) (*weir.Policy, error) {
	o, err := p.With(limits...)
	if err == nil {
		o.Compiled().Override = true
	}
	return o, err
}

// CheckSet returns why Set cannot replace old by new, if it cannot.
func CheckSet(old, new *weir.Policy) error {
	if old.Name() != new.Name() {
		return compiled.Invalid("set: policies %q and %q have different names", old.Name(), new.Name())
	}
	if old.Compiled().Override || new.Compiled().Override {
		return compiled.Invalid("set: policy %q: an override cannot be set; pass another one with the calls", new.Name())
	}
	return nil
}

// CheckBatch returns the first thing that is wrong with a batch's input, and sizes its
// output. Limiters call it first.
func CheckBatch(b *weir.Batch) error {
	if b.Op > weir.DebitEach {
		return compiled.Invalid("operation %d of a batch is not a known operation", b.Op)
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		if err := CheckCharge(c.Policy, c.Key, c.Cost); err != nil {
			return err
		}
	}
	if err := checkUsed(b); err != nil {
		return err
	}
	n := len(b.Charges)
	b.Decisions = resize(b.Decisions, n)
	b.Settled = resize(b.Settled, n)
	if b.Op == weir.ReserveAll {
		b.Receipts = resize(b.Receipts, n)
	}
	if (b.Op == weir.Settle || b.Op == weir.Renew) && len(b.Receipts) != n {
		return compiled.Invalid("%d receipts for %d charges: a batch needs one for each", len(b.Receipts), n)
	}
	return nil
}

// ErrUsed is returned by limiters that do not support Batch.Used.
var ErrUsed = compiled.Invalid("the limiter does not support Batch.Used")

// checkUsed returns what is wrong with Batch.Used, if anything.
func checkUsed(b *weir.Batch) error {
	if b.Used == nil {
		return nil
	}
	if len(b.Used) != len(b.Charges) || b.Op > weir.ReserveAll {
		return compiled.Invalid("%d numbers in Used for %d charges: a batch that takes or reserves has one for each, or none", len(b.Used), len(b.Charges))
	}
	for i, units := range b.Used {
		if err := compiled.CheckCost(units); err != nil {
			return err
		}
		if units > 0 && b.Charges[i].Policy.ReserveOnly() {
			return weir.ErrReserveOnly
		}
	}
	return nil
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// Decision makes a Decision of a ledger's verdict at now.
func Decision(v algo.Verdict, now weir.Instant) weir.Decision {
	d := weir.Decision{
		Allowed:    v.OK,
		Reason:     weir.Admitted,
		By:         v.By,
		Held:       v.Held,
		Limit:      v.Limit,
		Remaining:  v.Remaining,
		ResetAfter: compiled.Until(v.ResetAt, int64(now)),
	}
	if v.OK {
		return d
	}
	d.RetryAfter = compiled.Until(v.RetryAt, int64(now))
	d.Reason = weir.Exhausted
	if v.TooCostly {
		d.Reason = weir.TooCostly
	}
	return d
}
