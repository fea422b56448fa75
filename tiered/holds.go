package tiered

import (
	"context"
	"errors"

	"github.com/weirlimit/weir"
)

// fallbackAll is TakeAll and ReserveAll while the store is away: all charges fit this
// node's shares, or none is made. why says whether the store may have made them, or cannot
// be charged for them later.
func (t *Limiter) fallbackAll(b *weir.Batch, why error) error {
	t.counts.fallback.Add(int64(len(b.Charges)))
	local := weir.Batch{Op: b.Op, TTL: b.TTL}
	var (
		calls  = make([]call, len(b.Charges))
		shares = make([]*share, len(b.Charges)) // nil for those that fail open
	)
	for i, c := range b.Charges {
		calls[i] = t.begin(c.Policy, c.Key, c.Cost)
		calls[i].unknown, calls[i].unrecorded = errors.Is(why, weir.ErrUnknown), errors.Is(why, weir.ErrState)
		pl := calls[i].plan
		b.Decisions[i] = weir.Decision{Limit: pl.capacity, Remaining: pl.capacity, Estimate: true}
		if !pl.fail.closed && len(pl.fail.local) == 0 {
			continue
		}
		if s := t.shareOf(pl); !pl.fail.closed && s.policy != nil {
			shares[i] = s
			if calls[i].needEntry(t) {
				t.seed(&calls[i], s)
			}
			local.Charges = append(local.Charges, weir.Charge{Policy: s.policy, Key: c.Key, Cost: c.Cost})
			continue
		}
		b.Decisions[i] = storeDown()
		return nil // the others are not taken
	}
	if err := t.config.Local.Do(context.Background(), &local); err != nil {
		return err
	}
	t.report(b, &local, calls, shares)
	return nil
}

// report writes what Local decided about the shares into the batch.
func (t *Limiter) report(b, local *weir.Batch, calls []call, shares []*share) {
	allowed, at := local.Allowed(), 0
	for i := range b.Charges {
		d := &b.Decisions[i]
		if shares[i] != nil {
			*d = calls[i].plan.shared(shares[i], local.Decisions[at], nil)
			if allowed {
				t.granted(b, i, local, at, &calls[i])
			}
			at++
		} else if b.Op == weir.ReserveAll && allowed {
			b.Receipts[i] = weir.Receipt{ID: t.nobody, Units: b.Charges[i].Cost, Expiry: calls[i].now.Add(weir.DefaultTTL)}
		}
		switch d.Allowed = allowed; {
		case allowed:
			d.Reason = weir.Admitted
		case d.Reason == weir.Admitted:
			d.Reason = weir.NotCharged
		}
	}
}

// granted notes that charge i of a batch, the at'th of the local one, was admitted by
// this node alone.
func (t *Limiter) granted(b *weir.Batch, i int, local *weir.Batch, at int, c *call) {
	if b.Op == weir.ReserveAll {
		b.Receipts[i] = local.Receipts[at]
		t.receipts.keep(b.Receipts[i].ID, b.Receipts[i].Expiry, c.now)
	}
	t.grantedByShare(c, c.cost)
}

// settleOrRenew has reservations settled or renewed by whoever made them.
func (t *Limiter) settleOrRenew(ctx context.Context, b *weir.Batch) error {
	var here, there []int
	for i := range b.Charges {
		switch id := b.Receipts[i].ID; {
		case id == t.nobody:
			b.Decisions[i] = weir.Decision{Allowed: b.Op == weir.Renew, Estimate: true}
		case t.receipts.has(id):
			here = append(here, i)
		default:
			there = append(there, i)
		}
	}
	if len(there) > 0 {
		if err := t.part(b, there, func(sub *weir.Batch) error { return t.settleThere(ctx, sub) }); err != nil {
			return err
		}
	}
	if len(here) == 0 {
		return nil
	}
	return t.part(b, here, func(sub *weir.Batch) error { return t.settleHere(sub) })
}

// settleThere has the store settle or renew reservations. Whatever was refused because of
// them may be admitted now, also if a hold was committed in full: a slot is free, or its
// expiry has changed.
func (t *Limiter) settleThere(ctx context.Context, b *weir.Batch) error {
	defer t.changing(b.Charges)()
	if err := t.do(ctx, b); err != nil {
		return err
	}
	for i, c := range b.Charges {
		if over := b.Settled[i].Overrun; over > 0 {
			t.chargedElsewhere(c, over)
		}
	}
	return nil
}

// part does something to some charges of a batch.
func (t *Limiter) part(b *weir.Batch, places []int, do func(*weir.Batch) error) error {
	sub := weir.Batch{Op: b.Op, TTL: b.TTL}
	for _, i := range places {
		sub.Charges, sub.Receipts = append(sub.Charges, b.Charges[i]), append(sub.Receipts, b.Receipts[i])
	}
	if err := do(&sub); err != nil {
		return err
	}
	for at, i := range places {
		b.Decisions[i], b.Receipts[i] = sub.Decisions[at], sub.Receipts[at]
		if b.Op == weir.Settle {
			b.Settled[i] = sub.Settled[at]
		}
	}
	return nil
}

// settleHere settles or renews what Local holds, and changes the debt accordingly.
func (t *Limiter) settleHere(b *weir.Batch) error {
	local := weir.Batch{Op: b.Op, TTL: b.TTL, Receipts: b.Receipts}
	calls := make([]call, len(b.Charges))
	for i, c := range b.Charges {
		calls[i] = t.begin(c.Policy, c.Key, c.Cost)
		local.Charges = append(local.Charges, weir.Charge{Policy: t.shareOf(calls[i].plan).policy, Key: c.Key, Cost: c.Cost})
	}
	if err := t.config.Local.Do(context.Background(), &local); err != nil {
		return err
	}
	b.Decisions, b.Settled = local.Decisions, local.Settled
	if b.Op != weir.Settle {
		return nil
	}
	for i := range b.Charges {
		t.receipts.forget(b.Receipts[i].ID)
		calls[i].needEntry(t)
		t.grantedByShare(&calls[i], local.Settled[i].Overrun-local.Settled[i].Refunded)
	}
	return nil
}
