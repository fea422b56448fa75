package faults

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/faults/internal/report"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/tiered"
)

// The budget of F29: so much per second, shared by two workers and two classes.
const (
	budgetRate = 500
	callCost   = 10
)

// budgetWorker is an account over the parts of a daemon, and what makes calls with it.
type budgetWorker struct {
	tier    *tiered.Limiter
	account *budget.Account
	units   atomic.Int64 // granted
	urgent  atomic.Int64 // granted to realtime work since this was last set to 0
	all     sync.WaitGroup
}

func newBudgetWorker(tr *trial, addr string) *budgetWorker {
	tr.Helper()
	w := &budgetWorker{tier: newNode(tr.T, addr, nodeConfig{clock: clockAhead(0)}).limiter}
	var err error
	w.account, err = budget.New(w.tier, budget.Config{
		Name: "main", Logger: slog.New(slog.DiscardHandler),
		Limits: []ruleset.Limit{{Limit: weir.PerSecond(budgetRate)}, budget.Prepaid("", 1_000_000_000)},
	})
	if err != nil {
		tr.Fatal(err)
	}
	return w
}

// call makes one call after the other until ctx ends: each reserves, works for 20 ms and settles what it
// has used. Every tenth crashes.
func (w *budgetWorker) call(ctx context.Context, class string, pause time.Duration) {
	c := weir.Must(w.account.Controller(class))
	for i := 0; ctx.Err() == nil; i++ {
		res, err := c.Reserve(ctx, time.Second, budget.Units(callCost))
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		w.units.Add(callCost)
		if class == "realtime" {
			w.urgent.Add(callCost)
		}
		if i%10 < 9 {
			w.all.Go(func() { settle(res, int64(i%callCost)) })
		}
		time.Sleep(pause)
	}
}

// settle ends a reservation, again and again until that is confirmed or too late.
func settle(res *budget.Reservation, used int64) {
	time.Sleep(20 * time.Millisecond)
	for {
		if _, err := res.Settle(context.Background(), budget.Units(used)); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// awaitWorkers polls until all workers are so.
func awaitWorkers(tr *trial, what string, all []*budgetWorker, is func(*budgetWorker) bool) {
	tr.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n := 0
		for _, w := range all {
			if is(w) {
				n++
			}
		}
		if n == len(all) {
			return
		}
		if time.Now().After(end) {
			tr.Fatalf("%d of %d workers are not %s after %v", len(all)-n, len(all), what, patience)
		}
	}
}

// F29: workers share a budget, and Redis does not answer. Each goes on with its share, and when Redis
// answers again they share as before, with everything counted that can be.
func TestBudgetOutage(t *testing.T) {
	tr := try(t, "F29", "Redis stopped (SIGSTOP) for 10 s under two workers that share a budget of 500 per second (accounts in one process), "+
		"consistency exact, reservations of which a tenth is never settled",
		"units of each worker, less what it gave back, ≤ its share: half of the rate, and half of the burst; realtime work goes on afterwards; all ledgers close, and agree with Redis but for unknown outcomes")
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const workers = 2
	var all []*budgetWorker
	for range workers {
		all = append(all, newBudgetWorker(tr, server.Addr()))
	}
	awaitWorkers(tr, "counted", all, func(w *budgetWorker) bool { return w.tier.Stats().Nodes == workers })
	const callers = 4
	for _, w := range all {
		w.all.Go(func() { w.call(ctx, "realtime", 100*time.Millisecond) })
		for range callers - 1 {
			w.all.Go(func() { w.call(ctx, "backfill", 0) })
		}
	}
	awaitWorkers(tr, "served by Redis", all, func(w *budgetWorker) bool { return w.units.Load() > budgetRate/workers })

	server.Pause()
	began := time.Now()
	before := make([]int64, workers)
	for i, w := range all {
		before[i] = kept(ledgerOf(tr, w))
	}
	awaitWorkers(tr, "aware of the outage", all, func(w *budgetWorker) bool { return w.tier.Stats().OpenBreakers == 1 })
	aware := make(map[*budgetWorker]int64)
	for _, w := range all {
		aware[w] = w.units.Load()
	}
	awaitWorkers(tr, "going on by themselves", all, func(w *budgetWorker) bool { return w.units.Load() > aware[w]+callers*callCost })
	time.Sleep(time.Until(began.Add(pick(10*time.Second, 1500*time.Millisecond))))
	for i, w := range all {
		units, lasted := kept(ledgerOf(tr, w))-before[i], time.Since(began)
		share := float64(budgetRate)/workers*lasted.Seconds() + budgetRate/workers
		tr.atMost(fmt.Sprintf("units of worker %d", i), float64(units), share+callers*callCost, "its share, and replies in flight")
		tr.usesHalf(fmt.Sprintf("units of worker %d", i), float64(units), float64(budgetRate)/workers*lasted.Seconds())
	}
	var held int64
	for _, w := range all {
		held += ledgerOf(tr, w).Open
		w.urgent.Store(0)
	}

	server.Resume()
	back := time.Now()
	awaitWorkers(tr, "served by Redis again", all, func(w *budgetWorker) bool { return w.tier.Stats().OpenBreakers == 0 })
	tr.note("back after", "%s", brief(time.Since(back)))
	awaitWorkers(tr, "granted realtime work", all, func(w *budgetWorker) bool { return w.urgent.Load() >= 20*callCost })
	tr.within("two seconds' realtime work after", time.Since(back), 3*time.Second)
	cancel()
	judgeLedgers(tr, all, held)
}

// usesHalf judges, in the long form, that half of a share was used: a worker that has no processor uses less.
func (tr *trial) usesHalf(name string, units, share float64) {
	tr.Helper()
	tr.addTime(report.Figure{Name: name, Value: number(units), Bound: "≥ " + number(share/2) + " = half of its share", Met: units >= share/2})
}

// judgeLedgers compares what the workers have counted with what Redis has.
func judgeLedgers(tr *trial, all []*budgetWorker, held int64) {
	tr.Helper()
	for _, w := range all {
		w.all.Wait()
	}
	awaitWorkers(tr, "without open reservations and units to be charged", all, func(w *budgetWorker) bool {
		return ledgerOf(tr, w).Open == 0 && w.tier.Stats().Unsynced == 0
	})
	var counted, unknown int64
	unclosed := 0
	for _, w := range all {
		l, s := ledgerOf(tr, w), w.tier.Stats()
		if l.Granted+l.Overrun != l.Used+l.Returned+l.Expired {
			unclosed++
		}
		counted += l.Used + l.Expired
		unknown += s.UnknownUnits + s.Unknown*callCost
	}
	tr.none("ledgers that do not close", unclosed)
	used := weir.Must(all[0].account.Usage(tr.Context())).Horizons[1].Used
	tr.note("units counted by the workers", "%d", counted)
	tr.atMost("charged in Redis beyond them", float64(used-counted), float64(unknown+held), "unknown outcomes, and what was held when Redis answered again")
	tr.atMost("counted, and not charged in Redis", float64(counted-used), float64(unknown), "unknown outcomes")
}

// kept returns what was granted and not given back.
func kept(l budget.Ledger) int64 { return l.Granted + l.Overrun - l.Returned }

func ledgerOf(tr *trial, w *budgetWorker) budget.Ledger {
	tr.Helper()
	u, err := w.account.Usage(tr.Context())
	if err != nil {
		tr.Fatal(err)
	}
	return u.Ledgers[ruleset.Requests]
}
