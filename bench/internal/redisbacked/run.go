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
)

// keys are what a survey asks for.
type keys struct {
	names    []string
	settings []setting // key i has settings[i % len(settings)]
}

// newKeys returns n keys of 20 bytes.
func newKeys(n int, settings ...setting) keys {
	k := keys{names: make([]string, n), settings: settings}
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

// A run is what came of asking for some time.
type run struct {
	took     []time.Duration // by each call that was answered, sorted
	failed   int             // calls that were not
	wrong    int             // answers that were not as expected
	elapsed  time.Duration
	commands int64
	here     time.Duration // processor time of this process
	there    time.Duration // and of the server

	disturbed time.Duration // processor time that others had and should not have had
}

func (r run) perSecond() float64 { return float64(len(r.took)) / r.elapsed.Seconds() }

// each divides by the number of decisions.
func (r run) each(n float64) float64 { return n / float64(max(1, len(r.took))) }

// percentile is in microseconds.
func (r run) percentile(tenThousandths int) float64 {
	if len(r.took) == 0 {
		return 0
	}
	return harness.Percentile(r.took, tenThousandths) / float64(time.Microsecond)
}

// ask lets all goroutines ask for d.
func (k keys) ask(s *server, l limiter, d time.Duration) (run, error) {
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
	whole.here, whole.there = after.here-before.here, after.there-before.there
	whole.disturbed = end(whole.there)
	slices.Sort(whole.took)
	return whole, nil
}

// askAtOnce lets all goroutines go at the same moment and adds up what they found.
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
		whole.failed += p.failed
		whole.wrong += p.wrong
	}
	return whole
}

// askUntil is one goroutine's part: it asks for random keys, at least once and until d
// after began. What a call took is the time since the one before, so that nothing is
// left out.
func (k keys) askUntil(l limiter, part *run, random *rand.Rand, began time.Time, d time.Duration) {
	ctx := context.Background()
	last := time.Since(began)
	for {
		i := random.IntN(len(k.names))
		which := k.which(i)
		admitted, err := l.take(ctx, which, k.names[i])
		now := time.Since(began)
		switch {
		case err != nil:
			part.failed++
		case admitted != (k.settings[which] == plenty):
			part.wrong++
			fallthrough
		default:
			part.took = append(part.took, now-last)
		}
		if last = now; last >= d {
			return
		}
	}
}

// A stock is how much was used up so far.
type stock struct {
	commands    int64
	here, there time.Duration
}

func takeStock(s *server, l limiter) (stock, error) {
	there, err := s.cpuTime()
	if err != nil {
		return stock{}, err
	}
	here, err := harness.CPUTime()
	return stock{l.commands(), here, there}, err
}
