package memstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// Config configures a Table.
type Config struct {
	// MaxKeys bounds the pairs of policy and key that have a row of their own.
	// The default is 10,000.
	MaxKeys int

	// MaxHolds bounds the open reservations. The default is 100,000.
	MaxHolds int

	// Now is the clock. The default is weir.Now.
	Now func() weir.Instant
}

// Table is a weir.Limiter in memory.
type Table struct {
	maxKeys  int // set by New, like the next four
	maxHolds int
	now      func() weir.Instant
	epoch    weir.Instant

	mu       sync.Mutex // guards everything below
	rows     map[rowKey]*row
	overflow map[string]*row // by policy name
	replaced map[*weir.Policy]*weir.Policy
	holds    map[[16]byte]holdRef
	stats    Stats
}

var _ weir.Limiter = (*Table)(nil)

type rowKey struct{ policy, key string }

// A row is the state of one key, and the numbers it was written under.
type row struct {
	policy *weir.Policy
	ledger *algo.Ledger
}

// Stats tells how full a table is.
type Stats struct {
	Keys         int    // rows in use, without overflow rows
	Holds        int    // open reservations, expired ones that were not met since included
	Evicted      uint64 // rows dropped to make room; all had nothing in use
	OverflowHits uint64 // charges that met an overflow row
}

// New returns an empty table.
func New(c Config) (*Table, error) {
	if c.MaxKeys < 0 || c.MaxHolds < 0 {
		return nil, fmt.Errorf("memstore: max keys %d and max holds %d must not be negative", c.MaxKeys, c.MaxHolds)
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = 10_000
	}
	if c.MaxHolds == 0 {
		c.MaxHolds = 100_000
	}
	if c.Now == nil {
		c.Now = weir.Now
	}
	return &Table{
		maxKeys:  c.MaxKeys,
		maxHolds: c.MaxHolds,
		now:      c.Now,
		epoch:    c.Now(),
		rows:     map[rowKey]*row{},
		overflow: map[string]*row{},
		replaced: map[*weir.Policy]*weir.Policy{},
		holds:    map[[16]byte]holdRef{},
	}, nil
}

// Take charges cost units to key, or refuses and charges none.
func (t *Table) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	c := weir.Charge{Policy: p, Key: key, Cost: cost}
	if err := c.Check(weir.TakeEach); err != nil {
		return weir.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeLocked(t.now(), &c)
}

func (t *Table) takeLocked(now weir.Instant, c *weir.Charge) (weir.Decision, error) {
	r, err := t.rowLocked(now, c, nil)
	if err != nil {
		return weir.Decision{}, err
	}
	return weir.NewDecision(r.ledger.Take(int64(now), c.Cost), now), nil
}

// rowLocked returns the row that c is charged to, making one if need be, with
// c's numbers in force. Making it drops none of keep's rows.
func (t *Table) rowLocked(now weir.Instant, c *weir.Charge, keep map[*row]*algo.Ledger) (*row, error) {
	p := t.currentLocked(c.Policy)
	r := t.rows[rowKey{p.Name(), c.Key}]
	if r == nil {
		r = t.addLocked(now, p, c.Key, keep)
	}
	return r, r.convert(now, p)
}

// currentLocked follows Set from p to the policy now in force.
func (t *Table) currentLocked(p *weir.Policy) *weir.Policy {
	for next := t.replaced[p]; next != nil; next = t.replaced[p] {
		p = next
	}
	return p
}

// addLocked gives key a row of its own or, if there is no room, the overflow
// row of its policy.
func (t *Table) addLocked(now weir.Instant, p *weir.Policy, key string, keep map[*row]*algo.Ledger) *row {
	if len(t.rows) >= t.maxKeys && !t.evictLocked(now, keep) {
		t.stats.OverflowHits++
		r := t.overflow[p.Name()]
		if r == nil {
			r = t.newRow(p)
			t.overflow[p.Name()] = r
		}
		return r
	}
	r := t.newRow(p)
	t.rows[rowKey{p.Name(), strings.Clone(key)}] = r
	return r
}

func (t *Table) newRow(p *weir.Policy) *row {
	return &row{policy: p, ledger: algo.NewLedger(p.Rules(), int64(t.epoch))}
}

// evictTries is how many rows are looked at to make room for a new key.
const evictTries = 16

// evictLocked drops a row that has nothing in use, if it meets one soon. Go
// starts each walk over a map somewhere else, so all rows are met in time.
func (t *Table) evictLocked(now weir.Instant, keep map[*row]*algo.Ledger) bool {
	tries := 0
	for k, r := range t.rows {
		if keep[r] == nil && r.ledger.Unused(int64(now)) {
			delete(t.rows, k)
			t.stats.Evicted++
			return true
		}
		if tries++; tries == evictTries {
			return false
		}
	}
	return false
}

// convert puts p's numbers in force on the row, keeping the units in use.
func (r *row) convert(now weir.Instant, p *weir.Policy) error {
	if r.policy == p {
		return nil
	}
	if !r.policy.Same(p) {
		if err := r.ledger.Set(int64(now), p.Rules(), p.Continues(r.policy)); err != nil {
			return fmt.Errorf("memstore: policy %q: %w", p.Name(), err)
		}
	}
	r.policy = p
	return nil
}

// Set puts new in force wherever old was. If a key's units in use cannot be
// represented under new, Set returns an error and old stays.
func (t *Table) Set(_ context.Context, old, new *weir.Policy) error {
	if old.Name() != new.Name() {
		return fmt.Errorf("memstore: set: policies %q and %q have different names", old.Name(), new.Name())
	}
	if old == new {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	old = t.currentLocked(old)
	for _, r := range t.writtenUnderLocked(old) {
		trial := row{policy: r.policy, ledger: r.ledger.Clone()}
		if err := trial.convert(now, new); err != nil {
			return err
		}
	}
	for _, r := range t.writtenUnderLocked(old) {
		_ = r.convert(now, new) // the trial has shown that it can
	}
	delete(t.replaced, new) // new may have been replaced before, and is back
	if old != new {
		t.replaced[old] = new
	}
	return nil
}

func (t *Table) writtenUnderLocked(p *weir.Policy) []*row {
	var rows []*row
	for k, r := range t.rows {
		if k.policy == p.Name() && r.policy.Same(p) {
			rows = append(rows, r)
		}
	}
	if r := t.overflow[p.Name()]; r != nil && r.policy.Same(p) {
		rows = append(rows, r)
	}
	return rows
}

// Stats counts; it changes nothing.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Keys, s.Holds = len(t.rows), len(t.holds)
	return s
}
