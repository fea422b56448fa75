package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Queue is a Limiter with Wait: a line, first come, first served, for each policy
// name and key that somebody waits for. It works over any Limiter, also over one
// in another process. All methods may be called by any number of goroutines.
//
// Nobody is overtaken. While others wait for a key, Take and the batches that
// charge it are refused as Exhausted, however much room there is, and RetryAfter
// counts the turns of those who wait; those whose turn has come go first. A cost
// of 0 is admitted. While nobody waits at all, a call costs one atomic load more
// than the limiter's own; while somebody does, also a look into a map under a lock.
//
// RetryAfter behind others is exact, without open reservations, for one limit of
// GCRA or TokenBucket, and for most others as long as all the units that are waited
// for fit at once. Otherwise it is an estimate at the limit's rate: who comes too
// early is refused again.
//
// Charging happens at the turn, through the limiter's Take. Turns move when
// something is settled, renewed, reset or set through the Queue. What others do to
// the limiter is met when the head of the line asks next: after the time that it
// was told, or when somebody behind it learns that there is room before.
//
// The order is that of this Queue: processes that share a store each have lines of
// their own, and these compete. A line asks for one charge after the other, so over
// a store that takes a millisecond to answer a key has at most a thousand turns a
// second. Where there is only one key, and no other process, [Single] does better.
type Queue struct {
	limiter   weir.Limiter // set by New, like the next two
	maxPerKey int
	maxTotal  int64

	// waiting counts those in all lines. It is written under mu. Calls read it
	// alone before they ask the limiter: at 0 there is nobody to overtake. Who
	// begins to wait just then came later.
	waiting atomic.Int64

	mu    sync.Mutex // guards the fields below and all lines; never held while the limiter is asked
	lines map[queueKey]*line
	next  uint64 // numbers those who wait as they come
}

var _ weir.Limiter = (*Queue)(nil)

// Config configures a Queue.
type Config struct {
	// MaxPerKey bounds how many wait for one policy and key. The default is 64.
	MaxPerKey int

	// MaxTotal bounds how many wait for all keys together. The default is
	// 10,000.
	MaxTotal int
}

// Validate returns everything that is wrong with the configuration.
func (c Config) Validate() error {
	var problems []error
	if c.MaxPerKey < 0 {
		problems = append(problems, fmt.Errorf("queue: MaxPerKey %d: must not be negative", c.MaxPerKey))
	}
	if c.MaxTotal < 0 {
		problems = append(problems, fmt.Errorf("queue: MaxTotal %d: must not be negative", c.MaxTotal))
	}
	return errors.Join(problems...)
}

// New returns a Queue over l.
func New(l weir.Limiter, c Config) (*Queue, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.MaxPerKey == 0 {
		c.MaxPerKey = 64
	}
	if c.MaxTotal == 0 {
		c.MaxTotal = 10_000
	}
	return &Queue{limiter: l, maxPerKey: c.MaxPerKey, maxTotal: int64(c.MaxTotal), lines: map[queueKey]*line{}}, nil
}

// Waiting returns how many wait now, for all keys together.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }

// Wait takes cost units from key as soon as it is the caller's turn. Its error is nil
// only if they were taken. A refusal is a *DeniedError, returned at once if the context's
// deadline comes before the expected turn (TooLate), if too many wait (QueueFull) or if
// waiting cannot help; the Decision is the same as in the error. Other errors are the
// context's, or the limiter's if it could not decide. Nothing was taken then, as far as
// the limiter knows: a call to a remote one that was cut short may have been carried out.
//
// Who leaves delays nobody. A turn that comes just before the deadline, or at the
// very instant at which the context ends, is taken: for that the limiter has a tenth
// of a second, by which Wait may return late.
func (q *Queue) Wait(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	d, err := q.wait(ctx, p, key, cost)
	if err == nil {
		err = d.Err()
	}
	return d, err
}

// wait is Wait, but a refusal is only a Decision.
func (q *Queue) wait(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	c := weir.Charge{Policy: p, Key: key, Cost: cost}
	if err := storeapi.CheckCharge(p, key, cost); err != nil {
		return weir.Decision{}, err
	}
	if p.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	if cost == 0 || !q.busy(p, key) {
		d, err := q.limiter.Take(ctx, p, key, cost)
		if d, done, err := outcome(ctx, d, err); done || cost == 0 {
			return d, err
		}
	}
	w := q.join(&c)
	if w == nil {
		return q.full(ctx, &c)
	}
	defer q.leave(w)
	if d, done, err := q.foresee(ctx, w); done {
		return d, err
	}
	return q.await(ctx, w)
}

