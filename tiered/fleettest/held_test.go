package fleettest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// The tests of this file are about refusals that another node may end at any moment, because
// reservations are open (weir.Decision.Held). They fail as long as a node caches such a
// refusal for as long as others.

// jobs has workers reserve a slot, work for 5 ms and commit, over and over for five seconds. Who is refused asks again after a millisecond. It returns how many jobs were done on each
// node, of which each has so many workers.
func jobs(t *testing.T, p *weir.Policy, workers int, nodes ...weir.Limiter) []int {
	done := make([]int, len(nodes))
	finished := make(chan int)
	start := time.Now()
	for node, l := range nodes {
		for i := range workers {
			go func() {
				time.Sleep(time.Duration(node*workers+i) * 97 * time.Microsecond)
				n := 0
				for time.Since(start) < 5*time.Second {
					r, err := weir.Reserve(context.Background(), l, 0, weir.Charge{Policy: p, Key: "a", Cost: 1})
					switch {
					case err != nil:
						t.Errorf("node %d: %v", node, err)
					case !r.Decision.Allowed:
						time.Sleep(time.Millisecond)
						continue
					}
					time.Sleep(5 * time.Millisecond)
					if _, err := r.Commit(context.Background()); err != nil {
						t.Errorf("node %d: %v", node, err)
					}
					n++
				}
				finished <- n*len(nodes) + node
			}()
		}
	}
	for range workers * len(nodes) {
		x := <-finished
		done[x%len(nodes)] += x / len(nodes)
	}
	return done
}

// Two nodes share four slots for short jobs. Both together do at least 0.8 of the jobs that one
// table would let them, and none is left below 0.4 of its half.
func TestSlotsAreShared(t *testing.T) {
	const slots, workers = 4, 6
	limits := []weir.Limit{{Rate: slots, Algorithm: weir.Concurrency}}
	var table []int
	synctest.Test(t, func(t *testing.T) {
		l := must(memstore.New(memstore.Config{}))
		table = jobs(t, must(weir.NewPolicy("fleet", limits...)), workers, l, l)
	})
	for _, bus := range []bool{false, true} {
		s := Scenario{
			Seed: 1, Nodes: 2, Limits: limits, Latency: Span{50 * time.Microsecond, 150 * time.Microsecond},
			Bus: bus, BusLatency: Span{time.Millisecond, 2 * time.Millisecond},
		}
		var done []int
		s.script = func(f *fleet) { done = jobs(t, f.policy, workers, f.nodes[0], f.nodes[1]) }
		s.Run(t)
		all, got := table[0]+table[1], done[0]+done[1]
		t.Logf("bus %v: %d jobs by one table, %d by two nodes, %d each", bus, all, got, done)
		if 10*got < 8*all {
			t.Errorf("bus %v: two nodes did %d jobs, less than 0.8 of %d", bus, got, all)
		}
		for i, n := range done {
			if 10*n < 4*all/2 {
				t.Errorf("bus %v: node %d did %d jobs, less than 0.4 of half of %d", bus, i, n, all)
			}
		}
	}
}

// A settling is a way to end a reservation, or to let it end soon.
type settling struct {
	name   string
	settle func(ctx context.Context, r *weir.Reservation) error
}

var settlings = []settling{
	{"cancelled", func(ctx context.Context, r *weir.Reservation) error {
		_, err := r.Cancel(ctx)
		return err
	}},
	{"committed in full", func(ctx context.Context, r *weir.Reservation) error {
		_, err := r.Commit(ctx)
		return err
	}},
	{"renewed for 2 ms", func(ctx context.Context, r *weir.Reservation) error {
		_, err := r.Renew(ctx, 2*time.Millisecond)
		return err
	}},
}

// heldLimits are limits of which one reservation can hold all for a minute. After it was
// committed in full, slots are free at once, and a rate gives back a unit each millisecond;
// windows have a place again only if it was cancelled.
var heldLimits = map[string]struct {
	limit       weir.Limit
	onlyCancels bool
}{
	"slots":       {limit: weir.Limit{Rate: 4, Algorithm: weir.Concurrency}},
	"gcra":        {limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: 4}},
	"fixed":       {limit: weir.Limit{Rate: 4, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow}, onlyCancels: true},
	"sliding log": {limit: weir.Limit{Rate: 4, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog}, onlyCancels: true},
}

// eachSettling runs a test for each limit, settling and mode.
func eachSettling(t *testing.T, test func(t *testing.T, s Scenario, how settling)) {
	for name, held := range heldLimits {
		for _, how := range settlings {
			for mode := range tiered.Async + 1 {
				if held.onlyCancels && how.name != "cancelled" {
					continue
				}
				t.Run(name+" "+how.name+" "+mode.String(), func(t *testing.T) {
					test(t, Scenario{
						Seed: 1, Nodes: 3, Mode: mode, OnError: weir.FailClosed, Limits: []weir.Limit{held.limit},
						Latency: Span{50 * time.Microsecond, 150 * time.Microsecond},
					}, how)
				})
			}
		}
	}
}

// hold reserves all there is, on a node.
func hold(t *testing.T, f *fleet, node int) *weir.Reservation {
	r, err := weir.Reserve(context.Background(), f.nodes[node], time.Minute, weir.Charge{Policy: f.policy, Key: "a", Cost: 4})
	if err != nil || !r.Decision.Allowed {
		t.Fatalf("node %d could not reserve: %v, %v", node, r, err)
	}
	return r
}

// admits asks a node for one unit, by Take if that is possible.
func admits(t *testing.T, f *fleet, node int) bool {
	if !f.policy.ReserveOnly() {
		return f.call(node, "a", 1).Decision.Allowed
	}
	r, err := weir.Reserve(context.Background(), f.nodes[node], time.Minute, weir.Charge{Policy: f.policy, Key: "a", Cost: 1})
	if err != nil {
		t.Error(err)
		return false
	}
	return r.Decision.Allowed
}

// A node is refused because the reservation of another is open. That is settled, and 10 ms later
// the first asks again and is admitted, and so is a third, which may have received the denial.
func TestSettledElsewhere(t *testing.T) {
	for _, bus := range []bool{false, true} {
		eachSettling(t, func(t *testing.T, s Scenario, how settling) {
			s.Bus, s.BusLatency = bus, Span{time.Millisecond, 2 * time.Millisecond}
			s.script = func(f *fleet) {
				r := hold(t, f, 1)
				if admits(t, f, 0) {
					t.Error("admitted although everything is held")
				}
				time.Sleep(5 * time.Millisecond)
				if admits(t, f, 0) {
					t.Error("admitted although everything is still held")
				}
				if err := how.settle(context.Background(), r); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond)
				for _, node := range []int{0, 2} {
					if !admits(t, f, node) {
						t.Errorf("bus %v: node %d is refused 10 ms after the reservation was %s", bus, node, how.name)
					}
				}
			}
			s.Run(t)
		})
	}
}

// A node is refused because its own reservation is open. When it has settled that, it asks the store
// again as soon as there is room: for a rate after a millisecond.
func TestSettledHere(t *testing.T) {
	eachSettling(t, func(t *testing.T, s Scenario, how settling) {
		s.script = func(f *fleet) {
			r := hold(t, f, 0)
			if admits(t, f, 0) {
				t.Error("admitted although everything is held")
			}
			if err := how.settle(context.Background(), r); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Millisecond)
			if !admits(t, f, 0) {
				t.Errorf("refused although the reservation was %s here", how.name)
			}
		}
		s.Run(t)
	})
}
