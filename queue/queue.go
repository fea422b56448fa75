package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Queue is a Limiter with Wait, WaitAll and Reserve: a FIFO line of waiting callers for each
// policy name, class and key. It works over any Limiter, also over one
// in another process. All methods may be called by any number of goroutines.
//
// No waiting caller is overtaken within its class; callers of another class do not stand behind
// it. While callers wait for a key, Take and the batches that
// charge it are refused as Exhausted, however many units remain, and RetryAfter
// includes the turns of the waiting callers; callers whose turn has come go first. A cost
// of 0 is admitted. While there are no waiting callers at all, a call costs one atomic load more
// than the limiter's own; otherwise also a map lookup under a lock.
//
// RetryAfter behind waiting callers is exact, without open reservations, for one limit of
// GCRA or TokenBucket, and for most others as long as all the waited-for units
// fit at once. Otherwise it is an estimate at the limit's rate: a caller that retries too
// early is refused again.
//
// A caller that waits for several charges stands in one line at a time, that of the charge with
// the longest RetryAfter, at the place of its arrival. So a caller that lacks units of its own
// does not hold up those with whom it shares another key, and callers cannot wait for each other
// in a circle, in whichever order they pass their charges. It may be overtaken at the keys of its
// other charges, and then waits for those.
//
// Units are charged at the caller's turn, through the limiter. Turns move when
// something is settled, renewed, reset or set through the Queue. Changes made directly to
// the limiter take effect when the head of the line tries again: after the RetryAfter that it
// got, or a quarter of a second while reservations are open, or when a caller behind it finds that
// there is room earlier.
//
// The order is that of this Queue: processes that share a store each have lines of
// their own, and these compete. The head of a line waits exactly as long as the limiter says. If it is
// refused nevertheless, because others were faster, its next wait is in half of the cases longer by up
// to a tenth, at most 50 ms, so that not all processes try again at the same instant. A line makes one charge after the other, so over
// a store that takes a millisecond to reply a key has at most a thousand turns a
// second. Where there is only one key, and no other process, use [weir.Single].
type Queue struct {
	limiter   weir.Limiter // set by New, like the next two
	maxPerKey int
	maxTotal  int64

	// waiting is the number of waiting callers in all lines. It is written under mu. Calls
	// read it without mu before they call the limiter: at 0 they overtake no caller. A caller
	// that starts to wait just then arrived later.
	waiting atomic.Int64

	mu    sync.Mutex           // guards the fields below and all lines; never held during a call of the limiter
	lines map[stateKey][]*line // one for each class with waiting callers
	next  uint64               // sequence number of the next waiter
}

var _ weir.Limiter = (*Queue)(nil)

// Config configures a Queue.
type Config struct {
	// MaxPerKey bounds the waiting callers for one policy and key. The default is 64.
	MaxPerKey int

	// MaxTotal bounds the waiting callers for all keys together. The default is
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
	return &Queue{limiter: l, maxPerKey: c.MaxPerKey, maxTotal: int64(c.MaxTotal), lines: map[stateKey][]*line{}}, nil
}

// MaxPerKey returns the bound of the callers that wait for one policy and key.
func (q *Queue) MaxPerKey() int { return q.maxPerKey }

// Waiting returns the number of waiting callers, for all keys together.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }

// Wait takes cost units from key as soon as it is the caller's turn. Its error is nil
// only if they were taken. A refusal is a *DeniedError, returned at once if the context's
// deadline comes before the expected turn (TooLate), if too many callers wait (QueueFull) or if
// waiting cannot help; the Decision is the same as in the error. Other errors are the
// context's, or the limiter's if it could not decide. Then nothing was taken, except that
// a call of a remote limiter that was cancelled may have been executed.
//
// A caller that leaves does not delay the others. If the turn comes just before the deadline,
// or as the context ends, the limiter still has a tenth of a second to reply, so Wait may
// return late by that much.
func (q *Queue) Wait(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	d, err := q.wait(ctx, p, key, cost)
	if err == nil {
		err = d.Err()
	}
	return d, err
}

