package tiered

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// answerTime is the time that is left until a caller's deadline when its call to the store
// ends.
const answerTime = 5 * time.Millisecond

// store is Config.Store with its optional interfaces.
type store struct {
	weir.Limiter
	partitions  int
	partitionOf func(p *weir.Policy, key string) int // nil if there is one partition
	timeout     time.Duration
	timely      bool         // the store ends calls within timeout itself
	patient     weir.Limiter // the store with a longer timeout, for calls that no caller waits for

	// changed notifies the store that another node has changed a policy. Otherwise the
	// store might notice later than this node, which would then cache denials under the
	// old limits.
	changed func(policy string)

	// current returns the policy that the store has in force for callers that pass p; nil
	// if it is unknown.
	current func(ctx context.Context, p *weir.Policy) *weir.Policy

	// rounds returns the number of consecutive round trips of a batch.
	rounds func(b *weir.Batch) int

	max      int64
	inFlight atomic.Int64 // calls in flight
}

func newStore(c Config) *store {
	s := &store{
		Limiter: c.Store, patient: c.Store, partitions: 1, timeout: c.Timeout, max: int64(c.MaxInFlight),
		changed: func(string) {},
		current: func(context.Context, *weir.Policy) *weir.Policy { return nil },
		rounds:  func(*weir.Batch) int { return 1 },
	}
	if p, ok := c.Store.(Partitioned); ok && p.Partitions() > 1 {
		s.partitions, s.partitionOf, s.rounds = p.Partitions(), p.Partition, p.Rounds
	}
	if timed, ok := c.Store.(Timed); ok {
		s.timely = timed.Timeout() <= c.Timeout
	}
	if p, ok := c.Store.(TimeoutSetter); ok {
		s.patient = p.WithTimeout(patience)
	}
	if p, ok := c.Store.(PolicyTracker); ok {
		s.changed, s.current = p.Changed, p.Current
	}
	return s
}

// within returns the context of a call to the store that takes the given number of round
// trips.
func (s *store) within(ctx context.Context, rounds int) (context.Context, context.CancelFunc) {
	own := s.budget(ctx, rounds)
	if s.timely && own == s.timeout*time.Duration(rounds) {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, own)
}

// budget returns how long a call to the store may take: the timeout for each round trip, or the patience of
// the caller, but less than the time until the caller's deadline.
func (s *store) budget(ctx context.Context, rounds int) time.Duration {
	most := storeapi.Timeout(ctx, s.timeout) * time.Duration(min(rounds, maxRounds))
	deadline, has := ctx.Deadline()
	if !has {
		return most
	}
	left := time.Until(deadline)
	return min(most, max(left-answerTime, left/2))
}

// maxRounds bounds the round trips that extend the timeout of a call.
const maxRounds = 4

// An unavailableError says that the store did not decide, and why.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string {
	return fmt.Sprintf("tiered: the store is unavailable: %v", e.err)
}

// Is matches weir.ErrUnavailable.
func (e *unavailableError) Is(target error) bool { return target == weir.ErrUnavailable }

// Unwrap returns the cause.
func (e *unavailableError) Unwrap() error { return e.err }

var (
	errOpen    = &unavailableError{errors.New("the breaker is open")}
	errBusy    = &unavailableError{weir.ErrBusy}
	errNotSent = &unavailableError{errors.New("the call was not sent")}
)

func isUnavailable(err error) bool {
	_, ok := err.(*unavailableError)
	return ok
}

// breakerOf returns the breaker of a key's partition.
func (t *Limiter) breakerOf(p *weir.Policy, key string) *breaker {
	if t.store.partitionOf == nil {
		return t.breakers[0]
	}
	return t.breakers[t.store.partitionOf(p, key)]
}

// enter starts a call to the store. Unless it returns an error, leave must follow.
func (t *Limiter) enter(b *breaker) error {
	if b.open.Load() {
		return errOpen
	}
	if t.store.inFlight.Add(1) > t.store.max {
		t.store.inFlight.Add(-1)
		t.counts.busy.Add(1)
		return errBusy
	}
	t.counts.storeCalls.Add(1)
	return nil
}

// leave ends a call to the store and records its result in the breaker, unless the call was
// late: then its failure has been recorded. It returns err if the caller caused it, and
// an unavailableError if the store failed.
func (t *Limiter) leave(ctx context.Context, b *breaker, err error, late bool) error {
	t.store.inFlight.Add(-1)
	if errors.Is(err, weir.ErrUnknown) && !late {
		t.counts.unknown.Add(1)
	}
	switch {
	case err == nil || aboutOne(err):
		if !late {
			b.succeeded() // the store has answered
		}
		return err
	case ctx.Err() != nil:
		return err
	case !late:
		t.storeFailed(b, err)
	}
	return &unavailableError{err}
}

// storeFailed records that the store did not answer.
func (t *Limiter) storeFailed(b *breaker, err error) {
	t.counts.failures.Add(1)
	if b.failed(t.now()) {
		t.opened(b, err)
	}
}

