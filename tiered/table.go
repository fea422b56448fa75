package tiered

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// An entry is what this node knows of one key under policies of one name: that it is
// denied, units leased for it, a copy of its state, what the store has yet to be told.
//
// Who holds an entry may use it also after it was evicted: leases and debts are
// listed by the limiter, not found by way of the table. A new entry may stand beside
// it then, which costs only knowledge: of one that is gone nobody takes a turn, and no copy
// is used.
type entry struct {
	family *family // set by add, like the next two
	key    string
	hash   uint64
	next   atomic.Pointer[entry] // in the bucket; written under the table's mu
	used   atomic.Bool           // since eviction last came by

	denial atomic.Pointer[denial]
	lease  atomic.Pointer[lease]
	debt   debt
	copied copied

	mu       sync.Mutex // guards the fields below
	standing standing
	demand   demand
	turn     turn
	gone     bool   // it was evicted
	seeded   uint64 // the outage for which the share was adapted to standing
}

// A table finds entries. It is a hash table of fixed size with chains. Finding takes
// no lock: an entry that is being removed still leads on to the next. Adding and
// removing is done under mu.
type table struct {
	seed  maphash.Seed // set by newTable, like the next three
	heads []atomic.Pointer[entry]
	mask  uint64
	max   int64

	// drops counts, for all keys whose hash ends alike, how often one was reset or
	// given back to. See moment.
	drops [1024]atomic.Uint64

	// strangers counts, for the same keys, how many charges the store is being asked for
	// without an entry, for which there was no room.
	strangers [1024]atomic.Int64

	mu   sync.Mutex // guards the fields below, and writing to chains
	len  int64
	hand uint64 // where eviction goes on
}

func newTable(maxKeys int) *table {
	n := 1 << bits.Len(uint(maxKeys-1))
	return &table{seed: maphash.MakeSeed(), heads: make([]atomic.Pointer[entry], n), mask: uint64(n - 1), max: int64(maxKeys)}
}

// hash returns where f's key belongs.
func (t *table) hash(f *family, key string) uint64 { return maphash.String(t.seed, key) ^ f.salt }

// find returns the entry, or nil.
func (t *table) find(f *family, key string, h uint64) *entry {
	for e := t.heads[h&t.mask].Load(); e != nil; e = e.next.Load() {
		if e.hash == h && e.family == f && e.key == key {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e
		}
	}
	return nil
}

// add finds the entry or makes one. It returns nil if there is no room and nothing can
// go.
func (t *table) add(f *family, key string, h uint64) *entry {
	if e := t.find(f, key, h); e != nil {
		return e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.find(f, key, h); e != nil {
		return e
	}
	if t.len >= t.max && !t.evictLocked() {
		return nil
	}
	e := &entry{family: f, key: cloneKey(key), hash: h}
	e.used.Store(true)
	head := &t.heads[h&t.mask]
	e.next.Store(head.Load())
	head.Store(e)
	t.len++
	return e
}

// evictLocked removes an entry that was not used since the hand last came by, and that
// is idle. It looks at so many buckets only, lest a full table be slow.
func (t *table) evictLocked() bool {
	const buckets = 64
	for range buckets {
		link := &t.heads[t.hand&t.mask]
		t.hand++
		for e := link.Load(); e != nil; e = link.Load() {
			if !e.used.Swap(false) && e.retire() {
				link.Store(e.next.Load())
				t.len--
				return true
			}
			link = &e.next
		}
	}
	return false
}

// A moment is how many changes a key had seen when the store was asked: an answer says
// nothing about what is true after the next.
type moment struct{ epoch, drops uint64 }

func (t *table) moment(f *family, h uint64) moment {
	return moment{f.epoch.Load(), t.drops[h%uint64(len(t.drops))].Load()}
}

// dropped notes a change of a key.
func (t *table) dropped(h uint64) { t.drops[h%uint64(len(t.drops))].Add(1) }

// strange returns how many charges of keys like one the store is being asked for without an entry.
func (t *table) strange(h uint64) *atomic.Int64 { return &t.strangers[h%uint64(len(t.strangers))] }

// size returns how many entries there are.
func (t *table) size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.len
}

// cloneKey copies a key, which belongs to the caller.
func cloneKey(key string) string { return strings.Clone(key) }

// standing is what the store last said of a key.
type standing struct {
	limits    uint64 // the numbers it was said of; 0 if nothing was said
	by        uint8
	remaining int64
	limit     int64
	resetAt   weir.Instant
	at        weir.Instant
}

// standingOf returns the standing of a decision that came at now.
func standingOf(pl *plan, d weir.Decision, now weir.Instant) standing {
	return standing{limits: pl.limits, by: d.By, remaining: d.Remaining, limit: d.Limit, resetAt: after(now, d.ResetAfter), at: now}
}

// after returns the instant d after now; Never is far away.
func after(now weir.Instant, d time.Duration) weir.Instant {
	if d < 0 || d > farAway {
		d = farAway
	}
	return now.Add(d)
}
