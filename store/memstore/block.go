package memstore

import (
	"sync/atomic"

	"github.com/weirlimit/weir/algo"
)

// A block is the memory of a shard's rows: open addressing with linear probing
// over slots of 1 + words words each.
//
//	slot: tag | state word | … | state word
//
// A tag is the key's hash, mixed with the limits that the state was written
// under (see limits.tag), so that whoever finds its tag has found its key under
// its limits. The tags empty and retired stand for no row.
//
// # Protocol
//
// Structure changes under the shard's lock only: inserting, retiring and
// rebuilding. Deciding does not need it where a row's state is one word: find the
// tag, load the word, compute the next one, compare-and-swap. Two things make
// that safe.
//
// The mark. While the state word is algo.Mark, the state is not in it: the holder
// of the shard's lock has it, or it is spilled, or the row was removed. Whoever reads the
// mark, or loses the swap to it, goes to the lock. The holder of the lock takes
// a state with Swap(mark) and gives it back with Store.
//
// A slot serves one tag in its life. A retired slot keeps the mark for ever and
// is never used again, and so is every slot of a block that was rebuilt. So a
// caller who stalls between finding its row and swapping cannot hit what came
// after: if the swap succeeds, the word was its key's, under its limits, and in
// force. New tags go into empty slots; when those run short, the rows move to a
// new block, and the collector frees the old one once nobody looks at it any
// more. It is the grace period that other designs keep books for.
//
// A tag is published last, after its state, key and id.
type block struct {
	rows  []atomic.Uint64 // set by newBlock, like the next three
	keys  []string        // by slot, if the table keeps full keys; written before the tag
	slots uint32
	words uint32 // state words per slot

	// The rest belongs to the holder of the shard's lock.
	used uint32 // slots that are not empty
	live uint32 // slots with a row
	id   uint16 // the limits of every row, unless rare.ids has them
	rare *rare  // nil if there is nothing in it
}

// rare is what few blocks need.
type rare struct {
	ids     []uint16         // by slot, if rows are written under different limits
	spilled map[int]*spilled // by slot
}

// A spilled is the state of a row that does not fit its words, because the row has reservations
// open, or a log.
type spilled struct {
	ledger *algo.Ledger
	taken  bool // a lock session has it
}

const (
	empty   uint64 = iota
	retired        // there was a row here
	firstTag
)

// noRows is what an empty shard has, so that nobody has to check.
var noRows = newBlock(1, groupSlots, false)

func (b *block) isNoRows() bool { return &b.rows[0] == &noRows.rows[0] }

func newBlock(words, slots int, keepKeys bool) block {
	b := block{
		rows:  make([]atomic.Uint64, slots*(1+words)),
		slots: uint32(slots),
		words: uint32(words),
	}
	if keepKeys {
		b.keys = make([]string, slots)
	}
	return b
}

// ladder is the sizes in bytes that the rows of a block may have: steps of an
// eighth to a third, so that a shard never has much more than it needs, and sizes
// that Go's allocator has exactly.
var ladder = []int{
	64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792,
	2048, 2304, 2688, 3072, 3456, 4096, 4864, 5376, 6144, 6528, 6784, 8192, 9472, 10240, 10880, 12288, 13568, 14336, 16384,
}

// slotsFor returns how many slots suit n rows: enough for them and a tenth more
// before the block is full.
func slotsFor(words, n int) int {
	n += n/10 + 1
	perSlot := 8 * (1 + words)
	for _, size := range ladder {
		slots := size / perSlot / groupSlots * groupSlots
		if slots > 0 && fullAt(slots) >= n {
			return slots
		}
	}
	return (n + n/6 + groupSlots) / groupSlots * groupSlots
}

// fullAt returns how many of so many slots may be used: seven eighths, which
// keeps probes short, and never all, which ends them.
func fullAt(slots int) int { return slots - max(1, slots/8) }

