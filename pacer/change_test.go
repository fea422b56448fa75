package pacer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// waitAll lets n goroutines wait, one after the other, and returns what collects when
// they started, in tenths of milliseconds since begin.
func waitAll(t *testing.T, p *Pacer, n int, begin weir.Instant) (starts func() []time.Duration) {
	var mu sync.Mutex
	var got []time.Duration
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			wait(t, p)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, since(begin).Round(100*time.Microsecond))
		})
		synctest.Wait()
	}
	return func() []time.Duration {
		all.Wait()
		return got
	}
}

// Whatever is changed to and fro, those who wait start when they should.
func TestChangesWhileOthersWait(t *testing.T) {
	for name, change := range map[string]func(*Pacer){
		"stop and start":    func(p *Pacer) { p.Stop(); p.Start() },
		"rates to and fro":  func(p *Pacer) { p.SetRate(5); p.SetRate(0.1); p.SetRate(1) },
		"ratios to and fro": func(p *Pacer) { p.SetBurstRatio(3); p.SetBurstRatio(1.1) },
		"rate, then mode":   func(p *Pacer) { p.SetRate(3); p.SetMode(Burst); p.SetRate(1); p.SetMode(Average) },
		"strict and back":   func(p *Pacer) { p.SetMode(Strict); p.SetMode(Burst) },
		"strict":            func(p *Pacer) { p.SetMode(Strict) },
	} {
		for _, mode := range []Mode{Average, Strict, Burst} {
			t.Run(fmt.Sprint(name, " ", mode), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					begin := weir.Now()
					p := newPacer(t, Config{Rate: 1, Mode: mode, BurstRatio: 2})
					wait(t, p)
					starts := waitAll(t, p, 6, begin)
					change(p)
					if got := fmt.Sprint(starts()); got != "[1s 2s 3s 4s 5s 6s]" {
						t.Errorf("started at %s", got)
					}
					timeConserved(t, p)
				})
			})
		}
	}
}

// A restart lets those who wait begin one after the other, whatever came before it.
func TestRestartWhileOthersWait(t *testing.T) {
	for name, before := range map[string]func(*Pacer){
		"nothing":   func(*Pacer) {},
		"stopped":   func(p *Pacer) { p.Stop() },
		"slower":    func(p *Pacer) { p.SetRate(5); p.SetRate(10) },
		"cancelled": func(p *Pacer) { r := p.Reserve(); p.Reserve(); r.Cancel() },
	} {
		for _, mode := range []Mode{Average, Strict, Burst} {
			virtual(t, func(t *testing.T) {
				p := newPacer(t, Config{Rate: 10, Mode: mode})
				wait(t, p)
				starts := waitAll(t, p, 20, 0)
				before(p)
				begin := weir.Now()
				p.Restart()
				for i, at := range starts() {
					if off := at - time.Duration(begin) - time.Duration(i)*100*time.Millisecond; off.Abs() > time.Millisecond {
						t.Errorf("%s, %v: start %d is %v off", name, mode, i, off)
					}
				}
				if s := p.Stats(); s.Granted != 20 {
					t.Errorf("%s, %v: %+v", name, mode, s)
				}
				timeConserved(t, p)
			})
		}
	}
}

// Old places that were given back do not let a burst come twice.
func TestGivenBackInBurst(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := newPacer(t, Config{Rate: 100, Mode: Burst})
		for i := range 100 {
			if r := p.Reserve(); i > 0 {
				defer r.Cancel() // later: nothing is left of it then
				r.Cancel()
			}
		}
		time.Sleep(990 * time.Millisecond)
		n := 0
		for range 100 {
			if _, ok := p.TryNext(); ok {
				n++
			}
		}
		if n > 2 {
			t.Errorf("%d at once, at most 2 may be", n)
		}
	})
}

// A backlog that is being made good is not let go by a change.
func TestBacklogIsHeld(t *testing.T) {
	for name, change := range map[string]func(*Pacer){
		"none":    func(*Pacer) {},
		"rate":    func(p *Pacer) { p.SetRate(10) },
		"average": func(p *Pacer) { p.SetMode(Average) },
	} {
		virtual(t, func(t *testing.T) {
			p := newPacer(t, Config{Rate: 1000, Mode: Burst, BurstRatio: 2})
			time.Sleep(time.Second)
			begin := weir.Now()
			starts := waitAll(t, p, 100, begin)
			change(p)
			got := starts()
			atOnce := slices.IndexFunc(got, func(d time.Duration) bool { return d > 0 })
			if atOnce > 21 {
				t.Errorf("%s: %d at once, at most 21 may be", name, atOnce)
			}
		})
	}
}

func TestReserveWhileStopped(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := newPacer(t, Config{Rate: 10})
		wait(t, p)
		p.Stop()
		time.Sleep(time.Hour)
		p.Reserve().Cancel()
		p.Start()
		begin := weir.Now()
		wait(t, p)
		if took := since(begin).Round(time.Millisecond); took != 100*time.Millisecond {
			t.Errorf("started %v later, want 100ms", took)
		}
		timeConserved(t, p)
	})
}

// Starts that came too fast to look at the clock do not count as slow ones later.
func TestSlowerAfterFastStarts(t *testing.T) {
	for _, mode := range []Mode{Average, Burst} {
		virtual(t, func(t *testing.T) {
			p := newPacer(t, Config{Rate: 100_000, Mode: mode})
			time.Sleep(time.Second)
			for range 105 {
				wait(t, p)
			}
			before := p.Stats()
			if err := p.SetRate(1); err != nil {
				t.Fatal(err)
			}
			if s := p.Stats(); s.Granted != before.Granted || s.TotalWait() < before.TotalWait() {
				t.Errorf("%v: before %+v, after %+v", mode, before, s)
			}
			begin := weir.Now()
			wait(t, p)
			wait(t, p)
			if took := since(begin); took > time.Second {
				t.Errorf("%v: two starts took %v", mode, took)
			}
			timeConserved(t, p)
		})
	}
}

// Random calls and changes: what was granted is what started, and not too early.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(150) {
		virtual(t, func(t *testing.T) { playChanges(t, rand.New(rand.NewPCG(seed, 4))) })
	}
}

func playChanges(t *testing.T, r *rand.Rand) {
	const fastest = 1000
	begin := weir.Now()
	p := newPacer(t, Config{Rate: fastest, Mode: Mode(r.IntN(3))})
	var mu sync.Mutex
	var all sync.WaitGroup
	started := int64(0)
	for range 400 {
		switch r.IntN(12) {
		case 0:
			p.SetRate(1 + r.Float64()*(fastest-1))
		case 1:
			p.SetMode(Mode(r.IntN(3)))
		case 2:
			p.SetBurstRatio(1 + r.Float64())
		case 3:
			p.Stop()
		case 4, 5:
			p.Start()
		case 6:
			time.Sleep(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
		default:
			patience := time.Duration(r.Int64N(int64(50 * time.Millisecond)))
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if _, err := p.Wait(ctx); err == nil {
					mu.Lock()
					defer mu.Unlock()
					started++
				}
			})
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(5 * time.Millisecond))))
		}
		timeConserved(t, p)
	}
	p.Start()
	all.Wait()
	if s := p.Stats(); s.Granted != started {
		t.Fatalf("%d granted, but %d started: %+v", s.Granted, started, s)
	}
	if most := 1 + fastest*since(begin).Seconds(); float64(started) > most {
		t.Fatalf("%d started, at most %.1f may have", started, most)
	}
}
