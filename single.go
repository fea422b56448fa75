package weir

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/mono"
)

// Single is a limiter without keys, for use inside one process. All its methods
// may be called by any number of goroutines at once.
//
// Most callers want Allow, which answers yes or no, or Wait, which returns when
// it is their turn. Take gives a full Decision, Reserve is for work whose cost is
// known only afterwards. For many keys use memstore.Keyed or a [Limiter].
//
// With one limit of GCRA, TokenBucket or FixedWindow, or with one DualWindow, a
// decision is a single compare-and-swap: no lock, no allocation. Other policies
// take a mutex, and so do these while reservations are open or somebody waits.
// Package prepaid has a variant for many cores on one limit. Make a Single with New.
type Single struct {
	cell  atomic.Pointer[cell] // replaced by Set only; see cell for the protocol
	trace func(step)           // for tests: sees every step under the lock, in order

	// latest is the greatest instant that was given to TakeAt, or that the ledger has
	// seen. Allow and Take neither read nor write it: they go by a clock that does not
	// step back.
	latest atomic.Int64

	mu     sync.Mutex // guards everything below, and the state while cell.word is marked
	ledger *algo.Ledger
	saved  uint64 // the word when the state last went back into it
	queue  queue
}

// New returns a limiter that checks all limits together. Its error joins a
// *LimitError for every limit that has a problem.
func New(limits ...Limit) (*Single, error) { return newAt(Now(), limits...) }

// newAt is New at a given instant, from which Limit.Initial counts.
func newAt(now Instant, limits ...Limit) (*Single, error) {
	p, err := compile("", limits)
	if err != nil {
		return nil, err
	}
	s := &Single{ledger: algo.NewLedger(p.compiled.Rules, int64(now))}
	s.queue.init(s)
	c := newCell(p)
	if c.state != nil {
		s.saved = c.state.Save(s.ledger)
		c.word.Store(s.saved)
	}
	s.cell.Store(c)
	return s, nil
}

// Allow takes one unit and says whether it could. It is Take(1).Allowed, and
// the fastest path.
func (s *Single) Allow() bool {
	c := s.cell.Load()
	now := mono.Now()
	if !c.isGCRA {
		return s.allowAny(c, now)
	}
	t := c.gcra.Tick(now)
	for {
		word := c.word.Load()
		if word == mark {
			return s.takeLocked(Instant(now), 1).Allowed
		}
		next, ok := c.gcra.Step(word, t, 1)
		if !ok || c.word.CompareAndSwap(word, next) {
			return ok
		}
	}
}

// allowAny is Allow for the other words.
func (s *Single) allowAny(c *cell, now int64) bool {
	for {
		word := c.word.Load()
		if word == mark {
			return s.takeLocked(Instant(now), 1).Allowed
		}
		next, ok := c.state.Take(word, now, 1)
		if next == word || c.word.CompareAndSwap(word, next) {
			return ok
		}
	}
}

// Take charges cost units if they fit all limits, and none otherwise. While
// others wait it is refused, however much room there is: nobody is overtaken,
// and RetryAfter counts their turns. A cost of 0 is admitted and changes nothing.
func (s *Single) Take(cost int64) Decision {
	now := Now()
	c := s.cell.Load()
	if !c.isGCRA || uint64(cost-1) >= uint64(c.gcra.Capacity()) {
		return s.takeAt(now, now, cost)
	}
	// As takeAt, with the steps inlined and each Decision returned as it is made:
	// one that is passed up or filled in piece by piece costs half as much again.
	t := c.gcra.Tick(int64(now))
	for {
		word := c.word.Load()
		if word == mark {
			return s.takeLocked(now, cost)
		}
		next, ok := c.gcra.Step(word, t, cost)
		if !ok {
			return Decision{
				Reason: Exhausted, Limit: c.gcra.Capacity(), Remaining: c.gcra.Room(word, t),
				RetryAfter: time.Duration(c.gcra.Wait(c.gcra.RetryTick(next), t, int64(now))),
				ResetAfter: time.Duration(c.gcra.Wait(word, t, int64(now))),
			}
		}
		if c.word.CompareAndSwap(word, next) {
			return Decision{
				Allowed: true, Reason: Admitted, Limit: c.gcra.Capacity(), Remaining: c.gcra.Room(next, t),
				ResetAfter: time.Duration(c.gcra.Wait(next, t, int64(now))),
			}
		}
	}
}

// TakeAt is Take at a given instant. One that lies before an earlier call's counts as
// that: time never goes back. Only Allow and Take, which go by the clock, do not know of
// an instant in the future that TakeAt was given; they may be refused until it has come.
func (s *Single) TakeAt(now Instant, cost int64) Decision {
	return s.takeAt(s.seen(now), now, cost)
}

// seen returns now or, if that is later, the latest instant that was seen.
func (s *Single) seen(now Instant) Instant {
	for {
		latest := s.latest.Load()
		if latest >= int64(now) {
			return Instant(latest)
		}
		if s.latest.CompareAndSwap(latest, int64(now)) {
			return now
		}
	}
}

