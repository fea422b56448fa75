package redisstore

import (
	"hash/maphash"
	"sync/atomic"
)

// heldKeys remembers, for some of the rows that were seen with open holds, that they had some:
// take.lua would only pass them on, so they are sent to small.lua at once. It may be wrong
// either way, which costs no more than one script instead of the other.
type heldKeys struct {
	seed  maphash.Seed // set once
	marks [1024]atomic.Uint64
}

func newHeldKeys() *heldKeys { return &heldKeys{seed: maphash.MakeSeed()} }

// note notes whether a row has open holds.
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

// has says whether a row had open holds when it was last seen.
func (h *heldKeys) has(key string) bool {
	sum := maphash.String(h.seed, key) | 1
	return h.marks[sum>>1%uint64(len(h.marks))].Load() == sum
}
