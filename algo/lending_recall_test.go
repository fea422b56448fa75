package algo

import (
	"slices"
	"testing"
)

// tenSeconds returns a ledger with a rate that two classes share, and a window that has room for little more.
func tenSeconds(t *testing.T) *Ledger {
	t.Helper()
	lending, err := NewLending(485, second, 1250, 0, 0, []Share{{Class: "realtime", Rate: 291, Burst: 750}, {Class: "backfill", Rate: 194, Burst: 500}})
	if err != nil {
		t.Fatal(err)
	}
	window, err := NewSlidingLog(5000, 10*second+second/10, 0)
	if err != nil {
		t.Fatal(err)
	}
	return NewLedger([]Rule{lending, window}, start)
}

// A borrower takes 20 units whenever it can.
type borrower struct {
	ledger *Ledger
	at     int64 // of its next try
	units  int64
}

func (b *borrower) until(at int64) {
	b.ledger.SetClass("backfill")
	for b.at < at {
		if v := b.ledger.Take(b.at, 20); v.OK {
			b.units += 20
		} else {
			b.at = v.RetryAt
		}
	}
}

// wait returns when a call of another class is admitted that comes back whenever it is told to.
func (b *borrower) wait(now, cost int64) int64 {
	for {
		b.until(now)
		b.ledger.SetClass("realtime")
		v := b.ledger.Take(now, cost)
		if v.OK {
			return now
		}
		b.ledger.Recall(now, cost, false)
		now = v.RetryAt
	}
}

// TestLendingRecall: with a window that a borrower keeps full, calls of another class within its guaranteed
// rate and burst wait no longer than it takes to get as many units at that rate, give or take one call, and
// what is lent is used meanwhile. Without recalls, those of 250 units would wait forever.
func TestLendingRecall(t *testing.T) {
	for _, cost := range []int64{26, 40, 120, 250, 500} {
		for _, pause := range []int64{second, 3 * second, 17 * second} {
			b := &borrower{ledger: tenSeconds(t), at: start}
			now, longest := start+10*60*second, int64(0) // the traces of the first burst are gone
			for range 40 {
				at := b.wait(now, cost)
				longest = max(longest, at-now)
				now = at + pause + cost*second/291
			}
			b.until(now)
			if most := (cost + 26) * second / 291; longest > most {
				t.Errorf("cost %d every %d s: waited up to %d ms, want at most %d", cost, pause/second, longest/1e6, most/1e6)
			}
			if used, most := b.units+40*cost, 485*(now-start)/second; used < most*99/100 {
				t.Errorf("cost %d every %d s: %d of %d units were used", cost, pause/second, used, most)
			}
		}
	}
}

// TestRecallIsOfOwnLevel: only units of the class's own level are recalled, and only from other rules.
func TestRecallIsOfOwnLevel(t *testing.T) {
	l := tenSeconds(t)
	take := func(class string, cost int64) Verdict {
		l.SetClass(class)
		return l.Take(start, cost)
	}
	recalls := func(class string, cost int64, want bool) {
		t.Helper()
		l.SetClass(class)
		if got := l.Recall(start, cost, false); got != want {
			t.Errorf("Recall for %d of %s = %v", cost, class, got)
		}
	}
	recalls("realtime", 500, false) // it is admitted
	l.SetState(1, State{Log: &Log{}})
	l.rules = slices.Clone(l.rules)
	l.rules[1], _ = NewSlidingLog(600, 10*second, 0)
	if v := take("backfill", 500); !v.OK {
		t.Fatalf("%+v", v)
	}
	recalls("realtime", 751, false) // it never fits
	recalls("backfill", 250, false) // the level is used up
	recalls("realtime", 100, false) // it is admitted
	recalls("realtime", 601, false) // it never fits the window
	recalls("realtime", 250, true)
	recalls("realtime", 250, false) // nothing has changed
	v := take("backfill", 20)
	if v.OK || v.By != 0 {
		t.Errorf("backfill borrows after a recall: %+v", v)
	}
}
