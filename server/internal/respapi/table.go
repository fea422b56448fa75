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
)

// Table is a Throttler in memory.
//
// The rows of a memstore.Table refer to the numbers that they were written under by 16
// bits, which is enough for all that a configuration can say. Here every call may bring
// other numbers, so a row has its own. It takes 48 bytes, and no table of numbers grows
// beside it.
//
// It is full when it has MaxKeys rows, give or take a shard's. Then a new key takes the
// place of one that has nothing in use or, if its shard has none, of the one with the
// least share of its limit in use, but never of one that would refuse a unit now. If none
// can go, new keys of the shard share one row, whatever their numbers, until it is unused.
//
// Keys are told apart by a seeded hash of 64 bits.
type Table struct {
	now    func() weir.Instant // set by NewTable, like the next four
	seed   maphash.Seed
	spread maphash.Seed // of clients' names
	rules  *rules
	shards []shard

	keys       atomic.Int64
	evicted    atomic.Uint64
	overflowed atomic.Uint64
}

var _ Throttler = (*Table)(nil)

// DefaultMaxKeys is how many keys a Table has at most, unless it is told otherwise.
const DefaultMaxKeys = 100_000

// shardRows is how many rows a shard has at most.
const shardRows = 64

// NewTable returns an empty table for at most maxKeys keys, 0 meaning DefaultMaxKeys.
// They are made up to a multiple of 64. A nil clock is weir.Now.
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
	return &Table{
		now: now, seed: maphash.MakeSeed(), spread: maphash.MakeSeed(), rules: newRules(),
		shards: make([]shard, (maxKeys+shardRows-1)/shardRows),
	}, nil
}

// TableStats is how a table stands.
type TableStats struct {
	Keys       int
	Evicted    uint64 // rows that went for others
	Overflowed uint64 // calls that were charged to a shared row
}

// Stats returns how the table stands.
func (t *Table) Stats() TableStats {
	return TableStats{Keys: int(t.keys.Load()), Evicted: t.evicted.Load(), Overflowed: t.overflowed.Load()}
}

// A shard is some of the rows. Tags stand apart from rows so that looking for one touches
// little memory.
type shard struct {
	mu       sync.Mutex // guards the fields below
	last     int64      // the latest instant that it acted at
	tags     []uint64   // keys' hashes
	rows     []row
	overflow row // shared by keys that found no place
}

// A row is what is known of a key. The zero row is one that was never used.
type row struct {
	tat     uint64  // in ticks of the numbers
	numbers Numbers // under which it was written
	reset   int64   // from when it is as if unused
}

// Throttle implements Throttler.
func (t *Table) Throttle(_ context.Context, client string, key []byte, n Numbers, quantity int64) (weir.Decision, error) {
	if len(key) > weir.MaxKeyBytes {
		return weir.Decision{}, &weir.KeyError{Bytes: len(key)}
	}
	r, err := t.rules.of(n)
	if err != nil {
		return weir.Decision{}, err
	}
	h := maphash.Bytes(t.seed, key) ^ maphash.String(t.spread, client)
	at, _ := bits.Mul64(h, uint64(len(t.shards)))
	s := &t.shards[at]
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.decideLocked(s, h, r, quantity)
}

// decideLocked decides, and writes the row of what was admitted. It requires s.mu.
func (t *Table) decideLocked(s *shard, h uint64, r *rule, quantity int64) (weir.Decision, error) {
	s.last = max(s.last, int64(t.now()))
	now := s.last
	place := s.find(h)
	from := s.overflow // what a new key begins with: nothing, unless others of its shard share a row
	if place != nil {
		from = *place
	}
	tat, err := t.under(r, from, now)
	if err != nil {
		return weir.Decision{}, err
	}
	d, next := r.decide(tat, now, quantity)
	if next == tat {
		return d, nil
	}
	if place == nil {
		place = t.placeLocked(s, h, now)
	}
	*place = row{tat: next, numbers: r.numbers, reset: now + int64(d.ResetAfter)}
	return d, nil
}

func (s *shard) find(h uint64) *row {
	for i, tag := range s.tags {
		if tag == h {
			return &s.rows[i]
		}
	}
	return nil
}

// under returns a row's state under r: the same units in use, to the next tick.
func (t *Table) under(r *rule, from row, now int64) (uint64, error) {
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
	d := weir.Decision{Allowed: true, Limit: g.Capacity(), Remaining: g.Room(tat, tick), ResetAfter: wait(tat)}
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
func (t *Table) placeLocked(s *shard, h uint64, now int64) *row {
	if len(s.rows) < shardRows {
		s.tags, s.rows = append(s.tags, h), append(s.rows, row{})
		t.keys.Add(1)
		return &s.rows[len(s.rows)-1]
	}
	victim, least := -1, math.Inf(1)
	for i := range s.rows {
		if share := s.rows[i].share(now); share < least {
			victim, least = i, share
		}
	}
	if victim < 0 {
		t.overflowed.Add(1)
		return &s.overflow
	}
	t.evicted.Add(1)
	s.tags[victim] = h
	return &s.rows[victim]
}

// share returns how much of its limit a row has in use: 0 if none, and infinitely much if
// it would refuse one unit. It reckons in floating point, which is good enough to choose
// by.
func (r *row) share(now int64) float64 {
	owed := float64(r.reset - now)
	if owed <= 0 {
		return 0
	}
	unit := float64(r.numbers.Period) * 1e9 / float64(r.numbers.Count)
	whole := unit * float64(r.numbers.Burst)
	if owed+unit > whole {
		return math.Inf(1)
	}
	return owed / whole
}
