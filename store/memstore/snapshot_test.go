package memstore

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// written returns a snapshot of a table.
func written(t fataler, table *Table) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := table.WriteSnapshot(&b); err != nil {
		t.Fatalf("%v", err)
	}
	return b.Bytes()
}

// restored returns the table that a snapshot is of.
func restored(t fataler, data []byte, c Config) *Table {
	t.Helper()
	table, err := ReadSnapshot(bytes.NewReader(data), c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	check(t, table)
	return table
}

// restart is what a restart does to a table.
func restart(t fataler, table *Table, c Config) *Table {
	t.Helper()
	return restored(t, written(t, table), c)
}

func reserve(t testing.TB, l weir.Limiter, ttl time.Duration, charges ...weir.Charge) *weir.Batch {
	t.Helper()
	b := &weir.Batch{Op: weir.ReserveAll, TTL: ttl, Charges: charges}
	if err := l.Do(background(), b); err != nil || !b.Allowed() {
		t.Fatalf("reserve %+v: %+v, %v", charges, b.Decisions, err)
	}
	return b
}

// settle ends the first reservation of a batch.
func settle(t testing.TB, l weir.Limiter, p *weir.Policy, key string, b *weir.Batch, used int64) weir.Settled {
	t.Helper()
	s := &weir.Batch{Op: weir.Settle, Charges: []weir.Charge{{Policy: p, Key: key, Cost: used}}, Receipts: b.Receipts[:1]}
	if err := l.Do(background(), s); err != nil {
		t.Fatal(err)
	}
	return s.Settled[0]
}

var berlin = func() *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return zone
}()

// everyKind has limits of every algorithm, alone and together.
func everyKind() map[string][]weir.Limit {
	limit := func(a weir.Algorithm, rate int64, per time.Duration) weir.Limit {
		return weir.Limit{Rate: rate, Per: weir.Every(per), Algorithm: a}
	}
	kinds := map[string][]weir.Limit{
		"gcra":      {{Rate: 3, Per: weir.Every(time.Second), Burst: 9}},
		"debt":      {{Rate: 7, Per: weir.Every(time.Minute), Burst: 5, MaxDebt: 6}},
		"bucket":    {limit(weir.TokenBucket, 10, time.Minute)},
		"fixed":     {limit(weir.FixedWindow, 10, time.Minute)},
		"day":       {{Rate: 10, Per: weir.Calendar(weir.Day, nil)}},
		"berlin":    {{Rate: 10, Per: weir.Calendar(weir.Month, berlin)}},
		"anchored":  {limit(weir.AnchoredWindow, 10, time.Minute)},
		"sliding":   {limit(weir.SlidingWindow, 10, time.Minute)},
		"log":       {limit(weir.SlidingLog, 10, time.Minute)},
		"second":    {limit(weir.DualWindow, 10, time.Second)},
		"dual":      {limit(weir.DualWindow, 6, time.Second), named("b", limit(weir.DualWindow, 10, time.Minute))},
		"slots":     {{Rate: 10, Algorithm: weir.Concurrency}},
		"empty":     {{Rate: 60, Per: weir.Every(time.Minute), Initial: weir.Filled(0)}},
		"two rates": {{Rate: 10, Per: weir.Every(time.Second)}, named("b", perHour(30))},
	}
	kinds["everything"] = []weir.Limit{
		kinds["gcra"][0], named("b", kinds["sliding"][0]), named("c", kinds["log"][0]), named("d", kinds["anchored"][0]), named("e", kinds["berlin"][0]),
	}
	kinds["held"] = []weir.Limit{kinds["slots"][0], named("b", kinds["fixed"][0])}
	return kinds
}

