package guard

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// subscriptionTTL is how long leases last that are not renewed.
	subscriptionTTL = time.Minute

	// releaseWait is how long Remove and Close may take because of the limiter. After that, the
	// leases are released in the background.
	releaseWait = 100 * time.Millisecond

	// releaseTimeout is how long a call in the background may take.
	releaseTimeout = time.Second

	// The pause after all of the queue has failed; it doubles from the first to the last.
	firstReleasePause = 50 * time.Millisecond
	lastReleasePause  = time.Second

	// closeGrace is how long close waits for leases to be released. The others expire.
	closeGrace = 2 * time.Second
)

// errSubscriptionsClosed is the cause of subscriptions that end with the registry.
var errSubscriptionsClosed = errors.New("guard: closed")

// subscriptions are the open subscriptions of a process. They outlive changes of the limits.
//
// Leases are released at once by whoever is done with them. If the limiter does not answer within
// releaseWait, they are put in a queue, and a goroutine that exists only while the queue has
// something tries again until the leases have expired by themselves. While the last attempt has
// failed, leases are put in the queue without an attempt, so that an outage delays nobody. The
// queue is bounded by the leases that the limiter has admitted.
type subscriptions struct {
	limiter weir.Limiter // set by newSubscriptions, like the next three
	ttl     time.Duration
	ctx     context.Context // of renewals and of releases in the background; ends with close
	cancel  context.CancelFunc

	items    atomic.Int64
	refusals struct{ tooMany, tooManyItems, tooFast atomic.Int64 }
	down     atomic.Bool    // the last attempt to release leases has failed
	running  sync.WaitGroup // renewals, and the goroutine of the queue; Add needs mu and !closed, or !stopped

	mu        sync.Mutex // guards the fields below; taken after Subscription.mu
	live      map[*Subscription]struct{}
	closed    bool // no subscription is opened or renewed
	stopped   bool // nothing is put in the queue
	queue     []leaseRelease
	releasing bool // the goroutine of the queue runs
}

// A leaseRelease is leases to be settled.
type leaseRelease struct {
	batch *weir.Batch
	until time.Time // by then they have expired
}

