package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// ErrSubscriptionLost is the cause of the context of a subscription whose lease expired while the
// limiter was unavailable, and whose place others have taken meanwhile.
var ErrSubscriptionLost = errors.New("guard: the lease of the subscription has expired, and its limits are in use by others")

// SubscriptionDecision is the decision on a new subscription, or on more items.
type SubscriptionDecision struct {
	// Decision is that of the limit that refused or, if none did, of the one with the least
	// remaining. The units of PerSubject, ItemsEach and ItemsTotal come back when subscriptions
	// end and items are removed, so RetryAfter is only when that will have happened at the
	// latest if no lease is renewed.
	weir.Decision

	// Limit is the limit that refused: "subscriptions", "items_each", "items_total", "create" or
	// "modify". It is "" if none did, also if the limiter itself refused; Reason says why.
	Limit string
}

// Subscription is an open stream of a subject. It ends with its context, or with Close. All methods
// may be called by any number of goroutines.
//
// What a subscription counts are leases: reservations of Concurrency limits, one for itself and one
// for each item. They expire after a minute and are renewed every 20 seconds, so that those of a
// process that has crashed come back by themselves. While the limiter is unavailable, the
// subscription continues. If that takes so long that leases expire, they are reserved again
// afterwards; if that is refused, the subscription ends with ErrSubscriptionLost.
//
// A subscription keeps the ItemsEach that it was opened with. Other limits follow Guard.Set.
type Subscription struct {
	// Set by open.
	registry *subscriptions
	limits   *subscriptionLimits // nil = nothing is reserved
	subject  string
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// Protocol. mu is never held during a call of the limiter, so that Remove and Close do not
	// wait for Add or a renewal. Those look again when they have the reply:
	//
	//   - Add counts its items as pending during the call, so that two of them together do not
	//     exceed ItemsEach. If the subscription has ended meanwhile, Add releases what it got.
	//   - Remove and end take leases off the list, mark them as gone, and release them after that.
	//     Each lease is taken off the list once, so it is released once.
	//   - renew uses a copy of the list. There is one at a time, because the timer is armed again
	//     when it is done. It ignores leases that are gone when it has the reply, as they may have
	//     been released before they could be renewed. What it has reserved in place of those, it
	//     releases.
	mu      sync.Mutex // guards the fields below
	ended   bool
	items   int64
	pending int64                // items of calls of Add that wait for the limiter
	leases  []*subscriptionLease // the first is that of the subscription, the others are of its items
	timer   *time.Timer          // of the next renewal
	stop    func() bool          // of the function that waits for the end of the context

	unknownUntil time.Time // used by renew only: until then, leases may exist of which it has no receipts
}

// A subscriptionLease is a reservation of a unit.
type subscriptionLease struct {
	policy  *weir.Policy // set once
	used    int64        // what it is settled with: 0, or 1 for a rate
	receipt weir.Receipt // guarded by Subscription.mu, like the fields below, once it is on the list
	local   bool         // made by a limiter that decided without its store, which does not know of it
	gone    bool         // from the list
}

// Subscribe opens a subscription with a number of items, all or nothing. It ends when ctx ends. The
// subscription is nil if it was refused. A Guard without Config.Subscriptions refuses nothing. If the
// error is a weir.ErrUnknown, the units may be in use until their leases expire after a minute.
func (g *Guard) Subscribe(ctx context.Context, s Subject, items int64) (*Subscription, SubscriptionDecision, error) {
	return g.subs.open(ctx, g.rules.Load().subs, s.Key, items)
}

// Add adds items, all or nothing. After the end of the subscription it returns the cause of its
// context.
func (s *Subscription) Add(ctx context.Context, items int64) (SubscriptionDecision, error) {
	if err := checkItems(items); err != nil {
		return SubscriptionDecision{}, err
	}
	if d, decided, err := s.addHere(items); decided || err != nil {
		return d, err
	}
	leases, d, err := s.registry.reserve(ctx, s.limits, s.subject, s.limits.adding(items))
	if !s.added(items, leases) {
		if len(leases) > 0 {
			leases[items].used = 0 // the modification was not made
			s.release(leases)
		}
		return SubscriptionDecision{}, context.Cause(s.ctx)
	}
	if len(leases) > 0 {
		s.release(leases[items:])
	}
	s.registry.count(d)
	return d, err
}

