package memstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// The policy of a call may have limits of its own, so a client that can choose limits could use
// up the ids of all sets of limits. So there are quotas:
//
//   - Set, and a snapshot that is being loaded, may use all ids.
//   - The first set of a policy's name must leave reserved ids unused.
//   - Every further set of a name must leave twice as many, and a name may have as many sets as a
//     quarter of the rest. So one name gets a fifth of all ids, a hundred names that
//     use all they can get about a hundredth each, and names with few sets always find room.
//
// If there is no room, sets without rows are collected first, then sets whose rows have nothing
// in use: those rows decide like absent ones, so they are dropped. The number of such walks is
// bounded however many calls need room; between them, a call without room is refused at once.

// maxSets is how many sets of limits may be in use at once; ids have 16 bits.
const maxSets = 1 << 16

// reserved is the number of ids that only Set and snapshots, or first sets, may use.
const reserved = maxSets / 16

// A requester says what needs a set of limits.
type requester bool

const (
	fromCall requester = false
	fromSet  requester = true // or a snapshot
)

var errTooManySets = errors.New("too many different sets of limits are in use")

// inUse returns how many ids are in use.
func (r *registry) inUse() int { return r.ids - len(r.free) }

// roomLocked returns an error unless there is room for one more set of a policy's name.
func (r *registry) roomLocked(policy string, requester requester) error {
	left := maxSets - r.inUse()
	nm := r.names[policy]
	switch {
	case requester == fromSet && left > 0:
		return nil
	case requester == fromSet:
		return fmt.Errorf("memstore: policy %q: %w: %w: all %d", policy, compiled.ErrLimits, errTooManySets, maxSets)
	case nm == nil || nm.count == 0:
		if left > reserved {
			return nil
		}
		return fmt.Errorf("memstore: policy %q: %w: %w: %d, by all policies", policy, compiled.ErrLimits, errTooManySets, r.inUse())
	}
	brought := nm.count - len(nm.replaced)
	if 4*brought < left-2*reserved {
		return nil
	}
	return fmt.Errorf("memstore: policy %q: %w: %w: %d of this policy; let its calls bring fewer different limits",
		policy, compiled.ErrLimits, errTooManySets, brought)
}

// A budget bounds the cost of walks. A step is a check of one row, set or shard.
type budget struct {
	attempts int          // that wanted a walk, since the last one
	next     weir.Instant // when a walk is due whatever their number
}

const (
	stepsPerAttempt = 64               // so many cost no more than the attempt itself
	timePerStep     = time.Microsecond // about a hundred times what a step takes
)

// allows says whether a walk of so many steps may be made now, and counts it as made.
func (b *budget) allows(now weir.Instant, steps int) bool {
	b.attempts++
	return b.attempts*stepsPerAttempt >= steps && b.walk(now, steps) || b.due(now, steps)
}

// due is allows by time alone.
func (b *budget) due(now weir.Instant, steps int) bool { return now >= b.next && b.walk(now, steps) }

func (b *budget) walk(now weir.Instant, steps int) bool {
	b.attempts, b.next = 0, now.Add(time.Duration(steps)*timePerStep)
	return true
}

// sweep frees the sets all of whose rows have nothing in use, by dropping those rows. For a
// call it returns false if the last sweep was too recent: only time makes rows unused.
//
// Rows that are charged meanwhile are kept, and so are their sets.
func (t *Table) sweep(requester requester) bool {
	r := &t.registry
	r.sweeping.Lock()
	defer r.sweeping.Unlock()
	now := t.now()
	if steps := int(t.keys.Load()) + maxSets + len(t.shards); requester == fromCall && !r.sweeps.due(now, steps) {
		return false
	}
	s := sweeper{t: t, now: int64(now), busy: make([]bool, maxSets), seen: make([]bool, maxSets)}
	for i := range t.shards {
		s.each(&t.shards[i], s.lookLocked)
	}
	for i := range t.shards {
		s.each(&t.shards[i], s.dropLocked)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.walks++
	t.collectLocked()
	return true
}

// A sweeper is a running sweep.
type sweeper struct {
	t    *Table
	now  int64
	busy []bool // by id: a row has something in use, or is not as good as none
	seen []bool // by id: the set itself was looked at
}

// each locks a shard and calls f for every row, with the shard's time.
func (s *sweeper) each(sh *shard, f func(at place, now int64)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := max(s.now, sh.seen)
	sh.seen = now // or a late call might begin a window anew whose row was dropped
	eachRow(sh, func(at place) { f(at, now) })
}

// lookLocked notes whether a row has something in use.
func (s *sweeper) lookLocked(at place, now int64) {
	id := at.block.idAt(at.slot)
	if !s.seen[id] {
		s.seen[id] = true
		s.busy[id] = !s.t.absentUnused(s.t.registry.at(id), now)
	}
	if !s.busy[id] {
		usage, _, ok := s.t.usageLocked(at.block, at.slot, now)
		s.busy[id] = !ok || usage.Used > 0
	}
}

// dropLocked drops a row of a set of which no row has something in use.
func (s *sweeper) dropLocked(at place, now int64) {
	if id := at.block.idAt(at.slot); s.busy[id] || !s.seen[id] {
		return
	}
	if usage, word, ok := s.t.usageLocked(at.block, at.slot, now); ok && usage.Used == 0 {
		s.t.retireLocked(at.block, at.slot, word)
	}
}

// absentUnused says whether a key without a row under n has nothing in use at now: it does
// not start in an overflow row, nor less than full.
func (t *Table) absentUnused(n *compiledLimits, now int64) bool {
	return n.of.overflow.Load() == nil && algo.NewLedger(n.policy.Compiled().Rules, int64(t.epoch)).Unused(now)
}

// forgetReplaced drops the older half of the replacements of every policy, for when all ids are
// in use. Calls with such limits are decided by these limits again.
func (t *Table) forgetReplaced() {
	t.registry.mu.Lock()
	defer t.registry.mu.Unlock()
	for _, nm := range t.registry.names {
		older := (len(nm.replaced) + 1) / 2
		for _, n := range nm.replaced[:older] {
			n.forward(nil)
		}
		nm.replaced = nm.replaced[older:]
	}
	t.collectLocked()
}
