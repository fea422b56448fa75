package modes

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/redisserver"
	"github.com/weirlimit/weir/tiered"
)

// plenty admits every call, as long as there are less than ten million a second.
var plenty = weir.Limit{Name: "main", Rate: 10_000_000, Per: weir.Every(time.Second), Burst: 10_000_000, Algorithm: weir.GCRA}

// Callers is how many goroutines ask each node at once where there is room.
const Callers = 32

// Room is how a hot key with plenty of room fares.
type Room struct {
	Mode  tiered.Mode
	Nodes int

	// PerSecond is decisions of all nodes, of the run in the middle, to which the
	// rest belongs. Least and Most are those of the slowest and the fastest.
	PerSecond, Least, Most float64

	Calls    float64       // to the store, for each decision
	Commands float64       // that Redis got, for each decision
	Here     time.Duration // processor time of this process for a second of the run
	There    time.Duration // and of Redis
}

// A roomRun is the result of calling for some time.
type roomRun struct {
	decisions, refused, failed int64
	elapsed                    time.Duration
	done                       tally
	here, there                time.Duration
	disturbed                  time.Duration // processor time that others had and should not have had
}

func (r roomRun) perSecond() float64 { return float64(r.decisions) / r.elapsed.Seconds() }

// roomTries is how often a run is made that others disturb, before the quieter counts.
const roomTries = 2

// measureRoom lets fleets of every mode and size take turns. It says how many runs
// counted although others had the cores.
func measureRoom(srv *redisserver.Server, s Sizes, progress func(string)) (list []Room, disturbed int, err error) {
	var fleets []*fleet
	for _, mode := range All {
		for _, n := range s.Nodes {
			f, err := openFleet(srv.Addr, fmt.Sprintf("room:%v:%d:", mode, n), mode, n, plenty)
			if err != nil {
				return nil, 0, err
			}
			defer f.close()
			fleets = append(fleets, f)
		}
	}
	runs := make([][]roomRun, len(fleets))
	for round := range s.Rounds {
		for i, f := range fleets {
			progress(fmt.Sprintf("room, round %d of %d: %s", round+1, s.Rounds, f.name()))
			r, err := f.quietest(srv, s.PerRun)
			if err != nil {
				return nil, 0, err
			}
			if r.disturbed > 0 {
				disturbed++
			}
			runs[i] = append(runs[i], r)
		}
	}
	for i, f := range fleets {
		list = append(list, f.room(runs[i]))
	}
	return list, disturbed, nil
}

// quietest returns the run that others disturbed least: which one counts does not
// depend on what it says.
func (f *fleet) quietest(srv *redisserver.Server, d time.Duration) (best roomRun, err error) {
	for try := range roomTries {
		r, err := f.roomOnce(srv, d)
		if err != nil {
			return roomRun{}, err
		}
		if try == 0 || r.disturbed < best.disturbed {
			best = r
		}
		if best.disturbed == 0 {
			break
		}
	}
	return best, nil
}

func (f *fleet) roomOnce(srv *redisserver.Server, d time.Duration) (roomRun, error) {
	runtime.GC() // the last run's garbage is not this one's cost
	there, err := srv.CPUTime()
	if err != nil {
		return roomRun{}, err
	}
	here, err := harness.CPUTime()
	if err != nil {
		return roomRun{}, err
	}
	before, end := f.tally(), harness.Watch()
	r := f.askAll(d)
	after := f.tally()
	r.done = tally{calls: after.calls - before.calls, commands: after.commands - before.commands}
	hereAfter, _ := harness.CPUTime() // it could a moment ago
	thereAfter, err := srv.CPUTime()
	if err != nil {
		return roomRun{}, err
	}
	r.here, r.there = hereAfter-here, thereAfter-there
	r.disturbed = end(r.there)
	if r.refused+r.failed > 0 {
		return roomRun{}, fmt.Errorf("%s: %d of %d calls were refused and %d failed, though there is room", f.name(), r.refused, r.decisions, r.failed)
	}
	return r, f.answered()
}

// askAll lets all callers of all nodes ask for d.
func (f *fleet) askAll(d time.Duration) (sum roomRun) {
	parts := make([]roomRun, len(f.nodes)*Callers)
	var done sync.WaitGroup
	began := time.Now()
	for i := range parts {
		done.Go(func() { parts[i] = f.askUntil(f.nodes[i%len(f.nodes)], began, d) })
	}
	done.Wait()
	sum.elapsed = time.Since(began)
	for _, p := range parts {
		sum.decisions += p.decisions
		sum.refused += p.refused
		sum.failed += p.failed
	}
	return sum
}

// askUntil is one caller's part, however late it begins. It looks at the clock after some calls only, which may
// cost more than a call.
func (f *fleet) askUntil(x *node, began time.Time, d time.Duration) (r roomRun) {
	for r.decisions == 0 || time.Since(began) < d {
		for range 16 {
			decision, err := x.limiter.Take(context.Background(), f.policy, key, 1)
			switch {
			case err != nil:
				r.failed++
			case !decision.Allowed:
				r.refused++
			}
			r.decisions++
		}
	}
	return r
}

// room makes a figure of the runs.
func (f *fleet) room(runs []roomRun) Room {
	slices.SortFunc(runs, func(a, b roomRun) int {
		if a.perSecond() < b.perSecond() {
			return -1
		}
		return 1
	})
	mid := runs[len(runs)/2]
	each := func(n int64) float64 { return float64(n) / float64(mid.decisions) } // exactly 1 if it is one each
	second := func(d time.Duration) time.Duration { return time.Duration(float64(d) / mid.elapsed.Seconds()) }
	return Room{
		Mode: f.mode, Nodes: len(f.nodes),
		PerSecond: mid.perSecond(), Least: runs[0].perSecond(), Most: runs[len(runs)-1].perSecond(),
		Calls: each(mid.done.calls), Commands: each(mid.done.commands),
		Here: second(mid.here), There: second(mid.there),
	}
}