// Whatever a key has used is used after a restart, and paid off as if there had
// been none. What the algorithms have in common is reserving: it serves slots, too.
func TestEveryKindRestarts(t *testing.T) {
	for name, limits := range everyKind() {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			table := newTable(t, Config{Snapshots: true, Now: c.Now})
			p := policy(t, "p", limits...)
			c.pass(5 * time.Second) // so that "empty" has something
			b := reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "held", Cost: 3})
			settle(t, table, p, "settled", reserve(t, table, 0, weir.Charge{Policy: p, Key: "settled", Cost: 3}), 2)
			c.pass(time.Second)
			other := restart(t, table, Config{Now: c.Now})
			compare := func() {
				t.Helper()
				for _, key := range []string{"held", "settled", "new"} {
					for cost := range int64(12) {
						want, _ := weir.Peek(background(), table, p, key, cost)
						if got, err := weir.Peek(background(), other, p, key, cost); got != want || err != nil {
							t.Errorf("%s, cost %d, at %v: %+v, without a restart %+v", key, cost, c.Now().Time(), got, want)
						}
					}
				}
			}
			for _, d := range []time.Duration{0, 1, time.Second, 57 * time.Second} {
				c.pass(d)
				compare()
			}
			if got, want := settle(t, other, p, "held", b, 1), settle(t, table, p, "held", b, 1); got != want || got.Late {
				t.Errorf("settled as %+v, without a restart as %+v", got, want)
			}
			compare()
		})
	}
}

// A reservation is its owner's, once, also after a restart.
func TestReservationsRestart(t *testing.T) {
	for _, keep := range []bool{false, true} {
		c := newClock()
		config := Config{Snapshots: true, Now: c.Now, MaxHolds: 2, KeepKeys: keep}
		table := newTable(t, config)
		p, q := policy(t, "p", perHour(10)), policy(t, "q", slots)
		first := reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "alice", Cost: 6})
		forever := reserve(t, table, weir.NoExpiry, weir.Charge{Policy: q, Key: "alice", Cost: 2})
		table = restart(t, table, config)
		if n := table.Stats().Holds; n != 2 {
			t.Errorf("%d reservations", n)
		}
		full, _ := weir.Reserve(background(), table, 0, weir.Charge{Policy: p, Key: "bob", Cost: 1})
		if full.Decision.Reason != weir.QueueFull {
			t.Errorf("the bound counts those of before: %+v", full.Decision)
		}
		for _, other := range []weir.Charge{{Policy: p, Key: "bob"}, {Policy: q, Key: "alice"}} {
			if s := settle(t, table, other.Policy, other.Key, first, 0); !s.Late {
				t.Errorf("%s/%s settled alice's: %+v", other.Policy.Name(), other.Key, s)
			}
		}
		renew := &weir.Batch{Op: weir.Renew, TTL: time.Hour, Charges: first.Charges, Receipts: first.Receipts}
		if !do(t, table, renew).Allowed() {
			t.Error("not renewed")
		}
		c.pass(2 * time.Minute)
		table = restart(t, table, config)
		if s := settle(t, table, p, "alice", first, 4); s != (weir.Settled{Refunded: 2}) {
			t.Errorf("%+v", s)
		}
		if s := settle(t, table, p, "alice", first, 0); s != (weir.Settled{Refunded: 2}) {
			t.Errorf("settled twice: %+v", s)
		}
		table = restart(t, table, config)
		if s := settle(t, table, p, "alice", first, 0); s != (weir.Settled{Refunded: 2}) {
			t.Errorf("settled before a restart, and again: %+v", s)
		}
		if d, _ := weir.Peek(background(), table, q, "alice", 1); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("slots that never expire: %+v", d)
		}
		settle(t, table, q, "alice", forever, 0)
		if d, _ := weir.Peek(background(), table, q, "alice", 2); !d.Allowed || table.Stats().Holds != 0 {
			t.Errorf("%+v, %+v", d, table.Stats())
		}
	}
}

// What expires while the process is down is used whole, as it would have been.
func TestReservationsExpireWhileDown(t *testing.T) {
	c := newClock()
	config := Config{Snapshots: true, Now: c.Now}
	table := newTable(t, config)
	p := policy(t, "p", perHour(10))
	b := reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 10})
	data := written(t, table)
	c.pass(2 * time.Minute)
	table = restored(t, data, config)
	if d := take(t, table, p, "k", 1); d.Allowed || d.RetryAfter != 5*time.Minute {
		t.Errorf("ten units were held until a minute ago: %+v", d)
	}
	if s := settle(t, table, p, "k", b, 0); !s.Late {
		t.Errorf("%+v", s)
	}
}

