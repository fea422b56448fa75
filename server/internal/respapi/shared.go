package respapi

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

// Shared is a Throttler that counts with a weir.Limiter, so that all nodes that share the
// limiter's store share the keys of CL.THROTTLE. Each client's keys are under a policy of
// its own, whose name no configuration can have; other numbers are another policy of that
// name. Policies are remembered as rules are: a bounded number of them.
//
// The limiter must take numbers as they come, as redisstore does. A memstore.Table has
// room for 65,536 sets of numbers at once; beside it use a Table.
type Shared struct {
	limiter weir.Limiter // set by NewShared, like the next
	seed    maphash.Seed
	places  [ruleCache]atomic.Pointer[sharedPolicy]
}

var _ Throttler = (*Shared)(nil)

// sharedPolicy is numbers of a client as a policy. It is immutable.
type sharedPolicy struct {
	sharedNumbers
	policy *weir.Policy
}

type sharedNumbers struct {
	client  string
	numbers Numbers
}

// NewShared returns a Throttler that counts with l.
func NewShared(l weir.Limiter) *Shared { return &Shared{limiter: l, seed: maphash.MakeSeed()} }

// ThrottleEach implements Throttler. Several asks are one call to the limiter, unless one
// of them charges nothing.
func (s *Shared) ThrottleEach(ctx context.Context, client string, asks []Ask) {
	if len(asks) > 1 && s.takeEach(ctx, client, asks) {
		return
	}
	for i := range asks {
		a := &asks[i]
		a.Decision, a.Err = s.throttle(ctx, client, a)
	}
}

// takeEach answers several asks that all charge something, or returns false and has done
// nothing.
func (s *Shared) takeEach(ctx context.Context, client string, asks []Ask) bool {
	b := weir.Batch{Op: weir.TakeEach, Charges: make([]weir.Charge, len(asks))}
	for i := range asks {
		a := &asks[i]
		p, err := s.policy(client, a.Numbers)
		if err != nil || a.Quantity < 1 || a.Quantity > a.Numbers.Burst || len(a.Key) > weir.MaxKeyBytes {
			return false
		}
		b.Charges[i] = weir.Charge{Policy: p, Key: string(a.Key), Cost: a.Quantity}
	}
	err := s.limiter.Do(ctx, &b)
	if errors.Is(err, compiled.ErrLimits) { // one has more in use than its numbers can remember, and nothing was charged
		return false
	}
	for i := range asks {
		if asks[i].Err = err; err == nil {
			asks[i].Decision = b.Decisions[i]
		}
	}
	return true
}

func (s *Shared) throttle(ctx context.Context, client string, a *Ask) (weir.Decision, error) {
	p, err := s.policy(client, a.Numbers)
	if err != nil {
		return weir.Decision{}, err
	}
	key := string(a.Key)
	if a.Quantity > 0 && a.Quantity <= a.Numbers.Burst {
		d, err := s.limiter.Take(ctx, p, key, a.Quantity)
		return d, unfit(err)
	}
	d, err := weir.Peek(ctx, s.limiter, p, key, 0)
	if err == nil && a.Quantity > 0 {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.TooCostly, weir.Never
	}
	return d, unfit(err)
}

// unfit makes the caller's fault of numbers that the store cannot count by.
func unfit(err error) error {
	if errors.Is(err, compiled.ErrLimits) {
		return &NumbersError{"these numbers cannot be counted by: " + err.Error()}
	}
	return err
}

// policy returns the policy that numbers are for a client.
func (s *Shared) policy(client string, n Numbers) (*weir.Policy, error) {
	want := sharedNumbers{client, n}
	place := &s.places[maphash.Comparable(s.seed, want)%ruleCache]
	if known := place.Load(); known != nil && known.sharedNumbers == want {
		return known.policy, nil
	}
	if _, err := n.compile(); err != nil { // in words of CL.THROTTLE
		return nil, err
	}
	per := weir.Every(time.Duration(n.Period) * time.Second)
	p, err := weir.NewPolicy(":cl.throttle:"+client, weir.Limit{Rate: n.Count, Per: per, Burst: n.Burst, Algorithm: weir.GCRA})
	if err != nil {
		return nil, &NumbersError{err.Error()}
	}
	place.Store(&sharedPolicy{want, p})
	return p, nil
}
