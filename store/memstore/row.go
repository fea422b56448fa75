package memstore

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// A row is one key's state, taken out of the table by a lock session. Its ledger may be
// changed; put writes the change to the table, drop discards it.
type row struct {
	shard *shard
	of    *name
	h     uint64
	key   string // the caller's

	limits *compiledLimits  // those that ledger is under
	ledger *algo.Ledger     // a scratch ledger, the spilled one or the overflow row's
	before *algo.Checkpoint // what drop restores, if the ledger is shared and this is a trial

	was      *compiledLimits // those that the row in the table is under; nil = there is none
	word     uint64          // the row's first state word, if not spilled
	spilled  *spilled        // the row's spilled state, or nil
	overflow *overflow       // where the key is charged instead of a row of its own
	scratch  bool            // ledger belongs to the session, not to the table
	admitted bool            // the key has no row, and may get one
	changed  bool            // something was charged
	endBy    int64           // expiry given to holds without one; 0 = none
}

// take takes a charge's state out of the table. With trial, drop can restore a ledger that
// belongs to the table.
func (ls *lockSession) take(c *charge, trial bool) row {
	r := row{shard: &ls.t.shards[c.shard], of: c.limits.of, h: c.h, key: c.key, limits: c.limits}
	at, ok := ls.t.lookLocked(r.shard, r.of, r.h, r.key)
	if !ok {
		ls.takeNew(&r, c.over, trial)
		return r
	}
	r.was = ls.t.registry.at(at.block.idAt(at.slot))
	r.limits = r.was
	if r.spilled = at.block.spilledAt(at.slot); r.spilled != nil {
		r.spilled.taken = true
		r.ledger = r.spilled.ledger
		if trial {
			r.try(ls.now)
		}
		return r
	}
	r.word = at.block.word(at.slot, 0).Swap(algo.Mark)
	r.ledger, r.scratch = ls.scratch(), true
	r.was.load(r.ledger, at, r.word)
	ls.catchUp(&r)
	return r
}

// try saves the state of a ledger that belongs to the table, for drop.
func (r *row) try(now int64) {
	before := r.ledger.Checkpoint(now)
	r.before = &before
}

// catchUp advances the ledger to the last grant on the row's word, which may be later
// than the session's now, since it needed no lock. A word that was converted by Set may look
// as if it were granted in the future, so the clock is the upper bound.
func (ls *lockSession) catchUp(r *row) {
	if r.was.word == nil {
		return
	}
	if at := r.was.word.GrantedSince(r.word); at > ls.now {
		r.ledger.SeenAt(min(at, int64(ls.t.now())))
	}
}

// takeNew makes the state of a key that has no row, or uses the overflow row.
func (ls *lockSession) takeNew(r *row, over, trial bool) {
	if over {
		ls.intoOverflow(r, r.limits, trial)
		return
	}
	if ls.startsInOverflow(r, trial) {
		return
	}
	r.ledger, r.scratch = ls.scratch(), true
	r.ledger.Restart(r.limits.policy.Compiled().Rules, int64(ls.t.epoch))
}

// load puts the state at a place, whose first word is word, into a ledger.
func (n *compiledLimits) load(l *algo.Ledger, at place, word uint64) {
	l.Restart(n.policy.Compiled().Rules, 0)
	if n.word != nil {
		n.word.Load(l, word)
		return
	}
	i := 0
	for j, rule := range n.policy.Compiled().Rules {
		s := stateAt(at.block, at.slot, &i, rule)
		if rule.Words() > 0 && i == rule.Words() { // the first word has been taken
			s.A = word
		}
		l.SetState(j, s)
	}
}

// store writes a ledger's state to a place, the first word last.
func (n *compiledLimits) store(l *algo.Ledger, at place) {
	if n.word != nil {
		at.block.word(at.slot, 0).Store(n.word.Save(l))
		return
	}
	words := make([]uint64, 0, 8)
	for j, rule := range n.policy.Compiled().Rules {
		s := l.State(j)
		words = append(words, []uint64{s.A, s.B}[:rule.Words()]...)
	}
	words = append(words, 0)[:max(1, len(words))] // slots alone have no word, and a row has one
	for i := len(words) - 1; i >= 0; i-- {
		at.block.word(at.slot, i).Store(words[i])
	}
}

