package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/storeapi"
)

var ops = map[weir.Op]string{
	weir.TakeEach: opEach, weir.TakeAll: opAll, weir.ReserveAll: opHold, weir.PeekEach: opPeek,
	weir.Settle: opSettle, weir.Renew: opRenew, weir.ResetEach: opReset, weir.DebitEach: opDebit,
}

// Do executes a batch. A batch is one script, with one reading of the clock, unless
// the server is a cluster and the keys are on several slots. Then TakeAll and
// ReserveAll reserve on one slot after the other, in a fixed order, and release their
// reservations if one slot refuses: they never admit too much, but two concurrent batches
// for the same keys may both be refused. The other operations are sent to all slots at
// once; if one slot fails, the others' changes remain, and the error wraps weir.ErrUnknown
// if there are any. On several slots, Batch.Used costs TakeAll and ReserveAll one more round
// trip.
//
// Config.Timeout is for each of these slots, and four times that for all; see Rounds.
//
// DebitEach is not undone if its caller leaves before the reply: the units were used.
func (s *Store) Do(ctx context.Context, b *weir.Batch) error {
	return s.do(ctx, b, storeapi.Timeout(ctx, s.timeout))
}

func (s *Store) do(ctx context.Context, b *weir.Batch, timeout time.Duration) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(b.Charges) == 0 {
		return nil
	}
	began := weir.Now()
	whole, err := s.newCall(ctx, b)
	if err != nil {
		return err
	}
	s.counts.decisions.Add(int64(len(b.Charges)))
	whole.until = began.Add(timeout)
	if err := s.carryOut(ctx, whole, timeout); err != nil {
		return err
	}
	fill(b, whole)
	return nil
}

// fill writes the results into a batch.
func fill(b *weir.Batch, c *call) {
	for i := range b.Charges {
		switch b.Op {
		case weir.Settle:
			o := c.outcomes[i]
			b.Settled[i] = weir.Settled{Refunded: o[2], Overrun: o[3], Late: o[0] == 0}
		case weir.Renew:
			b.Decisions[i] = weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
			if c.outcomes[i][0] == 1 {
				b.Decisions[i] = weir.Decision{Allowed: true, Reason: weir.Admitted}
				b.Receipts[i].Expiry = c.expiry()
			}
		case weir.ResetEach:
		default:
			b.Decisions[i] = c.decision(i)
		}
	}
	if b.Op != weir.TakeAll && b.Op != weir.ReserveAll {
		return
	}
	allowed := c.allowed()
	for i := range b.Charges {
		if d := &b.Decisions[i]; d.Allowed && !allowed {
			d.Allowed, d.Reason = false, weir.NotCharged
		}
		if allowed && b.Op == weir.ReserveAll {
			b.Receipts[i] = weir.Receipt{ID: c.charges[i].id, Units: b.Charges[i].Cost, Expiry: c.expiry()}
		}
	}
}

// expiry returns when the holds of a call end.
func (c *call) expiry() weir.Instant {
	if c.ttl < 0 {
		return weir.Instant(algo.Never)
	}
	return weir.Instant((c.now + c.ttl) * 1000)
}

// newCall returns a batch as a call, or the reason why it is invalid.
func (s *Store) newCall(ctx context.Context, b *weir.Batch) (*call, error) {
	c := &call{op: ops[b.Op], charges: make([]charge, len(b.Charges))}
	if b.Op == weir.ReserveAll {
		c.charges = withIDs(c.charges)
	}
	for i, ch := range b.Charges {
		n, err := s.resolve(ctx, ch.Policy)
		if err != nil {
			return nil, err
		}
		to := &c.charges[i]
		if b.Used != nil {
			to.used = b.Used[i]
		}
		if n.policy.ReserveOnly() && (c.spends() || to.used > 0) {
			return nil, weir.ErrReserveOnly
		}
		if b.Op == weir.ReserveAll || b.Op == weir.Renew {
			if c.ttl, err = timeToLive(n.policy, b); err != nil {
				return nil, err
			}
		}
		to.n, to.key, to.cost = n, rowKey(n.rows, ch.Key), ch.Cost
		if b.Op == weir.Settle || b.Op == weir.Renew {
			to.id = b.Receipts[i].ID
		}
	}
	return c, nil
}

