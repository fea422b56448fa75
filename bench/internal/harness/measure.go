package harness

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Settings say how long to measure.
type Settings struct {
	// Rounds is how many runs each contender has. In each round all have
	// one, and another one begins.
	Rounds int

	// PerRun is about how long a run takes.
	PerRun time.Duration
}

// contended returns the settings for cases of several goroutines: fewer and
// longer runs. A mutex is passed on within one processor for a while and then
// fought over for a while; a run that is shorter than that measures luck, and
// the best of several the greatest luck.
func (s Settings) contended() Settings {
	return Settings{Rounds: max(3, s.Rounds/3), PerRun: 5 * s.PerRun}
}

// Measurement is what one contender achieved.
type Measurement struct {
	// Best and Median are nanoseconds per call over the runs: elapsed time
	// divided by the calls of all goroutines together.
	Best, Median float64

	// Runs are the runs in the order of the rounds.
	Runs []float64

	// Allocs is heap allocations per call, to three decimals.
	Allocs float64
}

// Result is a case and one measurement per contender, in the same order.
type Result struct {
	Case         Case
	Measurements []Measurement

	// Disturbed is how many runs counted although a core was lost.
	Disturbed int
}

// Figure is the time per call of contender i: its best run or, of
// several goroutines, its median. What other tenants do to one goroutine only
// ever slows it down, so its best run tells most. Several goroutines have luck as
// well: while the host runs our cores as one core's two threads, a cache line
// moves between them for nothing, and the best run is the luckiest.
func (r Result) Figure(i int) float64 {
	if r.Case.Goroutines > 1 {
		return r.Measurements[i].Median
	}
	return r.Measurements[i].Best
}

// Against is the contender that ratios are taken against: the one that the case
// names, or the peer with the least figure.
func (r Result) Against() int {
	if r.Case.Against != BestPeer {
		return slices.IndexFunc(r.Case.Contenders, func(c Contender) bool { return c.Name == r.Case.Against })
	}
	best := -1
	for i, c := range r.Case.Contenders {
		if c.Kind == Peer && (best < 0 || r.Figure(i) < r.Figure(best)) {
			best = i
		}
	}
	return best
}

// Ratio is how many times as fast contender i is as Against. With several
// goroutines it is the median over the rounds of the ratio within the round,
// because luck comes and goes for all of a round.
func (r Result) Ratio(i int) float64 {
	against := r.Against()
	theirs, ours := r.Measurements[against].Runs, r.Measurements[i].Runs
	if r.Case.Goroutines == 1 || len(ours) == 0 || len(ours) != len(theirs) {
		return r.Figure(against) / r.Figure(i)
	}
	rounds := make([]float64, len(ours))
	for k := range ours {
		rounds[k] = theirs[k] / ours[k]
	}
	slices.Sort(rounds)
	return rounds[len(rounds)/2]
}

// Measure runs the case. It calls progress, unless nil, with what it is about
// to do, for example "round 3 of 8".
func Measure(c Case, s Settings, progress func(step string)) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	if c.Goroutines > 1 {
		s = s.contended()
	}
	if c.Procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.Procs))
	}
	entrants, err := newEntrants(c, s, progress)
	if err != nil {
		return Result{}, err
	}
	if c.Reuse {
		defer pauseCollector()()
	}
	for round := range s.Rounds {
		progress(fmt.Sprintf("round %d of %d", round+1, s.Rounds))
		if err := runRound(entrants, round); err != nil {
			return Result{}, err
		}
	}
	return resultOf(c, entrants), nil
}

// newEntrants prepares the contenders.
func newEntrants(c Case, s Settings, progress func(step string)) ([]entrant, error) {
	entrants := make([]entrant, len(c.Contenders))
	spare := quietSpare * s.Rounds * len(entrants)
	for i, con := range c.Contenders {
		progress("preparing " + con.Name)
		l, err := newEntrant(c, con, s.PerRun)
		if err != nil {
			return nil, err
		}
		l.spare = &spare
		entrants[i] = l
	}
	return entrants, nil
}

// mostGarbage is how much of it may pile up while the collector is off.
const mostGarbage = 2 << 30

// pauseCollector collects once and then not again until the function it returns is
// called, or there is more than mostGarbage.
func pauseCollector() (resume func()) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	limit := debug.SetMemoryLimit(int64(m.Sys) + mostGarbage)
	percent := debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// runRound gives each entrant one run. Each round begins with another one.
func runRound(entrants []entrant, round int) error {
	for i := range entrants {
		if err := entrants[(round+i)%len(entrants)].run(); err != nil {
			return err
		}
	}
	return nil
}