// wait is Wait, but a refusal is only a Decision.
func (q *Queue) wait(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
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
	b := weir.Batch{
		Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}, Decisions: make([]weir.Decision, 1),
	}
	if err := q.queueUp(ctx, &b, 0); err != nil {
		return weir.Decision{}, err
	}
	return b.Decisions[0], nil
}

// Take charges cost units to key if they fit and no callers wait for it.
func (q *Queue) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if q.waiting.Load() == 0 {
		return q.limiter.Take(ctx, p, key, cost)
	}
	return q.takeBehind(ctx, p, key, cost)
}

// takeBehind is Take while callers wait. It is a separate function so that Take needs
// little stack.
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

// Do executes a batch. Charges for keys with waiting callers are refused, also by
// PeekEach. A TakeAll or ReserveAll with such a charge is refused as a whole;
// its other decisions are those of a Peek of each charge alone. Settle and Renew are executed
// at once, so that no refund is delayed by a slow reply, and so is
// DebitEach, which is never refused.
func (q *Queue) Do(ctx context.Context, b *weir.Batch) error {
	switch {
	case b.Op == weir.Settle || b.Op == weir.Renew || b.Op == weir.ResetEach:
		return q.giveBack(ctx, b)
	case b.Op == weir.DebitEach || q.waiting.Load() == 0:
		return q.limiter.Do(ctx, b)
	}
	return q.doBehind(ctx, b)
}

// giveBack executes a batch that may let the heads of lines go earlier than their
// RetryAfter said.
func (q *Queue) giveBack(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.ResetEach {
		if err := q.letDueGo(ctx, b.Charges); err != nil {
			return err
		}
	}
	err := q.limiter.Do(ctx, b)
	q.retry(b.Charges) // also after an error: the batch may have been executed
	return err
}

// Set puts new in force wherever old was, also for waiting callers. Callers whose
// cost can no longer fit are refused as TooCostly.
func (q *Queue) Set(ctx context.Context, old, new *weir.Policy) error {
	err := q.limiter.Set(ctx, old, new)
	if q.waiting.Load() == 0 {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, classes := range q.lines {
		for _, ln := range classes {
			ln.doubtUnder(new)
			if k.policy == new.Name() {
				ln.retry() // also after an error: it may have been set
			}
		}
	}
	return err
}

// Retry lets the callers that wait first for the keys of a policy try again at once. It is for a limiter that admits
// them before it has said that it would.
func (q *Queue) Retry(policy string) {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, classes := range q.lines {
		if k.policy != policy {
			continue
		}
		for _, ln := range classes {
			ln.retry()
		}
	}
}

// doBehind executes a batch that charges or peeks, while callers wait.
func (q *Queue) doBehind(ctx context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	aheads, behind, err := q.aheads(ctx, b.Charges, nil)
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
	if b.Op != weir.PeekEach {
		refuseAll(b)
	}
	return nil
}

// refuseAll makes the admitted charges of b those of a batch that was refused because of another.
func refuseAll(b *weir.Batch) {
	for i := range b.Decisions {
		if d := &b.Decisions[i]; d.Allowed {
			d.Allowed, d.Reason = false, weir.NotCharged
		}
	}
}

// aheads returns the waiting callers ahead of each charge, up to w unless that is nil, and the
// number of charges that have any. Callers that are due go first.
func (q *Queue) aheads(ctx context.Context, charges []weir.Charge, w *waiter) (as []ahead, behind int, err error) {
	as = make([]ahead, len(charges))
	if q.waiting.Load() == 0 {
		return as, 0, nil
	}
	for i := range charges {
		if charges[i].Cost == 0 {
			continue // a cost of 0 overtakes no caller
		}
		if as[i], err = q.standBehind(ctx, keyOf(&charges[i]), w); err != nil {
			return nil, 0, err
		}
		if as[i].line != nil {
			behind++
		}
	}
	return as, behind, nil
}

// checkServable returns the errors that the limiter returns for the batch, but not for
// a peek.
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

// takeOthers makes the charges of b that are behind no waiting callers. In the limiter's
// batch the others have cost 0.
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
