package pacer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPacer(t testing.TB, c Config) *Pacer {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wait(t testing.TB, p *Pacer) Start {
	t.Helper()
	s, err := p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// virtual runs f where time passes only while everybody sleeps.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func since(begin weir.Instant) time.Duration { return time.Duration(weir.Now() - begin) }

func TestBadConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"rate 0:":              {},
		"rate NaN":             {Rate: math.NaN()},
		"rate +Inf":            {Rate: math.Inf(1)},
		"rate -1":              {Rate: -1},
		"rate 1e-07":           {Rate: 1e-7},
		"mode 3":               {Rate: 1, Mode: 3},
		"burst ratio 0.9":      {Rate: 1, BurstRatio: 0.9},
		"burst ratio -1":       {Rate: 1, BurstRatio: -1},
		"burst ratio NaN":      {Rate: 1, BurstRatio: math.NaN()},
		"credit -1ns":          {Rate: 1, Credit: -1},
		"max debt -1s":         {Rate: 1, MaxDebt: -time.Second},
		"max debt 1ms is less": {Rate: 1, MaxDebt: time.Millisecond},
		"idle reset -1s":       {Rate: 1, IdleReset: -time.Second},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	_, err := New(Config{Rate: -1, BurstRatio: 0.5})
	if err == nil || !strings.Contains(err.Error(), "rate -1") || !strings.Contains(err.Error(), "burst ratio 0.5") {
		t.Errorf("%v, want both problems", err)
	}
}

// On pace, every unit starts exactly when it is due, at any rate: nothing adds up.
func TestSchedule(t *testing.T) {
	for _, mode := range []Mode{Average, Strict, Burst} {
		for _, rate := range []float64{0.01, 0.3, 1, 3, 7, 999.9, 12_345, 39_999} {
			t.Run(fmt.Sprint(mode, rate), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					begin := weir.Now()
					p := newPacer(t, Config{Rate: rate, Mode: mode})
					slice := sliceOf(rate, 1)
					for n := range int64(1000) {
						s := wait(t, p)
						// The first of them is not worth a sleep, which is the slack.
						at := since(begin) - time.Duration(slice.times(n))
						if at < 0 || at > time.Duration(lead) || s.Wait != 0 || s.Scheduled != weir.Now() {
							t.Fatalf("unit %d started %v after n/rate: %+v", n, at, s)
						}
					}
					if s := p.Stats(); s.Granted != 1000 || s.TotalWait() != 0 {
						t.Errorf("%+v", s)
					}
				})
			})
		}
	}
}

// Those who would sleep for some microseconds each sleep longer, and start what is
// due meanwhile at once. Strict ones do not.
func TestShortSleeps(t *testing.T) {
	for _, mode := range []Mode{Average, Strict, Burst} {
		virtual(t, func(t *testing.T) {
			begin := weir.Now()
			p := newPacer(t, Config{Rate: 100_000, Mode: mode, BurstRatio: 2})
			sleeps, last := 0, begin
			for n := range int64(10_000) {
				wait(t, p)
				if now := weir.Now(); now != last {
					sleeps, last = sleeps+1, now
				}
				if late := since(begin) - time.Duration(n)*10*time.Microsecond; late < 0 || late > time.Duration(shortSleep+lead) {
					t.Fatalf("%v: unit %d started %v after n/rate", mode, n, late)
				}
			}
			if mode == Strict && sleeps != 10_000 || mode == Average && sleeps > 520 {
				t.Errorf("%v: slept %d times", mode, sleeps)
			}
		})
	}
}

// A late caller gets its lateness, and the start that the mode allows.
func TestLateness(t *testing.T) {
	const slice = 100 * time.Millisecond
	for _, c := range []struct {
		name   string
		config Config
		gaps   []time.Duration // between the starts after the pause
		lost   time.Duration
	}{
		{"strict", Config{Mode: Strict}, []time.Duration{slice, slice, slice}, 950 * time.Millisecond},
		{"average", Config{}, []time.Duration{90 * time.Millisecond, slice}, 940 * time.Millisecond},
		{"average, much credit", Config{Credit: 500 * time.Millisecond}, []time.Duration{0, 0, 0, 0, 0, slice}, 450 * time.Millisecond},
		{
			"burst at once within its credit, then twice as fast",
			Config{Mode: Burst, BurstRatio: 2, MaxDebt: 400 * time.Millisecond},
			[]time.Duration{40 * time.Millisecond, slice / 2, slice / 2, slice / 2, slice / 2, slice / 2, slice / 2, slice * 6 / 10, slice, slice},
			550 * time.Millisecond,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				c.config.Rate = 10
				p := newPacer(t, c.config)
				wait(t, p)
				time.Sleep(slice + 950*time.Millisecond)
				s := wait(t, p)
				if s.Wait.Round(10*time.Microsecond) != 950*time.Millisecond {
					t.Errorf("waited %v, want 950ms", s.Wait)
				}
				if lost := p.Stats().Forfeited.Round(time.Millisecond / 10); lost != c.lost {
					t.Errorf("forfeited %v, want %v", lost, c.lost)
				}
				for i, want := range c.gaps {
					before := weir.Now()
					wait(t, p)
					if got := since(before); (got - want).Abs() > time.Microsecond {
						t.Errorf("gap %d is %v, want %v", i, got, want)
					}
				}
			})
		})
	}
}

