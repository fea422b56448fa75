package memstore

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
)

// What reservations may do to a table: fill it, hide in the overflow row, outlive
// their row, and never be settled.

// hold1 reserves units of one key.
func hold1(t testing.TB, table *Table, p *weir.Policy, key string, units int64, ttl time.Duration) *weir.Reservation {
	t.Helper()
	r, err := weir.Reserve(background(), table, ttl, weir.Charge{Policy: p, Key: key, Cost: units})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func commit(t testing.TB, r *weir.Reservation, used ...int64) weir.Settled {
	t.Helper()
	out, err := r.Commit(background(), used...)
	if err != nil {
		t.Fatal(err)
	}
	var sum weir.Settled
	for _, s := range out {
		sum.Refunded += s.Refunded
		sum.Overrun += s.Overrun
		sum.Late = sum.Late || s.Late
	}
	return sum
}

func set(t testing.TB, table *Table, old, new *weir.Policy) {
	t.Helper()
	if err := table.Set(background(), old, new); err != nil {
		t.Fatal(err)
	}
}

// jam fills a table with rows that refuse, so that nothing can go.
func jam(t testing.TB, table *Table) {
	t.Helper()
	p := policy(t, "jam", perHour(1))
	for i := range 2 * table.maxKeys {
		take(t, table, p, fmt.Sprint("jam", i), 1)
		if table.Stats().OverflowHits > 0 {
			return
		}
	}
	t.Fatal("new keys find places where every row is refused")
}

// No more reservations are open than MaxHolds, whatever a batch asks for, and what
// is refused gives its claim back.
func TestMaxHoldsToTheEdge(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 3})
	p := policy(t, "p", perHour(10))
	batch := func(keys ...string) *weir.Batch {
		b := &weir.Batch{Op: weir.ReserveAll, TTL: time.Minute}
		for _, k := range keys {
			b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: k, Cost: 6})
		}
		return do(t, table, b)
	}
	tooMany := func() {
		t.Helper()
		if d := batch("e", "f", "g", "h").Decisions[0]; d.Allowed || d.Reason != weir.QueueFull || d.RetryAfter != weir.Never {
			t.Errorf("more than ever fit: %+v, want that waiting cannot help", d)
		}
	}
	tooMany()
	for range 5 { // the second charge to a does not fit
		if b := batch("a", "a", "b"); b.Allowed() || b.Decisions[1].Reason != weir.Exhausted {
			t.Errorf("%+v", b.Decisions)
		}
	}
	check(t, table)
	if n := table.Stats().Holds; n != 0 {
		t.Errorf("%d reservations are counted, none is open", n)
	}
	if b := batch("a", "b", "c"); !b.Allowed() || table.Stats().Holds != 3 {
		t.Errorf("three fit: %+v, %+v", b.Decisions, table.Stats())
	}
	if d := batch("d").Decisions[0]; d.Allowed || d.RetryAfter != time.Minute {
		t.Errorf("a fourth: %+v", d)
	}
	tooMany()
	check(t, table)
}

// When a reservation that was the first to expire is renewed, refusals say when
// the next one does.
func TestRenewedHoldsAreWaitedForLonger(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 2})
	p := policy(t, "p", perHour(10))
	first := hold1(t, table, p, "a", 1, time.Minute)
	hold1(t, table, p, "b", 1, 2*time.Minute)
	if d := hold1(t, table, p, "c", 1, 0).Decision; d.RetryAfter != time.Minute {
		t.Errorf("until the first expires: %+v", d)
	}
	if ok, err := first.Renew(background(), time.Hour); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if d := hold1(t, table, p, "c", 1, 0).Decision; d.RetryAfter != 2*time.Minute {
		t.Errorf("until the second expires: %+v", d)
	}
}

