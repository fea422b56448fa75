package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// account is whose history is read.
const account = "0x00000000000000000000000000000000000000aa"

// backfiller is the worker that reads the history, as fast as it may.
type backfiller struct {
	client caller
	budget pauser
	next   atomic.Int64 // the newest block that is not read
	ranges atomic.Int64 // read

	pausing chan struct{} // a lock, held by the one of several readers that looks whether to pause
	pauses  int64         // requires pausing
}

// newBackfiller returns a worker that begins with a block and goes back from there.
func newBackfiller(client caller, budget pauser, newest int64) *backfiller {
	b := &backfiller{client: client, budget: budget, pausing: make(chan struct{}, 1)}
	b.next.Store(newest)
	return b
}

// pauser is what the worker needs of a budget.Controller. Calls are charged by the client's transport.
type pauser interface {
	// ShouldPause reports whether 90% of the budget are in use, and no less than 75% have been since.
	ShouldPause(ctx context.Context) bool
}

// pauseStep is how long a pause lasts at least.
const pauseStep = 100 * time.Millisecond

// run reads several ranges at a time, from the newest to the first block, or until ctx ends or a call fails.
func (b *backfiller) run(ctx context.Context, parallel int) error {
	slog.Info("the rate controller of the compute-unit budget is ready", "class", "backfill")
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for to := b.take(); to >= 0 && ctx.Err() == nil; to = b.take() {
				if err := b.readRange(ctx, max(0, to-maxRange+1), to); err != nil {
					stop(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
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
	select {
	case b.pausing <- struct{}{}:
		defer func() { <-b.pausing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !b.budget.ShouldPause(ctx) {
		return ctx.Err()
	}
	b.pauses++
	slog.Info("pausing: more than 90% of the compute-unit budget is in use")
	for pause(ctx, pauseStep); ctx.Err() == nil && b.budget.ShouldPause(ctx); pause(ctx, pauseStep) {
	}
	slog.Info("resuming: budget is available")
	return ctx.Err()
}
