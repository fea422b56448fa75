package memstore

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/weirlimit/weir/algo"
)

// long says whether the long forms of tests run: make test-all.
var long = os.Getenv("WEIR_TEST") == "all"

// short returns how often or how many, in the short and in the long form.
func short(n, all int) int {
	if long {
		return all
	}
	return n
}

// lighter returns a tenth under the race detector, which makes eviction take fifty
// times as long.
func lighter(n int) int {
	if raced() {
		return n / 10
	}
	return n
}

// raced says whether the race detector is on.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check looks at the whole of a table that nobody is using: whether all that it
// counts is there, and all that is there is counted and can be found.
func check(t fataler, table *Table) {
	t.Helper()
	c := &checker{table: table, pins: map[*compiledLimits]int64{}, rows: map[string]bool{}, spilled: map[*spilled]*compiledLimits{}}
	for i := range table.shards {
		sh := &table.shards[i]
		sh.mu.Lock()
		c.shard(i, sh)
		sh.mu.Unlock()
	}
	c.registry()
	c.holds()
	c.same("rows", c.live, int64(table.Stats().Keys))
	c.same("bytes", c.bytes, table.bytes.Load())
	c.must(table.keys.Load() <= table.maxKeys, "%d rows, at most %d may be", table.keys.Load(), table.maxKeys)
	for _, p := range c.problems {
		t.Fatalf("the table is broken: %s", p)
	}
}

// A checker collects what it has seen, and what is wrong with it.
type checker struct {
	table    *Table
	live     int64
	bytes    int64
	pins     map[*compiledLimits]int64 // how often each set of limits was seen
	rows     map[string]bool
	spilled  map[*spilled]*compiledLimits // and the limits of their rows
	problems []string
}

