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
// denied, units leased for it, its allowance, the usage that the store does not know of.
//
// Who holds an entry may use it also after it was evicted: leases and usage are listed by
// the limiter, not found by way of the table. A new entry may stand beside it then, which
// costs only knowledge.
type entry struct {
	history *policyHistory // set by add, like the next two
	key     string
	hash    uint64
	next    atomic.Pointer[entry] // in the bucket; written under the table's mu
	used    atomic.Bool           // since eviction last came by

	denial atomic.Pointer[denial]
	lease  atomic.Pointer[lease]

	mu         sync.Mutex // guards the fields below
	state      keyState
	demand     demand
	allowance  allowance
	usagePlan  *plan  // under which the last usage was recorded
	gone       bool   // it was evicted: no allowance any more
	unreadable bool   // the store could not read its state, and that was reported
	seeded     uint64 // the outage, from 1, for which the share was adapted to state
}

// retire evicts an entry that is idle.
func (e *entry) retire() bool {
	if !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	if e.lease.Load() != nil || !e.allowance.idle() {
		return false
	}
	e.allowance.void()
	e.gone = true
	return true
}

// A table finds entries. It is a hash table of fixed size with chains. Finding takes
// no lock: an entry that is being removed still leads on to the next. Adding and
// removing is done under mu.
type table struct {
	seed  maphash.Seed // set by newTable, like the next three
	heads []atomic.Pointer[entry]
	mask  uint64
	max   int64

	// changes counts, for all keys whose hash ends alike, what is known to have
	// changed their state. See generation.
	changes [4096]atomic.Uint64

	len atomic.Int64 // written under mu

	mu   sync.Mutex // guards the field below, and writing to chains
	hand uint64     // where eviction goes on
}

func newTable(maxKeys int) *table {
	n := 1 << bits.Len(uint(maxKeys-1))
	return &table{seed: maphash.MakeSeed(), heads: make([]atomic.Pointer[entry], n), mask: uint64(n - 1), max: int64(maxKeys)}
}

// hash returns where f's key belongs.
func (t *table) hash(f *policyHistory, key string) uint64 {
	return maphash.String(t.seed, key) ^ f.salt
}

// find returns the entry, or nil.
func (t *table) find(f *policyHistory, key string, h uint64) *entry {
	for e := t.heads[h&t.mask].Load(); e != nil; e = e.next.Load() {
		if e.hash == h && e.history == f && e.key == key {
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
func (t *table) add(f *policyHistory, key string, h uint64) *entry {
	if e := t.find(f, key, h); e != nil {
		return e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.find(f, key, h); e != nil {
		return e
	}
	if t.len.Load() >= t.max && !t.evictLocked() {
		return nil
	}
	e := &entry{history: f, key: strings.Clone(key), hash: h} // the key is the caller's
	e.used.Store(true)
	head := &t.heads[h&t.mask]
	e.next.Store(head.Load())
	head.Store(e)
	t.len.Add(1)
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
				t.len.Add(-1)
				return true
			}
			link = &e.next
		}
	}
	return false
}

// A generation counts the changes of a key's state that this node knows of. It is read
// before the store is called, and a refusal is cached only if it is still the same when
// the reply comes: otherwise the store may have decided before the change.
//
// A charge that was admitted changes the state, and is counted when the reply is here. A
// settle, a reset or a debit is counted twice: before it is sent and when it has
// ended, as nobody knows when in between it was carried out.
type generation struct{ epoch, changes uint64 }

func (t *table) generation(f *policyHistory, h uint64) generation {
	return generation{f.epoch.Load(), t.changes[h%uint64(len(t.changes))].Load()}
}

// changed counts a change, and returns the number of changes.
func (t *table) changed(h uint64) uint64 { return t.changes[h%uint64(len(t.changes))].Add(1) }

// after returns the instant d after now; Never is far away.
func after(now weir.Instant, d time.Duration) weir.Instant {
	if d < 0 || d > farAway {
		d = farAway
	}
	return now.Add(d)
}