// fullTable returns a table in which no key of a finds a place, and a itself.
func fullTable(t testing.TB, c *clock) (*Table, *weir.Policy) {
	table := newTable(t, Config{MaxKeys: 1, Snapshots: true, Now: c.Now})
	take(t, table, policy(t, "other", weir.Limit{Rate: 1, Per: weir.Calendar(weir.Year, nil)}), "x", 1)
	return table, policy(t, "a", perHour(10))
}

func TestOverflowRestarts(t *testing.T) {
	c := newClock()
	table, p := fullTable(t, c)
	take(t, table, p, "one", 3)
	b := reserve(t, table, time.Hour, weir.Charge{Policy: p, Key: "two", Cost: 4})
	table = restart(t, table, Config{MaxKeys: 1, Now: c.Now})
	if d := take(t, table, p, "three", 0); d.Remaining != 3 {
		t.Errorf("the overflow row is used by all: %+v", d)
	}
	if s := settle(t, table, p, "three", b, 0); !s.Late {
		t.Errorf("somebody else's: %+v", s)
	}
	if s := settle(t, table, p, "two", b, 1); s != (weir.Settled{Refunded: 3}) {
		t.Errorf("%+v", s)
	}
	// A key that finds a place in a larger table starts with what is used there.
	table = restart(t, table, Config{MaxKeys: 10, Now: c.Now})
	if d := take(t, table, p, "four", 1); d.Remaining != 5 || table.Stats().Keys != 2 {
		t.Errorf("%+v, %+v", d, table.Stats())
	}
}

// An overflow row that has gone leaves receipts that settle nothing, and least of
// all a reservation in the next overflow row, whose numbering starts again.
func TestOldOverflowRestarts(t *testing.T) {
	c := newClock()
	table, p := fullTable(t, c)
	old := reserve(t, table, time.Second, weir.Charge{Policy: p, Key: "old", Cost: 1})
	c.pass(time.Hour)
	b := reserve(t, table, time.Hour, weir.Charge{Policy: p, Key: "new", Cost: 4})
	table = restart(t, table, Config{MaxKeys: 1, Now: c.Now})
	if s := settle(t, table, p, "old", old, 0); !s.Late {
		t.Errorf("the old receipt: %+v", s)
	}
	if s := settle(t, table, p, "new", b, 0); s != (weir.Settled{Refunded: 4}) {
		t.Errorf("the new receipt: %+v", s)
	}
}

// A row with nothing in use equals none, but not where those who have none start
// with something in use.
func TestUnusedRowsRestart(t *testing.T) {
	c := newClock()
	config := Config{MaxKeys: 2, Snapshots: true, Now: c.Now}
	table := newTable(t, config)
	fast := policy(t, "fast", weir.Limit{Rate: 10, Per: weir.Every(time.Second)})
	late := policy(t, "late", weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Initial: weir.Filled(0)})
	c.pass(time.Hour / 2)
	take(t, table, fast, "k", 1)
	take(t, table, late, "k", 5)
	if err := weir.Reset(background(), table, late, "k"); err != nil { // a reset fills it
		t.Fatal(err)
	}
	c.pass(time.Second)
	table = restart(t, table, config)
	if d := take(t, table, late, "k", 0); d.Remaining != 10 || table.Stats().Keys != 1 {
		t.Errorf("%+v, %+v", d, table.Stats())
	}

	table, p := fullTable(t, c)
	table = restart(t, table, Config{MaxKeys: 2, Now: c.Now})
	take(t, table, p, "mine", 1)
	c.pass(time.Hour)
	b := &weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: "mine", Cost: 1}, {Policy: p, Key: "shared", Cost: 9}}}
	if !do(t, table, b).Allowed() {
		t.Fatal(b.Decisions)
	}
	c.pass(time.Hour / 10)
	table = restart(t, table, Config{MaxKeys: 2, Now: c.Now})
	if d := take(t, table, p, "mine", 0); d.Remaining != 10 {
		t.Errorf("a key with a place of its own is charged for those without: %+v", d)
	}
}

