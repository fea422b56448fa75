package memstore

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

// A hold says where a reservation is. The shard of its key has it, under the
// receipt's id. When it expires, its ledger knows.
type hold struct {
	of  *name  // whoever settles it must bring this policy name
	key string // and this key

	spilled  *spilled  // that the row must still have, or the hold is over
	overflow *overflow // instead of spilled
	id       uint64    // in the ledger

	settledUntil int64 // the ledger remembers the outcome until then; 0 = it is open
}

// A holdCount bounds the reservations of a table.
//
// Those that nobody settles expire unnoticed, so a full table looks for them before
// it refuses. After that it need not look again before the first of the others
// expires, or one is settled.
//
// Protocol. The looker sets lowest to never, goes through the shards, lowers
// lowest to the first expiry that it meets, copies it to fullUntil, and then lowers
// fullUntil to it once more. Whoever makes a reservation meanwhile lowers lowest
// first and fullUntil after: one of the two is seen.
type holdCount struct {
	open      atomic.Int64 // and expired unnoticed, and claimed
	fullUntil atomic.Int64 // until then none expires; 0 = look
	lowest    atomic.Int64
	settled   atomic.Int64 // whose outcome is remembered, and was forgotten unnoticed
	looking   sync.Mutex   // one at a time; taken before every shard's lock
}

// maxSettled bounds the outcomes of settled reservations that a table remembers for
// those who ask again. Beyond it those of the key in question are forgotten.
const maxSettled = 100_000

// claimHolds makes room for n reservations. If there is none, it returns when the
// first reservation expires.
func (t *Table) claimHolds(now int64, n int) (until int64, ok bool) {
	if t.tryClaim(n) {
		return 0, true
	}
	if int64(n) > t.maxHolds {
		return algo.Never, false
	}
	t.holds.looking.Lock()
	defer t.holds.looking.Unlock()
	if now >= t.holds.fullUntil.Load() {
		t.sweepHolds(now)
	}
	if t.tryClaim(n) {
		return 0, true
	}
	return t.holds.fullUntil.Load(), false
}

func (t *Table) tryClaim(n int) bool {
	if t.holds.open.Add(int64(n)) <= t.maxHolds {
		return true
	}
	t.holds.open.Add(-int64(n))
	return false
}

// sweepHolds forgets the reservations that are over at now, and notes when the
// first of the others will be.
func (t *Table) sweepHolds(now int64) {
	t.holds.lowest.Store(algo.Never)
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		t.sweepShardLocked(sh, now)
		sh.mu.Unlock()
	}
	t.holds.fullUntil.Store(t.holds.lowest.Load())
	lower(&t.holds.fullUntil, t.holds.lowest.Load())
}

func (t *Table) sweepShardLocked(sh *shard, now int64) {
	if sh.rest == nil {
		return
	}
	for id, h := range sh.rest.holds {
		expiry, open := t.expiryLocked(h)
		if !open || expiry <= now {
			t.dropHoldLocked(sh, id)
		} else if h.settledUntil == 0 {
			lower(&t.holds.lowest, expiry)
		}
	}
}

// tidied is how many reservations of a shard are looked at for each that is added, so that there
// are about as many that are over as there are others, at most, and not as many as fit the table.
const tidied = 2

// tidyLocked forgets some of a shard's reservations that are over at now. Those of the overflow row,
// whose lock may be held, are left to sweepHolds.
func (t *Table) tidyLocked(sh *shard, now int64) {
	seen := 0
	for id, h := range sh.rest.holds { // begins anywhere
		if h.overflow == nil {
			if expiry, open := t.expiryLocked(h); !open || expiry <= now {
				t.dropHoldLocked(sh, id)
			}
		}
		if seen++; seen == tidied {
			return
		}
	}
}

// expiryLocked returns when a reservation expires or, if it was settled, when its outcome
// is forgotten, or false if it is over. It requires the lock of the reservation's shard.
func (t *Table) expiryLocked(h hold) (int64, bool) {
	if h.settledUntil != 0 {
		return h.settledUntil, true
	}
	if h.overflow == nil {
		return h.spilled.ledger.HoldExpiry(h.id)
	}
	t.overflowMu.Lock()
	defer t.overflowMu.Unlock()
	return h.overflow.ledger.HoldExpiry(h.id)
}

// putHoldLocked notes a reservation, for which room was claimed.
func (t *Table) putHoldLocked(sh *shard, id [16]byte, h hold, expiry int64) {
	r := sh.needRest()
	if r.holds == nil {
		r.holds = map[[16]byte]hold{}
	}
	r.holds[id] = h
	t.expiresAt(expiry)
}

// expiresAt tells that a reservation expires at at.
func (t *Table) expiresAt(at int64) {
	lower(&t.holds.lowest, at)
	lower(&t.holds.fullUntil, at)
}

// lower makes a figure at most n.
func lower(figure *atomic.Int64, n int64) {
	for {
		was := figure.Load()
		if was <= n || figure.CompareAndSwap(was, n) {
			return
		}
	}
}

// dropHoldLocked forgets a reservation.
func (t *Table) dropHoldLocked(sh *shard, id [16]byte) {
	settled := sh.rest.holds[id].settledUntil != 0
	delete(sh.rest.holds, id)
	if settled {
		t.holds.settled.Add(-1)
		return
	}
	t.holds.open.Add(-1)
	t.holds.fullUntil.Store(0)
}

// settledLocked notes that a reservation was settled, so that settling it again
// returns the same outcome.
func (t *Table) settledLocked(sh *shard, id [16]byte, h hold, until int64) {
	h.settledUntil = until
	sh.rest.holds[id] = h
	t.holds.settled.Add(1)
	t.holds.open.Add(-1)
	t.holds.fullUntil.Store(0)
}

