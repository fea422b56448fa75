package overhttp

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// An entrant is a service in a survey, with its runs so far.
type entrant struct {
	service
	callers []*caller
	stop    func() error
	runs    []run
}

// A run is the result of calling for some time.
type run struct {
	took      []time.Duration // by each call, sorted
	elapsed   time.Duration
	allocs    uint64
	cpu       time.Duration // of this process: client and server
	disturbed time.Duration // processor time that others had and should not have had
}

func (r run) perSecond() float64 { return float64(len(r.took)) / r.elapsed.Seconds() }

func (r run) each(n float64) float64 { return n / float64(len(r.took)) }

// compare lets the services take turns and returns the values of figures for each.
func (q scenario) compare(s Sizes, progress func(step string)) (values [][]float64, disturbed int, err error) {
	var entrants []*entrant
	defer func() {
		for _, l := range entrants {
			err = errors.Join(err, l.close())
		}
	}()
	for _, svc := range services() {
		progress("preparing " + svc.name)
		l, e := q.open(svc)
		if e != nil {
			return nil, 0, fmt.Errorf("%s: %w", svc.name, e)
		}
		entrants = append(entrants, l)
		if _, err := l.ask(s.PerRun); err != nil { // warm: connections, memory, and most keys
			return nil, 0, fmt.Errorf("%s: %w", svc.name, err)
		}
	}
	turns := harness.Turns[run]{Rounds: s.Rounds, Run: func(i int) (run, time.Duration, error) {
		r, err := entrants[i].ask(s.PerRun)
		return r, r.disturbed, err
	}}
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

// open starts a service and connects to it.
func (q scenario) open(svc service) (*entrant, error) {
	addr, stop, err := svc.open(q.limit)
	if err != nil {
		return nil, err
	}
	l := &entrant{service: svc, stop: stop}
	want := ""
	if svc.kind == harness.Weir {
		want = q.want
	}
	for i := range Connections {
		c, err := dial(addr, uint64(i), q.keys, want)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.callers = append(l.callers, c)
	}
	return l, nil
}

func (l *entrant) close() error {
	for _, c := range l.callers {
		c.conn.Close()
	}
	return l.stop()
}

// ask lets all connections ask for d, one request at a time each.
func (l *entrant) ask(d time.Duration) (run, error) {
	runtime.GC() // the last run's garbage is not this one's cost
	parts := make([][]time.Duration, len(l.callers))
	for i := range parts {
		parts[i] = make([]time.Duration, 0, 1<<14+int(d/(100*time.Microsecond)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpuBefore, err := harness.CPUTime()
	if err != nil {
		return run{}, err
	}
	end := harness.Watch()
	elapsed, err := l.askAtOnce(parts, d)
	if err != nil {
		return run{}, err
	}
	cpu, err := harness.CPUTime()
	disturbed := end(0)
	runtime.ReadMemStats(&after)
	r := run{took: slices.Concat(parts...), elapsed: elapsed, allocs: after.Mallocs - before.Mallocs, cpu: cpu - cpuBefore, disturbed: disturbed}
	slices.Sort(r.took)
	return r, err
}

// askAtOnce has each connection add to its part.
func (l *entrant) askAtOnce(parts [][]time.Duration, d time.Duration) (time.Duration, error) {
	var wg sync.WaitGroup
	problems := make([]error, len(l.callers))
	start := make(chan struct{})
	var began time.Time
	for i, c := range l.callers {
		if err := c.conn.SetDeadline(time.Now().Add(d + callLimit)); err != nil {
			return 0, err
		}
		wg.Go(func() {
			<-start
			for last := time.Duration(0); last < d && problems[i] == nil; {
				problems[i] = c.ask()
				now := time.Since(began)
				parts[i] = append(parts[i], now-last)
				last = now
			}
		})
	}
	began = time.Now()
	close(start)
	wg.Wait()
	return time.Since(began), errors.Join(problems...)
}

// best returns the run with the most requests per second.
func (l *entrant) best() run {
	return slices.MaxFunc(l.runs, func(a, b run) int {
		if a.perSecond() < b.perSecond() {
			return -1
		}
		return 1
	})
}

// median returns the requests per second of the run in the middle.
func (l *entrant) median() float64 {
	var all []float64
	for _, r := range l.runs {
		all = append(all, r.perSecond())
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// valuesOf returns the values of figures for each entrant.
func valuesOf(entrants []*entrant) [][]float64 {
	base := entrants[1].best().perSecond() // the one that decodes
	var values [][]float64
	for _, l := range entrants {
		r := l.best()
		values = append(values, []float64{
			r.perSecond(),
			l.median(),
			r.perSecond() / base,
			harness.Percentile(r.took, 5000) / float64(time.Microsecond),
			harness.Percentile(r.took, 9900) / float64(time.Microsecond),
			r.each(float64(r.allocs)),
			r.each(float64(r.cpu) / float64(time.Microsecond)),
		})
	}
	return values
}