func TestKeepKeysRestarts(t *testing.T) {
	c := newClock()
	keep := Config{Snapshots: true, KeepKeys: true, Now: c.Now}
	table := newTable(t, keep)
	p := policy(t, "p", perHour(10))
	for i, key := range []string{"", "alice", string(make([]byte, weir.MaxKeyBytes))} {
		take(t, table, p, key, int64(i+1))
	}
	data := written(t, table)
	if !bytes.Contains(data, []byte("alice")) {
		t.Error("the keys are not in the file")
	}
	for _, config := range []Config{keep, {Now: c.Now}} {
		table := restored(t, data, config)
		for i, key := range []string{"", "alice", string(make([]byte, weir.MaxKeyBytes))} {
			if d := take(t, table, p, key, 0); d.Remaining != int64(9-i) {
				t.Errorf("%q: %+v", key, d)
			}
		}
	}
	table = restart(t, restored(t, data, Config{Now: c.Now}), Config{Now: c.Now}) // no keys any more
	if _, err := ReadSnapshot(bytes.NewReader(written(t, table)), keep); !errors.Is(err, ErrSnapshot) {
		t.Errorf("keys that are not there: %v", err)
	}
}

// A file has no keys, but those of open reservations.
func TestKeysAreNotInTheFile(t *testing.T) {
	table := newTable(t, Config{Snapshots: true})
	take(t, table, policy(t, "p", perHour(10)), "alice", 1)
	if bytes.Contains(written(t, table), []byte("alice")) {
		t.Error("a key is in the file")
	}
}

// Rows of one policy's name under several limits.
func TestOverridesRestart(t *testing.T) {
	c := newClock()
	config := Config{Snapshots: true, Now: c.Now}
	table := newTable(t, config)
	p := policy(t, "p", perHour(10), named("b", perHour(100)))
	vip, wide := with(t, p, perHour(50), named("b", perHour(500))), with(t, p, perHour(20))
	take(t, table, p, "plain", 1)
	take(t, table, vip, "vip", 2)
	take(t, table, wide, "wide", 3)
	take(t, table, p, "both", 4)
	take(t, table, vip, "both", 4)
	for range 2 {
		table = restart(t, table, config)
		for key, want := range map[string][3]int64{"plain": {9, 49, 19}, "vip": {8, 48, 18}, "wide": {7, 47, 17}, "both": {2, 42, 12}, "none": {10, 50, 20}} {
			for i, q := range []*weir.Policy{p, vip, wide} {
				if d := take(t, table, q, key, 0); d.Remaining != want[i] {
					t.Errorf("%s under %v: %+v, want %d remaining", key, q.Limits(), d, want[i])
				}
			}
		}
	}
	if n := table.registry.ids; n != 3 {
		t.Errorf("%d sets of limits", n)
	}
}

// The limits differ after the restart: units in use are kept. What was set before
// it is in force no more.
func TestLimitsChangeBetween(t *testing.T) {
	c := newClock()
	config := Config{Snapshots: true, Now: c.Now}
	table := newTable(t, config)
	old, raised := policy(t, "p", perHour(10)), policy(t, "p", perHour(20))
	take(t, table, old, "k", 8)
	take(t, table, old, "full", 10)
	b := reserve(t, table, time.Hour, weir.Charge{Policy: old, Key: "held", Cost: 6})
	if err := table.Set(background(), old, raised); err != nil {
		t.Fatal(err)
	}
	table = restart(t, table, config)
	if d := take(t, table, old, "k", 0); d.Limit != 10 || d.Remaining != 2 {
		t.Errorf("what callers bring is in force: %+v", d)
	}
	tight := policy(t, "p", weir.Limit{Rate: 5, Per: weir.Every(time.Minute), Algorithm: weir.FixedWindow}, named("b", perHour(100)))
	for key, want := range map[string]int64{"k": 0, "full": 0, "new": 5} {
		if d := take(t, table, tight, key, 0); d.Remaining != want || d.Limit != 5 {
			t.Errorf("%s: %+v, want %d remaining", key, d, want)
		}
	}
	if s := settle(t, table, tight, "held", b, 1); s != (weir.Settled{Refunded: 5}) {
		t.Errorf("%+v", s)
	}
	check(t, table)
}

