package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/mono"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Config configures a Table.
type Config struct {
	// MaxKeys bounds the pairs of policy and key that have a row of their own.
	// The default is 100,000, which take about 2 MB.
	MaxKeys int

	// MaxHolds bounds the open reservations. The default is 100,000.
	MaxHolds int

	// KeepKeys stores whole keys, so that two keys never collide; see the package
	// documentation for the chance of a collision without it. It costs the key's
	// length and about 32 bytes per row, and the garbage collector scans them.
	KeepKeys bool

	// Snapshots lets the table be written to a file and restored from it. Its
	// keys are then hashed by SipHash instead of maphash.
	Snapshots bool

	// Now is the clock. The default is weir.Now. The table's time never goes
	// back, whatever the clock does.
	Now func() weir.Instant
}

// The defaults of a Config.
const (
	DefaultMaxKeys  = 100_000
	DefaultMaxHolds = 100_000
)

// Table is a weir.Limiter in memory.
type Table struct {
	maxKeys  int64 // set by New or ReadSnapshot, like the next seven
	maxHolds int64
	keepKeys bool
	clock    func() weir.Instant // nil = weir.Now
	epoch    weir.Instant
	floor    int64 // the table's time is not before this; see startAt
	hash     hasher
	shift    uint8 // what leaves the shard's number of a hash

	fronts   []front // by shard
	shards   []shard
	bindings [cached]atomic.Pointer[binding] // by Policy.Serial; see resolve
	registry registry
	sessions sync.Pool // of *lockSession

	overflowMu sync.Mutex // guards all overflow rows; taken after shards' locks
	saving     sync.Mutex // held by Save

	latest atomic.Int64 // the greatest now that clock has returned, if not nil
	keys   atomic.Int64 // rows, and lock sessions that may make one
	holds  holdCount

	bytes        atomic.Int64
	evicted      atomic.Uint64
	forgiven     atomic.Uint64
	overflowHits atomic.Uint64
	mostMoved    atomic.Int64
}

var _ weir.Limiter = (*Table)(nil)