// convert puts n in force on the row's ledger, keeping the units in use.
func (r *row) convert(n *compiledLimits, now int64) error {
	if r.limits == n {
		return nil
	}
	if err := r.ledger.Set(now, n.policy.Compiled().Rules, n.policy.Compiled().Continues(r.limits.policy.Compiled())); err != nil {
		return fmt.Errorf("memstore: policy %q: %w: %w", n.of.text, compiled.ErrLimits, err)
	}
	if expiry, err := n.policy.Compiled().Expiry(now, weir.NoExpiry); err != nil || expiry != algo.Never { // holds must expire
		r.endBy = int64(weir.Instant(now).Add(compiled.MaxTTL))
		r.ledger.EndHoldsBy(r.endBy)
	}
	r.limits = n
	return nil
}

// drop restores the state as it was. A ledger that belongs to the table must have been
// saved by try, or not been changed.
func (ls *lockSession) drop(r *row) {
	if r.ledger != nil && r.before != nil {
		r.ledger.Rollback(*r.before)
	}
	switch {
	case r.ledger == nil: // done with already
		return
	case r.admitted:
		ls.t.keys.Add(-1)
	case r.spilled != nil:
		r.spilled.taken = false
	case r.was != nil:
		at := r.place()
		at.block.word(at.slot, 0).Store(r.word)
	}
	ls.release(r)
}

// place returns where the row came from. It may have moved since it was taken.
func (r *row) place() place {
	b := r.shard.blockOf(r.was.words)
	return place{b, b.find(r.h, tagFor(r.h, r.was), r.key)}
}

// scratch returns a ledger to be restarted.
func (ls *lockSession) scratch() *algo.Ledger {
	if n := len(ls.spare); n > 0 {
		l := ls.spare[n-1]
		ls.spare = ls.spare[:n-1]
		return l
	}
	return &algo.Ledger{}
}

// release keeps the ledger for the next row, if it belongs to the session.
func (ls *lockSession) release(r *row) {
	if r.scratch && len(ls.spare) < maxSpare {
		ls.spare = append(ls.spare, r.ledger)
	}
	r.ledger = nil
}

// maxSpare bounds the ledgers that a lock session keeps for the next.
const maxSpare = 16

// admit reserves a row for a key that has none. It returns false if there is
// no room.
func (ls *lockSession) admit(r *row) bool {
	if r.was != nil || r.overflow != nil || r.admitted {
		return true
	}
	r.admitted = ls.t.admitLocked(r.shard, ls.now)
	return r.admitted
}

// put writes the ledger to the table as the key's state. It returns false if the key has no
// row and there is no room for one; then nothing has changed.
func (ls *lockSession) put(r *row) bool {
	ls.t.holdsEndBy(r)
	switch {
	case r.ledger == nil: // done with already
		return true
	case r.overflow != nil:
		r.overflow.put(r)
		return true
	case r.was == nil && r.ledger.Unused(ls.now): // equals an absent row
		ls.drop(r)
		return true
	case !ls.admit(r):
		return false
	}
	ls.write(r, ls.newPlace(r))
	return true
}

// holdsEndBy updates the earliest expiry of all holds if holds of the row were given an
// expiry.
func (t *Table) holdsEndBy(r *row) {
	if r.endBy != 0 && r.ledger != nil && r.ledger.Holds() > 0 {
		t.expiresAt(r.endBy)
		t.holds.fullUntil.Store(0) // look again which is the first
	}
}

// newPlace returns where the row goes: where it came from, or somewhere else if
// its limits have changed or it is new.
func (ls *lockSession) newPlace(r *row) place {
	if r.was == r.limits {
		return r.place()
	}
	if r.was != nil {
		at := r.place()
		at.block.retire(at.slot)
		r.was.unpin()
	}
	b := ls.t.roomLocked(r.shard, r.limits.words)
	key := ""
	if ls.t.keepKeys {
		key = strings.Clone(r.key)
	}
	before := b.bytes()
	r.limits.pin()
	slot := b.insert(r.h, tagFor(r.h, r.limits), r.limits.id, key)
	ls.t.bytes.Add(b.bytes() - before)
	return place{b, slot}
}

// write writes the state to the row's words or, if it does not fit, spills it.
func (ls *lockSession) write(r *row, at place) {
	if r.limits.logged || r.ledger.Holds() > 0 || r.ledger.Remembered() > 0 {
		if r.spilled == nil {
			r.spilled = &spilled{}
		}
		*r.spilled = spilled{ledger: r.ledger}
		at.block.setSpilled(at.slot, r.spilled)
		r.ledger = nil
		return
	}
	at.block.setSpilled(at.slot, nil)
	r.limits.store(r.ledger, at)
	ls.release(r)
}
