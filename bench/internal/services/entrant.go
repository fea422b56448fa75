package services

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// An entrant is a contender in a survey, with its runs so far.
type entrant struct {
	contender
	site   *site
	server *server
	askers
	keys   []string
	admits bool // what is expected of each answer
	runs   []run
}

// A run is the result of calling for some time.
type run struct {
	took    []time.Duration // by each request, sorted
	elapsed time.Duration
	cpu     time.Duration // of the server
	redis   time.Duration // of Redis
}

// open starts a contender's server, unless another has, and connects the callers.
func (q scenario) open(s *site, c contender) (*entrant, error) {
	one, err := s.server(c.server)
	if err != nil {
		return nil, err
	}
	all, err := c.protocol(one, q.rule, q.callers)
	if err != nil {
		return nil, err
	}
	return &entrant{contender: c, site: s, server: one, askers: all, keys: q.keys, admits: q.rule == plenty}, nil
}

// callLimit is how long an answer may take: so long that none does.
const callLimit = 10 * time.Second

// fillWidth is how many keys are asked for at once when they are filled in.
const fillWidth = 100

// fill has all callers together ask for every key once.
func (l *entrant) fill() error {
	chunks := make(chan []string, len(l.keys)/fillWidth+1)
	for keys := range slices.Chunk(l.keys, fillWidth) {
		chunks <- keys
	}
	close(chunks)
	var wg sync.WaitGroup
	problems := make([]error, len(l.list))
	for i, a := range l.list {
		wg.Go(func() {
			for keys := range chunks {
				ctx, cancel := context.WithTimeout(context.Background(), callLimit)
				_, err := a.ask(ctx, keys)
				cancel()
				if err != nil {
					problems[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(problems...)
}

// ask lets all callers ask for d and watches what it costs.
func (l *entrant) ask(d time.Duration) (r run, disturbed time.Duration, err error) {
	runtime.GC() // the last run's garbage is not this one's cost
	before, err := l.stock()
	if err != nil {
		return run{}, 0, err
	}
	end := harness.Watch()
	r, err = l.askAtOnce(d)
	if err != nil {
		return run{}, 0, err
	}
	after, err := l.stock()
	disturbed = end(after.all - before.all)
	r.cpu, r.redis = after.server-before.server, after.redis-before.redis
	slices.Sort(r.took)
	return r, disturbed, err
}

// A stock is the processor time used so far: by the entrant's server, by Redis, and by all
// that the survey has started.
type stock struct{ server, redis, all time.Duration }

func (l *entrant) stock() (s stock, err error) {
	if s.all, s.redis, err = l.site.cpu(); err != nil {
		return stock{}, err
	}
	s.server, err = l.server.CPUTime()
	return s, err
}

// askAtOnce starts all callers at the same time, one request at a time each.
func (l *entrant) askAtOnce(d time.Duration) (run, error) {
	var wg sync.WaitGroup
	parts := make([][]time.Duration, len(l.list))
	problems := make([]error, len(l.list))
	start := make(chan time.Time)
	for i, a := range l.list {
		parts[i] = make([]time.Duration, 0, 1<<12)
		random := rand.New(rand.NewPCG(uint64(len(l.runs)), uint64(i)))
		wg.Go(func() { parts[i], problems[i] = l.askUntil(a, parts[i], random, <-start, d) })
	}
	began := time.Now()
	for range l.list {
		start <- began
	}
	wg.Wait()
	return run{took: slices.Concat(parts...), elapsed: time.Since(began)}, errors.Join(problems...)
}

// askUntil is one caller's part: it asks for random keys, at least once and until d after
// began. What a request took is the time since the one before was over, so that nothing is left out.
func (l *entrant) askUntil(a asker, took []time.Duration, random *rand.Rand, began time.Time, d time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithDeadline(context.Background(), began.Add(d+callLimit))
	defer cancel()
	keys := make([]string, l.width)
	for last := time.Since(began); last < d || len(took) == 0; {
		for i := range keys {
			keys[i] = l.keys[random.IntN(len(l.keys))]
		}
		admitted, err := a.ask(ctx, keys)
		if err != nil {
			return took, err
		}
		if err := l.check(admitted); err != nil {
			return took, err
		}
		now := time.Since(began)
		took = append(took, now-last)
		last = now
	}
	return took, nil
}

// check makes sure that an answer is right. A floor gives the same answer to all calls.
func (l *entrant) check(admitted int) error {
	want := 0
	if l.admits || l.kind == harness.Floor {
		want = l.width
	}
	if admitted != want {
		return fmt.Errorf("%d of %d were admitted, and %d should have been", admitted, l.width, want)
	}
	return nil
}

// perSecond returns the decisions per second of a run.
func (l *entrant) perSecond(r run) float64 {
	return float64(len(r.took)*l.width) / r.elapsed.Seconds()
}

func (l *entrant) byRate(a, b run) int {
	if l.perSecond(a) < l.perSecond(b) {
		return -1
	}
	return 1
}

// best returns the run with the most decisions per second.
func (l *entrant) best() run { return slices.MaxFunc(l.runs, l.byRate) }

// rate is the best run's decisions per second.
func (l *entrant) rate() float64 { return l.perSecond(l.best()) }

// median returns the decisions per second of the run in the middle.
func (l *entrant) median() float64 {
	sorted := slices.SortedFunc(slices.Values(l.runs), l.byRate)
	return l.perSecond(sorted[len(sorted)/2])
}

// percentile is the best run's, in milliseconds.
func (l *entrant) percentile(tenThousandths int) float64 {
	return harness.Percentile(l.best().took, tenThousandths) / float64(time.Millisecond)
}

// each returns the microseconds of a time for each decision. It is over all runs, because
// a server's processor time is measured in ticks of 10 ms only.
func (l *entrant) each(of func(run) time.Duration) float64 {
	var sum time.Duration
	decisions := 0
	for _, r := range l.runs {
		sum += of(r)
		decisions += len(r.took) * l.width
	}
	return float64(sum) / float64(time.Microsecond) / float64(decisions)
}

func (l *entrant) cpu() float64 { return l.each(func(r run) time.Duration { return r.cpu }) }

// redisCPU is 0 for those that do not ask Redis, whatever it was doing meanwhile.
func (l *entrant) redisCPU() float64 {
	if l.contender.server == memory || l.contender.server == empty {
		return 0
	}
	return l.each(func(r run) time.Duration { return r.redis })
}
