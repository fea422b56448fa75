package proxied

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// An entrant is a service in a survey.
type entrant struct {
	service
	callers []*caller
	stop    func() error
}

// A run is the result of calling for some time.
type run struct {
	first, whole []time.Duration // by each request, sorted
	bytes        int64
	elapsed      time.Duration
	allocs       uint64
	cpu          time.Duration // of this process
	disturbed    time.Duration // processor time that others had and should not have had
}

func (r run) perSecond() float64      { return float64(len(r.whole)) / r.elapsed.Seconds() }
func (r run) bytesPerSecond() float64 { return float64(r.bytes) / r.elapsed.Seconds() }
func (r run) each(n float64) float64  { return n / float64(len(r.whole)) }

// compare lets the services take turns, and returns the runs of each.
func (q scenario) compare(s Sizes, progress func(step string)) (runs [][]run, disturbed int, err error) {
	target, stop, err := serve(q.upstream)
	if err != nil {
		return nil, 0, err
	}
	var entrants []*entrant
	defer func() {
		for _, e := range entrants {
			err = errors.Join(err, e.close())
		}
		err = errors.Join(err, stop())
	}()
	turns := harness.Turns[run]{Rounds: s.Rounds, Run: func(i int) (run, time.Duration, error) {
		r, err := entrants[i].ask(s.PerRun)
		return r, r.disturbed, err
	}}
	for _, svc := range q.services {
		progress("preparing " + svc.name)
		e, err := svc.connect(target, q.callers)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", svc.name, err)
		}
		entrants = append(entrants, e)
		turns.Names = append(turns.Names, svc.name)
		if _, err := e.ask(s.PerRun); err != nil { // warm: connections and memory
			return nil, 0, fmt.Errorf("%s: %w", svc.name, err)
		}
	}
	return turns.Take(progress)
}

// connect starts a service and connects to it.
func (svc service) connect(target string, callers int) (*entrant, error) {
	h, end, err := svc.open("http://" + target)
	if err != nil {
		return nil, err
	}
	e := &entrant{service: svc, stop: func() error { end(); return nil }}
	if h != nil {
		addr, stop, err := serve(h)
		if err != nil {
			return nil, err
		}
		target = addr
		e.stop = func() error { defer end(); return stop() }
	}
	for range callers {
		c, err := dial(target)
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		e.callers = append(e.callers, c)
	}
	return e, nil
}

func (e *entrant) close() error {
	for _, c := range e.callers {
		c.conn.Close()
	}
	return e.stop()
}

// ask lets all connections call for d, one request at a time each.
func (e *entrant) ask(d time.Duration) (r run, err error) {
	runtime.GC() // the last run's garbage is not this one's cost
	parts := make([]run, len(e.callers))
	problems := make([]error, len(e.callers))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, err := harness.CPUTime()
	if err != nil {
		return r, err
	}
	end := harness.Watch()
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range e.callers {
		wg.Go(func() { problems[i] = parts[i].add(c, began, d) })
	}
	wg.Wait()
	r.elapsed = time.Since(began)
	now, err := harness.CPUTime()
	r.cpu, r.disturbed = now-cpu, end(0)
	runtime.ReadMemStats(&after)
	r.allocs = after.Mallocs - before.Mallocs
	for _, p := range parts {
		r.first, r.whole, r.bytes = append(r.first, p.first...), append(r.whole, p.whole...), r.bytes+p.bytes
	}
	slices.Sort(r.first)
	slices.Sort(r.whole)
	return r, errors.Join(append(problems, err)...)
}

// callLimit is how long an answer may take: so long that none does.
const callLimit = 10 * time.Second

func (r *run) add(c *caller, began time.Time, d time.Duration) error {
	if err := c.conn.SetDeadline(began.Add(d + callLimit)); err != nil {
		return err
	}
	for time.Since(began) < d {
		s, err := c.ask()
		if err != nil {
			return err
		}
		r.first, r.whole, r.bytes = append(r.first, s.first), append(r.whole, s.whole), r.bytes+s.bytes
	}
	return nil
}

// medianOf returns the median of a figure of runs.
func medianOf(runs []run, figure func(run) float64) float64 {
	return median(len(runs), func(i int) float64 { return figure(runs[i]) })
}

// medianRatio returns the median of a figure's ratio to that of the other in the same round.
func medianRatio(runs, others []run, figure func(run) float64) float64 {
	return median(len(runs), func(i int) float64 { return figure(runs[i]) / figure(others[i]) })
}

func median(n int, of func(int) float64) float64 {
	var all []float64
	for i := range n {
		all = append(all, of(i))
	}
	slices.Sort(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}