// The calls, their times and their results.
type trace struct {
	starts []weir.Instant
	t      *testing.T
}

// within checks that no interval has more than 1 + rate × (Δ + credit) starts.
func (tr *trace) within(rate float64, credit time.Duration) {
	for i := range tr.starts {
		for _, j := range []int{i + 1, i + 2, i + 3, i + 10, i + 30, i + 100, i + 300} {
			if j >= len(tr.starts) {
				break
			}
			d := time.Duration(tr.starts[j] - tr.starts[i])
			if most := 1 + rate*(d+credit+1).Seconds(); float64(j-i+1) > most {
				tr.t.Fatalf("%d starts within %v, at most %.2f may be", j-i+1, d, most)
			}
		}
	}
}

// Random demand keeps all bounds, in every mode, and conserves time.
func TestBounds(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := Config{
			Rate:       math.Pow(10, r.Float64()*5-1),
			Mode:       Mode(r.IntN(3)),
			BurstRatio: 1 + r.Float64()*2,
			Credit:     time.Duration(1 + r.Int64N(int64(50*time.Millisecond))),
		}
		c.MaxDebt = c.Credit + time.Duration(r.Int64N(int64(5*time.Second)))
		t.Run(fmt.Sprintf("%d %v", seed, c.Mode), func(t *testing.T) {
			virtual(t, func(t *testing.T) { playBounds(t, r, c) })
		})
	}
}

func playBounds(t *testing.T, r *rand.Rand, c Config) {
	begin := weir.Now()
	p := newPacer(t, c)
	tr := trace{t: t}
	slice := time.Duration(sliceOf(c.Rate, 1).times(1))
	for n := range 1500 {
		switch r.IntN(40) {
		case 0:
			time.Sleep(time.Duration(r.Int64N(int64(10 * time.Second))))
		case 1, 2, 3:
			time.Sleep(time.Duration(r.Int64N(int64(3*slice) + 1)))
		}
		s := wait(t, p)
		now := weir.Now()
		tr.starts = append(tr.starts, now)
		if s.Wait < 0 || s.Scheduled.Add(s.Wait) > now { // less if it did not look at the clock
			t.Fatalf("start %d at %v: %+v", n, now, s)
		}
		if most := 1 + c.Rate*(since(begin)+1).Seconds(); float64(n+1) > most {
			t.Fatalf("%d starts after %v, at most %.3f may be", n+1, since(begin), most)
		}
		timeConserved(t, p)
	}
	switch c.Mode {
	case Strict:
		tr.within(c.Rate, 0)
		for i := 1; i < len(tr.starts); i++ {
			if gap := time.Duration(tr.starts[i] - tr.starts[i-1]); gap < slice {
				t.Fatalf("%v between two starts, want %v", gap, slice)
			}
		}
	case Average:
		tr.within(c.Rate, c.Credit)
	case Burst:
		tr.within(c.Rate*c.BurstRatio, c.Credit)
	}
}

func timeConserved(t *testing.T, p *Pacer) {
	t.Helper()
	s := p.Stats()
	if sum := s.Allotted + s.Active + s.Waiting + s.Forfeited + s.Idle - s.Ahead; sum != s.Elapsed {
		t.Fatalf("%v of %v: %+v", sum, s.Elapsed, s)
	}
	if s.Active < 0 || s.Waiting < 0 || s.Forfeited < 0 || s.Idle < 0 || s.Ahead < 0 {
		t.Fatalf("%+v", s)
	}
}

