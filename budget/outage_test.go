package budget_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// An unsteady is a store that all workers share, and that can be made unavailable.
type unsteady struct {
	*memstore.Table
	down atomic.Bool
}

var errDown = errors.New("connection refused")

func (u *unsteady) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if u.down.Load() {
		return weir.Decision{}, errDown
	}
	return u.Table.Take(ctx, p, key, cost)
}

func (u *unsteady) Do(ctx context.Context, b *weir.Batch) error {
	if u.down.Load() {
		return errDown
	}
	return u.Table.Do(ctx, b)
}

// A worker is a process with an account over a tier of its own.
type worker struct {
	tier    *tiered.Limiter
	account *budget.Account
	granted map[string]*atomic.Int64 // by class, since it was last read
	all     sync.WaitGroup
}

func newWorker(t *testing.T, store weir.Limiter, nodes int) *worker {
	t.Helper()
	w := &worker{granted: map[string]*atomic.Int64{"realtime": {}, "backfill": {}}}
	w.tier = weir.Must(tiered.New(tiered.Config{Store: store, Local: weir.Must(memstore.New(memstore.Config{})), Nodes: nodes}))
	t.Cleanup(w.tier.Close)
	w.account = weir.Must(budget.New(w.tier, budget.Config{
		Name: "main", Logger: slog.New(slog.DiscardHandler),
		Limits: []ruleset.Limit{
			{Limit: weir.PerSecond(500)},
			{Limit: weir.Limit{Name: "month", Rate: 30_000_000, Per: weir.Calendar(weir.Month, nil)}},
		},
	}))
	return w
}

// work makes calls of a class until ctx ends: one after the other, with a pause after each. A call reserves
// 10 units and takes 20 ms; it uses 5 to 15. Every tenth call crashes.
func (w *worker) work(ctx context.Context, class string, pause time.Duration) {
	c := weir.Must(w.account.Controller(class))
	for i := 0; ctx.Err() == nil; i++ {
		r, err := c.Reserve(ctx, time.Second, budget.Units(10))
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no place in the line, or the end
			continue
		}
		w.granted[class].Add(10)
		w.all.Go(func() {
			time.Sleep(20 * time.Millisecond)
			if i%10 == 9 {
				return
			}
			for { // until the store answers; a second later it is over
				if _, err := r.Settle(context.Background(), budget.Units(int64(5+i%11))); err == nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		time.Sleep(pause)
	}
}

// TestStoreOutage: while the store is unavailable for ten seconds each worker stays within its share, and
// afterwards realtime work has its guarantee at once, all units are counted and the ledgers agree with
// the store.
func TestStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 2
		store := &unsteady{Table: weir.Must(memstore.New(memstore.Config{}))}
		ctx, cancel := context.WithCancel(t.Context())
		var all []*worker
		for range workers {
			w := newWorker(t, store, workers)
			all = append(all, w)
			w.all.Go(func() { w.work(ctx, "realtime", 100*time.Millisecond) })
			for range 5 {
				w.all.Go(func() { w.work(ctx, "backfill", 0) })
			}
		}
		// during returns what each worker was granted of a class in a time.
		during := func(d time.Duration, class string) (units []int64) {
			for _, w := range all {
				w.granted[class].Store(0)
			}
			time.Sleep(d)
			for _, w := range all {
				units = append(units, w.granted[class].Load())
			}
			return units
		}
		during(5*time.Second, "realtime")

		store.down.Store(true)
		for _, w := range all {
			w.granted["realtime"].Store(0)
		}
		const share, shareOfRealtime = 500 / workers, 300 / workers
		backfill := during(10*time.Second, "backfill")
		for i, w := range all {
			if w.tier.Stats().OpenBreakers != 1 {
				t.Fatalf("worker %d has not noticed the outage", i)
			}
			realtime := w.granted["realtime"].Load()
			if got := backfill[i] + realtime; got > 10*share+share || got < 10*share*9/10 {
				t.Errorf("worker %d was granted %d units in the outage, want its share, %d in ten seconds and a burst of %d", i, got, 10*share, share)
			}
			if realtime < 10*90 {
				t.Errorf("realtime was granted %d units in the outage, want the 100 per second that it asks for, of %d that it is guaranteed", realtime, shareOfRealtime)
			}
		}

		var held int64
		for _, w := range all {
			held += weir.Must(w.account.Usage(t.Context())).Ledgers["requests"].Open
		}
		store.down.Store(false)
		for i, units := range during(5*time.Second, "realtime") {
			if units < 5*90 {
				t.Errorf("after the outage worker %d was granted %d units of realtime in five seconds, want the 100 per second that it asks for", i, units)
			}
		}
		time.Sleep(30 * time.Second) // backfill has paid what the shares granted
		for i, units := range during(5*time.Second, "backfill") {
			if units == 0 {
				t.Errorf("long after the outage worker %d is granted nothing of backfill", i)
			}
		}
		cancel()
		var sum budget.Ledger
		for _, w := range all {
			w.all.Wait()
			time.Sleep(2 * time.Second) // abandoned reservations expire
			u := weir.Must(w.account.Usage(t.Context()))
			l := u.Ledgers["requests"]
			if l.Granted+l.Overrun != l.Used+l.Returned+l.Expired || l.Open != 0 {
				t.Errorf("the ledger does not close: %+v", l)
			}
			sum.Used, sum.Expired = sum.Used+l.Used, sum.Expired+l.Expired
		}
		u := weir.Must(all[0].account.Usage(t.Context()))
		if more := u.Horizons[1].Used - sum.Used - sum.Expired; more < 0 || more > held { // a share that was charged gives nothing back
			t.Errorf("%d units are used of the month, and the workers have used %d", u.Horizons[1].Used, sum.Used+sum.Expired)
		}
	})
}

