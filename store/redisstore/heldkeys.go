package redisstore

import (
	"hash/maphash"
	"sync/atomic"
)

// heldKeys is a lossy cache of rows that had open holds: take.lua cannot serve them, so their
// requests are sent to small.lua directly. A wrong entry costs no more than one script instead of
// the other.
type heldKeys struct {
	seed  maphash.Seed // set once
	marks [1024]atomic.Uint64
}

func newHeldKeys() *heldKeys { return &heldKeys{seed: maphash.MakeSeed()} }

// note records whether a row has open holds.
func (h *heldKeys) note(key string, held bool) {
	sum := maphash.String(h.seed, key) | 1 // 0 marks no row
	mark := &h.marks[sum>>1%uint64(len(h.marks))]
	switch {
	case held:
		mark.Store(sum)
	case mark.Load() == sum:
		mark.Store(0)
	}
}

// has says whether a row had open holds when it was last used.
func (h *heldKeys) has(key string) bool {
	sum := maphash.String(h.seed, key) | 1
	return h.marks[sum>>1%uint64(len(h.marks))].Load() == sum
}
