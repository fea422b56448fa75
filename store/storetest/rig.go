package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// A rig is a store under test, its clock, and short words for what tests do with
// it. A word that meets an error where none may be ends the test; one that
// meets a wrong answer reports it and goes on.
type rig struct {
	t       rapid.TB // what reports: tb or, in the random test, a *rapid.T
	tb      testing.TB
	store   *Store
	limiter weir.Limiter
	clock   *Clock
}

func (s *Store) open(tb testing.TB, o Options) *rig {
	o.Clock = newClock(s.Resolution)
	return &rig{t: tb, tb: tb, store: s, limiter: s.Open(tb, o), clock: o.Clock}
}

// another returns a rig with a store and a clock of its own.
func (r *rig) another() *rig {
	one := r.store.open(r.tb, Options{})
	one.t = r.t
	return one
}

func background() context.Context { return context.Background() }

// The limits that most tests use: one unit of perHour(10) takes six minutes.

func perHour(rate int64) weir.Limit { return weir.Limit{Rate: rate, Per: weir.Every(time.Hour)} }

func perMinute(rate int64) weir.Limit { return weir.Limit{Rate: rate, Per: weir.Every(time.Minute)} }
func slots(n int64) weir.Limit        { return weir.Limit{Rate: n, Algorithm: weir.Concurrency} }

func using(a weir.Algorithm, l weir.Limit) weir.Limit {
	l.Algorithm = a
	return l
}

func named(name string, l weir.Limit) weir.Limit {
	l.Name = name
	return l
}

func charge(p *weir.Policy, key string, cost int64) weir.Charge {
	return weir.Charge{Policy: p, Key: key, Cost: cost}
}

func (r *rig) policy(name string, limits ...weir.Limit) *weir.Policy {
	r.t.Helper()
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		r.t.Fatalf("storetest: %v", err)
	}
	return p
}

// with returns p's override with other limits.
func (r *rig) with(p *weir.Policy, limits ...weir.Limit) *weir.Policy {
	r.t.Helper()
	q, err := p.With(limits...)
	if err != nil {
		r.t.Fatalf("storetest: %v", err)
	}
	return q
}

// again returns an equal policy that is another object, as another process has.
func (r *rig) again(p *weir.Policy) *weir.Policy { return r.with(p, p.Limits()...) }

func (r *rig) take(p *weir.Policy, key string, cost int64) weir.Decision {
	r.t.Helper()
	d, err := r.limiter.Take(background(), p, key, cost)
	if err != nil {
		r.t.Fatalf("%s: error %v", callText("take", charge(p, key, cost)), err)
	}
	return d
}

func (r *rig) peek(p *weir.Policy, key string, cost int64) weir.Decision {
	r.t.Helper()
	return r.do(weir.PeekEach, charge(p, key, cost)).Decisions[0]
}

func (r *rig) wantTake(p *weir.Policy, key string, cost int64, want weir.Decision) {
	r.t.Helper()
	r.want(callText("take", charge(p, key, cost)), r.take(p, key, cost), want)
}

func (r *rig) wantPeek(p *weir.Policy, key string, cost int64, want weir.Decision) {
	r.t.Helper()
	r.want(callText("peek", charge(p, key, cost)), r.peek(p, key, cost), want)
}

// wantRefused takes, and must be refused, however.
func (r *rig) wantRefused(when string, p *weir.Policy, key string, cost int64) {
	r.t.Helper()
	if d := r.take(p, key, cost); d.Allowed {
		r.t.Errorf("%s, %s: got %s, want a refusal", when, callText("take", charge(p, key, cost)), show(d))
	}
}

// wantAllowed takes, and must be admitted.
func (r *rig) wantAllowed(when string, p *weir.Policy, key string, cost int64) {
	r.t.Helper()
	if d := r.take(p, key, cost); !d.Allowed {
		r.t.Errorf("%s, %s: got %s, want it admitted", when, callText("take", charge(p, key, cost)), show(d))
	}
}

// want compares a decision with the exact one, and says whether it was right. Held
// is left out: it has tests of its own, and the random test compares it.
func (r *rig) want(what string, got, exact weir.Decision) bool {
	r.t.Helper()
	want := r.store.asReported(exact)
	got.Held, want.Held = false, false
	if got != want {
		r.t.Errorf("%s:\n got %s\nwant %s", what, show(got), show(want))
	}
	return got == want
}

// wantLeft checks how many units a key has left, and of how many.
func (r *rig) wantLeft(when string, p *weir.Policy, key string, left, limit int64) {
	r.t.Helper()
	if d := r.peek(p, key, 0); d.Remaining != left || d.Limit != limit {
		r.t.Errorf("%s, key %q under %s: got %d of %d left, want %d of %d\n(%s)", when, key, describe(p), d.Remaining, d.Limit, left, limit, show(d))
	}
}

// run carries out a batch.
func (r *rig) run(b *weir.Batch) *weir.Batch {
	r.t.Helper()
	if err := r.limiter.Do(background(), b); err != nil {
		r.t.Fatalf("%s: error %v", batchText(b), err)
	}
	return b
}

