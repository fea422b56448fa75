package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

var raceTests = []test{
	{name: "64 goroutines get what one would", run: raceOneKey},
	{name: "many keys", run: raceManyKeys},
	{name: "new keys at once", run: raceNewKeys},
	{name: "batches that cross", run: raceBatches},
	{name: "reservations", run: raceReservations},
	{name: "debits lose no unit", run: raceDebits},
	{name: "a reservation is settled once", run: raceSettle},
	{name: "Set loses no unit", run: raceSet},
	{name: "overrides lose no unit", run: raceOverrides},
	{name: "a flood from many sides", run: raceFlood, opts: Options{MaxKeys: 100}, need: BoundedKeys},
	{name: "time passes", run: raceTime},
}

const racers = 64

// race runs f in 64 goroutines, each with a random source of its own.
func race(f func(i int, rnd *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { f(i, rand.New(rand.NewPCG(uint64(i), 6))) }) //nolint:gosec // the same every time
	}
	wg.Wait()
}

// try takes from a goroutine of a race, where nothing may end the test.
func (r *rig) try(p *weir.Policy, key string, cost int64) bool {
	d, err := r.limiter.Take(background(), p, key, cost)
	if err != nil {
		r.t.Errorf("%s: error %v", callText("take", charge(p, key, cost)), err)
	}
	return d.Allowed
}

func raceOneKey(r *rig) {
	for _, p := range append(r.everyAlgorithm(), r.policy("hundred", perHour(100))) {
		var got atomic.Int64
		race(func(int, *rand.Rand) {
			for range 5 {
				if r.try(p, "k", 1) {
					got.Add(1)
				}
			}
		})
		if n := got.Load(); n != p.Capacity() {
			r.t.Errorf("%s: %d goroutines got %d units at one instant, want %d", describe(p), racers, n, p.Capacity())
		}
	}
}

func raceManyKeys(r *rig) {
	p := r.policy("p", perHour(10))
	q := r.policy("q", perHour(10), named("log", using(weir.SlidingLog, perHour(9))))
	const keys = 50
	var got [2][keys]atomic.Int64
	race(func(_ int, rnd *rand.Rand) {
		for range times(20) {
			i, key, cost := rnd.IntN(2), rnd.IntN(keys), 1+rnd.Int64N(3)
			if r.try([]*weir.Policy{p, q}[i], fmt.Sprint(key), cost) {
				got[i][key].Add(cost)
			}
		}
	})
	for key := range keys {
		for i, p := range []*weir.Policy{p, q} {
			n := got[i][key].Load() + r.drain(p, fmt.Sprint(key))
			if n != p.Capacity() {
				r.t.Errorf("%s, key %d: got %d units at one instant, want %d", describe(p), key, n, p.Capacity())
			}
		}
	}
}

// Every goroutine wants a unit of every key, and all keys are new.
func raceNewKeys(r *rig) {
	policies := []*weir.Policy{r.policy("p", perHour(10)), r.policy("q", perHour(10), named("log", using(weir.SlidingLog, perHour(9))))}
	const keys = 40
	var got [keys]atomic.Int64
	race(func(_ int, rnd *rand.Rand) {
		for _, key := range rnd.Perm(keys) {
			if r.try(policies[key%2], fmt.Sprint(key), 1) {
				got[key].Add(1)
			}
		}
	})
	for key := range keys {
		if n, p := got[key].Load(), policies[key%2]; n != p.Capacity() {
			r.t.Errorf("%s, new key %d: %d goroutines got %d units, want %d", describe(p), key, racers, n, p.Capacity())
		}
	}
}

// Debits among takes: what was taken, owed and is left is all there was, for keys
// whose state is one word, several, or a log.
func raceDebits(r *rig) {
	const rate, debits = 1000, 3
	for _, p := range []*weir.Policy{
		r.policy("gcra", perHour(rate)),
		r.policy("fixed", using(weir.FixedWindow, perHour(rate))),
		r.policy("several", perHour(rate), named("log", using(weir.SlidingLog, perHour(rate)))),
	} {
		var took atomic.Int64
		race(func(_ int, rnd *rand.Rand) {
			for range debits {
				b := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{charge(p, "k", 1), charge(p, "k", 1)}}
				if err := r.limiter.Do(background(), &b); err != nil || !b.Allowed() {
					r.t.Errorf("%s: got %v, error %v", batchText(&b), b.Decisions, err)
				}
				if cost := 1 + rnd.Int64N(2); r.try(p, "k", cost) {
					took.Add(cost)
				}
			}
		})
		r.wantLeft("after a race of debits and takes", p, "k", rate-2*debits*racers-took.Load(), rate)
	}
}

// Batches meet their keys in every order: none may wait for another for ever,
// and what is taken is taken from both.
func raceBatches(r *rig) {
	p := r.policy("p", perHour(40))
	const keys = 6
	var got [keys]atomic.Int64
	race(func(_ int, rnd *rand.Rand) {
		for range times(5) {
			a, b := rnd.IntN(keys), rnd.IntN(keys)
			batch := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{charge(p, fmt.Sprint(a), 1), charge(p, fmt.Sprint(b), 2)}}
			if err := r.limiter.Do(background(), &batch); err != nil {
				r.t.Errorf("%s: error %v", batchText(&batch), err)
			}
			if batch.Allowed() {
				got[a].Add(1)
				got[b].Add(2)
			}
		}
	})
	for key := range keys {
		if n := got[key].Load() + r.drain(p, fmt.Sprint(key)); n != 40 {
			r.t.Errorf("key %d: got %d units at one instant, want 40", key, n)
		}
	}
}

