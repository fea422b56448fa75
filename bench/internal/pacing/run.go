package pacing

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// achieved lets goroutines wait in a loop and returns their starts within d, as a
// share of perSecond × d, and how many cores the process kept busy meanwhile.
func achieved(w waiter, perSecond, goroutines int, d time.Duration) (share, cores float64, err error) {
	var (
		done   sync.WaitGroup
		starts = make([]int, goroutines)
		errs   = make([]error, goroutines)
	)
	busy, err := newBusy()
	if err != nil {
		return 0, 0, err
	}
	wait, err := w.open(perSecond)
	if err != nil {
		return 0, 0, err
	}
	for i := range goroutines {
		done.Go(func() { starts[i], errs[i] = startsUntil(wait, busy.since, d) })
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	all := 0
	for _, n := range starts {
		all += n
	}
	cores, err = busy.cores()
	return float64(all) / (float64(perSecond) * d.Seconds()), cores, err
}

// startsUntil counts the starts of one goroutine before d has passed.
func startsUntil(wait func() error, since time.Time, d time.Duration) (n int, err error) {
	for {
		if err := wait(); err != nil {
			return n, err
		}
		if time.Since(since) >= d {
			return n, nil
		}
		n++
	}
}

// gapErrors lets one goroutine wait in a loop for d and returns by how much each
// gap between two starts differs from what it should be, sorted, and how many
// cores the process kept busy meanwhile.
func gapErrors(w waiter, perSecond int, d time.Duration) (off []time.Duration, cores float64, err error) {
	want := time.Second / time.Duration(perSecond)
	off = make([]time.Duration, 0, d/want+1)
	busy, err := newBusy()
	if err != nil {
		return nil, 0, err
	}
	wait, err := w.open(perSecond)
	if err != nil {
		return nil, 0, err
	}
	if err := wait(); err != nil {
		return nil, 0, err
	}
	for last := time.Since(busy.since); last < d; {
		if err := wait(); err != nil {
			return nil, 0, err
		}
		now := time.Since(busy.since)
		off = append(off, (now - last - want).Abs())
		last = now
	}
	if len(off) == 0 {
		return nil, 0, fmt.Errorf("no two starts in %v", d)
	}
	cores, err = busy.cores()
	slices.Sort(off)
	return off, cores, err
}

// A busy tells how busy the process has been since.
type busy struct {
	since time.Time
	had   time.Duration // processor time until then
}

func newBusy() (busy, error) {
	had, err := harness.CPUTime()
	return busy{time.Now(), had}, err
}

func (b busy) cores() (float64, error) {
	had, err := harness.CPUTime()
	return (had - b.had).Seconds() / time.Since(b.since).Seconds(), err
}
