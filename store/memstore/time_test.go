package memstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A call may read the clock, be held up, and reach its shard when others have been
// there with a later time. It must not act in a past that they have closed.

// late takes as a call does that read the clock at now and was held up since.
func late(t testing.TB, table *Table, now weir.Instant, p *weir.Policy, key string, cost int64) weir.Decision {
	t.Helper()
	d, err := table.takeSlowly(now, charges(p, cost, key))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A row was evicted because its window was over. A late call of its key must not
// begin that window anew.
func TestLateCallsFindNoOldWindow(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{MaxKeys: 1, Now: c.Now})
	p := policy(t, "p", weir.Limit{Rate: 5, Per: weir.Every(time.Minute), Algorithm: weir.FixedWindow})
	take(t, table, p, "a", 5)
	then := c.Now()
	c.pass(time.Minute)
	take(t, table, p, "b", 1) // in a's place
	c.pass(time.Nanosecond)
	late(t, table, then, p, "a", 4) // counts in the window of today, in the overflow row or its own
	if d := take(t, table, p, "a", 2); d.Allowed {
		t.Errorf("a late call was counted in a window that is over: %+v", d)
	}
	check(t, table)
}

// A word was changed, without the lock, at a later time than the late call's. To
// that call it looks like a debt that cannot be; it must not be cut down.
func TestLateCallsForgiveNothing(t *testing.T) {
	kinds := map[string]weir.Limit{
		"gcra":  {Rate: 1, Per: weir.Every(time.Second), Burst: 1, MaxDebt: 1},
		"fixed": {Rate: 1, Per: weir.Every(time.Second), Algorithm: weir.FixedWindow},
		"dual":  {Rate: 1, Per: weir.Every(time.Second), Algorithm: weir.DualWindow},
	}
	for name, limit := range kinds {
		c := newClock()
		table := newTable(t, Config{Now: c.Now})
		p := policy(t, "p", limit)
		take(t, table, p, "k", 1)
		then := c.Now()
		c.pass(time.Hour)
		if d := take(t, table, p, "k", 1); !d.Allowed { // on the word alone
			t.Fatalf("%s: %+v", name, d)
		}
		for _, cost := range []int64{0, 1, 1} {
			if d := late(t, table, then, p, "k", cost); d.Allowed != (cost == 0) {
				t.Errorf("%s: a late call of %d: %+v", name, cost, d)
			}
		}
		if d := take(t, table, p, "k", 1); d.Allowed {
			t.Errorf("%s: a late call has forgiven what was used after it: %+v", name, d)
		}
		check(t, table)
	}
}