// Slots that were held without an expiry, under a policy by now that knows none,
// expire, and then take no place any more.
func TestHoldsThatMustExpireAfterAll(t *testing.T) {
	rate := perHour(5)
	cases := map[string]func(t *testing.T, table *Table, held *weir.Policy){
		"by Set":         func(t *testing.T, table *Table, held *weir.Policy) { set(t, table, held, with(t, held, rate)) },
		"by an override": func(t *testing.T, table *Table, held *weir.Policy) { take(t, table, with(t, held, rate), "k", 1) },
	}
	for name, change := range cases {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/full=%t", name, full), func(t *testing.T) {
				c := newClock()
				table := newTable(t, Config{Now: c.Now, MaxKeys: 1, MaxHolds: 1})
				if full {
					jam(t, table)
				}
				held := policy(t, "p", slots)
				if d := hold1(t, table, held, "k", 1, weir.NoExpiry).Decision; !d.Allowed {
					t.Fatalf("%+v", d)
				}
				if d := hold1(t, table, policy(t, "q", rate), "k", 1, time.Minute).Decision; d.RetryAfter != weir.Never {
					t.Errorf("while it has no end: %+v", d)
				}
				change(t, table, held)
				if d := hold1(t, table, policy(t, "q", rate), "k", 1, time.Minute).Decision; d.RetryAfter != compiled.MaxTTL {
					t.Errorf("once it has one: %+v", d)
				}
				c.pass(compiled.MaxTTL)
				r := hold1(t, table, policy(t, "q", rate), "k", 1, time.Minute)
				if !r.Decision.Allowed {
					t.Errorf("the slots' reservation is over, and still counts: %+v, %+v", r.Decision, table.Stats())
				}
			})
		}
	}
}

// waitsIn says whether a goroutine waits for a lock in a function.
func waitsIn(function string) bool {
	buf := make([]byte, 1<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, function) {
			return true
		}
	}
	return false
}

// A reservation is noted in a shard that the sweep for expired ones has passed
// already. Its expiry must be noticed all the same.
func TestSweepMissesNoHold(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 1})
	p := policy(t, "p", perHour(5))
	key := ""
	for i := 0; ; i++ {
		key = fmt.Sprint(i)
		if c, _ := table.charge(&weir.Charge{Policy: p, Key: key}); c.shard == 0 {
			break
		}
	}
	now := int64(c.Now())
	if _, ok := table.claimHolds(now, 1); !ok { // as Reserve does first
		t.Fatal("an empty table is full")
	}
	last := &table.shards[len(table.shards)-1]
	last.mu.Lock()
	swept := make(chan bool)
	go func() {
		_, ok := table.claimHolds(now, 1)
		swept <- ok
	}()
	for !waitsIn("sweepHolds") {
		runtime.Gosched()
	}
	b := &weir.Batch{Op: weir.ReserveAll, TTL: time.Second, Charges: []weir.Charge{{Policy: p, Key: key, Cost: 1}}}
	if err := storeapi.CheckBatch(b); err != nil {
		t.Fatal(err)
	}
	if err := table.tryAll(weir.Instant(now), b); err != nil || !b.Allowed() {
		t.Fatal(b.Decisions, err)
	}
	last.mu.Unlock()
	if <-swept {
		t.Error("two reservations fit where one does")
	}
	c.pass(time.Hour)
	if d := hold1(t, table, p, "other", 1, time.Second).Decision; !d.Allowed {
		t.Errorf("the only reservation has expired long ago: %+v", d)
	}
}

// A reservation that found no place is settled in the overflow row, exactly, also
// after the row was put under other limits; and then its key gets a place.
func TestHoldsInTheOverflowRow(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: 2})
	jam(t, table)
	p := policy(t, "p", perHour(10))
	bigger := with(t, p, perHour(20))
	a, b := hold1(t, table, p, "a", 4, 30*time.Minute), hold1(t, table, p, "b", 5, 30*time.Minute)
	if d := take(t, table, p, "c", 2); d.Allowed || d.Remaining != 1 {
		t.Errorf("a third key has what the two left: %+v", d)
	}
	set(t, table, p, bigger)
	if out := commit(t, a, 1); out != (weir.Settled{Refunded: 3}) {
		t.Errorf("a: %+v", out)
	}
	if d := take(t, table, p, "c", 0); d.Remaining != 14 || d.Limit != 20 {
		t.Errorf("after Set and a refund: %+v", d)
	}
	check(t, table)

	c.pass(10 * time.Minute) // jam's rows are still refusing; five units are paid off
	if out := commit(t, b, 7); out != (weir.Settled{Overrun: 2}) {
		t.Errorf("b: %+v", out)
	}
	c.pass(50 * time.Minute) // jam's rows are unused
	if d := take(t, table, p, "b", 1); !d.Allowed || table.Stats().Keys != 2 {
		t.Errorf("there is a place for b: %+v, %+v", d, table.Stats())
	}
	if n := table.Stats().Holds; n != 0 {
		t.Errorf("%d reservations are counted", n)
	}
	check(t, table)
}