// A policy whose zone was loaded again is another one, and decides alike.
func TestZonesRestart(t *testing.T) {
	c := newClock()
	config := Config{Snapshots: true, Now: c.Now}
	table := newTable(t, config)
	p := policy(t, "p", weir.Limit{Rate: 10, Per: weir.Calendar(weir.Day, berlin)})
	want := take(t, table, p, "k", 4)
	table = restart(t, table, config)
	if d := take(t, table, p, "k", 0); d.Remaining != 6 || d.ResetAfter != want.ResetAfter || d.ResetAfter != 11*time.Hour {
		t.Errorf("%+v, before %+v", d, want)
	}
	take(t, table, policy(t, "q", weir.Limit{Rate: 10, Per: weir.Calendar(weir.Day, time.FixedZone("east", 3600))}), "k", 4)
	if err := table.WriteSnapshot(&bytes.Buffer{}); err == nil {
		t.Error("a zone that cannot be loaded was written to a file that then could not be")
	}
}

// Into a smaller table go those that use most.
func TestRestartWithFewerKeys(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 10_000, Snapshots: true, Now: c.Now})
	p := policy(t, "p", perHour(10))
	const keys = 2000
	for i := range keys {
		take(t, table, p, fmt.Sprint(i), int64(1+i%10))
	}
	b := reserve(t, table, time.Hour, weir.Charge{Policy: p, Key: "held", Cost: 1})
	data := written(t, table)
	for _, maxKeys := range []int{1900, 1000, 300, 200, 100, 1} {
		table := restored(t, data, Config{MaxKeys: maxKeys, Now: c.Now})
		s := table.Stats()
		if s.Keys != maxKeys || s.Evicted != uint64(keys+1-maxKeys) {
			t.Errorf("%d keys: %+v", maxKeys, s)
		}
		forgiven, least, lost := uint64(0), int64(10), int64(0)
		for i := range keys {
			d, _ := weir.Peek(background(), table, p, fmt.Sprint(i), 0)
			if used := int64(1 + i%10); d.Remaining == 10 {
				forgiven += uint64(used)
				lost = max(lost, used)
			} else {
				least = min(least, used)
			}
		}
		if lost > least || forgiven != s.Forgiven {
			t.Errorf("%d keys: one that used %d was left behind, one that used %d was not; %d units forgiven, %+v", maxKeys, lost, least, forgiven, s)
		}
		if s := settle(t, table, p, "held", b, 0); s.Refunded != 1 {
			t.Errorf("%d keys: the row with a reservation was left behind: %+v", maxKeys, s)
		}
	}
	c.pass(time.Hour) // then nothing is in use but the reservation's unit
	if s := restored(t, data, Config{MaxKeys: 100, Now: c.Now}).Stats(); s.Keys != 1 || s.Evicted != 0 || s.Forgiven != 0 {
		t.Errorf("nothing to forgive: %+v", s)
	}
}

// A file of a larger table fills the shards of a smaller one in turn: the first has
// all the rows it will ever get, far more than it may have, before the second has one.
func TestRestartInFewerShards(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 10_000, Snapshots: true, Now: c.Now})
	p := policy(t, "p", perHour(10))
	const keys = 8000
	for i := range keys {
		take(t, table, p, fmt.Sprint(i), int64(1+i%10))
	}
	data := written(t, table)
	for _, tt := range []struct {
		maxKeys, shards int
		kept            int64 // who used more is kept
	}{
		{1000, 2, 9}, {2000, 4, 8}, // 4000 and 2000 rows for the first shard, before there are too many for the table
		{1280, 2, 9}, {5000, 8, 4}, // 4000 rows, and 1000, which fit
	} {
		small := restored(t, data, Config{MaxKeys: tt.maxKeys, Now: c.Now})
		s := small.Stats()
		if s.Keys != tt.maxKeys || s.Evicted != uint64(keys-tt.maxKeys) || len(small.shards) != tt.shards || s.MostMoved > maxRows {
			t.Errorf("%d keys in %d shards: %+v", tt.maxKeys, len(small.shards), s)
		}
		for i := range keys {
			d, _ := weir.Peek(background(), small, p, fmt.Sprint(i), 0)
			if used := int64(1 + i%10); used > tt.kept && d.Remaining != 10-used {
				t.Fatalf("%d keys: one that used %d was left behind: %+v", tt.maxKeys, used, d)
			}
		}
	}
}

