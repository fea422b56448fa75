package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Do carries out a batch. It is not combined with other calls. TakeAll must fit one request, which
// a thousand charges do unless their keys are very long; other batches are sent in several
// requests, and if one fails, the effects of the others stay.
func (c *Client) Do(ctx context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	for i := range b.Charges {
		if err := check(&b.Charges[i]); err != nil {
			return err
		}
	}
	if b.Used != nil {
		return c.debitFirst(ctx, b)
	}
	return c.do(ctx, b)
}

// debitFirst carries out a batch after a debit of Batch.Used, which the protocol lacks: the debit is
// a call of its own. If the batch fails after it, the debit was charged.
func (c *Client) debitFirst(ctx context.Context, b *weir.Batch) error {
	debit := weir.Batch{Op: weir.DebitEach}
	for i, units := range b.Used {
		if units > 0 {
			debit.Charges = append(debit.Charges, weir.Charge{Policy: b.Charges[i].Policy, Key: b.Charges[i].Key, Cost: units})
		}
	}
	if len(debit.Charges) > 0 {
		if err := c.Do(ctx, &debit); err != nil {
			return err
		}
	}
	err := c.do(ctx, b)
	if err != nil && nothingCharged(err) && len(debit.Charges) > 0 {
		return c.unknown(err)
	}
	return err
}

// do is Do for a batch without Used.
func (c *Client) do(ctx context.Context, b *weir.Batch) error {
	switch b.Op {
	case weir.ReserveAll:
		return c.reserve(ctx, b)
	case weir.Settle:
		return c.settle(ctx, b)
	case weir.Renew:
		return c.renew(ctx, b)
	case weir.ResetEach:
		return ErrOperator
	}
	return c.checks(ctx, b)
}

// Set returns ErrOperator: the daemon's configuration has the limits.
func (c *Client) Set(context.Context, *weir.Policy, *weir.Policy) error { return ErrOperator }

// checks carries out a batch of which every charge is a check.
func (c *Client) checks(ctx context.Context, b *weir.Batch) error {
	if b.Op != weir.PeekEach {
		for i := range b.Charges {
			if b.Charges[i].Policy.ReserveOnly() {
				return weir.ErrReserveOnly
			}
		}
	}
	for from := 0; from < len(b.Charges); {
		to := c.fits(b.Charges, from)
		if b.Op == weir.TakeAll && to < len(b.Charges) {
			return fmt.Errorf("client: %d charges are too many to be taken all or none: %d fit one request", len(b.Charges), to)
		}
		if err := c.checkPart(ctx, b, from, to); err != nil {
			if from > 0 && nothingCharged(err) {
				return c.unknown(err)
			}
			return err
		}
		from = to
	}
	return nil
}

// fits returns the end of the charges that fit into one request.
func (c *Client) fits(charges []weir.Charge, from int) int {
	bytes := 0
	for i := from; i < len(charges); i++ {
		bytes += len(charges[i].Key) + perCheck
		if i-from == maxChecks || bytes > maxBytes {
			return i
		}
	}
	return len(charges)
}

func (c *Client) checkPart(ctx context.Context, b *weir.Batch, from, to int) error {
	batch := newColumns(to - from)
	for _, charge := range b.Charges[from:to] {
		batch.add(charge.Policy, charge.Key, charge.Cost)
	}
	batch.req.Atomic, batch.req.Debit = b.Op == weir.TakeAll, b.Op == weir.DebitEach
	if b.Op == weir.PeekEach {
		batch.req.Peek = slices.Repeat([]bool{true}, to-from)
	}
	answer, err := exchange(ctx, c, c.timeout, c.service.CheckBatch, batch.req)
	if err != nil {
		return err
	}
	if err := checkColumns(answer, to-from); err != nil {
		return c.unknown(err)
	}
	for i := range to - from {
		b.Decisions[from+i] = decision(b.Charges[from+i].Policy, answer, i)
	}
	return nil
}
