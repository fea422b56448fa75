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

// TestRecallOfWhatReturns: units are recalled only if the limits that refuse them have room sooner when less is
// used until then.
func TestRecallOfWhatReturns(t *testing.T) {
	must := func(r Rule, err error) Rule {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	month := NewCalendar(Month, nil)
	gcra := func() Rule { return must(NewGCRA(600, 10*second, 600, 0, 0)) }
	log := func() Rule { return must(NewSlidingLog(600, 10*second, 0)) }
	estimate := func() Rule { return must(NewSliding(600, 10*second, 0)) }
	fixed := func() Rule { return must(NewFixed(600, 10*second, 0)) }
	anchored := func() Rule { return must(NewAnchored(600, 10*second, 0)) }
	calendar := func() Rule { return must(NewCalendarFixed(600, month, 0)) }
	slots := func() Rule { return must(NewSlots(600)) }
	paced := func(rate int64) Rule { return must(NewPaced(rate, month, 0, []string{"realtime"})) }
	for _, tt := range []struct {
		name  string
		rules []Rule // beside the one with classes
		want  bool
	}{
		{"gcra", []Rule{gcra()}, true},
		{"log", []Rule{log()}, true},
		{"estimate", []Rule{estimate()}, true},
		{"window of a duration", []Rule{fixed()}, false},
		{"window that opens with a charge", []Rule{anchored()}, false},
		{"month that is used up", []Rule{calendar()}, false},
		{"month that is used up, paced", []Rule{paced(600)}, false},
		{"pace", []Rule{paced(800)}, false},
		{"slots", []Rule{slots()}, false},
		{"log and month", []Rule{log(), calendar()}, false},
		{"log, and a month with room", []Rule{log(), must(NewCalendarFixed(6000, month, 0))}, true},
		{"log, and a month that is paced for another class", []Rule{log(), must(NewPaced(6000, month, 0, []string{"backfill"}))}, true},
	} {
		lending := must(NewLending(500, second, 1200, 0, 0, []Share{{Class: "realtime", Rate: 300, Burst: 300}, {Class: "backfill", Rate: 200, Burst: 200}}))
		l := NewLedger(append([]Rule{lending}, tt.rules...), start)
		l.SetClass("backfill")
		if _, v := l.Reserve(start, 500, start+100*second); !v.OK {
			t.Fatalf("%s: %+v", tt.name, v)
		}
		l.SetClass("realtime")
		if v := l.Take(start, 300); v.OK || v.By == 0 {
			t.Fatalf("%s: %+v", tt.name, v)
		}
		if got := l.Recall(start, 300, false); got != tt.want {
			t.Errorf("%s: recalled: %v, want %v", tt.name, got, tt.want)
		}
	}
}
