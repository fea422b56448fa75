package tiered

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// answerTime is what a caller with a deadline needs after the store was given up.
const answerTime = 5 * time.Millisecond

// store is the limiter that all nodes share, and what is known about it.
type store struct {
	weir.Limiter
	partitions  int
	partitionOf func(p *weir.Policy, key string) int // nil if there is one part
	timeout     time.Duration
	timely      bool         // it ends calls by itself within timeout
	patient     weir.Limiter // the same, for calls that nobody waits for

	// changed tells the store that a policy was set elsewhere. One that learns of that by
	// itself may do so later than this node, and its old denial would be believed again.
	changed func(policy string)

	// current returns what is in force for those who bring p, as the store knows it; nil
	// if it cannot say.
	current func(ctx context.Context, p *weir.Policy) *weir.Policy

	// rounds returns how many calls a batch needs one after the other.
	rounds func(b *weir.Batch) int

	max      int64
	inFlight atomic.Int64 // calls under way
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
	if p, ok := c.Store.(Patient); ok {
		s.patient = p.Patiently(patience)
	}
	if p, ok := c.Store.(PolicyTracker); ok {
		s.changed, s.current = p.Changed, p.Current
	}
	return s
}

// within returns the context of a call to the store that takes so many rounds.
func (s *store) within(ctx context.Context, rounds int) (context.Context, context.CancelFunc) {
	own := s.budget(ctx, rounds)
	if s.timely && own == s.timeout*time.Duration(rounds) {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, own)
}

// budget returns how long the store has for a caller: the time-out for each of so many
// rounds, one after the other, but some time less than the caller.
func (s *store) budget(ctx context.Context, rounds int) time.Duration {
	most := s.timeout * time.Duration(min(rounds, maxRounds))
	deadline, has := ctx.Deadline()
	if !has {
		return most
	}
	left := time.Until(deadline)
	return min(most, max(left-answerTime, left/2))
}

// maxRounds bounds the rounds of which each has its time-out.
const maxRounds = 4

// An unavailableError says that the store could not be asked, and why.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string {
	return fmt.Sprintf("tiered: the store is unavailable: %v", e.err)
}

// Is says that the store is unavailable.
func (e *unavailableError) Is(target error) bool { return target == weir.ErrUnavailable }

// Unwrap returns why.
func (e *unavailableError) Unwrap() error { return e.err }

var (
	errOpen    = &unavailableError{errors.New("the breaker is open")}
	errBusy    = &unavailableError{weir.ErrBusy}
	errNotSent = &unavailableError{errors.New("it was not sent")}
)

func isUnavailable(err error) bool {
	_, ok := err.(*unavailableError)
	return ok
}

// breakerOf returns the breaker of a key's part.
func (t *Limiter) breakerOf(p *weir.Policy, key string) *breaker {
	if t.store.partitionOf == nil {
		return t.breakers[0]
	}
	return t.breakers[t.store.partitionOf(p, key)]
}

// enter is the way to the store. Unless it returns an error, leave is the way back.
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

// leave judges how a call ended. Its error is err if that is the caller's own doing,
// or says that the store is away. Of a call that was late the breaker has been told.
func (t *Limiter) leave(ctx context.Context, b *breaker, err error, late bool) error {
	t.store.inFlight.Add(-1)
	if errors.Is(err, weir.ErrUnknown) && !late {
		t.counts.unknown.Add(1)
	}
	switch {
	case err == nil || aboutOne(err):
		if !late {
			b.succeeded() // it has answered
		}
		return err
	case ctx.Err() != nil:
		return err
	case !late:
		t.storeFailed(b, err)
	}
	return &unavailableError{err}
}

// storeFailed notes that the store did not answer.
func (t *Limiter) storeFailed(b *breaker, err error) {
	t.counts.failures.Add(1)
	if b.failed(t.now()) {
		t.opened(b, err)
	}
}

// isInput says whether an error is about what was asked, not about who was asked.
func isInput(err error) bool { return errors.Is(err, weir.ErrInvalid) }

// storeTake has the store decide about one charge, and remembers what it said.
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

// do has the store carry out a batch for a caller.
func (t *Limiter) do(ctx context.Context, batch *weir.Batch) error {
	within, cancel := t.store.within(ctx, t.store.rounds(batch))
	defer cancel()
	return t.doBy(t.store, ctx, within, batch, nil)
}

// doPatiently has the store carry out a batch for which it has more time. late is nil, or set
// when a caller has stopped waiting for it and the breaker has counted that as a failure.
func (t *Limiter) doPatiently(ctx context.Context, batch *weir.Batch, late *atomic.Bool) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return t.doBy(t.store.patient, ctx, within, batch, late)
}

// patience is how long the store has for what no caller waits for: units that it may
// or may not have got are lost, so a slow answer is better than none.
const patience = time.Second

// doBy has the store, or its patient form, carry out a batch whose charges lie on one part;
// if they lie on several, the first one's breaker stands for all.
func (t *Limiter) doBy(l weir.Limiter, ctx, within context.Context, batch *weir.Batch, late *atomic.Bool) error {
	b := t.breakerOf(batch.Charges[0].Policy, batch.Charges[0].Key)
	if err := t.enter(b); err != nil {
		return err
	}
	err := l.Do(within, batch)
	return t.leave(ctx, b, err, late != nil && late.Load())
}

// opened is called when a part was given up.
func (t *Limiter) opened(b *breaker, why error) {
	t.counts.opened.Add(1)
	if t.config.OnBreaker != nil {
		t.config.OnBreaker(b.partition, true, why)
	}
	t.background(func() { t.probe(b) })
}

// probe tries a part that was given up until it answers, and has told it what it
// missed.
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

// probeOthers has the parts that are still given up tried now: often several lie on one
// server, and are back together.
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

// answers asks a part whether it works, by a reservation of nothing: a change that changes
// nothing, so that a server which can only be read does not pass. The key is the tier's own,
// because what is stored of a user's key may be unreadable.
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

// probeOf returns the charge by which a part is probed: the first of some keys that lies
// there.
func (t *Limiter) probeOf(b *breaker) weir.Charge {
	c := weir.Charge{Policy: probePolicy, Key: "0"}
	const keys = 1 << 16
	for i := 1; i < keys && t.store.partitionOf != nil && t.store.partitionOf(c.Policy, c.Key) != b.partition; i++ {
		c.Key = strconv.Itoa(i)
	}
	return c
}

// unguarded has the store, or its patient form, carry out a batch whatever the breaker says.
func (t *Limiter) unguarded(l weir.Limiter, timeout time.Duration, batch *weir.Batch) error {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	t.counts.storeCalls.Add(1)
	return l.Do(ctx, batch)
}
