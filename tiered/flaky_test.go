package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

var errDown = errors.New("connection refused")

// flaky is a store with slow replies that can be made unavailable.
type flaky struct {
	table *memstore.Table
	takes time.Duration // there and back
	lends time.Duration // by which answers about leases come later

	mu    sync.Mutex    // guards the fields below
	down  error         // every call returns it at once
	hangs bool          // calls are carried out, and answered by nobody
	full  bool          // nothing can be written
	late  time.Duration // by which answers come later
	calls int
}

func newFlaky(t testing.TB) *flaky { return &flaky{table: newTable(t)} }

func (f *flaky) set(change func(f *flaky)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// call counts a call and lets it be carried out, or not.
func (f *flaky) call(ctx context.Context, writes bool, do func() error) error {
	f.mu.Lock()
	f.calls++
	down, hangs, late := f.down, f.hangs, f.late
	if f.full && writes {
		down = errDown
	}
	f.mu.Unlock()
	if down != nil {
		return down
	}
	time.Sleep(f.takes / 2)
	err := do()
	if hangs {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", weir.ErrUnknown, ctx.Err())
	}
	time.Sleep(f.takes/2 + late)
	return err
}

func (f *flaky) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (d weir.Decision, err error) {
	err = f.call(ctx, true, func() (err error) {
		d, err = f.table.Take(context.Background(), p, key, cost)
		return err
	})
	if err != nil {
		d = weir.Decision{}
	}
	return d, err
}

func (f *flaky) Do(ctx context.Context, b *weir.Batch) error {
	err := f.call(ctx, b.Op != weir.PeekEach, func() error { return f.table.Do(context.Background(), b) })
	if b.Op == weir.ReserveAll {
		time.Sleep(f.lends)
	}
	return err
}

func (f *flaky) Set(ctx context.Context, old, new *weir.Policy) error {
	return f.call(ctx, true, func() error { return f.table.Set(context.Background(), old, new) })
}

func (f *flaky) Current(ctx context.Context, p *weir.Policy) *weir.Policy {
	return f.table.Current(ctx, p)
}

// Changed implements tiered.PolicyTracker: a table knows at once.
func (f *flaky) Changed(string) {}

func (f *flaky) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// remaining returns what the store itself says that a key has left.
func (f *flaky) remaining(t testing.TB, p *weir.Policy, key string) int64 {
	t.Helper()
	d, err := weir.Peek(ctx, f.table, p, key, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// take takes cost units, and fails the test if that is an error.
func take(t testing.TB, l weir.Limiter, p *weir.Policy, key string, cost int64) weir.Decision {
	t.Helper()
	d, err := l.Take(ctx, p, key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// takeMany counts how many of n charges of 1 are admitted.
func takeMany(t testing.TB, l weir.Limiter, p *weir.Policy, key string, n int) (admitted int) {
	t.Helper()
	for range n {
		if take(t, l, p, key, 1).Allowed {
			admitted++
		}
	}
	return admitted
}

// breakStore has the tier give the store up.
func breakStore(t testing.TB, f *flaky, l *tiered.Limiter, p *weir.Policy) {
	t.Helper()
	f.set(func(f *flaky) { f.down = errDown })
	for i := range 5 {
		take(t, l, p, fmt.Sprint("breaks", i), 1)
	}
	if s := l.Stats(); s.OpenBreakers != 1 {
		t.Fatalf("%d breakers are open after 5 failures, want 1", s.OpenBreakers)
	}
}

// heal has the store answer again, and waits until that is noticed.
func heal(t testing.TB, f *flaky, l *tiered.Limiter) {
	t.Helper()
	f.set(func(f *flaky) { f.down, f.hangs, f.full = nil, false, false })
	time.Sleep(time.Second) // of virtual time
	if s := l.Stats(); s.OpenBreakers != 0 {
		t.Fatalf("%d breakers are open a second after the store is available", s.OpenBreakers)
	}
}

// wire is a bus within a test. Messages take a millisecond.
type wire struct {
	mu   sync.Mutex // guards the field below
	ends []*end
}

type end struct {
	wire    *wire
	receive func([]tiered.Message)
}

func (w *wire) join() *end {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &end{wire: w}
	w.ends = append(w.ends, e)
	return e
}

func (e *end) Publish(_ context.Context, messages []tiered.Message) error {
	time.Sleep(time.Millisecond)
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	for _, other := range e.wire.ends {
		if other != e && other.receive != nil {
			other.receive(messages)
		}
	}
	return nil
}

func (e *end) Listen(receive func([]tiered.Message)) (stop func()) {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	e.receive = receive
	return func() {
		e.wire.mu.Lock()
		defer e.wire.mu.Unlock()
		e.receive = nil
	}
}

func (e *end) Nodes() int {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	return len(e.wire.ends)
}
