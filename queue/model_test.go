package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
)

// A script is what is done to a Queue and to a Single at the same instants. The
// Single, which plans turns on its ledger, is the model: who waits, through
// whichever, is granted at the same instants and with the same units left.
type script struct {
	limits [][]weir.Limit // the first is there at the start, the others are set
	holds  bool           // reservations are made
	along  bool           // every other waiter of the Queue waits for a charge to another key as well
	steps  []scriptStep
}

type scriptStep struct {
	pass time.Duration // before the step
	do   string
	cost int64
	ttl  time.Duration // of a reservation; for wait the deadline, if not 0
	nr   int           // which waiter to cancel, reservation to settle, limits to set
}

func drawScript(t *rapid.T, holds bool) script {
	s := script{holds: holds, along: rapid.Bool().Draw(t, "along")}
	var most int64
	for range rapid.IntRange(1, 3).Draw(t, "sets") {
		l := drawQueueLimits(t)
		s.limits = append(s.limits, l)
		for _, l := range l {
			most = max(most, l.Rate, l.Burst)
		}
	}
	ops := []string{"wait", "wait", "wait", "wait", "take", "take", "peek", "cancel", "reset"}
	if holds {
		ops = append(ops, "reserve", "reserve", "settle", "settle")
	}
	deadlines := s.oneBucket() && s.wholeTurns() && !holds && rapid.Bool().Draw(t, "deadlines") // else a Queue may only guess who is too late
	if !deadlines {
		ops = append(ops, "set")
	}
	for range rapid.IntRange(5, 60).Draw(t, "steps") {
		step := scriptStep{
			pass: time.Duration(rapid.Int64Range(0, 300).Draw(t, "pass")) * 10 * time.Millisecond,
			do:   rapid.SampledFrom(ops).Draw(t, "do"),
			cost: rapid.Int64Range(1, min(most, 15)).Draw(t, "cost"),
			nr:   rapid.IntRange(0, 20).Draw(t, "nr"),
		}
		switch {
		case step.do == "reserve" || step.do == "wait" && deadlines && rapid.Bool().Draw(t, "deadlines"):
			step.ttl = time.Duration(rapid.Int64Range(1, 20_000).Draw(t, "ttl"))*time.Millisecond + 1
		case step.do == "settle":
			step.cost = rapid.Int64Range(0, step.cost).Draw(t, "used")
		}
		s.steps = append(s.steps, step)
	}
	return s
}

// oneBucket says whether there is one limit for all of the script, a bucket.
func (s script) oneBucket() bool {
	return len(s.limits) == 1 && len(s.limits[0]) == 1 && s.limits[0][0].Algorithm == weir.Auto
}

// wholeTurns says whether its turns come at whole nanoseconds; else each is
// rounded up, and a Queue does not foresee that.
func (s script) wholeTurns() bool { return int64(time.Second)%s.limits[0][0].Rate == 0 }

func drawQueueLimits(t *rapid.T) []weir.Limit {
	bucket := func(name string) weir.Limit {
		return weir.Limit{
			Name: name, Rate: rapid.SampledFrom([]int64{1, 2, 3, 7, 10}).Draw(t, "rate"),
			Per: weir.Every(time.Second), Burst: rapid.Int64Range(1, 12).Draw(t, "burst"),
		}
	}
	window := weir.Limit{
		Rate: rapid.Int64Range(1, 12).Draw(t, "units"), Per: weir.Every(time.Second),
		Algorithm: rapid.SampledFrom([]weir.Algorithm{weir.FixedWindow, weir.AnchoredWindow, weir.SlidingWindow, weir.SlidingLog, weir.DualWindow}).Draw(t, "algorithm"),
	}
	return rapid.SampledFrom([][]weir.Limit{
		{bucket("")}, {bucket("")}, {bucket(""), bucket("second")}, {window}, {window, bucket("second")},
	}).Draw(t, "limits")
}

// A side is what a script is run on.
type side struct {
	wait    func(ctx context.Context, cost int64) (weir.Decision, error)
	take    func(cost int64) weir.Decision
	peek    func(cost int64) weir.Decision
	reserve func(cost int64, ttl time.Duration) (settle func(used int64) error, allowed bool)
	reset   func()
	set     func(limits []weir.Limit) error
}

