package storetest

import (
	"context"
	"encoding/binary"
	"maps"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
)

// model is the slow, obvious store: an exact algo.Ledger for every pair of
// policy and key, none of which is ever dropped. A batch works on the state as it
// is and, if it fails, puts back a copy that was made before.
type model struct {
	clock    func() weir.Instant // set by newModel, like the next two
	epoch    weir.Instant
	converts bool // refusals leave a key under the limits of the call

	mu    sync.Mutex // guards everything below
	now   weir.Instant
	state state
	sets  []replacement // in order
	ids   uint64
}

var _ weir.Limiter = (*model)(nil)

// state is what a batch changes.
type state struct {
	rows  map[rowKey]*row
	holds map[[16]byte]holdKey
}

type rowKey struct{ policy, key string }

// A row is a key's ledger, and the limits that it is written under. Rows in a
// state are not changed but replaced by changed copies.
type row struct {
	policy *weir.Policy
	ledger *algo.Ledger
}

// A holdKey says in which row a reservation is, and which of its holds.
type holdKey struct {
	row rowKey
	id  uint64
}

// A replacement is a Set: whoever meant old means new.
type replacement struct{ old, new *weir.Policy }

func newModel(s *Store, clock func() weir.Instant) *model {
	return &model{
		clock: clock, epoch: clock(), converts: !s.meets(RefusalsKeepNumbers),
		state: state{rows: map[rowKey]*row{}, holds: map[[16]byte]holdKey{}},
	}
}

// Take is TakeEach of one charge.
func (m *model) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	b := weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}}
	if err := m.Do(ctx, &b); err != nil {
		return weir.Decision{}, err
	}
	return b.Decisions[0], nil
}

// Do carries out a batch, charge by charge.
func (m *model) Do(ctx context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = max(m.now, m.clock())
	before := state{maps.Clone(m.state.rows), maps.Clone(m.state.holds)}
	if err := m.checkLocked(b); err != nil {
		return err
	}
	if err := m.debitLocked(b); err != nil {
		m.state = before
		return err
	}
	debited := state{maps.Clone(m.state.rows), maps.Clone(m.state.holds)}
	for i := range b.Charges {
		if err := m.stepLocked(b, i); err != nil {
			m.state = before
			return err
		}
	}
	if (b.Op == weir.TakeAll || b.Op == weir.ReserveAll) && !b.Allowed() {
		m.state = debited
		m.refuseAllLocked(b)
		for i := range b.Decisions {
			if d := &b.Decisions[i]; d.Allowed {
				d.Allowed, d.Reason = false, weir.NotCharged
			}
		}
		clear(b.Receipts)
	}
	return nil
}

// checkLocked finds what is wrong with a batch under the policies in force.
func (m *model) checkLocked(b *weir.Batch) error {
	for _, c := range b.Charges {
		p := m.currentLocked(c.Policy)
		switch b.Op {
		case weir.TakeEach, weir.TakeAll, weir.DebitEach:
			if p.ReserveOnly() {
				return weir.ErrReserveOnly
			}
		case weir.ReserveAll, weir.Renew:
			if _, err := p.Compiled().Expiry(int64(m.now), b.TTL); err != nil {
				return err
			}
		}
	}
	return nil
}

// debitLocked charges what a batch says was used before.
func (m *model) debitLocked(b *weir.Batch) error {
	debit := weir.Batch{Op: weir.DebitEach}
	for i, units := range b.Used {
		if units > 0 {
			debit.Charges = append(debit.Charges, charge(b.Charges[i].Policy, b.Charges[i].Key, units))
		}
	}
	debit.Decisions = make([]weir.Decision, len(debit.Charges))
	if err := m.checkLocked(&debit); err != nil {
		return err
	}
	for i := range debit.Charges {
		if err := m.stepLocked(&debit, i); err != nil {
			return err
		}
	}
	return nil
}

// stepLocked carries out charge i of a batch.
func (m *model) stepLocked(b *weir.Batch, i int) error {
	c, now := b.Charges[i], int64(m.now)
	p := m.currentLocked(c.Policy)
	key := rowKey{p.Name(), strings.Clone(c.Key)}
	switch b.Op {
	case weir.Settle:
		b.Settled[i] = m.settleLocked(key, b.Receipts[i], c.Cost)
		return nil
	case weir.Renew:
		expiry, _ := p.Compiled().Expiry(int64(m.now), b.TTL) // checkLocked has seen that it is right
		b.Decisions[i] = m.renewLocked(key, &b.Receipts[i], expiry)
		return nil
	case weir.ResetEach:
		if r := m.state.rows[key]; r != nil {
			m.changeLocked(key).ledger.Reset(now)
		}
		return nil
	}
	r, err := m.underLocked(p, key)
	if err != nil {
		return err
	}
	r.ledger.SetClass(c.Policy.ClassName())
	switch b.Op {
	case weir.PeekEach:
		b.Decisions[i] = storeapi.Decision(r.ledger.Peek(now, c.Cost), m.now)
	case weir.TakeEach, weir.TakeAll:
		v := r.ledger.Take(now, c.Cost)
		b.Decisions[i] = storeapi.Decision(v, m.now)
		m.keepLocked(key, r, c.Cost > 0 && (v.OK || b.Op == weir.TakeEach && m.refuseLocked(b, i, key, r)))
	case weir.DebitEach:
		b.Decisions[i] = storeapi.Decision(r.ledger.Debit(now, c.Cost), m.now)
		m.keepLocked(key, r, c.Cost > 0)
	case weir.ReserveAll:
		expiry, _ := p.Compiled().Expiry(int64(m.now), b.TTL)
		id, v := r.ledger.Reserve(now, c.Cost, expiry)
		b.Decisions[i] = storeapi.Decision(v, m.now)
		b.Receipts[i] = weir.Receipt{ID: m.idLocked(), Units: c.Cost, Expiry: weir.Instant(expiry)}
		m.state.holds[b.Receipts[i].ID] = holdKey{key, id}
		m.keepLocked(key, r, v.OK)
	}
	return nil
}

