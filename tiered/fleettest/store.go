package fleettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// An Op is one charge of a call that the store has executed, or that was lost before it
// arrived. The Used of a batch is recorded as a DebitEach of its own, before the charge.
type Op struct {
	At       time.Duration // when it was executed, or sent if it was lost
	Node     int
	Op       weir.Op
	Key      string
	Units    int64
	Allowed  bool
	Lost     bool // it was never executed, and its outcome is unknown to the node
	Twice    bool // it is the duplicate of another
	Answered bool // the node received the reply in time
}

// model is the store that all nodes share.
type model struct {
	f *fleet

	mu    sync.Mutex // guards the fields below
	table *memstore.Table
	ahead time.Duration
	saved *bytes.Buffer
	ops   []*Op
}

func newModel(f *fleet) *model {
	m := &model{f: f}
	m.table = must(memstore.New(m.config()))
	return m
}

func (m *model) config() memstore.Config {
	return memstore.Config{MaxKeys: 1024, KeepKeys: true, Snapshots: true, Now: m.clock}
}

// clock requires mu.
func (m *model) clock() weir.Instant { return m.f.scenario.instant(m.f.now() + m.ahead) }

// save saves the state for a later failover.
func (m *model) save() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saved = &bytes.Buffer{}
	check(m.table.WriteSnapshot(m.saved))
}

// failOver restores the saved state.
func (m *model) failOver(ahead time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += ahead
	m.table = must(memstore.ReadSnapshot(m.saved, m.config()))
}

// execute executes a call, and records its charges.
func (m *model) execute(node int, c *inFlight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.at = m.f.now()
	if c.set != nil {
		c.err = m.table.Set(context.Background(), c.set[0], c.set[1])
		return
	}
	c.err = m.table.Do(context.Background(), &c.batch)
	m.noteLocked(node, c, func(op *Op, i int) {
		op.At, op.Allowed = c.at, c.err == nil && (op.Op == weir.DebitEach || c.batch.Decisions[i].Allowed)
	})
}

// again executes the duplicate of a call, whose reply is discarded.
func (m *model) again(node int, b weir.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.table.Do(context.Background(), &b)
	m.noteLocked(node, &inFlight{batch: b}, func(op *Op, i int) {
		op.Twice, op.Allowed = true, err == nil && (op.Op == weir.DebitEach || b.Decisions[i].Allowed)
	})
}

// lost records a call that never arrived.
func (m *model) lost(node int, c *inFlight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteLocked(node, c, func(op *Op, _ int) { op.Lost = true })
}

// noteLocked records each charge of a call, completed by add. It requires mu.
func (m *model) noteLocked(node int, c *inFlight, add func(op *Op, i int)) {
	note := func(i int, kind weir.Op, units int64) {
		op := &Op{At: m.f.now(), Node: node, Op: kind, Key: c.batch.Charges[i].Key, Units: units}
		add(op, i)
		c.ops = append(c.ops, op)
		m.ops = append(m.ops, op)
	}
	for i, units := range c.batch.Used {
		if units > 0 {
			note(i, weir.DebitEach, units)
		}
	}
	for i, charge := range c.batch.Charges {
		note(i, c.batch.Op, charge.Cost)
	}
}

// answered records that the reply has arrived, if the caller still waits.
func (m *model) answered(c *inFlight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range c.ops {
		op.Answered = !c.left.Load()
	}
}

// inFlight is a call in flight.
type inFlight struct {
	batch weir.Batch
	set   []*weir.Policy // old and new, if it is a Set
	at    time.Duration  // when it was executed
	err   error
	ops   []*Op
	left  atomic.Bool // the caller no longer waits
}

// request returns the batch as it was sent.
func (c *inFlight) request() weir.Batch {
	return weir.Batch{
		Op: c.batch.Op, TTL: c.batch.TTL,
		Charges: slices.Clone(c.batch.Charges), Used: slices.Clone(c.batch.Used), Receipts: slices.Clone(c.batch.Receipts),
	}
}

// charges reports whether the call charges units, and reserves nothing.
func (c *inFlight) charges() bool {
	return c.set == nil && (c.batch.Op == weir.TakeEach || c.batch.Op == weir.TakeAll || c.batch.Op == weir.DebitEach)
}

// report records in the context when the store decided.
func (c *inFlight) report(ctx context.Context) {
	if h, ok := ctx.Value(storeDecisionsKey{}).(*storeDecisions); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, charge := range c.batch.Charges {
			h.at[charge] = c.at
		}
	}
}

