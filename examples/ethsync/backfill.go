package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
)

// account is whose history is read.
const account = "0x00000000000000000000000000000000000000aa"

// backfiller is the worker that reads the history, as fast as it may.
type backfiller struct {
	client caller
	next   atomic.Int64 // the newest block that is not read
	ranges atomic.Int64 // read

	// awaitBudget returns at once while less than 90% of the budget is in use, and otherwise when
	// less than 75% is. It calls paused before it waits.
	awaitBudget func(ctx context.Context, paused func()) error
}

// run reads several ranges at a time, from the newest to the first block or until ctx ends.
func (b *backfiller) run(ctx context.Context, parallel int) error {
	slog.Info("the rate controller of the compute-unit budget is ready", "class", "backfill")
	errs := make([]error, parallel)
	var all sync.WaitGroup
	for i := range parallel {
		all.Go(func() {
			for to := b.take(); to >= 0 && errs[i] == nil; to = b.take() {
				errs[i] = b.readRange(ctx, max(0, to-maxRange+1), to)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// take returns the last block of the next range, which is negative after the first block of the chain.
func (b *backfiller) take() int64 { return b.next.Add(-maxRange) + maxRange }

// readRange reads the logs and the incoming and outgoing transfers of a range: three calls, each of which is charged.
func (b *backfiller) readRange(ctx context.Context, from, to int64) error {
	if err := b.await(ctx); err != nil {
		return err
	}
	incoming, outgoing := filter(from, to), filter(from, to)
	incoming["toAddress"], outgoing["fromAddress"] = account, account
	_, err := b.client.call(ctx, getLogs, []any{filter(from, to)})
	for _, params := range []any{incoming, outgoing} {
		if err == nil {
			_, err = b.client.call(ctx, getTransfers, []any{params})
		}
	}
	if err == nil {
		b.ranges.Add(1)
	}
	return err
}

// await pauses while little of the budget is left, so that urgent work finds some.
func (b *backfiller) await(ctx context.Context) error {
	paused := false
	err := b.awaitBudget(ctx, func() {
		paused = true
		slog.Info("pausing: more than 90% of the compute-unit budget is in use")
	})
	if paused && err == nil {
		slog.Info("resuming: budget is available")
	}
	return err
}
