package pacer

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Many goroutines wait, give up, try and reserve while the settings change. What
// was granted is what they got, and never more than the fastest rate allows.
func TestRace(t *testing.T) {
	const fastest = 100_000
	begin := weir.Now()
	p := newPacer(t, Config{Rate: fastest})
	var got atomic.Int64
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 16 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					got.Add(once(p))
				}
			}
		})
	}
	for range 60 {
		p.SetRate(float64(1 + rand.IntN(fastest)))
		p.SetMode(Mode(rand.IntN(3)))
		p.SetBurstRatio(1 + rand.Float64())
		p.Stop()
		p.Start()
		time.Sleep(time.Millisecond) // something to do for the others; nothing depends on it
		p.Stats()
	}
	p.SetRate(fastest)
	close(stop)
	all.Wait()
	s, took := p.Stats(), since(begin)
	if s.Granted != got.Load() {
		t.Errorf("%d granted, but %d started: %+v", s.Granted, got.Load(), s)
	}
	if most := 1 + fastest*took.Seconds(); float64(s.Granted) > most {
		t.Errorf("%d granted in %v, at most %.0f may be", s.Granted, took, most)
	}
	timeConserved(t, p)
}

// once asks in some way, and returns how many units started.
func once(p *Pacer) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(2000))*time.Microsecond)
	defer cancel()
	n := int64(1 + rand.IntN(3))
	switch rand.IntN(5) {
	case 0:
		if _, err := p.Wait(ctx); err == nil {
			return 1
		}
	case 1, 2:
		if _, err := p.WaitN(ctx, n); err == nil {
			return n
		}
	case 3:
		if _, ok := p.TryNextN(n); ok {
			return n
		}
	case 4:
		r, err := p.ReserveN(n)
		if err == nil && rand.IntN(2) == 0 {
			return n
		}
		r.Cancel()
	}
	return 0
}

// Strict starts keep their distance in real time too, whoever makes them.
func TestStrictKeepsDistance(t *testing.T) {
	const slice = 200 * time.Microsecond
	p := newPacer(t, Config{Rate: float64(time.Second / slice), Mode: Strict})
	var mu sync.Mutex
	var starts []weir.Instant
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				s := wait(t, p)
				mu.Lock()
				starts = append(starts, s.Scheduled.Add(s.Wait))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(starts)
	for i := 1; i < len(starts); i++ {
		if gap := time.Duration(starts[i] - starts[i-1]); gap < slice {
			t.Fatalf("%v between two starts, want %v", gap, slice)
		}
	}
}

func TestWaitAllocatesNothing(t *testing.T) {
	p := newPacer(t, Config{Rate: 1e8})
	ctx := context.Background()
	if n := testing.AllocsPerRun(100_000, func() { p.Wait(ctx) }); n != 0 {
		t.Errorf("%v allocations per call that is late", n)
	}
}

// Smooth starts keep the schedule in real time: none is early.
func TestSmooth(t *testing.T) {
	const n = 200
	begin := weir.Now()
	p := newPacer(t, Config{Rate: 2000, Smooth: true})
	for range n {
		wait(t, p)
	}
	if took := since(begin); took < (n-1)*time.Second/2000 {
		t.Errorf("%d starts took %v", n, took)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := p.SetRate(0.1); err != nil {
		t.Fatal(err)
	}
	_, _ = p.Wait(ctx) // may be late
	if _, err := p.Wait(ctx); err == nil {
		t.Error("ten seconds passed within 5 ms")
	}
}
