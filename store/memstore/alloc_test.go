package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Decisions on keys that are there allocate nothing.
func TestDecisionsDoNotAllocate(t *testing.T) {
	window := func(a weir.Algorithm, per time.Duration) weir.Limit {
		return weir.Limit{Rate: 1000, Per: weir.Every(per), Algorithm: a}
	}
	log := window(weir.SlidingLog, time.Hour)
	log.Rate = 10
	cases := map[string]struct {
		limits []weir.Limit
		pooled bool // takes a lock session from a pool, which loses some under the race detector
	}{
		"gcra":     {[]weir.Limit{many}, false},
		"refused":  {[]weir.Limit{perHour(1)}, false},
		"fixed":    {[]weir.Limit{window(weir.FixedWindow, time.Hour)}, false},
		"dual":     {[]weir.Limit{named("s", window(weir.DualWindow, time.Second)), window(weir.DualWindow, time.Minute)}, false},
		"two":      {[]weir.Limit{many, named("b", many)}, true},
		"four":     {[]weir.Limit{many, named("b", many), named("c", many), named("d", many)}, true},
		"anchored": {[]weir.Limit{window(weir.AnchoredWindow, time.Hour)}, true},
		"sliding":  {[]weir.Limit{window(weir.SlidingWindow, time.Hour)}, true},
		"log":      {[]weir.Limit{log}, true},
	}
	for name, c := range cases {
		for _, config := range []Config{{}, {KeepKeys: true}, {Snapshots: true}} {
			if c.pooled && raced() {
				continue
			}
			table := newTable(t, config)
			p := policy(t, "p", c.limits...)
			ctx, key := background(), "some key"
			for range 20 { // a full log is refused from then on
				take(t, table, p, key, 1)
			}
			if n := testing.AllocsPerRun(200, func() { _, _ = table.Take(ctx, p, key, 1) }); n != 0 {
				t.Errorf("%s, %+v: take allocates %v times", name, config, n)
			}
			b := weir.Batch{Op: weir.PeekEach, Charges: charges(p, 1, key, key)}
			if n := testing.AllocsPerRun(200, func() { _ = table.Do(ctx, &b) }); n != 0 {
				t.Errorf("%s, %+v: a peek allocates %v times", name, config, n)
			}
		}
	}
}

// Nor do a hundred of them at once.
func TestBatchesDoNotAllocate(t *testing.T) {
	if raced() {
		t.Skip("the race detector empties pools")
	}
	table := newTable(t, Config{})
	p := policy(t, "p", many)
	b := weir.Batch{Op: weir.TakeEach}
	for i := range 100 {
		key := fmt.Sprint("key", i)
		take(t, table, p, key, 1)
		b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: key, Cost: 1})
	}
	ctx := background()
	if n := testing.AllocsPerRun(200, func() { _ = table.Do(ctx, &b) }); n != 0 || !b.Allowed() {
		t.Errorf("a batch of a hundred allocates %v times: %v", n, b.Decisions[0])
	}
}

// Nor does a charge of several keys, all or none, whether it fits or not.
func TestTakeAllDoesNotAllocate(t *testing.T) {
	if raced() {
		t.Skip("the race detector empties pools")
	}
	ctx := background()
	for name, limit := range map[string]weir.Limit{"admitted": many, "refused": perHour(1)} {
		table := newTable(t, Config{})
		user, all := policy(t, "user", many), policy(t, "all", limit)
		b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: user, Key: "alice", Cost: 1}, {Policy: all, Key: "", Cost: 1}}}
		do(t, table, &b)
		if n := testing.AllocsPerRun(200, func() { _ = table.Do(ctx, &b) }); n != 0 || b.Allowed() != (name == "admitted") {
			t.Errorf("%s: allocates %v times: %v", name, n, b.Decisions)
		}
	}
}

// New keys allocate a block now and then, and no more: the flood of them is the
// attack.
func TestNewKeysAllocateLittle(t *testing.T) {
	if raced() {
		t.Skip("the race detector empties pools")
	}
	table := newTable(t, Config{MaxKeys: 1000, Now: newClock().Now})
	p := policy(t, "p", perHour(10))
	keys := make([]string, 20_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	next := 0
	one := func() {
		take(t, table, p, keys[next], 1)
		next++
	}
	for range 2000 {
		one()
	}
	if n := testing.AllocsPerRun(10_000, one); n > 1 {
		t.Errorf("a new key in a full table allocates %v times", n)
	}
}
