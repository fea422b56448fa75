package redisbacked

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weirlimit/weir/bench/internal/redisserver"
)

// A lane is a library in a survey, with its runs so far.
type lane struct {
	library
	limiter
	runs []run
}

// Others disturb some more than others, so a run counts only if nobody else had the
// cores.
const (
	quietTries = 5 // how often a disturbed run is made before the quietest counts
	quietSpare = 1 // repetitions that a run may have on average
)

// compare lets the libraries take turns on a server of their own and returns the
// values of figures for each.
func compare(libraries []library, k keys, s Sizes, progress func(step string)) (values [][]float64, disturbed int, err error) {
	srv, err := redisserver.Start()
	if err != nil {
		return nil, 0, err
	}
	defer srv.Stop()
	var lanes []*lane
	for _, lib := range libraries {
		progress("preparing " + lib.name)
		l, err := lib.open(srv.Addr, k.settings)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", lib.name, err)
		}
		defer l.close()
		if err := k.fill(l); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", lib.name, err)
		}
		lanes = append(lanes, &lane{library: lib, limiter: l})
	}
	a := &asking{server: srv, keys: k, perRun: s.PerRun, spare: quietSpare * s.Rounds * len(lanes)}
	for round := range s.Rounds {
		progress(fmt.Sprintf("round %d of %d", round+1, s.Rounds))
		for i := range lanes { // each round begins with another one
			l := lanes[(round+i)%len(lanes)]
			r, err := a.quietest(l.limiter)
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", l.name, err)
			}
			l.runs = append(l.runs, r)
		}
	}
	return valuesOf(lanes), a.disturbed, nil
}

// An asking is how all lanes are asked.
type asking struct {
	server    *redisserver.Server
	keys      keys
	perRun    time.Duration
	spare     int // repetitions left
	disturbed int // runs that counted all the same
}

// quietest makes a run until it was not disturbed, but not for ever. It returns the one
// that was disturbed least: which one counts does not depend on what it says.
func (a *asking) quietest(l limiter) (quietest run, err error) {
	for try := 1; ; try++ {
		runtime.GC() // the last run's garbage is not this one's cost
		r, err := a.keys.ask(a.server, l, a.perRun)
		if err != nil {
			return run{}, err
		}
		if r.wrong > 0 {
			return run{}, fmt.Errorf("%d of %d answers are wrong", r.wrong, r.answered)
		}
		if try == 1 || r.disturbed < quietest.disturbed {
			quietest = r
		}
		if quietest.disturbed == 0 {
			return quietest, nil
		}
		if try >= quietTries || a.spare == 0 {
			a.disturbed++
			return quietest, nil
		}
		a.spare--
	}
}

// best returns the run with the most decisions per second.
func (l *lane) best() run {
	return slices.MaxFunc(l.runs, func(a, b run) int {
		if a.perSecond() < b.perSecond() {
			return -1
		}
		return 1
	})
}

// median returns the decisions per second of the run in the middle.
func (l *lane) median() float64 {
	var all []float64
	for _, r := range l.runs {
		all = append(all, r.perSecond())
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// failures returns the share of all calls that were not answered.
func (l *lane) failures() float64 {
	failed, calls := 0, 0
	for _, r := range l.runs {
		failed += r.failed
		calls += r.failed + r.answered
	}
	return float64(failed) / float64(max(1, calls))
}

// valuesOf returns the values of figures for each lane.
func valuesOf(lanes []*lane) [][]float64 {
	against := slices.IndexFunc(lanes, func(l *lane) bool { return l.name == redisRateName })
	base := lanes[against].best().perSecond()
	var values [][]float64
	for _, l := range lanes {
		r := l.best()
		values = append(values, []float64{
			r.perSecond(),
			l.median(),
			r.perSecond() / base,
			100 * l.failures(),
			r.percentile(5000),
			r.percentile(9900),
			r.each(float64(r.commands)),
			r.each(micros(r.here)),
			r.each(micros(r.there)),
		})
	}
	return values
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