// What a limit does while a store is unavailable is not part of its state: it is neither a
// reason for a second row nor in a file, which those can read who do not know of it.
func TestOnErrorIsNoState(t *testing.T) {
	c := newClock()
	config := Config{Snapshots: true, Now: c.Now}
	table := newTable(t, config)
	limit := perHour(10)
	plain := policy(t, "p", limit)
	limit.OnError = weir.FailClosed
	closed := policy(t, "p", limit)
	take(t, table, closed, "k", 3)
	if d := take(t, table, plain, "k", 1); d.Remaining != 6 || table.registry.ids != 1 {
		t.Errorf("%+v, %d sets of limits", d, table.registry.ids)
	}
	data := written(t, table)
	if bytes.Contains(data, []byte("OnError")) {
		t.Errorf("%q", data)
	}
	wrote := bytes.Replace(frames(t, data)[1].body, []byte(`"MaxDebt":0`), []byte(`"MaxDebt":0,"OnError":"closed"`), 1)
	for _, limits := range [][]byte{frames(t, data)[1].body, wrote} {
		all := frames(t, data)
		all[1].body = limits
		table = restored(t, sealed(all), config)
		for _, p := range []*weir.Policy{plain, closed} {
			if d := take(t, table, p, "k", 0); d.Remaining != 6 || table.registry.ids != 1 {
				t.Errorf("%s: %+v, %d sets of limits", limits, d, table.registry.ids)
			}
		}
	}
}

func TestNoSnapshots(t *testing.T) {
	table := newTable(t, Config{})
	if err := table.WriteSnapshot(&bytes.Buffer{}); !errors.Is(err, ErrNoSnapshots) {
		t.Errorf("%v", err)
	}
	file := t.TempDir() + "/snap"
	if err := table.Save(file); !errors.Is(err, ErrNoSnapshots) {
		t.Errorf("%v", err)
	}
	if _, err := Load(file, Config{MaxKeys: -1}); err == nil {
		t.Error("a bad configuration")
	}
}

// callers take and reserve under two policies, until they are stopped.
type callers struct {
	table    *Table
	policies []*weir.Policy
	granted  []atomic.Int64 // by key: what is in use, or a few units more or less
	stop     atomic.Bool
	wg       sync.WaitGroup
}

func (c *callers) at(i int) (*weir.Policy, string) {
	return c.policies[i%len(c.policies)], fmt.Sprint(i)
}

func (c *callers) used(t testing.TB, table *Table, i int) int64 {
	p, key := c.at(i)
	d := take(t, table, p, key, 0)
	return d.Limit - d.Remaining
}

func (c *callers) start(n int) {
	for g := range n {
		c.wg.Go(func() {
			for i := g; !c.stop.Load(); i++ {
				c.act(i)
			}
		})
	}
}

func (c *callers) act(i int) {
	p, key := c.at(i % len(c.granted))
	granted := &c.granted[i%len(c.granted)]
	switch {
	case i%5 == 0:
		r, err := weir.Reserve(background(), c.table, time.Minute, weir.Charge{Policy: p, Key: key, Cost: 2})
		if err == nil {
			_, _ = r.Cancel(background())
		}
	case i%7 == 0: // rows come, go and move
		_, _ = c.table.Take(background(), p, fmt.Sprint("passing", i), 1)
	default:
		granted.Add(1) // before, so that it is never too few
		if d, err := c.table.Take(background(), p, key, 1); err != nil || !d.Allowed {
			granted.Add(-1)
		}
	}
}

// Decisions go on while a snapshot is written. Each row is as it was at some
// moment of the writing.
func TestSnapshotsWhileDeciding(t *testing.T) {
	const keys, workers = 300, 4
	config := Config{MaxKeys: keys + 100, Snapshots: true, Now: newClock().Now}
	table := newTable(t, config)
	c := &callers{table: table, granted: make([]atomic.Int64, keys), policies: []*weir.Policy{
		policy(t, "word", perHour(1000)), policy(t, "wide", perHour(1000), named("b", perHour(1000))),
	}}
	for i := range keys { // so much that passing keys go first when the table is full
		p, key := c.at(i)
		take(t, table, p, key, 50)
		c.granted[i].Store(50)
	}
	c.start(workers)
	for range short(5, 50) {
		var before [keys]int64
		for i := range keys {
			before[i] = c.used(t, table, i)
		}
		other := restart(t, table, config)
		for i := range keys { // each worker may have a reservation of 2 open at any time
			if used, after := c.used(t, other, i), c.granted[i].Load(); used < before[i]-2*workers || used > after+3*workers {
				t.Errorf("key %d: %d units in the file, %d before, %d after", i, used, before[i], after)
			}
		}
	}
	c.stop.Store(true)
	c.wg.Wait()
	check(t, table)
	other := restart(t, table, config) // at rest they agree
	for i := range keys {
		if a, b := c.used(t, table, i), c.used(t, other, i); a != b || a != c.granted[i].Load() {
			t.Errorf("key %d: %d, then %d, granted %d", i, a, b, c.granted[i].Load())
		}
	}
}

