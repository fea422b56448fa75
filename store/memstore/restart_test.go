package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/storetest"
)

// A restarting table is saved and restored after every few calls. Whoever uses it
// must not notice.
type restarting struct {
	t      fataler
	config Config
	every  int

	calls atomic.Int64
	mu    sync.RWMutex // guards table; held for reading by calls
	table *Table
}

// call makes a call, and every so often a restart before it.
func (r *restarting) call(f func(*Table) error) error {
	if r.due() {
		r.restart()
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return f(r.table)
}

// due says whether it is time for a restart. Those of larger tables are rarer.
func (r *restarting) due() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	keys := r.table.Stats().Keys
	return r.calls.Add(1)%int64(r.every+keys) == 0
}

func (r *restarting) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b bytes.Buffer
	now := r.config.Now()
	behind := weir.Instant(r.table.latest.Load()).Sub(now) > maxAhead || r.table.epoch.Sub(now) > maxEpochAhead
	if r.table.WriteSnapshot(&b) != nil || behind {
		return // a zone that cannot be written, or a clock that is far behind; they have tests of their own
	}
	old := r.table
	r.table = restored(r.t, b.Bytes(), r.config)
	resetPolicies(r.t, old, r.table)
}

// resetPolicies sets what was set before, as whoever starts a daemon does.
func resetPolicies(t fataler, old, table *Table) {
	for _, nm := range old.registry.names {
		for _, n := range nm.replaced {
			if err := table.Set(background(), n.policy, n.inForce.Load().policy); err != nil {
				t.Fatalf("%v", err)
			}
		}
	}
}

func (r *restarting) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (d weir.Decision, err error) {
	err = r.call(func(t *Table) error { d, err = t.Take(ctx, p, key, cost); return err })
	return d, err
}

func (r *restarting) Do(ctx context.Context, b *weir.Batch) error {
	return r.call(func(t *Table) error { return t.Do(ctx, b) })
}

func (r *restarting) Set(ctx context.Context, old, new *weir.Policy) error {
	return r.call(func(t *Table) error { return t.Set(ctx, old, new) })
}

// TestConformanceAcrossRestarts asks of a table that restarts all the time what is
// required of every store.
func TestConformanceAcrossRestarts(t *testing.T) {
	storetest.Run(t, storetest.Store{
		Open: func(t testing.TB, o storetest.Options) weir.Limiter {
			c := Config{MaxKeys: cmp.Or(o.MaxKeys, 5000), MaxHolds: o.MaxHolds, Snapshots: true, Now: o.Clock.Now}
			return &restarting{t: t, config: c, every: short(20, 5), table: newTable(t, c)}
		},
	})
}

// A twin is two tables that execute the same calls. One of them is restarted now and
// then, and they must decide alike.
type twin struct {
	t          *rapid.T
	clock      *clock
	config     Config
	one, other *Table // other is restarted
	policies   []*weir.Policy
	held       []twinHold
}

type twinHold struct {
	charge     weir.Charge
	one, other []weir.Receipt
}

// TestRestartedDecidesAlike: a random history, restarts at random points, the clock
// moving meanwhile, and every answer is compared.
func TestRestartedDecidesAlike(t *testing.T) {
	kinds := everyKind()
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	defer manyChecks()()
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{t: t, clock: newClock(), config: Config{MaxKeys: 1000, Snapshots: true}}
		w.config.Now = w.clock.Now
		w.config.KeepKeys = rapid.Bool().Draw(t, "keep keys")
		w.one = newTwin(t, w.config)
		w.other = newTwin(t, w.config)
		for i, kind := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(t, "policies") {
			name := fmt.Sprint("p", i%2) // two of a name are overrides
			if kind == "empty" {
				name = kind // a row that is unused may go, and who has none starts empty
			}
			p, err := weir.NewPolicy(name, kinds[kind]...)
			if err != nil {
				t.Fatalf("%v", err)
			}
			w.policies = append(w.policies, p)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": w.take, "take more": w.take, "reserve": w.reserve, "settle": w.settle, "renew": w.renew,
			"reset": w.reset, "batch": w.batch, "set": w.set, "pass": w.pass, "restart": w.restart, "": w.compareAll,
		})
	})
}

func newTwin(t *rapid.T, c Config) *Table {
	table, err := New(c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return table
}

func (w *twin) charge(t *rapid.T) weir.Charge {
	return weir.Charge{
		Policy: rapid.SampledFrom(w.policies).Draw(t, "policy"),
		Key:    rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "key"),
		Cost:   rapid.SampledFrom([]int64{1, 1, 1, 2, 5, 10, 0, 11}).Draw(t, "cost"),
	}
}

