package memstore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

const racers = 64

// race runs f in 64 goroutines, each with a random source of its own, on more
// threads than there are processors: so they are stopped at the worst moments.
func race(t *testing.T, f func(i int, r *rand.Rand)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { f(i, rand.New(rand.NewPCG(uint64(i), 7))) })
	}
	wg.Wait()
}

// try takes from a goroutine of a race, where nothing may end the test.
func try(t *testing.T, table *Table, p *weir.Policy, key string, cost int64) bool {
	d, err := table.Take(background(), p, key, cost)
	if err != nil {
		t.Errorf("take %d of %s: %v", cost, key, err)
	}
	return d.Allowed
}

// tryDo carries out a batch from a goroutine of a race.
func tryDo(t *testing.T, table *Table, b *weir.Batch) *weir.Batch {
	if err := table.Do(background(), b); err != nil {
		t.Errorf("op %d: %v", b.Op, err)
	}
	return b
}

// inUse adds up the units that all rows and overflow rows have in use.
func inUse(table *Table) (units int64) {
	now := int64(table.now())
	for i := range table.shards {
		table.shards[i].blocks(func(b *block) {
			for slot := range int(b.slots) {
				if b.tag(slot).Load() >= firstTag {
					units += used(table, place{b, slot}, now)
				}
			}
		})
	}
	for _, nm := range table.registry.names {
		if o := nm.overflow.Load(); o != nil {
			units += o.ledger.Usage(now).Used
		}
	}
	return units
}

// used returns the units that a row has in use.
func used(table *Table, at place, now int64) int64 {
	l := &algo.Ledger{}
	if x := at.block.spilledAt(at.slot); x != nil {
		l = x.ledger
	} else {
		n := table.registry.at(at.block.idAt(at.slot))
		n.load(l, at, at.block.word(at.slot, 0).Load())
	}
	return l.Usage(now).Used
}

// conserved checks that every unit that was granted is in use in some row, or was
// forgiven. A unit more in use is no harm where keys have been in the overflow row:
// they start with what was used there.
func conserved(t *testing.T, table *Table, granted int64) {
	t.Helper()
	s := table.Stats()
	found := inUse(table) + int64(s.Forgiven)
	if found < granted || found > granted && s.OverflowHits == 0 {
		t.Errorf("%d units were granted; %d are in use and %d were forgiven: %+v", granted, inUse(table), s.Forgiven, s)
	}
	if s.Holds != 0 {
		t.Errorf("%d reservations are left", s.Holds)
	}
	check(t, table)
}

// One key and fifty, from 64 goroutines, in a table that grows meanwhile: each key
// gets exactly its limit, whatever the state of its row is.
func TestRaceExactly(t *testing.T) {
	hour := func(a weir.Algorithm) weir.Limit {
		return weir.Limit{Rate: 40, Per: weir.Every(time.Hour), Algorithm: a}
	}
	minute := func(a weir.Algorithm) weir.Limit {
		return weir.Limit{Rate: 40, Per: weir.Every(time.Minute), Algorithm: a}
	}
	kinds := map[string][]weir.Limit{
		"gcra":     {perHour(40)},
		"fixed":    {hour(weir.FixedWindow)},
		"dual":     {minute(weir.DualWindow)},
		"two":      {perHour(40), named("b", perHour(50))},
		"anchored": {hour(weir.AnchoredWindow)},
		"sliding":  {hour(weir.SlidingWindow)},
		"log":      {hour(weir.SlidingLog)},
	}
	for name, limits := range kinds {
		for _, config := range []Config{{}, {KeepKeys: true, MaxKeys: 10_000}} {
			config.Now = newClock().Now
			table := newTable(t, config)
			p, filler := policy(t, "p", limits...), policy(t, "filler", limits...)
			const keys = 50
			var granted [keys + 1]atomic.Int64
			race(t, func(i int, r *rand.Rand) {
				for j := range short(25, 100) {
					key := min(r.IntN(2*keys), keys) // one is hot
					if try(t, table, p, fmt.Sprint(key), 1) {
						granted[key].Add(1)
					}
					try(t, table, filler, fmt.Sprint(i, " ", j), 1)
				}
			})
			for key := range granted {
				n := granted[key].Load()
				for try(t, table, p, fmt.Sprint(key), 1) {
					n++
				}
				if n != 40 {
					t.Errorf("%s, %+v: key %d got %d units, want 40", name, config, key, n)
				}
			}
			if s := table.Stats(); s.Evicted+s.OverflowHits != 0 {
				t.Errorf("%s: the table was to be large enough: %+v", name, s)
			}
			check(t, table)
		}
	}
}

// chaos is everything at once on few shards: takes on hot keys under two sets of
// limits, so that rows are converted and blocks rebuilt all the time; new keys, so
// that others are evicted; reservations, batches, Set, looking for unused limits.
// Units are granted at one instant and converted without a rounding, so each must
// be found again.
type chaos struct {
	t       *testing.T
	table   *Table
	hot     []string
	limits  [3]*weir.Policy
	tiny    *weir.Policy
	granted atomic.Int64
}

