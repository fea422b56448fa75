package memstore

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/weirlimit/weir"
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
	now := t.nowLocked()
	switch b.Op {
	case weir.TakeEach:
		return t.takeEachLocked(now, b)
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

// takeEachLocked makes sure that every charge can be decided before the first
// is made.
func (t *Table) takeEachLocked(now weir.Instant, b *weir.Batch) error {
	for i := range b.Charges {
		if _, err := t.peekLocked(now, &b.Charges[i]); err != nil {
			return err
		}
		if t.currentLocked(b.Charges[i].Policy).ReserveOnly() {
			return weir.ErrReserveOnly
		}
	}
	for i := range b.Charges {
		var err error
		if b.Decisions[i], err = t.takeLocked(now, &b.Charges[i]); err != nil {
			return err
		}
	}
	return nil
}

// oneLocked carries out charge i of an operation that treats each on its own.
func (t *Table) oneLocked(now weir.Instant, b *weir.Batch, i int) (err error) {
	c := &b.Charges[i]
	switch b.Op {
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
	if r == nil {
		r = t.newRowLocked(now, p)
	}
	if r.policy != p {
		r = r.clone()
	}
	if err := r.convert(now, p); err != nil {
		return weir.Decision{}, err
	}
	return weir.NewDecision(r.ledger.Peek(int64(now), c.Cost), now), nil
}

// A trial is a batch that is being tried out on copies of the rows it meets.
type trial struct {
	rows  map[*row]*row // the copy of each
	holds []holdRef     // of ReserveAll, by charge; they mean the originals
}

// allLocked makes all charges on copies, and keeps those if every one fits.
func (t *Table) allLocked(now weir.Instant, b *weir.Batch) error {
	tr := trial{rows: make(map[*row]*row, len(b.Charges))}
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
	for r, c := range tr.rows {
		*r = *c
	}
	for i, h := range tr.holds {
		id := randomID()
		t.putHoldLocked(id, h)
		b.Receipts[i] = weir.Receipt{ID: id, Units: b.Charges[i].Cost, Expiry: weir.Instant(h.expiry)}
	}
	return nil
}

// tryLocked makes charge i on a copy.
func (t *Table) tryLocked(now weir.Instant, b *weir.Batch, i int, tr *trial) error {
	c := &b.Charges[i]
	p := t.currentLocked(c.Policy)
	if b.Op == weir.TakeAll && p.ReserveOnly() {
		return weir.ErrReserveOnly
	}
	r := t.rowLocked(now, p, c.Key, tr.rows)
	try := tr.rows[r]
	if try == nil {
		try = r.clone()
		tr.rows[r] = try
	}
	if err := try.convert(now, p); err != nil {
		return err
	}
	if b.Op == weir.TakeAll {
		b.Decisions[i] = weir.NewDecision(try.ledger.Take(int64(now), c.Cost), now)
		return nil
	}
	expiry, err := p.Expiry(now, b.TTL)
	if err != nil {
		return err
	}
	if until, full := t.holdsFullLocked(now, len(b.Charges)); full {
		d := weir.NewDecision(try.ledger.Peek(int64(now), c.Cost), now)
		d.Allowed, d.Reason, d.RetryAfter = false, weir.QueueFull, until.Sub(now)
		b.Decisions[i] = d
		return nil
	}
	id, v := try.ledger.Reserve(int64(now), c.Cost, expiry)
	b.Decisions[i] = weir.NewDecision(v, now)
	key := rowKey{p.Name(), strings.Clone(c.Key)}
	tr.holds = append(tr.holds, holdRef{row: r, key: key, id: id, expiry: expiry})
	return nil
}

// holdRef says where a reservation's hold is.
type holdRef struct {
	row    *row
	key    rowKey // the policy and key that must settle it; the row may be an overflow row
	id     uint64
	expiry int64
}

// holdsFullLocked says whether n more reservations exceed the bound and, if so,
// when the first of them expires. It forgets those that nobody settled in time.
func (t *Table) holdsFullLocked(now weir.Instant, n int) (until weir.Instant, full bool) {
	if len(t.holds)+n <= t.maxHolds || now < t.holdsFullUntil {
		return t.holdsFullUntil, len(t.holds)+n > t.maxHolds
	}
	first := int64(now.Add(weir.MaxTTL))
	for id, h := range t.holds {
		if h.expiry <= int64(now) {
			delete(t.holds, id)
			continue
		}
		first = min(first, h.expiry)
	}
	t.holdsFullUntil = weir.Instant(first) // none expires before
	return t.holdsFullUntil, len(t.holds)+n > t.maxHolds
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
	t.dropHoldLocked(receipt.ID)
	return weir.Settled(h.row.ledger.Settle(int64(now), h.id, c.Cost))
}

func (t *Table) putHoldLocked(id [16]byte, h holdRef) {
	t.holds[id] = h
	t.holdsFullUntil = min(t.holdsFullUntil, weir.Instant(h.expiry))
}

func (t *Table) dropHoldLocked(id [16]byte) {
	delete(t.holds, id)
	t.holdsFullUntil = 0 // look again
}

// renewLocked renews each reservation, or none if the time to live is wrong. A
// decision says whether its reservation was open.
func (t *Table) renewLocked(now weir.Instant, b *weir.Batch) error {
	expiries := make([]int64, len(b.Charges))
	for i := range b.Charges {
		var err error
		if expiries[i], err = t.currentLocked(b.Charges[i].Policy).Expiry(now, b.TTL); err != nil {
			return err
		}
	}
	for i := range b.Charges {
		h, ok := t.findLocked(&b.Charges[i], b.Receipts[i])
		if !ok || !h.row.ledger.Renew(int64(now), h.id, expiries[i]) {
			b.Decisions[i] = weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
			if ok {
				t.dropHoldLocked(b.Receipts[i].ID)
			}
			continue
		}
		b.Decisions[i].Allowed = true
		h.expiry = expiries[i]
		t.putHoldLocked(b.Receipts[i].ID, h)
		b.Receipts[i].Expiry = weir.Instant(expiries[i])
	}
	return nil
}

func randomID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}
