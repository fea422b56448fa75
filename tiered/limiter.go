package tiered

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Limiter is a weir.Limiter in front of a store that all nodes share. Make one with New,
// and call Close to settle its leases and flush its usage. All methods may be called by any
// number of goroutines.
type Limiter struct {
	config     Config // set by New, like everything up to renewals
	store      *store
	breakers   []*breaker
	table      *table
	sketch     *admissionSketch // of Leased mode; otherwise nil
	unlisten   func()
	ctx        context.Context // of background goroutines
	cancel     context.CancelFunc
	failOpenID [16]byte      // ID in the receipts of reservations that failed open
	renewals   chan struct{} // holds one element for each lease renewal in progress

	histories sync.Map // name → *policyHistory
	named     atomic.Int64
	plans     [plans]atomic.Pointer[plan]

	leases   leases
	wake     chan struct{}     // wakes the maintenance loop; has room for one
	denials  chan queuedDenial // denials to publish
	receipts receipts
	counts   counts

	wg     sync.WaitGroup // of background goroutines
	mu     sync.Mutex     // held while closed is set or a background goroutine is started
	closed atomic.Bool    // no background goroutine starts any more, and no allowance is used
	once   sync.Once      // guards Close
}

var _ weir.Limiter = (*Limiter)(nil)

// New returns a Limiter. It does not call the store.
func New(c Config) (*Limiter, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	t := &Limiter{config: c, store: newStore(c), table: newTable(c.MaxKeys), renewals: make(chan struct{}, mostRenewals)}
	if c.Mode == Leased {
		t.sketch = new(admissionSketch)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wake = make(chan struct{}, 1)
	for i := range t.store.partitions {
		t.breakers = append(t.breakers, newBreaker(i))
	}
	_, _ = rand.Read(t.failOpenID[:]) // it never fails
	t.background(t.maintain)
	if c.Bus != nil {
		t.denials = make(chan queuedDenial, maxQueuedDenials)
		t.unlisten = c.Bus.Listen(t.receive)
		t.background(t.publish)
	}
	return t, nil
}

// Close stops the background goroutines, settles leases, and flushes unsynced usage. It takes
// two seconds at most. It does not close Store, Local or Bus. Calls after Close are still
// decided, without leases and allowances.
func (t *Limiter) Close() {
	t.once.Do(func() {
		if t.unlisten != nil {
			t.unlisten()
		}
		t.mu.Lock()
		t.closed.Store(true)
		t.mu.Unlock()
		t.cancel()
		t.wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
		defer cancel()
		for again := true; again; { // a concurrent call may have got a lease, or recorded usage
			t.sweep(true)
			t.settle(ctx)
			again = t.flush() && t.busy() && ctx.Err() == nil
		}
	})
}

// closeGrace bounds how long Close settles leases and flushes usage after the background
// goroutines have ended.
const closeGrace = time.Second

// background runs do in a goroutine that Close waits for. It returns false if the limiter is
// closing.
func (t *Limiter) background(do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return false
	}
	t.wg.Go(do)
	return true
}

// finish runs do in a goroutine, even if the limiter is closing. do must end soon.
func (t *Limiter) finish(do func()) {
	if !t.background(do) {
		go do()
	}
}

// maintain is the maintenance loop. It flushes unsynced usage every FlushEvery, ends unused
// leases, and settles those that have ended. It sleeps while there is nothing to do.
func (t *Limiter) maintain() {
	swept := t.now()
	for {
		if !t.busy() {
			select {
			case <-t.ctx.Done():
			case <-t.wake:
			}
		}
		if !t.sleep(t.config.FlushEvery) {
			return
		}
		if now := t.now(); now.Sub(swept) >= t.sweepEvery() {
			swept = now
			t.sweep(false)
		}
		t.settle(t.ctx)
		t.flush()
	}
}

// sleep waits for d. It returns false if the limiter is closed meanwhile.
func (t *Limiter) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// busy reports whether the maintenance loop has something to do.
func (t *Limiter) busy() bool {
	return t.leases.any() || slices.ContainsFunc(t.breakers, (*breaker).flushable)
}

// wakeUp wakes the maintenance loop.
func (t *Limiter) wakeUp() { offer(t.wake) }

