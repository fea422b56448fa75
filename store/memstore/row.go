package memstore

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// A row is one key's state, taken out of the table by a visit. Its ledger may be
// tried and changed; put makes the change the key's state, drop forgets it.
type row struct {
	shard *shard
	of    *name
	h     uint64
	key   string // the caller's

	numbers *numbers         // those that ledger is under
	ledger  *algo.Ledger     // a scratch one, a box's or the overflow row's
	before  *algo.Checkpoint // what drop puts the ledger back to, if it is somebody's own and tried

	was      *numbers  // those that the row in the table is under; nil = there is none
	word     uint64    // its first state word, if not boxed
	box      *box      // its box, if boxed
	overflow *overflow // where the key is charged instead of a row of its own
	scratch  bool      // ledger is nobody's own
	admitted bool      // it has none in the table, and may have one
	changed  bool      // something was charged
	endBy    int64     // holds that had no end were given this one; 0 = none were
}

// take takes a charge's state out of the table. With trial the ledger can be put back
// as it was, wherever it is somebody's own.
func (v *visit) take(c *charge, trial bool) row {
	r := row{shard: &v.t.shards[c.shard], of: c.numbers.of, h: c.h, key: c.key, numbers: c.numbers}
	at, ok := v.t.lookLocked(r.shard, r.of, r.h, r.key)
	if !ok {
		v.takeNew(&r, c.over, trial)
		return r
	}
	r.was = v.t.registry.at(at.block.idAt(at.slot))
	r.numbers = r.was
	if r.box = at.block.boxAt(at.slot); r.box != nil {
		r.box.taken = true
		r.ledger = r.box.ledger
		if trial {
			r.try(v.now)
		}
		return r
	}
	r.word = at.block.word(at.slot, 0).Swap(algo.Mark)
	r.ledger, r.scratch = v.scratch(), true
	r.was.load(r.ledger, at, r.word)
	v.catchUp(&r)
	return r
}

// try notes the state of a ledger that is somebody's own, for drop.
func (r *row) try(now int64) {
	before := r.ledger.Checkpoint(now)
	r.before = &before
}

// catchUp tells the ledger of the last grant on the row's word, which may be later
// than the visit's now: it needed no lock. A word that Set left behind may look
// as if it were granted in times to come, so the clock has the last word.
func (v *visit) catchUp(r *row) {
	if r.was.word == nil {
		return
	}
	if at := r.was.word.GrantedSince(r.word); at > v.now {
		r.ledger.SeenAt(min(at, int64(v.t.now())))
	}
}

// takeNew makes the state of a key that has no row, or lets it be the overflow row.
func (v *visit) takeNew(r *row, over, trial bool) {
	if over {
		v.intoOverflow(r, r.numbers, trial)
		return
	}
	if v.startsInOverflow(r, trial) {
		return
	}
	r.ledger, r.scratch = v.scratch(), true
	r.ledger.Restart(r.numbers.policy.Compiled().Rules, int64(v.t.epoch))
}

// load puts the state at a place, whose first word is word, into a ledger.
func (n *numbers) load(l *algo.Ledger, at place, word uint64) {
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
func (n *numbers) store(l *algo.Ledger, at place) {
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
func (r *row) convert(n *numbers, now int64) error {
	if r.numbers == n {
		return nil
	}
	if err := r.ledger.Set(now, n.policy.Compiled().Rules, n.policy.Compiled().Continues(r.numbers.policy.Compiled())); err != nil {
		return fmt.Errorf("memstore: policy %q: %w: %w", n.of.text, compiled.ErrLimits, err)
	}
	if expiry, err := n.policy.Compiled().Expiry(now, weir.NoExpiry); err != nil || expiry != algo.Never { // holds must expire
		r.endBy = int64(weir.Instant(now).Add(compiled.MaxTTL))
		r.ledger.EndHoldsBy(r.endBy)
	}
	r.numbers = n
	return nil
}

// drop gives the state back as it was. A ledger that is somebody's own must have been
// tried, or not been changed.
func (v *visit) drop(r *row) {
	if r.ledger != nil && r.before != nil {
		r.ledger.Rollback(*r.before)
	}
	switch {
	case r.ledger == nil: // done with already
		return
	case r.admitted:
		v.t.keys.Add(-1)
	case r.box != nil:
		r.box.taken = false
	case r.was != nil:
		at := r.place()
		at.block.word(at.slot, 0).Store(r.word)
	}
	v.release(r)
}

// place returns where the row came from. It may have moved since it was taken.
func (r *row) place() place {
	b := r.shard.blockOf(r.was.words)
	return place{b, b.find(r.h, tagFor(r.h, r.was), r.key)}
}

// scratch returns a ledger to be restarted.
func (v *visit) scratch() *algo.Ledger {
	if n := len(v.spare); n > 0 {
		l := v.spare[n-1]
		v.spare = v.spare[:n-1]
		return l
	}
	return &algo.Ledger{}
}

// release keeps the ledger for the next row, if it is nobody's own.
func (v *visit) release(r *row) {
	if r.scratch && len(v.spare) < maxSpare {
		v.spare = append(v.spare, r.ledger)
	}
	r.ledger = nil
}

// maxSpare bounds the ledgers that a visit keeps for the next.
const maxSpare = 16

// admit gets a key without a row the right to one. It returns false if there is
// no room.
func (v *visit) admit(r *row) bool {
	if r.was != nil || r.overflow != nil || r.admitted {
		return true
	}
	r.admitted = v.t.admitLocked(r.shard, v.now)
	return r.admitted
}

// put makes the ledger the key's state. It returns false if the key has no row
// and there is no room for one; then nothing has changed.
func (v *visit) put(r *row) bool {
	v.t.holdsEndBy(r)
	switch {
	case r.ledger == nil: // done with already
		return true
	case r.overflow != nil:
		r.overflow.put(r)
		return true
	case r.was == nil && r.ledger.Unused(v.now): // equals an absent row
		v.drop(r)
		return true
	case !v.admit(r):
		return false
	}
	v.write(r, v.newPlace(r))
	return true
}

// holdsEndBy tells that holds of the row were given an end that had none, if any
// were.
func (t *Table) holdsEndBy(r *row) {
	if r.endBy != 0 && r.ledger != nil && r.ledger.Holds() > 0 {
		t.expiresAt(r.endBy)
		t.holds.fullUntil.Store(0) // look again which is the first
	}
}

// newPlace returns where the row goes: where it came from, or somewhere else if
// its numbers have changed or it is new.
func (v *visit) newPlace(r *row) place {
	if r.was == r.numbers {
		return r.place()
	}
	if r.was != nil {
		at := r.place()
		at.block.retire(at.slot)
		r.was.unpin()
	}
	b := v.t.roomLocked(r.shard, r.numbers.words)
	key := ""
	if v.t.keepKeys {
		key = strings.Clone(r.key)
	}
	before := b.bytes()
	r.numbers.pin()
	slot := b.insert(r.h, tagFor(r.h, r.numbers), r.numbers.id, key)
	v.t.bytes.Add(b.bytes() - before)
	return place{b, slot}
}

// write puts the state into the row's words or, if it does not fit, into a box.
func (v *visit) write(r *row, at place) {
	if r.numbers.logged || r.ledger.Holds() > 0 || r.ledger.Remembered() > 0 {
		if r.box == nil {
			r.box = &box{}
		}
		*r.box = box{ledger: r.ledger}
		at.block.setBox(at.slot, r.box)
		r.ledger = nil
		return
	}
	at.block.setBox(at.slot, nil)
	r.numbers.store(r.ledger, at)
	v.release(r)
}
