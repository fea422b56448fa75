package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Floods of new keys: someone makes up as many as he likes.

// A flood of new keys into a full table. Memory stays what it was, nobody who is
// refused is freed, whoever uses more than the flood's keys do is left alone, and
// what was forgiven is counted to the unit.
func TestFlood(t *testing.T) {
	keys, flood := lighter(short(10_000, 100_000)), lighter(short(60_000, 10_000_000))
	before := heapBytes()
	table := newTable(t, Config{MaxKeys: keys, Now: newClock().Now})
	p := policy(t, "p", perHour(10))
	some := keys / 10
	for i := range some {
		take(t, table, p, "refused"+strconv.Itoa(i), 10)
		take(t, table, p, "frugal"+strconv.Itoa(i), 2)
	}
	for i := range keys - 2*some {
		take(t, table, p, "before"+strconv.Itoa(i), 1)
	}
	full := table.Stats()
	if full.Keys != keys || full.Evicted != 0 {
		t.Fatalf("%+v, want a full table", full)
	}
	var turned, heap int64 // bytes when as many new keys have come as there are
	for i := range flood {
		if d := take(t, table, p, user(i), 1); !d.Allowed || d.Remaining != 9 {
			t.Fatalf("key %d of the flood: %+v", i, d)
		}
		if i%10 == 0 && take(t, table, p, "refused"+strconv.Itoa(i/10%some), 1).Allowed {
			t.Fatalf("after %d new keys one that was refused is free", i)
		}
		if i == keys {
			turned, heap = table.Stats().Bytes, heapBytes()-before
		}
		if i >= keys && i%1000 == 0 {
			within10(t, "bytes", table.Stats().Bytes, turned, 0)
		}
	}
	within10(t, "the heap", heapBytes()-before, heap, 100_000)
	s := table.Stats()
	t.Logf("%d new keys into %d: %d bytes when first full, %d when all but few had gone, %d after; %d units forgiven", flood, keys, full.Bytes, turned, s.Bytes, s.Forgiven)
	if s.Bytes > int64(24*keys) {
		t.Errorf("%d bytes are more than 24 for each of %d keys", s.Bytes, keys)
	}
	if s.Evicted != uint64(flood) || s.Forgiven != uint64(flood) || s.Keys != keys || s.OverflowHits != 0 {
		t.Errorf("%+v, want %d evicted, and as many units forgiven", s, flood)
	}
	for i := range some {
		if d := take(t, table, p, "frugal"+strconv.Itoa(i), 0); d.Remaining != 8 {
			t.Fatalf("%d of those who use more than the flood's keys was forgiven: %+v", i, d)
		}
	}
	check(t, table)
}

// within10 fails if a figure is more than a tenth, and some, away from what it was.
func within10(t *testing.T, what string, now, was, some int64) {
	t.Helper()
	if now > was*11/10+some || now < was*9/10-some {
		t.Fatalf("%s: %d by now, %d when the table had been turned over once", what, now, was)
	}
}

// A flood of keys that use all they have: those stay, so the table fills up with
// them, and all others share one strict row. Nobody gets more for it.
func TestFloodOfRefusedKeys(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 1000, Now: c.Now})
	p := policy(t, "p", perHour(3))
	n := short(3_000, 1_000_000)
	granted := 0
	for i := range n {
		for range 4 {
			if take(t, table, p, user(i), 1).Allowed {
				granted++
			}
		}
	}
	s := table.Stats()
	if want := 3*1000 + 3; granted != want || s.Keys != 1000 || s.Evicted != 0 || s.OverflowHits == 0 {
		t.Errorf("%d units were granted, want %d to a thousand rows and the overflow row: %+v", granted, want, s)
	}
	check(t, table)
	c.pass(time.Hour)
	if d := take(t, table, p, user(n), 3); !d.Allowed {
		t.Errorf("an hour later all is paid off: %+v", d)
	}
	check(t, table)
}

// A flood of reservations that nobody settles takes MaxHolds places until they
// expire, and no memory for ever.
func TestFloodOfReservations(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 1000, MaxHolds: 500, Now: c.Now})
	p := policy(t, "p", perHour(10))
	allowed := 0
	rounds := short(5, 200)
	var base int64
	for round := range rounds {
		for i := range 1000 {
			r, err := weir.Reserve(background(), table, time.Minute, weir.Charge{Policy: p, Key: "r" + strconv.Itoa(round) + "." + strconv.Itoa(i), Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			if r.Decision.Allowed {
				allowed++
			}
		}
		if s := table.Stats(); s.Holds != 500 || s.Keys > 1000 || s.OverflowHits != 0 {
			t.Fatalf("round %d: %+v", round, s)
		}
		check(t, table)
		if round == 3 {
			base = heapBytes()
		}
		c.pass(time.Minute)
	}
	if allowed != 500*rounds {
		t.Errorf("%d reservations were made, want 500 in each of %d rounds", allowed, rounds)
	}
	if grown := heapBytes() - base; grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// Keys come and go in a full table, most of whose rows have nothing in use at any
// time: no new key is refused or sent to the overflow row for want of a place, none
// in use is evicted, and no shard gets much fuller or emptier than the others.
func TestTurnover(t *testing.T) {
	for _, share := range []time.Duration{10, 2} { // of the rows are in use
		keys := lighter(5000)
		c := newClock()
		table := newTable(t, Config{MaxKeys: keys, Now: c.Now})
		p := policy(t, "p", perHour(1))
		var full int64
		for i := range short(16, 200) * keys {
			c.pass(share * time.Hour / time.Duration(keys))
			if d := take(t, table, p, user(i), 1); !d.Allowed {
				t.Fatalf("one in %d is in use: key %d was refused: %+v, %+v", share, i, d, table.Stats())
			}
			if i == 2*keys {
				full = table.Stats().Bytes
			}
		}
		s := table.Stats()
		if s.Forgiven+s.OverflowHits != 0 || s.MostMoved > maxRows {
			t.Errorf("one in %d is in use: %+v", share, s)
		}
		within10(t, "bytes", s.Bytes, full, 0)
		least, most := keys, 0
		for i := range table.shards {
			least, most = min(least, table.shards[i].rows()), max(most, table.shards[i].rows())
		}
		if mean := keys / len(table.shards); least < mean/2 || most > 2*mean {
			t.Errorf("one in %d is in use: shards have %d to %d rows, the mean is %d", share, least, most, mean)
		}
		check(t, table)
	}
}