// isInput reports whether an error is about the arguments of a call, not about the store.
func isInput(err error) bool { return errors.Is(err, weir.ErrInvalid) }

// storeTake has the store decide a charge, and caches its reply.
func (t *Limiter) storeTake(ctx context.Context, c *call) (weir.Decision, error) {
	b := t.breakerOf(c.plan.policy, c.key)
	if err := t.enter(b); err != nil {
		return weir.Decision{}, err
	}
	within := c.within
	if within == nil {
		var cancel context.CancelFunc
		within, cancel = t.store.within(ctx, 1)
		defer cancel()
	}
	d, err := t.store.Take(within, c.plan.policy, c.key, c.cost)
	if err = t.leave(ctx, b, err, false); err == nil {
		t.learn(c, d)
	}
	return d, err
}

// do has the store execute a batch for a caller.
func (t *Limiter) do(ctx context.Context, batch *weir.Batch) error {
	within, cancel := t.store.within(ctx, t.store.rounds(batch))
	defer cancel()
	return t.doBy(t.store, ctx, within, batch, nil)
}

// doBackground has the store execute a batch with the longer timeout. late is nil, or true once a
// caller has stopped waiting for the batch and the breaker has counted that as a failure.
func (t *Limiter) doBackground(ctx context.Context, batch *weir.Batch, late *atomic.Bool) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return t.doBy(t.store.patient, ctx, within, batch, late)
}

// patience is the timeout of calls that no caller waits for. Units whose charge has an
// unknown outcome are lost, so a late reply is better than none.
const patience = time.Second

// doBy has the store, or its patient form, execute a batch whose charges lie on one partition.
// If they lie on several, the breaker of the first charge is used.
func (t *Limiter) doBy(l weir.Limiter, ctx, within context.Context, batch *weir.Batch, late *atomic.Bool) error {
	b := t.breakerOf(batch.Charges[0].Policy, batch.Charges[0].Key)
	if err := t.enter(b); err != nil {
		return err
	}
	err := l.Do(within, batch)
	return t.leave(ctx, b, err, late != nil && late.Load())
}

// opened is called when a breaker has opened.
func (t *Limiter) opened(b *breaker, why error) {
	t.counts.opened.Add(1)
	if t.config.OnBreaker != nil {
		t.config.OnBreaker(b.partition, true, why)
	}
	t.background(func() { t.probe(b) })
}

// probe probes a partition until it answers and all usage that was recorded during the outage
// is flushed to it. Then it closes the breaker.
func (t *Limiter) probe(b *breaker) {
	timer := time.NewTimer(t.probeAfter())
	defer timer.Stop()
	tried := time.Now()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-timer.C:
		case <-b.probeSoon:
			timer.Reset(minProbeInterval - time.Since(tried))
			continue
		}
		tried = time.Now()
		if t.answers(b) && t.flushPartition(b, t.sendToProbed) {
			b.close()
			t.counts.closed.Add(1)
			t.probeOthers()
			if t.config.OnBreaker != nil {
				t.config.OnBreaker(b.partition, false, nil)
			}
			return
		}
		timer.Reset(t.probeAfter())
	}
}

// probeOthers has the other partitions with an open breaker probed soon: often several lie on
// one server and recover together.
func (t *Limiter) probeOthers() {
	for _, b := range t.breakers {
		if b.open.Load() {
			offer(b.probeSoon)
		}
	}
}

func (t *Limiter) probeAfter() time.Duration {
	return time.Duration(float64(probeEvery) * (0.75 + t.config.Random()/2))
}

// answers reports whether a partition works. It reserves 0 units, which is a write without
// an effect, so that a read-only replica does not pass. The key is the tier's own, because the
// stored state of a user's key may be unreadable.
func (t *Limiter) answers(b *breaker) bool {
	batch := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{t.probeOf(b)}, TTL: time.Second}
	err := t.unguarded(t.store, t.store.timeout, &batch)
	if err == nil && batch.Allowed() {
		batch.Op = weir.Settle
		err = t.unguarded(t.store, t.store.timeout, &batch)
	}
	return err == nil || aboutOne(err)
}

// probePolicy is the policy of probes.
var probePolicy = func() *weir.Policy {
	p, err := weir.NewPolicy("weir-probe", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	if err != nil {
		panic(err)
	}
	return p
}()

// probeOf returns the charge that probes a partition. Its key is the first of some candidates
// that lies there.
func (t *Limiter) probeOf(b *breaker) weir.Charge {
	c := weir.Charge{Policy: probePolicy, Key: "0"}
	const keys = 1 << 16
	for i := 1; i < keys && t.store.partitionOf != nil && t.store.partitionOf(c.Policy, c.Key) != b.partition; i++ {
		c.Key = strconv.Itoa(i)
	}
	return c
}

// unguarded has the store, or its patient form, execute a batch even if the breaker is open.
func (t *Limiter) unguarded(l weir.Limiter, timeout time.Duration, batch *weir.Batch) error {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	t.counts.storeCalls.Add(1)
	return l.Do(ctx, batch)
}
