package memstore

import (
	"math/rand/v2"

	"github.com/weirlimit/weir/algo"
)

// Eviction happens where a new key needs a place in a full table, and only in
// that key's shard. Rows with nothing in use go first: they equal absent rows, so
// nothing is forgiven. If there are none, the row with the least share of its
// limit in use goes, and its units are counted as forgiven. A
// row that would refuse one unit now never goes, or filling the table with new
// keys would free those who are blocked; nor does one with open reservations.

// usageLocked returns how much of a row is in use. It returns false if the row must stay:
// a call has taken its state, or reservations are open.
func (t *Table) usageLocked(b *block, slot int, now int64) (s algo.Usage, word uint64, ok bool) {
	if x := b.spilledAt(slot); x != nil {
		if x.taken || x.ledger.Advance(now) > 0 {
			return s, algo.Mark, false
		}
		return x.ledger.Usage(now), algo.Mark, true
	}
	word = b.word(slot, 0).Load()
	if word == algo.Mark {
		return s, word, false
	}
	n := t.registry.at(b.idAt(slot))
	if n.word != nil {
		return n.word.Usage(word, now), word, true
	}
	i := 0
	for _, r := range n.policy.Compiled().Rules {
		s.Join(algo.UsageOf(r, stateAt(b, slot, &i, r), now))
	}
	return s, word, true
}

// stateAt reads a rule's state from a slot and moves i behind it.
func stateAt(b *block, slot int, i *int, r algo.Rule) (s algo.State) {
	if r.Words() > 0 {
		s.A = b.word(slot, *i).Load()
	}
	if r.Words() > 1 {
		s.B = b.word(slot, *i+1).Load()
	}
	*i += r.Words()
	return s
}

// retireLocked ends the row whose first state word was word. It returns false if
// somebody has charged it since.
func (t *Table) retireLocked(b *block, slot int, word uint64) bool {
	if word != algo.Mark && !b.word(slot, 0).CompareAndSwap(word, algo.Mark) {
		return false
	}
	t.registry.at(b.idAt(slot)).unpin()
	b.retire(slot)
	t.keys.Add(-1)
	return true
}

// admitLocked lets one more key have a row, or returns false.
func (t *Table) admitLocked(sh *shard, now int64) bool {
	if t.keys.Add(1) <= t.maxKeys && sh.rows() < maxRows {
		return true
	}
	if t.evictLocked(sh, now) {
		return true
	}
	t.keys.Add(-1)
	return false
}

// evictLocked makes room for one more key, or returns false. It evicts one row, so
// that the shards of a full table keep their sizes: if each took more than it needs,
// some would run empty in time, and have nobody to evict.
func (t *Table) evictLocked(sh *shard, now int64) bool {
	for range evictTries {
		v := t.victimLocked(sh, now)
		if v.block == nil {
			return false
		}
		if t.retireLocked(v.block, v.slot, v.word) {
			t.evicted.Add(1)
			t.forgiven.Add(uint64(v.usage.Used))
			return true
		}
	}
	return false
}

// evictTries is how often a victim may be charged while it is being evicted before
// the new key is sent to the overflow row.
const evictTries = 4

// A victim is a row to be evicted.
type victim struct {
	place
	word  uint64
	usage algo.Usage
}

// victimLocked returns a row with nothing in use. If there is none, it returns the
// row with the least share in use that admits one unit.
func (t *Table) victimLocked(sh *shard, now int64) (least victim) {
	sh.blocks(func(b *block) {
		if least.block != nil && least.usage.Used == 0 {
			return
		}
		v := t.leastLocked(b, now)
		if v.block != nil && (least.block == nil || v.usage.Share < least.usage.Share) {
			least = v
		}
	})
	return least
}

// leastLocked is victimLocked of one block. It looks from somewhere on, and no
// further than to the first row with nothing in use.
func (t *Table) leastLocked(b *block, now int64) (least victim) {
	slot := rand.IntN(int(b.slots))
	if n := t.registry.at(b.id); b.live > 0 && b.rare == nil && n.isGCRA {
		if slot = b.earliest(slot, n.gcra.Tick(now)); slot >= 0 {
			least.consider(t, b, slot, now)
		}
		return least
	}
	for i := 0; i < int(b.slots) && (least.block == nil || least.usage.Used > 0); i, slot = i+1, b.next(slot) {
		if b.tag(slot).Load() >= firstTag {
			least.consider(t, b, slot, now)
		}
	}
	return least
}

// consider makes a row the victim if it may go and has less in use.
func (v *victim) consider(t *Table, b *block, slot int, now int64) {
	s, word, ok := t.usageLocked(b, slot, now)
	if ok && !s.Full && (v.block == nil || s.Share < v.usage.Share) {
		*v = victim{place{b, slot}, word, s}
	}
}

// earliest returns the slot of the least word from slot on, or of the first that is
// not after tick, or -1 if every state is elsewhere. Under the limits of one GCRA, which all rows must have, that is the
// one with the least share in use, found without dividing: a flood of new keys
// pays for a look at a whole shard with each.
func (b *block) earliest(slot int, tick uint64) int {
	best, least := -1, uint64(algo.Mark)
	for range int(b.slots) {
		if word := b.word(slot, 0).Load(); word < least && b.tag(slot).Load() >= firstTag {
			best, least = slot, word
			if word <= tick {
				break
			}
		}
		if slot++; slot == int(b.slots) {
			slot = 0
		}
	}
	return best
}