// Whatever is set, lateness stays the same to the nanosecond, and the next start
// is no earlier than the new rate allows.
func TestSetKeepsWaitTime(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		virtual(t, func(t *testing.T) {
			p := newPacer(t, Config{Rate: 100, Mode: Burst, MaxDebt: time.Hour})
			for range 50 {
				for range r.IntN(20) {
					wait(t, p)
				}
				time.Sleep(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
				before := p.Stats()
				set(t, r, p)
				after := p.Stats()
				if before.WaitTime() != after.WaitTime() || before.Forfeited != after.Forfeited || before.Granted != after.Granted || before.Elapsed != after.Elapsed {
					t.Fatalf("before %+v, after %+v", before, after)
				}
				timeConserved(t, p)
			}
		})
	}
}

// set changes something, but not to a mode that makes less lateness good.
func set(t *testing.T, r *rand.Rand, p *Pacer) {
	t.Helper()
	var err error
	switch r.IntN(3) {
	case 0:
		err = p.SetRate(math.Pow(10, r.Float64()*4))
	case 1:
		err = p.SetBurstRatio(1 + r.Float64())
	case 2:
		err = errors.Join(p.SetRate(1+r.Float64()), p.SetRate(200))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSetRefused(t *testing.T) {
	p := newPacer(t, Config{Rate: 5})
	for _, err := range []error{p.SetRate(0), p.SetRate(math.NaN()), p.SetMode(9), p.SetBurstRatio(0.5)} {
		if err == nil {
			t.Error("no error")
		}
	}
	if c := p.Config(); c.Rate != 5 || c.Mode != Average || c.BurstRatio != DefaultBurstRatio || c.Credit != DefaultCredit {
		t.Errorf("%+v", c)
	}
}

// Those who wait follow a new rate, and keep the part of the slice that they have
// waited for.
func TestSetRateWhileWaiting(t *testing.T) {
	for _, mode := range []Mode{Average, Strict, Burst} {
		virtual(t, func(t *testing.T) {
			begin := weir.Now()
			p := newPacer(t, Config{Rate: 0.01, Mode: mode})
			wait(t, p)
			var starts []time.Duration
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 3 {
				wg.Go(func() {
					wait(t, p)
					mu.Lock()
					defer mu.Unlock()
					starts = append(starts, since(begin).Round(10*time.Microsecond))
				})
				synctest.Wait()
			}
			time.Sleep(25 * time.Second) // a quarter of the slice
			if err := p.SetRate(1); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if want := "[25.75s 26.75s 27.75s]"; fmt.Sprint(starts) != want {
				t.Errorf("%v: started after %v, want %s", mode, starts, want)
			}
			timeConserved(t, p)
		})
	}
}

// Switching to and fro grants nothing.
func TestSwitchGrantsNothing(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		virtual(t, func(t *testing.T) {
			p := newPacer(t, Config{Rate: 100})
			tr := trace{t: t}
			for range 3000 {
				if err := p.SetMode(Mode(r.IntN(3))); err != nil {
					t.Fatal(err)
				}
				if r.IntN(50) == 0 {
					time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
				}
				wait(t, p)
				tr.starts = append(tr.starts, weir.Now())
			}
			tr.within(100*DefaultBurstRatio, DefaultCredit+time.Duration(lead))
			if most := 1 + 100*time.Duration(tr.starts[len(tr.starts)-1]-tr.starts[0]).Seconds() + 1; float64(len(tr.starts)) > most {
				t.Errorf("%d starts, at most %.1f may be", len(tr.starts), most)
			}
		})
	}
}

// Who comes first starts first.
func TestFIFO(t *testing.T) {
	for _, mode := range []Mode{Average, Strict, Burst} {
		virtual(t, func(t *testing.T) {
			p := newPacer(t, Config{Rate: 10, Mode: mode})
			var order []int
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					wait(t, p)
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				})
				synctest.Wait()
			}
			wg.Wait()
			for i := range order {
				if order[i] != i {
					t.Fatalf("%v: order %v", mode, order)
				}
			}
		})
	}
}

// A wait that is cancelled takes nothing: the others start as if it had not been
// there, or earlier.
func TestCancel(t *testing.T) {
	for _, mode := range []Mode{Average, Strict, Burst} {
		virtual(t, func(t *testing.T) {
			begin := weir.Now()
			p := newPacer(t, Config{Rate: 1, Mode: mode})
			wait(t, p)
			ctx, cancel := context.WithCancel(context.Background())
			errs := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := p.Wait(ctx)
					errs <- err
				}()
				synctest.Wait()
			}
			var wg sync.WaitGroup
			wg.Go(func() { wait(t, p) }) // behind both
			synctest.Wait()
			cancel()
			for range 2 {
				if err := <-errs; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			wait(t, p) // takes the place of the first
			wait(t, p)
			wg.Wait()
			if got := since(begin).Round(time.Millisecond); got != 3*time.Second {
				t.Errorf("%v: four units in %v, want 3s", mode, got)
			}
			if s := p.Stats(); s.Granted != 4 {
				t.Errorf("%v: %+v", mode, s)
			}
			timeConserved(t, p)
		})
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := newPacer(t, Config{Rate: 1e6})
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) || p.Stats().Granted != 0 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
	if _, err := p.WaitN(ctx, 5); !errors.Is(err, context.Canceled) || p.Stats().Granted != 0 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
}