func (b *block) full() bool { return int(b.used) >= fullAt(int(b.slots)) }

// start is where the probe for a hash begins: at the beginning of a group, which
// for rows of one word is a cache line, so that most probes end in the line they
// began in. The high bits of the hash have chosen the shard; the low ones choose
// the group.
func (b *block) start(h uint64) int { return start(h, int(b.slots)) }

func start(h uint64, slots int) int {
	return int(h&(1<<32-1)*uint64(slots/groupSlots)>>32) * groupSlots
}

const groupSlots = 4

// next is the slot after, the first again after the last.
func (b *block) next(slot int) int {
	if slot++; slot == int(b.slots) {
		return 0
	}
	return slot
}

func (b *block) tag(slot int) *atomic.Uint64 { return &b.rows[slot*int(1+b.words)] }

// word returns state word i of a slot.
func (b *block) word(slot, i int) *atomic.Uint64 { return &b.rows[slot*int(1+b.words)+1+i] }

// find returns the slot of a tag, or -1.
func (b *block) find(h, tag uint64, key string) int {
	for slot := b.start(h); ; slot = b.next(slot) {
		switch b.tag(slot).Load() {
		case tag:
			if b.keys == nil || b.keys[slot] == key {
				return slot
			}
		case empty:
			return -1
		}
	}
}

// idAt returns the id of a row's limits.
func (b *block) idAt(slot int) uint16 {
	if b.rare != nil && b.rare.ids != nil {
		return b.rare.ids[slot]
	}
	return b.id
}

func (b *block) spilledAt(slot int) *spilled {
	if b.rare == nil {
		return nil
	}
	return b.rare.spilled[slot]
}

// setSpilled sets the spilled state of a row, or removes it if x is nil.
func (b *block) setSpilled(slot int, x *spilled) {
	if x == nil {
		if b.rare != nil {
			delete(b.rare.spilled, slot)
		}
		return
	}
	b.needRare()
	if b.rare.spilled == nil {
		b.rare.spilled = map[int]*spilled{}
	}
	b.rare.spilled[slot] = x
	b.word(slot, 0).Store(algo.Mark)
}

func (b *block) needRare() {
	if b.rare == nil {
		b.rare = &rare{}
	}
}

// insert takes an empty slot for a tag that is not there. Its state is the mark
// until the caller stores one. The block must not be full.
func (b *block) insert(h, tag uint64, id uint16, key string) int {
	slot := b.start(h)
	for b.tag(slot).Load() != empty {
		slot = b.next(slot)
	}
	b.setID(slot, id)
	if b.keys != nil {
		b.keys[slot] = key
	}
	b.word(slot, 0).Store(algo.Mark)
	b.tag(slot).Store(tag)
	b.used++
	b.live++
	return slot
}

func (b *block) setID(slot int, id uint16) {
	if b.live == 0 && (b.rare == nil || b.rare.ids == nil) {
		b.id = id
	}
	if id == b.idAt(slot) && (b.rare == nil || b.rare.ids == nil) {
		return
	}
	b.needRare()
	if b.rare.ids == nil {
		b.rare.ids = make([]uint16, b.slots)
		for i := range b.rare.ids {
			b.rare.ids[i] = b.id
		}
	}
	b.rare.ids[slot] = id
}

// retire ends a row. Its state must have been taken: the mark stays.
func (b *block) retire(slot int) {
	b.setSpilled(slot, nil)
	b.tag(slot).Store(retired)
	b.live--
}

// bytes returns how much memory the block takes, spilled states, full keys and, if it is part
// of its shard, itself aside.
func (b *block) bytes() int64 {
	n := int64(len(b.rows)) * 8
	if b.words > 1 {
		n += blockBytes
	}
	if b.rare != nil && b.rare.ids != nil {
		n += rareBytes + int64(len(b.rare.ids))*2
	}
	return n
}

const (
	blockBytes = 80
	rareBytes  = 32
)
