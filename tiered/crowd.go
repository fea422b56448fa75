package tiered

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// crowd counts how often keys were asked for that have no entry yet. Most keys of a large crowd
// are asked for so rarely that nothing is worth knowing of them; an entry for each would
// cost more than the decision. So a key has to be asked for crowdCalls times within a lease's
// time to get one.
//
// It is an array of words that keys share by their hash:
//
//	since when, in ms (32) | part of the hash (24) | calls (8)
//
// A key that finds its own part counts on. One that finds another's takes a call from it,
// and the word once that has none left: the other is asked for less often, then. Words are
// replaced by compare-and-swap, and who comes second has not been counted. That is all the
// same: who is asked for often is counted soon enough.
type crowd struct{ words [1 << 16]atomic.Uint64 }

// crowdCalls is how many calls are counted here: half of those that a lease takes.
const crowdCalls = leastCalls / 2

// came counts a call for a key. It returns how many there were and since when.
func (c *crowd) came(hash uint64, now weir.Instant, ttl time.Duration) (calls int, since weir.Instant) {
	var (
		word = &c.words[hash%uint64(len(c.words))]
		part = hash >> 40
		ms   = uint32(time.Duration(now) / time.Millisecond)
		old  = word.Load()
		age  = time.Duration(ms-uint32(old>>32)) * time.Millisecond
		n    = old & 0xff
	)
	switch {
	case n == 0 || age > ttl: // nobody's, or of one who came long ago
		word.Store(uint64(ms)<<32 | part<<8 | 1)
		return 1, now
	case old>>8&0xffffff != part:
		word.CompareAndSwap(old, old-1)
		return 0, now
	case n < 0xff:
		word.CompareAndSwap(old, old+1)
	}
	return int(n) + 1, now.Add(-age)
}

// worthEntry says whether a charge's key has an entry, or has now got one because it is asked for
// often.
func (t *Limiter) worthEntry(c *call) bool {
	if c.entry != nil {
		return true
	}
	calls, since := t.crowd.came(c.hash, c.now, t.config.LeaseTTL)
	if calls < crowdCalls || !c.needEntry(t) {
		return false
	}
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	if m := &c.entry.demand; m.calls == 0 {
		before := calls - 1 // this one is counted by who asked
		m.since, m.calls, m.units = since, before, int64(before)*max(1, c.cost)
	}
	return true
}
