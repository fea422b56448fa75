package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that tests move by hand.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() weir.Instant            { return weir.Instant(c.now.Load()) }
func (c *clock) pass(d time.Duration)         { c.now.Add(int64(d)) }
func background() context.Context             { return context.Background() }
func perHour(rate int64) weir.Limit           { return weir.Limit{Rate: rate, Per: weir.Every(time.Hour)} }
func named(n string, l weir.Limit) weir.Limit { l.Name = n; return l }

func newTable(t testing.TB, c Config) *Table {
	t.Helper()
	table, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func policy(t testing.TB, name string, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func take(t testing.TB, table *Table, p *weir.Policy, key string, cost int64) weir.Decision {
	t.Helper()
	d, err := table.Take(background(), p, key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestKeysAreApart(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	a, b := policy(t, "a", perHour(2)), policy(t, "b", perHour(2))
	for _, p := range []*weir.Policy{a, b} {
		for _, key := range []string{"alice", "bob", ""} {
			for want := int64(1); want >= 0; want-- {
				if d := take(t, table, p, key, 1); !d.Allowed || d.Remaining != want {
					t.Errorf("%s/%s: %+v", p.Name(), key, d)
				}
			}
			if d := take(t, table, p, key, 1); d.Allowed {
				t.Errorf("%s/%s: a third was admitted", p.Name(), key)
			}
		}
	}
	if n := table.Stats().Keys; n != 6 {
		t.Errorf("%d keys", n)
	}
}

func TestKeyStringsAreNotKept(t *testing.T) {
	table := newTable(t, Config{KeepKeys: true})
	p := policy(t, "p", perHour(2))
	buf := []byte("alice")
	take(t, table, p, unsafe.String(&buf[0], len(buf)), 2)
	copy(buf, "bobby")
	if d := take(t, table, p, "alice", 1); d.Allowed {
		t.Errorf("alice's row has gone: %+v", d)
	}
}

func TestBadInputChargesNothing(t *testing.T) {
	table := newTable(t, Config{})
	p := policy(t, "p", perHour(5))
	slots := policy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
	cancelled, cancel := context.WithCancel(background())
	cancel()
	cases := []struct {
		name string
		ctx  context.Context
		c    weir.Charge
		want func(error) bool
	}{
		{"negative", background(), weir.Charge{Policy: p, Key: "k", Cost: -1}, isInvalid},
		{"huge", background(), weir.Charge{Policy: p, Key: "k", Cost: weir.MaxCost + 1}, isInvalid},
		{"long key", background(), weir.Charge{Policy: p, Key: strings.Repeat("k", 257), Cost: 1}, isInvalid},
		{"slots", background(), weir.Charge{Policy: slots, Key: "k", Cost: 1}, func(err error) bool { return errors.Is(err, weir.ErrReserveOnly) }},
		{"cancelled", cancelled, weir.Charge{Policy: p, Key: "k", Cost: 1}, func(err error) bool { return errors.Is(err, context.Canceled) }},
	}
	for _, c := range cases {
		if _, err := table.Take(c.ctx, c.c.Policy, c.c.Key, c.c.Cost); !c.want(err) {
			t.Errorf("%s: take: %v", c.name, err)
		}
		good := weir.Charge{Policy: p, Key: "k", Cost: 1}
		if err := table.Do(c.ctx, &weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{good, c.c}}); !c.want(err) {
			t.Errorf("%s: batch: %v", c.name, err)
		}
	}
	if d := take(t, table, p, "k", 0); d.Remaining != 5 {
		t.Errorf("something was charged: %+v", d)
	}
	if _, err := New(Config{MaxKeys: -1}); err == nil {
		t.Error("negative bound accepted")
	}
}

func isInvalid(err error) bool { return errors.Is(err, weir.ErrInvalid) }

func do(t testing.TB, table *Table, b *weir.Batch) *weir.Batch {
	t.Helper()
	if err := table.Do(background(), b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTakeAllOrNothing(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	user, all := policy(t, "user", perHour(10)), policy(t, "all", perHour(12))
	charges := func(u, a int64) []weir.Charge {
		return []weir.Charge{{Policy: user, Key: "alice", Cost: u}, {Policy: all, Key: "", Cost: a}}
	}
	if b := do(t, table, &weir.Batch{Op: weir.TakeAll, Charges: charges(8, 8)}); !b.Allowed() {
		t.Errorf("both fit: %+v", b.Decisions)
	}
	b := do(t, table, &weir.Batch{Op: weir.TakeAll, Charges: charges(1, 5)})
	if first, second := b.Decisions[0], b.Decisions[1]; first.Allowed || first.Reason != weir.NotCharged || second.Reason != weir.Exhausted {
		t.Errorf("the second must refuse, for both: %+v", b.Decisions)
	}
	r, err := weir.Reserve(background(), table, 0, charges(1, 5)...)
	if err != nil || r.Decision.Allowed || r.Decision.Reason != weir.Exhausted {
		t.Errorf("reserve: %+v, %v", r.Decision, err)
	}
	if d := take(t, table, user, "alice", 0); d.Remaining != 2 {
		t.Errorf("the first was charged all the same: %+v", d)
	}
	same := []weir.Charge{{Policy: user, Key: "bob", Cost: 6}, {Policy: user, Key: "bob", Cost: 6}}
	if b := do(t, table, &weir.Batch{Op: weir.TakeAll, Charges: same}); b.Allowed() {
		t.Errorf("two charges to one key must add up: %+v", b.Decisions)
	}
	if b := do(t, table, &weir.Batch{Op: weir.TakeEach, Charges: same}); !b.Decisions[0].Allowed || b.Decisions[1].Allowed {
		t.Errorf("each on its own: %+v", b.Decisions)
	}
	if b := do(t, table, &weir.Batch{Op: weir.PeekEach, Charges: same}); b.Decisions[0].Allowed || b.Decisions[0].Remaining != 4 {
		t.Errorf("peek: %+v", b.Decisions)
	}
	do(t, table, &weir.Batch{Op: weir.ResetEach, Charges: same[:1]})
	if d := take(t, table, user, "bob", 0); d.Remaining != 10 {
		t.Errorf("after reset: %+v", d)
	}
}

func TestReservations(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 3})
	p := policy(t, "p", perHour(100))
	ctx := background()
	r, err := weir.Reserve(ctx, table, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 60})
	if err != nil || !r.Decision.Allowed {
		t.Fatal(r, err)
	}
	refused, err := weir.Reserve(ctx, table, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 60})
	if err != nil || refused.Decision.Allowed || refused.Decision.RetryAfter <= time.Minute {
		t.Errorf("second: %+v, %v", refused.Decision, err)
	}
	if out, err := refused.Commit(ctx); err != nil || len(out) != 0 {
		t.Errorf("settling a refusal: %+v, %v", out, err)
	}
	c.pass(50 * time.Second)
	if ok, err := r.Renew(ctx, time.Minute); !ok || err != nil {
		t.Errorf("renew: %v, %v", ok, err)
	}
	c.pass(50 * time.Second)
	for range 2 { // the second says what the first did
		if out, err := r.Commit(ctx, 10); err != nil || !slices.Equal(out, []weir.Settled{{Refunded: 50}}) {
			t.Errorf("commit: %+v, %v", out, err)
		}
	}
	if _, err := weir.Reserve(ctx, table, 2*time.Hour, weir.Charge{Policy: p, Key: "k", Cost: 1}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("too long: %v", err)
	}
	if _, err := r.Commit(ctx, 1, 2); err != nil {
		t.Errorf("settled already: %v", err)
	}
	late, _ := weir.Reserve(ctx, table, time.Second, weir.Charge{Policy: p, Key: "k", Cost: 1})
	c.pass(time.Second)
	if out, err := late.Cancel(ctx); err != nil || !out[0].Late {
		t.Errorf("late: %+v, %v", out, err)
	}
	var open []*weir.Reservation
	for range 4 {
		r, err := weir.Reserve(ctx, table, time.Second, weir.Charge{Policy: p, Key: "k", Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
	}
	if d := open[3].Decision; d.Allowed || d.Reason != weir.QueueFull {
		t.Errorf("beyond the bound: %+v", d)
	}
	if d := take(t, table, p, "k", 1); !d.Allowed {
		t.Errorf("take is not refused for it: %+v", d)
	}
	if _, err := open[0].Commit(ctx, 1, 2); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("two costs for one charge: %v", err)
	}
}

func TestSomeoneElsesReceipt(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p, q := policy(t, "p", perHour(10)), policy(t, "q", perHour(10))
	b := do(t, table, &weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "alice", Cost: 5}}})
	for _, c := range []weir.Charge{{Policy: p, Key: "bob"}, {Policy: q, Key: "alice"}} {
		s := do(t, table, &weir.Batch{Op: weir.Settle, Charges: []weir.Charge{c}, Receipts: b.Receipts})
		if !s.Settled[0].Late {
			t.Errorf("%s/%s settled alice's reservation", c.Policy.Name(), c.Key)
		}
	}
	if err := table.Do(background(), &weir.Batch{Op: weir.Settle, Charges: []weir.Charge{{Policy: p, Key: "alice"}}}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("no receipt: %v", err)
	}
}

