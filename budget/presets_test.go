package budget

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
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

// arrival is a call that a provider gets.
type arrival struct {
	at    time.Time
	units int64
}

// exceeds says by which reading of "500 per second, over ten seconds" calls exceed a provider's limit, "" if by none:
// as a bucket of 5,000 that refills at 500 per second, and as at most 5,000 in any ten seconds.
func exceeds(calls []arrival, perSecond int64) string {
	if overflows(calls, perSecond) {
		return fmt.Sprintf("a bucket of %d", 10*perSecond)
	}
	if most := mostInTenSeconds(calls); most > 10*perSecond {
		return fmt.Sprintf("%d in ten seconds", most)
	}
	return ""
}

// overflows reports whether calls exceed a bucket of ten seconds.
func overflows(calls []arrival, perSecond int64) bool {
	inOrder(calls)
	var full time.Time // when the bucket is full again
	for _, c := range calls {
		if full.Before(c.at) {
			full = c.at
		}
		full = full.Add(time.Duration(c.units) * time.Second / time.Duration(perSecond))
		if full.Sub(c.at) > providerSpan {
			return true
		}
	}
	return false
}

// mostInTenSeconds returns the most units of calls in any ten seconds.
func mostInTenSeconds(calls []arrival) (most int64) {
	inOrder(calls)
	sum, first := int64(0), 0
	for _, c := range calls {
		sum += c.units
		for ; !calls[first].at.After(c.at.Add(-providerSpan)); first++ {
			sum -= calls[first].units
		}
		most = max(most, sum)
	}
	return most
}

const providerSpan = 10 * time.Second

func inOrder(calls []arrival) {
	slices.SortFunc(calls, func(a, b arrival) int { return a.at.Compare(b.at) })
}

// A load makes calls of an account's classes, which arrive at a provider 0 to 100 ms later.
type load struct {
	random  *rand.Rand
	account *Account
	costs   []int64
	mu      sync.Mutex // guards the field below
	calls   []arrival
}

// phase has eight workers of some classes make calls at the same time, until it is over.
func (l *load) phase(t *testing.T, lasts time.Duration, classes []string) {
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var workers sync.WaitGroup
	for i := range 8 {
		c := controller(t, l.account, classes[i%len(classes)])
		random := rand.New(rand.NewPCG(l.random.Uint64(), 0))
		workers.Go(func() {
			for l.call(ctx, c, random) {
			}
		})
	}
	workers.Wait()
}

// call makes a call when there is room for it. One of ten is reserved and not sent, two are sent by a reservation.
func (l *load) call(ctx context.Context, c *Controller, random *rand.Rand) bool {
	units := l.costs[random.IntN(len(l.costs))]
	cost := In(Amounts{"throughput": units, "cu": units})
	if kind := random.IntN(10); kind < 3 {
		r, err := c.Reserve(ctx, time.Minute, cost)
		if err != nil {
			return false
		}
		if kind == 0 {
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			_, err = r.Cancel(ctx)
			return err == nil
		}
		_, err = r.Commit(ctx)
		l.send(units, random)
		return err == nil
	}
	if c.WaitForBudget(ctx, cost) != nil {
		return false
	}
	l.send(units, random)
	return true
}

// send has a call arrive. Half of the calls take none of or all of the 100 ms: those exceed a limit first.
func (l *load) send(units int64, random *rand.Rand) {
	delay := time.Duration(random.IntN(101)) * time.Millisecond
	if random.IntN(2) == 0 {
		delay = time.Duration(random.IntN(2)) * 100 * time.Millisecond
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, arrival{time.Now().Add(delay), units})
}

// TestProviderLimit: the preset and what FromEnv makes of no variables exceed neither reading of the provider's limit,
// whatever the load: one class or both, from small calls to the largest, after idle times, with calls that are up to
// 100 ms longer on their way than others. And a load that does not end uses the quota (F1.1).
func TestProviderLimit(t *testing.T) {
	environment := func(variables ...string) Config {
		c, err := FromEnv(variables)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, tt := range []struct {
		name      string
		config    Config
		perSecond int64
		largest   int64
	}{
		{"the preset", Config{Name: "main", Preset: "alchemy-free"}, 500, 500},
		{"no variables", environment(), 500, 200},
		{"a window of ten seconds", environment("ALCHEMY_WINDOW_SIZE_MS=10000"), 500, 2000},
		{"a small plan", environment("ALCHEMY_CU_PER_SECOND=33"), 33, 13},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(3) {
				synctest.Test(t, func(t *testing.T) {
					l := &load{random: rand.New(rand.NewPCG(seed, 1)), account: newAccount(t, tt.config)}
					l.testProviderLimit(t, tt.perSecond, tt.largest)
				})
			}
		})
	}
}

