package redistier

import (
	"math"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/tiered"
)

// fleetCost is the most that a call costs in a load that lasts.
const fleetCost = 3

// forever is a load that lasts until it is stopped.
func forever(key string, goroutines int) request {
	return request{Do: "load", Phases: []phase{{From: time.Now().UnixNano(), To: math.MaxInt64, Key: key, Goroutines: goroutines, MaxCost: fleetCost}}}
}

// awaitAll waits until all nodes are so.
func awaitAll(fleet []*process, what string, is func(tiered.Stats) bool) {
	for _, p := range fleet {
		p.t.Helper()
		p.await(what, func(r reply) bool { return is(r.Stats) })
	}
}

// Redis becomes unavailable under load, and restarts without its data. Every call gets an answer
// in time, the nodes admit their shares, no goroutines are left over, and afterwards the
// nodes share again.
func TestFleetOutage(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const callers = 16
	limit := nodeLimit{Rate: 200, Burst: 200, Per: time.Second}
	o := nodeOrders{Addr: redis.Addr(), Limit: limit, Timeout: 20 * time.Millisecond, Every: time.Second}
	fleet := startFleet(t, o)
	askAll(fleet, forever("k", callers/2))
	askAll(fleet, forever("other", callers/2))
	awaitAll(fleet, "decisions", func(s tiered.Stats) bool { return s.Store > 20 })
	before := askAll(fleet, request{Do: "peak"})

	// The worst: one node gets the burst of a key, then the others their shares of it, since
	// they know nothing of that, and then it is full again in a server without data.
	fleet[0].ask(request{Do: "take", Key: "worst", Cost: limit.Burst})
	redis.Kill()
	killed := time.Now()
	askAll(fleet, forever("worst", 1))
	awaitAll(fleet, "the breaker to open", func(s tiered.Stats) bool { return s.OpenBreakers == 1 })
	eventually(t, "the outage to last", func() bool { return time.Since(killed) > short(2*time.Second, 15*time.Second) })
	in := askAll(fleet, request{Do: "peak"})
	redis.Restart()
	back := time.Now()
	awaitAll(fleet, "the breaker to close", func(s tiered.Stats) bool { return s.OpenBreakers == 0 && s.Closed > 0 && s.Unsynced == 0 })
	t.Logf("unavailable for %v; all breakers were closed %v later", back.Sub(killed).Round(time.Millisecond), time.Since(back).Round(time.Millisecond))
	for i, p := range fleet {
		was := before[i].Goroutines
		after := p.await("goroutines to end", func(r reply) bool { return r.Goroutines <= was+5 }) // fewer is a matter of the moment
		t.Logf("node %d: %d goroutines before, up to %d in the outage, %d after", p.place, was, in[i].Peak, after.Goroutines)
		if in[i].Peak > was+2*callers+1 {
			t.Errorf("node %d: %d goroutines in the outage, %d before, with %d callers", p.place, in[i].Peak, was, callers)
		}
		if in[i].Stats.Nodes != fleetSize {
			t.Errorf("node %d counted %d nodes in the outage", p.place, in[i].Stats.Nodes)
		}
	}
	awaitAll(fleet, "all nodes to be counted", func(s tiered.Stats) bool { return s.Nodes == fleetSize })
	askAll(fleet, request{Do: "stop"})
	sum := waitLoad(fleet)

	t.Logf("%d calls, the slowest %v, where sleeping 2 ms took up to %v more; %s",
		sum.Calls, sum.Slowest.Round(time.Microsecond), sum.Lag.Round(time.Microsecond), decidedOn(sumStats(fleet)))
	for _, key := range []string{"k", "other", "worst"} {
		list := grants(fleet, key)
		e := excess(limit, list)
		t.Logf("%s: %d units in %v, excess %.1f = %.2f bursts", key, total(list), span(list).Round(time.Millisecond), e, e/float64(limit.Burst))
		if most := float64(3 * limit.Burst); e > most+rounding(limit) {
			t.Errorf("%s: excess %.1f, want %.0f or less: two bursts, and one that the server has forgotten", key, e, most)
		}
	}
	if sum.Slowest > 250*time.Millisecond+3*sum.Lag { // a call may have to wait for the processor several times
		t.Errorf("a call took %v, with a time-out of %v", sum.Slowest, o.Timeout)
	}
	wantShared(t, fleet, limit)
	quit(fleet)
}

