package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Reserve charges all of charges or none, as weir.Reserve does, as soon as it is the caller's
// turn. Its errors are those of Wait. Without an error the reservation is held for ttl from the
// turn (0 means a minute), also if the context ended at the turn: the caller must settle it.
//
// While other reservations are open for a key, what they hold may come back at any time, long before
// RetryAfter. So a Reserve is not refused as TooLate because of them, nor are callers that stand in
// line already: they leave when their contexts end. That is also how one waits for a slot of a
// Concurrency limit. The head of the line then tries again every quarter of a second, since another
// process may settle.
func (q *Queue) Reserve(ctx context.Context, ttl time.Duration, charges ...weir.Charge) (*weir.Reservation, error) {
	return weir.Reserve(ctx, patient{q}, ttl, charges...)
}

// patient is a Queue whose reservations wait.
type patient struct{ *Queue }

func (p patient) Do(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.ReserveAll {
		return p.WaitAll(ctx, b)
	}
	return p.Queue.Do(ctx, b)
}

// WaitAll executes a batch of TakeAll or ReserveAll as soon as it is the caller's turn. Its errors
// are those of Wait or, for ReserveAll, of Reserve. After a refusal the decision with the longest RetryAfter
// is that of the error; after another error all decisions are zero. The batch must not have Used
// units.
func (q *Queue) WaitAll(ctx context.Context, b *weir.Batch) error {
	if err := checkWaitable(b); err != nil {
		return err
	}
	if err := q.waitAll(ctx, b); err != nil {
		clear(b.Decisions)
		return err
	}
	if b.Allowed() {
		return nil
	}
	return b.Decisions[worst(b)].Err()
}

// checkWaitable returns what is wrong with a batch that is to wait.
func checkWaitable(b *weir.Batch) error {
	if b.Op != weir.TakeAll && b.Op != weir.ReserveAll {
		return compiled.Invalid("operation %d of a batch cannot wait: only TakeAll and ReserveAll can", b.Op)
	}
	if b.Used != nil {
		return storeapi.ErrUsed // it would be charged with every attempt
	}
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	return checkServable(b)
}

// waitAll is WaitAll for a checked batch, but a refusal is only a Decision.
func (q *Queue) waitAll(ctx context.Context, b *weir.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if exceedsTogether(b.Charges) {
		if never, err := q.neverFits(ctx, b); never || err != nil {
			return err
		}
	}
	free := !slices.ContainsFunc(b.Charges, func(c weir.Charge) bool { return c.Cost > 0 })
	at := q.firstBusy(b.Charges)
	if free || at < 0 {
		var done bool
		var err error
		err = q.call(ctx, b)
		if at, done, err = concluded(ctx, b, err, b.Op == weir.ReserveAll); done || free {
			return err
		}
	}
	return q.queueUp(ctx, b, at)
}

// call has the limiter execute a batch.
func (q *Queue) call(ctx context.Context, b *weir.Batch) (err error) {
	if len(b.Charges) > 1 || b.Op != weir.TakeAll {
		return q.limiter.Do(ctx, b)
	}
	c := &b.Charges[0]
	b.Decisions[0], err = q.limiter.Take(ctx, c.Policy, c.Key, c.Cost)
	return err
}

// concluded is outcome for a batch. If the caller waits on, at is the charge to wait for. Patient
// means that it waits on for what open reservations may give back.
func concluded(ctx context.Context, b *weir.Batch, err error, patient bool) (at int, done bool, _ error) {
	at = worst(b)
	if err != nil || at < 0 {
		return at, true, err
	}
	d := &b.Decisions[at]
	if patient && mayEndEarly(b.Charges[at].Policy, *d) {
		return at, false, nil
	}
	*d, done, err = outcome(ctx, *d, nil)
	return at, done, err
}

// worst returns the index of the decision that says how long to wait. That is b.Worst, but a
// refusal that is final goes before slots that are held without expiry.
func worst(b *weir.Batch) int {
	if i := slices.IndexFunc(b.Decisions, isTooCostly); i >= 0 {
		return i
	}
	return b.Worst()
}

// outcome says whether a caller returns with the limiter's decision, and how. It waits on after
// Exhausted if RetryAfter ends before the deadline.
func outcome(ctx context.Context, d weir.Decision, err error) (weir.Decision, bool, error) {
	if err != nil || d.Allowed || d.Reason != weir.Exhausted || d.RetryAfter == weir.Never {
		return d, true, err
	}
	if deadline, ok := ctx.Deadline(); ok && d.RetryAfter > time.Until(deadline) {
		d.Reason = weir.TooLate
		return d, true, nil
	}
	return d, false, nil
}

// mayEndEarly says whether a settled reservation may end a refusal before its RetryAfter. Limiters
// that do not report Held still have reservations where a Concurrency limit refuses.
func mayEndEarly(p *weir.Policy, d weir.Decision) bool {
	if d.Reason != weir.Exhausted || d.Held || !p.ReserveOnly() {
		return d.Reason == weir.Exhausted && d.Held
	}
	limits := p.Limits()
	return int(d.By) < len(limits) && limits[d.By].Algorithm == weir.Concurrency
}

// queueUp waits for a batch in the line of its charge at. A refusal is only a Decision.
func (q *Queue) queueUp(ctx context.Context, b *weir.Batch, at int) error {
	w := q.join(b, at)
	if w == nil {
		return q.full(ctx, b)
	}
	defer q.leave(w)
	done, err := q.foresee(ctx, w)
	if !done {
		err = q.await(ctx, w)
	}
	b.Decisions, b.Receipts = w.batch.Decisions, w.batch.Receipts
	return err
}