// Reservations in an overflow row are made and settled while snapshots are
// written: in no file is a slot held that nobody can free. check asks that.
func TestSnapshotsWhileOverflowing(t *testing.T) {
	c := newClock()
	table, _ := fullTable(t, c)
	p := policy(t, "slots", weir.Limit{Rate: 100, Algorithm: weir.Concurrency})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				charge := weir.Charge{Policy: p, Key: fmt.Sprint(g, i%50), Cost: 1}
				if r, err := weir.Reserve(background(), table, weir.NoExpiry, charge); err == nil {
					_, _ = r.Cancel(background())
				}
			}
		})
	}
	for range short(50, 500) {
		restart(t, table, Config{MaxKeys: 1, Now: c.Now})
	}
	stop.Store(true)
	wg.Wait()
	check(t, table)
}

// A restored table writes what it was restored from: the same limits, hash, rows
// and reservations.
func TestRestartChangesNothing(t *testing.T) {
	config := Config{Snapshots: true, Now: newClock().Now}
	table := newTable(t, config)
	for name, limits := range everyKind() {
		p := policy(t, "p", limits...)
		reserve(t, table, 0, weir.Charge{Policy: p, Key: name, Cost: 0})
		take(t, table, policy(t, "q", perHour(10)), name, 1)
	}
	sizes := func(data []byte) (all []string) { // the order is that of hash tables
		for _, f := range frames(t, data) {
			all = append(all, fmt.Sprintf("%c %d", f.kind, len(f.body)))
		}
		slices.Sort(all)
		return all
	}
	first := written(t, table)
	second := written(t, restored(t, first, config))
	if a, b := sizes(first), sizes(second); !slices.Equal(a, b) {
		t.Errorf("frames were\n%q\nand are\n%q", a, b)
	}
	if a, b := frames(t, first)[0], frames(t, second)[0]; !bytes.Equal(a.body, b.body) {
		t.Errorf("the header was %s and is %s", a.body, b.body)
	}
}

var update = flag.Bool("update", false, "write the golden files")

// goldenTable has a key with two units in use, and one with three held, under every
// kind of limit.
func goldenTable(t testing.TB, c *clock) *Table {
	table := newTable(t, Config{Snapshots: true, Now: c.Now})
	c.pass(5 * time.Second)
	for name, limits := range everyKind() {
		p := policy(t, strings.ReplaceAll(name, " ", "-"), limits...)
		settle(t, table, p, "used", reserve(t, table, 0, weir.Charge{Policy: p, Key: "used", Cost: 3}), 2)
		reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "held", Cost: 3})
	}
	return table
}

// Files that were written once can be read for ever, or say why not. If this fails,
// there must be a new version.
func TestFileOfVersion1(t *testing.T) {
	const file = "testdata/v1.snap"
	c := newClock()
	table := goldenTable(t, c)
	if *update {
		save(t, table, file)
	}
	old := load(t, file, Config{Now: c.Now})
	if a, b := table.Stats(), old.Stats(); a.Holds != b.Holds || a.Keys != b.Keys+1 { // free slots need no row
		t.Errorf("%+v, in the file %+v", a, b)
	}
	for _, d := range []time.Duration{0, 30 * time.Second, time.Minute} {
		c.pass(d)
		for name, limits := range everyKind() {
			p := policy(t, strings.ReplaceAll(name, " ", "-"), limits...)
			for _, key := range []string{"used", "held", "new"} {
				want, _ := weir.Peek(background(), table, p, key, 4)
				if got, err := weir.Peek(background(), old, p, key, 4); got != want || err != nil {
					t.Errorf("%s/%s after %v: %+v, want %+v", name, key, d, got, want)
				}
			}
		}
	}
}
