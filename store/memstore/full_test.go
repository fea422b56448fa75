package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// What a full table does, and what nobody may make it do.

func charges(p *weir.Policy, cost int64, keys ...string) (all []weir.Charge) {
	for _, k := range keys {
		all = append(all, weir.Charge{Policy: p, Key: k, Cost: cost})
	}
	return all
}

// A batch of several new keys that find no place: all are charged to one row, and
// the table goes on.
func TestManyKeysIntoTheOverflowRow(t *testing.T) {
	for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll, weir.ReserveAll} {
		table := newTable(t, Config{Now: newClock().Now, MaxKeys: 1})
		jam(t, table)
		p := policy(t, "p", perHour(10))
		for range 2 { // the second refuses
			do(t, table, &weir.Batch{Op: op, Charges: charges(p, 3, "a", "b", "c")})
		}
		if d := take(t, table, p, "d", 0); d.Remaining != 1 {
			t.Errorf("op %d: %+v, want one remaining", op, d)
		}
		for i := range 3 * maxSpare { // with whatever the calls before have left behind
			take(t, table, p, fmt.Sprint("e", i), 1)
		}
		check(t, table)
	}
}

// One batch meets the overflow row under several limits and keys.
func TestMixedNumbersInTheOverflowRow(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 1})
	jam(t, table)
	p := policy(t, "p", perHour(10))
	log := with(t, p, weir.Limit{Rate: 12, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog})
	two := with(t, p, perHour(8), named("b", perHour(20)))
	mixed := []weir.Charge{
		{Policy: p, Key: "a", Cost: 1},
		{Policy: two, Key: "b", Cost: 2},
		{Policy: log, Key: "a", Cost: 1},
		{Policy: p, Key: "a", Cost: 1},
		{Policy: two, Key: "a", Cost: 1},
	}
	for i, op := range []weir.Op{weir.TakeAll, weir.ReserveAll} {
		b := do(t, table, &weir.Batch{Op: op, Charges: mixed})
		if allowed := i == 0; b.Allowed() != allowed {
			t.Errorf("op %d: %+v", op, b.Decisions)
		}
	}
	if d := take(t, table, p, "c", 0); d.Remaining != 4 {
		t.Errorf("six of ten are used: %+v", d)
	}
	do(t, table, &weir.Batch{Op: weir.TakeEach, Charges: mixed}) // two fit under two, then none
	if d := take(t, table, two, "c", 0); d.Remaining != 0 {
		t.Errorf("all of two's eight are used: %+v", d)
	}
	if d := take(t, table, log, "c", 0); d.Remaining > 4 {
		t.Errorf("eight of the log's twelve are used: %+v", d)
	}
	check(t, table)
}

// A table of one key serves many, one after the other and at once.
func TestOneKey(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: 1})
	p := policy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 3})
	for i := range 100 {
		b := do(t, table, &weir.Batch{Op: weir.TakeEach, Charges: charges(p, 1, fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("a", i))})
		if d := b.Decisions; !d[0].Allowed || !d[1].Allowed || !d[2].Allowed || d[0].Remaining != 2 || d[2].Remaining != 1 {
			t.Fatalf("batch %d: %+v", i, d)
		}
		check(t, table)
		c.pass(3 * time.Second)
	}
	if s := table.Stats(); s.Keys != 1 || s.Forgiven != 0 || s.OverflowHits != 100 {
		t.Errorf("%+v", s)
	}
}

// Rows with nothing in use go one at a time, each for a new key.
func TestUnusedRowsGoOneByOne(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: meanRows})
	p := policy(t, "p", perHour(10))
	for i := range meanRows {
		take(t, table, p, fmt.Sprint(i), 1)
	}
	c.pass(time.Hour)
	for i := range meanRows {
		take(t, table, p, fmt.Sprint("new", i), 1)
		if s := table.Stats(); s.Keys != meanRows || s.Evicted != uint64(i+1) || s.Forgiven != 0 {
			t.Fatalf("%+v, want %d keys and %d evicted", s, meanRows, i+1)
		}
	}
	check(t, table)
}