// refuseAllLocked is refuseLocked for the charges of a batch that was refused. Of several charges of a row,
// only the first is considered.
func (m *model) refuseAllLocked(b *weir.Batch) {
	seen := map[rowKey]bool{}
	for i, c := range b.Charges {
		p := m.currentLocked(c.Policy)
		key := rowKey{p.Name(), strings.Clone(c.Key)}
		if !seen[key] && !b.Decisions[i].Allowed && c.Cost > 0 {
			if r, err := m.underLocked(p, key); err == nil {
				m.keepLocked(key, r, m.refuseLocked(b, i, key, r))
			}
		}
		seen[key] = true
	}
}

// refuseLocked says whether a row changes because charge i of a batch was refused: it stays under the limits
// of the call, or units that its class has lent are recalled.
func (m *model) refuseLocked(b *weir.Batch, i int, key rowKey, r *row) bool {
	if old := m.state.rows[key]; old != nil && old.policy.Same(r.policy) {
		r.ledger.SetClass(b.Charges[i].Policy.ClassName())
		return r.ledger.Recall(int64(m.now), b.Charges[i].Cost, b.Op == weir.ReserveAll)
	}
	return m.refusalConvertsLocked(key, r)
}

// refusalConvertsLocked says whether a refused charge leaves a key under the limits of the call.
func (m *model) refusalConvertsLocked(key rowKey, next *row) bool {
	old := m.state.rows[key]
	return old != nil && next.policy.Compiled().RefusalConverts(old.policy.Compiled()) && !next.ledger.HasHolds(int64(m.now))
}

// keepLocked puts a row in force that an operation has changed.
func (m *model) keepLocked(key rowKey, r *row, changed bool) {
	if changed || m.converts {
		m.state.rows[key] = r
	}
}

// changeLocked returns a copy of a row that may be changed, and is in force.
func (m *model) changeLocked(key rowKey) *row {
	r := m.state.rows[key]
	c := &row{r.policy, r.ledger.Clone()}
	m.state.rows[key] = c
	return c
}

// underLocked returns a copy of a key's row with p's limits in force.
func (m *model) underLocked(p *weir.Policy, key rowKey) (*row, error) {
	r := m.state.rows[key]
	if r == nil {
		return &row{p, algo.NewLedger(p.Compiled().Rules, int64(m.epoch))}, nil
	}
	c := &row{p, r.ledger.Clone()}
	if r.policy.Same(p) {
		return c, nil
	}
	if err := c.ledger.Set(int64(m.now), p.Compiled().Rules, p.Compiled().Continues(r.policy.Compiled())); err != nil {
		return nil, err
	}
	if _, err := p.Compiled().Expiry(int64(m.now), weir.NoExpiry); err != nil { // what p holds must expire
		c.ledger.EndHoldsBy(int64(m.now.Add(compiled.MaxTTL)))
	}
	return c, nil
}

func (m *model) settleLocked(key rowKey, receipt weir.Receipt, used int64) weir.Settled {
	h, ok := m.state.holds[receipt.ID]
	if !ok || h.row != key {
		return weir.Settled{Late: true}
	}
	return weir.Settled(m.changeLocked(key).ledger.Settle(int64(m.now), h.id, used))
}

func (m *model) renewLocked(key rowKey, receipt *weir.Receipt, expiry int64) weir.Decision {
	h, ok := m.state.holds[receipt.ID]
	if !ok || h.row != key || !m.changeLocked(key).ledger.Renew(int64(m.now), h.id, expiry) {
		return weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
	}
	receipt.Expiry = weir.Instant(expiry)
	return weir.Decision{Allowed: true, Reason: weir.Admitted}
}

func (m *model) idLocked() (id [16]byte) {
	m.ids++
	binary.BigEndian.PutUint64(id[8:], m.ids)
	return id
}

// Set converts the keys that are under old's limits, all or none, as of now.
// Keys under an override are converted when they meet a call with other limits.
func (m *model) Set(_ context.Context, old, new *weir.Policy) error {
	if err := storeapi.CheckSet(old, new); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = max(m.now, m.clock())
	old = m.currentLocked(old)
	if old.Same(new) {
		return nil
	}
	rows := maps.Clone(m.state.rows)
	for key, r := range m.state.rows {
		if !r.policy.Same(old) {
			continue
		}
		var err error
		if rows[key], err = m.underLocked(new, key); err != nil {
			return err
		}
	}
	m.state.rows = rows
	m.sets = append(m.sets, replacement{old, new})
	return nil
}

// currentLocked returns the policy that p means by now, going through every Set
// there was.
func (m *model) currentLocked(p *weir.Policy) *weir.Policy {
	for _, s := range m.sets {
		if s.old.Same(p) {
			p = s.new
		}
	}
	return p
}
