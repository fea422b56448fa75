package tiered

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// An admissionSketch counts calls of keys that have no entry in the table yet. With many
// keys, most of them are used so rarely that an entry would cost more than the decisions it
// saves. So a key is admitted to the table only after sketchCalls calls within
// Config.LeaseTTL.
//
// The sketch is an array of slots. A key's hash selects its slot, which holds
//
//	start of counting, in ms (32) | tag, a part of the hash (24) | calls (8)
//
// If the tag is the key's own, its call is counted. Otherwise the count of the other key is
// decremented, and a key takes over a slot whose count is 0. So frequent keys displace rare
// ones. Slots are updated by compare-and-swap without a retry: a call that loses the race is not
// counted, which delays the admission of a busy key by a few calls at most.
type admissionSketch struct{ slots [1 << 16]atomic.Uint64 }

// sketchCalls is how many calls admit a key to the table: half of those that a lease requires.
const sketchCalls = leastCalls / 2

// observe counts a call of a key. It returns the number of calls, and when counting began.
func (s *admissionSketch) observe(hash uint64, now weir.Instant, ttl time.Duration) (calls int, since weir.Instant) {
	var (
		slot = &s.slots[hash%uint64(len(s.slots))]
		tag  = hash >> 40
		ms   = uint32(time.Duration(now) / time.Millisecond)
		old  = slot.Load()
		age  = time.Duration(ms-uint32(old>>32)) * time.Millisecond
		n    = old & 0xff
	)
	switch {
	case n == 0 || age > ttl: // the slot is free, or its count has expired
		slot.Store(uint64(ms)<<32 | tag<<8 | 1)
		return 1, now
	case old>>8&0xffffff != tag:
		slot.CompareAndSwap(old, old-1)
		return 0, now
	case n < 0xff:
		slot.CompareAndSwap(old, old+1)
	}
	return int(n) + 1, now.Add(-age)
}

// worthEntry reports whether the key of a charge has an entry. It adds one if the key is used
// often enough.
func (t *Limiter) worthEntry(c *call) bool {
	if c.entry != nil {
		return true
	}
	calls, since := t.sketch.observe(c.hash, c.now, t.config.LeaseTTL)
	if calls < sketchCalls || !c.needEntry(t) {
		return false
	}
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	if m := &c.entry.demand; m.calls == 0 {
		before := calls - 1 // worthLeasing counts this one
		m.since, m.calls, m.units = since, before, int64(before)*max(1, c.cost)
	}
	return true
}