func (r *rig) do(op weir.Op, charges ...weir.Charge) *weir.Batch {
	r.t.Helper()
	return r.run(&weir.Batch{Op: op, Charges: charges})
}

// hold reserves for ttl and must be admitted.
func (r *rig) hold(ttl time.Duration, charges ...weir.Charge) *weir.Reservation {
	r.t.Helper()
	res, err := weir.Reserve(background(), r.limiter, ttl, charges...)
	b := weir.Batch{Op: weir.ReserveAll, TTL: ttl, Charges: charges}
	if err != nil {
		r.t.Fatalf("%s: error %v", batchText(&b), err)
	}
	if !res.Decision.Allowed {
		r.t.Fatalf("%s: got %s, want it admitted", batchText(&b), show(res.Decision))
	}
	return res
}

// wantSettled commits a reservation, as reserved if used is missing.
func (r *rig) wantSettled(res *weir.Reservation, want weir.Settled, used ...int64) {
	r.t.Helper()
	if got, err := res.Commit(background(), used...); err != nil || total(got) != want {
		r.t.Errorf("commit %v: got %+v, error %v, want %+v", used, got, err, want)
	}
}

func (r *rig) set(old, new *weir.Policy) {
	r.t.Helper()
	if err := r.limiter.Set(background(), old, new); err != nil {
		r.t.Fatalf("set %s to %s: error %v", describe(old), describe(new), err)
	}
}

func (r *rig) reset(p *weir.Policy, key string) {
	r.t.Helper()
	r.do(weir.ResetEach, charge(p, key, 0))
}

// res is the smallest step of the store's time.
func (r *rig) res() time.Duration { return r.store.Resolution }

// everyAlgorithm returns a policy for each algorithm and for a few of them
// together. All have a capacity of five, but for none to be reserved only.
func (r *rig) everyAlgorithm() []*weir.Policy {
	r.t.Helper()
	five := perMinute(5)
	return []*weir.Policy{
		r.policy("gcra", five),
		r.policy("gcra-burst", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 5}),
		r.policy("bucket", weir.Limit{Rate: 7, Per: weir.Every(time.Minute), Burst: 5, Algorithm: weir.TokenBucket}),
		r.policy("fixed", using(weir.FixedWindow, five)),
		r.policy("day", weir.Limit{Rate: 5, Per: weir.Calendar(weir.Day, nil)}),
		r.policy("anchored", using(weir.AnchoredWindow, five)),
		r.policy("sliding", using(weir.SlidingWindow, five)),
		r.policy("log", using(weir.SlidingLog, five)),
		r.policy("second", weir.Limit{Rate: 5, Per: weir.Every(time.Second), Algorithm: weir.DualWindow}),
		r.policy("dual", weir.Limit{Rate: 5, Per: weir.Every(time.Second), Algorithm: weir.DualWindow},
			named("minute", using(weir.DualWindow, perMinute(8)))),
		r.policy("lending", weir.Limit{Rate: 5, Per: weir.Every(time.Minute), Classes: weir.ClassesOf(weir.Class{Name: "all", Guaranteed: 5})}),
		r.policy("several", five, named("log", using(weir.SlidingLog, perMinute(6))),
			named("hour", using(weir.SlidingWindow, perHour(20)))),
	}
}

// wantError checks that err is one of a kind.
func (r *rig) wantError(what string, err error, want kind) {
	r.t.Helper()
	if !want.is(err) {
		r.t.Errorf("%s: got error %v, want %s", what, err, want.name)
	}
}

// A kind of error is a sentinel or a type.
type kind struct {
	name string
	is   func(error) bool
}

func sentinel(want error) kind {
	return kind{fmt.Sprintf("%q", want), func(err error) bool { return errors.Is(err, want) }}
}

// total adds up how the charges of a reservation were settled.
func total(list []weir.Settled) (sum weir.Settled) {
	for _, s := range list {
		sum.Refunded += s.Refunded
		sum.Overrun += s.Overrun
		sum.Late = sum.Late || s.Late
	}
	return sum
}

var anyError = kind{"an error", func(err error) bool { return err != nil }}

// drain takes single units until one is refused, and returns how many it took.
func (r *rig) drain(p *weir.Policy, key string) (n int64) {
	r.t.Helper()
	for r.take(p, key, 1).Allowed {
		if n++; n > 1_000_000 {
			r.t.Fatalf("%s: a million units in one instant", callText("take", charge(p, key, 1)))
		}
	}
	return n
}

// wantSettle ends one receipt directly, without a Reservation's memory; what is
// used is the charge's cost.
func (r *rig) wantSettle(when string, receipt weir.Receipt, c weir.Charge, want weir.Settled) {
	r.t.Helper()
	b := weir.Batch{Op: weir.Settle, Charges: []weir.Charge{c}, Receipts: []weir.Receipt{receipt}}
	if got := r.run(&b).Settled[0]; got != want {
		r.t.Errorf("%s, %s: got %+v, want %+v", when, batchText(&b), got, want)
	}
}