// takeAt is Take at an instant that is not before any other; the caller's clock says
// now.
func (s *Single) takeAt(at, now Instant, cost int64) Decision {
	if uint64(cost) > uint64(MaxCost) {
		return invalid()
	}
	c := s.cell.Load()
	for {
		word := c.word.Load()
		if word == mark {
			return s.takeLocked(now, cost)
		}
		next, ok := c.state.Take(word, int64(at), cost)
		if next == word || c.word.CompareAndSwap(word, next) {
			return newDecision(c.state.Verdict(next, int64(at), cost, ok), now)
		}
	}
}

// takeLocked is Take under the lock.
func (s *Single) takeLocked(now Instant, cost int64) Decision {
	s.lock(now)
	defer s.unlock(now)
	if s.policy().ReserveOnly() {
		return invalid()
	}
	if s.queue.len() > 0 && cost > 0 {
		return s.behindQueueLocked(now, cost)
	}
	return newDecision(s.stepTake(now, cost), now)
}

// Peek says what Take would (for Concurrency, what Reserve would) and changes
// nothing. Remaining is what remains now.
func (s *Single) Peek(cost int64) Decision { return s.peekAt(Now(), cost) }

// peekAt is Peek at a given instant.
func (s *Single) peekAt(now Instant, cost int64) Decision {
	if compiled.CheckCost(cost) != nil {
		return invalid()
	}
	at := max(now, Instant(s.latest.Load()))
	if d, ok := s.cell.Load().peek(at, now, cost); ok {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.cell.Load().peek(at, now, cost); ok { // unmarked meanwhile
		return d
	}
	if s.queue.len() > 0 && cost > 0 {
		return s.behindQueueLocked(now, cost)
	}
	return newDecision(s.ledger.Peek(int64(now), cost), now)
}

// Reset forgets what was used. Open reservations stay, and their units stay in
// use.
func (s *Single) Reset() { s.resetAt(Now()) }

// resetAt is Reset at a given instant.
func (s *Single) resetAt(now Instant) {
	s.lock(now)
	defer s.unlock(now)
	s.ledger.Reset(int64(now))
	s.traceStep(step{op: opReset, now: now})
	s.queue.changed()
}

// Set puts other limits in force, at once and for everybody. What was used
// stays used: each limit continues the one of the same name, in units, whatever
// its numbers, period or algorithm. An excess over the new limit blocks until it
// is paid off. Waiters whose cost can no longer fit are refused as TooCostly.
// Setting the limits in force changes nothing. If the new limits are wrong, or
// the units in use cannot be represented under them, Set returns an error and
// the old limits stay.
func (s *Single) Set(limits ...Limit) error { return s.setAt(Now(), limits...) }

// setAt is Set at a given instant.
func (s *Single) setAt(now Instant, limits ...Limit) error {
	p, err := compile("", limits)
	if err != nil {
		return err
	}
	s.lock(now)
	defer s.unlock(now)
	old := s.policy()
	if p.Same(old) {
		return nil
	}
	if err := s.ledger.Set(int64(now), p.compiled.Rules, p.compiled.Continues(&old.compiled)); err != nil {
		return setError(p, err)
	}
	if !p.slotsOnly() {
		s.ledger.EndHoldsBy(int64(now.Add(compiled.MaxTTL))) // as Reserve would have
	}
	s.traceStep(step{op: opSet, now: now, policy: p})
	s.cell.Store(newCell(p)) // the old cell keeps its mark for ever
	s.queue.refuseUnservable(p)
	return nil
}

// Limits returns the limits in force, with defaults filled in.
func (s *Single) Limits() []Limit { return s.cell.Load().policy.Limits() }

// lock takes mu and the state, and lets those in whose turn has come.
func (s *Single) lock(now Instant) {
	s.mu.Lock()
	c := s.cell.Load()
	if word := c.word.Swap(mark); word != mark {
		c.state.Load(s.ledger, word)
		if word != s.saved {
			s.ledger.SeenAt(c.state.GrantedSince(word)) // now may be older than the last grant
		}
		s.ledger.SeenAt(s.latest.Load())
	}
	s.queue.grantDue(now)
}

// unlock gives the state back to the word if nothing keeps it in the ledger.
func (s *Single) unlock(now Instant) {
	s.queue.grantDue(now)
	s.queue.arm(now)
	if c := s.cell.Load(); c.state != nil && s.ledger.Holds() == 0 && s.queue.len() == 0 {
		s.seen(Instant(s.ledger.Last()))
		s.saved = c.state.Save(s.ledger)
		c.word.Store(s.saved)
	}
	s.mu.Unlock()
}

// policy returns the numbers in force. It requires mu.
func (s *Single) policy() *Policy { return s.cell.Load().policy }

// stepTake charges the ledger. It requires the lock.
func (s *Single) stepTake(now Instant, cost int64) algo.Verdict {
	v := s.ledger.Take(int64(now), cost)
	s.traceStep(step{op: opTake, now: now, cost: cost, verdict: v})
	return v
}

// A step is one change or refusal under the lock, as tests see it.
type step struct {
	op      op
	now     Instant // as the caller said
	at      Instant // as the ledger took it: never before an earlier step's
	cost    int64   // units taken, reserved or used
	id      uint64
	expiry  int64
	verdict algo.Verdict
	settled algo.Settlement
	policy  *Policy
}

type op uint8

const (
	opTake op = iota
	opReserve
	opSettle
	opRenew
	opReset
	opSet
)

func (s *Single) traceStep(e step) {
	if s.trace != nil {
		e.at = Instant(s.ledger.Last())
		s.trace(e)
	}
}