func TestSet(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	ctx := background()
	old := policy(t, "p", perHour(10))
	take(t, table, old, "k", 8)
	raised := policy(t, "p", perHour(20))
	if err := table.Set(ctx, old, raised); err != nil {
		t.Fatal(err)
	}
	if d := take(t, table, old, "k", 0); d.Remaining != 12 || d.Limit != 20 {
		t.Errorf("who still brings the old policy: %+v", d)
	}
	if d := take(t, table, old, "new", 20); !d.Allowed {
		t.Errorf("a new key: %+v", d)
	}
	if err := table.Set(ctx, raised, old); err != nil { // and back
		t.Fatal(err)
	}
	if d := take(t, table, raised, "k", 0); d.Remaining != 2 || d.Limit != 10 {
		t.Errorf("back: %+v", d)
	}
	if d := take(t, table, old, "new", 1); d.Allowed || d.RetryAfter != 11*time.Hour/10 {
		t.Errorf("an excess blocks until it is paid off: %+v", d)
	}
	tight := policy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(time.Hour), MaxDebt: 1})
	if err := table.Set(ctx, old, tight); err == nil {
		t.Error("units that cannot be represented were accepted")
	}
	if d := take(t, table, old, "k", 0); d.Limit != 10 || d.Remaining != 2 {
		t.Errorf("after a failed set: %+v", d)
	}
	if err := table.Set(ctx, old, policy(t, "q", perHour(1))); err == nil {
		t.Error("another name was accepted")
	}
}