// restoreHoldLocked notes a reservation of a snapshot, whose ledger is there.
func (t *Table) restoreHoldLocked(sh *shard, id [16]byte, h hold, l *algo.Ledger) {
	expiry, known := l.HoldExpiry(h.id)
	if !known {
		return
	}
	t.holds.open.Add(1)
	t.putHoldLocked(sh, id, h, expiry)
	if _, settled := l.Outcome(0, h.id); settled {
		t.settledLocked(sh, id, h, expiry)
	}
}

// findHold returns the reservation that a receipt stands for, if c may
// settle it.
// The name of the policy is compared, not the object: a name without rows is forgotten, and another
// object takes its place.
func (ls *lockSession) findHold(c *charge, id [16]byte) (hold, bool) {
	sh := &ls.t.shards[c.shard]
	if sh.rest == nil {
		return hold{}, false
	}
	h, ok := sh.rest.holds[id]
	return h, ok && h.of.text == c.limits.of.text && h.key == c.key
}

// heldBy returns the row with a hold, or false if the hold is over.
func (ls *lockSession) heldBy(c *charge, h hold) (*row, bool) {
	if h.overflow != nil {
		ls.lockOverflow()
		r := row{shard: &ls.t.shards[c.shard], of: h.of, limits: h.overflow.limits}
		ls.takeOverflow(&r, h.overflow, false)
		ls.rows = append(ls.rows, r)
		return &ls.rows[len(ls.rows)-1], true
	}
	r := ls.rowOf(c, false)
	if r.spilled != h.spilled {
		ls.drop(r)
		return nil, false
	}
	return r, true
}

// settle ends the reservation of a session's only charge.
func (ls *lockSession) settle(c *charge, receipt weir.Receipt) weir.Settled {
	h, ok := ls.findHold(c, receipt.ID)
	if !ok {
		return weir.Settled{Late: true}
	}
	if h.settledUntil != 0 {
		return ls.settledBefore(h)
	}
	sh := &ls.t.shards[c.shard]
	r, ok := ls.heldBy(c, h)
	if !ok {
		ls.t.dropHoldLocked(sh, receipt.ID)
		return weir.Settled{Late: true}
	}
	out := weir.Settled(r.ledger.Settle(ls.now, h.id, c.cost))
	switch until, remembered := r.ledger.HoldExpiry(h.id); {
	case !remembered: // it was over
		ls.t.dropHoldLocked(sh, receipt.ID)
	case ls.t.holds.settled.Load() >= maxSettled:
		ls.t.dropHoldLocked(sh, receipt.ID)
		r.ledger.ForgetOutcomes()
	default:
		ls.t.settledLocked(sh, receipt.ID, h, until)
	}
	ls.put(r)
	return out
}

// settledBefore returns how a reservation was settled. Its row may have gone since.
func (ls *lockSession) settledBefore(h hold) weir.Settled {
	l := (*algo.Ledger)(nil)
	if h.overflow != nil {
		ls.lockOverflow()
		l = h.overflow.ledger
	} else {
		l = h.spilled.ledger
	}
	out, ok := l.Outcome(ls.now, h.id)
	if !ok {
		return weir.Settled{Late: true}
	}
	return weir.Settled(out)
}

// renew moves the expiry of the reservation of a session's only charge. It returns
// false if the reservation is over.
func (ls *lockSession) renew(c *charge, receipt *weir.Receipt, expiry int64) bool {
	h, ok := ls.findHold(c, receipt.ID)
	if !ok || h.settledUntil != 0 {
		return false
	}
	sh := &ls.t.shards[c.shard]
	r, ok := ls.heldBy(c, h)
	if ok {
		ok = r.ledger.Renew(ls.now, h.id, expiry)
		ls.put(r)
	}
	if !ok {
		ls.t.dropHoldLocked(sh, receipt.ID)
		return false
	}
	ls.t.expiresAt(expiry)
	ls.t.holds.fullUntil.Store(0) // it may have been the first
	receipt.Expiry = weir.Instant(expiry)
	return true
}

// newHold notes the reservation that a charge has made.
func (ls *lockSession) newHold(c *charge) weir.Receipt {
	receipt := weir.Receipt{ID: randomID(), Units: c.cost, Expiry: weir.Instant(c.expiry)}
	r, sh := &ls.rows[c.row], &ls.t.shards[c.shard]
	if sh.rest != nil {
		ls.t.tidyLocked(sh, ls.now)
	}
	ls.t.putHoldLocked(sh, receipt.ID, hold{
		of: c.limits.of, key: strings.Clone(c.key),
		spilled: r.spilled, overflow: r.overflow, id: c.hold,
	}, c.expiry)
	return receipt
}

// takeBesideHolds takes from a key that has reservations open, or settled ones whose
// outcome is remembered, under the same limits. It
// is takeSlowly without everything that is not needed then: the row stays where it is.
// It returns false if there is more to do.
func (t *Table) takeBesideHolds(n *compiledLimits, h uint64, key string, now weir.Instant, cost int64) (weir.Decision, bool) {
	sh := &t.shards[h>>t.shift]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !n.current() {
		return weir.Decision{}, false
	}
	b := sh.blockOf(n.words)
	slot := b.find(h, tagFor(h, n), key)
	if slot < 0 {
		return weir.Decision{}, false
	}
	x := b.spilledAt(slot)
	sh.seen = max(sh.seen, int64(now))
	if x == nil || x.ledger.Advance(sh.seen)+x.ledger.Remembered() == 0 { // the state can go back to the row
		return weir.Decision{}, false
	}
	return storeapi.Decision(x.ledger.Take(sh.seen, cost), weir.Instant(sh.seen)), true
}