// addHere decides on more items if that needs no call of the limiter. Otherwise they are pending.
func (s *Subscription) addHere(items int64) (d SubscriptionDecision, decided bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return SubscriptionDecision{}, true, context.Cause(s.ctx)
	case s.limits == nil || items == 0:
		s.countLocked(items)
		return admittedHere(), true, nil
	}
	if d, ok := s.limits.check(s.items+s.pending, items); !ok {
		s.registry.count(d)
		return d, true, nil
	}
	s.pending += items
	return SubscriptionDecision{}, false, nil
}

// added ends a call of Add, with no leases if it was refused or failed. It returns false if the
// subscription has ended; then the leases are the caller's.
func (s *Subscription) added(items int64, leases []*subscriptionLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending -= items
	if s.ended {
		return false
	}
	if len(leases) > 0 {
		s.leases = append(s.leases, leases[:items]...)
		s.countLocked(items)
	}
	return true
}

// Remove removes up to so many items and returns how many. It is never refused. If the limiter is
// unavailable, Remove returns all the same, and the leases are released later.
func (s *Subscription) Remove(items int64) int64 {
	s.mu.Lock()
	items = max(0, min(items, s.items))
	s.countLocked(-items)
	var gone []*subscriptionLease
	if s.limits != nil {
		gone = s.takeLocked(items)
	}
	s.mu.Unlock()
	s.release(gone)
	return items
}

// countLocked adds to the number of items.
func (s *Subscription) countLocked(items int64) {
	s.items += items
	s.registry.items.Add(items)
}

// takeLocked takes the last n leases off the list.
func (s *Subscription) takeLocked(n int64) []*subscriptionLease {
	rest := len(s.leases) - int(n)
	gone := append([]*subscriptionLease(nil), s.leases[rest:]...)
	clear(s.leases[rest:])
	s.leases = s.leases[:rest]
	for _, l := range gone {
		l.gone = true
	}
	return gone
}

// release settles leases that are not on the list.
func (s *Subscription) release(leases []*subscriptionLease) {
	s.registry.release(s.ctx, s.subject, leases)
}

// Items returns the number of items.
func (s *Subscription) Items() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items
}

// Context returns the context of the subscription. It ends with that of Subscribe, with Close, and
// with cause ErrSubscriptionLost if the lease expired during an outage and could not be renewed.
func (s *Subscription) Context() context.Context { return s.ctx }

// Close ends the subscription and releases what it holds. It may be called more than once. If the
// limiter is unavailable, Close returns all the same, and the leases are released later.
func (s *Subscription) Close() { s.end(context.Canceled) }

// contextEnded closes the subscription in a goroutine for which the registry waits.
func (s *Subscription) contextEnded() {
	if s.registry.begin() {
		defer s.registry.running.Done()
	}
	s.Close()
}

// end ends the subscription and releases its leases.
func (s *Subscription) end(cause error) { s.release(s.detach(cause)) }

// detach ends the subscription and returns the leases that its caller must release. There are none
// if it has ended before.
func (s *Subscription) detach(cause error) []*subscriptionLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	s.stop()
	s.cancel(cause) // here, so that whoever finds ended also finds the cause
	if s.timer != nil {
		s.timer.Stop()
	}
	s.registry.forget(s)
	s.countLocked(-s.items)
	return s.takeLocked(int64(len(s.leases)))
}

