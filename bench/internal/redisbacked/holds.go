package redisbacked

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/redisserver"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/store/redisstore"
)

// mostHeldTimes is how many times as long a call on a key with many open reservations may
// take as the same call on one with the fewest.
const mostHeldTimes = 3

// A heldCall is a call on a key with so many open reservations.
type heldCall struct {
	open    int
	reserve bool // reserve and settle, not take
	like    int  // the place of the call with the fewest
}

// heldCalls are what is compared. A key has 10,000 reservations at most, the one that is made
// included.
var heldCalls = []heldCall{
	{open: 0, like: 0},
	{open: 1000, like: 0},
	{open: 1, reserve: true, like: 2},
	{open: 1000, reserve: true, like: 2},
	{open: 9999, reserve: true, like: 2},
}

func (c heldCall) name() string {
	what := weirName
	if c.reserve {
		what = "weir Reserve and Commit"
	}
	return fmt.Sprintf("%s, %s open", what, harness.Grouped(c.open))
}

// heldSurvey compares calls on keys with few and with many open reservations.
func heldSurvey(s Sizes) harness.Survey {
	survey := harness.Survey{
		Name: "redis, 1 key with open reservations, 1 goroutine",
		Note: fmt.Sprintf("One caller, who waits for each answer. %d rounds of %v each; the medians.", s.Rounds, s.PerRun),
		Figures: []harness.Figure{
			{Name: Decisions, More: true},
			{Name: "times as long as with the fewest", AtMost: mostHeldTimes},
			{Name: "CPU of Redis", Unit: "µs each"},
		},
		Together: func(progress func(string)) ([][]float64, int, error) { return compareHeld(s, progress) },
	}
	for i, c := range heldCalls {
		survey.Subjects = append(survey.Subjects, harness.Subject{Name: c.name(), Kind: harness.Weir, NoGoal: c.like == i})
	}
	return survey
}

// compareHeld lets the calls take turns and returns the values of figures for each.
func compareHeld(s Sizes, progress func(string)) (values [][]float64, disturbed int, err error) {
	srv, err := redisserver.Start()
	if err != nil {
		return nil, 0, err
	}
	defer srv.Stop()
	store, err := redisstore.New(context.Background(), redisstore.Config{Redis: daemons(srv.Addr), Timeout: patience})
	if err != nil {
		return nil, 0, err
	}
	defer store.Close()
	p, err := weir.NewPolicy("held", plenty.limit())
	if err != nil {
		return nil, 0, err
	}
	turns := harness.Turns[run]{Rounds: s.Rounds, Run: func(i int) (run, time.Duration, error) {
		r, err := heldCalls[i].ask(srv, store, p, s.PerRun)
		return r, r.disturbed, err
	}}
	for _, c := range heldCalls {
		turns.Names = append(turns.Names, c.name())
		if err := c.prepare(store, p); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", c.name(), err)
		}
	}
	runs, disturbed, err := turns.Take(progress)
	if err != nil {
		return nil, 0, err
	}
	return heldValues(runs), disturbed, nil
}

func heldValues(runs [][]run) (values [][]float64) {
	median := func(runs []run, f func(run) float64) float64 {
		all := make([]float64, len(runs))
		for i, r := range runs {
			all[i] = f(r)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for i, c := range heldCalls {
		values = append(values, []float64{
			median(runs[i], run.perSecond),
			median(runs[c.like], run.perSecond) / median(runs[i], run.perSecond),
			median(runs[i], func(r run) float64 { return r.each(float64(r.there) / float64(time.Microsecond)) }),
		})
	}
	return values
}

// prepare opens reservations that outlive the survey.
func (c heldCall) prepare(store *redisstore.Store, p *weir.Policy) error {
	for n := c.open; n > 0; {
		b := weir.Batch{Op: weir.ReserveAll, TTL: compiled.MaxTTL}
		for range min(n, 500) {
			b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: c.name(), Cost: 1})
		}
		if err := store.Do(context.Background(), &b); err != nil {
			return err
		}
		if !b.Allowed() {
			return fmt.Errorf("refused: %v", b.Decisions[0])
		}
		n -= len(b.Charges)
	}
	return nil
}

// ask calls in a loop for d.
func (c heldCall) ask(s *redisserver.Server, store *redisstore.Store, p *weir.Policy, d time.Duration) (r run, err error) {
	before, err := s.CPUTime()
	if err != nil {
		return r, err
	}
	end := harness.Watch()
	began := time.Now()
	for r.answered == 0 || r.elapsed < d {
		if err := c.once(store, p); err != nil {
			return r, err
		}
		r.answered++
		r.elapsed = time.Since(began)
	}
	after, err := s.CPUTime()
	if err != nil {
		return r, err
	}
	r.there = after - before
	r.disturbed = end(r.there)
	return r, nil
}

func (c heldCall) once(store *redisstore.Store, p *weir.Policy) error {
	ctx := context.Background()
	if !c.reserve {
		d, err := store.Take(ctx, p, c.name(), 1)
		if err == nil && !d.Allowed {
			err = fmt.Errorf("refused: %v", d)
		}
		return err
	}
	res, err := weir.Reserve(ctx, store, time.Minute, weir.Charge{Policy: p, Key: c.name(), Cost: 2})
	if err != nil {
		return err
	}
	_, err = res.Commit(ctx, 1)
	return err
}
