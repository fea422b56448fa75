package weir

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/algo"
)

const racers = 64

// virtual is a clock that all goroutines of a test share and push on.
type virtual struct{ ns atomic.Int64 }

// tick returns an instant that nobody else got.
func (v *virtual) tick(r *rand.Rand, most int64) Instant {
	return t0 + Instant(v.ns.Add(1+r.Int64N(most)))
}

// race runs f in 64 goroutines, each with a random source of its own.
func race(seed uint64, f func(r *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { f(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	wg.Wait()
}

func rounds() int {
	if long {
		return 2000
	}
	return 200
}

// taken is one outcome of the fast path: decided at an instant that is not before
// the caller's now.
type taken struct {
	now  Instant
	at   Instant
	cost int64
	d    Decision
}

// raceTake lets 64 goroutines take one to three units each time.
func raceTake(s *Single, seed uint64, step int64) []taken {
	var clock virtual
	var mu sync.Mutex
	var all []taken
	race(seed, func(r *rand.Rand) {
		var mine []taken
		for range rounds() {
			k := taken{now: clock.tick(r, step), cost: r.Int64N(4)}
			k.at = s.seen(k.now)
			k.d = s.takeAt(k.at, k.now, k.cost)
			mine = append(mine, k)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, mine...)
	})
	return all
}

// On the fast path nothing sees the order of decisions, but a grant tells the
// TAT it left behind (now + ResetAfter), and TATs only grow: sorted by it, the
// grants are in order. The model must agree with each, and each refusal must
// tell a TAT that some grant left.
func TestRaceGCRA(t *testing.T) {
	limit := Limit{Rate: 1_000_000, Per: Every(time.Second), Burst: 50}.normal()
	s := mustNewAt(t, t0, limit)
	all := raceTake(s, 1, 1500)
	grants := slices.DeleteFunc(slices.Clone(all), func(k taken) bool { return !k.d.Allowed || k.cost == 0 })
	slices.SortFunc(grants, func(a, b taken) int { return int(a.now.Add(a.d.ResetAfter) - b.now.Add(b.d.ResetAfter)) })

	left := map[Instant]bool{}
	m := newRatModel(limit)
	for i, g := range grants {
		m.last = ratInt(-1 << 62) // the word knows no last now: an older one is just stricter
		ok, remaining := m.take(int64(g.at-t0), g.cost)
		if !ok || remaining != g.d.Remaining {
			t.Fatalf("grant %d of %d, %+v: the model says %v, %d remaining", i, len(grants), g, ok, remaining)
		}
		left[g.now.Add(g.d.ResetAfter)] = true
	}
	for _, k := range all {
		tat := k.now.Add(k.d.RetryAfter + time.Duration(50-k.cost)*time.Microsecond)
		if !k.d.Allowed && !left[tat] {
			t.Fatalf("refusal %+v tells of a state that no grant left", k)
		}
	}
	t.Logf("%d grants and %d others", len(grants), len(all)-len(grants))
	for i := range grants {
		grants[i].now = grants[i].at
	}
	checkBound(t, limit, grants)
}

// checkBound checks every interval between two grants against burst + rate × Δ.
func checkBound(t *testing.T, l Limit, grants []taken) {
	t.Helper()
	slices.SortFunc(grants, func(a, b taken) int { return int(a.now - b.now) })
	per := big.NewRat(l.Rate, int64(l.Per.every))
	// The most over all i ≤ j of Σ cost − rate × (tⱼ − tᵢ): Kadane's sum.
	run, worst := new(big.Rat), new(big.Rat)
	last := t0
	for _, g := range grants {
		run.Sub(run, new(big.Rat).Mul(per, ratInt(int64(g.now-last))))
		run = ratMax(run, new(big.Rat))
		run = new(big.Rat).Add(run, ratInt(g.cost))
		worst, last = ratMax(worst, run), g.now
	}
	bound := new(big.Rat).Add(ratInt(l.Burst), per) // one nanosecond of rate on top
	if worst.Cmp(bound) > 0 {
		t.Errorf("some interval has %s units beyond rate × time, more than %s", worst.FloatString(3), bound.FloatString(3))
	}
}

func TestRaceWindows(t *testing.T) {
	cases := [][]Limit{
		{{Rate: 100, Per: Every(time.Millisecond), Algorithm: FixedWindow}},
		{{Rate: 1000, Per: Every(time.Second), Algorithm: DualWindow}},
		{
			{Name: "s", Rate: 700, Per: Every(time.Second), Algorithm: DualWindow},
			{Name: "m", Rate: 5000, Per: Every(time.Minute), Algorithm: DualWindow},
		},
	}
	for _, limits := range cases {
		s := mustNewAt(t, t0, limits...)
		step := int64(limits[0].Per.every) / 400
		used := map[Instant]int64{} // by the end of the window
		full := map[Instant]bool{}
		for _, k := range raceTake(s, 2, step) {
			if k.cost == 0 || k.d.By != 0 {
				continue
			}
			switch end := k.now.Add(k.d.ResetAfter); {
			case k.d.Allowed:
				used[end] += k.cost
			case k.d.Remaining == 0:
				full[end] = true
			}
		}
		for end, n := range used {
			if n > limits[0].Rate {
				t.Errorf("%v: %d in the window that ends at %v", limits[0], n, end.Time())
			}
			if full[end] && len(limits) == 1 && n != limits[0].Rate {
				t.Errorf("%v: refused as empty at %d", limits[0], n)
			}
		}
		t.Logf("%v: %d windows, %d of them full", limits[0], len(used), len(full))
	}
}

// raceLimits are the limits that the mix of operations is run on; a second and
// a third set are switched to and back while it runs.
var raceLimits = [][3]Limit{
	{
		{Rate: 1_000_000, Per: Every(time.Second), Burst: 60},
		{Rate: 500_000, Per: Every(time.Second), Burst: 40},
		{Rate: 2_000_000, Per: Every(time.Second), Burst: 80},
	},
	{
		{Rate: 60, Per: Every(50 * time.Microsecond), Algorithm: FixedWindow},
		{Rate: 40, Per: Every(50 * time.Microsecond), Algorithm: FixedWindow},
		{Rate: 50, Per: Every(70 * time.Microsecond), Algorithm: FixedWindow},
	},
	{
		{Rate: 60, Per: Every(50 * time.Microsecond), Algorithm: AnchoredWindow},
		{Rate: 40, Per: Every(50 * time.Microsecond), Algorithm: AnchoredWindow},
		{Rate: 50, Per: Every(70 * time.Microsecond), Algorithm: AnchoredWindow},
	},
	{
		{Rate: 60, Per: Every(50 * time.Microsecond), Algorithm: SlidingWindow},
		{Rate: 40, Per: Every(50 * time.Microsecond), Algorithm: SlidingWindow},
		{Rate: 50, Per: Every(70 * time.Microsecond), Algorithm: SlidingWindow},
	},
	{
		{Rate: 60, Per: Every(50 * time.Microsecond), Algorithm: SlidingLog},
		{Rate: 40, Per: Every(50 * time.Microsecond), Algorithm: SlidingLog},
		{Rate: 50, Per: Every(50 * time.Microsecond), Algorithm: SlidingLog},
	},
	{
		{Rate: 60, Per: Every(time.Second), Algorithm: DualWindow},
		{Rate: 40, Per: Every(time.Second), Algorithm: DualWindow},
		{Rate: 50, Per: Every(time.Minute), Algorithm: DualWindow},
	},
	{
		{Rate: 60, Algorithm: Concurrency},
		{Rate: 40, Algorithm: Concurrency},
		{Rate: 80, Algorithm: Concurrency},
	},
}

// mix lets 64 goroutines take, reserve, commit less and more, cancel, let
// expire, renew and set, and returns every step in the order of the lock. A
// reservation that outlives the test keeps all of it under the lock.
func mix(t *testing.T, s *Single, limits [3]Limit, seed uint64, resets bool) []step {
	var steps []step
	if _, d := s.reserveAt(t0, 1, time.Hour); !d.Allowed {
		t.Fatalf("first reservation: %+v", d)
	}
	s.trace = func(e step) { steps = append(steps, e) } // under the lock
	var clock virtual
	race(seed, func(r *rand.Rand) {
		var open []*Hold
		for range rounds() {
			now := clock.tick(r, 300)
			switch k := r.IntN(20); {
			case k < 8:
				s.TakeAt(now, r.Int64N(5))
			case k < 14:
				h, d := s.reserveAt(now, r.Int64N(8), time.Duration(1+r.Int64N(100_000)))
				if d.Allowed {
					open = append(open, h)
				}
			case k == 14 && len(open) > 0:
				open[r.IntN(len(open))].renewAt(now, time.Duration(1+r.Int64N(100_000)))
			case k == 15 && r.IntN(10) == 0:
				if err := s.setAt(now, limits[r.IntN(3)]); err != nil {
					t.Error(err)
				}
			case k == 16 && resets && r.IntN(50) == 0:
				s.resetAt(now)
			case len(open) > 0:
				i := r.IntN(len(open))
				open[i].commitAt(now, r.Int64N(10))
				open = slices.Delete(open, i, i+1)
			}
		}
	})
	return steps
}

// Every step of the mix must be what a ledger does that is asked one by one, in
// the order of the lock: the limiter is linearizable.
func TestRaceMix(t *testing.T) {
	for i, limits := range raceLimits {
		t.Run(limits[0].normal().Algorithm.String(), func(t *testing.T) {
			s := mustNewAt(t, t0, limits[0])
			p := s.policy()
			steps := mix(t, s, limits, uint64(i), true)
			l := algo.NewLedger(p.compiled.Rules, int64(t0))
			l.Reserve(int64(t0), 1, int64(t0.Add(time.Hour)))
			for n, e := range steps {
				if err := replay(l, &p, e); err != nil {
					t.Fatalf("step %d of %d: %v", n, len(steps), err)
				}
			}
			t.Logf("%d steps", len(steps))
		})
	}
}

// replay repeats a step and compares the outcome.
func replay(l *algo.Ledger, p **Policy, e step) error {
	now := int64(e.now)
	var same bool
	switch e.op {
	case opTake:
		same = l.Take(now, e.cost) == e.verdict
	case opReserve:
		id, v := l.Reserve(now, e.cost, e.expiry)
		same = id == e.id && v == e.verdict
	case opSettle:
		same = l.Settle(now, e.id, e.cost) == e.settled
	case opRenew:
		same = l.Renew(now, e.id, e.expiry) != e.settled.Late
	case opReset:
		l.Reset(now)
		same = true
	case opSet:
		same = l.Set(now, e.policy.compiled.Rules, e.policy.compiled.Continues(&(*p).compiled)) == nil
		*p = e.policy
	}
	if !same {
		return fmt.Errorf("%+v differs from one by one", e)
	}
	return nil
}

// The GCRA mix against rational numbers: every decision, its remaining units,
// and the bound over every interval.
func TestRaceMixAgainstRationals(t *testing.T) {
	seeds := uint64(1)
	if long {
		seeds = 2
	}
	for seed := range seeds {
		limits := raceLimits[0]
		s := mustNewAt(t, t0, limits[0])
		steps := mix(t, s, limits, 100+seed, true)
		m := newRatModel(limits[0].normal())
		m.take(0, 1)
		m.hold(1, 1, int64(time.Hour))
		for n, e := range steps {
			if err := m.replay(e); err != nil {
				t.Fatalf("step %d of %d: %v", n, len(steps), err)
			}
		}
	}
}

func (m *ratModel) replay(e step) error {
	now := int64(e.now - t0)
	switch e.op {
	case opTake, opReserve:
		ok, remaining := m.take(now, e.cost)
		if ok && e.op == opReserve {
			m.hold(e.id, e.cost, e.expiry-int64(t0))
			remaining = m.remaining(m.last)
		}
		if ok != e.verdict.OK || remaining != e.verdict.Remaining {
			return fmt.Errorf("%+v: the model says %v, %d remaining", e, ok, remaining)
		}
	case opSettle:
		if ok := m.settle(now, e.id, e.cost); ok == e.settled.Late {
			return fmt.Errorf("%+v: the model says settled %v", e, ok)
		}
	case opRenew:
		m.renew(now, e.id, e.expiry-int64(t0))
	case opReset:
		m.advance(now)
		m.tat = ratInt(-1 << 62)
	case opSet:
		m.change(now, e.policy.limits[0])
	}
	return nil
}

// The bound of each algorithm, with everything in the mix but resets: no
// interval as long as a period has more units than it promises. A reservation
// counts what was used of it, at its start; overruns lie outside the bound.
func TestRaceMixBound(t *testing.T) {
	const us = time.Microsecond
	cases := []struct {
		algorithm Algorithm
		per       time.Duration
		most      func(limit int64) int64
	}{
		{FixedWindow, 50 * us, func(n int64) int64 { return 2 * n }}, // and n per window, below
		{AnchoredWindow, 50 * us, func(n int64) int64 { return 2 * n }},
		{SlidingWindow, 50 * us, func(n int64) int64 { return 2*n - 1 }},
		{SlidingLog, 50 * us, func(n int64) int64 { return n }},
		{DualWindow, time.Second, func(n int64) int64 { return 2 * n }},
		{GCRA, 50 * us, func(n int64) int64 { return 2*n + 1 }}, // burst + rate × (per + 1 ns)
	}
	for i, c := range cases {
		t.Run(c.algorithm.String(), func(t *testing.T) {
			var limits [3]Limit
			for j, rate := range []int64{60, 40, 80} {
				limits[j] = Limit{Rate: rate, Per: Every(c.per), Algorithm: c.algorithm}
			}
			s := mustNewAt(t, t0, limits[0])
			grants := granted(mix(t, s, limits, uint64(200+i), false))
			if n := mostWithin(grants, c.per); n > c.most(80) {
				t.Errorf("%d units within %v", n, c.per)
			}
			if c.algorithm != FixedWindow && c.algorithm != DualWindow {
				return
			}
			windows := map[Instant]int64{}
			for _, g := range grants {
				windows[g.now/Instant(c.per)] += g.cost
			}
			for w, n := range windows {
				if n > 80 {
					t.Errorf("%d units in window %d", n, w)
				}
			}
		})
	}
}

// granted returns the units that steps granted, in order of time.
func granted(steps []step) []taken {
	var grants []taken
	at := map[uint64]int{} // reservations, by id
	for _, e := range steps {
		switch {
		case (e.op == opTake || e.op == opReserve) && e.verdict.OK:
			at[e.id] = len(grants)
			grants = append(grants, taken{now: e.at, cost: e.cost})
		case e.op == opSettle && !e.settled.Late:
			g := &grants[at[e.id]]
			g.cost = min(g.cost, e.cost)
		}
	}
	return grants
}

// mostWithin returns the most units in any (t − d, t].
func mostWithin(grants []taken, d time.Duration) (most int64) {
	var sum int64
	first := 0
	for _, g := range grants {
		sum += g.cost
		for grants[first].now <= g.now.Add(-d) {
			sum -= grants[first].cost
			first++
		}
		most = max(most, sum)
	}
	return most
}

// Reservations come and go, so that the state moves between its word and the
// ledger all the time, while others take: the bound must hold across the moves.
// A grant under the lock counts when the ledger made it, which may be later than
// its caller's now.
func TestRaceWordAndLedger(t *testing.T) {
	limit := Limit{Rate: 1_000_000, Per: Every(time.Second), Burst: 30}.normal()
	s := mustNewAt(t, t0, limit)
	at := map[Instant]Instant{}
	s.trace = func(e step) { at[e.now] = e.at }
	var clock virtual
	var mu sync.Mutex
	var grants []taken
	race(3, func(r *rand.Rand) {
		var mine []taken
		for range rounds() {
			now := clock.tick(r, 200)
			cost := 1 + r.Int64N(3)
			if r.IntN(8) > 0 {
				seen := s.seen(now)
				if s.takeAt(seen, now, cost).Allowed {
					mine = append(mine, taken{now: now, at: seen, cost: cost})
				}
				continue
			}
			if h, d := s.reserveAt(now, cost, time.Second); d.Allowed {
				used := r.Int64N(cost + 1)
				h.commitAt(clock.tick(r, 50), used)
				mine = append(mine, taken{now: now, cost: used})
			}
		}
		mu.Lock()
		defer mu.Unlock()
		grants = append(grants, mine...)
	})
	if word := s.cell.Load().word.Load(); word == mark {
		t.Error("the state stayed in the ledger")
	}
	for i := range grants {
		grants[i].now = max(grants[i].now, grants[i].at, at[grants[i].now])
	}
	t.Logf("%d grants, %d steps under the lock", len(grants), len(at))
	checkBound(t, limit, grants)
}

// Slots are never held by more than there are.
func TestRaceSlots(t *testing.T) {
	s := mustNew(t, Limit{Rate: 10, Algorithm: Concurrency})
	var held, most atomic.Int64
	race(4, func(r *rand.Rand) {
		for range rounds() {
			h, d := s.Reserve(1, NoExpiry)
			if !d.Allowed {
				continue
			}
			n := held.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			held.Add(-1)
			h.Cancel()
		}
	})
	if most.Load() > 10 || most.Load() == 0 {
		t.Errorf("%d slots of 10 were held at once", most.Load())
	}
	if d := s.Peek(10); !d.Allowed {
		t.Errorf("slots were lost: %+v", d)
	}
}

// A goroutine that read the clock, was delayed, and then finds the state in the
// ledger must not take a healthy TAT for a poisoned one and pull it back.
func TestStaleNowUnderTheLock(t *testing.T) {
	s := mustNewAt(t, t0, Limit{Rate: 1, Per: Every(time.Second), Burst: 1, MaxDebt: 1})
	s.TakeAt(t0, 1)
	s.resetAt(t0.Add(-time.Hour)) // only to enter the lock with an old now
	s.TakeAt(t0, 1)
	h, d := s.reserveAt(t0.Add(-time.Hour), 0, time.Minute)
	if !d.Allowed {
		t.Fatalf("reserving nothing: %+v", d)
	}
	if d := s.TakeAt(t0.Add(-time.Hour), 1); d.Allowed {
		t.Errorf("an hour before: %+v", d)
	}
	h.commitAt(t0.Add(-time.Hour), 0)
	if d := s.TakeAt(t0, 1); d.Allowed {
		t.Errorf("a refusal at an older now gave a unit back: %+v", d)
	}
}
