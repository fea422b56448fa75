package ruleset

import (
	"context"
	"errors"
	"flag"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/store/memstore"
)

// long says whether the long forms of tests run: make test-all.
var long = os.Getenv("WEIR_TEST") == "all"

func TestMain(m *testing.M) {
	flag.Parse()
	if long {
		_ = flag.Set("rapid.checks", "10000")
	}
	goleak.VerifyTestMain(m)
}

// raced says whether the race detector is on, which allocates.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// tester is a testing.TB or a *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

var ctx = context.Background()

// noon begins every clock: a window of a second, a minute and an hour begins there.
var noon = weir.Instant(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())

// clock is a manual clock.
type clock struct{ passed atomic.Int64 }

func (c *clock) Now() weir.Instant    { return noon + weir.Instant(c.passed.Load()) }
func (c *clock) pass(d time.Duration) { c.passed.Add(int64(d)) }

func newTable(t tester, c *clock) *memstore.Table {
	t.Helper()
	config := memstore.Config{}
	if c != nil {
		config.Now = c.Now
	}
	table, err := memstore.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func compile(t tester, previous *Rules, policies ...Policy) *Rules {
	t.Helper()
	rules, err := Compile(policies, previous)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func newEngine(t tester, l weir.Limiter, policies ...Policy) *Engine {
	t.Helper()
	g, err := New(l, compile(t, nil, policies...))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// frozen returns an engine whose clock stands still.
func frozen(t tester, policies ...Policy) (*Engine, *clock) {
	t.Helper()
	c := new(clock)
	return newEngine(t, newTable(t, c), policies...), c
}

// set puts policies in force, compiled after those that are.
func set(t tester, g *Engine, policies ...Policy) {
	t.Helper()
	if err := g.Set(ctx, compile(t, g.Rules(), policies...)); err != nil {
		t.Fatal(err)
	}
}

func check(t tester, g *Engine, policy string, q Query) Verdict {
	t.Helper()
	v, err := g.Check(ctx, g.Rules().Rule(policy), &q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	return v
}

// wantAdmitted takes units one by one until one is refused.
func wantAdmitted(t tester, g *Engine, policy string, q Query, want int) {
	t.Helper()
	q.Cost = 1
	for n := range want + 1 {
		if v := check(t, g, policy, q); v.Allowed != (n < want) {
			t.Fatalf("%s of %q: %d of %d units, then %v", policy, q.Key, n, want, v.Decision)
		}
	}
}

// perHour is so many an hour: a clock that moves by seconds gives back little.
func perHour(name string, rate int64) Limit { return every(name, rate, time.Hour) }

func every(name string, rate int64, per time.Duration) Limit {
	return Limit{Limit: weir.Limit{Name: name, Rate: rate, Per: weir.Every(per)}}
}

func (l Limit) by(attribute string) Limit          { l.By = attribute; return l }
func (l Limit) in(unit string) Limit               { l.Unit = unit; return l }
func (l Limit) mode(m Mode) Limit                  { l.Mode = m; return l }
func (l Limit) using(a weir.Algorithm) Limit       { l.Algorithm = a; return l }
func policy(name string, limits ...Limit) Policy   { return Policy{Name: name, Limits: limits} }
func (p Policy) with(overrides ...Override) Policy { p.Overrides = overrides; return p }

func slots(name string, n int64) Limit {
	return Limit{Limit: weir.Limit{Name: name, Rate: n, Algorithm: weir.Concurrency}}
}

func override(key string, limits ...Limit) Override { return Override{Key: key, Limits: limits} }

// one is a request of one unit.
func one(key string, keys ...Attribute) Query { return Query{Key: key, Cost: 1, Keys: keys} }

func ip(address string) Attribute { return Attribute{"ip", address} }

var errDown = errors.New("the limiter is down")

// scripted is a limiter with prepared answers, which records the calls of Set.
type scripted struct {
	weir.Limiter // for what is not scripted

	take  func(ctx context.Context) (weir.Decision, error)
	do    func(ctx context.Context, b *weir.Batch) error
	onSet func(ctx context.Context, n int) error // of the n-th call

	mu   sync.Mutex // engines the field below
	sets []change
}

func (s *scripted) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if s.take != nil {
		return s.take(ctx)
	}
	return s.Limiter.Take(ctx, p, key, cost)
}

func (s *scripted) Do(ctx context.Context, b *weir.Batch) error {
	if s.do == nil {
		return s.Limiter.Do(ctx, b)
	}
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	return s.do(ctx, b)
}

func (s *scripted) Set(ctx context.Context, old, new *weir.Policy) error {
	s.mu.Lock()
	s.sets = append(s.sets, change{old, new})
	n := len(s.sets)
	s.mu.Unlock()
	if s.onSet != nil {
		if err := s.onSet(ctx, n); err != nil {
			return err
		}
	}
	if s.Limiter == nil {
		return ctx.Err()
	}
	return s.Limiter.Set(ctx, old, new)
}