// testProviderLimit makes calls in phases with idle times between them, and for a minute without a break.
func (l *load) testProviderLimit(t *testing.T, perSecond, largest int64) {
	one, both := []string{[]string{"realtime", "backfill"}[l.random.IntN(2)]}, []string{"realtime", "backfill"}
	for range 6 {
		l.costs = [][]int64{{largest}, {1 + largest/20, 1 + largest/10, largest / 5}, {largest, 1 + largest/10, 1 + largest/50}}[l.random.IntN(3)]
		l.phase(t, time.Duration(1+l.random.IntN(25))*time.Second, [][]string{one, both}[l.random.IntN(2)])
		time.Sleep(time.Duration(l.random.IntN(15_000)) * time.Millisecond)
	}
	l.costs = []int64{1 + largest/50, 1 + largest/10}
	time.Sleep(time.Minute)
	before := len(l.calls)
	l.phase(t, time.Minute, both)
	all := int64(0)
	for _, c := range l.calls[before:] {
		all += c.units
	}
	if most := 60 * perSecond; all < most*97/100 {
		t.Errorf("%d units in a minute, want 97 %% of %d", all, most)
	}
	if how := exceeds(l.calls, perSecond); how != "" {
		t.Errorf("the provider refuses a call: %s", how)
	}
}

// TestPresetInAnOutage: while the store is unavailable, all processes together make calls of at most the burst and 485
// units per second, and of twice the burst where one of them had used it just before. So the provider's bucket is met,
// in the outage and afterwards, but not the other reading of its limit: the documentation says so.
func TestPresetInAnOutage(t *testing.T) {
	const burst, perSecond = 1250, 485
	for _, tt := range []struct {
		name        string
		before      time.Duration // for which one process works before the outage
		least, most int64         // in ten seconds; calls are up to 100 ms longer on their way than others
	}{
		{"after an idle time", 0, 5500, burst + perSecond*101/10},
		{"after a burst", 2 * time.Second, burst + perSecond*101/10, 2*burst + perSecond*101/10},
	} {
		for _, nodes := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s, %d", tt.name, nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &outage{Limiter: weir.Must(memstore.New(memstore.Config{})), err: weir.ErrUnavailable}
					fleet := newFleet(t, store, nodes)
					fleet[:1].work(t, tt.before)
					store.end = time.Now().Add(time.Minute)
					fleet.work(t, 2*time.Minute) // half of it afterwards
					calls := fleet.calls()
					if overflows(calls, 500) {
						t.Error("a bucket of 5000 does not admit the calls")
					}
					if most := mostInTenSeconds(calls); most < tt.least || most > tt.most {
						t.Errorf("%d units in ten seconds, want %d to %d", most, tt.least, tt.most)
					}
				})
			})
		}
	}
}

// A fleet is the loads of several processes, each with an account of the preset over a tier of its own.
type fleet []*load

func newFleet(t *testing.T, store weir.Limiter, nodes int) (f fleet) {
	t.Helper()
	for i := range nodes {
		tier := weir.Must(tiered.New(tiered.Config{Store: store, Local: weir.Must(memstore.New(memstore.Config{})), Nodes: nodes}))
		t.Cleanup(tier.Close)
		a := weir.Must(New(tier, Config{Name: "main", Preset: "alchemy-free", Logger: slog.New(slog.DiscardHandler)}))
		f = append(f, &load{random: rand.New(rand.NewPCG(1, uint64(i))), account: a, costs: []int64{10, 26, 60}})
	}
	return f
}

// work has all processes make calls of both classes for a time.
func (f fleet) work(t *testing.T, lasts time.Duration) {
	var all sync.WaitGroup
	for _, l := range f {
		all.Go(func() { l.phase(t, lasts, []string{"realtime", "backfill"}) })
	}
	all.Wait()
}

// calls returns the calls of all processes.
func (f fleet) calls() (list []arrival) {
	for _, l := range f {
		list = append(list, l.calls...)
	}
	return list
}