func queueSide(t *testing.T, limits []weir.Limit, along bool) (side, *queue.Queue) {
	ctx := t.Context()
	q, p := newQueue(t, newStore(t), queue.Config{}), newPolicy(t, "p", limits...)
	ample := newPolicy(t, "ample", weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second)})
	var waits atomic.Int64
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	decided := func(d weir.Decision, err error) weir.Decision { must(err); return d }
	return side{
		wait: func(ctx context.Context, cost int64) (weir.Decision, error) {
			if n := waits.Add(1); !along || n%2 == 0 {
				return asDecision(q.Wait(ctx, p, "k", cost))
			}
			b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{charge(ample, "another", 1), charge(p, "k", cost)}}
			err := q.WaitAll(ctx, &b)
			return asDecision(b.Decisions[1], err)
		},
		take: func(cost int64) weir.Decision { return decided(q.Take(ctx, p, "k", cost)) },
		peek: func(cost int64) weir.Decision { return decided(weir.Peek(ctx, q, p, "k", cost)) },
		reserve: func(cost int64, ttl time.Duration) (func(int64) error, bool) {
			r, err := weir.Reserve(ctx, q, ttl, weir.Charge{Policy: p, Key: "k", Cost: cost})
			must(err)
			return func(used int64) error { _, err := r.Commit(ctx, used); return err }, r.Decision.Allowed
		},
		reset: func() { must(weir.Reset(ctx, q, p, "k")) },
		set: func(limits []weir.Limit) error {
			next := newPolicy(t, "p", limits...)
			if next.Same(p) {
				return nil
			}
			err := q.Set(ctx, p, next)
			if err == nil {
				p = next
			}
			return err
		},
	}, q
}

