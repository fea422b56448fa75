package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// wait takes what is enforced as soon as it fits, within the query's MaxWait. One charge
// waits in line; several try again when they were told that they would fit, in no
// order.
func (g *Guard) wait(ctx context.Context, a *asking) (Verdict, error) {
	limited, cancel := context.WithTimeout(ctx, a.query.MaxWait)
	defer cancel()
	if a.enforced > 1 {
		deadline, _ := limited.Deadline()
		return g.retry(ctx, a, deadline)
	}
	out := Verdict{Variant: a.variant, Limit: -1, Shadow: -1}
	c := &a.charges[0]
	d, err := g.limiter.Wait(limited, c.Policy, c.Key, c.Cost)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return a.tooLate(ctx, g.limiter) // somebody else took what was waited for
	}
	if denied := (*weir.DeniedError)(nil); errors.As(err, &denied) {
		err = nil // here a refusal is a Verdict
	}
	out.decided(a.groups[0], d)
	return out, err
}

// tooLate is the answer when the time to wait is over.
func (a *asking) tooLate(ctx context.Context, l weir.Limiter) (Verdict, error) {
	out, err := a.put(ctx, l, weir.PeekEach)
	if out.RetryAfter != weir.Never {
		out.Allowed, out.Reason, out.RetryAfter = false, weir.TooLate, max(1, out.RetryAfter)
	}
	return out, err
}

// retry takes all charges or none, again and again until they fit. A turn that comes at the
// deadline is taken.
func (g *Guard) retry(ctx context.Context, a *asking, deadline time.Time) (Verdict, error) {
	who := retrier{a.variant.rule.policy.Name, a.query.Key}
	waits := false
	for {
		out, err := a.put(ctx, g.limiter, weir.TakeAll)
		if err != nil || out.Allowed || out.Reason != weir.Exhausted || out.RetryAfter == weir.Never {
			return out, err
		}
		if out.RetryAfter > time.Until(deadline) {
			out.Reason = weir.TooLate
			return out, nil
		}
		if !waits {
			if !g.retries.add(who) {
				out.Reason = weir.QueueFull
				return out, nil
			}
			defer g.retries.remove(who)
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

// How many may retry at the same time, as queue.Config has it for lines.
const (
	maxRetries       = 10_000
	maxRetriesPerKey = 64
)

// A retrier is those who wait for several charges of one policy, with one key.
type retrier struct{ policy, key string }

// retries counts those who wait for several charges, so that they are not too many.
type retries struct {
	mu    sync.Mutex // guards the fields below
	all   int
	byKey map[retrier]int
}

// add counts one more, or returns false if there are too many.
func (r *retries) add(who retrier) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= maxRetries || r.byKey[who] >= maxRetriesPerKey {
		return false
	}
	if r.byKey == nil {
		r.byKey = map[retrier]int{}
	}
	r.all++
	r.byKey[who]++
	return true
}

func (r *retries) remove(who retrier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.byKey[who]--; r.byKey[who] == 0 {
		delete(r.byKey, who)
	}
}

func (r *retries) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}
