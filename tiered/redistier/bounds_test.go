package redistier

import (
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/tiered"
)

// These tests are about bounds while the store answers, so a call that waits for the
// processor is not to be decided without it: whatever fails is refused, after long.
const patient = 2 * time.Second

// during returns what was asked for in a phase.
func during(p phase, list []grant) (in []grant) {
	for _, g := range list {
		if g.before >= p.From && g.before < p.To {
			in = append(in, g)
		}
	}
	return in
}

// Exact admits no unit too much, whatever the nodes do: here they empty the bucket,
// wait until it is full, and empty it again.
func TestFleetExact(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	limit := nodeLimit{Rate: 1000, Burst: 300, Per: time.Second}
	fleet := startFleet(t, nodeOrders{Addr: redis.Addr(), Limit: limit, OnError: weir.FailClosed, Timeout: patient})
	const period, busy = 500 * time.Millisecond, 200 * time.Millisecond
	var phases []phase
	at := time.Now().Add(50 * time.Millisecond)
	for range short(3, 30) {
		phases = append(phases, phase{From: at.UnixNano(), To: at.Add(busy).UnixNano(), Key: "k", Goroutines: 8, MaxCost: 7})
		at = at.Add(period)
	}
	askAll(fleet, request{Do: "load", Phases: phases})
	sum := waitLoad(fleet)
	list := grants(fleet, "k")
	e := excess(limit, list)
	possible := float64(len(phases)) * (float64(limit.Burst) + limit.perNano()*float64(busy))
	t.Logf("%d calls, %d units granted, %.0f %% of what was possible; excess %.3f", sum.Calls, sum.Granted, 100*float64(sum.Granted)/possible, e)
	t.Log(decidedOn(sumStats(fleet)))
	if e > rounding(limit) {
		t.Errorf("%.3f units too many", e)
	}
	quit(fleet)
}

// Leases keep the bound at every moment, with four processes that empty the bucket
// while all hold leases, wait until it is full, and so on. Meanwhile one is stopped for
// longer than its lease lasts, and goes on when the bucket is full and all others ask;
// one is killed with a lease; one is closed, and goes on asking.
func TestFleetLeased(t *testing.T) {
	t.Parallel()
	for range short(1, 8) {
		testLeased(t)
	}
}

func testLeased(t *testing.T) {
	t.Helper()
	redis := redistest.Start(t)
	limit := nodeLimit{Rate: 2400, Burst: 960, Per: time.Second}
	fleet := startFleet(t, nodeOrders{
		Addr: redis.Addr(), Limit: limit, Mode: tiered.Leased, OnError: weir.FailClosed, Timeout: patient, LeaseTTL: 500 * time.Millisecond,
	})
	const (
		cycles = 5
		hammer = 250 * time.Millisecond
		pause  = 400 * time.Millisecond // burst / rate
		calm   = 500 * time.Millisecond // 300 units a second on each node
	)
	var hammers, all []phase
	at, cycle := time.Now().Add(50*time.Millisecond), make([]time.Time, cycles)
	for i := range cycles {
		cycle[i] = at
		hammers = append(hammers, phase{From: at.UnixNano(), To: at.Add(hammer).UnixNano(), Key: "k", Goroutines: 8, MaxCost: 7})
		all = append(all, hammers[i])
		at = at.Add(hammer + pause)
		if i != 1 && i != cycles-1 { // after the second, all is quiet: the bucket is full when the stopped one goes on
			all = append(all, phase{From: at.UnixNano(), To: at.Add(calm).UnixNano(), Key: "k", Goroutines: 3, Every: 10 * time.Millisecond, MaxCost: 1})
		}
		at = at.Add(calm)
	}
	askAll(fleet, request{Do: "load", Phases: all})
	leased := func(p *process) {
		t.Helper()
		p.await("a lease", func(r reply) bool { return r.Stats.Leases > 0 })
	}
	until := func(at time.Time) { time.Sleep(time.Until(at)) }

	stopped, killed, closed := fleet[3], fleet[2], fleet[1]
	until(cycle[1].Add(-calm + 100*time.Millisecond))
	leased(stopped)
	began := time.Now()
	stopped.signal(syscall.SIGSTOP)
	until(cycle[2].Add(2 * time.Millisecond))
	until(began.Add(600 * time.Millisecond)) // more than a lease lasts, where the test was late
	stopped.signal(syscall.SIGCONT)
	was := time.Since(began)

	until(cycle[3].Add(-calm + 100*time.Millisecond))
	leased(killed)
	killed.signal(syscall.SIGKILL)
	_ = killed.cmd.Wait()

	until(cycle[4].Add(-calm + 100*time.Millisecond))
	leased(closed)
	closing := closed.ask(request{Do: "close"}).Took

	rest := []*process{fleet[0], closed, stopped}
	lag := waitLoad(rest[:2]).Lag // not of the one that was stopped
	waitLoad(rest)
	list := grants(fleet, "k")
	e := excess(limit, list)
	possible, granted := 0.0, int64(0)
	for _, p := range hammers {
		possible += float64(limit.Burst) + limit.perNano()*float64(hammer)
		granted += total(during(p, list))
	}
	used := float64(granted) / possible
	s := sumStats(rest)
	t.Logf("%d units granted in %v; while all asked, %.0f %% of what was possible; excess %.3f", total(list), span(list).Round(time.Millisecond), 100*used, e)
	t.Logf("a node was stopped for %v; Close took %v; %s", was.Round(time.Millisecond), closing.Round(time.Millisecond), decidedOn(s))
	if e > rounding(limit) {
		t.Errorf("%.3f units too many", e)
	}
	if used < 0.6 && lag < hammer/10 { // else the machine was busy
		t.Errorf("%.0f %% of what was possible was granted, want 60 %% or more", 100*used)
	}
	if s.Lease == 0 || was < 500*time.Millisecond {
		t.Errorf("%d decisions on leases, stopped for %v: this was no test", s.Lease, was)
	}
	quit(rest)
}

