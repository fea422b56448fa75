package memstore

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
)

func user(i int) string { return "user:" + strconv.Itoa(i) }

// heapBytes returns what is in use after a collection.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // what pools had
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A table grows from nothing to its full size. Every decision on the way is right,
// none moves more than one shard's rows, and no key takes more than 24 bytes from
// half full on.
func TestGrowth(t *testing.T) {
	n := lighter(short(200_000, 10_000_000))
	before := heapBytes()
	table := newTable(t, Config{MaxKeys: n, Now: newClock().Now})
	p := policy(t, "p", perHour(10))
	most := 0.0 // bytes per key
	for i := range n {
		if d := take(t, table, p, user(i), 1); !d.Allowed || d.Remaining != 9 {
			t.Fatalf("key %d: %+v", i, d)
		}
		if i >= n/2 && i%(n/200) == 0 {
			most = max(most, float64(table.Stats().Bytes)/float64(i+1))
		}
	}
	s := table.Stats()
	perKey, real := float64(s.Bytes)/float64(n), float64(heapBytes()-before)/float64(n)
	t.Logf("%d keys: %.2f bytes per key, %.2f of the heap, at most %.2f from half full on; at most %d rows moved at once", n, perKey, real, most, s.MostMoved)
	if most > 24 || perKey > 24 || real > 24 {
		t.Errorf("a key takes %.2f bytes, %.2f of the heap, on the way %.2f; at most 24 are allowed", perKey, real, most)
	}
	if s.MostMoved > maxRows || s.Keys != n || s.Evicted+s.OverflowHits != 0 {
		t.Errorf("%+v, want %d keys and nothing evicted", s, n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	taken := map[int]int64{}
	for range 10_000 {
		i := r.IntN(n)
		taken[i]++
		if d := take(t, table, p, user(i), 1); !d.Allowed || d.Remaining != 9-taken[i] {
			t.Fatalf("key %d after it was taken %d times: %+v", i, taken[i]+1, d)
		}
	}
}

// The rows that a call moves, counted from outside: all of every block that has
// another in its place.
func TestMovedRowsAreCounted(t *testing.T) {
	const keys = 1000
	table := newTable(t, Config{MaxKeys: keys, Now: newClock().Now})
	policies := []*weir.Policy{
		policy(t, "one", perHour(10)),
		policy(t, "two", perHour(10), named("b", perHour(10))),
		policy(t, "three", perHour(10), named("b", perHour(10)), named("c", perHour(10))),
	}
	most := 0
	for i := range 2 * keys { // half of them evict
		p := policies[i%len(policies)]
		c, err := table.charge(&weir.Charge{Policy: p, Key: user(i)})
		if err != nil {
			t.Fatal(err)
		}
		sh := &table.shards[c.shard]
		before := liveRows(sh)
		take(t, table, p, user(i), 1)
		after, moved := liveRows(sh), 0
		for b, live := range before {
			if _, stays := after[b]; !stays {
				moved += live
			}
		}
		most = max(most, moved)
	}
	if s := table.Stats(); s.MostMoved > most || s.MostMoved < most-1 || most > maxRows || s.Evicted != keys {
		t.Errorf("%d rows were moved at most, or one less if that was evicted first: %+v", most, s)
	}
	check(t, table)
}

// liveRows returns the memory of a shard's blocks, and how many rows each has.
func liveRows(sh *shard) map[*atomic.Uint64]int {
	live := map[*atomic.Uint64]int{}
	sh.blocks(func(b *block) { live[&b.rows[0]] = int(b.live) })
	return live
}
