package redisbacked

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/keyed"
	"github.com/weirlimit/weir/bench/internal/redisserver"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/store/redisstore"
)

// The goals of budgets: pairs of a reservation and its settlement per second, and the commands of each. A
// little more than two, as an account looks at its utilisation four times a second.
const (
	leastPairs   = 15_000
	mostCommands = 2.05
)

// pairs is the figure of budgets.
const pairs = "pairs/s"

// A budgetCall is callers of an account with so many reservations open.
type budgetCall struct {
	callers int
	open    int
}

func (c budgetCall) name() string {
	return fmt.Sprintf("weir budget, %s, %s open", harness.Goroutines(c.callers), harness.Grouped(c.open))
}

// budgetSurvey is many callers of one account.
func budgetSurvey(s Sizes) harness.Survey {
	calls := []budgetCall{{callers: Goroutines}}
	return harness.Survey{
		Name: "redis, budget, reserve and settle, " + harness.Goroutines(Goroutines),
		Note: fmt.Sprintf("One account with two horizons and three classes; a call reserves 10 units and has used 6. %d rounds of %v each; the medians.", s.Rounds, s.PerRun),
		Figures: []harness.Figure{
			{Name: pairs, AtLeast: leastPairs},
			{Name: "commands each", AtMost: mostCommands},
			{Name: "CPU here", Unit: "µs each"},
			{Name: "CPU of Redis", Unit: "µs each"},
		},
		Subjects: []harness.Subject{{Name: calls[0].name(), Kind: harness.Weir}},
		Together: func(progress func(string)) ([][]float64, int, error) {
			runs, disturbed, err := compareBudgets(calls, s, progress)
			if err != nil {
				return nil, 0, err
			}
			r := runs[0]
			return [][]float64{{
				medianOf(r, run.perSecond),
				medianOf(r, func(r run) float64 { return r.each(float64(r.commands)) }),
				medianOf(r, func(r run) float64 { return r.each(micros(r.here)) }),
				medianOf(r, func(r run) float64 { return r.each(micros(r.there)) }),
			}}, disturbed, nil
		},
	}
}

// heldBudgetSurvey is one caller of an account with few and with many open reservations. There are 10,000 at
// most, the one that is made included.
func heldBudgetSurvey(s Sizes) harness.Survey {
	calls := []budgetCall{{callers: 1, open: 1}, {callers: 1, open: 9999}}
	survey := harness.Survey{
		Name: "redis, budget with open reservations, 1 goroutine",
		Note: fmt.Sprintf("As before, by one caller, who waits for each answer. %d rounds of %v each; the medians.", s.Rounds, s.PerRun),
		Figures: []harness.Figure{
			{Name: pairs, More: true},
			{Name: "times as long as with the fewest", AtMost: mostHeldTimes},
			{Name: "CPU of Redis", Unit: "µs each"},
		},
		Together: func(progress func(string)) (values [][]float64, disturbed int, err error) {
			runs, disturbed, err := compareBudgets(calls, s, progress)
			if err != nil {
				return nil, 0, err
			}
			for _, r := range runs {
				rate := medianOf(r, run.perSecond)
				values = append(values, []float64{
					rate, medianOf(runs[0], run.perSecond) / rate,
					medianOf(r, func(r run) float64 { return r.each(micros(r.there)) }),
				})
			}
			return values, disturbed, nil
		},
	}
	for i, c := range calls {
		survey.Subjects = append(survey.Subjects, harness.Subject{Name: c.name(), Kind: harness.Weir, NoGoal: i == 0})
	}
	return survey
}

func medianOf(runs []run, f func(run) float64) float64 {
	all := make([]float64, len(runs))
	for i, r := range runs {
		all[i] = f(r)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// compareBudgets lets the calls take turns, each with an account of its own, and returns the runs of each.
func compareBudgets(calls []budgetCall, s Sizes, progress func(string)) (runs [][]run, disturbed int, err error) {
	srv, err := redisserver.Start()
	if err != nil {
		return nil, 0, err
	}
	defer srv.Stop()
	var accounts []*budgetAccount
	turns := harness.Turns[run]{Rounds: s.Rounds, Run: func(i int) (run, time.Duration, error) {
		runtime.GC() // the last run's garbage is not this one's cost
		r, err := accounts[i].ask(srv, calls[i].callers, s.PerRun)
		return r, r.disturbed, err
	}}
	for i, c := range calls {
		progress("preparing " + c.name())
		a, err := newBudgetAccount(srv.Addr, fmt.Sprintf("budget%d:", i), c.open)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", c.name(), err)
		}
		defer a.store.Close()
		accounts, turns.Names = append(accounts, a), append(turns.Names, c.name())
	}
	return turns.Take(progress)
}

// budgetAccount is an account over a store of its own.
type budgetAccount struct {
	store   *redisstore.Store
	classes []*budget.Controller
}

// newBudgetAccount opens an account and, of all classes, so many reservations that outlive the survey.
func newBudgetAccount(addr, prefix string, open int) (*budgetAccount, error) {
	store, err := redisstore.New(context.Background(), redisstore.Config{Redis: daemons(addr), Prefix: prefix, Timeout: patience})
	if err != nil {
		return nil, err
	}
	b := &budgetAccount{store: store}
	a, err := budget.New(store, keyed.Budget())
	if err != nil {
		return nil, err
	}
	for _, class := range a.Classes() {
		c, err := a.Controller(class)
		if err != nil {
			return nil, err
		}
		b.classes = append(b.classes, c)
	}
	for i := range open {
		if _, err := b.classes[i%len(b.classes)].Reserve(context.Background(), time.Hour, budget.Units(10)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// ask lets so many callers reserve and settle for d.
func (b *budgetAccount) ask(s *redisserver.Server, callers int, d time.Duration) (whole run, err error) {
	l := limiter{commands: func() int64 { return b.store.Stats().Commands }}
	before, err := takeStock(s, l)
	if err != nil {
		return run{}, err
	}
	end := harness.Watch()
	began := time.Now()
	counts, errs := make([]int, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for time.Since(began) < d && errs[i] == nil {
				errs[i] = b.pair(i)
				counts[i]++
			}
		})
	}
	all.Wait()
	whole.elapsed = time.Since(began)
	for i := range callers {
		if errs[i] != nil {
			return run{}, errs[i]
		}
		whole.answered += counts[i]
	}
	after, err := takeStock(s, l)
	whole.commands, whole.here, whole.there = after.commands-before.commands, after.here-before.here, after.there-before.there
	whole.disturbed = end(whole.there)
	return whole, err
}

// pair is what a caller does for one call to the provider.
func (b *budgetAccount) pair(caller int) error {
	ctx := context.Background()
	r, err := b.classes[caller%len(b.classes)].Reserve(ctx, time.Minute, budget.Units(10))
	if err != nil {
		return err
	}
	out, err := r.Settle(ctx, budget.Units(6))
	if err == nil && out.Refunded != 4 {
		err = fmt.Errorf("6 of 10 units settled: %+v", out)
	}
	return err
}