func newSubscriptions(l weir.Limiter) *subscriptions {
	r := &subscriptions{limiter: l, ttl: subscriptionTTL, live: map[*Subscription]struct{}{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// open opens a subscription with a number of items, all or nothing. If limits is nil, nothing is
// limited and it is only counted.
func (r *subscriptions) open(ctx context.Context, limits *subscriptionLimits, subject string, items int64) (*Subscription, SubscriptionDecision, error) {
	if err := checkItems(items); err != nil {
		return nil, SubscriptionDecision{}, err
	}
	if err := ctx.Err(); err != nil {
		return nil, SubscriptionDecision{}, err
	}
	s := &Subscription{registry: r, limits: limits, subject: subject}
	if limits == nil {
		if err := s.start(ctx, items, nil); err != nil {
			return nil, SubscriptionDecision{}, err
		}
		return s, admittedHere(), nil
	}
	if d, ok := limits.check(0, items); !ok {
		r.count(d)
		return nil, d, nil
	}
	leases, d, err := r.reserve(ctx, limits, subject, limits.opening(items))
	if err != nil || !d.Allowed {
		r.count(d)
		return nil, d, err
	}
	if err := s.start(ctx, items, leases[:items+1]); err != nil {
		leases[items+1].used = 0 // the subscription was not created
		r.release(ctx, subject, leases)
		return nil, SubscriptionDecision{}, err
	}
	r.release(ctx, subject, leases[items+1:])
	return s, d, nil
}

// reserve reserves one unit under each policy, all or nothing. It returns no leases if it was refused.
func (r *subscriptions) reserve(ctx context.Context, limits *subscriptionLimits, subject string, policies []*weir.Policy) ([]*subscriptionLease, SubscriptionDecision, error) {
	b := &weir.Batch{Op: weir.ReserveAll, TTL: r.ttl, Charges: make([]weir.Charge, len(policies))}
	for i, p := range policies {
		b.Charges[i] = weir.Charge{Policy: p, Key: subject, Cost: 1}
	}
	if err := r.limiter.Do(ctx, b); err != nil {
		return nil, SubscriptionDecision{}, err
	}
	d := limits.decision(b)
	if !d.Allowed {
		return nil, d, nil
	}
	leases, all := make([]*subscriptionLease, len(policies)), make([]subscriptionLease, len(policies))
	for i, p := range policies {
		leases[i], all[i] = &all[i], subscriptionLease{policy: p, receipt: b.Receipts[i], local: b.Decisions[i].Estimate}
		if !p.ReserveOnly() {
			all[i].used = 1
		}
	}
	return leases, d, nil
}

// release settles leases, at once if possible. It does not depend on whether ctx has ended.
func (r *subscriptions) release(ctx context.Context, subject string, leases []*subscriptionLease) {
	if len(leases) == 0 {
		return
	}
	// A renewal that is in flight may still give the leases another ttl.
	job := leaseRelease{batch: leaseBatch(weir.Settle, subject, leases), until: time.Now().Add(2 * r.ttl)}
	if r.down.Load() || !r.settle(context.WithoutCancel(ctx), releaseWait, job) {
		r.enqueue(job)
	}
}

// settle tries to settle leases. It returns false if that must be tried again.
func (r *subscriptions) settle(ctx context.Context, timeout time.Duration, job leaseRelease) bool {
	if r.ctx.Err() != nil || time.Now().After(job.until) {
		return true // they expire, or have expired
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.limiter.Do(ctx, job.batch)
	settled := err == nil || errors.Is(err, weir.ErrInvalid) || errors.Is(err, weir.ErrState) // these two would come again
	r.down.Store(!settled)
	return settled
}

// enqueue has leases released in the background.
func (r *subscriptions) enqueue(job leaseRelease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	r.queue = append(r.queue, job)
	if !r.releasing {
		r.releasing = true
		r.running.Go(r.releaseQueue)
	}
}

// releaseQueue releases what is in the queue, and ends when it is empty. It tries the jobs that came
// last first, and pauses when it has tried all of them.
func (r *subscriptions) releaseQueue() {
	pause := firstReleasePause
	var failed []leaseRelease
	for {
		job, ok := r.nextRelease(failed)
		switch {
		case ok && r.settle(r.ctx, releaseTimeout, job):
			pause = firstReleasePause
		case ok:
			failed = append(failed, job)
		case len(failed) == 0:
			return
		default:
			if !r.sleep(pause) {
				return
			}
			pause = min(2*pause, lastReleasePause)
			r.again(failed)
			failed = nil
		}
	}
}

// nextRelease takes a job from the queue. If there is none and none has failed, the goroutine of the
// queue must end.
func (r *subscriptions) nextRelease(failed []leaseRelease) (job leaseRelease, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.queue)
	if n == 0 {
		r.queue, r.releasing = nil, len(failed) > 0
		return leaseRelease{}, false
	}
	job = r.queue[n-1]
	r.queue[n-1] = leaseRelease{}
	r.queue = r.queue[:n-1]
	return job, true
}

// again puts jobs back in the queue, behind those that have come meanwhile.
func (r *subscriptions) again(failed []leaseRelease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(failed, r.queue...)
}

// sleep returns false if the registry is closed meanwhile.
func (r *subscriptions) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// firstRenewal returns how long after its opening a subscription is first renewed. It is random, so
// that subscriptions that were opened at the same time, for example when all clients reconnect, are
// not renewed at the same time.
func (r *subscriptions) firstRenewal() time.Duration {
	return r.ttl/6 + rand.N(r.ttl/6) //nolint:gosec // it is no secret
}

// add registers a subscription.
func (r *subscriptions) add(s *Subscription) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errSubscriptionsClosed
	}
	r.live[s] = struct{}{}
	return nil
}

// forget removes a subscription that has ended.
func (r *subscriptions) forget(s *Subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, s)
}

// begin says whether a renewal may begin. If so, it must end with running.Done.
func (r *subscriptions) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.running.Add(1)
	}
	return !r.closed
}

// close ends all subscriptions and waits until their leases are released, or closeGrace is over.
// None can be opened after it.
func (r *subscriptions) close() {
	grace := time.AfterFunc(closeGrace, r.cancel)
	defer grace.Stop()
	defer r.cancel()
	r.mu.Lock()
	r.closed = true
	all := make([]*Subscription, 0, len(r.live))
	for s := range r.live {
		all = append(all, s)
	}
	r.mu.Unlock()
	leases := make([][]*subscriptionLease, len(all))
	for i, s := range all { // all end before the first call of the limiter
		leases[i] = s.detach(errSubscriptionsClosed)
	}
	for i, s := range all {
		s.release(leases[i])
	}
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.running.Wait()
}

// count counts a decision if it is a refusal.
func (r *subscriptions) count(d SubscriptionDecision) {
	switch d.Limit {
	case limitSubscriptions:
		r.refusals.tooMany.Add(1)
	case limitItemsEach, limitItemsTotal:
		r.refusals.tooManyItems.Add(1)
	case limitCreate, limitModify:
		r.refusals.tooFast.Add(1)
	}
}

// subscriptionStats are counts of subscriptions in this process.
type subscriptionStats struct {
	open, items int64
	refused     SubscriptionRefusals
}

func (r *subscriptions) stats() subscriptionStats {
	r.mu.Lock()
	open := int64(len(r.live))
	r.mu.Unlock()
	return subscriptionStats{
		open: open, items: r.items.Load(),
		refused: SubscriptionRefusals{
			TooMany: r.refusals.tooMany.Load(), TooManyItems: r.refusals.tooManyItems.Load(), TooFast: r.refusals.tooFast.Load(),
		},
	}
}
