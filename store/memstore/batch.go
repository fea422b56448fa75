package memstore

import (
	"context"
	"crypto/rand"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// Do carries out a batch under one lock and with one clock reading.
func (t *Table) Do(ctx context.Context, b *weir.Batch) error {
	if err := b.Check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	switch b.Op {
	case weir.TakeAll, weir.ReserveAll:
		return t.allLocked(now, b)
	case weir.Renew:
		return t.renewLocked(now, b)
	}
	for i := range b.Charges {
		if err := t.oneLocked(now, b, i); err != nil {
			return err
		}
	}
	return nil
}

// oneLocked carries out charge i of an operation that treats each on its own.
func (t *Table) oneLocked(now weir.Instant, b *weir.Batch, i int) (err error) {
	c := &b.Charges[i]
	switch b.Op {
	case weir.TakeEach:
		b.Decisions[i], err = t.takeLocked(now, c)
	case weir.PeekEach:
		b.Decisions[i], err = t.peekLocked(now, c)
	case weir.Settle:
		b.Settled[i] = t.settleLocked(now, c, b.Receipts[i])
	case weir.ResetEach:
		if r := t.rows[rowKey{c.Policy.Name(), c.Key}]; r != nil {
			r.ledger.Reset(int64(now))
		}
	}
	return err
}

// peekLocked looks at a copy, so that it makes no row and converts none.
func (t *Table) peekLocked(now weir.Instant, c *weir.Charge) (weir.Decision, error) {
	p := t.currentLocked(c.Policy)
	r := t.rows[rowKey{p.Name(), c.Key}]
	if r == nil && len(t.rows) >= t.maxKeys {
		r = t.overflow[p.Name()]
	}
	if r == nil {
		r = t.newRow(p)
	}
	look := row{policy: r.policy, ledger: r.ledger}
	if r.policy != p {
		look.ledger = r.ledger.Clone()
	}
	if err := look.convert(now, p); err != nil {
		return weir.Decision{}, err
	}
	return weir.NewDecision(look.ledger.Peek(int64(now), c.Cost), now), nil
}

// A trial is a batch that is being tried out on copies of the rows it meets.
type trial struct {
	ledgers map[*row]*algo.Ledger
	holds   []holdRef // of ReserveAll, by charge
}

// allLocked makes all charges on copies, and keeps those if every one fits.
func (t *Table) allLocked(now weir.Instant, b *weir.Batch) error {
	tr := trial{ledgers: make(map[*row]*algo.Ledger, len(b.Charges))}
	for i := range b.Charges {
		if err := t.tryLocked(now, b, i, &tr); err != nil {
			return err
		}
	}
	if !b.Allowed() {
		for i := range b.Decisions {
			b.Decisions[i].Allowed = false
		}
		return nil
	}
	for r, l := range tr.ledgers {
		r.ledger = l
	}
	for i, h := range tr.holds {
		id := randomID()
		t.holds[id] = h
		b.Receipts[i] = weir.Receipt{ID: id, Units: b.Charges[i].Cost, Expiry: weir.Instant(h.expiry)}
	}
	return nil
}

// tryLocked makes charge i on a copy.
func (t *Table) tryLocked(now weir.Instant, b *weir.Batch, i int, tr *trial) error {
	c := &b.Charges[i]
	r, err := t.rowLocked(now, c, tr.ledgers)
	if err != nil {
		return err
	}
	l := tr.ledgers[r]
	if l == nil {
		l = r.ledger.Clone()
		tr.ledgers[r] = l
	}
	if b.Op == weir.TakeAll {
		b.Decisions[i] = weir.NewDecision(l.Take(int64(now), c.Cost), now)
		return nil
	}
	expiry, err := r.policy.Expiry(now, b.TTL)
	if err != nil {
		return err
	}
	if full := t.holdsFullLocked(now, len(b.Charges)); full {
		b.Decisions[i] = weir.NewDecision(l.Peek(int64(now), c.Cost), now)
		b.Decisions[i].Allowed, b.Decisions[i].Reason = false, weir.QueueFull
		return nil
	}
	id, v := l.Reserve(int64(now), c.Cost, expiry)
	b.Decisions[i] = weir.NewDecision(v, now)
	tr.holds = append(tr.holds, holdRef{row: r, key: rowKey{c.Policy.Name(), c.Key}, id: id, expiry: expiry})
	return nil
}

// holdRef says where a reservation's hold is.
type holdRef struct {
	row    *row
	key    rowKey // the policy and key that must settle it; the row may be an overflow row
	id     uint64
	expiry int64
}

// holdsFullLocked says whether n more reservations exceed the bound. It looks
// at a few in passing and drops those that nobody settled in time.
func (t *Table) holdsFullLocked(now weir.Instant, n int) bool {
	tries := 0
	for id, h := range t.holds {
		if h.expiry <= int64(now) {
			delete(t.holds, id)
		}
		if tries++; tries == evictTries {
			break
		}
	}
	return len(t.holds)+n > t.maxHolds
}

// findLocked returns the hold that a receipt stands for, if c may settle it.
func (t *Table) findLocked(c *weir.Charge, receipt weir.Receipt) (holdRef, bool) {
	h, ok := t.holds[receipt.ID]
	if !ok || h.key != (rowKey{c.Policy.Name(), c.Key}) {
		return holdRef{}, false
	}
	return h, true
}

func (t *Table) settleLocked(now weir.Instant, c *weir.Charge, receipt weir.Receipt) weir.Settled {
	h, ok := t.findLocked(c, receipt)
	if !ok {
		return weir.Settled{Late: true}
	}
	delete(t.holds, receipt.ID)
	return weir.Settled(h.row.ledger.Settle(int64(now), h.id, c.Cost))
}

// renewLocked renews each reservation. Its decision says whether it was open.
func (t *Table) renewLocked(now weir.Instant, b *weir.Batch) error {
	for i := range b.Charges {
		h, ok := t.findLocked(&b.Charges[i], b.Receipts[i])
		if !ok {
			b.Decisions[i] = weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
			continue
		}
		expiry, err := h.row.policy.Expiry(now, b.TTL)
		if err != nil {
			return err
		}
		b.Decisions[i].Allowed = h.row.ledger.Renew(int64(now), h.id, expiry)
		h.expiry = expiry
		t.holds[b.Receipts[i].ID] = h
		b.Receipts[i].Expiry = weir.Instant(expiry)
	}
	return nil
}

func randomID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}
