package respapi

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Table is a Throttler in memory.
//
// A row of a memstore.Table refers to its limits by a number of 16 bits, which is enough for all
// limits of a configuration. Here every call may have other parameters, so a row contains its
// own. It has 64 bytes, the size of a cache line, and there is no table of parameters to grow.
//
// # Layout
//
// A key's hash selects a shard of 64 slots and a slot in it; the row is in that slot or in the
// next free one (linear probing). All slots, 1.6 for each key, are allocated at the start; the
// operating system commits their memory on first use. So the address of a row is known without
// a lock, and the rows of a pipeline are prefetched together before the first decision. Tags
// are written atomically only for this prefetch; all other accesses hold the shard's lock.
//
// # Eviction
//
// The table is full when it has maxKeys rows. Then a new key replaces a row of its shard that has
// nothing in use or, if there is none, the row with the least share of its limit in use, but
// never a row that would refuse a unit now. If no row can be evicted, the key takes a free slot,
// and if there is none, new keys of the shard share one row, whatever their parameters, until
// that row is unused.
//
// Keys are identified by a seeded 64-bit hash.
type Table struct {
	now     func() weir.Instant // set by newTable, like everything up to rows
	maxKeys int64
	seed    maphash.Seed
	spread  maphash.Seed // for clients' names
	rules   *ruleCache
	shards  []shard
	rows    []row // by shard and slot

	keys       atomic.Int64
	evicted    atomic.Uint64
	forgiven   atomic.Uint64
	overflowed atomic.Uint64
}

var _ Throttler = (*Table)(nil)

// DefaultMaxKeys is the default capacity of a Table.
const DefaultMaxKeys = 100_000

const (
	shardSlots = 64 // slots of a shard
	shardRows  = 40 // average rows per shard in a full table, so that few shards are full
)

// NewTable returns an empty table for maxKeys keys, 0 meaning DefaultMaxKeys. It can have more: see
// Table. A nil clock is weir.Now.
func NewTable(maxKeys int, now func() weir.Instant) (*Table, error) {
	if maxKeys < 0 {
		return nil, fmt.Errorf("respapi: max keys %d must not be negative", maxKeys)
	}
	if maxKeys == 0 {
		maxKeys = DefaultMaxKeys
	}
	if now == nil {
		now = weir.Now
	}
	return newTable(maxKeys, (maxKeys+shardRows-1)/shardRows, now), nil
}

func newTable(maxKeys, shards int, now func() weir.Instant) *Table {
	return &Table{
		now: now, maxKeys: int64(maxKeys), seed: maphash.MakeSeed(), spread: maphash.MakeSeed(), rules: newRuleCache(),
		shards: make([]shard, shards), rows: make([]row, shards*shardSlots),
	}
}

// TableStats are statistics of a table.
type TableStats struct {
	Keys       int
	Evicted    uint64 // rows that were replaced
	Forgiven   uint64 // units that evicted rows had in use, approximately
	Overflowed uint64 // calls that were charged to a shared row
}

// Stats returns the table's statistics.
func (t *Table) Stats() TableStats {
	return TableStats{Keys: int(t.keys.Load()), Evicted: t.evicted.Load(), Forgiven: t.forgiven.Load(), Overflowed: t.overflowed.Load()}
}

// Shard i has the slots from i*shardSlots to (i+1)*shardSlots-1.
type shard struct {
	mu       sync.Mutex // guards the fields below, and the slots
	last     int64      // the latest instant of a decision
	used     int        // slots with a row
	overflow state      // shared by keys for which there was no slot
}

// Tags of slots without a row.
const (
	free    uint64 = iota // never used: a probe for a key ends here
	removed               // the row was evicted: a probe continues
	firstTag
)

// A row is a slot of the table.
type row struct {
	tag uint64 // the hash of its key, free or removed
	state
	_ [2]uint64 // padding to a cache line
}

// A state is the limit status of a key. The zero state is that of an unused key.
type state struct {
	tat    uint64 // in ticks of params
	params Params // of the last charge
	reset  int64  // when all units are available again
}

// ThrottleEach implements Throttler. All requests are decided at one instant.
func (t *Table) ThrottleEach(_ context.Context, client string, requests []ThrottleRequest) {
	spread := maphash.String(t.spread, client)
	var last *rule // usually all commands of a pipeline have the same
	for i := range requests {
		a := &requests[i]
		if len(a.Key) > weir.MaxKeyBytes {
			a.Err = storeapi.CheckKey(string(a.Key))
			continue
		}
		if last == nil || last.params != a.Params {
			last, a.Err = t.rules.get(a.Params)
		}
		a.rule = last
		a.hash = max(firstTag, maphash.Bytes(t.seed, a.Key)^spread)
	}
	if len(requests) > 1 {
		t.fetch(requests)
	}
	now := int64(t.now())
	for i := range requests {
		if requests[i].Err == nil {
			t.decide(&requests[i], now)
		}
	}
}

// fetch prefetches the shards and rows of the requests: no load depends on another one, so the
// processor overlaps them. Most rows are in their first slot or in the next one.
func (t *Table) fetch(requests []ThrottleRequest) {
	for i := range requests {
		s := t.shardOf(requests[i].hash)
		at := home(requests[i].hash)
		atomic.LoadUint64(&t.rows[s*shardSlots+at].tag)
		atomic.LoadUint64(&t.rows[s*shardSlots+(at+1)%shardSlots].tag)
		atomic.LoadInt64(&t.shards[s].last)
	}
}