func TestOverridesShareState(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(10), named("b", perHour(100)))
	vip, _ := p.With(perHour(50), named("b", perHour(500)))
	for range 5 {
		take(t, table, p, "k", 1)
		take(t, table, vip, "k", 1)
	}
	if d := take(t, table, p, "k", 0); d.Remaining != 0 {
		t.Errorf("plain: %+v", d)
	}
	if d := take(t, table, vip, "k", 0); d.Remaining != 40 {
		t.Errorf("override: %+v", d)
	}
	if b := do(t, table, &weir.Batch{Op: weir.PeekEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}}}); b.Decisions[0].Allowed {
		t.Errorf("peek with other limits: %+v", b.Decisions[0])
	}
}

// A full table lets go of rows that use little, and never of one that is refused.
func TestFullTable(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 100, Now: c.Now})
	p := policy(t, "p", perHour(3))
	take(t, table, p, "victim", 3)
	take(t, table, p, "half", 2)
	for i := range 10_000 {
		take(t, table, p, fmt.Sprint("bogus", i), 1)
	}
	if s := table.Stats(); s.Keys != 100 || s.Evicted != 10_000-98 || s.Forgiven != s.Evicted || s.OverflowHits != 0 {
		t.Errorf("%+v", s)
	}
	if d := take(t, table, p, "victim", 1); d.Allowed {
		t.Errorf("a flood of keys freed a refused one: %+v", d)
	}
	if d := take(t, table, p, "half", 0); d.Remaining != 1 {
		t.Errorf("a flood of keys that use less freed one: %+v", d)
	}
	c.pass(time.Hour)
	for i := range 30 { // everything is unused by now: rows change hands for nothing
		take(t, table, p, fmt.Sprint("new", i), 1)
	}
	if s := table.Stats(); s.Keys > 100 || s.Forgiven != 10_000-98 {
		t.Errorf("%+v", s)
	}
}

