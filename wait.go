package weir

import (
	"context"
	"time"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// maxWaiters bounds how many may wait on one Single.
const maxWaiters = 10_000

// Wait takes one unit as soon as it is the caller's turn, first come, first
// served. It returns nil when the unit was taken, the context's error if that
// ended first, and otherwise a *DeniedError: at once if the context's deadline
// comes before the caller's turn (TooLate), if too many wait (QueueFull) or if
// waiting cannot help. Unless it returns nil, nothing was taken.
func (s *Single) Wait(ctx context.Context) error {
	_, err := s.WaitN(ctx, 1)
	return err
}

// WaitN is Wait for cost units. It also returns the Decision, which is the one in the
// error if that is a *DeniedError.
//
// Charging happens at the turn, not before: a caller who leaves has taken
// nothing and delays nobody. A turn that comes while the context ends is taken.
// Turns are recomputed when a reservation is settled or the limits change, so
// they may come earlier or later than was expected.
func (s *Single) WaitN(ctx context.Context, cost int64) (Decision, error) {
	d, err := s.wait(ctx, cost)
	if err == nil {
		err = d.Err()
	}
	return d, err
}

// wait is WaitN, but a refusal is only a Decision.
func (s *Single) wait(ctx context.Context, cost int64) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	now := Now()
	if d := s.takeAt(now, now, cost); d.Allowed || d.Reason != Exhausted {
		return d, nil
	}
	w, d := s.enqueue(ctx, now, cost)
	if w == nil {
		return d, nil
	}
	select {
	case <-w.done:
		return w.decision, nil
	case <-ctx.Done():
	}
	if s.leave(w) {
		return Decision{}, ctx.Err()
	}
	return w.decision, nil // the turn came first
}

// enqueue takes cost at once if it fits by now, or joins the queue.
func (s *Single) enqueue(ctx context.Context, now Instant, cost int64) (*waiter, Decision) {
	s.lock(now)
	defer s.unlock(now)
	if s.policy().ReserveOnly() {
		return nil, invalid()
	}
	if s.queue.len() == 0 {
		if d := newDecision(s.stepTake(now, cost), now); d.Allowed {
			return nil, d
		}
	}
	if cost > s.policy().Capacity() {
		return nil, newDecision(s.ledger.Peek(int64(now), cost), now)
	}
	if s.queue.len() >= maxWaiters {
		d := s.behindQueueLocked(now, cost)
		d.Reason = QueueFull
		return nil, d
	}
	if deadline, ok := ctx.Deadline(); ok {
		if d := s.behindQueueLocked(now, cost); d.RetryAfter > time.Until(deadline) {
			d.Reason = TooLate
			return nil, d
		}
	}
	return s.queue.push(cost), Decision{}
}

// leave takes a waiter out of the queue. It returns false if its turn has come.
func (s *Single) leave(w *waiter) bool {
	now := Now()
	s.lock(now)
	defer s.unlock(now)
	return s.queue.remove(w)
}

// behindQueueLocked says what Take would of a charge that must not overtake
// those who wait: it can be made when they have had their turns.
func (s *Single) behindQueueLocked(now Instant, cost int64) Decision {
	plan, at := s.queue.planned(now)
	v := plan.Peek(at, cost)
	d := newDecision(v, now)
	if at > int64(now) {
		d.Remaining = 0
		if v.OK {
			d = d.refused(v.RetryAt, now)
		}
	}
	d.Held = !d.Allowed && d.Reason != TooCostly && s.ledger.HasHolds(int64(now))
	return d
}

// A waiter is someone in the queue. Its decision is written before done is
// closed, under the Single's lock, and read after.
type waiter struct {
	cost     int64
	done     chan struct{}
	decision Decision
}

// queue is those who wait, in the order of their turns. It exists only while
// somebody waits; one timer, for the head, serves them all. Everything here
// requires the Single's lock.
type queue struct {
	s       *Single
	waiters []*waiter
	timer   *time.Timer // calls wake; nil until somebody first waits
	armed   int64       // when the timer fires; 0 = stopped

	plan   *algo.Ledger // the ledger after everyone's turn; nil = to be computed
	planAt int64        // when the last turn comes
}

