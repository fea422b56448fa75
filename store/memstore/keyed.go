package memstore

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
)

// Keyed is one policy for many keys: a limiter for each user, host or address, in one
// process. Its methods may be called by any number of goroutines.
//
//	var perHost = weir.Must(memstore.NewKeyed(weir.PerSecond(50)))
//
//	if !perHost.Allow(host) { … }
//	if err := perHost.Wait(ctx, host); err != nil { … }
//
// It is a Table of at most DefaultMaxKeys keys with a queue.Queue in front. Where several
// policies are charged together, or a Config is needed, use Table and queue.Queue directly.
// With a Concurrency limit only Reserve can be used: Allow and Take refuse as weir.Invalid, and
// Wait returns weir.ErrReserveOnly.
type Keyed struct {
	queue  *queue.Queue
	policy *weir.Policy
}

// maxKeyedWaiters bounds how many wait on a Keyed, for one key and for all together.
const maxKeyedWaiters = 10_000

// NewKeyed returns a limiter that checks all limits together for each key. Its error joins a
// *weir.LimitError for every limit that has a problem.
func NewKeyed(limits ...weir.Limit) (*Keyed, error) {
	policy, err := weir.NewPolicy("keyed", limits...)
	if err != nil {
		return nil, err
	}
	table, err := New(Config{})
	if err != nil {
		return nil, err
	}
	q, err := queue.New(table, queue.Config{MaxPerKey: maxKeyedWaiters, MaxTotal: maxKeyedWaiters})
	if err != nil {
		return nil, err
	}
	return &Keyed{queue: q, policy: policy}, nil
}

// Allow takes one unit from key and says whether it could. A key longer than
// weir.MaxKeyBytes is refused.
func (k *Keyed) Allow(key string) bool { return k.Take(key, 1).Allowed }

// Take charges cost units to key if they fit all limits, and none otherwise. While others
// wait for the key it is refused.
func (k *Keyed) Take(key string, cost int64) weir.Decision {
	d, err := k.queue.Take(context.Background(), k.policy, key, cost)
	if err != nil { // a cost or key that is out of range, or a limit of concurrency
		return weir.Decision{Reason: weir.Invalid, RetryAfter: weir.Never}
	}
	return d
}

// Wait takes one unit from key as soon as it is the caller's turn, first come, first
// served. It returns nil if the unit was taken, the context's error if that ended first, and
// otherwise a *weir.DeniedError: at once if the context's deadline comes before the
// caller's turn.
func (k *Keyed) Wait(ctx context.Context, key string) error { return k.WaitN(ctx, key, 1) }

// WaitN is Wait for cost units.
func (k *Keyed) WaitN(ctx context.Context, key string, cost int64) error {
	_, err := k.queue.Wait(ctx, k.policy, key, cost)
	return err
}

// Reserve charges cost units to key for work whose cost is known only afterwards; see
// weir.Reserve. A refusal is a *weir.DeniedError.
func (k *Keyed) Reserve(ctx context.Context, key string, cost int64, ttl time.Duration) (*weir.Reservation, error) {
	r, err := weir.Reserve(ctx, k.queue, ttl, weir.Charge{Policy: k.policy, Key: key, Cost: cost})
	if err != nil {
		return nil, err
	}
	if err := r.Decision.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

// Reset forgets what key has used. Open reservations stay.
func (k *Keyed) Reset(key string) error {
	return weir.Reset(context.Background(), k.queue, k.policy, key)
}