func newChaos(t *testing.T, c Config, shards int) *chaos {
	c.Now = newClock().Now
	x := &chaos{t: t, table: newTable(t, c), tiny: policy(t, "tiny", perHour(1))}
	x.table.makeShards(shards)
	for i := range x.limits {
		x.limits[i] = burst(t, "p", 1_000_000+i) // more than anybody takes
	}
	for i := range 10 {
		x.hot = append(x.hot, fmt.Sprint("hot", i))
		x.grant(try(t, x.table, x.tiny, x.hot[i], 1), 1) // refused from now on
	}
	return x
}

func (x *chaos) grant(ok bool, units int64) {
	if ok {
		x.granted.Add(units)
	}
}

// step is what one goroutine does again and again.
func (x *chaos) step(i, j int, r *rand.Rand) {
	p, key := x.limits[r.IntN(2)], x.hot[r.IntN(len(x.hot))]
	switch k := r.IntN(40); {
	case k < 20:
		x.grant(try(x.t, x.table, p, key, 1), 1)
	case k < 26: // with more in use than the hot ones, at times: then those go
		cost := 1 + r.Int64N(300)
		x.grant(try(x.t, x.table, p, fmt.Sprint("new", i, " ", j), cost), cost)
	case k < 30:
		b := tryDo(x.t, x.table, &weir.Batch{Op: weir.TakeAll, Charges: charges(p, 1, key, x.hot[r.IntN(len(x.hot))], fmt.Sprint("both", i, " ", j))})
		x.grant(b.Allowed(), 3)
	case k < 32:
		b := tryDo(x.t, x.table, &weir.Batch{Op: weir.TakeEach, Charges: charges(p, 1, key, key, x.hot[0])})
		for _, d := range b.Decisions {
			x.grant(d.Allowed, 1)
		}
	case k < 37:
		x.reserve(p, key, r)
	case k < 39:
		if try(x.t, x.table, x.tiny, key, 1) {
			x.t.Errorf("%s was refused, and is free", key)
		}
	case j%10 == 0:
		x.disturb(i)
	}
}

// reserve reserves, and commits more, less or nothing.
func (x *chaos) reserve(p *weir.Policy, key string, r *rand.Rand) {
	res, err := weir.Reserve(background(), x.table, time.Minute, charges(p, 3, key)...)
	if err != nil {
		x.t.Errorf("reserve: %v", err)
		return
	}
	if !res.Decision.Allowed {
		return
	}
	units := r.Int64N(5)
	out, err := res.Commit(background(), units)
	if err != nil || out[0].Late || out[0].Refunded != max(0, 3-units) || out[0].Overrun != max(0, units-3) {
		x.t.Errorf("commit %d of 3: %+v, %v", units, out, err)
	}
	x.granted.Add(units)
}

// disturb sets a policy and looks for limits that no row has.
func (x *chaos) disturb(i int) {
	if i%8 == 0 {
		if err := x.table.Set(background(), x.limits[1], x.limits[1+i/8%2]); err != nil {
			x.t.Errorf("set: %v", err)
		}
	}
	x.table.registry.mu.Lock()
	x.table.collectLocked()
	x.table.registry.mu.Unlock()
}

func TestRaceEverything(t *testing.T) {
	cases := []struct {
		config Config
		shards int
	}{
		{Config{MaxKeys: 100}, 1}, // everybody meets everybody
		{Config{MaxKeys: 60, KeepKeys: true}, 1},
		{Config{MaxKeys: 400}, 8},
		{Config{MaxKeys: 300, Snapshots: true}, 16}, // few in each
	}
	for _, c := range cases {
		x := newChaos(t, c.config, c.shards)
		race(t, func(i int, r *rand.Rand) {
			for j := range short(70, 2000) {
				x.step(i, j, r)
			}
		})
		t.Logf("%d shards: %d units granted, %+v", c.shards, x.granted.Load(), x.table.Stats())
		if evicted := x.table.Stats().Evicted; evicted < 100 {
			t.Errorf("only %d rows were evicted; expected many", evicted)
		}
		conserved(t, x.table, x.granted.Load())
	}
}

// Two policies take turns on the keys of one shard, so that each call retires a
// slot and takes another, and a block is rebuilt every few calls, while others swap
// words as fast as they can. A swap that hits what came after its row would make a
// unit appear or vanish.
func TestRaceConversions(t *testing.T) {
	for range short(10, 200) {
		table := newTable(t, Config{Now: newClock().Now, MaxKeys: 12})
		a, b := burst(t, "p", 1), burst(t, "p", 2)
		var granted atomic.Int64
		race(t, func(i int, r *rand.Rand) {
			for j := range short(60, 500) {
				p := a
				if i < 4 && j%2 == 0 { // four turn rows over, sixty swap
					p = b
				}
				if try(t, table, p, fmt.Sprint(r.IntN(3)), 1) {
					granted.Add(1)
				}
				if i == 5 && try(t, table, p, fmt.Sprint("new", j), 1) { // and one evicts
					granted.Add(1)
				}
			}
		})
		conserved(t, table, granted.Load())
	}
}

