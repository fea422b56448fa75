package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/algo"
)

// A shard is the rows of all keys whose hashes begin with the same bits. One in a
// full table has 320 to 640 of them: few enough that moving all to a larger block
// takes some microseconds, so growth needs no second mechanism.
type shard struct {
	index int                   // in Table.shards and Table.fronts; set by makeShards
	kept  atomic.Pointer[block] // a copy of one, if whole keys are kept: front has no keys

	mu   sync.Mutex // guards everything below, and the structure of all blocks
	seen int64      // the latest now that anybody acted on here
	one  block      // rows of one word; a value, for a pointer each would be the collector's work
	rest *rest      // nil if there is nothing in it
}

// rest is what few shards have.
type rest struct {
	wide  []*block // rows of more than one word: a block for each number of words
	holds map[[16]byte]hold
}

// maxRows bounds the rows of a shard. Hashes being random, a shard gets nowhere
// near it: shards of a full table have at most meanRows on average, and this is
// 15 standard deviations more.
const (
	meanRows = 640
	maxRows  = 1024
)

// wide returns the shard's blocks of more than one word.
func (sh *shard) wide() []*block {
	if sh.rest == nil {
		return nil
	}
	return sh.rest.wide
}

// blocks calls f for every block.
func (sh *shard) blocks(f func(*block)) {
	f(&sh.one)
	for _, b := range sh.wide() {
		f(b)
	}
}

func (sh *shard) needRest() *rest {
	if sh.rest == nil {
		sh.rest = &rest{}
	}
	return sh.rest
}

// blockOf returns the block for rows of so many words, or nil.
func (sh *shard) blockOf(words int) *block {
	if words == 1 {
		return &sh.one
	}
	for _, b := range sh.wide() {
		if int(b.words) == words {
			return b
		}
	}
	return nil
}

// setBlock puts b in the place of the block with the same number of words, and
// returns where it is.
func (t *Table) setBlock(sh *shard, b block) *block {
	if b.words == 1 {
		sh.one = b
		t.fronts[sh.index].set(&sh.one)
		if b.keys != nil {
			sh.kept.Store(&b)
		}
		return &sh.one
	}
	r := sh.needRest()
	for i := range r.wide {
		if r.wide[i].words == b.words {
			r.wide[i] = &b
			return &b
		}
	}
	r.wide = append(r.wide, &b)
	return &b
}

// rows returns how many rows there are.
func (sh *shard) rows() (n int) {
	sh.blocks(func(b *block) { n += int(b.live) })
	return n
}

// A place is where a row is.
type place struct {
	block *block
	slot  int
}

// lookLocked finds a key's row, whatever limits it was written under.
func (t *Table) lookLocked(sh *shard, of *name, h uint64, key string) (place, bool) {
	if slot := t.lookInLocked(&sh.one, of, h, key); slot >= 0 {
		return place{&sh.one, slot}, true
	}
	for _, b := range sh.wide() {
		if slot := t.lookInLocked(b, of, h, key); slot >= 0 {
			return place{b, slot}, true
		}
	}
	return place{}, false
}

func (t *Table) lookInLocked(b *block, of *name, h uint64, key string) int {
	for slot := b.start(h); ; slot = b.next(slot) {
		tag := b.tag(slot).Load()
		if tag == empty {
			return -1
		}
		if tag == retired {
			continue
		}
		n := t.registry.at(b.idAt(slot))
		if tag == tagFor(h, n) && n.of == of && (b.keys == nil || b.keys[slot] == key) {
			return slot
		}
	}
}

// tagFor returns the tag of a row.
func tagFor(h uint64, n *compiledLimits) uint64 {
	tag := h ^ n.tag
	if tag < firstTag {
		tag += firstTag // shares its tag with another hash, once in 2^63 keys
	}
	return tag
}

// roomLocked returns a block that has an empty slot for a row of so many words.
func (t *Table) roomLocked(sh *shard, words int) *block {
	b := sh.blockOf(words)
	switch {
	case b == nil || b.isNoRows():
		first := newBlock(words, slotsFor(words, 1), t.keepKeys)
		t.bytes.Add(first.bytes())
		return t.setBlock(sh, first)
	case b.full():
		return t.rebuildLocked(sh, b)
	}
	return b
}

// rebuildLocked moves the rows of a block to one that suits their number, with
// room for at least one more.
func (t *Table) rebuildLocked(sh *shard, old *block) *block {
	b := newBlock(int(old.words), slotsFor(int(old.words), int(old.live)+1), t.keepKeys)
	b.id = old.id
	for slot := range int(old.slots) {
		if old.tag(slot).Load() >= firstTag {
			t.moveLocked(old, slot, &b)
		}
	}
	t.bytes.Add(b.bytes() - old.bytes())
	raise(&t.mostMoved, int64(b.live))
	return t.setBlock(sh, b)
}

// moveLocked moves one row. The old slot keeps the mark.
func (t *Table) moveLocked(old *block, slot int, b *block) {
	tag, id := old.tag(slot).Load(), old.idAt(slot)
	var key string
	if old.keys != nil {
		key = old.keys[slot]
	}
	to := b.insert(tag^t.registry.at(id).tag, tag, id, key)
	for i := int(b.words) - 1; i > 0; i-- {
		b.word(to, i).Store(old.word(slot, i).Load())
	}
	state := old.word(slot, 0).Swap(algo.Mark) // the mark itself, if somebody has the state
	if x := old.spilledAt(slot); x != nil {
		b.setSpilled(to, x)
		return
	}
	b.word(to, 0).Store(state)
}

// raise makes a figure at least n.
func raise(figure *atomic.Int64, n int64) {
	for {
		was := figure.Load()
		if was >= n || figure.CompareAndSwap(was, n) {
			return
		}
	}
}
