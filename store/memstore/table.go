package memstore

import (
	"context"
	"fmt"
	"slices"
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

	mu             sync.Mutex // guards everything below
	last           weir.Instant
	rows           map[rowKey]*row
	overflow       map[string]*row          // by policy name
	replaced       map[string][]replacement // by policy name
	holds          map[[16]byte]holdRef
	holdsFullUntil weir.Instant // see holdsFullLocked
	stats          Stats
}

var _ weir.Limiter = (*Table)(nil)

type rowKey struct{ policy, key string }

// A row is the state of one key, and the numbers it was written under.
type row struct {
	policy *weir.Policy
	ledger *algo.Ledger
}

func (r *row) clone() *row { return &row{policy: r.policy, ledger: r.ledger.Clone()} }

// A replacement notes a Set: whoever brings old means new.
type replacement struct{ old, new *weir.Policy }

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
		replaced: map[string][]replacement{},
		holds:    map[[16]byte]holdRef{},
	}, nil
}

// Take charges cost units to key, or refuses and charges none.
func (t *Table) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	c := weir.Charge{Policy: p, Key: key, Cost: cost}
	if err := c.Check(); err != nil {
		return weir.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeLocked(t.nowLocked(), &c)
}

// nowLocked reads the clock. The table's time never goes back.
func (t *Table) nowLocked() weir.Instant {
	t.last = max(t.last, t.now())
	return t.last
}

func (t *Table) takeLocked(now weir.Instant, c *weir.Charge) (weir.Decision, error) {
	p := t.currentLocked(c.Policy)
	if p.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	r := t.rowLocked(now, p, c.Key, nil)
	if err := r.convert(now, p); err != nil {
		return weir.Decision{}, err
	}
	return weir.NewDecision(r.ledger.Take(int64(now), c.Cost), now), nil
}

// rowLocked returns the row that key is charged to, making one if need be. That
// drops none of keep's rows.
func (t *Table) rowLocked(now weir.Instant, p *weir.Policy, key string, keep map[*row]*row) *row {
	if r := t.rows[rowKey{p.Name(), key}]; r != nil {
		return r
	}
	return t.addLocked(now, p, key, keep)
}

// currentLocked returns the policy that was set in place of p, or p.
func (t *Table) currentLocked(p *weir.Policy) *weir.Policy {
	for _, r := range t.replaced[p.Name()] {
		if r.old.Same(p) {
			return r.new
		}
	}
	return p
}

// addLocked gives key a row of its own or, if there is no room, the overflow
// row of its policy.
func (t *Table) addLocked(now weir.Instant, p *weir.Policy, key string, keep map[*row]*row) *row {
	if len(t.rows) >= t.maxKeys && !t.evictLocked(now, keep) {
		t.stats.OverflowHits++
		r := t.overflow[p.Name()]
		if r == nil {
			r = t.newRowLocked(now, p)
			t.overflow[p.Name()] = r
		}
		return r
	}
	r := t.newRowLocked(now, p)
	t.rows[rowKey{p.Name(), strings.Clone(key)}] = r
	return r
}

// newRowLocked returns the row of a key that has none. While the policy's
// overflow row is in use, the key may have been charged there: then it starts
// from a copy of that, or a key that finds a place would be forgiven.
func (t *Table) newRowLocked(now weir.Instant, p *weir.Policy) *row {
	if o := t.overflow[p.Name()]; o != nil && !o.ledger.Unused(int64(now)) {
		return o.clone()
	}
	return &row{policy: p, ledger: algo.NewLedger(p.Rules(), int64(t.epoch))}
}

// evictTries is how many rows are looked at to make room for a new key.
const evictTries = 16

// evictLocked drops a row that has nothing in use, if it meets one soon. Go
// starts each walk over a map somewhere else, so all rows are met in time.
func (t *Table) evictLocked(now weir.Instant, keep map[*row]*row) bool {
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
		if expiry, err := p.Expiry(now, weir.NoExpiry); err != nil || expiry != algo.Never { // p's holds must expire
			r.ledger.EndHoldsBy(int64(now.Add(weir.MaxTTL)))
		}
	}
	r.policy = p
	return nil
}

// Set puts new in force wherever old was, also for callers who bring another
// policy with the same name and limits as old. If a key's units in use cannot be
// represented under new, Set returns an error and old stays.
func (t *Table) Set(_ context.Context, old, new *weir.Policy) error {
	if old.Name() != new.Name() {
		return fmt.Errorf("memstore: set: policies %q and %q have different names", old.Name(), new.Name())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.nowLocked()
	old = t.currentLocked(old)
	if old.Same(new) {
		return nil
	}
	for _, r := range t.writtenUnderLocked(old) {
		if err := r.clone().convert(now, new); err != nil {
			return err
		}
	}
	for _, r := range t.writtenUnderLocked(old) {
		_ = r.convert(now, new) // the copy has shown that it can
	}
	t.replaceLocked(old, new)
	return nil
}

// replaceLocked lets whoever means old mean new. There is one replacement for
// each set of numbers that was ever replaced, straight to the one in force.
func (t *Table) replaceLocked(old, new *weir.Policy) {
	list := slices.DeleteFunc(t.replaced[old.Name()], func(r replacement) bool { return r.old.Same(new) })
	for i := range list {
		if list[i].new == old {
			list[i].new = new
		}
	}
	if len(list) >= maxReplaced {
		list = list[1:]
	}
	t.replaced[old.Name()] = append(list, replacement{old, new})
}

// maxReplaced bounds how many sets of numbers a policy's replacements go back;
// who brings an older one is decided by that.
const maxReplaced = 100

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
