package memstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
)

// What an adversary broke once.

func with(t testing.TB, p *weir.Policy, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	q, err := p.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

var slots = weir.Limit{Rate: 2, Algorithm: weir.Concurrency}

// One batch meets one key under two sets of limits.
func TestMixedNumbersInABatch(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(1000))
	penalty := with(t, p, perHour(5), named("b", perHour(5)))
	b := do(t, table, &weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}, {Policy: penalty, Key: "k", Cost: 1}}})
	if !b.Allowed() {
		t.Fatalf("%+v", b.Decisions)
	}
	n := 2
	for range 100 {
		if take(t, table, penalty, "k", 1).Allowed {
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d granted, limit 5", n)
	}
	take(t, table, with(t, p, named("b", perHour(5))), "k", 1)
}

func TestSetToSlotsAndBack(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	rate := policy(t, "p", perHour(5))
	held := with(t, rate, slots)
	if err := table.Set(background(), rate, held); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Take(background(), rate, "k", 1); !errors.Is(err, weir.ErrReserveOnly) {
		t.Errorf("take of slots: %v", err)
	}
	for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll} {
		if err := table.Do(background(), &weir.Batch{Op: op, Charges: []weir.Charge{{Policy: rate, Key: "k", Cost: 1}}}); !errors.Is(err, weir.ErrReserveOnly) {
			t.Errorf("op %d of slots: %v", op, err)
		}
	}
	r, err := weir.Reserve(background(), table, weir.NoExpiry, weir.Charge{Policy: rate, Key: "k", Cost: 1})
	if err != nil || !r.Decision.Allowed {
		t.Fatal(r, err)
	}
	if err := table.Set(background(), held, rate); err != nil {
		t.Fatal(err)
	}
	if d := take(t, table, held, "k", 1); !d.Allowed || d.ResetAfter == weir.Never {
		t.Errorf("take under the rate: %+v", d)
	}
}

func TestSetChains(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	a, b, c := policy(t, "p", perHour(10)), policy(t, "p", perHour(20)), policy(t, "p", perHour(30))
	set := func(old, new *weir.Policy) {
		t.Helper()
		if err := table.Set(background(), old, new); err != nil {
			t.Fatal(err)
		}
	}
	limit := func(p *weir.Policy) int64 { return take(t, table, p, "k", 0).Limit }
	set(a, b)
	set(a, c) // a means b by now
	if limit(a) != 30 || limit(b) != 30 || limit(policy(t, "p", perHour(10))) != 30 {
		t.Errorf("%d, %d, want 30", limit(a), limit(b))
	}
	set(c, a)
	if limit(a) != 10 || limit(b) != 10 || limit(c) != 10 {
		t.Errorf("back: %d, %d, %d, want 10", limit(a), limit(b), limit(c))
	}
	for i := range 1000 {
		next := policy(t, "p", perHour(int64(100+i)))
		set(a, next)
		a = next
	}
	if n := len(table.registry.names["p"].replaced); n > maxReplaced {
		t.Errorf("%d replacements are kept", n)
	}
}

// A key that was refused in the overflow row must not be forgiven by a place.
func TestOutOfTheOverflowRow(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 1, Now: c.Now})
	fast := policy(t, "fast", weir.Limit{Rate: 1000, Per: weir.Every(time.Second)})
	slow := policy(t, "slow", perHour(10))
	take(t, table, fast, "a", 1)
	n := 0
	for range 2 {
		for range 20 {
			peek, _ := weir.Peek(background(), table, slow, "b", 1)
			d := take(t, table, slow, "b", 1)
			if d.Allowed {
				n++
			}
			if peek.Allowed != d.Allowed {
				t.Errorf("peek %+v, take %+v", peek, d)
			}
		}
		c.pass(2 * time.Millisecond) // a's row is unused by now: b gets its place
	}
	if n != 10 || table.Stats().Evicted != 1 {
		t.Errorf("%d granted, limit 10; %+v", n, table.Stats())
	}
	if err := table.Set(background(), slow, with(t, slow, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), MaxDebt: 1})); err == nil {
		t.Error("what is used in the overflow row cannot be represented, and Set took it")
	}
}

func TestTimeOfATableNeverGoesBack(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 1, Now: c.Now})
	p := policy(t, "p", weir.Limit{Rate: 5, Per: weir.Every(time.Minute), Algorithm: weir.FixedWindow})
	take(t, table, p, "a", 5)
	c.pass(time.Minute)
	take(t, table, p, "b", 0) // in a's place: the next window has begun, a is unused
	c.pass(-time.Minute)
	take(t, table, p, "a", 5) // of the next window, whatever the clock says
	c.pass(time.Minute)
	if d := take(t, table, p, "a", 1); d.Allowed {
		t.Errorf("a clock that stepped back granted: %+v", d)
	}
}

func TestKeysMayBeReused(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(5))
	buf := []byte("alice")
	charges := []weir.Charge{{Policy: p, Key: unsafe.String(&buf[0], len(buf)), Cost: 5}}
	b := do(t, table, &weir.Batch{Op: weir.ReserveAll, Charges: charges})
	copy(buf, "bobby")
	s := do(t, table, &weir.Batch{Op: weir.Settle, Charges: []weir.Charge{{Policy: p, Key: "alice"}}, Receipts: b.Receipts})
	if s.Settled[0].Refunded != 5 || table.Stats().Holds != 0 {
		t.Errorf("%+v, %+v", s.Settled[0], table.Stats())
	}
	if d := take(t, table, p, "bobby", 5); !d.Allowed {
		t.Errorf("another key: %+v", d)
	}
	if n := table.Stats().Keys; n != 2 {
		t.Errorf("%d keys", n)
	}
}

