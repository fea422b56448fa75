package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/load/measure"
	"github.com/weirlimit/weir/internal/load/target"
)

// Config says what to do.
type Config struct {
	Target   target.Config // Connections is how many workers there are
	Schedule Schedule
	For      time.Duration
	Poisson  bool   // random intervals, as of many independent users; otherwise even ones
	Smooth   bool   // wake up in time, as pacer.Config says
	Name     string // of the target in the report, without secrets

	// Progress is called now and then, and once more at the end. It may be nil.
	Progress      func(measure.Snapshot)
	ProgressEvery time.Duration // default 200 ms
}

// Validate reports everything that makes no sense.
func (c Config) Validate() error {
	problems := []error{c.Target.Validate()}
	if len(c.Schedule.Stages) == 0 {
		problems = append(problems, errors.New("load: there is no rate"))
	}
	if c.For <= 0 || c.For > maxFor {
		problems = append(problems, fmt.Errorf("load: for %v: want more than 0 and at most %v", c.For, maxFor))
	}
	return errors.Join(problems...)
}

const maxFor = 7 * 24 * time.Hour

// Run calls the target until the time is over or ctx ends, and reports. It returns
// an error if the target does not answer at the start; nothing was sent then.
func Run(ctx context.Context, c Config) (measure.Report, error) {
	if err := c.Validate(); err != nil {
		return measure.Report{}, err
	}
	t, err := target.Open(ctx, c.Target)
	if err != nil {
		return measure.Report{}, err
	}
	defer t.Close()
	r, err := newRun(c)
	if err != nil {
		return measure.Report{}, err
	}
	r.work(ctx, t)
	return r.report(ctx), nil
}

// A run is one Run.
type run struct {
	config   Config // set by newRun, like the next three
	begin    weir.Instant
	arrivals *arrivals
	measure  *measure.Run

	seq       atomic.Int64 // operations begun
	unstarted int64        // operations that were due at the end
}

func newRun(c Config) (*run, error) {
	if c.ProgressEvery == 0 {
		c.ProgressEvery = 200 * time.Millisecond
	}
	a, err := newArrivals(c)
	if err != nil {
		return nil, err
	}
	begin := weir.Now()
	r := &run{config: c, begin: begin, arrivals: a, measure: measure.NewRun(begin)}
	r.measure.SetTarget(begin, c.Schedule.at(0))
	return r, nil
}

// work lets workers call the target until the time is over. Then operations that
// are under way may finish.
func (r *run) work(ctx context.Context, t *target.Target) {
	due, cancel := context.WithTimeout(ctx, r.config.For)
	defer cancel()
	var aside, workers sync.WaitGroup
	done := make(chan struct{})
	aside.Go(func() { r.follow(due) })
	aside.Go(func() { r.show(done) })
	for i := range max(1, r.config.Target.Connections) {
		workers.Go(func() { r.worker(ctx, due, t.Caller(i)) })
	}
	<-due.Done()
	r.end()
	workers.Wait()
	close(done)
	aside.Wait()
}

// worker carries out operations as they become due, until that ends. A call that ctx
// has ended says nothing about the target and does not count.
func (r *run) worker(ctx, due context.Context, c *target.Caller) {
	rec := r.measure.Recorder()
	for {
		scheduled, err := r.arrivals.next(due)
		if err != nil {
			return
		}
		started := weir.Now()
		rec.Begin(scheduled, started)
		res := c.Call(ctx, r.seq.Add(1)-1)
		if ctx.Err() != nil && res.Err != nil {
			return
		}
		rec.Record(measure.Op{
			Scheduled: scheduled, Started: started, Ended: weir.Now(),
			OK: res.OK, Code: res.Code, Bytes: res.Bytes,
		})
	}
}

// follow tells the measurement which rate is in force.
func (r *run) follow(due context.Context) {
	if !r.config.Schedule.changes() {
		return
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-due.Done():
			return
		case <-tick.C:
			now := weir.Now()
			// The middle of the time until the next look, so that ramps are met on average.
			r.measure.SetTarget(now, r.config.Schedule.at(now.Sub(r.begin)+followEvery/2))
		}
	}
}

const followEvery = 10 * time.Millisecond

// show calls Progress now and then.
func (r *run) show(done <-chan struct{}) {
	if r.config.Progress == nil {
		return
	}
	tick := time.NewTicker(r.config.ProgressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.config.Progress(r.measure.Snapshot(weir.Now()))
		case <-done:
			r.config.Progress(r.measure.Snapshot(weir.Now()))
			return
		}
	}
}

// end counts what was due, and had not begun, when the time was over.
func (r *run) end() {
	now := weir.Now()
	r.unstarted = r.arrivals.due(now.Sub(r.begin))
	r.measure.SetTarget(now, 0)
}

func (r *run) report(ctx context.Context) measure.Report {
	return r.measure.Report(weir.Now(), measure.Meta{
		Target:      r.config.Name,
		Connections: max(1, r.config.Target.Connections),
		Interrupted: ctx.Err() != nil,
		Unstarted:   r.unstarted,
	})
}