// outcome says whether Wait is done with what the limiter answered, and how. What
// is exhausted is waited for if it passes before the deadline.
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

// full refuses a charge that finds no place in line. Its RetryAfter is what it
// would be with a place.
func (q *Queue) full(ctx context.Context, c *weir.Charge) (weir.Decision, error) {
	a, err := q.aheadOf(ctx, c)
	if err != nil {
		return weir.Decision{}, err
	}
	d, err := q.expect(ctx, c, a)
	if err == nil && (d.Allowed || d.Reason == weir.Exhausted) {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.QueueFull, max(1, d.RetryAfter)
	}
	return d, err
}

// foresee ends the waiting of w at once if it stands behind others and its turn
// would come too late or never. Where neither can be, it does not ask.
func (q *Queue) foresee(ctx context.Context, w *waiter) (d weir.Decision, done bool, err error) {
	if _, hurried := ctx.Deadline(); !hurried && w.charge.Cost <= w.charge.Policy.Capacity() {
		return weir.Decision{}, false, nil
	}
	a, err := q.standBehind(ctx, w.line.key, w)
	if err != nil || a.line == nil {
		return weir.Decision{}, err != nil, err
	}
	d, err = q.expect(ctx, &w.charge, a)
	return outcome(ctx, d, err)
}

// await lets w sleep and ask by turns until it is done.
func (q *Queue) await(ctx context.Context, w *waiter) (weir.Decision, error) {
	for {
		if d, done, err := q.act(ctx, w, q.turn(w)); done {
			return d, err
		}
	}
}

// act does what w has to do next, and says whether w is done then.
func (q *Queue) act(ctx context.Context, w *waiter, t turn) (weir.Decision, bool, error) {
	switch {
	case ctx.Err() != nil && !t.came:
		return weir.Decision{}, true, ctx.Err()
	case t.doubt:
		return q.reconsider(ctx, w)
	case t.wait != 0:
		w.sleep(ctx, t.wait)
		return weir.Decision{}, false, nil
	}
	return q.ask(ctx, w)
}

// ask asks the limiter for the head. Told to come back, it notes when.
func (q *Queue) ask(ctx context.Context, w *waiter) (weir.Decision, bool, error) {
	live, cancel := withGrace(ctx)
	defer cancel()
	d, err := q.limiter.Take(live, w.charge.Policy, w.charge.Key, w.charge.Cost)
	d, done, err := outcome(ctx, d, err)
	if !done {
		q.postpone(w, d.RetryAfter)
	}
	return d, done, err
}

// turnGrace is how long the limiter has at least to answer the head.
const turnGrace = 100 * time.Millisecond

// withGrace returns a context that ends with ctx or, if that is about to end or has
// ended at the turn, after turnGrace. A call that is cut short may have taken
// something, and nobody would know.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if ctx.Err() == nil && (!ok || time.Until(deadline) >= turnGrace) {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), turnGrace)
}

// reconsider refuses w if, after a Set, its cost can never fit.
func (q *Queue) reconsider(ctx context.Context, w *waiter) (weir.Decision, bool, error) {
	d, err := weir.Peek(ctx, q.limiter, w.charge.Policy, w.charge.Key, w.charge.Cost)
	return d, err != nil || d.Reason == weir.TooCostly, err
}

// Take charges cost units to key if they fit and nobody waits for it.
func (q *Queue) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if q.waiting.Load() == 0 {
		return q.limiter.Take(ctx, p, key, cost)
	}
	return q.takeBehind(ctx, p, key, cost)
}

// takeBehind is Take while somebody waits. It is apart so that Take needs no more
// than a few words of stack.
func (q *Queue) takeBehind(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if !q.busy(p, key) {
		return q.limiter.Take(ctx, p, key, cost)
	}
	b := weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}}
	if err := q.doBehind(ctx, &b); err != nil {
		return weir.Decision{}, err
	}
	return b.Decisions[0], nil
}

