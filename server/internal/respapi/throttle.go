package respapi

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// A throttler makes the decisions of CL.THROTTLE, on the limiter that decides everything else: each
// client has a policy of its own, with a name that no configuration can have, and a call with other
// parameters uses another policy of the same name, on the same state. A limiter in memory bounds how
// many different parameters a client can use at once.
//
// Policies are cached, directly mapped: parameters with the same slot replace each other. A caller
// that sends random parameters makes others compile some policies, and uses no more memory.
type throttler struct {
	limiter weir.Limiter // set by newThrottler, like the next
	seed    maphash.Seed
	slots   [throttlePolicies]atomic.Pointer[throttlePolicy]
}

// throttlePolicies is the number of cached policies.
const throttlePolicies = 4096

// throttlePolicy is the policy of a client's parameters. It is immutable.
type throttlePolicy struct {
	clientParams
	policy *weir.Policy
}

type clientParams struct {
	client string
	params
}

// params are the limit parameters of a call: count units per period seconds, and a burst of
// max_burst + 1 units.
type params struct{ burst, count, period int64 }

func newThrottler(l weir.Limiter) *throttler { return &throttler{limiter: l, seed: maphash.MakeSeed()} }

// maxPeriod is the longest period in seconds.
const maxPeriod = algo.MaxPer / int64(time.Second)

// policy returns the policy of a client's parameters. Its error names the arguments of CL.THROTTLE.
func (t *throttler) policy(client string, n params) (*weir.Policy, error) {
	want := clientParams{client, n}
	place := &t.slots[maphash.Comparable(t.seed, want)%throttlePolicies]
	if known := place.Load(); known != nil && known.clientParams == want {
		return known.policy, nil
	}
	if n.period < 1 || n.period > maxPeriod {
		return nil, fmt.Errorf("period must be between 1 and %d seconds", maxPeriod)
	}
	if n.count < 1 || n.count > algo.MaxRate {
		return nil, fmt.Errorf("count must be between 1 and %d", int64(algo.MaxRate))
	}
	per := weir.Every(time.Duration(n.period) * time.Second)
	p, err := weir.NewPolicy(":cl.throttle:"+client, weir.Limit{Rate: n.count, Per: per, Burst: n.burst, Algorithm: weir.GCRA})
	if bad, ok := errors.AsType[*weir.LimitError](err); ok {
		name := map[string]string{"rate": "count", "burst": "max_burst + 1"}[bad.Field]
		return nil, fmt.Errorf("%s %s", name, bad.Problem)
	}
	if err != nil {
		return nil, err
	}
	place.Store(&throttlePolicy{want, p})
	return p, nil
}

// take decides several charges on their own, with one call to the limiter. If a key has more units
// in use than its parameters can represent, nothing was charged, and it decides one after the other.
//
// It returns the errors of those that could not be decided, by their index.
func (t *throttler) take(ctx context.Context, b *weir.Batch) (errs map[int]error) {
	var whole error // of all charges
	if len(b.Charges) > 1 {
		if whole = t.limiter.Do(ctx, b); whole == nil {
			return nil
		}
	}
	b.Decisions = append(b.Decisions[:0], make([]weir.Decision, len(b.Charges))...)
	for i, c := range b.Charges {
		err := whole
		if err == nil || errors.Is(err, compiled.ErrLimits) {
			b.Decisions[i], err = t.limiter.Take(ctx, c.Policy, c.Key, c.Cost)
		}
		if err != nil {
			if errs == nil {
				errs = map[int]error{}
			}
			errs[i] = err
		}
	}
	return errs
}

// look decides a quantity that charges nothing: 0, or one that is always refused.
func (t *throttler) look(ctx context.Context, p *weir.Policy, key string, quantity int64) (weir.Decision, error) {
	d, err := weir.Peek(ctx, t.limiter, p, key, 0)
	if err == nil && quantity > 0 {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.TooCostly, weir.Never
	}
	return d, err
}
