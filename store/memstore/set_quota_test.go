package memstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Many more sets of limits than there are ids, each on a key of its own that is soon as if
// unused: their sets are used again, and few walks find them.
func TestSetsOfIdleRowsAreUsedAgain(t *testing.T) {
	skipRaced(t)
	c := newClock()
	table := newTable(t, Config{Now: c.Now})
	const sets = maxSets + 5000
	for i := range sets {
		if d := take(t, table, burst(t, "p", i), user(i), 1); !d.Allowed || d.Limit != int64(1000+i) {
			t.Fatalf("set %d: %+v", i, d)
		}
		c.pass(time.Millisecond) // and after 3.6 s the unit is free again
	}
	if walks := table.registry.walks; walks > 200 {
		t.Errorf("%d walks for %d sets", walks, sets)
	}
	if f := table.Stats().Forgiven; f != 0 {
		t.Errorf("%d units were forgiven", f)
	}
	check(t, table)
}

// A sweep drops rows of sets that are idle, and nothing that somebody would miss.
func TestSweepForgivesNothing(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now})
	idle, busy := burst(t, "idle", 0), burst(t, "busy", 0)
	empty := policy(t, "empty", weir.Limit{Rate: 60, Per: weir.Every(time.Minute), Initial: weir.Filled(0)})
	c.pass(5 * time.Second)
	take(t, table, idle, "k", 1)
	take(t, table, busy, "idle", 1)
	take(t, table, busy, "busy", 1000)
	held := reserve(t, table, time.Minute, weir.Charge{Policy: burst(t, "held", 0), Key: "k", Cost: 1})
	take(t, table, empty, "k", 1)
	if err := weir.Reset(background(), table, empty, "k"); err != nil {
		t.Fatal(err)
	}
	c.pass(10 * time.Second)
	if !table.sweep(fromCall) {
		t.Fatal("no sweep")
	}
	if keys := table.Stats().Keys; keys != 4 || table.registry.names["idle"] != nil {
		t.Errorf("%d rows are left, want 4", keys)
	}
	if table.sweep(fromCall) {
		t.Error("a second sweep in no time")
	}
	if d := take(t, table, empty, "k", 0); d.Remaining != 60 {
		t.Errorf("who has no row starts with less: %+v", d)
	}
	if d := take(t, table, busy, "busy", 0); d.Remaining > 3 {
		t.Errorf("%+v", d)
	}
	if s := settle(t, table, burst(t, "held", 0), "k", held, 0); s.Late {
		t.Errorf("the reservation has gone: %+v", s)
	}
	check(t, table)
}

// One policy's calls bring no end of different limits, all in use. They are refused at some
// point; others get theirs, and Set works.
func TestOnePolicyDoesNotUseUpAllSets(t *testing.T) {
	skipRaced(t)
	c := newClock()
	table := newTable(t, Config{Now: c.Now})
	n, err := flood(t, table, "greedy", 0)
	if !errors.Is(err, weir.ErrInvalid) || n < maxSets/8 || n > maxSets/4 {
		t.Fatalf("after %d sets: %v", n, err)
	}
	const attempts = 10_000
	before := table.registry.walks
	for i := range attempts {
		if _, err := table.Take(background(), burst(t, "greedy", n+i), "greedy"+user(i), 1); !errors.Is(err, weir.ErrInvalid) {
			t.Fatalf("set %d: %v", n+i, err)
		}
	}
	if walks := table.registry.walks - before; walks > attempts*stepsPerAttempt/n+2 {
		t.Errorf("%d attempts cost %d walks", attempts, walks)
	}
	if d := take(t, table, burst(t, "greedy", 0), "greedy"+user(0), 0); d.Remaining != 999 {
		t.Errorf("a refused call was charged: %+v", d)
	}
	for i := range 2000 {
		take(t, table, burst(t, "modest", i), user(i), 1)
	}
	for i := range 10 {
		set(t, table, burst(t, "greedy", i), burst(t, "greedy", 2*maxSets+i))
		set(t, table, policy(t, fmt.Sprint("new", i), perHour(1)), policy(t, fmt.Sprint("new", i), perHour(2)))
	}
	check(t, table)
}

// flood takes with one set of limits after the other, each on a key of its own, until one is
// refused.
func flood(t *testing.T, table *Table, name string, from int) (int, error) {
	for i := range maxSets {
		if _, err := table.Take(background(), burst(t, name, from+i), name+user(i), 1); err != nil {
			return i, err
		}
	}
	return maxSets, nil
}

// Twenty policies take all they can get. Who comes after them finds room for a few hundred.
func TestFloodOfManyPolicies(t *testing.T) {
	skipRaced(t)
	table := newTable(t, Config{Now: newClock().Now})
	for i := range 20 {
		_, _ = flood(t, table, fmt.Sprint("greedy", i), 0)
	}
	n, err := flood(t, table, "modest", 0)
	if n < 100 {
		t.Errorf("%d sets, then %v", n, err)
	}
	set(t, table, burst(t, "modest", 0), burst(t, "modest", -1))
}

// Even invented names leave room for Set, and where a great many Sets have used that, older
// replacements go.
func TestSetFindsRoom(t *testing.T) {
	skipRaced(t)
	table := newTable(t, Config{Now: newClock().Now})
	p := func(i int) *weir.Policy { return policy(t, fmt.Sprint("n", i), perHour(1)) }
	for i := 0; ; i++ {
		if _, err := table.Take(background(), p(i), "k", 1); err != nil {
			if !errors.Is(err, weir.ErrInvalid) || i != maxSets-reserved {
				t.Fatalf("name %d: %v", i, err)
			}
			break
		}
	}
	set(t, table, p(0), policy(t, "n0", perHour(2)))
	check(t, table)

	crowded := newTable(t, Config{Now: newClock().Now, MaxKeys: 100})
	take(t, crowded, burst(t, "p", 0), "k", 1)
	useUpIDs(crowded, 300)
	for i := range 1000 {
		name := fmt.Sprint("n", i%100)
		set(t, crowded, burst(t, name, i), burst(t, name, i+100))
	}
}

// skipRaced skips tests of one goroutine that would take a minute under the race detector.
func skipRaced(t *testing.T) {
	t.Helper()
	if raced() {
		t.Skip("one goroutine")
	}
}
