package budget

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/store/memstore"
)

// TestPresetStarvesNobody: four readers of another process take all that is lent. Real-time calls of up to
// 500 units, within their class's share, wait no longer than those units take at that share and two seconds,
// whether they wait in line or come back when they are told to. The quota is used all the same (S1.36, F1.1).
func TestPresetStarvesNobody(t *testing.T) {
	waiting := func(t *testing.T, c *Controller, cost Cost) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.WaitForBudget(ctx, cost); err != nil {
			t.Fatal(err)
		}
	}
	polling := func(t *testing.T, c *Controller, cost Cost) {
		for began := time.Now(); time.Since(began) < time.Minute; {
			d, err := c.Try(t.Context(), cost)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				return
			}
			time.Sleep(d.RetryAfter)
		}
		t.Fatal("a minute has passed")
	}
	reserving := func(t *testing.T, c *Controller, cost Cost) {
		r, err := c.Reserve(t.Context(), time.Minute, cost)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Settle(t.Context(), cost); err != nil {
			t.Fatal(err)
		}
	}
	for name, call := range map[string]func(*testing.T, *Controller, Cost){"waiting": waiting, "polling": polling, "reserving": reserving} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStarvation(t, call) })
		})
	}
}

func testStarvation(t *testing.T, call func(*testing.T, *Controller, Cost)) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	process := func(class string) *Controller {
		a, err := New(store, Config{Name: "main", Preset: "alchemy-free", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return controller(t, a, class)
	}
	both := func(units int64) Cost { return In(Amounts{"throughput": units, "cu": units}) }
	ctx, stop := context.WithCancel(t.Context())
	backfill, realtime := process("backfill"), process("realtime")
	var used [4]atomic.Int64
	var readers sync.WaitGroup
	for i := range used {
		readers.Go(func() {
			for cost := int64(20 + 10*i); backfill.WaitForBudget(ctx, both(cost)) == nil; used[i].Add(cost) {
			}
		})
	}
	const warmUp = 10 * time.Minute // until the traces of the first burst are gone
	time.Sleep(warmUp)
	start, all := time.Now(), int64(0)
	for i := range used {
		all -= used[i].Load()
	}
	for range 10 {
		for _, cost := range []int64{26, 40, 120, 250, 500} {
			began := time.Now()
			call(t, realtime, both(cost))
			if waited, most := time.Since(began), time.Duration(cost)*time.Second/291+2*time.Second; waited > most {
				t.Errorf("a call of %d units waited %v, want at most %v", cost, waited, most)
			}
			all += cost
			time.Sleep(time.Duration(cost) * time.Second / 200)
		}
	}
	for i := range used {
		all += used[i].Load()
	}
	if most := int64(500 * time.Since(start).Seconds()); all < most*95/100 || all > most*98/100 {
		t.Errorf("%d units were used, want 95 to 98 %% of %d", all, most)
	}
	stop()
	readers.Wait()
}