// full refuses a batch because the line is full. Its RetryAfter is what it
// would be with a place in line.
func (q *Queue) full(ctx context.Context, b *weir.Batch) error {
	aheads, _, err := q.aheads(ctx, b.Charges, nil)
	if err != nil {
		return err
	}
	if err := q.peekBehind(ctx, b, aheads); err != nil {
		return err
	}
	d := &b.Decisions[worst(b)]
	refuseAll(b)
	if d.Reason == weir.NotCharged || d.Reason == weir.Exhausted {
		d.Reason, d.RetryAfter = weir.QueueFull, max(1, d.RetryAfter)
	}
	return nil
}

// foresee refuses w at once if it is behind others and its turn would come too late
// or never. If neither is possible, it does not call the limiter.
func (q *Queue) foresee(ctx context.Context, w *waiter) (done bool, err error) {
	b := &w.batch
	costly := slices.ContainsFunc(b.Charges, func(c weir.Charge) bool { return c.Cost > c.Policy.Capacity() })
	if _, hurried := ctx.Deadline(); !hurried && !costly {
		return false, nil
	}
	aheads, behind, err := q.aheads(ctx, b.Charges, w)
	if err != nil || behind == 0 {
		return err != nil, err
	}
	if err := q.peekBehind(ctx, b, aheads); err != nil {
		return true, err
	}
	refuseAll(b)
	_, done, err = concluded(ctx, b, nil, b.Op == weir.ReserveAll)
	return done, err
}

// await alternates between sleeping and trying until w is done.
func (q *Queue) await(ctx context.Context, w *waiter) error {
	for {
		if done, err := q.act(ctx, w, q.turn(w)); done {
			return err
		}
	}
}

// act performs the next step of w, and says whether w is done then.
func (q *Queue) act(ctx context.Context, w *waiter, t turn) (done bool, err error) {
	switch {
	case ctx.Err() != nil && !t.came:
		return true, ctx.Err()
	case t.doubt:
		return q.reconsider(ctx, w)
	case t.wait != 0:
		w.sleep(ctx, t.wait)
		return false, nil
	}
	return q.try(ctx, w, t.came)
}

// try calls the limiter for the head. If the head has to wait on, try notes until when. Came means that
// it has waited as long as the limiter said before.
func (q *Queue) try(ctx context.Context, w *waiter, came bool) (done bool, err error) {
	live, cancel := withGrace(ctx)
	defer cancel()
	err = q.call(live, &w.batch)
	at, done, err := concluded(ctx, &w.batch, err, true)
	if done {
		return true, err
	}
	d := w.batch.Decisions[at]
	after := min(d.RetryAfter, far)
	if came { // others were faster
		after += jitter(ctx, after)
	}
	q.postpone(w, at, after, mayEndEarly(w.batch.Charges[at].Policy, d))
	return false, nil
}

// maxJitter bounds what is added to a wait at random.
const maxJitter = 50 * time.Millisecond

// jitter returns what is added to a wait d after others were faster: in half of the cases nothing, else up to a
// tenth, but not beyond the deadline. Those to whom something is always added would never have a turn
// beside a process whose heads are all new.
func jitter(ctx context.Context, d time.Duration) time.Duration {
	most := min(d/10, maxJitter)
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)-d)
	}
	if most <= 0 {
		return 0
	}
	return max(0, rand.N(2*most+1)-most) //nolint:gosec // it is no secret
}

const (
	// turnGrace is the minimum time that the limiter has to reply to the head.
	turnGrace = 100 * time.Millisecond

	// heldRetry is the maximum time after which the head tries again while reservations are open.
	heldRetry = 250 * time.Millisecond
)

// withGrace returns a context that ends with ctx or, if that is about to end or has
// ended at the turn, after turnGrace. A call that is cancelled may have taken
// units without a caller that uses them.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if ctx.Err() == nil && (!ok || time.Until(deadline) >= turnGrace) {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), turnGrace)
}

// reconsider refuses w if, after a Set, its cost can never fit.
func (q *Queue) reconsider(ctx context.Context, w *waiter) (done bool, err error) {
	never, err := q.neverFits(ctx, &w.batch)
	return never || err != nil, err
}

// neverFits says whether a batch costs more than is ever admitted. If so, its decisions say that.
// For charges to the same key that do so only together, the limiter's own refusal is Exhausted.
func (q *Queue) neverFits(ctx context.Context, b *weir.Batch) (bool, error) {
	peek := weir.Batch{Op: weir.PeekEach, Charges: slices.Clone(b.Charges)}
	units := unitsByKey(b.Charges)
	for i := range peek.Charges {
		peek.Charges[i].Cost = units[keyOf(&peek.Charges[i])]
	}
	if err := q.limiter.Do(ctx, &peek); err != nil {
		return false, err
	}
	if !slices.ContainsFunc(peek.Decisions, isTooCostly) {
		return false, nil
	}
	b.Decisions = peek.Decisions
	refuseAll(b)
	return true, nil
}

func isTooCostly(d weir.Decision) bool { return d.Reason == weir.TooCostly }

// exceedsTogether says whether charges to the same key exceed its capacity together.
func exceedsTogether(charges []weir.Charge) bool {
	if len(charges) < 2 {
		return false
	}
	units := unitsByKey(charges)
	return len(units) < len(charges) && slices.ContainsFunc(charges, func(c weir.Charge) bool { return units[keyOf(&c)] > c.Policy.Capacity() })
}

// unitsByKey returns the sums of the charges to each key, at most weir.MaxCost.
func unitsByKey(charges []weir.Charge) map[queueKey]int64 {
	units := make(map[queueKey]int64, len(charges))
	for i := range charges {
		k := keyOf(&charges[i])
		units[k] = min(units[k]+charges[i].Cost, weir.MaxCost)
	}
	return units
}
