package respapi

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
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

// Throttle implements Throttler.
func (s *Shared) Throttle(ctx context.Context, client string, bytes []byte, n Numbers, quantity int64) (weir.Decision, error) {
	p, err := s.policy(client, n)
	if err != nil {
		return weir.Decision{}, err
	}
	key := string(bytes)
	if quantity > 0 && quantity <= n.Burst {
		d, err := s.limiter.Take(ctx, p, key, quantity)
		return d, unfit(err)
	}
	d, err := weir.Peek(ctx, s.limiter, p, key, 0)
	if err == nil && quantity > 0 {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.TooCostly, weir.Never
	}
	return d, unfit(err)
}

// unfit makes the caller's fault of numbers that the store cannot count by.
func unfit(err error) error {
	if errors.Is(err, weir.ErrUnfit) {
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
