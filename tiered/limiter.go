package tiered

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Limiter is a weir.Limiter in front of one that all nodes share. Make one with New,
// and Close it: leases are given back then. All methods may be called by any number of
// goroutines.
type Limiter struct {
	config   Config // set by New, like everything up to renewals
	store    *store
	breakers []*breaker
	table    *table
	crowd    *crowd // for Leased; otherwise nil
	unlisten func()
	ctx      context.Context // of what runs in the background
	cancel   context.CancelFunc
	nobody   [16]byte      // the receipt of what failed open
	renewals chan struct{} // holds one for each renewal under way

	families sync.Map // name → *family
	named    atomic.Int64
	plans    [plans]atomic.Pointer[plan]

	leases   leases
	debts    []debts // by part
	words    words
	receipts receipts
	counts   counts

	wg      sync.WaitGroup // of what runs in the background
	mu      sync.Mutex     // guards the field below
	closing bool           // nothing new runs in the background
	closed  atomic.Bool    // no copies are used any more
	once    sync.Once      // of Close
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
		t.crowd = new(crowd)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.debts = make([]debts, t.store.parts)
	for i := range t.store.parts {
		t.debts[i].telling = make(chan struct{}, 1)
		t.breakers = append(t.breakers, newBreaker(i))
	}
	_, _ = rand.Read(t.nobody[:]) // it never fails
	t.words.wake = make(chan struct{}, 1)
	t.background(t.keepHouse)
	if c.Bus != nil {
		t.unlisten = c.Bus.Listen(t.heard)
		t.background(t.publish)
	}
	return t, nil
}

// Close ends what runs in the background, gives leases back, and tells the store what it does not
// know yet. It takes two seconds at most. It closes neither Store nor Local nor Bus. Calls after
// Close are still answered, without leases and copies.
func (t *Limiter) Close() {
	t.once.Do(func() {
		if t.unlisten != nil {
			t.unlisten()
		}
		t.mu.Lock()
		t.closing = true
		t.mu.Unlock()
		t.closed.Store(true)
		t.cancel()
		t.wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
		defer cancel()
		t.sweep(true)
		t.settle(ctx)
		for t.flush(ctx) && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // until callers have ended their turns
		}
	})
}

// closeGrace is how long Close may take to tell the store, after what was under way.
const closeGrace = time.Second

// background runs do until it returns, unless the limiter is closing.
func (t *Limiter) background(do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return false
	}
	t.wg.Go(do)
	return true
}

// keepHouse tells the store what it must know, every FlushEvery, and gives back leases
// that are not used.
func (t *Limiter) keepHouse() {
	tick := time.NewTicker(t.config.FlushEvery)
	defer tick.Stop()
	swept := t.now()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		if now := t.now(); now.Sub(swept) >= t.sweepEvery() {
			swept = now
			t.sweep(false)
		}
		t.settle(t.ctx)
		t.flush(t.ctx)
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

	// stranger says that there is no room for an entry, and the store asked without a turn.
	stranger bool

	// unknown says that the store may have charged for it although it did not answer.
	unknown bool

	// within is the context of calls to the store, for a charge that may need several;
	// nil if it needs one.
	within context.Context
}

// begin looks up what is known of a charge.
func (t *Limiter) begin(p *weir.Policy, key string, cost int64) call {
	pl := t.planOf(p)
	h := t.table.hash(pl.family, key)
	return call{plan: pl, key: key, cost: cost, hash: h, entry: t.table.find(pl.family, key, h), now: t.now()}
}

// needEntry makes an entry for the key unless there is one. It returns false if there
// is no room.
func (c *call) needEntry(t *Limiter) bool {
	if c.entry == nil {
		c.entry = t.table.add(c.plan.family, c.key, c.hash)
	}
	return c.entry != nil
}

// Take charges cost units to key under p if they fit all of p's limits, and nothing
// otherwise. It returns an error for bad input and if ctx ends, otherwise a decision:
// the store's or, if that is away, what the limits' OnError says.
func (t *Limiter) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if err := (&weir.Charge{Policy: p, Key: key, Cost: cost}).Check(); err != nil {
		return weir.Decision{}, err
	}
	c := t.begin(p, key, cost)
	if d, ok := t.atOnce(&c); ok {
		return d, nil
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	return t.ask(ctx, &c)
}

// atOnce answers from what this node knows or holds.
func (t *Limiter) atOnce(c *call) (weir.Decision, bool) {
	if c.entry == nil {
		return weir.Decision{}, false
	}
	if d, ok := c.entry.denied(c.plan, c.cost, c.now); ok {
		t.counts.denyCache.Add(1)
		return d, true
	}
	switch t.config.Mode {
	case Leased:
		return t.spendLease(c.plan, c.entry, c.cost, c.now)
	case Async:
		return t.takeCopy(c)
	}
	return weir.Decision{}, false
}

// ask is for a charge that is not answered at once.
func (t *Limiter) ask(ctx context.Context, c *call) (weir.Decision, error) {
	switch {
	case t.breakerOf(c.plan.policy, c.key).open.Load():
		return t.away(c, errOpen)
	case t.config.Mode == Leased && c.plan.leasable && c.cost > 0:
		return t.takeLeased(ctx, c)
	case c.plan.copies != nil:
		return t.takeInTurn(ctx, c)
	}
	return t.take(ctx, c)
}

// take asks the store for one charge or, if it is away, decides without.
func (t *Limiter) take(ctx context.Context, c *call) (weir.Decision, error) {
	m := t.table.moment(c.plan.family, c.hash)
	d, err := t.storeTake(ctx, c)
	switch {
	case isAway(err):
		return t.away(c, err)
	case err != nil:
		return weir.Decision{}, err
	}
	t.counts.store.Add(1)
	t.learn(c, d, c.now, m) // which was before it was sent
	return d, nil
}

// away is for a charge that the store cannot be asked for, because of why.
func (t *Limiter) away(c *call, why error) (weir.Decision, error) {
	c.unknown = errors.Is(why, weir.ErrUnknown)
	if c.plan.force.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	return t.fallback(c), nil
}

// learn remembers what the store said, if it may be of use.
func (t *Limiter) learn(c *call, d weir.Decision, sent weir.Instant, m moment) {
	inTurn := c.entry != nil // unless there was no room
	if d.Allowed && !t.remembers(c, d) || !c.needEntry(t) {
		return
	}
	s := standingOf(c.plan, d, t.now())
	c.entry.mu.Lock()
	c.entry.standing = s
	c.entry.mu.Unlock()
	if !d.Allowed {
		t.refused(c.plan, c.entry, c.cost, d, sent, m)
	}
	if c.plan.copies != nil && inTurn {
		t.sync(c.plan, c.entry, d, sent, m)
	}
}

// remembers says whether it is worth remembering that a charge was admitted: for a copy,
// for a lease, and if the store should go away. A key that has used less than a quarter
// is taken for unused then.
func (t *Limiter) remembers(c *call, d weir.Decision) bool {
	return c.plan.copies != nil || c.busy || d.Remaining < d.Limit-d.Limit/4
}