// While somebody holds units in the overflow row, nobody starts with a row of his
// own: what they take would be forgotten when the units come back.
func TestNobodyLeavesAHeldOverflowRow(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: 1})
	jam(t, table)
	c.pass(30 * time.Minute)
	p := policy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(time.Second), Burst: 10})
	r := hold1(t, table, p, "a", 10, time.Hour)
	c.pass(45 * time.Minute) // there is a place by now
	if d := take(t, table, p, "b", 1); d.Allowed {
		t.Errorf("a holds all of the overflow row: %+v, %+v", d, table.Stats())
	}
	if out := commit(t, r, 4); out != (weir.Settled{Refunded: 6}) {
		t.Errorf("%+v", out)
	}
	if d := take(t, table, p, "b", 7); d.Allowed || d.Remaining != 6 {
		t.Errorf("b starts with what a has used: %+v", d)
	}
	if d := take(t, table, p, "b", 6); !d.Allowed || table.Stats().OverflowHits != 3 {
		t.Errorf("and has a row of its own: %+v, %+v", d, table.Stats())
	}
	check(t, table)
}

// A reservation that is never settled keeps its row only until it expires.
func TestExpiredHoldsGiveTheirRowsBack(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: 10})
	p := policy(t, "p", perHour(10))
	for i := range 10 {
		hold1(t, table, p, fmt.Sprint("held", i), 1, time.Minute)
	}
	if take(t, table, p, "new", 1); table.Stats().OverflowHits != 1 {
		t.Errorf("rows with open reservations must stay: %+v", table.Stats())
	}
	c.pass(time.Minute) // the units are used now, and not yet paid off
	take(t, table, p, "newer", 1)
	if s := table.Stats(); s.Evicted != 1 || s.Forgiven != 1 || s.OverflowHits != 1 {
		t.Errorf("one row has to go for the new one: %+v", s)
	}
	c.pass(time.Hour)
	for i := range 10 {
		take(t, table, p, fmt.Sprint("next", i), 1)
	}
	if s := table.Stats(); s.Forgiven != 1 || s.Keys != 10 {
		t.Errorf("the others have nothing in use: %+v", s)
	}
	check(t, table)
}

// A receipt whose row was evicted and made again is late, and does no harm.
func TestReceiptOfAnEvictedRow(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: 1})
	p := policy(t, "p", perHour(10))
	old := hold1(t, table, p, "k", 5, time.Minute)
	c.pass(time.Hour)
	take(t, table, p, "other", 1)
	c.pass(time.Hour)
	young := hold1(t, table, p, "k", 5, time.Minute)
	if out := commit(t, old, 0); out != (weir.Settled{Late: true}) {
		t.Errorf("the old receipt: %+v", out)
	}
	if ok, err := old.Renew(background(), time.Minute); ok || err != nil {
		t.Errorf("the old receipt was renewed: %v, %v", ok, err)
	}
	if out := commit(t, young, 1); out != (weir.Settled{Refunded: 4}) {
		t.Errorf("the new receipt: %+v", out)
	}
	if d := take(t, table, p, "k", 0); d.Remaining != 9 || table.Stats().Holds != 0 {
		t.Errorf("%+v, %+v", d, table.Stats())
	}
	check(t, table)
}

// Reserving nothing is a reservation, also where there is no row to hold it in.
func TestHoldsOfNothing(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxKeys: 1})
	p := policy(t, "p", perHour(10))
	mine, theirs := hold1(t, table, p, "a", 0, time.Minute), hold1(t, table, p, "b", 0, time.Minute)
	check(t, table)
	if s := table.Stats(); s.Keys != 1 || s.Holds != 2 || s.OverflowHits != 1 {
		t.Errorf("%+v", s)
	}
	if x, y := commit(t, mine, 3), commit(t, theirs, 2); x.Overrun != 3 || y.Overrun != 2 {
		t.Errorf("%+v, %+v", x, y)
	}
	for key, want := range map[string]int64{"a": 7, "b": 8} {
		if d := take(t, table, p, key, 0); d.Remaining != want {
			t.Errorf("%s: %+v, want %d remaining", key, d, want)
		}
	}
	check(t, table)
}

