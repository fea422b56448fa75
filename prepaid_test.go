package weir

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func mustPrepaid(t testing.TB, l Limit) *Prepaid {
	t.Helper()
	p, err := NewPrepaid(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// drain lets 64 goroutines take until each is refused, and counts.
func drain(p *Prepaid) int64 {
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
			p := mustPrepaid(t, Limit{Rate: 1000, Per: Every(time.Second), Burst: burst})
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
		limit := Limit{Rate: 100_000, Per: Every(time.Second), Burst: 20_000}.normal()
		p := mustPrepaid(t, limit)
		start := time.Now()
		var mu sync.Mutex
		var grants []taken
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
				grants = append(grants, taken{now: t0.Add(time.Since(start)), cost: got})
				mu.Unlock()
				time.Sleep(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
			}
		})
		var total int64
		for _, g := range grants {
			total += g.cost
		}
		if least := int64(time.Since(start).Seconds() * 50_000); total < least {
			t.Errorf("only %d units in %v", total, time.Since(start))
		}
		checkBound(t, limit, grants)
	})
}

func TestPrepaidSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := mustPrepaid(t, Limit{Rate: 1000, Per: Every(time.Second), Burst: 1000})
		for range 600 {
			p.Allow() // and some is prepaid
		}
		if err := p.Set(Limit{Rate: 1000, Per: Every(time.Second), Burst: 1500}); err != nil {
			t.Fatal(err)
		}
		if n := drain(p); n != 900 {
			t.Errorf("%d granted after the burst grew, want 900", n)
		}
		for range 100 {
			if err := p.Set(Limit{Rate: 1000, Per: Every(time.Second), Burst: 1500}); err != nil {
				t.Fatal(err)
			}
		}
		if p.Allow() {
			t.Error("setting the same limit granted a unit")
		}
		if err := p.Set(Limit{Rate: 1, Per: Every(time.Second), Burst: 2000}); err != nil {
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
		p := mustPrepaid(t, Limit{Rate: 1000, Per: Every(time.Second), Burst: 1000})
		p.Allow() // prepays
		if d := p.Take(999); !d.Allowed {
			t.Errorf("prepaid units must be taken back: %+v", d)
		}
		if d := p.Take(1); d.Allowed || d.Reason != Exhausted || d.RetryAfter != time.Millisecond {
			t.Errorf("empty: %+v", d)
		}
		if d := p.Take(1001); d.Reason != TooCostly {
			t.Errorf("too costly: %+v", d)
		}
		if d := p.Take(-1); d.Reason != Invalid {
			t.Errorf("negative: %+v", d)
		}
		if d := p.Take(0); !d.Allowed {
			t.Errorf("nothing: %+v", d)
		}
	})
}

func TestPrepaidNeedsGCRA(t *testing.T) {
	var e *LimitError
	if _, err := NewPrepaid(Limit{Rate: 1, Per: Calendar(Day, nil)}); !errors.As(err, &e) || e.Field != "algorithm" {
		t.Errorf("a calendar: %v", err)
	}
	if _, err := NewPrepaid(Limit{}); !errors.As(err, &e) || e.Field != "rate" {
		t.Errorf("no rate: %v", err)
	}
	p := mustPrepaid(t, Limit{Rate: 1, Per: Every(time.Second)})
	if err := p.Set(Limit{Rate: 1, Per: Every(time.Second), Algorithm: SlidingLog}); !errors.As(err, &e) {
		t.Errorf("set: %v", err)
	}
}

func TestPrepaidAllocations(t *testing.T) {
	p := mustPrepaid(t, Limit{Rate: 1_000_000, Per: Every(time.Second)})
	if n := testing.AllocsPerRun(10_000, func() { p.Allow() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