func (q *queue) init(s *Single) { q.s = s }

func (q *queue) len() int { return len(q.waiters) }

func (q *queue) push(cost int64) *waiter {
	w := &waiter{cost: cost, done: make(chan struct{})}
	q.waiters = append(q.waiters, w)
	if q.plan != nil {
		q.planTurn(cost)
	}
	return w
}

// remove takes w out, or returns false if it is not in.
func (q *queue) remove(w *waiter) bool {
	for i, o := range q.waiters {
		if o == w {
			q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
			q.changed()
			return true
		}
	}
	return false
}

// changed says that turns may have moved.
func (q *queue) changed() { q.plan = nil }

// grantDue charges and releases those whose turn has come, in order.
func (q *queue) grantDue(now Instant) {
	for len(q.waiters) > 0 {
		v := q.s.stepTake(now, q.waiters[0].cost)
		if !v.OK && !v.TooCostly {
			return
		}
		q.finish(newDecision(v, now))
	}
}

// finish releases the head with its decision.
func (q *queue) finish(d Decision) {
	w := q.waiters[0]
	q.waiters[0] = nil
	q.waiters = q.waiters[1:]
	if len(q.waiters) == 0 {
		q.waiters = nil
	}
	w.decision = d
	close(w.done)
	q.changed()
}

// refuseUnservable refuses the waiters that p can never serve.
func (q *queue) refuseUnservable(p *Policy) {
	d := Decision{Reason: TooCostly, RetryAfter: Never, Limit: p.Capacity()}
	if p.ReserveOnly() {
		d = invalid()
	}
	kept := q.waiters[:0]
	for _, w := range q.waiters {
		if w.cost <= p.Capacity() && !p.ReserveOnly() {
			kept = append(kept, w)
			continue
		}
		w.decision = d
		close(w.done)
	}
	clear(q.waiters[len(kept):])
	q.waiters = kept
	q.changed()
}

// arm sets the timer for the head's turn, or stops it if nobody waits.
func (q *queue) arm(now Instant) {
	if len(q.waiters) == 0 {
		q.changed() // nobody keeps a plan up to date while nobody waits
		if q.armed != 0 {
			q.timer.Stop()
			q.armed = 0
		}
		return
	}
	due := q.headDue(now)
	if due == q.armed {
		return
	}
	if due == algo.Never { // beyond algo.Horizon; whoever changes something looks again
		if q.timer != nil {
			q.timer.Stop()
		}
		q.armed = 0
		return
	}
	q.armed = due
	in := compiled.Until(due, int64(Now()))
	if q.timer == nil {
		q.timer = time.AfterFunc(in, q.wake)
		return
	}
	q.timer.Reset(in)
}

// headDue returns when the head's turn comes.
func (q *queue) headDue(now Instant) int64 {
	return q.s.ledger.Peek(int64(now), q.waiters[0].cost).RetryAt
}

// wake lets those in whose turn has come.
func (q *queue) wake() {
	now := Now()
	q.s.lock(now)
	q.armed = 0
	q.s.unlock(now)
}

// planned returns the ledger as it will be after everyone's turn, and when that
// is. It is computed when asked for and kept until something changes.
func (q *queue) planned(now Instant) (*algo.Ledger, int64) {
	if q.plan != nil && q.planAt >= int64(now) {
		return q.plan, q.planAt
	}
	q.plan, q.planAt = q.s.ledger.Clone(), int64(now)
	for _, w := range q.waiters {
		q.planTurn(w.cost)
	}
	return q.plan, q.planAt
}

// planTurn adds one more turn to the plan. Every cost in the queue fits some
// time: a cost above the capacity never joins, and holds expire.
func (q *queue) planTurn(cost int64) {
	q.planAt = max(q.planAt, q.plan.Peek(q.planAt, cost).RetryAt)
	q.plan.Take(q.planAt, cost)
}
