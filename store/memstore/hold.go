package memstore

import (
	"math"
	"strings"

	"github.com/weirlimit/weir"
)

// A hold says where a reservation is. The shard of its key has it, under the
// receipt's id.
type hold struct {
	of  *name  // whoever settles it must bring this policy name
	key string // and this key

	box      *box      // that the row must still have, or the hold is over
	overflow *overflow // instead of a box
	id       uint64    // in the ledger
	expiry   int64
}

// claimHolds makes room for n reservations. If there is none, it returns when the
// first reservation expires.
//
// Reservations that nobody settles expire unnoticed, so a full table looks for
// those before it refuses; after that it need not look again before the first of
// the others expires.
func (t *Table) claimHolds(now int64, n int) (until int64, ok bool) {
	if t.holds.Add(int64(n)) <= t.maxHolds {
		return 0, true
	}
	t.holds.Add(-int64(n))
	if until = t.holdsFull.Load(); now < until {
		return until, false
	}
	until = t.sweepHolds(now)
	t.holdsFull.Store(until)
	if t.holds.Add(int64(n)) <= t.maxHolds {
		return 0, true
	}
	t.holds.Add(-int64(n))
	return until, false
}

// sweepHolds forgets the reservations that are over at now and returns when the
// first of the others will be.
func (t *Table) sweepHolds(now int64) int64 {
	first := int64(math.MaxInt64)
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		if sh.rest != nil {
			for id, h := range sh.rest.holds {
				if h.expiry <= now {
					t.dropHoldLocked(sh, id)
					continue
				}
				first = min(first, h.expiry)
			}
		}
		sh.mu.Unlock()
	}
	return first
}

// putHoldLocked notes a reservation, for which room was claimed.
func (t *Table) putHoldLocked(sh *shard, id [16]byte, h hold) {
	r := sh.needRest()
	if r.holds == nil {
		r.holds = map[[16]byte]hold{}
	}
	r.holds[id] = h
	t.lowerHoldsFull(h.expiry)
}

// lowerHoldsFull says that a reservation expires at at.
func (t *Table) lowerHoldsFull(at int64) {
	for {
		until := t.holdsFull.Load()
		if until <= at || t.holdsFull.CompareAndSwap(until, at) {
			return
		}
	}
}

// dropHoldLocked forgets a reservation.
func (t *Table) dropHoldLocked(sh *shard, id [16]byte) {
	delete(sh.rest.holds, id)
	t.holds.Add(-1)
	t.holdsFull.Store(0) // look again
}

// findHold returns the reservation that a receipt stands for, if c may
// settle it.
func (v *visit) findHold(c *charge, id [16]byte) (hold, bool) {
	sh := &v.t.shards[c.shard]
	if sh.rest == nil {
		return hold{}, false
	}
	h, ok := sh.rest.holds[id]
	return h, ok && h.of == c.numbers.of && h.key == c.key
}

// heldBy returns the row with a hold, or false if the hold is over.
func (v *visit) heldBy(c *charge, h hold) (*row, bool) {
	if h.overflow != nil {
		v.lockOverflow()
		r := row{shard: &v.t.shards[c.shard], of: h.of, numbers: h.overflow.numbers}
		v.takeOverflow(&r, h.overflow, false)
		v.rows = append(v.rows, r)
		return &v.rows[len(v.rows)-1], true
	}
	r := v.rowOf(c, false)
	if r.box != h.box {
		v.drop(r)
		return nil, false
	}
	return r, true
}

// settle ends the reservation of a visit's only charge.
func (v *visit) settle(c *charge, receipt weir.Receipt) weir.Settled {
	h, ok := v.findHold(c, receipt.ID)
	if !ok {
		return weir.Settled{Late: true}
	}
	v.t.dropHoldLocked(&v.t.shards[c.shard], receipt.ID)
	r, ok := v.heldBy(c, h)
	if !ok {
		return weir.Settled{Late: true}
	}
	out := weir.Settled(r.ledger.Settle(v.now, h.id, c.cost))
	v.put(r)
	return out
}

// renew moves the expiry of the reservation of a visit's only charge. It returns
// false if the reservation is over.
func (v *visit) renew(c *charge, receipt *weir.Receipt, expiry int64) bool {
	h, ok := v.findHold(c, receipt.ID)
	if !ok {
		return false
	}
	sh := &v.t.shards[c.shard]
	r, ok := v.heldBy(c, h)
	if ok {
		ok = r.ledger.Renew(v.now, h.id, expiry)
		v.put(r)
	}
	if !ok {
		v.t.dropHoldLocked(sh, receipt.ID)
		return false
	}
	h.expiry = expiry
	v.t.putHoldLocked(sh, receipt.ID, h)
	receipt.Expiry = weir.Instant(expiry)
	return true
}

// newHold notes the reservation that a charge has made.
func (v *visit) newHold(c *charge) weir.Receipt {
	receipt := weir.Receipt{ID: randomID(), Units: c.cost, Expiry: weir.Instant(c.expiry)}
	r := &v.rows[c.row]
	v.t.putHoldLocked(&v.t.shards[c.shard], receipt.ID, hold{
		of: c.numbers.of, key: strings.Clone(c.key),
		box: r.box, overflow: r.overflow, id: c.hold, expiry: c.expiry,
	})
	return receipt
}
