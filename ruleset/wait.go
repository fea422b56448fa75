package ruleset

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir"
)

// wait makes the enforced charges as soon as they fit, within the query's MaxWait. A single
// charge waits in the limiter's queue, in order; several charges are retried after RetryAfter,
// in no order. If too many requests wait already, of this client or of all, it does not wait.
func (n *Engine) wait(ctx context.Context, e *evaluation) (out Verdict, err error) {
	began := time.Now()
	defer func() {
		if out.Waited = time.Since(began); out.Waited < time.Millisecond {
			out.Waited = 0 // the duration of the calls, without waiting
		}
	}()
	if !n.waiting.add(e.query.Client, e.query.Alone) {
		out, err = e.decide(ctx, n.limiter, weir.TakeAll)
		if out.Reason == weir.Exhausted {
			out.Reason = weir.QueueFull
		}
		return out, err
	}
	defer n.waiting.remove(e.query.Client)
	limited, cancel := context.WithTimeout(ctx, e.query.MaxWait)
	defer cancel()
	if e.enforced > 1 {
		deadline, _ := limited.Deadline()
		return n.retry(ctx, e, deadline)
	}
	c := &e.charges[0]
	d, err := n.limiter.Wait(limited, c.Policy, c.Key, c.Cost)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return e.tooLate(ctx, n.limiter) // other requests took the capacity
	}
	if denied := (*weir.DeniedError)(nil); errors.As(err, &denied) {
		err = nil // here a refusal is a Verdict
	}
	out = e.verdict(d)
	out.decided(e.groups[0], d)
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

// retry retries all charges together until they fit. An attempt that is due exactly at the
// deadline is made.
func (n *Engine) retry(ctx context.Context, e *evaluation, deadline time.Time) (Verdict, error) {
	who := retrier{e.variant.rule.policy.Name, e.query.Key}
	waits := false
	for {
		out, err := e.decide(ctx, n.limiter, weir.TakeAll)
		if err != nil || out.Allowed || out.Reason != weir.Exhausted || out.RetryAfter == weir.Never {
			return out, err
		}
		if out.RetryAfter > time.Until(deadline) {
			out.Reason = weir.TooLate
			return out, nil
		}
		if !waits {
			if !n.retries.add(who, false) {
				out.Reason = weir.QueueFull
				return out, nil
			}
			defer n.retries.remove(who)
			waits = true
		}
		if err := sleep(ctx, out.RetryAfter); err != nil {
			return out, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxRetriesPerKey is the maximum number of requests that retry for one key, as queue.Config has
// for those that wait in a queue.
const maxRetriesPerKey = 64

// A retrier identifies the requests that wait for several charges: by policy and key.
type retrier struct{ policy, key string }
