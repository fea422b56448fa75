package fleettest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

func perSecond(rate, burst int64) []weir.Limit {
	return []weir.Limit{{Rate: rate, Per: weir.Every(time.Second), Burst: burst}}
}

// fail reports what Check finds.
func fail(t *testing.T, s Scenario, r Result) {
	t.Helper()
	for _, p := range Check(s, r) {
		t.Error(p)
	}
}

// A seed is the same run each time, unless keys are evicted: which are depends on a hash that
// differs from process to process, and so does what happens next.
func TestSeedsRepeat(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has goroutines run in any order")
	}
	for seed := range uint64(30) {
		s := Draw(1000 + seed)
		if s.MaxKeys > 0 {
			continue
		}
		a, b := s.Run(t), s.Run(t)
		if !slices.Equal(outcomes(a), outcomes(b)) || !slices.Equal(a.Ops, b.Ops) || !slices.Equal(a.Shares, b.Shares) {
			t.Errorf("seed %d gave two different runs, of %d and %d calls: %v", s.Seed, len(a.Calls), len(b.Calls), s)
		}
	}
}

// outcomes lists what was decided, and when. Callers of a node that are answered at the same instant
// run in any order, so it leaves out which of them got which answer.
func outcomes(r Result) (list []string) {
	for _, c := range r.Calls {
		list = append(list, fmt.Sprintf("%v node %d %s cost %d at %v by %v: %v", c.End, c.Node, c.Key, c.Cost, c.At, c.By, c.Decision))
	}
	slices.Sort(list)
	return list
}

// Check notices a store that lends units without holding them, one that admits
// everything, and one that drops flushed usage.
func TestCheckNotices(t *testing.T) {
	saturated := func(s Scenario) Scenario {
		s.Seed, s.Nodes, s.Keys, s.Length, s.OnError, s.Latency = 7, 3, 1, 3*time.Second, weir.FailLocal, Span{100 * time.Microsecond, time.Millisecond}
		for range s.Nodes {
			s.Demand = append(s.Demand, []Phase{{To: s.Length, PerSecond: 400}})
		}
		return s
	}
	tests := map[string]struct {
		scenario Scenario
		store    func(int, weir.Limiter) weir.Limiter
	}{
		"lends without holding": {Scenario{Mode: tiered.Leased, Limits: perSecond(400, 400)}, func(_ int, l weir.Limiter) weir.Limiter { return careless{l} }},
		"admits everything":     {Scenario{Mode: tiered.Exact, Limits: perSecond(100, 50)}, func(_ int, l weir.Limiter) weir.Limiter { return generous{l} }},
		"drops flushed usage":   {Scenario{Mode: tiered.Async, Limits: perSecond(100, 50)}, func(_ int, l weir.Limiter) weir.Limiter { return forgetful{l} }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := saturated(tt.scenario)
			fail(t, s, s.Run(t)) // with a good store
			s.Store = tt.store
			problems := Check(s, s.Run(t))
			if len(problems) == 0 {
				t.Fatal("Check is content")
			}
			t.Log(problems[0])
		})
	}
}

// careless peeks where it should hold.
type careless struct{ weir.Limiter }

func (l careless) Do(ctx context.Context, b *weir.Batch) error {
	if b.Op == weir.Settle {
		b.Decisions, b.Settled = make([]weir.Decision, len(b.Charges)), make([]weir.Settled, len(b.Charges))
		return nil
	}
	if b.Op != weir.ReserveAll {
		return l.Limiter.Do(ctx, b)
	}
	b.Op = weir.PeekEach
	err := l.Limiter.Do(ctx, b)
	b.Op, b.Receipts = weir.ReserveAll, make([]weir.Receipt, len(b.Charges))
	return err
}

// generous admits what was refused.
type generous struct{ weir.Limiter }

func (l generous) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	d, err := l.Limiter.Take(ctx, p, key, cost)
	d.Allowed, d.Reason = true, weir.Admitted
	return d, err
}

func (l generous) Do(ctx context.Context, b *weir.Batch) error {
	err := l.Limiter.Do(ctx, b)
	for i := range b.Decisions {
		b.Decisions[i].Allowed, b.Decisions[i].Reason = true, weir.Admitted
	}
	return err
}

// forgetful charges nothing for what was used before.
type forgetful struct{ weir.Limiter }

func (l forgetful) Do(ctx context.Context, b *weir.Batch) error {
	charges, used := b.Charges, b.Used
	if b.Op == weir.DebitEach {
		b.Charges = slices.Clone(charges)
		for i := range b.Charges {
			b.Charges[i].Cost = 0
		}
	}
	b.Used = nil
	err := l.Limiter.Do(ctx, b)
	b.Charges, b.Used = charges, used
	return err
}

// All nodes know that R units remain, and then all are hit at once: Async admits about
// what its formula says.
func TestAsyncWorstCase(t *testing.T) {
	const nodes, rate, burst, unsynced = 6, 20, 200, 40
	s := Scenario{
		Seed: 1, Nodes: nodes, Mode: tiered.Async, OnError: weir.FailClosed, Limits: perSecond(rate, burst),
		MaxUnsynced: unsynced, Length: 3 * time.Second, Latency: Span{time.Millisecond, 2 * time.Millisecond},
	}
	for i := range nodes {
		phases := []Phase{
			{From: time.Duration(i) * time.Millisecond, To: 400 * time.Millisecond, PerSecond: 40}, // they come to know of each other
			{From: 500 * time.Millisecond, To: 560 * time.Millisecond, PerSecond: 2000},
		}
		s.Demand = append(s.Demand, phases)
	}
	r := s.Run(t)
	fail(t, s, r)
	c := newChecker(s, r)
	got, formula := c.limits[0].excess(r.Grants("a")), c.overshoot("a")
	t.Logf("overshoot %.1f units, formula %.1f: %.0f %%", got, formula, 100*got/formula)
	if got < formula/2 {
		t.Errorf("the worst case reaches less than half of the formula")
	}
}