// newID returns a random id for a hold.
func newID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// timeToLive returns how many µs a batch's reservations live under p; -1 is for ever.
func timeToLive(p *weir.Policy, b *weir.Batch) (int64, error) {
	const start = weir.Instant(algo.Epoch)
	expiry, err := p.Compiled().Expiry(int64(start), b.TTL)
	if err != nil {
		return 0, err
	}
	if expiry == algo.Never {
		return -1, nil
	}
	return (expiry - int64(start) + 999) / 1000, nil
}

// carryOut executes a call on all slots of its keys. timeout is for each round.
func (s *Store) carryOut(ctx context.Context, whole *call, timeout time.Duration) error {
	return s.carryOutOver(ctx, whole, s.shares(whole), timeout)
}

// carryOutOver executes a call with one script for each share of its charges.
func (s *Store) carryOutOver(ctx context.Context, whole *call, shares [][]int, timeout time.Duration) error {
	switch {
	case len(shares) == 1:
		return s.send(ctx, whole)
	case whole.op == opAll || whole.op == opHold:
		if whole.debits() {
			return s.debitAndSpread(ctx, whole, shares, timeout)
		}
		return s.spread(ctx, whole, shares, timeout)
	}
	return s.scatter(ctx, whole, shares)
}

func (s *Store) send(ctx context.Context, c *call) error {
	r := newRequest()
	r.call = c
	return s.wait(ctx, r, c.until)
}

// shares returns the indices of a call's charges, grouped by slot, in the order of slots.
func (s *Store) shares(c *call) [][]int {
	if !s.cluster {
		return make([][]int, 1)
	}
	return sharesBySlot(c, redisconn.Slot)
}

// subcall returns the charges of one share as a call of its own.
func (c *call) subcall(share []int) *call {
	p := &call{op: c.op, ttl: c.ttl, until: c.until, charges: make([]charge, len(share))}
	for i, at := range share {
		p.charges[i] = c.charges[at]
	}
	return p
}

// join copies the results of a subcall to the call.
func (c *call) join(p *call, share []int) {
	if c.outcomes == nil {
		c.outcomes = make([]outcome, len(c.charges))
	}
	for i, at := range share {
		c.outcomes[at], c.charges[at].n = p.outcomes[i], p.charges[i].n
	}
	c.now = max(c.now, p.now)
}

// scatter sends the subcalls for all shares at once. Subcalls that failed without effect are
// sent once more if others have changed something.
func (s *Store) scatter(ctx context.Context, whole *call, shares [][]int) error {
	subcalls, errs := make([]*call, len(shares)), make([]error, len(shares))
	var all sync.WaitGroup
	for i, share := range shares {
		subcalls[i] = whole.subcall(share)
		all.Go(func() { errs[i] = s.send(ctx, subcalls[i]) })
	}
	all.Wait()
	if half(subcalls, errs) {
		for i, share := range shares {
			if errs[i] != nil {
				subcalls[i] = whole.subcall(share)
				all.Go(func() { errs[i] = s.send(ctx, subcalls[i]) })
			}
		}
		all.Wait()
	}
	if err := s.failure(subcalls, errs); err != nil {
		return err
	}
	for i, share := range shares {
		whole.join(subcalls[i], share)
	}
	return nil
}

// half says whether some subcalls have changed something and the others certainly have not.
// Then sending the others again may still complete the call, instead of an unknown outcome.
func half(subcalls []*call, errs []error) bool {
	changed, failed := false, false
	for i, err := range errs {
		if errors.Is(err, weir.ErrUnknown) {
			return false
		}
		changed = changed || err == nil && subcalls[i].changed()
		failed = failed || err != nil
	}
	return changed && failed
}

// failure returns the first error of the subcalls. If another subcall has changed
// something, or may have, the outcome of the call is unknown.
func (s *Store) failure(subcalls []*call, errs []error) (first error) {
	changed, unknown := false, false
	for i, err := range errs {
		switch {
		case err == nil:
			changed = changed || subcalls[i].changed()
			continue
		case first == nil:
			first = err
		}
		unknown = unknown || errors.Is(err, weir.ErrUnknown)
	}
	if first == nil || !changed && !unknown || errors.Is(first, weir.ErrUnknown) {
		return first
	}
	if !unknown { // else it was counted
		s.counts.unknown.Add(1)
	}
	return unknownOutcome(first)
}
