package redisbacked

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/redisserver"
)

// An entrant is a library in a survey, with its runs so far.
type entrant struct {
	library
	limiter
	runs []run
}

// compare lets the libraries take turns on a server of their own and returns the
// values of figures for each.
func compare(libraries []library, k keys, s Sizes, progress func(step string)) (values [][]float64, disturbed int, err error) {
	srv, err := redisserver.Start()
	if err != nil {
		return nil, 0, err
	}
	defer srv.Stop()
	var entrants []*entrant
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
		entrants = append(entrants, &entrant{library: lib, limiter: l})
	}
	turns := harness.Turns[run]{Rounds: s.Rounds, Run: func(i int) (run, time.Duration, error) { return k.turn(srv, entrants[i].limiter, s.PerRun) }}
	for _, l := range entrants {
		turns.Names = append(turns.Names, l.name)
	}
	runs, disturbed, err := turns.Take(progress)
	if err != nil {
		return nil, 0, err
	}
	for i, l := range entrants {
		l.runs = runs[i]
	}
	return valuesOf(entrants), disturbed, nil
}

// turn makes one run, in which no answer may be wrong.
func (k keys) turn(s *redisserver.Server, l limiter, d time.Duration) (run, time.Duration, error) {
	runtime.GC() // the last run's garbage is not this one's cost
	r, err := k.ask(s, l, d)
	if err != nil {
		return run{}, 0, err
	}
	if r.wrong > 0 {
		return run{}, 0, fmt.Errorf("%d of %d answers are wrong", r.wrong, r.answered)
	}
	return r, r.disturbed, nil
}

// best returns the run with the most decisions per second.
func (l *entrant) best() run {
	return slices.MaxFunc(l.runs, func(a, b run) int {
		if a.perSecond() < b.perSecond() {
			return -1
		}
		return 1
	})
}

// median returns the decisions per second of the run in the middle.
func (l *entrant) median() float64 {
	var all []float64
	for _, r := range l.runs {
		all = append(all, r.perSecond())
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// failures returns the share of all calls that were not answered.
func (l *entrant) failures() float64 {
	failed, calls := 0, 0
	for _, r := range l.runs {
		failed += r.failed
		calls += r.failed + r.answered
	}
	return float64(failed) / float64(max(1, calls))
}

// valuesOf returns the values of figures for each entrant.
func valuesOf(entrants []*entrant) [][]float64 {
	against := slices.IndexFunc(entrants, func(l *entrant) bool { return l.name == redisRateName })
	base := entrants[against].best().perSecond()
	var values [][]float64
	for _, l := range entrants {
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