// wantShared has all nodes ask for a new key, of which they must get one burst.
func wantShared(t *testing.T, fleet []*process, limit nodeLimit) {
	t.Helper()
	began := sumStats(fleet).Fallback
	now := time.Now()
	p := phase{From: now.UnixNano(), To: now.Add(300 * time.Millisecond).UnixNano(), Key: "new", Goroutines: 4}
	askAll(fleet, request{Do: "load", Phases: []phase{p}})
	waitLoad(fleet)
	list := grants(fleet, "new")
	e, alone := excess(limit, list), sumStats(fleet).Fallback-began
	t.Logf("afterwards: %d units of a new key, excess %.1f, %d decisions without the store", total(list), e, alone)
	most := rounding(limit)
	if alone > 0 { // the machine was busy, and an answer came late
		most += float64(limit.Burst)
	}
	if e > most || total(list) < limit.Burst {
		t.Errorf("afterwards: %d units of a new key, excess %.1f; want a burst of %d, and no more", total(list), e, limit.Burst)
	}
}

// The network comes and goes ten times, which admits no more than if it went once.
func TestFleetFlaps(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	limit := nodeLimit{Rate: 100, Burst: 200, Per: time.Second}
	fleet := startFleet(t, nodeOrders{Addr: relay.Addr(), Limit: limit, Timeout: 20 * time.Millisecond, Every: time.Second})
	askAll(fleet, forever("k", 8))
	awaitAll(fleet, "decisions", func(s tiered.Stats) bool { return s.Store > 20 })
	began := time.Now()
	for range short(10, 30) {
		relay.Block()
		awaitAll(fleet, "the breaker to open", func(s tiered.Stats) bool { return s.OpenBreakers == 1 })
		relay.Unblock()
		awaitAll(fleet, "the breaker to close", func(s tiered.Stats) bool { return s.OpenBreakers == 0 })
	}
	t.Logf("%d flaps took %v", short(10, 30), time.Since(began).Round(time.Millisecond))
	askAll(fleet, request{Do: "stop"})
	sum := waitLoad(fleet)
	list := grants(fleet, "k")
	e := excess(limit, list)
	t.Logf("%d calls, the slowest %v; %d units in %v, excess %.1f = %.2f bursts",
		sum.Calls, sum.Slowest.Round(time.Microsecond), sum.Granted, span(list).Round(time.Millisecond), e, e/float64(limit.Burst))
	s := sumStats(fleet)
	t.Logf("%s, lost units %d", decidedOn(s), s.Lost)
	if most := float64(2 * limit.Burst); e > most+rounding(limit) {
		t.Errorf("excess %.1f, want %.0f or less", e, most)
	}
	quit(fleet)
}

// One node is cut off, and the others are not. They get all of the rate, and it admits
// its share of it besides: so the excess grows by that for as long as it lasts, and no
// more once the node is back.
func TestFleetPartition(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	limit := nodeLimit{Rate: 200, Burst: 40, Per: time.Second}
	o := nodeOrders{Addr: redis.Addr(), Limit: limit, Timeout: 20 * time.Millisecond, Every: time.Second}
	fleet := startFleet(t, o, relay.Addr())
	askAll(fleet, forever("k", 4))
	awaitAll(fleet, "decisions", func(s tiered.Stats) bool { return s.Store > 20 })
	relay.Block()
	cut := time.Now()
	fleet[0].await("the breaker to open", func(r reply) bool { return r.Stats.OpenBreakers == 1 })
	eventually(t, "the outage to last", func() bool { return time.Since(cut) > short(time.Second, 15*time.Second) })
	relay.Unblock()
	fleet[0].await("the breaker to close", func(r reply) bool { return r.Stats.OpenBreakers == 0 && r.Stats.Unsynced == 0 })
	outage := time.Since(cut)
	eventually(t, "a second to pass", func() bool { return time.Since(cut) > outage+time.Second })
	askAll(fleet, request{Do: "stop"})
	waitLoad(fleet)

	list := grants(fleet, "k")
	e, alone := excess(limit, list), limit.perNano()*float64(outage)/fleetSize
	then := total(during(phase{From: cut.Add(outage).UnixNano(), To: math.MaxInt64}, list))
	most := float64(2*limit.Burst) + alone
	if n := sumStats(fleet[1:]).Fallback; n > 0 { // the machine was busy, and answers came late for the others, too
		t.Logf("the others made %d decisions without the store", n)
		most += float64(n * fleetCost)
	}
	t.Logf("cut off for %v, in which a share of the rate is %.0f units: excess %.1f, at most %.0f; %d units in the second after that",
		outage.Round(time.Millisecond), alone, e, most, then)
	if e > most+rounding(limit) {
		t.Errorf("excess %.1f, want %.0f or less", e, most)
	}
	quit(fleet)
}