func singleSide(t *testing.T, limits []weir.Limit) side {
	s, err := weir.New(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return side{
		take: s.Take, peek: s.Peek, reset: s.Reset,
		wait: func(ctx context.Context, cost int64) (weir.Decision, error) { return asDecision(s.WaitN(ctx, cost)) },
		reserve: func(cost int64, ttl time.Duration) (func(int64) error, bool) {
			h, d := s.Reserve(cost, ttl)
			return func(used int64) error { h.Commit(used); return nil }, d.Allowed
		},
		set: func(limits []weir.Limit) error { return s.Set(limits...) },
	}
}

// A run is a side with those who wait in it.
type run struct {
	side
	start   time.Time
	cancels []context.CancelFunc
	settles []func(int64) error

	mu   sync.Mutex // guards the field below
	outs []string   // by waiter; "" while it waits
	left []int64    // by waiter: what it waits for, 0 when it does no more
	wg   sync.WaitGroup
}

// step executes one step and returns its result as text, and RetryAfter if it has
// one.
func (r *run) step(s script, step scriptStep) (result string, retry time.Duration) {
	switch step.do {
	case "wait":
		r.startWait(step)
	case "cancel":
		if step.nr < len(r.cancels) {
			r.cancels[step.nr]()
		}
	case "take":
		return tell(r.take(step.cost))
	case "peek":
		return tell(r.peek(step.cost))
	case "reset":
		r.reset()
	case "set":
		return fmt.Sprint(r.set(s.limits[step.nr%len(s.limits)]) == nil), 0
	case "reserve":
		settle, ok := r.reserve(step.cost, step.ttl)
		r.settles = append(r.settles, settle)
		return fmt.Sprint(ok), 0
	case "settle":
		if step.nr < len(r.settles) {
			return fmt.Sprint(r.settles[step.nr](step.cost)), 0
		}
	}
	return "", 0
}

func tell(d weir.Decision) (string, time.Duration) {
	return fmt.Sprint(d.Allowed, d.Reason), d.RetryAfter
}

func (r *run) startWait(step scriptStep) {
	ctx, cancel := context.WithCancel(context.Background())
	if step.ttl != 0 {
		ctx, cancel = context.WithTimeout(context.Background(), step.ttl)
	}
	r.cancels = append(r.cancels, cancel)
	r.mu.Lock()
	nr := len(r.outs)
	r.outs, r.left = append(r.outs, ""), append(r.left, step.cost)
	r.mu.Unlock()
	r.wg.Go(func() {
		d, err := r.wait(ctx, step.cost)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !d.Allowed {
			d.Remaining = 0
		}
		r.outs[nr] = fmt.Sprintf("%v at %v, %d left, %v", d.Reason, time.Since(r.start), d.Remaining, err)
		r.left[nr] = 0
	})
}

// agrees says whether a Queue keeps its promise of RetryAfter, which the model
// knows, to someone who wants cost units behind those who wait for ahead.
func (s script) agrees(got, want time.Duration, ahead, cost int64) bool {
	switch {
	case s.oneBucket() && (s.holds || !s.wholeTurns() && ahead+cost > s.limits[0][0].Burst):
		return got <= want // at worst it is refused again
	case s.oneBucket():
		return got == want
	case s.holds || len(s.limits) > 1:
		return true
	}
	for _, l := range s.limits[0] {
		if l.Burst == 0 {
			l.Burst = l.Rate
		}
		if ahead+cost > l.Burst || l.Algorithm == weir.SlidingWindow {
			return true
		}
	}
	return got == want
}

// ahead returns how many units those wait for who wait.
func (r *run) ahead() (units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cost := range r.left {
		units += cost
	}
	return units
}

// play runs the script on both sides and returns where they differ.
func (s script) play(t *testing.T) (diff string) {
	synctest.Test(t, func(t *testing.T) {
		qs, q := queueSide(t, s.limits[0], s.along)
		a, b := &run{side: qs, start: time.Now()}, &run{side: singleSide(t, s.limits[0]), start: time.Now()}
		for i, step := range s.steps {
			time.Sleep(step.pass)
			synctest.Wait()
			ahead := a.ahead()
			got, retry := a.step(s, step)
			want, wantRetry := b.step(s, step)
			synctest.Wait()
			if got != want || !s.agrees(retry, wantRetry, ahead, step.cost) {
				diff = fmt.Sprintf("step %d at %v, %+v: %s after %v, want %s after %v", i, time.Since(a.start), step, got, retry, want, wantRetry)
				break
			}
		}
		if diff != "" {
			for _, cancel := range slices.Concat(a.cancels, b.cancels) {
				cancel()
			}
		}
		a.wg.Wait()
		b.wg.Wait()
		for _, cancel := range slices.Concat(a.cancels, b.cancels) {
			cancel()
		}
		if diff == "" && !slices.Equal(a.outs, b.outs) {
			diff = fmt.Sprintf("waiters: %q, want %q", a.outs, b.outs)
		}
		if q.Waiting() != 0 {
			diff += fmt.Sprintf("; %d still wait", q.Waiting())
		}
	})
	return diff
}

func TestQueueEqualsSingle(t *testing.T) {
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprint("holds ", holds), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := drawScript(rt, holds)
				if diff := s.play(t); diff != "" {
					rt.Fatalf("%v: %s", s.limits, diff)
				}
			})
		})
	}
}

// 64 goroutines wait, leave, take, reserve, settle and set, on three keys. What
// their results say was taken is what was taken, and not more than the limits allow.
func TestQueueRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := weir.Limit{Rate: 500, Per: weir.Every(time.Second), Burst: 20}
		total := weir.Limit{Name: "total", Rate: 1_000_000, Per: weir.Calendar(weir.Year, nil)}
		slower := bucket
		slower.Rate = 300
		policies := []*weir.Policy{newPolicy(t, "p", bucket, total), newPolicy(t, "p", slower, total)}
		store := newStore(t)
		q := newQueue(t, &relay{Limiter: store}, queue.Config{MaxPerKey: 16, MaxTotal: 40})
		r := &racers{q: q, policies: policies}
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() { r.race(t, rand.New(rand.NewPCG(1, uint64(i)))) })
		}
		wg.Wait()
		checkEmpty(t, q)

		count := newPolicy(t, "p", total)
		for _, p := range policies {
			set(t, q, p, count)
		}
		for i := range r.units {
			d, err := weir.Peek(t.Context(), q, count, fmt.Sprint(i), 1)
			if taken := r.units[i].Load(); err != nil || total.Rate-d.Remaining != taken {
				t.Errorf("key %d: callers were granted %d, the store says %d; %v", i, taken, total.Rate-d.Remaining, err)
			}
			if taken, most := r.units[i].Load(), bucket.Burst+int64(time.Since(start))*bucket.Rate/int64(time.Second); taken > most {
				t.Errorf("key %d: %d units within %v, at most %d may be", i, taken, time.Since(start), most)
			}
		}
		t.Logf("%d granted, %d refused, %d left", r.granted.Load(), r.refused.Load(), r.gone.Load())
		if r.granted.Load() == 0 || r.refused.Load() == 0 || r.gone.Load() == 0 {
			t.Error("the race does not meet every outcome")
		}
	})
}