func TestChargesMayBeReused(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(5))
	charges := []weir.Charge{{Policy: p, Key: "alice", Cost: 5}}
	ctx, cancel := context.WithCancel(background())
	r, _ := weir.Reserve(ctx, table, 0, charges...)
	charges[0].Key = "bob"
	cancel() // a request that is over gives back all the same
	if out, err := r.Cancel(ctx); err != nil || out[0].Refunded != 5 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestRenewAllOrNone(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 2})
	held, rate := policy(t, "held", slots), policy(t, "rate", perHour(5))
	charges := []weir.Charge{{Policy: held, Key: "k", Cost: 2}, {Policy: rate, Key: "k", Cost: 1}}
	b := do(t, table, &weir.Batch{Op: weir.ReserveAll, TTL: time.Minute, Charges: charges})
	renew := weir.Batch{Op: weir.Renew, TTL: weir.NoExpiry, Charges: charges, Receipts: b.Receipts}
	if err := table.Do(background(), &renew); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("no expiry for a rate: %v", err)
	}
	c.pass(time.Minute)
	renew.TTL = time.Hour
	until := renew.Receipts[0].Expiry
	do(t, table, &renew)
	if d := renew.Decisions[0]; d.Allowed || d.Reason != weir.TooLate || renew.Receipts[0].Expiry != until {
		t.Errorf("late: %+v, receipt until %v", d, renew.Receipts[0].Expiry.Time())
	}
	if b := do(t, table, &weir.Batch{Op: weir.ReserveAll, Charges: charges}); !b.Allowed() {
		t.Errorf("what is over takes no place: %+v", b.Decisions)
	}
}

func TestRenewMovesTheExpiry(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 1})
	p := policy(t, "p", perHour(5))
	charge := weir.Charge{Policy: p, Key: "k", Cost: 2}
	r, _ := weir.Reserve(background(), table, time.Minute, charge)
	if ok, err := r.Renew(background(), time.Hour); !ok || err != nil {
		t.Fatal(ok, err)
	}
	c.pass(2 * time.Minute)
	if full, _ := weir.Reserve(background(), table, 0, charge); full.Decision.Reason != weir.QueueFull || full.Decision.RetryAfter != 58*time.Minute {
		t.Errorf("beyond the bound: %+v", full.Decision)
	}
	if out, _ := r.Cancel(background()); out[0].Refunded != 2 {
		t.Errorf("%+v", out)
	}
}

func TestHoldsAreBounded(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 100})
	p := policy(t, "p", perHour(1000))
	batch := func(n int) *weir.Batch {
		b := &weir.Batch{Op: weir.ReserveAll, TTL: time.Second}
		for i := range n {
			b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: fmt.Sprint(i), Cost: 1})
		}
		return do(t, table, b)
	}
	if batch(101).Allowed() || !batch(99).Allowed() || batch(2).Allowed() || !batch(1).Allowed() {
		t.Error("the bound is 100")
	}
	if d := batch(1).Decisions[0]; d.Reason != weir.QueueFull || d.RetryAfter != time.Second {
		t.Errorf("%+v", d)
	}
	c.pass(time.Second)
	if !batch(100).Allowed() {
		t.Error("all have expired, and 100 do not fit")
	}
}

func TestInitialCountsFromTheStart(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now})
	p := policy(t, "p", weir.Limit{Rate: 60, Per: weir.Every(time.Minute), Initial: weir.Filled(0)})
	c.pass(10 * time.Second)
	if d := take(t, table, p, "late", 0); d.Remaining != 10 {
		t.Errorf("a key that comes ten seconds after the start: %+v", d)
	}
}

func TestPeekConvertsNothing(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow})
	other := with(t, p, weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.FixedWindow})
	take(t, table, p, "k", 10)
	if _, err := weir.Peek(background(), table, other, "k", 1); err != nil {
		t.Fatal(err)
	}
	c, _ := table.charge(&weir.Charge{Policy: p, Key: "k"})
	if slot := table.shards[c.shard].one.find(c.h, tagFor(c.h, c.limits), "k"); slot < 0 {
		t.Error("a peek changed the row's limits")
	}
}

func TestBadBatches(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(10))
	for _, b := range []weir.Batch{
		{Op: 99, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}}},
		{Op: weir.TakeEach, Charges: []weir.Charge{{Key: "k", Cost: 1}}},
	} {
		if err := table.Do(background(), &b); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%+v: %v", b, err)
		}
	}
	// A charge that cannot be decided charges none of the batch.
	take(t, table, p, "k", 10)
	tight := with(t, p, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), MaxDebt: 1})
	err := table.Do(background(), &weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: "other", Cost: 1}, {Policy: tight, Key: "k", Cost: 1}}})
	if err == nil {
		t.Fatal("no error")
	}
	if d := take(t, table, p, "other", 0); d.Remaining != 10 {
		t.Errorf("%+v", d)
	}
}
