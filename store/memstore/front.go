package memstore

import (
	"sync/atomic"
	"unsafe"
)

// A front is what the fast path reads of a shard: where the rows of one word are
// and how many slots there are, in 16 bytes, so that the fronts of ten million keys
// fit a processor's cache and a decision waits for memory once, at the row.
//
// # Protocol
//
// The two words must belong together: slots of one block with the rows of another
// would lead beyond its end. The holder of the shard's lock writes them in the
// order shape = 0, rows, shape, and every shape has another version. Readers load
// shape, rows, shape: if both shapes are equal and not zero, no block was put in
// between, and rows is the block of that shape. Otherwise they go to the lock.
//
//	shape: version (32) | slots (32)
//
// A version comes again after 2^32 blocks of one shard; a reader would have to
// stall between two loads for exactly as many.
type front struct {
	shape atomic.Uint64
	rows  unsafe.Pointer // *slot, the first of the block's; accessed atomically
}

// slot is a slot of a block of one word per row.
type slot struct{ tag, word atomic.Uint64 }

const slotBytes = unsafe.Sizeof(slot{})

// set points the front to a block of one word per row.
func (f *front) set(b *block) {
	version := f.shape.Load()>>32 + 1
	f.shape.Store(0)
	atomic.StorePointer(&f.rows, unsafe.Pointer(unsafe.SliceData(b.rows)))
	f.shape.Store(version<<32 | uint64(b.slots))
}

// find returns the state word of a tag, or nil if there is none or a block is
// being put in.
func (f *front) find(h, tag uint64) *atomic.Uint64 {
	shape := f.shape.Load()
	rows := atomic.LoadPointer(&f.rows)
	if shape == 0 || f.shape.Load() != shape {
		return nil
	}
	slots := int(uint32(shape))
	for i := start(h, slots); ; {
		s := (*slot)(unsafe.Add(rows, uintptr(i)*slotBytes)) // i < slots, and there are that many
		switch s.tag.Load() {
		case tag:
			return &s.word
		case empty:
			return nil
		}
		if i++; i == slots {
			i = 0
		}
	}
}

// fetch loads what find looks at first, so that the processor has it near.
func (f *front) fetch(h uint64) {
	shape := f.shape.Load()
	rows := atomic.LoadPointer(&f.rows)
	if shape == 0 || f.shape.Load() != shape {
		return
	}
	i := start(h, int(uint32(shape)))
	(*slot)(unsafe.Add(rows, uintptr(i)*slotBytes)).tag.Load() // as in find
}
