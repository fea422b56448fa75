package ruleset

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// wait carries out a batch of the enforced charges as soon as they fit, within the query's MaxWait, in the
// limiter's queue. If too many requests wait already, of this client or of all, it does not wait.
func (n *Engine) wait(ctx context.Context, e *evaluation, b *weir.Batch) (out Verdict, err error) {
	began := time.Now()
	defer func() {
		if out.Waited = time.Since(began); out.Waited < time.Millisecond {
			out.Waited = 0 // the duration of the calls, without waiting
		}
	}()
	if !n.waiting.add(e.query.Client, e.query.Alone) {
		out, err = e.carryOut(ctx, n.limiter, b)
		if out.Reason == weir.Exhausted {
			out.Reason = weir.QueueFull
		}
		return out, err
	}
	defer n.waiting.remove(e.query.Client)
	limited := ctx
	if e.query.MaxWait != UntilDone {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, e.query.MaxWait)
		defer cancel()
	}
	err = n.limiter.WaitAll(limited, b)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return e.tooLate(ctx, n.limiter) // other requests took the capacity
	}
	at := b.Worst()
	if denied, ok := errors.AsType[*weir.DeniedError](err); ok {
		at, err = slices.Index(b.Decisions, denied.Decision), nil // here a refusal is a Verdict
	}
	out = e.verdict(weir.Decision{})
	if err == nil {
		out.decided(e.groups[at], b.Decisions[at])
	}
	return out, err
}

// tooLate returns the verdict after MaxWait has passed.
func (e *evaluation) tooLate(ctx context.Context, l weir.Limiter) (Verdict, error) {
	out, err := e.decide(ctx, l, weir.PeekEach)
	if out.RetryAfter != weir.Never {
		out.Allowed, out.Reason, out.RetryAfter = false, weir.TooLate, max(1, out.RetryAfter)
	}
	return out, err
}
