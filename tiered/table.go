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

// An entry is this node's state of one key under policies of one name: a denial, a lease, an
// allowance with its unsynced usage, and the last known state in the store.
//
// A goroutine may use an entry after it was evicted: the limiter lists leases and usage
// separately and does not find them through the table. The key may have a second entry
// then, which only means that this node caches less.
type entry struct {
	history *policyHistory // set by add, like the next two
	key     string
	hash    uint64
	next    atomic.Pointer[entry] // in the bucket; written under the table's mu
	used    atomic.Bool           // since eviction last visited it

	denial atomic.Pointer[denial]
	lease  atomic.Pointer[lease]

	mu         sync.Mutex // guards the fields below
	state      keyState
	demand     demand
	allowance  allowance
	usagePlan  *plan  // plan under which the last usage was recorded
	gone       bool   // it was evicted, and gets no more allowance
	unreadable bool   // the store could not read the state of the key, and that was reported
	seeded     uint64 // number of the outage, from 1, for which the share was last seeded from state
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

// A table is a hash table of entries with a fixed number of buckets and chaining. Lookups
// take no lock: an entry that is being removed still links to the next. Entries are added and
// removed under mu.
type table struct {
	seed  maphash.Seed // set by newTable, like the next three
	heads []atomic.Pointer[entry]
	mask  uint64
	max   int64

	// changes counts the known changes of state, for all keys with equal low bits of the
	// hash. See generation.
	changes [4096]atomic.Uint64

	len atomic.Int64 // written under mu

	mu   sync.Mutex // guards the field below, and writes to chains
	hand uint64     // bucket at which eviction continues
}

func newTable(maxKeys int) *table {
	n := 1 << bits.Len(uint(maxKeys-1))
	return &table{seed: maphash.MakeSeed(), heads: make([]atomic.Pointer[entry], n), mask: uint64(n - 1), max: int64(maxKeys)}
}

// hash returns the hash of a key under a policy name.
func (t *table) hash(ph *policyHistory, key string) uint64 {
	return maphash.String(t.seed, key) ^ ph.salt
}

// find returns the entry, or nil.
func (t *table) find(ph *policyHistory, key string, h uint64) *entry {
	for e := t.heads[h&t.mask].Load(); e != nil; e = e.next.Load() {
		if e.hash == h && e.history == ph && e.key == key {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e
		}
	}
	return nil
}

// add finds the entry or adds one. It returns nil if the table is full and no entry can be
// evicted.
func (t *table) add(ph *policyHistory, key string, h uint64) *entry {
	if e := t.find(ph, key, h); e != nil {
		return e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.find(ph, key, h); e != nil {
		return e
	}
	if t.len.Load() >= t.max && !t.evictLocked() {
		return nil
	}
	e := &entry{history: ph, key: strings.Clone(key), hash: h} // the caller owns key
	e.used.Store(true)
	head := &t.heads[h&t.mask]
	e.next.Store(head.Load())
	head.Store(e)
	t.len.Add(1)
	return e
}

// evictLocked evicts an idle entry that was not used since the hand last visited it. It visits a
// limited number of buckets, to bound its cost when the table is full.
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
// before the store is called, and a denial is cached only if the generation is still the same
// when the reply arrives: otherwise the store may have decided before the change.
//
// An admitted charge changes the state, and is counted when its reply arrives. A settle, a
// reset or a debit is counted twice, before it is sent and after it has ended, because it may
// be executed at any time in between.
type generation struct{ epoch, changes uint64 }

func (t *table) generation(ph *policyHistory, h uint64) generation {
	return generation{ph.epoch.Load(), t.changes[h%uint64(len(t.changes))].Load()}
}

// changed counts a change, and returns the new count.
func (t *table) changed(h uint64) uint64 { return t.changes[h%uint64(len(t.changes))].Add(1) }

// after returns the instant d after now, or farAway after now if d is longer or Never.
func after(now weir.Instant, d time.Duration) weir.Instant {
	if d < 0 || d > farAway {
		d = farAway
	}
	return now.Add(d)
}
