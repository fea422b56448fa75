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

// Shared is a Throttler on top of a weir.Limiter, so that all nodes that share the limiter's
// store share the keys of CL.THROTTLE. Each client has a policy of its own, with a name that no
// configuration can have; calls with other parameters use another policy of the same name.
// Policies are cached as in ruleCache, in bounded memory.
//
// The limiter must accept any number of policies, as redisstore does. A memstore.Table has room
// for 65,536 sets of limits; with it, use a Table.
type Shared struct {
	limiter weir.Limiter // set by NewShared, like the next
	seed    maphash.Seed
	slots   [ruleCacheSize]atomic.Pointer[sharedPolicy]
}

var _ Throttler = (*Shared)(nil)

// sharedPolicy is the policy of a client's parameters. It is immutable.
type sharedPolicy struct {
	clientParams
	policy *weir.Policy
}

type clientParams struct {
	client string
	params Params
}

// NewShared returns a Throttler on top of l.
func NewShared(l weir.Limiter) *Shared { return &Shared{limiter: l, seed: maphash.MakeSeed()} }

// ThrottleEach implements Throttler. Several requests are one call to the limiter, unless one
// of them charges nothing.
func (s *Shared) ThrottleEach(ctx context.Context, client string, requests []ThrottleRequest) {
	if len(requests) > 1 && s.takeEach(ctx, client, requests) {
		return
	}
	for i := range requests {
		a := &requests[i]
		a.Decision, a.Err = s.throttle(ctx, client, a)
	}
}

// takeEach decides several requests that all charge something. Otherwise it does nothing and
// returns false.
func (s *Shared) takeEach(ctx context.Context, client string, requests []ThrottleRequest) bool {
	b := weir.Batch{Op: weir.TakeEach, Charges: make([]weir.Charge, len(requests))}
	for i := range requests {
		a := &requests[i]
		p, err := s.policy(client, a.Params)
		if err != nil || a.Quantity < 1 || a.Quantity > a.Params.Burst || len(a.Key) > weir.MaxKeyBytes {
			return false
		}
		b.Charges[i] = weir.Charge{Policy: p, Key: string(a.Key), Cost: a.Quantity}
	}
	err := s.limiter.Do(ctx, &b)
	if errors.Is(err, compiled.ErrLimits) { // a key has more units in use than its parameters can represent; nothing was charged
		return false
	}
	for i := range requests {
		if requests[i].Err = err; err == nil {
			requests[i].Decision = b.Decisions[i]
		}
	}
	return true
}

func (s *Shared) throttle(ctx context.Context, client string, a *ThrottleRequest) (weir.Decision, error) {
	p, err := s.policy(client, a.Params)
	if err != nil {
		return weir.Decision{}, err
	}
	key := string(a.Key)
	if a.Quantity > 0 && a.Quantity <= a.Params.Burst {
		d, err := s.limiter.Take(ctx, p, key, a.Quantity)
		return d, invalidParams(err)
	}
	d, err := weir.Peek(ctx, s.limiter, p, key, 0)
	if err == nil && a.Quantity > 0 {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.TooCostly, weir.Never
	}
	return d, invalidParams(err)
}

// invalidParams turns the store's error for invalid limits into a *ParamsError.
func invalidParams(err error) error {
	if errors.Is(err, compiled.ErrLimits) {
		return &ParamsError{"invalid limit parameters: " + err.Error()}
	}
	return err
}

// policy returns the policy of a client's parameters.
func (s *Shared) policy(client string, n Params) (*weir.Policy, error) {
	want := clientParams{client, n}
	place := &s.slots[maphash.Comparable(s.seed, want)%ruleCacheSize]
	if known := place.Load(); known != nil && known.clientParams == want {
		return known.policy, nil
	}
	if _, err := n.compile(); err != nil { // its errors name the arguments of CL.THROTTLE
		return nil, err
	}
	per := weir.Every(time.Duration(n.Period) * time.Second)
	p, err := weir.NewPolicy(":cl.throttle:"+client, weir.Limit{Rate: n.Count, Per: per, Burst: n.Burst, Algorithm: weir.GCRA})
	if err != nil {
		return nil, &ParamsError{err.Error()}
	}
	place.Store(&sharedPolicy{want, p})
	return p, nil
}
