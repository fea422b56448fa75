package algo

import "testing"

// The tests in this file hold what the random ones leave out on purpose: corners
// where a shortcut of the code could show.

// TestPoisonedLedgerHeals: a word that is far ahead heals in a ledger as it does
// bare.
func TestPoisonedLedgerHeals(t *testing.T) {
	s := gcraSpec(1, second, 5)
	s.debt = 5
	l := NewLedger([]Rule{must(t, s)}, start)
	l.SetState(0, State{A: 1 << 62})
	v := l.Take(start, 1)
	if v.OK || v.RetryAt != start+6*second {
		t.Fatalf("poisoned: %+v", v)
	}
	if v := l.Take(healed(s, start, 1), 1); !v.OK {
		t.Errorf("still poisoned when (burst + debt + cost) × T had passed: %+v", v)
	}
}

// TestStaleNow: a thread that read the clock, was delayed and is then refused must
// not pull a healthy TAT back to where it believes to be (F0.5).
func TestStaleNow(t *testing.T) {
	s := gcraSpec(1, second, 1)
	s.debt = 1
	b := newBare(t, s)
	if !b.take(start, 1) || b.take(start-hour, 1) {
		t.Fatal("once, not twice")
	}
	if b.take(start, 1) {
		t.Error("two units at one instant with a burst of 1: a refusal at an earlier now gave one back")
	}
}

// TestSetFromEstimate: a hold that only counted in part when it was booked anew
// gives back no more than that.
func TestSetFromEstimate(t *testing.T) {
	edge := at(t, "2026-03-04T12:00:00Z")
	l := NewLedger([]Rule{must(t, slidingSpec(10, minute))}, edge)
	id, _ := l.Reserve(edge, 10, Never)
	now := edge + minute + 54*second // a tenth of the hold still counts
	if v := l.Take(now, 8); !v.OK {
		t.Fatalf("%+v", v)
	}
	if err := l.Set(now, []Rule{must(t, fixedSpec(10, hour))}, []int{0}); err != nil {
		t.Fatal(err)
	}
	l.Settle(now, id, 0)
	if v := l.Peek(now, 1); v.Remaining > 2 {
		t.Errorf("8 units of 10 were taken, %d remain after a cancel", v.Remaining)
	}
}

// TestSetHeldBeyondDebt: holds that a new GCRA cannot represent, because the old
// rule no longer counted them, neither poison it nor make it generous.
func TestSetHeldBeyondDebt(t *testing.T) {
	slow := gcraSpec(1, year, 1)
	slow.debt = 1
	for name, from := range map[string][]int{"continued": {0}, "added": {-1}} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger([]Rule{must(t, fixedSpec(1_000, minute))}, start)
			id, _ := l.Reserve(start, 1_000, Never)
			now := start + hour
			if err := l.Set(now, []Rule{must(t, slow)}, from); err != nil {
				return // also an answer
			}
			l.Settle(now, id, 0)
			if v := l.Take(now, 1); !v.OK {
				t.Errorf("nothing is used: %+v", v)
			}
		})
	}
}

// TestZeroStateIsUnused: State's comment says so for every rule.
func TestZeroStateIsUnused(t *testing.T) {
	for _, s := range []ruleSpec{
		gcraSpec(3, second, 3), fixedSpec(3, second), slidingSpec(3, second),
		{kind: kindSlots, rate: 3},
		{kind: kindAnchored, rate: 3, per: second},
		{kind: kindLog, rate: 3, per: second},
	} {
		t.Run(s.kind.String(), func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Error(r)
				}
			}()
			l := NewLedger([]Rule{must(t, s)}, start)
			l.SetState(0, State{})
			if v := l.Take(start, 3); !v.OK {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestTooCostlyComesFirst: a charge that can never fit is too costly, also if
// another rule happens to be held for ever.
func TestTooCostlyComesFirst(t *testing.T) {
	l := NewLedger([]Rule{must(t, ruleSpec{kind: kindSlots, rate: 20}), must(t, gcraSpec(1, second, 15))}, start)
	if _, v := l.Reserve(start, 15, Never); !v.OK {
		t.Fatalf("%+v", v)
	}
	if v := l.Peek(start, 16); !v.TooCostly || v.By != 1 || v.RetryAt != Never {
		t.Errorf("16 can never fit rule 1: %+v", v)
	}
}

// TestSetSplitsLog: two rules that continue one log do not share it.
func TestSetSplitsLog(t *testing.T) {
	log := ruleSpec{kind: kindLog, rate: 9, per: minute}
	l := NewLedger([]Rule{must(t, log)}, start)
	l.Take(start, 1)
	if err := l.Set(start, []Rule{must(t, log), must(t, log)}, []int{0, 0}); err != nil {
		t.Fatal(err)
	}
	if v := l.Take(start, 1); v.Remaining != 7 {
		t.Errorf("%d remaining after 2 of 9", v.Remaining)
	}
}

// TestDualAfterItsTime: when the minute's number no longer fits, in 2083, a dual
// window stalls like a clock that stands; it does not open.
func TestDualAfterItsTime(t *testing.T) {
	d, _ := NewDual(5, 10, 0)
	f := newTwoFixed(t, 5, 10)
	now := Epoch + 1<<25*minute + 7*second
	if !f.take(now, 5) {
		t.Fatal("refused")
	}
	word := d.Pack(f.s, f.m, f.second, f.minute)
	if got := d.Remaining(word, now); got != 0 {
		t.Errorf("5 of 5 taken, packed, %d remain", got)
	}
}

// TestLogAtTheEndsOfTime: an instant that makes now − per overflow frees nothing.
func TestLogAtTheEndsOfTime(t *testing.T) {
	b := newBare(t, ruleSpec{kind: kindLog, rate: 3, per: year})
	b.take(start, 3)
	for _, now := range []int64{-1 << 63, -1<<63 + 1, 0, Epoch} {
		if b.take(now, 1) {
			t.Errorf("at %d: one too many", now)
		}
	}
}
