package memstore

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Sets of limits come and go; their ids are few.

// burst is a set of limits like no other: all of them convert into each other
// without a rounding.
func burst(t testing.TB, name string, n int) *weir.Policy {
	t.Helper()
	return policy(t, name, weir.Limit{Rate: 1000, Per: weir.Every(time.Hour), Burst: 1000 + int64(n)})
}

// crowdIDs registers sets of limits that no row has until one more makes the table
// look for such.
func crowdIDs(t testing.TB, table *Table) {
	t.Helper()
	for i := 0; table.registry.ids < table.registry.lookAt; i++ {
		if _, err := weir.Peek(background(), table, policy(t, fmt.Sprint("other", i), perHour(1)), "k", 1); err != nil {
			t.Fatal(err)
		}
	}
}

// within fails if f does not return in time: what is looked for hangs.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s has not returned", what)
	}
}

// New limits of a name whose others are forgotten at that moment.
func TestNumbersOfANameThatWasForgotten(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(10))
	if _, err := weir.Peek(background(), table, p, "k", 1); err != nil {
		t.Fatal(err)
	}
	crowdIDs(t, table)
	take(t, table, with(t, p, perHour(20)), "k", 10)
	if d := take(t, table, p, "k", 1); d.Allowed {
		t.Errorf("the key has two rows: %+v", d)
	}
	check(t, table)
}

// Set between limits that no row has, while such are looked for.
func TestSetOfUnusedLimits(t *testing.T) {
	for _, crowded := range []string{"before", "after"} {
		table := newTable(t, Config{Now: newClock().Now})
		p := policy(t, "p", perHour(10))
		if _, err := weir.Peek(background(), table, p, "k", 1); err != nil {
			t.Fatal(err)
		}
		if crowded == "before" {
			crowdIDs(t, table)
		}
		set(t, table, p, with(t, p, perHour(20)))
		if crowded == "after" {
			crowdIDs(t, table)
			take(t, table, policy(t, "q", perHour(1)), "k", 1)
		}
		within(t, "take after Set, crowded "+crowded, func() {
			if d := take(t, table, p, "k", 1); d.Limit != 20 {
				t.Errorf("crowded %s: Set was forgotten: %+v", crowded, d)
			}
		})
		check(t, table)
	}
}

// Many more sets of limits than there are ids, one after the other on one key.
func TestIDsAreUsedAgain(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	n := short(5_000, 200_000)
	for i := range n {
		used := int64(i+9) / 10
		if d := take(t, table, burst(t, "p", i), "k", 0); d.Remaining != d.Limit-used {
			t.Fatalf("set %d: %+v, want %d used", i, d, used)
		}
		if i%10 == 0 {
			take(t, table, burst(t, "p", i), "k", 1)
		}
	}
	if ids := table.registry.ids; ids > 200 {
		t.Errorf("%d ids were needed for two sets at a time", ids)
	}
	check(t, table)
}

// With all ids in use the next set of limits is an error that changes nothing;
// when rows have gone, theirs are free.
func TestIDsRunOut(t *testing.T) {
	c := newClock()
	const real = 1000
	table := newTable(t, Config{Now: c.Now, MaxKeys: real})
	for i := range real {
		take(t, table, burst(t, "p", i), user(i), 1)
	}
	useUpIDs(table, 0)
	extra := burst(t, "p", maxSets)
	for _, key := range []string{user(0), "new"} {
		if _, err := table.Take(background(), extra, key, 1); !errors.Is(err, errTooManySets) {
			t.Errorf("one set too many, on %q: %v", key, err)
		}
	}
	if err := table.Set(background(), burst(t, "p", 0), extra); !errors.Is(err, errTooManySets) {
		t.Errorf("Set to one too many: %v", err)
	}
	if d := take(t, table, burst(t, "p", 0), user(0), 1); d.Remaining != 998 {
		t.Errorf("those that are in use go on: %+v", d)
	}
	if _, err := table.Take(background(), policy(t, "q", perHour(1)), "k", 1); !errors.Is(err, errTooManySets) || table.registry.names["q"] != nil {
		t.Errorf("a name without limits is kept: %v", err)
	}
	c.pass(time.Hour) // and 1,000 ids can be free, which are left to Set
	set(t, table, burst(t, "p", 0), extra)
	if d := take(t, table, extra, "new", 1); !d.Allowed || d.Limit != 1000+maxSets {
		t.Errorf("some ids are free: %+v", d)
	}
}

