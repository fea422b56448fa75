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
// The rows of a memstore.Table refer to the numbers that they were written under by 16
// bits, which is enough for all that a configuration can say. Here every call may bring
// other numbers, so a row has its own. It takes 64 bytes, which is a line of the processor's
// cache, and no table of numbers grows beside it.
//
// # Where rows are
//
// A key's hash chooses a shard of 64 slots and a slot in it; the row is in that slot or in
// the next one that was free. All slots are there from the beginning, 1.6 for each key, as
// memory that costs nothing before it is used: so where a row must be is known without a
// lock, and a pipeline's rows are fetched together before the first of them is decided on.
// Tags are written atomically for that alone; whoever relies on them has the shard's lock.
//
// # When it is full
//
// It is full when it has MaxKeys rows. Then a new key takes the place of one of its shard
// that has nothing in use or, if there is none, of the one with the least share of its
// limit in use, but never of one that would refuse a unit now. If none can go, it takes a
// slot that is left, and if none is left, new keys of the shard share one row, whatever
// their numbers, until it is unused.
//
// Keys are told apart by a seeded hash of 64 bits.
type Table struct {
	now     func() weir.Instant // set by newTable, like all but the numbers at the end
	maxKeys int64
	seed    maphash.Seed
	spread  maphash.Seed // of clients' names
	rules   *rules
	shards  []shard
	rows    []row // by shard and slot

	keys       atomic.Int64
	evicted    atomic.Uint64
	forgiven   atomic.Uint64
	overflowed atomic.Uint64
}

var _ Throttler = (*Table)(nil)

// DefaultMaxKeys is how many keys a Table has, unless it is told otherwise.
const DefaultMaxKeys = 100_000

const (
	shardSlots = 64 // a shard has
	shardRows  = 40 // that it has on average in a full table, so that few shards are full
)

// NewTable returns an empty table for maxKeys keys, 0 meaning DefaultMaxKeys; Table tells when it
// has more. A nil clock is weir.Now.
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
		now: now, maxKeys: int64(maxKeys), seed: maphash.MakeSeed(), spread: maphash.MakeSeed(), rules: newRules(),
		shards: make([]shard, shards), rows: make([]row, shards*shardSlots),
	}
}

// TableStats is how a table stands.
type TableStats struct {
	Keys       int
	Evicted    uint64 // rows that went for others
	Forgiven   uint64 // units that those had in use, about
	Overflowed uint64 // calls that were charged to a shared row
}

// Stats returns how the table stands.
func (t *Table) Stats() TableStats {
	return TableStats{Keys: int(t.keys.Load()), Evicted: t.evicted.Load(), Forgiven: t.forgiven.Load(), Overflowed: t.overflowed.Load()}
}

// A shard is some of the slots: from its number times shardSlots.
type shard struct {
	mu       sync.Mutex // guards the fields below, and the slots
	last     int64      // the latest instant that it acted at
	used     int        // slots with a row
	overflow state      // shared by keys that found no place
}

// What tags are that are no key's.
const (
	free    uint64 = iota // since ever: who looks for a key need not look further
	removed               // there was a row
	firstTag
)

// A row is a slot's.
type row struct {
	tag uint64 // the hash of its key, or one of those above
	state
	_ [2]uint64 // so that it is one line of the cache
}

// A state is what is known of a key. The zero state is that of one that was never used.
type state struct {
	tat     uint64  // in ticks of the numbers
	numbers Numbers // under which it was written
	reset   int64   // from when it is as if unused
}

// ThrottleEach implements Throttler. All asks are decided at one instant.
func (t *Table) ThrottleEach(_ context.Context, client string, asks []Ask) {
	spread := maphash.String(t.spread, client)
	var last *rule // mostly a pipeline has one
	for i := range asks {
		a := &asks[i]
		if len(a.Key) > weir.MaxKeyBytes {
			a.Err = storeapi.CheckKey(string(a.Key))
			continue
		}
		if last == nil || last.numbers != a.Numbers {
			last, a.Err = t.rules.of(a.Numbers)
		}
		a.rule = last
		a.hash = max(firstTag, maphash.Bytes(t.seed, a.Key)^spread)
	}
	if len(asks) > 1 {
		t.fetch(asks)
	}
	now := int64(t.now())
	for i := range asks {
		if asks[i].Err == nil {
			t.decide(&asks[i], now)
		}
	}
}

// fetch has the processor fetch what the asks will need, all at once: nothing here waits
// for what was loaded. Most rows are where they may be first, or in the slot after.
func (t *Table) fetch(asks []Ask) {
	for i := range asks {
		s := t.shardOf(asks[i].hash)
		at := home(asks[i].hash)
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

// home returns the slot in its shard where a key's row is if nobody was there before. It is
// of other bits than the shard.
func home(h uint64) int { return int(h % shardSlots) }

// decide answers an ask, and writes the row of what was admitted.
func (t *Table) decide(a *Ask, now int64) {
	number := t.shardOf(a.hash)
	s := &t.shards[number]
	s.mu.Lock()
	defer s.mu.Unlock() // a connection survives a panic, and so must the shard
	now = max(s.last, now)
	atomic.StoreInt64(&s.last, now)
	place := t.findLocked(number, a.hash)
	from := &s.overflow // what a new key begins with: nothing, unless others of its shard share a row
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
	place.tat, place.numbers, place.reset = next, a.rule.numbers, now+int64(d.ResetAfter)
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

// under returns a row's state under r: the same units in use, to the next tick.
func (t *Table) under(r *rule, from *state, now int64) (uint64, error) {
	if from.numbers == r.numbers {
		return from.tat, nil
	}
	if from.reset <= now {
		return 0, nil
	}
	old, err := t.rules.of(from.numbers)
	if err != nil {
		return 0, err // it was a rule when the row was written
	}
	l := algo.NewLedger([]algo.Rule{&old.gcra}, now)
	l.SetState(0, algo.State{A: from.tat})
	if err := l.Set(now, []algo.Rule{&r.gcra}, []int{0}); err != nil {
		return 0, &NumbersError{"the key has more units in use than can be remembered under these numbers"}
	}
	return l.State(0).A, nil
}

// decide returns the decision on a state at now, and the state that follows: the same if
// nothing is charged.
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

// placeLocked returns where a new key's row goes.
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
	for t.rows[at].tag >= firstTag { // there is a slot without a row
		if at++; at%shardSlots == 0 {
			at -= shardSlots
		}
	}
	atomic.StoreUint64(&t.rows[at].tag, h)
	return &t.rows[at].state
}

// evictLocked removes the row that is missed least, unless none can go.
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

// share returns how much of its limit a row has in use: 0 if none, and infinitely much if
// it would refuse one unit.
func (s *state) share(now int64) float64 {
	used, all := s.inUse(now), float64(s.numbers.Burst)
	if used > 0 && used+1 > all {
		return math.Inf(1)
	}
	return used / all
}

// inUse returns how many units a row has in use. It reckons in floating point, which is good
// enough to choose by.
func (s *state) inUse(now int64) float64 {
	owed := float64(max(0, s.reset-now))
	return owed * float64(s.numbers.Count) / (float64(s.numbers.Period) * 1e9)
}