// A sluggish store takes its time for each call, as Redis does on a busy machine.
type sluggish struct {
	*memstore.Table
	takes time.Duration
}

func (s *sluggish) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if err := s.sleep(ctx); err != nil {
		return weir.Decision{}, err
	}
	return s.Table.Take(ctx, p, key, cost)
}

func (s *sluggish) Do(ctx context.Context, b *weir.Batch) error {
	if err := s.sleep(ctx); err != nil {
		return err
	}
	return s.Table.Do(ctx, b)
}

func (s *sluggish) sleep(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestSluggishStore: a budget waits for the store for longer than other limits do, since the provider may refuse what was
// decided without it.
func TestSluggishStore(t *testing.T) {
	for _, tt := range []struct {
		takes  time.Duration
		failed bool // the store has not answered in time
	}{{200 * time.Millisecond, false}, {300 * time.Millisecond, true}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, &sluggish{weir.Must(memstore.New(memstore.Config{})), tt.takes}, 2)
			c := weir.Must(w.account.Controller("realtime"))
			if d, err := c.Try(t.Context(), budget.Units(1)); err != nil || !d.Allowed {
				t.Errorf("%v: %+v, %v", tt.takes, d, err)
			}
			r, err := c.Reserve(t.Context(), time.Minute, budget.Units(10))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Settle(t.Context(), budget.Units(5)); err != nil {
				t.Errorf("%v: the settlement: %v", tt.takes, err)
			}
			if failures := w.tier.Stats().Failures; (failures > 0) != tt.failed {
				t.Errorf("%v: %d calls of the store failed", tt.takes, failures)
			}
			other := weir.Must(weir.NewPolicy("other", weir.PerSecond(10)))
			before := w.tier.Stats().Failures
			if d, err := w.tier.Take(t.Context(), other, "k", 1); err != nil || !d.Allowed || w.tier.Stats().Failures != before+1 {
				t.Errorf("%v: a limit that is no budget: %+v, %v", tt.takes, d, err)
			}
		})
	}
}
