package ruleset

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	line := ""
	if !e.query.Alone {
		line = lineOf(e.query, &b.Charges[0])
	}
	if !n.mayWait(e.query, line) {
		out, err = e.carryOut(ctx, n.limiter, b)
		if out.Reason == weir.Exhausted {
			out.Reason = weir.QueueFull
		}
		return out, err
	}
	defer n.waited(e.query, line)
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
	at := worst(e.groups, b.Decisions)
	if denied, ok := errors.AsType[*weir.DeniedError](err); ok {
		at, err = slices.Index(b.Decisions, denied.Decision), nil // here a refusal is a Verdict
	}
	out = e.verdict(weir.Decision{})
	if err == nil {
		out.decided(e.groups[at], b.Decisions[at])
	}
	return out, err
}

// lineOf names the line in which a query waits, for its client.
func lineOf(q *Query, first *weir.Charge) string {
	return strings.Join([]string{q.Client, first.Policy.Name(), q.Class, first.Key}, "\x00")
}

// mayWait counts a request that waits, or returns false if too many do.
func (n *Engine) mayWait(q *Query, line string) bool {
	if !n.waiting.add(q.Client, q.Alone) {
		return false
	}
	if q.Alone || n.inLine.add(line, false) {
		return true
	}
	n.waiting.remove(q.Client)
	return false
}

// waited counts it no more.
func (n *Engine) waited(q *Query, line string) {
	n.waiting.remove(q.Client)
	if !q.Alone {
		n.inLine.remove(line)
	}
}

// tooLate returns the verdict after MaxWait has passed.
func (e *evaluation) tooLate(ctx context.Context, l weir.Limiter) (Verdict, error) {
	out, err := e.decide(ctx, l, weir.PeekEach)
	if out.RetryAfter != weir.Never {
		out.Allowed, out.Reason, out.RetryAfter = false, weir.TooLate, max(1, out.RetryAfter)
	}
	return out, err
}