// While goroutines take, reserve and commit, never more is held than there is,
// and at the end all is back but what was used.
func raceReservations(r *rig) {
	held, rate := r.policy("held", slots(7)), r.policy("rate", perHour(100_000))
	var open, most, used atomic.Int64
	race(func(_ int, rnd *rand.Rand) {
		for range times(5) {
			cost, use := 1+rnd.Int64N(3), rnd.Int64N(3)
			res, err := weir.Reserve(background(), r.limiter, 0, charge(held, "k", cost), charge(rate, "k", cost))
			if err != nil {
				r.t.Errorf("reserve: error %v", err)
				return
			}
			if !res.Decision.Allowed {
				continue
			}
			now := open.Add(cost)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			used.Add(use)
			open.Add(-cost)
			if _, err := res.Commit(background(), cost, use); err != nil {
				r.t.Errorf("commit: error %v", err)
			}
			if r.try(rate, "k", 1) {
				used.Add(1)
			}
		}
	})
	if most.Load() > 7 {
		r.t.Errorf("%d slots of 7 were held at once", most.Load())
	}
	r.wantLeft("when all are settled", held, "k", 7, 7)
	r.wantLeft("when all are settled", rate, "k", 100_000-used.Load(), 100_000)
}

// One of the callers settles, and all get its outcome.
func raceSettle(r *rig) {
	p := r.policy("p", perHour(100))
	for range times(3) {
		b := r.do(weir.ReserveAll, charge(p, "k", 50))
		var mu sync.Mutex
		replies := map[weir.Settled]int{}
		race(func(i int, _ *rand.Rand) {
			s := weir.Batch{Op: weir.Settle, Charges: []weir.Charge{charge(p, "k", int64(i%50))}, Receipts: append([]weir.Receipt{}, b.Receipts...)}
			if err := r.limiter.Do(background(), &s); err != nil {
				r.t.Errorf("settle: error %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			replies[s.Settled[0]]++
		})
		for s, n := range replies {
			if len(replies) != 1 || n != racers || s.Refunded == 0 {
				r.t.Errorf("%d goroutines settled 50 units: got %v, want the same reply for all of them", racers, replies)
			}
			r.wantLeft(fmt.Sprintf("after %d of 50 were given back", s.Refunded), p, "k", 50+s.Refunded, 100)
		}
		r.reset(p, "k")
	}
}

// The limit goes up and down while units are taken: each is in use once.
func raceSet(r *rig) {
	versions := []*weir.Policy{r.policy("p", perHour(100)), r.policy("p", perHour(200)), r.policy("p", using(weir.FixedWindow, perHour(150)))}
	var got atomic.Int64
	race(func(i int, rnd *rand.Rand) {
		for range times(3) {
			if i%16 == 0 {
				if err := r.limiter.Set(background(), versions[0], versions[rnd.IntN(3)]); err != nil {
					r.t.Errorf("set: error %v", err)
				}
			}
			if r.try(versions[0], "k", 1) {
				got.Add(1)
			}
		}
	})
	all := r.policy("p", perHour(1000))
	r.set(versions[0], all)
	if got.Load() > 200 {
		r.t.Errorf("%d units were taken under limits of at most 200", got.Load())
	}
	r.wantLeft(fmt.Sprintf("after %d units under changing limits", got.Load()), all, "k", 1000-got.Load(), 1000)
}

func raceOverrides(r *rig) {
	p := r.policy("p", perHour(100))
	all := []*weir.Policy{p, r.with(p, perHour(200)), r.with(p, using(weir.FixedWindow, perHour(150))), r.again(p)}
	var got atomic.Int64
	race(func(_ int, rnd *rand.Rand) {
		for range times(5) {
			if r.try(all[rnd.IntN(len(all))], "k", 1) {
				got.Add(1)
			}
		}
	})
	if got.Load() > 200 {
		r.t.Errorf("%d units were taken under limits of at most 200", got.Load())
	}
	r.wantLeft(fmt.Sprintf("after %d units under several sets of limits", got.Load()), r.with(p, perHour(1000)), "k", 1000-got.Load(), 1000)
}

// Keys that are used up stay so while others push in from all sides.
func raceFlood(r *rig) {
	p := r.policy("p", perHour(3))
	r.take(p, "victim", 3)
	race(func(i int, _ *rand.Rand) {
		for j := range times(30) {
			r.try(p, fmt.Sprint("bogus", i, "-", j), 1)
			if r.try(p, "victim", 1) {
				r.t.Errorf("a flood of keys freed one that was used up")
				return
			}
		}
	})
}

// With the clock moving, readings are out of order by the time they are used. No
// more may be granted than a burst and what came back.
func raceTime(r *rig) {
	const per = int64(time.Millisecond)
	p := r.policy("p", weir.Limit{Rate: 1, Per: weir.Every(time.Millisecond), Burst: 20})
	start := r.clock.Now()
	var got atomic.Int64
	race(func(int, *rand.Rand) {
		for range times(10) {
			r.clock.now.Add(per / 4 / 1000 * 1000)
			if r.try(p, "k", 1) {
				got.Add(1)
			}
		}
	})
	most := 20 + int64(r.clock.Now()-start)/per
	if n := got.Load(); n > most {
		r.t.Errorf("%s: got %d units in %v, at most %d may be granted", describe(p), n, r.clock.Now().Sub(start), most)
	}
}