type racers struct {
	q                      *queue.Queue
	policies               []*weir.Policy
	units                  [3]atomic.Int64 // taken, by key
	granted, refused, gone atomic.Int64    // who waited
}

func (r *racers) race(t *testing.T, rnd *rand.Rand) {
	for range 40 {
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		p, key, cost := r.policies[rnd.IntN(2)], rnd.IntN(len(r.units)), 1+rnd.Int64N(5)
		switch n := rnd.IntN(20); {
		case n < 12:
			r.wait(t, rnd, p, key, cost)
		case n < 16:
			if d, err := r.q.Take(t.Context(), p, fmt.Sprint(key), cost); err != nil {
				t.Error(err)
			} else if d.Allowed {
				r.units[key].Add(cost)
			}
		case n < 18:
			r.reserve(t, rnd, p, key, cost)
		case n < 19:
			r.reserveTwo(t, rnd, p, key, cost)
		default:
			if err := r.q.Set(t.Context(), p, r.policies[rnd.IntN(2)]); err != nil {
				t.Error(err)
			}
		}
	}
}

func (r *racers) wait(t *testing.T, rnd *rand.Rand, p *weir.Policy, key int, cost int64) {
	ctx, cancel := context.WithCancel(t.Context())
	switch stay := time.Duration(rnd.IntN(60)) * time.Millisecond; rnd.IntN(3) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, stay)
	case 1:
		defer time.AfterFunc(stay, cancel).Stop()
	}
	defer cancel()
	switch d, err := asDecision(r.q.Wait(ctx, p, fmt.Sprint(key), cost)); {
	case d.Allowed:
		r.units[key].Add(cost)
		r.granted.Add(1)
	case err == nil:
		r.refused.Add(1)
	case ctx.Err() != nil:
		r.gone.Add(1)
	default:
		t.Error(err)
	}
}

func (r *racers) reserve(t *testing.T, rnd *rand.Rand, p *weir.Policy, key int, cost int64) {
	res, err := weir.Reserve(t.Context(), r.q, time.Second, weir.Charge{Policy: p, Key: fmt.Sprint(key), Cost: cost})
	if err != nil {
		t.Error(err)
		return
	}
	time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
	used := rnd.Int64N(cost + 1)
	if _, err := res.Commit(t.Context(), used); err != nil {
		t.Error(err)
	}
	if res.Decision.Allowed {
		r.units[key].Add(used)
	}
}

// reserveTwo waits for units of two keys.
func (r *racers) reserveTwo(t *testing.T, rnd *rand.Rand, p *weir.Policy, key int, cost int64) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(60))*time.Millisecond)
	defer cancel()
	other := (key + 1 + rnd.IntN(len(r.units)-1)) % len(r.units)
	res, err := r.q.Reserve(ctx, time.Second, charge(p, fmt.Sprint(key), cost), charge(p, fmt.Sprint(other), 1))
	if _, err := asDecision(weir.Decision{}, err); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	if err != nil {
		return
	}
	time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
	if _, err := res.Commit(t.Context(), cost-1, 1); err != nil {
		t.Error(err)
	}
	r.units[key].Add(cost - 1)
	r.units[other].Add(1)
}