// A key that is reset, or whose limit is raised, on one node is admitted on another as
// soon as the message has arrived, and without it after MaxDeny.
func TestMessagesArrive(t *testing.T) {
	for _, bus := range []bool{true, false} {
		for _, set := range []bool{true, false} {
			for mode := range tiered.Async + 1 {
				s := Scenario{
					Seed: 1, Nodes: 3, Mode: mode, Limits: []weir.Limit{{Rate: 1, Per: weir.Every(time.Minute), Burst: 10}},
					Latency: Span{time.Millisecond, 2 * time.Millisecond}, MaxDeny: 500 * time.Millisecond,
					Bus: bus, BusLatency: Span{time.Millisecond, 10 * time.Millisecond},
				}
				s.script = func(f *fleet) {
					for range 15 {
						f.call(0, "a", 1)
						f.call(1, "a", 1)
					}
					time.Sleep(100 * time.Millisecond)
					if c := f.call(1, "a", 1); c.Decision.Allowed {
						t.Errorf("%v set=%v bus=%v: not exhausted: %v", mode, set, bus, c)
					}
					f.change(Change{Node: 0, Set: set})
					wait := s.BusLatency.Max
					if !bus {
						wait = s.MaxDeny
					}
					time.Sleep(wait + 1)
					if c := f.call(1, "a", 1); !c.Decision.Allowed {
						t.Errorf("%v set=%v bus=%v: %v after the change: %v", mode, set, bus, wait, c)
					}
				}
				s.Run(t)
			}
		}
	}
}

// After an outage in which all nodes admitted their shares, the limit is used again.
func TestUseAfterOutage(t *testing.T) {
	for mode := range tiered.Async + 1 {
		const rate, burst = 100, 50
		s := Scenario{
			Seed: 1, Nodes: 4, Mode: mode, OnError: weir.FailLocal, Limits: perSecond(rate, burst), Length: 10 * time.Second,
			Latency: Span{200 * time.Microsecond, 2 * time.Millisecond},
			Outages: []Outage{{From: 2 * time.Second, To: 5 * time.Second, Node: -1}},
		}
		for range s.Nodes {
			s.Demand = append(s.Demand, []Phase{{To: s.Length, PerSecond: 100}})
		}
		r := s.Run(t)
		fail(t, s, r)
		var per [10]int64
		for _, g := range r.Grants("a") {
			per[min(9, g.At/time.Second)] += g.Units
		}
		t.Logf("%v: units admitted in each second: %d; the store is unavailable from 2 to 5", mode, per)
		if during := per[2] + per[3] + per[4]; during < 3*rate-burst {
			t.Errorf("%v: shares admitted only %d units in 3 s", mode, during)
		}
		// What nodes admit while they notice one after the other is charged.
		for i, least := range []int64{rate * 2 / 5, rate - rate/10, rate - rate/10} {
			if per[5+i] < least {
				t.Errorf("%v: the limit is not used after the outage", mode)
			}
		}
	}
}

// Nodes notice one after the other that the store is back. Where much comes back
// meanwhile, that is worth more than a burst.
func TestStaggeredRecovery(t *testing.T) {
	const rate, burst = 1000, 10
	s := Scenario{
		Seed: 17, Nodes: 4, OnError: weir.FailLocal, Limits: perSecond(rate, burst), Length: 2 * time.Second,
		Latency: Span{200 * time.Microsecond, 2 * time.Millisecond},
		Outages: []Outage{{From: 500 * time.Millisecond, To: 770 * time.Millisecond, Node: -1}},
	}
	for range s.Nodes {
		s.Demand = append(s.Demand, []Phase{{From: 450 * time.Millisecond, To: s.Length, PerSecond: 1500}})
	}
	r := s.Run(t)
	fail(t, s, r)
	c := newChecker(s, r)
	t.Logf("%.0f units above a limit with burst %d; at most %.0f", c.limits[0].excess(r.Grants("a")), burst, c.local(&c.limits[0]))
}

// A store that comes and goes mints nothing: twenty outages exceed the limit by no more
// than one.
func TestFlapping(t *testing.T) {
	const rate, burst = 100, 100
	for mode := range tiered.Async + 1 {
		s := Scenario{
			Seed: 5, Nodes: 3, Mode: mode, OnError: weir.FailLocal, Limits: perSecond(rate, burst), Length: 42 * time.Second,
			Latency: Span{200 * time.Microsecond, 2 * time.Millisecond},
		}
		for i := range 20 {
			from := time.Duration(1+2*i) * time.Second
			s.Outages = append(s.Outages, Outage{From: from, To: from + time.Second, Node: -1})
		}
		for range s.Nodes {
			s.Demand = append(s.Demand, []Phase{{To: s.Length, PerSecond: 100}})
		}
		r := s.Run(t)
		fail(t, s, r)
		c := newChecker(s, r)
		e := c.limits[0].excess(r.Grants("a")) - c.overshoot("a")
		var units int64
		for _, g := range r.Grants("a") {
			units += g.Units
		}
		t.Logf("%v: %.0f units above the limit, %d of %d in all", mode, e, units, burst+rate*42)
		if e > burst {
			t.Errorf("%v: 20 outages admitted %.0f units above the limit", mode, e)
		}
	}
}