// Places that nobody took in time are gone.
func TestGivenBackExpires(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := newPacer(t, Config{Rate: 10})
		first, last := p.Reserve(), p.Reserve()
		first.Cancel()
		first.Cancel()
		if s := p.Stats(); s.Granted != 1 {
			t.Errorf("%+v", s)
		}
		timeConserved(t, p)
		time.Sleep(time.Second)
		s := wait(t, p)
		if s.Scheduled == first.Scheduled || p.Stats().Granted != 2 {
			t.Errorf("%+v, %+v", s, p.Stats())
		}
		timeConserved(t, p)
		last.Cancel()
	})
}

func TestCosts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		begin := weir.Now()
		p := newPacer(t, Config{Rate: 1000})
		for _, n := range []int64{1, 500, 1, 2000, 1} {
			if _, err := p.WaitN(context.Background(), n); err != nil {
				t.Fatal(err)
			}
		}
		if got := since(begin).Round(time.Millisecond / 10); got != 2502*time.Millisecond {
			t.Errorf("started after %v, want 2.502s: what was paid before", got)
		}
		for _, n := range []int64{0, -1, MaxUnits + 1} {
			if _, err := p.WaitN(context.Background(), n); err == nil {
				t.Errorf("%d units: no error", n)
			}
			if _, err := p.ReserveN(n); err == nil {
				t.Errorf("%d units: no error", n)
			}
			if _, ok := p.TryNextN(n); ok {
				t.Errorf("%d units", n)
			}
		}
	})
}

func TestTryNext(t *testing.T) {
	for _, mode := range []Mode{Average, Strict, Burst} {
		virtual(t, func(t *testing.T) {
			p := newPacer(t, Config{Rate: 10, Mode: mode})
			time.Sleep(time.Duration(lead))
			for n := range 5 {
				if s, ok := p.TryNext(); !ok || s.Wait != 0 {
					t.Fatalf("%v %d: %+v %v", mode, n, s, ok)
				}
				if _, ok := p.TryNext(); ok {
					t.Fatalf("%v %d: two at once", mode, n)
				}
				time.Sleep(99 * time.Millisecond)
				if _, ok := p.TryNext(); ok {
					t.Fatalf("%v %d: too early", mode, n)
				}
				time.Sleep(time.Millisecond)
			}
			var wg sync.WaitGroup
			wait(t, p)
			wg.Go(func() { wait(t, p) })
			synctest.Wait()
			time.Sleep(99 * time.Millisecond)
			if _, ok := p.TryNext(); ok {
				t.Errorf("%v: overtook one who waits", mode)
			}
			wg.Wait()
			if s := p.Stats(); s.Granted != 7 {
				t.Errorf("%v: %+v", mode, s)
			}
		})
	}
}

func TestReserve(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := newPacer(t, Config{Rate: 10})
		var rs []*Reservation
		for range 4 {
			rs = append(rs, p.Reserve())
		}
		for i, r := range rs {
			if d := r.Delay().Round(time.Millisecond); d != time.Duration(i)*100*time.Millisecond {
				t.Errorf("%d is due in %v", i, d)
			}
		}
		rs[2].Cancel()
		if r := p.Reserve(); r.Scheduled != rs[2].Scheduled {
			t.Errorf("due at %v, want the place that was given back, %v", r.Scheduled, rs[2].Scheduled)
		}
		rs[3].Cancel() // nobody came after it
		if r := p.Reserve(); r.Scheduled != rs[3].Scheduled {
			t.Errorf("due at %v, want %v", r.Scheduled, rs[3].Scheduled)
		}
		timeConserved(t, p)
	})
}