func (c *checker) must(ok bool, format string, args ...any) {
	if !ok {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func (c *checker) same(what string, seen, counted int64) {
	c.must(seen == counted, "%d %s, but %d are counted", seen, what, counted)
}

func (c *checker) shard(i int, sh *shard) {
	c.bytes += shardBytes
	widths := map[uint32]bool{}
	sh.blocks(func(b *block) {
		c.must(!widths[b.words], "shard %d has two blocks of %d words", i, b.words)
		widths[b.words] = true
		if !b.isNoRows() {
			c.bytes += b.bytes()
		}
		c.block(i, sh, b)
	})
	c.must(!widths[0] && widths[1], "shard %d has no block of one word, or one of none", i)
}

func (c *checker) block(i int, sh *shard, b *block) {
	var used, live uint32
	for slot := range int(b.slots) {
		switch tag := b.tag(slot).Load(); tag {
		case empty:
			c.must(b.spilledAt(slot) == nil, "shard %d: an empty slot has spilled state", i)
		case retired:
			used++
			c.must(b.word(slot, 0).Load() == algo.Mark, "shard %d: a retired slot has lost its mark", i)
			c.must(b.spilledAt(slot) == nil, "shard %d: a retired slot has spilled state", i)
		default:
			used++
			live++
			c.row(i, sh, place{b, slot}, tag)
		}
	}
	c.live += int64(live)
	c.must(used == b.used && live == b.live, "shard %d: %d slots used and %d rows, but %d and %d are counted", i, used, live, b.used, b.live)
	c.must(b.isNoRows() || int(used) <= fullAt(int(b.slots)), "shard %d: %d of %d slots are used, the block is overfull", i, used, b.slots)
	if b.rare != nil && b.rare.ids != nil {
		c.must(len(b.rare.ids) == int(b.slots), "shard %d: %d ids for %d slots", i, len(b.rare.ids), b.slots)
	}
}

func (c *checker) row(i int, sh *shard, at place, tag uint64) {
	b, slot := at.block, at.slot
	n := c.table.registry.at(b.idAt(slot))
	if n == nil {
		c.must(false, "shard %d: a row has id %d, which nothing has", i, b.idAt(slot))
		return
	}
	c.pins[n]++
	key := ""
	if b.keys != nil {
		key = b.keys[slot]
	}
	h := tag ^ n.tag
	c.must(int(b.words) == n.words, "a row of %q has %d words, its block %d", n.of.text, n.words, b.words)
	c.must(int(h>>c.table.shift) == i, "a row of %q is in shard %d, its hash says %d", n.of.text, i, h>>c.table.shift)
	c.must(b.find(h, tag, key) == slot, "a row of %q in shard %d is not where its hash leads", n.of.text, i)
	found, ok := c.table.lookLocked(sh, n.of, h, key)
	c.must(ok && found == at, "a row of %q in shard %d cannot be found", n.of.text, i)
	id := fmt.Sprintf("%s/%x/%s", n.of.text, h, key)
	c.must(!c.rows[id], "%s has two rows", id)
	c.rows[id] = true
	c.state(n, b.spilledAt(slot), b.word(slot, 0).Load())
}

// state checks that a row's state is in its words or spilled, and not taken.
func (c *checker) state(n *compiledLimits, x *spilled, word uint64) {
	c.must((x != nil) == (word == algo.Mark), "a row of %q has spilled state %v and first word %x", n.of.text, x, word)
	c.must(x != nil || !n.logged, "a row of %q has a log, and no spilled state", n.of.text)
	if x == nil {
		return
	}
	c.spilled[x] = n
	c.must(!x.taken, "somebody has taken a row of %q and not given it back", n.of.text)
	c.must(slices.EqualFunc(x.ledger.Rules(), n.policy.Compiled().Rules, sameRule), "the spilled state of %q has other rules than its row", n.of.text)
}

func sameRule(a, b algo.Rule) bool { return a.Capacity() == b.Capacity() && a.Words() == b.Words() }

// registry checks the limits and names against the rows that were seen.
func (c *checker) registry() {
	r := &c.table.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	free := map[uint16]bool{}
	for _, id := range r.free {
		c.must(!free[id], "id %d is free twice", id)
		free[id] = true
	}
	for text, nm := range r.names {
		c.must(nm.text == text, "name %q is filed under %q", nm.text, text)
		sets := 0
		for _, list := range nm.sets {
			sets += len(list)
		}
		c.must(sets == nm.count, "name %q has %d sets, but %d are counted", text, sets, nm.count)
		if o := nm.overflow.Load(); o != nil {
			c.pins[o.limits]++
			c.must(o.limits.of == nm && o.ledger != nil, "the overflow row of %q is under limits of %q", text, o.limits.of.text)
		}
	}
	for id := range r.ids {
		if to := r.at(uint16(id)).inForce.Load(); to != nil {
			c.pins[to]++
		}
	}
	for id := range r.ids {
		c.limits(r.at(uint16(id)), free[uint16(id)])
	}
}

func (c *checker) limits(n *compiledLimits, free bool) {
	if free {
		c.must(n.leaving.Load() && c.pins[n] == 0 && n.rows.Load() == 0, "id %d is free, and %d rows have it, counted as %d", n.id, c.pins[n], n.rows.Load())
		return
	}
	c.must(!n.leaving.Load(), "limits %d of %q are leaving for ever", n.id, n.of.text)
	c.must(n.rows.Load() == c.pins[n], "%d rows and forwards are of limits %d of %q, but %d are counted", c.pins[n], n.id, n.of.text, n.rows.Load())
	c.must(c.table.registry.names[n.of.text] == n.of, "limits %d of %q belong to a name that was forgotten", n.id, n.of.text)
	listed := false
	for _, o := range n.of.sets[c.table.fingerprint(n.policy)] {
		listed = listed || o == n
	}
	c.must(listed, "limits %d of %q cannot be found", n.id, n.of.text)
	if to := n.inForce.Load(); to != nil {
		c.must(c.pins[n] == 0, "%d rows are under limits %d of %q, which were replaced", c.pins[n], n.id, n.of.text)
		c.must(!to.leaving.Load() && c.table.registry.at(to.id) == to && to.inForce.Load() == nil,
			"limits %d of %q were replaced by some that are not in force", n.id, n.of.text)
	}
}

// holds checks that all reservations that are noted and not over are in the
// ledger that they say, and all that are open in a ledger are noted.
func (c *checker) holds() {
	now := int64(c.table.now())
	open := map[*algo.Ledger]int{}
	var noted, settled int64
	for i := range c.table.shards {
		sh := &c.table.shards[i]
		if sh.rest == nil {
			continue
		}
		for _, h := range sh.rest.holds {
			if h.settledUntil != 0 {
				settled++
				continue
			}
			noted++
			if l := c.ledgerOf(h); l != nil && !l.Clone().Settle(now, h.id, 0).Late {
				open[l]++
			}
		}
	}
	c.same("reservations", noted, c.table.holds.open.Load())
	c.same("settled reservations", settled, c.table.holds.settled.Load())
	for _, l := range c.ledgers() {
		n := l.Clone().Advance(now)
		c.must(open[l] == n, "%d reservations are open in a row, of which %d are noted", n, open[l])
	}
}

// ledgerOf returns the ledger that has a reservation, or nil if its row has gone.
func (c *checker) ledgerOf(h hold) *algo.Ledger {
	if h.overflow != nil {
		return h.overflow.ledger
	}
	if c.spilled[h.spilled] == nil {
		return nil
	}
	return h.spilled.ledger
}

// ledgers returns the ledgers of all spilled states and overflow rows.
func (c *checker) ledgers() (all []*algo.Ledger) {
	for x := range c.spilled {
		all = append(all, x.ledger)
	}
	for _, nm := range c.table.registry.names {
		if o := nm.overflow.Load(); o != nil {
			all = append(all, o.ledger)
		}
	}
	return all
}

var _ fataler = (*testing.T)(nil)