// Do carries out a batch. Charges that stand behind others are refused, and
// PeekEach says so. A TakeAll or ReserveAll with such a charge is refused whole;
// its other decisions are what Peek says of each alone. Settle and Renew wait for
// nobody, so that no refund is lost behind a slow answer, and neither does
// DebitEach, which asks no permission and so overtakes nobody.
func (q *Queue) Do(ctx context.Context, b *weir.Batch) error {
	switch {
	case b.Op == weir.Settle || b.Op == weir.Renew || b.Op == weir.ResetEach:
		return q.giveBack(ctx, b)
	case b.Op == weir.DebitEach || q.waiting.Load() == 0:
		return q.limiter.Do(ctx, b)
	}
	return q.doBehind(ctx, b)
}

// giveBack carries out a batch after which heads may go earlier than they were
// told.
func (q *Queue) giveBack(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.ResetEach {
		if err := q.letDueGo(ctx, b.Charges); err != nil {
			return err
		}
	}
	err := q.limiter.Do(ctx, b)
	q.retry(b.Charges) // also after an error: it may have been carried out
	return err
}

// Set puts new in force wherever old was, also for those who wait. Those whose
// cost can no longer fit are refused as TooCostly.
func (q *Queue) Set(ctx context.Context, old, new *weir.Policy) error {
	err := q.limiter.Set(ctx, old, new)
	if q.waiting.Load() == 0 {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, ln := range q.lines {
		if k.policy == new.Name() {
			ln.doubtAbove(new.Capacity())
			ln.retry() // also after an error: it may have been set
		}
	}
	return err
}

// doBehind carries out a batch that charges or peeks, while somebody waits.
func (q *Queue) doBehind(ctx context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	aheads, behind, err := q.aheads(ctx, b.Charges)
	switch {
	case err != nil:
		return err
	case behind == 0:
		return q.limiter.Do(ctx, b)
	}
	if err := checkServable(b); err != nil {
		return err
	}
	if err := q.peekBehind(ctx, b, aheads); err != nil {
		return err
	}
	if b.Op == weir.TakeEach && behind < len(b.Charges) {
		return q.takeOthers(ctx, b, aheads)
	}
	for i := range b.Decisions {
		if d := &b.Decisions[i]; d.Allowed && b.Op != weir.PeekEach {
			d.Allowed, d.Reason = false, weir.NotCharged
		}
	}
	return nil
}

// aheads returns whom each charge must not overtake, and how many charges there
// are that must not.
func (q *Queue) aheads(ctx context.Context, charges []weir.Charge) (as []ahead, behind int, err error) {
	as = make([]ahead, len(charges))
	for i := range charges {
		if charges[i].Cost == 0 {
			continue // taking nothing overtakes nobody
		}
		if as[i], err = q.aheadOf(ctx, &charges[i]); err != nil {
			return nil, 0, err
		}
		if as[i].line != nil {
			behind++
		}
	}
	return as, behind, nil
}

// checkServable returns the errors that the limiter returns when it is asked to
// carry out the batch, but not when it is asked to peek.
func checkServable(b *weir.Batch) error {
	for _, c := range b.Charges {
		switch b.Op {
		case weir.TakeEach, weir.TakeAll:
			if c.Policy.ReserveOnly() {
				return weir.ErrReserveOnly
			}
		case weir.ReserveAll:
			if _, err := c.Policy.Compiled().Expiry(int64(weir.Now()), b.TTL); err != nil {
				return err
			}
		}
	}
	return nil
}

// peekBehind decides every charge of b by peeking.
func (q *Queue) peekBehind(ctx context.Context, b *weir.Batch, aheads []ahead) error {
	peek := weir.Batch{Op: weir.PeekEach, Charges: slices.Clone(b.Charges)}
	for i, a := range aheads {
		peek.Charges[i].Cost = a.peekCost(&b.Charges[i])
	}
	if err := q.limiter.Do(ctx, &peek); err != nil {
		return err
	}
	for i, a := range aheads {
		b.Decisions[i] = q.behind(a, &b.Charges[i], peek.Decisions[i])
	}
	return nil
}

// takeOthers makes the charges of b that stand behind nobody. In the limiter's
// batch the others cost nothing.
func (q *Queue) takeOthers(ctx context.Context, b *weir.Batch, aheads []ahead) error {
	take := weir.Batch{Op: weir.TakeEach, Charges: slices.Clone(b.Charges)}
	for i, a := range aheads {
		if a.line != nil {
			take.Charges[i].Cost = 0
		}
	}
	if err := q.limiter.Do(ctx, &take); err != nil {
		return err
	}
	for i, a := range aheads {
		if a.line == nil {
			b.Decisions[i] = take.Decisions[i]
		}
	}
	return nil
}