// start makes s the subscription of ctx and registers it. It returns an error if the registry is
// closed.
func (s *Subscription) start(ctx context.Context, items int64, leases []*subscriptionLease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.registry.add(s); err != nil {
		return err
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.stop = context.AfterFunc(s.ctx, s.contextEnded)
	s.leases = leases
	s.countLocked(items)
	if s.limits != nil {
		s.timer = time.AfterFunc(s.registry.firstRenewal(), s.renew)
	}
	return nil
}

// renew is what the timer calls: it renews the leases and arms the timer again.
func (s *Subscription) renew() {
	if !s.registry.begin() {
		return
	}
	defer s.registry.running.Done()
	wait := s.registry.ttl / 3
	if !s.renewNow() {
		wait = s.registry.ttl / 12
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.timer.Reset(wait)
	}
}

// renewNow renews all leases in one call, and reserves those again that have expired. It returns
// false if it must be called again soon.
func (s *Subscription) renewNow() bool {
	ctx, cancel := context.WithTimeout(s.registry.ctx, s.registry.ttl/3)
	defer cancel()
	s.mu.Lock()
	leases := append([]*subscriptionLease(nil), s.leases...)
	b := leaseBatch(weir.Renew, s.subject, leases)
	s.mu.Unlock()
	b.TTL = s.registry.ttl
	if len(leases) == 0 {
		return true // it has ended
	}
	if err := s.registry.limiter.Do(ctx, b); err != nil {
		return false
	}
	lost := s.renewed(leases, b)
	return len(lost) == 0 || s.reserveAgain(ctx, lost)
}

// renewed notes the result of a renewal. It returns the leases that are over. Those that a limiter
// made without its store are released and returned, too: the store must get to know of them.
func (s *Subscription) renewed(leases []*subscriptionLease, b *weir.Batch) (lost []*subscriptionLease) {
	var local []*subscriptionLease
	s.mu.Lock()
	for i, l := range leases {
		switch {
		case l.gone:
			continue
		case b.Decisions[i].Allowed && !l.local:
			l.receipt = b.Receipts[i]
			continue
		case l.local:
			local = append(local, &subscriptionLease{policy: l.policy, receipt: b.Receipts[i]})
		}
		lost = append(lost, l)
	}
	s.mu.Unlock()
	s.release(local)
	return lost
}

// reserveAgain reserves leases that were lost, all or nothing. It returns false if that must be
// tried again.
func (s *Subscription) reserveAgain(ctx context.Context, lost []*subscriptionLease) bool {
	policies := make([]*weir.Policy, len(lost))
	for i, l := range lost {
		policies[i] = l.policy
	}
	leases, d, err := s.registry.reserve(ctx, s.limits, s.subject, policies)
	now := time.Now()
	switch {
	case err != nil:
		if errors.Is(err, weir.ErrUnknown) || ctx.Err() != nil {
			s.unknownUntil = now.Add(s.registry.ttl)
		}
		return false
	case d.Allowed:
		s.replace(lost, leases)
		return true
	case d.Reason == weir.StoreDown || d.Estimate: // decided without the store
		return false
	case now.Before(s.unknownUntil): // perhaps by leases of the subscription itself
		return false
	}
	s.end(ErrSubscriptionLost)
	return true
}

// replace puts new leases in the place of old ones. Those of old ones that are gone are released.
func (s *Subscription) replace(old, leases []*subscriptionLease) {
	var unused []*subscriptionLease
	s.mu.Lock()
	for i, l := range old {
		if l.gone {
			unused = append(unused, leases[i])
			continue
		}
		l.receipt, l.local = leases[i].receipt, leases[i].local
	}
	s.mu.Unlock()
	s.release(unused)
}

// leaseBatch returns a batch that settles or renews leases.
func leaseBatch(op weir.Op, subject string, leases []*subscriptionLease) *weir.Batch {
	b := &weir.Batch{Op: op, Charges: make([]weir.Charge, len(leases)), Receipts: make([]weir.Receipt, len(leases))}
	for i, l := range leases {
		b.Charges[i] = weir.Charge{Policy: l.policy, Key: subject, Cost: l.used}
		b.Receipts[i] = l.receipt
	}
	return b
}

// admittedHere is the decision if there is no limit.
func admittedHere() SubscriptionDecision {
	return SubscriptionDecision{Decision: weir.Decision{Allowed: true, Reason: weir.Admitted}}
}

func checkItems(items int64) error {
	if items < 0 || items > weir.MaxCost {
		return fmt.Errorf("guard: %w: %d items: must be between 0 and %d", weir.ErrInvalid, items, weir.MaxCost)
	}
	return nil
}
