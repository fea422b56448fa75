package tiered

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// An ask is a caller's charge that waits for the store, because the key's allowance does
// not suffice. One call per key is under way at a time. It flushes the usage and carries
// the charges of all who waited when it was sent; who comes later goes with the next. So
// nobody waits longer than for two round trips.
type ask struct {
	plan *plan
	cost int64
	with *syncCall // that carries it; nil until it is sent. Guarded by the entry's mu, like sent
	sent weir.Instant
	done chan struct{} // closed when the fields below are set

	decision weir.Decision
	err      error
}

// maxCarried bounds the charges of one call. Others go with the next.
const maxCarried = 1024

func (w *ask) answer(d weir.Decision, err error) {
	w.decision, w.err = d, err
	close(w.done)
}

// takeAsync is for a charge for which the key's allowance does not suffice. A key for which
// there is no room in the table is asked for like in Exact mode.
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
	case !a.asking && a.unsynced == 0 && a.shared == 0:
		return t.takeFirst(ctx, c)
	}
	w := &ask{plan: c.plan, cost: c.cost, done: make(chan struct{})}
	a.waiting = append(a.waiting, w)
	if !a.asking {
		t.sendLocked(e)
	}
	e.mu.Unlock()
	return t.await(ctx, c, w)
}

// takeFirst asks for a charge of a key that has no usage to flush and no call under way. It
// need not outlive its caller, so it is a plain Take. It is called with e.mu locked.
func (t *Limiter) takeFirst(ctx context.Context, c *call) (weir.Decision, error) {
	e, a := c.entry, &c.entry.allowance
	a.asking = true
	a.left = 0
	k, _ := t.beginSyncLocked(e, c.plan)
	e.mu.Unlock()
	defer t.next(e)
	d, err := t.storeTake(ctx, c)
	t.endSync(&k, d, c.now, err)
	if err == nil {
		t.counts.store.Add(1)
		t.learn(c, d)
	}
	return t.decided(c, d, err)
}

// sendLocked sends a call with the charges of all who wait. It requires e.mu.
func (t *Limiter) sendLocked(e *entry) {
	a := &e.allowance
	n := min(len(a.waiting), maxCarried)
	list := a.waiting[:n:n]
	a.waiting = slices.Clone(a.waiting[n:])
	s, now := &syncCall{batch: weir.Batch{Op: weir.TakeEach}}, t.now()
	for _, w := range list {
		w.with, w.sent = s, now
		s.addLocked(t, e, w.plan, w.cost)
	}
	s.addLocked(t, e, list[n-1].plan, 0) // the reply to which says what remains of all limits
	a.asking = true
	a.left = 0
	if !t.background(func() { t.runAsks(e, s, list) }) {
		go t.runAsks(e, s, list) // it ends soon
	}
}

// runAsks runs a call and answers those whose charges it carries.
func (t *Limiter) runAsks(e *entry, s *syncCall, list []*ask) {
	defer t.next(e)
	g := t.table.generation(e.family, e.hash)
	sent := t.now()
	err := t.run(s, t.send)
	if aboutOne(err) && len(list) > 1 {
		for _, w := range list {
			c := call{plan: w.plan, key: e.key, cost: w.cost, hash: e.hash, entry: e, now: t.now()}
			w.answer(t.storeTake(context.Background(), &c)) // each by itself, as one of them is bad
		}
		return
	}
	for i, w := range list {
		if err != nil {
			w.answer(weir.Decision{}, err)
			continue
		}
		c := call{plan: w.plan, key: e.key, cost: w.cost, hash: e.hash, entry: e, now: sent, gen: g}
		t.learn(&c, s.batch.Decisions[i])
		g = c.gen
		w.answer(s.batch.Decisions[i], nil)
	}
}

// next ends the call under way. Those who came meanwhile are answered from the new
// allowance, as far as it suffices, and the others go with the next call.
func (t *Limiter) next(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := &e.allowance
	a.asking = false
	now := t.now()
	a.waiting = slices.DeleteFunc(a.waiting, func(w *ask) bool {
		if d, ok := e.denied(w.plan, w.cost, now); ok {
			t.counts.denyCache.Add(1)
			w.answer(d, nil)
			return true
		}
		d, ok := t.spendLocked(e, w.plan, w.cost, now)
		if ok {
			w.answer(d, nil)
		}
		return ok
	})
	if len(a.waiting) > 0 {
		t.sendLocked(e)
	}
}

// await waits for the answer to w: as long as a call may take for w to be sent, and as long
// again from then on. So a store that hangs is waited for once.
func (t *Limiter) await(ctx context.Context, c *call, w *ask) (weir.Decision, error) {
	budget := t.store.budget(ctx, 1)
	timer := time.NewTimer(budget)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-w.done:
			return t.answered(c, w)
		case <-ctx.Done():
			t.leaveAsk(c.entry, w)
			waiting = false
		case <-timer.C:
			more := min(t.leaveAsk(c.entry, w).Add(budget).Sub(t.now()), t.store.budget(ctx, 1))
			if waiting = more > 0; waiting {
				timer.Reset(more)
			}
		}
	}
	select {
	case <-w.done: // just now
		return t.answered(c, w)
	default:
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	err := errBusy
	if w.with != nil {
		t.timedOut(w.with, t.breakerOf(c.plan.policy, c.key))
		err = &awayError{errLate}
	}
	return t.decided(c, weir.Decision{}, err)
}

// answered returns the answer to w.
func (t *Limiter) answered(c *call, w *ask) (weir.Decision, error) {
	if w.err == nil && w.with != nil { // else it was decided here, and counted
		t.counts.store.Add(1)
	}
	return t.decided(c, w.decision, w.err)
}

// leaveAsk has w not be sent any more, unless it was: then it returns when. Afterwards w.with
// does not change.
func (t *Limiter) leaveAsk(e *entry, w *ask) (sent weir.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.allowance.waiting, w); i >= 0 {
		e.allowance.waiting = slices.Delete(e.allowance.waiting, i, i+1)
	}
	return w.sent
}

// errLate is why a caller has stopped waiting for a call that is under way.
var errLate = errors.Join(errors.New("no reply in time"), weir.ErrUnknown)
