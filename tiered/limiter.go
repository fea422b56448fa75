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

// Limiter is a weir.Limiter in front of one that all nodes share. Make one with New,
// and Close it: leases are given back then. All methods may be called by any number of
// goroutines.
type Limiter struct {
	config     Config // set by New, like everything up to renewals
	store      *store
	breakers   []*breaker
	table      *table
	sketch     *admissionSketch // for Leased; otherwise nil
	unlisten   func()
	ctx        context.Context // of what runs in the background
	cancel     context.CancelFunc
	failOpenID [16]byte      // the receipt of what failed open
	renewals   chan struct{} // holds one for each renewal under way

	histories sync.Map // name → *policyHistory
	named     atomic.Int64
	plans     [plans]atomic.Pointer[plan]

	leases   leases
	wake     chan struct{} // holds one if the maintenance loop has something to do
	denials  chan Message  // denials that the other nodes are to be told
	receipts receipts
	counts   counts

	wg     sync.WaitGroup // of what runs in the background
	mu     sync.Mutex     // held when closed is set, and when something new is to run in the background
	closed atomic.Bool    // nothing new runs in the background, and no allowances are used
	once   sync.Once      // of Close
}

var _ weir.Limiter = (*Limiter)(nil)

// New returns a Limiter. It asks nobody anything yet.
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
		t.denials = make(chan Message, maxQueuedDenials)
		t.unlisten = c.Bus.Listen(t.receive)
		t.background(t.publish)
	}
	return t, nil
}

// Close ends what runs in the background, gives leases back, and flushes unsynced usage.
// It takes two seconds at most. It closes neither Store nor Local nor Bus. Calls after Close
// are still answered, without leases and allowances.
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
		for again := true; again; { // a caller may have got a lease, or listed its key, meanwhile
			t.sweep(true)
			t.settle(ctx)
			again = t.flush() && t.busy() && ctx.Err() == nil
		}
	})
}

// closeGrace is how long Close goes on to give leases back and to flush, after what was under
// way.
const closeGrace = time.Second

// background runs do until it returns, unless the limiter is closing.
func (t *Limiter) background(do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return false
	}
	t.wg.Go(do)
	return true
}

// finish runs do, which ends soon, also if the limiter is closing.
func (t *Limiter) finish(do func()) {
	if !t.background(do) {
		go do()
	}
}

// maintain flushes unsynced usage every FlushEvery, settles leases that have ended, and
// gives back those that are not used. While there is nothing to do it sleeps.
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

// sleep waits for some time. It returns false if the limiter is closed.
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

// busy says whether there is something to maintain.
func (t *Limiter) busy() bool {
	return t.leases.any() || slices.ContainsFunc(t.breakers, (*breaker).flushable)
}

// wakeUp has the maintenance loop run.
func (t *Limiter) wakeUp() { offer(t.wake) }

// offer sends if there is room, and says whether there was.
func offer(to chan struct{}) bool {
	select {
	case to <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t *Limiter) now() weir.Instant { return t.config.Now() }

// nodes returns how many nodes there are.
func (t *Limiter) nodes() int {
	switch {
	case t.config.Nodes > 0:
		return t.config.Nodes
	case t.config.Bus != nil:
		return max(1, t.config.Bus.Nodes())
	}
	return 1
}

// A call is one charge on its way to a decision.
type call struct {
	plan  *plan
	key   string
	cost  int64
	hash  uint64
	entry *entry // nil if nothing is known of the key
	now   weir.Instant

	// busy says that the key is asked for so often that it may be leased soon.
	busy bool

	// why is why the store has not decided: weir.ErrUnknown if it may have charged for it
	// all the same, weir.ErrState if it cannot be charged for it later.
	why error

	share *share // of the plan, if that decides
	place int    // in the caller's batch

	// gen is the generation of the key before the store was called.
	gen generation

	// within is the context of calls to the store, for a charge that may need several;
	// nil if it needs one.
	within context.Context
}

// begin looks up what is known of a charge.
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

// find looks for the entry again, unless there was one: it may have been added meanwhile.
func (c *call) find(t *Limiter) bool {
	if c.entry == nil {
		c.entry = t.table.find(c.plan.history, c.key, c.hash)
	}
	return c.entry != nil
}

// needEntry makes an entry for the key unless there is one. It returns false if there
// is no room.
func (c *call) needEntry(t *Limiter) bool {
	if c.entry == nil {
		c.entry = t.table.add(c.plan.history, c.key, c.hash)
	}
	return c.entry != nil
}

// Take charges cost units to key under p if they fit all of p's limits, and nothing
// otherwise. It returns an error for bad input and if ctx ends, otherwise a decision:
// the store's or, if that is away, what the limits' OnError says.
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

// atOnce answers from what this node knows or holds.
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

// ask is for a charge that is not answered at once.
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

// take asks the store for one charge or, if it is unavailable, decides without.
func (t *Limiter) take(ctx context.Context, c *call) (weir.Decision, error) {
	d, err := t.storeTake(ctx, c)
	return t.decided(c, d, err)
}

// decided returns the store's decision or, if the error is not the caller's own doing, what
// OnError says.
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

// away is for a charge that the store cannot be asked for, because of why.
func (t *Limiter) unavailable(c *call, why error) (weir.Decision, error) {
	c.why = why
	if c.plan.force.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	return t.fallback(weir.TakeEach, c), nil
}

// reportUnreadable notes that the store cannot read the state of a key, and reports it once.
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

// keyHash names a key in logs, which show no keys.
func keyHash(key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // it never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// learn remembers what the store replied to a charge that was sent at c.now, if it may be
// of use. If the charge was admitted, c.gen is the generation after it.
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

// admitted notes that the store admitted a charge, after which no earlier refusal is right.
func (t *Limiter) admitted(c *call) {
	own := c.gen.changes + 1
	if t.table.changed(c.hash) == own {
		c.gen.changes = own // nothing else has changed
	}
	if c.find(t) && c.entry.denial.Load() != nil {
		c.entry.denial.Store(nil)
	}
}

// remembers says whether it is worth remembering that a charge was admitted: for a lease,
// and in case the store becomes unavailable. A key that has used less than a quarter is
// taken for unused then.
func (t *Limiter) remembers(c *call, d weir.Decision) bool {
	return c.entry != nil || c.busy || d.Remaining < d.Limit-d.Limit/4
}
