package modes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/redisserver"
	"github.com/weirlimit/weir/tiered"
)

// The limit that is attacked, and the cap on all nodes' unsynced units that follows from
// it.
const (
	Rate     = 1000
	Burst    = 1000
	Unsynced = Burst / 10
)

var scarce = weir.Limit{Name: "main", Rate: Rate, Per: weir.Every(time.Second), Burst: Burst, Algorithm: weir.GCRA}

// Attackers is how many goroutines ask each node at once while there is none too many.
// After a refusal a caller waits briefly, so that the machine is not so busy that the
// times of grants are unknown.
const (
	Attackers = 8
	breath    = 100 * time.Microsecond
)

// Attack is what came of a hostile schedule.
type Attack struct {
	Mode  tiered.Mode
	Nodes int

	Asked, Granted int
	Calls          int64         // to the store
	There          time.Duration // processor time of Redis

	// Excess is the most that was certainly granted above burst + rate·Δ in an
	// interval Δ, and Bound what the mode allows it.
	Excess, Bound float64

	// Used is which part of burst + rate·T was granted in the steady phase, which
	// took T.
	Used float64
}

// bound returns what a mode may admit too much. In Async mode it is the formula of package
// tiered at its greatest, where the demand on every node exceeds its cap b: nodes × b.
func bound(m tiered.Mode, nodes int) float64 {
	if m != tiered.Async {
		return 0
	}
	return float64(nodes * (Unsynced / nodes))
}

// slack is what clocks add to an excess: Redis's has microseconds, and the time in which
// the kernel reads one clock after the other is time, too.
const slack = 0.05

// Holds says whether the mode has kept its bound.
func (a Attack) Holds() bool { return a.Excess <= a.Bound+slack }

// A phase is when all callers of all nodes ask.
type phase struct{ from, to time.Duration }

// schedule returns the phases: everybody from full on and for long enough to live by the
// rate; then, from nearly empty, pulses between which as much comes back as a node may
// owe; then after a rest, in which the limit fills up, the same again.
func (s Sizes) schedule() (phases []phase) {
	at := time.Duration(0)
	add := func(rest, ask time.Duration) {
		phases = append(phases, phase{at + rest, at + rest + ask})
		at += rest + ask
	}
	pulses := func() {
		for range s.Pulses {
			add(time.Second*Unsynced/Rate, s.Pulse)
		}
	}
	add(0, s.Steady)
	pulses()
	add(s.Rest, s.Rush)
	pulses()
	return phases
}

// measureAttacks lets fleets of every mode and size be attacked.
func measureAttacks(srv *redisserver.Server, s Sizes, progress func(string)) (list []Attack, err error) {
	for _, mode := range All {
		for _, n := range s.Nodes {
			f, err := openFleet(srv.Addr, fmt.Sprintf("attack:%v:%d:", mode, n), mode, n, scarce)
			if err != nil {
				return nil, err
			}
			progress("attack: " + f.name())
			a, err := f.attackOn(srv, s.schedule())
			f.close()
			if err != nil {
				return nil, err
			}
			list = append(list, a)
		}
	}
	return list, nil
}

// A log is what one caller has seen.
type log struct {
	grants []grant
	asked  int
	steady int           // grants of the first phase
	last   time.Duration // when the last call of the first phase was over
	err    error
}

// attackOn attacks, and looks what that costs Redis.
func (f *fleet) attackOn(srv *redisserver.Server, phases []phase) (Attack, error) {
	before, err := srv.CPUTime()
	if err != nil {
		return Attack{}, err
	}
	a, err := f.attack(phases)
	if err != nil {
		return Attack{}, err
	}
	after, err := srv.CPUTime()
	a.There = after - before
	a.Calls = f.tally().calls
	return a, err
}

func (f *fleet) attack(phases []phase) (Attack, error) {
	logs := make([]log, len(f.nodes)*Attackers)
	var done sync.WaitGroup
	began := time.Now()
	for i := range logs {
		done.Go(func() { logs[i] = f.follow(f.nodes[i%len(f.nodes)], began, phases) })
	}
	done.Wait()
	var (
		a      = Attack{Mode: f.mode, Nodes: len(f.nodes), Bound: bound(f.mode, len(f.nodes))}
		grants []grant
		steady int
		lasted time.Duration
	)
	for _, l := range logs {
		if l.err != nil {
			return Attack{}, fmt.Errorf("%s: %w", f.name(), l.err)
		}
		grants = append(grants, l.grants...)
		a.Asked += l.asked
		steady += l.steady
		lasted = max(lasted, l.last)
	}
	a.Granted = len(grants)
	a.Excess = max(0, excess(grants, Burst, Rate))
	a.Used = float64(steady) / (Burst + Rate*lasted.Seconds())
	return a, f.answered()
}

// follow is one caller's part.
func (f *fleet) follow(x *node, began time.Time, phases []phase) (l log) {
	l.grants = make([]grant, 0, 4*Burst)
	for i, p := range phases {
		time.Sleep(p.from - time.Since(began))
		for called := time.Since(began); called < p.to; called = time.Since(began) {
			d, err := x.limiter.Take(context.Background(), f.policy, key, 1)
			returned := time.Since(began)
			l.asked++
			if i == 0 {
				l.last = returned
			}
			switch {
			case err != nil:
				l.err = err
				return l
			case d.Allowed:
				l.grants = append(l.grants, grant{called, returned})
			default:
				time.Sleep(breath)
			}
		}
		if i == 0 {
			l.steady = len(l.grants)
		}
	}
	return l
}

// A grant was made at some instant from called to returned.
type grant struct{ called, returned time.Duration }

// excess returns the most grants above burst + rate·Δ that certainly lie in an interval:
// it counts those that were called no earlier than it began and had returned when it
// ended. Wherever in their calls the others were decided, it is no less.
func excess(grants []grant, burst, rate float64) float64 {
	var starts []time.Duration
	for _, g := range grants {
		starts = append(starts, g.called)
	}
	slices.Sort(starts)
	slices.SortFunc(grants, func(a, b grant) int { return int(a.returned - b.returned) })
	worst := -burst
	within := make([]float64, len(starts)) // grants from starts[i] to now
	for _, g := range grants {
		for i := 0; i < len(starts) && starts[i] <= g.called; i++ {
			within[i]++
			worst = max(worst, within[i]-burst-rate*(g.returned-starts[i]).Seconds())
		}
	}
	return worst
}
