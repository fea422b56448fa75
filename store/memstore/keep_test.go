package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// clashing takes from a key as if its hash were h. The table must have one shard.
func clashing(t testing.TB, table *Table, p *weir.Policy, key string, h uint64, cost int64) weir.Decision {
	t.Helper()
	n, err := table.resolve(p)
	if err != nil {
		t.Fatal(err)
	}
	if n.word != nil {
		if word := table.find(h, n, key); word != nil {
			if d, ok := takeWord(n, word, table.now(), cost); ok {
				return d
			}
		}
	}
	v, err := table.enter(0, []weir.Charge{{Policy: p, Key: key, Cost: cost}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.leave()
	v.charges[0].h = h
	d, err := v.change(&v.charges[0], weir.TakeEach)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Two keys with the same hash have two rows if the table keeps keys, and one if it
// does not, wherever their state is and however often it moves.
func TestClashingKeys(t *testing.T) {
	const h = 0x0123_4567_89ab_cdef
	for _, keep := range []bool{false, true} {
		table := newTable(t, Config{Now: newClock().Now, KeepKeys: keep, MaxKeys: 100})
		p := policy(t, "p", perHour(1000))
		kinds := []*weir.Policy{
			p, with(t, p, perHour(1001)), with(t, p, perHour(1000), named("b", perHour(1000))),
			with(t, p, weir.Limit{Rate: 1000, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog}),
		}
		used := map[string]int64{}
		for i := range 200 {
			key := []string{"alice", "bob"}[i%3%2]
			used[key]++
			want := used[key]
			if !keep {
				want = int64(i + 1)
			}
			d := clashing(t, table, kinds[i/7%len(kinds)], key, h, 1)
			if d.Limit-d.Remaining != want {
				t.Fatalf("keep %t, step %d, %s: %+v, want %d used", keep, i, key, d, want)
			}
			take(t, table, p, fmt.Sprint(i%50), 1) // so that blocks grow
		}
		if keys := table.Stats().Keys; keep && keys != 52 || !keep && keys != 51 {
			t.Errorf("keep %t: %d keys", keep, keys)
		}
	}
}

// A batch with both of two clashing keys, and reservations on them.
func TestClashingKeysInABatch(t *testing.T) {
	const h = 42
	table := newTable(t, Config{Now: newClock().Now, KeepKeys: true, MaxKeys: 100})
	p := policy(t, "p", perHour(10))
	b := &weir.Batch{Op: weir.ReserveAll, Charges: charges(p, 7, "alice", "bob")}
	if err := storeapi.CheckBatch(b); err != nil {
		t.Fatal(err)
	}
	v, err := table.enter(0, b.Charges)
	if err != nil {
		t.Fatal(err)
	}
	for i := range v.charges {
		v.charges[i].h, v.charges[i].expiry = h, int64(table.now().Add(time.Hour))
	}
	if err := v.trial(b, true); err != nil || !b.Allowed() {
		t.Errorf("seven of ten for each: %+v, %v", b.Decisions, err)
	}
	v.putAll()
	v.leave()
	for _, key := range []string{"alice", "bob"} {
		if d := clashing(t, table, p, key, h, 4); d.Allowed || d.Remaining != 3 {
			t.Errorf("%s: %+v", key, d)
		}
	}
	if table.Stats().Keys != 2 {
		t.Errorf("%+v", table.Stats())
	}
}

// A retired row's key may come back, and another may take its tag.
func TestClashingKeysComeAndGo(t *testing.T) {
	const h = 7
	c := newClock()
	table := newTable(t, Config{Now: c.Now, KeepKeys: true, MaxKeys: 2})
	p := policy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 3})
	for i := range 100 {
		key := fmt.Sprint("key", i%5)
		if d := clashing(t, table, p, key, h, 1); !d.Allowed || d.Remaining != 2 {
			t.Fatalf("step %d, %s: %+v", i, key, d)
		}
		c.pass(time.Second)
	}
	if s := table.Stats(); s.Forgiven != 0 || s.OverflowHits != 0 {
		t.Errorf("%+v", s)
	}
	check(t, table)
}

// A policy's name is part of what is hashed with a key. A key that is another
// policy's name must not be taken for that policy's key.
func TestKeysThatArePolicyNames(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		table := newTable(t, Config{Now: newClock().Now, Snapshots: keyed})
		names := []string{"a", "b", "ab", "ba"}
		for _, name := range names {
			for _, key := range append(names, "") {
				if d := take(t, table, policy(t, name, perHour(2)), key, 2); !d.Allowed {
					t.Errorf("%s/%s has been charged before: %+v", name, key, d)
				}
			}
		}
		if n := table.Stats().Keys; n != 20 {
			t.Errorf("%d keys, want 20", n)
		}
		check(t, table)
	}
}