// Nobody asked for an hour: that is not lateness, if one says so. What was late
// before stays late.
func TestIdleReset(t *testing.T) {
	for _, mode := range []Mode{Average, Burst} {
		virtual(t, func(t *testing.T) {
			p := newPacer(t, Config{Rate: 10, Mode: mode, Credit: time.Minute, MaxDebt: time.Hour, IdleReset: time.Second})
			wait(t, p)
			time.Sleep(600 * time.Millisecond) // late by half a second
			if s := wait(t, p); s.Wait.Round(time.Millisecond) != 500*time.Millisecond {
				t.Errorf("%v: %+v", mode, s)
			}
			time.Sleep(time.Hour)
			s, stats := wait(t, p), p.Stats()
			if s.Wait.Round(time.Millisecond) != 400*time.Millisecond || stats.Idle != time.Hour || stats.Forfeited != 0 {
				t.Errorf("%v: %+v, %+v", mode, s, stats)
			}
			timeConserved(t, p)
		})
	}
}

func TestStopAndStart(t *testing.T) {
	for _, mode := range []Mode{Average, Strict, Burst} {
		virtual(t, func(t *testing.T) {
			begin := weir.Now()
			p := newPacer(t, Config{Rate: 1, Mode: mode})
			wait(t, p)
			time.Sleep(500 * time.Millisecond)
			p.Stop()
			p.Stop()
			if _, ok := p.TryNext(); ok {
				t.Errorf("%v: started while it stands still", mode)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			if _, err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: %v", mode, err)
			}
			if err := p.SetRate(2); err != nil { // also stands still
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			p.Start()
			s := wait(t, p) // a quarter of a slice of the new rate... half of it is left
			if got := since(begin).Round(time.Millisecond); got != 2*time.Hour+750*time.Millisecond || s.Wait != 0 {
				t.Errorf("%v: started after %v, want 2h0m0.75s: %+v", mode, got, s)
			}
			if s := p.Stats(); s.Elapsed.Round(time.Millisecond) != 750*time.Millisecond || s.TotalWait() != 0 {
				t.Errorf("%v: %+v", mode, s)
			}
			timeConserved(t, p)
		})
	}
}

func TestRestart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := newPacer(t, Config{Rate: 1, Mode: Burst, MaxDebt: time.Hour})
		for range 3 {
			wait(t, p)
		}
		time.Sleep(time.Minute)
		p.Restart()
		if s := p.Stats(); s != (Stats{}) {
			t.Errorf("%+v", s)
		}
		begin := weir.Now()
		for range 3 {
			if s := wait(t, p); s.Wait != 0 {
				t.Errorf("%+v", s)
			}
		}
		if got := since(begin).Round(time.Millisecond); got != 2*time.Second || p.Stats().Granted != 3 {
			t.Errorf("%v, %+v", got, p.Stats())
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { wait(t, p) })
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		begin = weir.Now()
		p.Restart() // those who wait begin with it
		wg.Wait()
		if got := since(begin).Round(time.Millisecond); got != 2*time.Second {
			t.Errorf("three who waited needed %v, want 2s", got)
		}
		timeConserved(t, p)
	})
}

func TestModeString(t *testing.T) {
	if got := fmt.Sprint(Average, Strict, Burst, Mode(9)); got != "average strict burst Mode(9)" {
		t.Error(got)
	}
}

func TestReservationWait(t *testing.T) {
	virtual(t, func(t *testing.T) {
		begin := weir.Now()
		p := newPacer(t, Config{Rate: 10})
		first, second := p.Reserve(), p.Reserve()
		if s, err := second.Wait(context.Background()); err != nil || s.Wait != 0 || since(begin).Round(time.Millisecond) != 100*time.Millisecond {
			t.Errorf("%+v %v after %v", s, err, since(begin))
		}
		if s, err := first.Wait(context.Background()); err != nil || s.Wait.Round(time.Millisecond) != 100*time.Millisecond {
			t.Errorf("%+v %v", s, err)
		}
		third := p.Reserve()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := third.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		third.Cancel()
		if r := p.Reserve(); r.Scheduled != third.Scheduled {
			t.Errorf("%v, want %v", r.Scheduled, third.Scheduled)
		}
	})
}

// In the mode Burst a late unit is due before it may start.
func TestReserveInBurst(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := newPacer(t, Config{Rate: 10, Mode: Burst, BurstRatio: 2})
		time.Sleep(time.Second)
		for i := range 3 {
			r := p.Reserve()
			late := 999*time.Millisecond - time.Duration(i)*100*time.Millisecond + r.Delay()
			if delay := r.Delay().Round(10 * time.Millisecond); delay != max(0, time.Duration(i)*50-10)*time.Millisecond || (r.At.Sub(r.Scheduled)-late).Abs() > 2*time.Millisecond {
				t.Errorf("%d: to start in %v, late by %v: %+v", i, delay, late, r)
			}
		}
	})
}