// A link is one node's connection to the store.
type link struct {
	f    *fleet
	node int
}

// A timelyLink is a link with a timeout of its own.
type timelyLink struct {
	*link
	timeout time.Duration
}

// Timeout implements tiered.Timed.
func (l timelyLink) Timeout() time.Duration { return l.timeout }

var _ weir.Limiter = (*link)(nil)

// storeDecisions, in a caller's context, records which charges the store decided, and when. The
// charges of a caller all differ. A node may continue the call when the caller has left.
type storeDecisions struct {
	mu sync.Mutex // guards the field below
	at map[weir.Charge]time.Duration
}

type storeDecisionsKey struct{}

// Take implements weir.Limiter.
func (l *link) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	c := &inFlight{batch: weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}}}
	if err := l.call(ctx, c); err != nil {
		return weir.Decision{}, err
	}
	c.report(ctx)
	return c.batch.Decisions[0], nil
}

// Do implements weir.Limiter.
func (l *link) Do(ctx context.Context, b *weir.Batch) error {
	c := &inFlight{batch: *b}
	c.batch = c.request()
	if err := l.call(ctx, c); err != nil {
		return err
	}
	if b.Op == weir.TakeEach || b.Op == weir.TakeAll {
		c.report(ctx)
	}
	*b = c.batch
	return nil
}

// Set implements weir.Limiter.
func (l *link) Set(ctx context.Context, old, new *weir.Policy) error {
	return l.call(ctx, &inFlight{set: []*weir.Policy{old, new}})
}

var errRefused = errors.New("fleettest: connection refused")

func unknown(err error) error {
	return fmt.Errorf("fleettest: no answer: %w: %w", weir.ErrUnknown, err)
}

// call sends a call to the store and waits for the reply, subject to the faults of the scenario.
func (l *link) call(ctx context.Context, c *inFlight) error {
	s := &l.f.scenario
	d := l.dice(c)
	there, back := d.between(s.Latency), d.between(s.Latency)
	if s.Timely {
		within, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		ctx = within
	}
	if l.f.crashed(l.node) {
		return errRefused
	}
	if o := l.f.outage(l.node, l.f.now()); o != nil && o.Kind == Refuse {
		select {
		case <-time.After(min(there, s.Timeout/4)):
		case <-ctx.Done():
		}
		return errRefused
	}
	answer := make(chan error, 1)
	twice := d.chance(s.Duplicate) && c.charges()
	loseRequest, loseReply := d.chance(s.LoseRequest), d.chance(s.LoseReply)
	if loseRequest {
		l.f.store.lost(l.node, c)
	} else {
		time.AfterFunc(there, func() { l.arrive(c, answer, loseReply, back) })
		if twice && l.f.outage(l.node, l.f.now()+there) == nil {
			duplicate := c.request()
			time.AfterFunc(there+d.between(s.Latency), func() { l.f.store.again(l.node, duplicate) })
		}
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		c.left.Store(true)
		return unknown(ctx.Err())
	}
}

// dice returns the random source of a call.
func (l *link) dice(c *inFlight) dice {
	about := []uint64{uint64(l.node), uint64(l.f.now()), uint64(c.batch.Op)}
	for _, charge := range c.batch.Charges {
		about = append(about, hashOf(charge.Key), uint64(charge.Cost))
	}
	for _, units := range c.batch.Used {
		about = append(about, uint64(units))
	}
	return throw(l.f.scenario.Seed, about...)
}

// arrive handles a request that has arrived at the store.
func (l *link) arrive(c *inFlight, answer chan<- error, loseReply bool, back time.Duration) {
	if o := l.f.outage(l.node, l.f.now()); o != nil {
		switch o.Kind {
		case Refuse:
			l.f.store.lost(l.node, c)
			time.AfterFunc(back, func() { answer <- unknown(errors.New("connection reset")) })
			return
		case Hang:
			l.f.store.lost(l.node, c)
			return
		}
		time.Sleep(o.To - l.f.now() + back/16) // then it is executed, and the caller has left
	}
	l.f.store.execute(l.node, c)
	if loseReply {
		return
	}
	time.AfterFunc(back, func() {
		l.f.store.answered(c)
		answer <- c.err
	})
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// check panics on errors that only a bug in this package can cause.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