// shardOf returns the number of a key's shard.
func (t *Table) shardOf(h uint64) int {
	s, _ := bits.Mul64(h, uint64(len(t.shards)))
	return int(s)
}

// home returns the first slot of a key in its shard. It uses other bits than shardOf.
func home(h uint64) int { return int(h % shardSlots) }

// decide decides a request, and writes the row if it is admitted.
func (t *Table) decide(a *ThrottleRequest, now int64) {
	number := t.shardOf(a.hash)
	s := &t.shards[number]
	s.mu.Lock()
	defer s.mu.Unlock() // deferred, since the server survives a panic
	now = max(s.last, now)
	atomic.StoreInt64(&s.last, now)
	place := t.findLocked(number, a.hash)
	from := &s.overflow // the initial state of a new key: unused, unless other keys of its shard share the overflow row
	if place != nil {
		from = place
	}
	tat, err := t.under(a.rule, from, now)
	if err != nil {
		a.Err = err
		return
	}
	d, next := a.rule.decide(tat, now, a.Quantity)
	if a.Decision = d; next == tat {
		return
	}
	if place == nil {
		place = t.placeLocked(number, a.hash, now)
	}
	place.tat, place.params, place.reset = next, a.rule.params, now+int64(d.ResetAfter)
}

// findLocked returns a key's row, or nil if it has none.
func (t *Table) findLocked(shard int, h uint64) *state {
	rows := t.rows[shard*shardSlots:][:shardSlots]
	for i := range shardSlots {
		r := &rows[(home(h)+i)%shardSlots]
		switch r.tag {
		case h:
			return &r.state
		case free:
			return nil
		}
	}
	return nil
}

// under converts a state to the parameters of r: the units in use stay the same, rounded up to
// the next tick.
func (t *Table) under(r *rule, from *state, now int64) (uint64, error) {
	if from.params == r.params {
		return from.tat, nil
	}
	if from.reset <= now {
		return 0, nil
	}
	old, err := t.rules.get(from.params)
	if err != nil {
		return 0, err // impossible: the parameters were valid when the row was written
	}
	l := algo.NewLedger([]algo.Rule{&old.gcra}, now)
	l.SetState(0, algo.State{A: from.tat})
	if err := l.Set(now, []algo.Rule{&r.gcra}, []int{0}); err != nil {
		return 0, &ParamsError{"invalid limit parameters: they cannot represent the units that the key has in use"}
	}
	return l.State(0).A, nil
}

// decide returns the decision for a state at now, and the next state: the same if nothing is
// charged.
func (r *rule) decide(tat uint64, now, quantity int64) (weir.Decision, uint64) {
	g := &r.gcra
	tick := g.Tick(now)
	wait := func(until uint64) time.Duration { return time.Duration(g.Wait(max(until, tick), tick, now)) }
	d := weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: g.Capacity(), Remaining: g.Room(tat, tick), ResetAfter: wait(tat)}
	switch {
	case quantity == 0:
		return d, tat
	case quantity > g.Capacity():
		d.Allowed, d.Reason, d.RetryAfter = false, weir.TooCostly, weir.Never
		return d, tat
	}
	next, ok := g.Step(tat, tick, quantity)
	if !ok {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.Exhausted, wait(g.RetryTick(next))
		return d, tat
	}
	d.Remaining, d.ResetAfter = g.Room(next, tick), wait(next)
	return d, next
}

// placeLocked returns the state for a new key, which may be the overflow row.
func (t *Table) placeLocked(shard int, h uint64, now int64) *state {
	s := &t.shards[shard]
	if t.keys.Load() >= t.maxKeys || s.used == shardSlots {
		t.evictLocked(shard, now)
	}
	if s.used == shardSlots {
		t.overflowed.Add(1)
		return &s.overflow
	}
	s.used++
	t.keys.Add(1)
	at := shard*shardSlots + home(h)
	for t.rows[at].tag >= firstTag { // at least one slot has no row
		if at++; at%shardSlots == 0 {
			at -= shardSlots
		}
	}
	atomic.StoreUint64(&t.rows[at].tag, h)
	return &t.rows[at].state
}

// evictLocked removes the row with the least share of its limit in use, if one can be evicted.
func (t *Table) evictLocked(shard int, now int64) {
	victim, least := -1, math.Inf(1)
	for at := shard * shardSlots; at < (shard+1)*shardSlots; at++ {
		if t.rows[at].tag < firstTag {
			continue
		}
		if share := t.rows[at].share(now); share < least {
			victim, least = at, share
		}
	}
	if victim < 0 {
		return
	}
	atomic.StoreUint64(&t.rows[victim].tag, removed)
	t.shards[shard].used--
	t.keys.Add(-1)
	t.evicted.Add(1)
	t.forgiven.Add(uint64(math.Round(t.rows[victim].inUse(now))))
}

// share returns the share of its limit that a row has in use: 0 if nothing is in use, and +Inf
// if it would refuse one unit.
func (s *state) share(now int64) float64 {
	used, all := s.inUse(now), float64(s.params.Burst)
	if used > 0 && used+1 > all {
		return math.Inf(1)
	}
	return used / all
}

// inUse returns how many units a row has in use, in floating point: an approximation for
// eviction and statistics.
func (s *state) inUse(now int64) float64 {
	owed := float64(max(0, s.reset-now))
	return owed * float64(s.params.Count) / (float64(s.params.Period) * 1e9)
}