// both carries out a batch on both tables and compares what they say.
func (w *twin) both(b weir.Batch, one, other []weir.Receipt) (*weir.Batch, *weir.Batch) {
	w.t.Helper()
	x, y := b, b
	x.Receipts, y.Receipts = slices.Clone(one), slices.Clone(other)
	err, otherErr := w.one.Do(background(), &x), w.other.Do(background(), &y)
	if (err == nil) != (otherErr == nil) {
		w.t.Fatalf("%+v: %v, after a restart %v", b, err, otherErr)
	}
	if !slices.Equal(x.Decisions, y.Decisions) || !slices.Equal(x.Settled, y.Settled) {
		w.t.Fatalf("%+v:\n%+v %+v, after a restart\n%+v %+v", b, x.Decisions, x.Settled, y.Decisions, y.Settled)
	}
	return &x, &y
}

func (w *twin) take(t *rapid.T) {
	c := w.charge(t)
	d, err := w.one.Take(background(), c.Policy, c.Key, c.Cost)
	e, otherErr := w.other.Take(background(), c.Policy, c.Key, c.Cost)
	if d != e || (err == nil) != (otherErr == nil) {
		t.Fatalf("%+v: %+v %v, after a restart %+v %v", c, d, err, e, otherErr)
	}
}

func (w *twin) batch(t *rapid.T) {
	op := rapid.SampledFrom([]weir.Op{weir.TakeEach, weir.TakeAll}).Draw(t, "op")
	w.both(weir.Batch{Op: op, Charges: []weir.Charge{w.charge(t), w.charge(t)}}, nil, nil)
}

func (w *twin) ttl(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, weir.NoExpiry}).Draw(t, "ttl")
}

func (w *twin) reserve(t *rapid.T) {
	c := w.charge(t)
	x, y := w.both(weir.Batch{Op: weir.ReserveAll, TTL: w.ttl(t), Charges: []weir.Charge{c}}, nil, nil)
	if x.Allowed() && len(x.Receipts) > 0 {
		w.held = append(w.held, twinHold{c, x.Receipts, y.Receipts})
	}
}

func (w *twin) someHold(t *rapid.T) *twinHold {
	if len(w.held) == 0 {
		t.Skip("none")
	}
	return &w.held[rapid.IntRange(0, len(w.held)-1).Draw(t, "which")]
}

func (w *twin) settle(t *rapid.T) { // now and then one that is settled already
	h := w.someHold(t)
	c := h.charge
	c.Cost = rapid.Int64Range(0, c.Cost+2).Draw(t, "used")
	w.both(weir.Batch{Op: weir.Settle, Charges: []weir.Charge{c}}, h.one, h.other)
}

func (w *twin) renew(t *rapid.T) {
	h := w.someHold(t)
	x, y := w.both(weir.Batch{Op: weir.Renew, TTL: w.ttl(t), Charges: []weir.Charge{h.charge}}, h.one, h.other)
	h.one, h.other = x.Receipts, y.Receipts
}

func (w *twin) reset(t *rapid.T) {
	w.both(weir.Batch{Op: weir.ResetEach, Charges: []weir.Charge{w.charge(t)}}, nil, nil)
}

func (w *twin) set(t *rapid.T) {
	old, new := w.charge(t).Policy, w.charge(t).Policy
	if old.Name() != new.Name() {
		t.Skip("two names")
	}
	err, otherErr := w.one.Set(background(), old, new), w.other.Set(background(), old, new)
	if (err == nil) != (otherErr == nil) {
		t.Fatalf("set %v to %v: %v, after a restart %v", old.Limits(), new.Limits(), err, otherErr)
	}
}

func (w *twin) pass(t *rapid.T) {
	unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
	w.clock.pass(time.Duration(rapid.IntRange(0, 10).Draw(t, "time")) * unit)
}

// restart lets time pass while the table is down.
func (w *twin) restart(t *rapid.T) {
	data := written(t, w.other)
	if rapid.IntRange(0, 3).Draw(t, "set the clock back") == 0 {
		w.clock.pass(-time.Duration(rapid.Int64Range(0, int64(maxAhead/8)).Draw(t, "by")))
	} else {
		w.pass(t)
	}
	old := w.other
	w.other = restored(t, data, w.config)
	resetPolicies(t, old, w.other)
}

func (w *twin) compareAll(*rapid.T) {
	for _, p := range w.policies {
		for _, key := range []string{"a", "b", "", "new"} {
			for _, cost := range []int64{1, 5} {
				w.both(weir.Batch{Op: weir.PeekEach, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}}, nil, nil)
			}
		}
	}
}