// The least share of the limit goes, not the least units.
func TestTheLeastShareGoes(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 4})
	big, small := policy(t, "big", perHour(1000)), policy(t, "small", perHour(4))
	two := policy(t, "two", perHour(1000), named("b", perHour(10)))
	take(t, table, small, "a", 2) // a half
	take(t, table, big, "b", 300) // three tenths
	take(t, table, two, "c", 4)   // four tenths of b
	take(t, table, small, "d", 4) // all
	for i, forgiven := range []uint64{300, 304, 306} {
		take(t, table, big, fmt.Sprint("full", i), 1000)
		if s := table.Stats(); s.Forgiven != forgiven || s.OverflowHits != 0 {
			t.Errorf("%+v, want %d forgiven", s, forgiven)
		}
	}
	if d := take(t, table, small, "d", 1); d.Allowed {
		t.Errorf("a key that is refused was evicted: %+v", d)
	}
	take(t, table, big, "one more", 1)
	if s := table.Stats(); s.OverflowHits != 1 {
		t.Errorf("every key is refused, and one more found a place: %+v", s)
	}
}

// A batch asks for the rows of its new keys before it is decided. If it is refused,
// their places stay free: however often someone who is refused brings new keys
// along, he frees no more others than one batch has keys.
func TestRefusedBatchesEvictFew(t *testing.T) {
	cases := map[string]weir.Batch{
		"all, refused by another":     {Op: weir.TakeAll, Charges: charges(policy(t, "ip", perHour(2)), 1, "attacker")},
		"reserve, refused by another": {Op: weir.ReserveAll, Charges: charges(policy(t, "ip", perHour(2)), 1, "attacker")},
		"each, for nothing":           {Op: weir.TakeEach},
	}
	for name, b := range cases {
		table := newTable(t, Config{Now: newClock().Now, MaxKeys: 10})
		user := policy(t, "user", perHour(10))
		take(t, table, policy(t, "ip", perHour(2)), "attacker", 2)
		for i := range 9 {
			take(t, table, user, fmt.Sprint("user", i), 5)
		}
		old := b.Charges
		for i := range 20 {
			b.Charges = append(old[:len(old):len(old)], charges(user, 0, fmt.Sprint("new", i), fmt.Sprint("newer", i))...)
			do(t, table, &b)
		}
		if s := table.Stats(); s.Evicted > 2 || s.Forgiven > 10 {
			t.Errorf("%s: twenty refused batches of two new keys have evicted others: %+v", name, s)
		}
		check(t, table)
	}
}

// Someone who is refused brings a new key along each time. The places that he does
// not take stay in their shards: if other shards took them, shards would drift
// apart until some have next to no rows, and all new keys there are refused.
func TestRefusedBatchesDoNotSkewShards(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 400})
	table.makeShards(8)
	p, ip := policy(t, "p", perHour(10)), policy(t, "ip", perHour(1))
	take(t, table, ip, "attacker", 1)
	for i := range 399 {
		take(t, table, p, user(i), 1)
	}
	rows := make([]int, len(table.shards))
	for i := range rows {
		rows[i] = table.shards[i].rows()
	}
	for i := range 1000 {
		b := weir.Batch{Op: weir.TakeAll, Charges: append(charges(p, 1, fmt.Sprint("bogus", i)), charges(ip, 1, "attacker")...)}
		if do(t, table, &b); b.Allowed() {
			t.Fatal("the attacker is not refused")
		}
		take(t, table, p, fmt.Sprint("honest", i), 1)
	}
	for i, was := range rows {
		if n := table.shards[i].rows(); n < was-2 || n > was+2 {
			t.Errorf("shard %d has %d rows by now, and had %d when the table was full", i, n, was)
		}
	}
	check(t, table)
}

// Rows in the middle of a batch are nobody's to evict, whatever they are.
func TestABatchKeepsItsRows(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: 4})
	p := policy(t, "p", perHour(10))
	log := policy(t, "log", weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog})
	two := policy(t, "two", perHour(10), named("b", perHour(10)))
	c.pass(time.Hour)
	all := append(append(charges(p, 1, "a"), charges(log, 1, "a")...), charges(two, 1, "a")...)
	do(t, table, &weir.Batch{Op: weir.TakeAll, Charges: all})
	c.pass(time.Hour) // all three are unused
	all = append(all, charges(p, 1, "b", "c", "d")...)
	b := do(t, table, &weir.Batch{Op: weir.TakeAll, Charges: all})
	for i, d := range b.Decisions[:4] {
		if !d.Allowed || d.Remaining != 9 {
			t.Errorf("charge %d: %+v", i, d)
		}
	}
	if s := table.Stats(); s.Evicted != 0 || s.OverflowHits != 2 {
		t.Errorf("%+v, want one new row and two charges to the overflow row", s)
	}
	check(t, table)
}