// Reservations that nobody settles do not fill the table: there are no more that are over than there
// are others, or about that.
func TestExpiredHoldsAreForgotten(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now})
	p := policy(t, "p", perHour(1000))
	const open = 2000
	for i := range 20 * open {
		hold1(t, table, p, fmt.Sprint("k", i%3000), 1, time.Minute)
		c.pass(time.Minute / open)
	}
	if n := table.Stats().Holds; n < open || n > 3*open {
		t.Errorf("%d reservations are remembered, of which %d are open", n, open)
	}
	check(t, table)
}

// What a table remembers of settled reservations is bounded, and goes with their
// expiry, though nobody asks.
func TestSettledAreForgotten(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, MaxHolds: 10})
	p := policy(t, "p", perHour(1_000_000))
	b := reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "first", Cost: 3})
	settle(t, table, p, "first", b, 1)
	for i := range 5_000 {
		key := strconv.Itoa(i % 7)
		c.pass(100 * time.Millisecond)
		settle(t, table, p, key, reserve(t, table, time.Second, weir.Charge{Policy: p, Key: key, Cost: 3}), 1)
	}
	if n := table.holds.settled.Load(); n > 100 || table.holds.open.Load() != 0 {
		t.Errorf("%d settled reservations are remembered, of which 10 have not expired; %d are open", n, table.holds.open.Load())
	}
	if s := settle(t, table, p, "first", b, 1); !s.Late {
		t.Errorf("settled again long after the expiry: %+v", s)
	}
	// A key without open reservations goes back to its word when the last outcome is
	// forgotten.
	take(t, table, p, "0", 1)
	spilledRows := func() (n int) {
		for i := range table.shards {
			eachRow(&table.shards[i], func(at place) {
				if at.block.spilledAt(at.slot) != nil {
					n++
				}
			})
		}
		return n
	}
	c.pass(time.Second)
	for i := range 7 {
		take(t, table, p, strconv.Itoa(i), 1)
	}
	take(t, table, p, "first", 1)
	if n := spilledRows(); n != 0 {
		t.Errorf("%d rows are not words, with nothing to remember", n)
	}
	check(t, table)
}

// Beyond the bound a key's outcomes are forgotten, and its row is a word again.
func TestTooManySettled(t *testing.T) {
	table := newTable(t, Config{})
	p := policy(t, "p", perHour(1_000_000))
	a := reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "a", Cost: 3})
	b := reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "b", Cost: 3})
	settle(t, table, p, "a", a, 1)
	table.holds.settled.Add(maxSettled)
	if s := settle(t, table, p, "b", b, 1); s != (weir.Settled{Refunded: 2}) {
		t.Errorf("settled: %+v", s)
	}
	table.holds.settled.Add(-maxSettled)
	if s := settle(t, table, p, "b", b, 1); !s.Late {
		t.Errorf("settled again: %+v, want it forgotten", s)
	}
	if s := settle(t, table, p, "a", a, 2); s != (weir.Settled{Refunded: 2}) {
		t.Errorf("settled again: %+v, want the outcome", s)
	}
	check(t, table)
}

// TestOutcomeOfAForgottenName: settling again returns the first outcome also after the
// policy's last row was evicted, and its limits collected.
func TestOutcomeOfAForgottenName(t *testing.T) {
	table := newTable(t, Config{MaxKeys: 1})
	p, q := policy(t, "p", weir.PerMinute(10)), policy(t, "q", weir.PerMinute(10))
	made := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 3}}}
	if err := table.Do(background(), &made); err != nil {
		t.Fatal(err)
	}
	settle := func() weir.Settled {
		b := weir.Batch{Op: weir.Settle, Charges: []weir.Charge{{Policy: p, Key: "k"}}, Receipts: made.Receipts}
		if err := table.Do(background(), &b); err != nil {
			t.Fatal(err)
		}
		return b.Settled[0]
	}
	first := settle()
	if _, err := table.Take(background(), q, "k", 1); err != nil {
		t.Fatal(err)
	}
	table.registry.mu.Lock()
	table.collectLocked()
	table.registry.mu.Unlock()
	if again := settle(); first.Refunded != 3 || again != first {
		t.Errorf("settled as %+v, and again as %+v", first, again)
	}
}