func resultOf(c Case, entrants []entrant) Result {
	res := Result{Case: c}
	for _, l := range entrants {
		res.Disturbed += l.disturbed
		res.Measurements = append(res.Measurements, l.measurement())
	}
	return res
}

// An entrant is a contender in a case, with its runs so far.
type entrant struct {
	contender  Contender
	name       string // for errors
	expect     Expect
	goroutines int
	reuse      bool
	kept       Run // the loop that all runs have, if reuse
	calls      int // per goroutine and run
	allocs     float64
	times      []float64 // ns per call
	disturbed  int
	spare      *int // repetitions that the case's runs have left
}

// newEntrant measures allocations and finds out how many calls make a run.
func newEntrant(c Case, con Contender, perRun time.Duration) (entrant, error) {
	l := entrant{
		contender:  con,
		name:       fmt.Sprintf("%s: %s", c.Name, con.Name),
		expect:     c.Expect,
		goroutines: c.Goroutines,
		reuse:      c.Reuse,
		calls:      64,
	}
	if con.Kind == Floor {
		l.expect = Mixed
	}
	if err := l.countAllocs(); err != nil {
		return entrant{}, err
	}
	for {
		elapsed, err := l.once()
		if err != nil {
			return entrant{}, err
		}
		if elapsed >= perRun/4 {
			l.calls = max(1, int(float64(l.calls)*float64(perRun)/float64(elapsed)))
			return l, nil
		}
		l.calls *= 4
	}
}

// run adds one run: of several goroutines, one that had the cores to itself.
func (l *entrant) run() error {
	for try := 1; ; try++ {
		before, known := others()
		elapsed, err := l.once()
		if err != nil {
			return err
		}
		after, _ := others()
		quiet := l.goroutines == 1 || !known || after-before <= quietMost
		if !quiet && try < quietTries && *l.spare > 0 {
			*l.spare--
			continue
		}
		if !quiet {
			l.disturbed++
		}
		l.times = append(l.times, float64(elapsed)/float64(l.calls*l.goroutines))
		return nil
	}
}

// loop returns the loop over a new limiter or, if limiters are reused, over the
// one and only.
func (l *entrant) loop() (Run, error) {
	if l.kept != nil {
		return l.kept, nil
	}
	run, err := l.contender.New()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name, err)
	}
	if l.reuse {
		l.kept = run
	}
	return run, nil
}

// once times a run.
func (l *entrant) once() (time.Duration, error) {
	run, err := l.loop()
	if err != nil {
		return 0, err
	}
	if !l.reuse {
		runtime.GC() // the last run's garbage is not this one's cost
	}
	elapsed, admitted := timeRun(run, l.goroutines, l.calls)
	if err := l.expect.check(admitted, l.calls*l.goroutines); err != nil {
		return 0, fmt.Errorf("%s: %w", l.name, err)
	}
	return elapsed, nil
}

// chunk is how many calls a goroutine makes before it asks whether there are
// more to make.
const chunk = 1000

// timeRun lets all goroutines go at once and waits until goroutines × calls
// calls were made. They share them out in chunks, so that all are busy to the
// end: with a share of its own for each, a contender that lets one goroutine
// starve the others would be measured mostly without contention.
func timeRun(run Run, goroutines, calls int) (elapsed time.Duration, admitted int) {
	var ready, done sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(goroutines) * int64(calls))
	start := make(chan struct{})
	each := make([]int, goroutines)
	ready.Add(goroutines)
	for i := range goroutines {
		done.Go(func() {
			ready.Done()
			<-start
			for {
				rest := left.Add(-chunk)
				if rest <= -chunk {
					return
				}
				each[i] += run(chunk + int(min(rest, 0)))
			}
		})
	}
	ready.Wait()
	began := time.Now()
	close(start)
	done.Wait()
	elapsed = time.Since(began)
	for _, n := range each {
		admitted += n
	}
	return elapsed, admitted
}

const (
	allocRuns  = 3
	allocCalls = 20_000
)

// countAllocs takes the least of several runs by one goroutine, because the
// runtime allocates now and then as well.
func (l *entrant) countAllocs() error {
	run, err := l.loop()
	if err != nil {
		return err
	}
	l.allocs = math.Inf(1)
	for range allocRuns {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run(allocCalls)
		runtime.ReadMemStats(&after)
		per := float64(after.Mallocs-before.Mallocs) / allocCalls
		l.allocs = min(l.allocs, math.Round(per*1000)/1000)
	}
	return nil
}

func (l *entrant) measurement() Measurement {
	sorted := slices.Sorted(slices.Values(l.times))
	return Measurement{Best: sorted[0], Median: sorted[len(sorted)/2], Runs: l.times, Allocs: l.allocs}
}
