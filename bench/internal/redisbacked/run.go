package redisbacked

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/redisserver"
)

// keys are what a survey asks for.
type keys struct {
	names    []string
	settings []setting // key i has settings[i % len(settings)]
	timed    int       // every how many calls one is timed
}

// newKeys returns n keys of 20 bytes.
func newKeys(n int, settings ...setting) keys {
	k := keys{names: make([]string, n), settings: settings, timed: 1}
	for i := range k.names {
		k.names[i] = fmt.Sprintf("user-%015d", i)
	}
	return k
}

func (k keys) which(i int) int { return i % len(k.settings) }

// fillTries is how often a key is tried, as time-outs may happen.
const fillTries = 10

// fill takes one unit of each key, so that all are there.
func (k keys) fill(l limiter) error {
	var (
		next    atomic.Int64
		done    sync.WaitGroup
		problem = make([]error, Goroutines)
	)
	for g := range Goroutines {
		done.Go(func() {
			for i := int(next.Add(1) - 1); i < len(k.names) && problem[g] == nil; i = int(next.Add(1) - 1) {
				problem[g] = k.take(l, i)
			}
		})
	}
	done.Wait()
	for _, err := range problem {
		if err != nil {
			return fmt.Errorf("new keys: %w", err)
		}
	}
	return nil
}

// take takes a unit of key i. It may be refused, if an earlier try was charged after
// all.
func (k keys) take(l limiter, i int) (err error) {
	for range fillTries {
		if _, err = l.take(context.Background(), k.which(i), k.names[i]); err == nil {
			return nil
		}
	}
	return err
}

// A run is the result of calling for some time.
type run struct {
	took     []time.Duration // by each call that was answered and timed, sorted
	answered int
	failed   int // calls that were not
	wrong    int // answers that were not as expected
	elapsed  time.Duration
	commands int64
	here     time.Duration // processor time of this process
	there    time.Duration // and of the server

	disturbed time.Duration // processor time that others had and should not have had
}

func (r run) perSecond() float64 { return float64(r.answered) / r.elapsed.Seconds() }

// each divides by the number of decisions.
func (r run) each(n float64) float64 { return n / float64(max(1, r.answered)) }

// percentile is in microseconds.
func (r run) percentile(tenThousandths int) float64 {
	if len(r.took) == 0 {
		return 0
	}
	return harness.Percentile(r.took, tenThousandths) / float64(time.Microsecond)
}

// ask lets all goroutines ask for d.
func (k keys) ask(s *redisserver.Server, l limiter, d time.Duration) (run, error) {
	before, err := takeStock(s, l)
	if err != nil {
		return run{}, err
	}
	end := harness.Watch()
	whole := k.askAtOnce(l, d)
	after, err := takeStock(s, l)
	if err != nil {
		return run{}, err
	}
	whole.commands = after.commands - before.commands
	guessed := int(after.guesses - before.guesses)
	whole.answered, whole.failed = whole.answered-guessed, whole.failed+guessed
	whole.here, whole.there = after.here-before.here, after.there-before.there
	whole.disturbed = end(whole.there)
	slices.Sort(whole.took)
	return whole, nil
}

// askAtOnce starts all goroutines at the same time and adds up their results.
func (k keys) askAtOnce(l limiter, d time.Duration) (whole run) {
	var (
		ready, done sync.WaitGroup
		start       = make(chan time.Time)
		parts       = make([]run, Goroutines)
	)
	ready.Add(Goroutines)
	for g := range Goroutines {
		parts[g].took = make([]time.Duration, 0, 1<<14)
		done.Go(func() {
			ready.Done()
			k.askUntil(l, &parts[g], rand.New(rand.NewPCG(1, uint64(g))), <-start, d)
		})
	}
	ready.Wait()
	began := time.Now()
	for range Goroutines {
		start <- began
	}
	done.Wait()
	whole.elapsed = time.Since(began)
	for _, p := range parts {
		whole.took = append(whole.took, p.took...)
		whole.answered += p.answered
		whole.failed += p.failed
		whole.wrong += p.wrong
	}
	return whole
}

// askUntil is one goroutine's part: it asks for random keys, at least once and until d
// after began. What a call took is the time since the one before was over, so that
// nothing is left out. Where the clock would cost more than the call, only some are
// timed.
func (k keys) askUntil(l limiter, part *run, random *rand.Rand, began time.Time, d time.Duration) {
	for last := time.Since(began); last < d || part.answered+part.failed == 0; {
		for range k.timed - 1 {
			k.askOnce(l, part, random)
		}
		if k.timed > 1 {
			last = time.Since(began)
		}
		answered := k.askOnce(l, part, random)
		now := time.Since(began)
		if answered {
			part.took = append(part.took, now-last)
		}
		last = now
	}
}

// askOnce asks for a random key. It says whether there was an answer.
func (k keys) askOnce(l limiter, part *run, random *rand.Rand) bool {
	i := 0
	if len(k.names) > 1 {
		i = random.IntN(len(k.names))
	}
	which := k.which(i)
	admitted, err := l.take(context.Background(), which, k.names[i])
	if err != nil {
		part.failed++
		return false
	}
	part.answered++
	if want, known := k.settings[which].admits(); known && admitted != want {
		part.wrong++
	}
	return true
}

// A stock is how much was used up so far.
type stock struct {
	commands    int64
	guesses     int64
	here, there time.Duration
}

func takeStock(s *redisserver.Server, l limiter) (stock, error) {
	there, err := s.CPUTime()
	if err != nil {
		return stock{}, err
	}
	here, err := harness.CPUTime()
	taken := stock{commands: l.commands(), here: here, there: there}
	if l.guesses != nil {
		taken.guesses = l.guesses()
	}
	return taken, err
}