// New returns an empty table.
func New(c Config) (*Table, error) {
	if c.MaxKeys < 0 || c.MaxHolds < 0 {
		return nil, fmt.Errorf("memstore: max keys %d and max holds %d must not be negative", c.MaxKeys, c.MaxHolds)
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.MaxHolds == 0 {
		c.MaxHolds = DefaultMaxHolds
	}
	t := &Table{
		maxKeys:  int64(c.MaxKeys),
		maxHolds: int64(c.MaxHolds),
		keepKeys: c.KeepKeys,
		clock:    c.Now,
		hash:     newHasher(c.Snapshots),
	}
	t.sessions.New = func() any { return &lockSession{t: t} }
	t.registry.init()
	t.makeShards((c.MaxKeys + meanRows - 1) / meanRows)
	t.epoch = weir.Now()
	if c.Now != nil {
		t.epoch = c.Now()
	}
	return t, nil
}

// makeShards makes at least n shards, a power of two.
func (t *Table) makeShards(n int) {
	width := bits.Len(uint(n - 1))
	t.shift = uint8(64 - width)
	t.shards = make([]shard, 1<<width)
	t.fronts = make([]front, len(t.shards))
	for i := range t.shards {
		t.shards[i].index = i
		t.setBlock(&t.shards[i], noRows)
	}
	t.bytes.Store(int64(len(t.shards)) * shardBytes)
}

const shardBytes = 16 + 120

// now reads the clock. It never goes back: weir.Now does not by itself while a process
// lasts, and any other clock is held to it. Nor is it before what a snapshot was written at.
func (t *Table) now() weir.Instant {
	if t.clock == nil {
		return weir.Instant(max(mono.Now(), t.floor))
	}
	return t.otherNow()
}

func (t *Table) otherNow() weir.Instant {
	raise(&t.latest, int64(t.clock()))
	return weir.Instant(t.latest.Load())
}

// startAt lets the table's time stand still at an instant until the clock has reached it. It
// must be called before the table is used.
func (t *Table) startAt(at weir.Instant) {
	t.floor = int64(at)
	raise(&t.latest, int64(at))
}

// Take charges cost units to key, or refuses and charges none.
//
// It is one compare-and-swap, without a lock or an allocation, if the policy has
// one limit of GCRA, TokenBucket or FixedWindow or one DualWindow, the key has
// been seen before and no reservation is open on it.
func (t *Table) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if p == nil || uint64(cost) > uint64(weir.MaxCost) || len(key) > weir.MaxKeyBytes {
		return weir.Decision{}, storeapi.CheckCharge(p, key, cost)
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	n := t.lookup(p)
	if n == nil || !n.isGCRA || uint64(cost-1) >= uint64(n.gcra.Capacity()) {
		return t.takeAny(p, key, cost)
	}
	var h uint64
	if t.hash.keyed {
		h = sipHash13(t.hash.k0, t.hash.k1, key) ^ n.of.salt
	} else {
		h = maphash.String(t.hash.seed, key) ^ n.of.salt
	}
	// The clock is read before the row: reading it takes so long that another core would
	// have the cache line of a hot row again by then.
	var now int64
	if t.clock == nil {
		now = max(mono.Now(), t.floor)
	} else {
		now = int64(t.otherNow())
	}
	word := t.fronts[h>>t.shift].find(h, tagFor(h, n))
	if word == nil || t.keepKeys {
		return t.takeAny(p, key, cost)
	}
	// As takeWord, with the steps inlined and each Decision returned as it is
	// made: one that is passed up or filled in piece by piece costs half as much
	// again.
	tick := n.gcra.Tick(now)
	for {
		tat := word.Load()
		if tat == algo.Mark {
			if d, ok := t.takeBesideHolds(n, h, key, weir.Instant(now), cost); ok {
				return d, nil
			}
			return t.takeSlowly(0, []weir.Charge{{Policy: p, Key: key, Cost: cost}})
		}
		next, ok := n.gcra.Step(tat, tick, cost)
		if !ok {
			return weir.Decision{
				Reason: weir.Exhausted, Limit: n.gcra.Capacity(), Remaining: n.gcra.Room(tat, tick),
				RetryAfter: time.Duration(n.gcra.Wait(n.gcra.RetryTick(next), tick, now)),
				ResetAfter: time.Duration(n.gcra.Wait(max(tat, tick), tick, now)),
			}, nil
		}
		if word.CompareAndSwap(tat, next) {
			return weir.Decision{
				Allowed: true, Reason: weir.Admitted, Limit: n.gcra.Capacity(), Remaining: n.gcra.Room(next, tick),
				ResetAfter: time.Duration(n.gcra.Wait(next, tick, now)),
			}, nil
		}
	}
}

// find returns the state word of a key's row, or nil if it has none under n. It
// needs no lock. A table that keeps keys has to compare them, too.
func (t *Table) find(h uint64, n *compiledLimits, key string) *atomic.Uint64 {
	if !t.keepKeys {
		return t.fronts[h>>t.shift].find(h, tagFor(h, n))
	}
	b := t.shards[h>>t.shift].kept.Load()
	if b == nil {
		return nil
	}
	slot := b.find(h, tagFor(h, n), key)
	if slot < 0 {
		return nil
	}
	return b.word(slot, 0)
}

// takeAny is Take for everything else.
func (t *Table) takeAny(p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	n, err := t.resolve(p)
	if err != nil {
		return weir.Decision{}, err
	}
	if n.word != nil {
		h := t.hash.sum(key) ^ n.of.salt
		if word := t.find(h, n, key); word != nil {
			now := t.now()
			if d, ok := takeWord(n, word, now, cost); ok {
				return d, nil
			}
			if d, ok := t.takeBesideHolds(n, h, key, now, cost); ok {
				return d, nil
			}
		}
	}
	return t.takeSlowly(0, []weir.Charge{{Policy: p, Key: key, Cost: cost}})
}

// takeWord decides on the word of a key's row, or returns false if the state is not in it.
func takeWord(n *compiledLimits, word *atomic.Uint64, now weir.Instant, cost int64) (weir.Decision, bool) {
	for {
		was := word.Load()
		if was == algo.Mark {
			return weir.Decision{}, false
		}
		next, ok := n.word.Take(was, int64(now), cost)
		if next == was || word.CompareAndSwap(was, next) {
			return storeapi.Decision(n.word.Verdict(next, int64(now), cost, ok), now), true
		}
	}
}

// takeSlowly is Take under the lock, at now or, if that is 0, at the time when the lock was
// acquired.
func (t *Table) takeSlowly(now weir.Instant, charges []weir.Charge) (weir.Decision, error) {
	ls, err := t.enter(int64(now), charges)
	if err != nil {
		return weir.Decision{}, err
	}
	defer ls.leave()
	c := &ls.charges[0]
	if c.limits.policy.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	return ls.change(c, weir.TakeEach)
}
