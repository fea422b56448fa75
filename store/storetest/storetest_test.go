package storetest

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// The model passes what it judges by, but for the bounds that it has not.
var unbounded = map[Demand]string{BoundedHolds: "a model", BoundedKeys: "a model"}

func modelStore() Store {
	s := Store{Without: unbounded}
	s.Open = func(_ testing.TB, o Options) weir.Limiter { return newModel(&s, o.Clock.Now) }
	return s
}

func TestModel(t *testing.T) { runShort(t, modelStore()) }

// runShort runs the short form always: the model against itself can show only
// that what is written down in numbers is right, and how often does not matter.
func runShort(t *testing.T, s Store) {
	t.Setenv("WEIR_TEST", "")
	Run(t, s)
}

// A store may have coarser time.
func TestCoarseModel(t *testing.T) {
	s := modelStore()
	s.Resolution = time.Microsecond
	inner := s.Open
	s.Open = func(t testing.TB, o Options) weir.Limiter {
		return hooked{Limiter: inner(t, o), reported: s.asReported}
	}
	runShort(t, s)
}

// A store may convert before it decides.
func TestConvertingModel(t *testing.T) {
	s := Store{Without: maps.Clone(unbounded)}
	s.Without[RefusalsKeepNumbers] = "to see that the model follows"
	s.Open = func(_ testing.TB, o Options) weir.Limiter { return newModel(&s, o.Clock.Now) }
	runShort(t, s)
}

// A store may keep time by key: then it is as late as the key was, not as the
// store.
func TestModelWithTimeByKey(t *testing.T) {
	s := Store{Without: maps.Clone(unbounded)}
	s.Without[TimeStandsStill] = "time is kept by key"
	s.Open = func(_ testing.TB, o Options) weir.Limiter {
		m := newModel(&s, o.Clock.Now)
		return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
			m.mu.Lock()
			m.now = 0
			m.mu.Unlock()
			return m.Do(ctx, b)
		}}
	}
	runShort(t, s)
}

// hooked is a store with some of its methods replaced.
type hooked struct {
	weir.Limiter
	take     func(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error)
	do       func(ctx context.Context, b *weir.Batch) error
	set      func(ctx context.Context, old, new *weir.Policy) error
	reported func(weir.Decision) weir.Decision
}

func (h hooked) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (d weir.Decision, err error) {
	if h.take != nil {
		return h.take(ctx, p, key, cost)
	}
	if h.do == nil {
		d, err = h.Limiter.Take(ctx, p, key, cost)
	} else {
		b := weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}}
		if err = h.do(ctx, &b); err == nil {
			d = b.Decisions[0]
		}
	}
	if h.reported != nil {
		d = h.reported(d)
	}
	return d, err
}

func (h hooked) Do(ctx context.Context, b *weir.Batch) error {
	do := h.Limiter.Do
	if h.do != nil {
		do = h.do
	}
	if err := do(ctx, b); err != nil {
		return err
	}
	for i := range b.Decisions {
		if h.reported != nil {
			b.Decisions[i] = h.reported(b.Decisions[i])
		}
	}
	return nil
}

func (h hooked) Set(ctx context.Context, old, new *weir.Policy) error {
	if h.set != nil {
		return h.set(ctx, old, new)
	}
	return h.Limiter.Set(ctx, old, new)
}