// If every key is refused, new ones share a row.
func TestOverflow(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 100, Now: c.Now})
	p := policy(t, "p", perHour(3))
	for i := range 100 {
		take(t, table, p, fmt.Sprint(i), 3)
	}
	for want := int64(2); want >= 0; want-- {
		if d := take(t, table, p, fmt.Sprint("new", want), 1); !d.Allowed || d.Remaining != want {
			t.Errorf("the overflow row is shared: %+v, want %d remaining", d, want)
		}
	}
	if d, _ := weir.Peek(background(), table, p, "one more", 1); d.Allowed {
		t.Errorf("peek must look where take would: %+v", d)
	}
	if d := take(t, table, p, "one more", 1); d.Allowed {
		t.Errorf("the overflow row is used up: %+v", d)
	}
	if s := table.Stats(); s.Keys != 100 || s.Evicted != 0 || s.Forgiven != 0 || s.OverflowHits != 3 {
		t.Errorf("%+v", s)
	}
	c.pass(time.Hour)
	if d := take(t, table, p, "one more", 1); !d.Allowed || d.Remaining != 2 || table.Stats().OverflowHits != 3 {
		t.Errorf("all is paid off: %+v, %+v", d, table.Stats())
	}
}

// All rows of a batch stay while it is tried, although they are unused.
func TestBatchInAFullTable(t *testing.T) {
	table := newTable(t, Config{MaxKeys: 1, Now: newClock().Now})
	p := policy(t, "p", perHour(1))
	var charges []weir.Charge
	for i := range 2 {
		charges = append(charges, weir.Charge{Policy: p, Key: fmt.Sprint(i), Cost: 1})
	}
	take(t, table, p, "x", 0)
	if b := do(t, table, &weir.Batch{Op: weir.TakeAll, Charges: charges}); !b.Allowed() {
		t.Fatalf("%+v", b.Decisions)
	}
	for i := range charges {
		if d := take(t, table, p, fmt.Sprint(i), 1); d.Allowed {
			t.Errorf("the charge to key %d was lost", i)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(100))
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 10 {
				if d, err := table.Take(background(), p, "k", 1); err == nil && d.Allowed {
					admitted.Add(1)
				}
				_ = table.Stats()
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 100 {
		t.Errorf("%d of 640 were admitted, want 100", n)
	}
}

// The table against one ledger per key.
func TestAgainstLedgers(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now})
	p := policy(t, "p", perHour(50), named("w", weir.Limit{Rate: 30, Per: weir.Every(time.Minute), Algorithm: weir.SlidingWindow}))
	ledgers := map[string]*algo.Ledger{}
	for i := range 5000 {
		c.pass(time.Duration(i * 7919 % 3_000_000_000))
		key, cost := fmt.Sprint(i*31%17), int64(i*13%9)
		if ledgers[key] == nil {
			ledgers[key] = algo.NewLedger(p.Compiled().Rules, int64(table.epoch))
		}
		want := storeapi.Decision(ledgers[key].Take(int64(c.Now()), cost), c.Now())
		if d := take(t, table, p, key, cost); d != want {
			t.Fatalf("step %d: %+v, want %+v", i, d, want)
		}
	}
}