// Every call brings limits that nobody has seen, so ids are given, taken back and
// given again while rows come and go.
func TestRaceLimits(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 100})
	var granted atomic.Int64
	race(t, func(i int, r *rand.Rand) {
		for j := range short(60, 2000) {
			p := burst(t, fmt.Sprint("p", r.IntN(3)), i*100_000+j)
			if try(t, table, p, fmt.Sprint(r.IntN(10)), 1) {
				granted.Add(1)
			}
			if r.IntN(20) == 0 {
				table.sweep(fromSet)
				if err := table.Set(background(), p, burst(t, p.Name(), 7_000_000+r.IntN(20))); err != nil {
					t.Errorf("set: %v", err)
				}
			}
		}
	})
	t.Logf("%d ids for %d sets of limits", table.registry.ids, racers*short(60, 2000))
	conserved(t, table, granted.Load())
}

// With the real clock no more is granted than a burst and what came back, although
// the key changes between two sets of limits.
func TestRaceRealTime(t *testing.T) {
	const rate = 1_000_000 // per second
	limit := func(burst int64) weir.Limit {
		return weir.Limit{Rate: rate, Per: weir.Every(time.Second), Burst: burst}
	}
	table := newTable(t, Config{MaxKeys: 100})
	p, q := policy(t, "p", limit(50)), policy(t, "p", limit(40))
	var granted atomic.Int64
	start := weir.Now()
	race(t, func(i int, r *rand.Rand) {
		for j := range short(150, 5000) {
			use := p
			if j%16 == 0 {
				use = q
			}
			if cost := 1 + r.Int64N(3); try(t, table, use, "k", cost) {
				granted.Add(cost)
			}
			try(t, table, p, fmt.Sprint(i, " ", j), 1) // evicts whoever is paid off: the key itself, too
			if j%10 == 0 {
				table.sweep(fromSet) // which drops them all, and their limits
			}
		}
	})
	elapsed := weir.Now().Sub(start)
	if most := 50 + int64(elapsed)*rate/int64(time.Second) + 1; granted.Load() > most {
		t.Errorf("%d units in %v, at most %d may be granted", granted.Load(), elapsed, most)
	}
	t.Logf("%d units in %v, %+v", granted.Load(), elapsed, table.Stats())
	check(t, table)
}

// Slots are never held by more than there are, while new keys fill the table, and
// in the end all are free.
func TestRaceSlots(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 20, MaxHolds: 40})
	held, rate := policy(t, "held", weir.Limit{Rate: 5, Algorithm: weir.Concurrency}), policy(t, "rate", perHour(1000))
	keys := []string{"a", "b", "c"}
	var open, most [3]atomic.Int64
	var full atomic.Int64
	race(t, func(i int, r *rand.Rand) {
		for j := range short(40, 2000) {
			k := r.IntN(len(keys))
			res, err := weir.Reserve(background(), table, 0, charges(held, 2, keys[k])...)
			if err != nil {
				t.Errorf("reserve: %v", err)
				return
			}
			try(t, table, rate, fmt.Sprint("new", i, " ", j), 1)
			if !res.Decision.Allowed {
				full.Add(1)
				continue
			}
			raise(&most[k], open[k].Add(2))
			runtime.Gosched()
			open[k].Add(-2)
			if out, err := res.Cancel(background()); err != nil || out[0].Late {
				t.Errorf("cancel: %+v, %v", out, err)
			}
		}
	})
	for k := range keys {
		if n := most[k].Load(); n > 5 {
			t.Errorf("%s: %d slots of 5 were held at once", keys[k], n)
		}
		if d, err := weir.Peek(background(), table, held, keys[k], 5); err != nil || !d.Allowed {
			t.Errorf("%s: slots were lost: %+v, %v", keys[k], d, err)
		}
	}
	t.Logf("%d of %d were refused; %+v", full.Load(), racers*short(40, 2000), table.Stats())
	if n := table.Stats().Holds; n != 0 {
		t.Errorf("%d reservations are left", n)
	}
	check(t, table)
}

// What a batch takes of several keys in several shards, it takes at once: nobody
// sees one without the others.
func TestRaceBatches(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 100_000})
	p := burst(t, "p", 0)
	keys := []string{"a", "b", "c", "d"}
	race(t, func(i int, r *rand.Rand) {
		for range short(20, 500) {
			order := r.Perm(len(keys))
			b := &weir.Batch{Op: weir.TakeAll}
			for _, k := range order {
				b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: keys[k], Cost: 1})
			}
			tryDo(t, table, b)
			for k := range b.Decisions {
				if d := b.Decisions[k]; d.Remaining != b.Decisions[0].Remaining || d.Allowed != b.Decisions[0].Allowed {
					t.Errorf("one key has %d left, another %d", b.Decisions[0].Remaining, d.Remaining)
					return
				}
			}
		}
	})
	want := max(0, 1000-int64(racers*short(20, 500)))
	for _, k := range keys {
		if d := take(t, table, p, k, 0); d.Remaining != want {
			t.Errorf("%s: %+v, want %d left", k, d, want)
		}
	}
	check(t, table)
}
