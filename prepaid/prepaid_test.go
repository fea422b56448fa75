package prepaid

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

const goroutines = 64

// race runs f in 64 goroutines, each with a random source of its own.
func race(seed uint64, f func(r *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() { f(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	wg.Wait()
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t) })
}

// rounds is how often each goroutine asks; make test-all asks more often.
func rounds() int {
	if os.Getenv("WEIR_TEST") == "all" {
		return 2000
	}
	return 200
}

func mustNew(t testing.TB, l weir.Limit) *Limiter {
	t.Helper()
	p, err := New(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// drain lets 64 goroutines take until each is refused, and counts.
func drain(p *Limiter) int64 {
	var n atomic.Int64
	race(1, func(r *rand.Rand) {
		for p.Allow() {
			n.Add(1)
		}
	})
	return n.Load()
}

// In virtual time the clock stands still while anyone runs, so what 64
// goroutines get is exact: the burst, then what the time that passed is worth.
func TestPrepaidIsExact(t *testing.T) {
	for _, burst := range []int64{1, 7, 100, 10_000} {
		bubble(t, func(t *testing.T) {
			p := mustNew(t, weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: burst})
			if n := drain(p); n != burst {
				t.Errorf("burst %d: %d granted at once", burst, n)
			}
			for _, ms := range []int64{1, 3, 50, 20_000} {
				time.Sleep(time.Duration(ms) * time.Millisecond)
				if n := drain(p); n != min(ms, burst) {
					t.Errorf("burst %d: %d granted after %d ms", burst, n, ms)
				}
			}
		})
	}
}

// Whatever is prepaid somewhere, no interval may have more than the bound.
func TestPrepaidBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limit := weir.Limit{Rate: 100_000, Per: weir.Every(time.Second), Burst: 20_000}
		p := mustNew(t, limit)
		start := time.Now()
		var mu sync.Mutex
		var grants []grant
		race(2, func(r *rand.Rand) {
			for range rounds() {
				n := 1 + r.IntN(60)
				got := int64(0)
				for range n {
					if p.Allow() {
						got++
					}
				}
				if cost := r.Int64N(40); r.IntN(10) == 0 && p.Take(cost).Allowed {
					got += cost
				}
				mu.Lock()
				grants = append(grants, grant{time.Since(start), got})
				mu.Unlock()
				time.Sleep(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
			}
		})
		var total int64
		for _, g := range grants {
			total += g.units
		}
		if least := int64(time.Since(start).Seconds() * 50_000); total < least {
			t.Errorf("only %d units in %v", total, time.Since(start))
		}
		checkBound(t, grants, time.Second/time.Duration(limit.Rate), limit.Burst)
	})
}

type grant struct {
	at    time.Duration
	units int64
}

// checkBound checks every interval between two grants against burst + rate × Δ, where one
// unit comes back every so long. Kadane's sum finds the worst.
func checkBound(t *testing.T, grants []grant, every time.Duration, burst int64) {
	t.Helper()
	slices.SortFunc(grants, func(a, b grant) int { return int(a.at - b.at) })
	var run, worst, last time.Duration
	for _, g := range grants {
		run = max(0, run-(g.at-last)) + time.Duration(g.units)*every
		worst, last = max(worst, run), g.at
	}
	if worst > time.Duration(burst)*every+1 {
		t.Errorf("some interval has %d units beyond rate × time, more than %d", int64(worst/every), burst)
	}
}

func TestPrepaidSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := mustNew(t, weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: 1000})
		for range 600 {
			p.Allow() // and some is prepaid
		}
		if err := p.Set(weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: 1500}); err != nil {
			t.Fatal(err)
		}
		if n := drain(p); n != 900 {
			t.Errorf("%d granted after the burst grew, want 900", n)
		}
		for range 100 {
			if err := p.Set(weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: 1500}); err != nil {
				t.Fatal(err)
			}
		}
		if p.Allow() {
			t.Error("setting the same limit granted a unit")
		}
		if err := p.Set(weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 2000}); err != nil {
			t.Fatal(err)
		}
		if n := drain(p); n != 500 {
			t.Errorf("%d granted after another raise, want 500", n)
		}
		if l := p.Limit(); l.Burst != 2000 {
			t.Errorf("limit %v", l)
		}
		time.Sleep(time.Second)
		if n := drain(p); n != 1 {
			t.Errorf("%d granted a second later, want 1", n)
		}
		synctest.Wait()
	})
}

func TestPrepaidTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := mustNew(t, weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: 1000})
		p.Allow() // prepays
		if d := p.Take(999); !d.Allowed {
			t.Errorf("prepaid units must be taken back: %+v", d)
		}
		if d := p.Take(1); d.Allowed || d.Reason != weir.Exhausted || d.RetryAfter != time.Millisecond {
			t.Errorf("empty: %+v", d)
		}
		if d := p.Take(1001); d.Reason != weir.TooCostly {
			t.Errorf("too costly: %+v", d)
		}
		if d := p.Take(-1); d.Reason != weir.Invalid {
			t.Errorf("negative: %+v", d)
		}
		if d := p.Take(0); !d.Allowed {
			t.Errorf("nothing: %+v", d)
		}
	})
}

func TestPrepaidNeedsGCRA(t *testing.T) {
	var e *weir.LimitError
	if _, err := New(weir.Limit{Rate: 1, Per: weir.Calendar(weir.Day, nil)}); !errors.As(err, &e) || e.Field != "algorithm" {
		t.Errorf("a calendar: %v", err)
	}
	if _, err := New(weir.Limit{}); !errors.As(err, &e) || e.Field != "rate" {
		t.Errorf("no rate: %v", err)
	}
	p := mustNew(t, weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	if err := p.Set(weir.Limit{Rate: 1, Per: weir.Every(time.Second), Algorithm: weir.SlidingLog}); !errors.As(err, &e) {
		t.Errorf("set: %v", err)
	}
}

func TestPrepaidAllocations(t *testing.T) {
	p := mustNew(t, weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second)})
	if n := testing.AllocsPerRun(10_000, func() { p.Allow() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPrepaidAfterARest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := mustNew(t, weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: 10_000})
		for range 250 {
			p.Allow()
		}
		if d := p.Take(2); d.ResetAfter == weir.Never {
			t.Errorf("%+v", d)
		}
		time.Sleep(time.Hour)
		if n := drain(p); n < 10_000-int64(len(p.stripes))*maxBlock || n > 10_000 {
			t.Errorf("%d admitted after a rest", n)
		}
	})
}

func TestPrepaidRefusalOfMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := mustNew(t, weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 10})
		if !p.Take(6).Allowed || p.Take(6).Allowed {
			t.Fatal("six, and not six more")
		}
		if !p.Allow() {
			t.Error("a refusal of six must not refuse one")
		}
	})
}

var fast = weir.Limit{Rate: 100_000_000, Per: weir.Every(time.Second), Burst: 1_000_000}

func BenchmarkPrepaid(b *testing.B) {
	p, err := New(fast)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Allow()
	}
}

func BenchmarkPrepaid32(b *testing.B) {
	p, err := New(fast)
	if err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Allow()
		}
	})
}