// overshoot is the bound of Async: with remaining units at the last reply of the store,
// within so long, on nodes whose demand is more than anything.
func overshoot(l nodeLimit, remaining, unsynced int64, within time.Duration) float64 {
	there := float64(remaining) + l.perNano()*float64(within)
	return math.Max(0, fleetSize*math.Min(there, float64(unsynced))-there)
}

// The worst case for Async: all nodes have an allowance from the same full bucket, and spend it at
// the same time. The excess is what the formula says, and not much less.
func TestFleetAsync(t *testing.T) {
	redis := redistest.Start(t)
	limit := nodeLimit{Rate: 1, Burst: 200, Per: time.Second}
	o := nodeOrders{
		Addr: redis.Addr(), Limit: limit, Mode: tiered.Async, OnError: weir.FailClosed,
		Timeout: patient, FlushEvery: 400 * time.Millisecond, MaxUnsynced: 200,
	}
	fleet := startFleet(t, o)
	bound := overshoot(limit, limit.Burst, o.MaxUnsynced, o.FlushEvery+o.Timeout)
	worst := 0.0
	for round := range short(3, 20) {
		key := string(rune('a' + round))
		askAll(fleet, request{Do: "take", Key: key, Cost: 1}) // now all have an allowance
		at := time.Now().Add(20 * time.Millisecond)
		askAll(fleet, request{Do: "load", Phases: []phase{
			{From: at.UnixNano(), To: at.Add(200 * time.Millisecond).UnixNano(), Key: key, Goroutines: 4},
		}})
		waitLoad(fleet)
		list := grants(fleet, key)
		e := excess(limit, list)
		t.Logf("round %d: %d units granted, excess %.1f, at most %.1f", round, total(list), e, bound)
		if e > bound+rounding(limit) {
			t.Errorf("round %d: excess %.2f, want %.2f or less", round, e, bound)
		}
		worst = max(worst, e)
		eventually(t, "all usage to be flushed", func() bool { return unsynced(fleet) == 0 })
	}
	if worst < bound/2 {
		t.Errorf("excess %.1f at worst, which is far from %.1f: this was no test", worst, bound)
	}
	if s := sumStats(fleet); s.Lost > 0 {
		t.Errorf("%d units lost", s.Lost)
	}
	quit(fleet)
}

func unsynced(fleet []*process) (units int64) {
	for _, r := range askAll(fleet, request{Do: "stats"}) {
		units += r.Stats.Unsynced
	}
	return units
}

// The excess of Async is charged, so that it does not accumulate. For any remaining units
// and any time up to a flush and a round trip, the formula is at most (nodes − 1) × cap.
func TestFleetAsyncExcessDoesNotAccumulate(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	limit := nodeLimit{Rate: 200, Burst: 200, Per: time.Second}
	o := nodeOrders{
		Addr: redis.Addr(), Limit: limit, Mode: tiered.Async, OnError: weir.FailClosed,
		Timeout: patient, FlushEvery: 400 * time.Millisecond, MaxUnsynced: 200,
	}
	fleet := startFleet(t, o)
	askAll(fleet, request{Do: "take", Key: "k", Cost: 1})
	at := time.Now().Add(20 * time.Millisecond)
	askAll(fleet, request{Do: "load", Phases: []phase{
		{From: at.UnixNano(), To: at.Add(short(4*time.Second, 60*time.Second)).UnixNano(), Key: "k", Goroutines: 4},
	}})
	waitLoad(fleet)
	list := grants(fleet, "k")
	first := total(during(phase{From: 0, To: at.Add(o.FlushEvery).UnixNano()}, list))
	took := time.Since(at)
	bound := float64((fleetSize - 1) * o.MaxUnsynced)
	most := float64(limit.Burst) + limit.perNano()*float64(took) + bound
	e := excess(limit, list)
	t.Logf("%d units in the first %v, %d in all %v, at most %.0f; excess %.1f, at most %.0f",
		first, o.FlushEvery, total(list), took.Round(time.Millisecond), most, e, bound)
	t.Log(decidedOn(sumStats(fleet)))
	if float64(total(list)) > most || e > bound+rounding(limit) {
		t.Errorf("%d units, want %.0f or less; excess %.1f, want %.0f or less", total(list), most, e, bound)
	}
	quit(fleet)
}