// offer sends without blocking. It reports whether there was room.
func offer(to chan struct{}) bool {
	select {
	case to <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t *Limiter) now() weir.Instant { return t.config.Now() }

// nodes returns the number of nodes.
func (t *Limiter) nodes() int {
	switch {
	case t.config.Nodes > 0:
		return t.config.Nodes
	case t.config.Bus != nil:
		return max(1, t.config.Bus.Nodes())
	}
	return 1
}

// A call is one charge that is being decided.
type call struct {
	plan  *plan
	key   string
	cost  int64
	hash  uint64
	entry *entry // nil if the key has none
	now   weir.Instant

	// busy says that the key is used so often that it may be leased soon.
	busy bool

	// why is the reason that the store did not decide. It is weir.ErrUnknown if the store
	// may have charged the call, and weir.ErrState if it cannot be charged later.
	why error

	share *share // this node's share, if that decides
	place int    // index in the caller's batch

	// gen is the generation of the key before the store was called.
	gen generation

	// within is the context of all calls to the store for a charge that may need
	// several; nil if it needs one.
	within context.Context
}

// begin looks up the plan and the entry of a charge.
func (t *Limiter) begin(c weir.Charge) call {
	pl := t.planOf(c.Policy)
	h := t.table.hash(pl.history, c.Key)
	return call{
		plan: pl, key: c.Key, cost: c.Cost, hash: h, entry: t.table.find(pl.history, c.Key, h),
		now: t.now(), gen: t.table.generation(pl.history, h),
	}
}

func (t *Limiter) beginAll(charges []weir.Charge) []call {
	calls := make([]call, len(charges))
	for i, c := range charges {
		calls[i] = t.begin(c)
	}
	return calls
}

// find looks up the entry again if there was none: it may have been added meanwhile.
func (c *call) find(t *Limiter) bool {
	if c.entry == nil {
		c.entry = t.table.find(c.plan.history, c.key, c.hash)
	}
	return c.entry != nil
}

// needEntry adds an entry for the key unless there is one. It returns false if the table is
// full.
func (c *call) needEntry(t *Limiter) bool {
	if c.entry == nil {
		c.entry = t.table.add(c.plan.history, c.key, c.hash)
	}
	return c.entry != nil
}

// Take charges cost units to key under p if they fit all of p's limits, and nothing
// otherwise. It returns an error if an argument is invalid or ctx ends, otherwise a decision:
// the store's or, if that is unavailable, that of the limits' OnError.
func (t *Limiter) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if err := storeapi.CheckCharge(p, key, cost); err != nil {
		return weir.Decision{}, err
	}
	c := t.begin(weir.Charge{Policy: p, Key: key, Cost: cost})
	if d, ok := t.atOnce(&c); ok {
		return d, nil
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	return t.callStore(ctx, &c)
}

// atOnce decides a charge by the deny cache, a lease or an allowance, if it can.
func (t *Limiter) atOnce(c *call) (weir.Decision, bool) {
	if d, ok := c.denied(c.now); ok {
		t.counts.denyCache.Add(1)
		return d, true
	}
	switch {
	case c.entry == nil:
	case t.config.Mode == Leased:
		return t.spendLease(c)
	case c.plan.async:
		return t.spendAllowance(c)
	}
	return weir.Decision{}, false
}

// callStore decides a charge that atOnce could not.
func (t *Limiter) callStore(ctx context.Context, c *call) (weir.Decision, error) {
	switch {
	case t.breakerOf(c.plan.policy, c.key).open.Load():
		return t.unavailable(c, errOpen)
	case t.config.Mode == Leased && c.plan.leasable && c.cost > 0:
		return t.takeLeased(ctx, c)
	case c.plan.async && !t.closed.Load():
		return t.takeAsync(ctx, c)
	}
	return t.take(ctx, c)
}

// take has the store decide one charge or, if it is unavailable, OnError.
func (t *Limiter) take(ctx context.Context, c *call) (weir.Decision, error) {
	d, err := t.storeTake(ctx, c)
	return t.decided(c, d, err)
}

// decided returns the store's decision or, if the store failed, that of OnError. Errors that the
// caller caused are returned.
func (t *Limiter) decided(c *call, d weir.Decision, err error) (weir.Decision, error) {
	switch {
	case err == nil:
		t.counts.store.Add(1)
		return d, nil
	case errors.Is(err, weir.ErrState):
		t.reportUnreadable(c, err)
		return t.unavailable(c, err)
	case isUnavailable(err):
		return t.unavailable(c, err)
	}
	return weir.Decision{}, err
}

// unavailable decides a charge by OnError, because the store did not: why says the reason.
func (t *Limiter) unavailable(c *call, why error) (weir.Decision, error) {
	c.why = why
	if c.plan.force.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	return t.fallback(weir.TakeEach, c), nil
}

// reportUnreadable counts that the store cannot read the state of a key, and calls
// OnUnreadable once for the key.
func (t *Limiter) reportUnreadable(c *call, err error) {
	t.counts.unreadable.Add(1)
	if !c.needEntry(t) {
		return
	}
	c.entry.mu.Lock()
	known := c.entry.unreadable
	c.entry.unreadable = true
	c.entry.mu.Unlock()
	if !known && t.config.OnUnreadable != nil {
		t.config.OnUnreadable(c.plan.policy.Name(), keyHash(c.key), err)
	}
}

// keyHash returns a hash that identifies a key in logs, which do not contain keys.
func keyHash(key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // it never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// learn caches the store's reply to a charge that was sent at c.now, if it is worth an entry.
// If the charge was admitted, it sets c.gen to the generation after it.
func (t *Limiter) learn(c *call, d weir.Decision) {
	if d.Allowed && c.cost > 0 {
		t.admitted(c)
	}
	if d.Allowed && !t.remembers(c, d) || !c.needEntry(t) {
		return
	}
	state := keyStateOf(c.plan, d, t.now())
	c.entry.mu.Lock()
	c.entry.state = state
	c.entry.unreadable = false
	c.entry.mu.Unlock()
	if !d.Allowed {
		t.refused(c, d)
	}
}

// admitted records that the store admitted a charge, which invalidates earlier denials.
func (t *Limiter) admitted(c *call) {
	own := c.gen.changes + 1
	if t.table.changed(c.hash) == own {
		c.gen.changes = own // nothing else has changed
	}
	if c.find(t) && c.entry.denial.Load() != nil {
		c.entry.denial.Store(nil)
	}
}

// remembers reports whether the state after an admitted charge is worth an entry: for a lease,
// and to seed the share if the store becomes unavailable. A share regards a key without an
// entry as unused, so keys that have used less than a quarter need none.
func (t *Limiter) remembers(c *call, d weir.Decision) bool {
	return c.entry != nil || c.busy || d.Remaining < d.Limit-d.Limit/4
}