// useUpIDs makes all ids but so many those of a row that is in use.
func useUpIDs(table *Table, left int) {
	r := &table.registry
	one := *r.at(0).policy
	for ; r.ids < maxSets-left; r.ids++ {
		n := newCompiledLimits(uint16(r.ids), r.at(0).of, &one)
		n.pin()
		r.put(n)
	}
}

// Set in a long chain: who brings one of the last hundred means the one in force.
func TestReplacementsGoBackSoFar(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 100})
	const versions = maxReplaced + 50
	take(t, table, burst(t, "p", 0), "k", 100)
	for i := range versions - 1 {
		set(t, table, burst(t, "p", i), burst(t, "p", i+1))
		take(t, table, burst(t, "q", i), "k", 1)
	}
	check(t, table)
	if n := len(table.registry.names["p"].replaced); n != maxReplaced {
		t.Errorf("%d replacements are remembered, want %d", n, maxReplaced)
	}
	newest := int64(1000 + versions - 1)
	for i := range versions {
		want := newest
		if i < versions-1-maxReplaced {
			want = int64(1000 + i) // is forgotten, and means itself
		}
		if d := take(t, table, burst(t, "p", i), "k", 0); d.Limit != want || d.Remaining != want-100 {
			t.Errorf("version %d: %+v, want %d", i, d, want)
		}
	}
	for i := range 300 { // and once more, with other limits coming and going
		take(t, table, burst(t, "r", i), "k", 1)
	}
	if d := take(t, table, burst(t, "p", versions-5), "k", 0); d.Limit != newest {
		t.Errorf("%+v, want %d", d, newest)
	}
	check(t, table)
}

// An overflow row is converted by Set, whether its limits were looked for or not.
func TestSetReachesTheOverflowRow(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		c := newClock()
		table := newTable(t, Config{Now: c.Now, MaxKeys: 1})
		jam(t, table)
		window := weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow}
		p := policy(t, "p", perHour(10))
		take(t, table, p, "k", 10)
		if crowded {
			crowdIDs(t, table)
			take(t, table, policy(t, "q", perHour(1)), "k", 1)
		}
		set(t, table, p, with(t, p, window))
		c.pass(30 * time.Minute)
		if d := take(t, table, p, "k", 0); d.Remaining != 0 {
			t.Errorf("crowded %t: what was used at Set counts until the window ends: %+v", crowded, d)
		}
		check(t, table)
	}
}

// waitFor lets others go on until one of them waits for a lock in a function, or
// all is done.
func waitFor(function string, done <-chan struct{}) {
	for !waitsIn(function) {
		select {
		case <-done:
			return
		default:
			runtime.Gosched()
		}
	}
}

// A call is about to write a row under limits that no row has. Whoever looks for
// such waits for it.
func TestNumbersOfACallStay(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now})
	p := policy(t, "p", perHour(10))
	v, err := table.enter(0, charges(p, 1, "k"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		table.registry.mu.Lock()
		defer table.registry.mu.Unlock()
		table.collectLocked()
	}()
	waitFor("collectLocked", done)
	if d, err := v.change(&v.charges[0], weir.TakeEach); err != nil || !d.Allowed {
		t.Error(d, err)
	}
	v.leave()
	<-done
	take(t, table, policy(t, "q", perHour(10)), "k", 1) // may get an id that was freed
	if d := take(t, table, p, "k", 0); d.Remaining != 9 {
		t.Errorf("%+v", d)
	}
	check(t, table)
}

// A call has found out which limits are in force, and waits for its shard while
// Set replaces them: it must find out again.
func TestCallsThatMeetSet(t *testing.T) {
	table := newTable(t, Config{Now: newClock().Now, MaxKeys: 10})
	p := policy(t, "p", perHour(10))
	from, err := table.resolve(p)
	if err != nil {
		t.Fatal(err)
	}
	to, err := table.register(with(t, p, perHour(20)))
	if err != nil {
		t.Fatal(err)
	}
	table.shards[0].mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if d, err := table.Take(background(), p, "k", 1); err != nil || d.Limit != 20 {
			t.Errorf("the call is decided by what was replaced: %+v, %v", d, err)
		}
	}()
	waitFor("enter", done)
	table.replace(from, to)
	to.unpin()
	table.shards[0].mu.Unlock()
	<-done
	check(t, table)
}
