package tiered

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A waiter is a caller's charge that waits for the store, because the key's allowance does
// not suffice. One call per key is in flight at a time. It flushes the usage and carries
// the charges of all waiters at the time when it is sent; later ones wait for the next call. So
// a caller waits for two round trips at most.
type waiter struct {
	call call
	with *syncCall // the call that carries the charge; nil until it is sent. Guarded by the entry's mu, like sent
	sent weir.Instant

	over     atomic.Bool   // swapped to true by answer and when the caller leaves: the first of them wins
	done     chan struct{} // closed when the fields below are set
	decision weir.Decision
	err      error
}

// maxCarried bounds the charges of one call. The others wait for the next.
const maxCarried = 1024

// answer delivers the decision. It reports whether the caller has left.
func (w *waiter) answer(d weir.Decision, err error) (left bool) {
	left = w.over.Swap(true)
	w.decision, w.err = d, err
	close(w.done)
	return left
}

// takeAsync decides a charge for which the key's allowance does not suffice. If the table has
// no room for the key, it works like Exact mode.
func (t *Limiter) takeAsync(ctx context.Context, c *call) (weir.Decision, error) {
	if !c.needEntry(t) {
		return t.take(ctx, c)
	}
	e, a := c.entry, &c.entry.allowance
	e.mu.Lock()
	switch {
	case e.gone:
		e.mu.Unlock()
		return t.take(ctx, c)
	case !a.calling && !a.used():
		return t.takeFirst(ctx, c)
	}
	w := &waiter{call: *c, done: make(chan struct{})}
	w.call.key = e.key // the caller owns c.key
	a.waiting = append(a.waiting, w)
	if !a.calling {
		t.sendLocked(e)
	}
	e.mu.Unlock()
	switch err := t.await(ctx, w); {
	case err != nil: // the decision may be written at this moment
		return t.decided(c, weir.Decision{}, err)
	case w.with == nil: // next has decided and counted it
		return w.decision, nil
	}
	return t.decided(c, w.decision, nil)
}

// takeFirst decides a charge of a key that has no usage to flush and no call in flight. The
// call need not outlive its caller, so it is a plain Take. takeFirst requires e.mu, and unlocks
// it.
func (t *Limiter) takeFirst(ctx context.Context, c *call) (weir.Decision, error) {
	e, a := c.entry, &c.entry.allowance
	a.calling = true
	a.left = 0
	k, _ := t.beginSyncLocked(e, c.plan)
	e.mu.Unlock()
	defer t.next(e)
	d, err := t.storeTake(ctx, c)
	t.endSync(&k, d, c.now, err)
	return t.decided(c, d, err)
}

// sendLocked sends a call with the charges of all waiters. It requires e.mu.
func (t *Limiter) sendLocked(e *entry) {
	a := &e.allowance
	n := min(len(a.waiting), maxCarried)
	list := a.waiting[:n:n]
	a.waiting = slices.Clone(a.waiting[n:])
	s, now := &syncCall{batch: weir.Batch{Op: weir.TakeEach}}, t.now()
	for _, w := range list {
		w.with, w.sent = s, now
		s.calls = append(s.calls, w.call)
		s.addLocked(t, e, w.call.plan, w.call.cost)
	}
	s.addLocked(t, e, list[n-1].call.plan, 0) // its decision reports what remains under all limits
	a.calling = true
	a.left = 0
	t.finish(func() { t.runWaiters(e, s, list) })
}

// runWaiters runs a call and answers the waiters whose charges it carries.
func (t *Limiter) runWaiters(e *entry, s *syncCall, list []*waiter) {
	defer t.next(e)
	err := t.run(s, t.send)
	alone := aboutOne(err) && len(list) > 1
	for i, w := range list {
		switch {
		case alone: // one of the charges caused the error
			w.answer(t.storeTake(context.Background(), &w.call))
		case err != nil:
			w.answer(weir.Decision{}, err)
		default:
			w.answer(s.batch.Decisions[i], nil)
		}
	}
}

// next is called when the key's call has ended. Charges that arrived meanwhile are decided by
// the new allowance, as far as it suffices, and the next call carries the others.
func (t *Limiter) next(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := &e.allowance
	a.calling = false
	now := t.now()
	a.waiting = slices.DeleteFunc(a.waiting, func(w *waiter) bool {
		d, ok := w.call.denied(now)
		if ok {
			t.counts.denyCache.Add(1)
		} else {
			d, ok = t.spendLocked(&w.call, now)
		}
		if ok {
			w.answer(d, nil)
		}
		return ok
	})
	if len(a.waiting) > 0 {
		t.sendLocked(e)
	}
}

// await waits for the answer to w. It waits as long as a call may take for w to be sent, and as
// long from when it was sent. If the store hangs and w is not sent, it waits no longer.
func (t *Limiter) await(ctx context.Context, w *waiter) error {
	budget := t.store.budget(ctx, 1)
	if !w.wait(ctx, budget) {
		e := w.call.entry
		e.mu.Lock()
		e.allowance.waiting = slices.DeleteFunc(e.allowance.waiting, func(x *waiter) bool { return x == w })
		sent := w.sent // 0 if it was not sent, and will not be: w.with does not change any more
		e.mu.Unlock()
		w.wait(ctx, min(sent.Add(budget).Sub(t.now()), t.store.budget(ctx, 1)))
	}
	return t.outcome(ctx, w, t.breakerOf(w.call.plan.policy, w.call.key))
}

// wait waits for the answer to w until timeout is over or ctx ends.
func (w *waiter) wait(ctx context.Context, timeout time.Duration) (answered bool) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// outcome returns the error of the answer to w or, if there is none yet, the reason why the
// caller leaves. A slow call counts as a failure of the store.
func (t *Limiter) outcome(ctx context.Context, w *waiter, b *breaker) error {
	if w.over.Swap(true) {
		<-w.done
		return w.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.with == nil {
		return errBusy
	}
	if !w.with.late.Swap(true) {
		t.storeFailed(b, errLate)
	}
	return &unavailableError{errLate}
}

// errLate is why a caller has stopped waiting for a call that is in flight.
var errLate = errors.Join(errors.New("no reply within the timeout"), weir.ErrUnknown)
