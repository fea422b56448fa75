package algo

import "testing"

func TestAnchoredTables(t *testing.T) {
	spec := ruleSpec{kind: kindAnchored, rate: 3, per: 10 * second}
	zero := start // aligned to nothing
	for name, rows := range map[string][]want{
		"the example in its comment": {
			{zero + 4*second, 1, true, 2},
			{zero + 5*second, 1, true, 1},
			{zero + 12*second, 1, true, 0},
			{zero + 14*second - 1, 1, false, 0},
			{zero + 14*second, 1, true, 2},
			{zero + 24*second - 1, 2, true, 0},
			{zero + 24*second - 1, 1, false, 0},
			{zero + 24*second, 3, true, 0},
		},
		"nothing and too much open no window": {
			{zero, 0, true, 3},
			{zero, 4, false, 3},
			{zero + 9*second, 3, true, 0},
			{zero + 10*second, 1, false, 0},
			{zero + 19*second, 1, true, 2},
		},
		"a clock that goes back an hour": {
			{zero, 3, true, 0},
			{zero - hour, 1, false, 0},
			{zero + 10*second - 1, 1, false, 0},
			{zero + 10*second, 1, true, 2},
		},
		"a year idle": {
			{zero, 3, true, 0},
			{zero + year, 3, true, 0},
			{zero + year + 10*second - 1, 1, false, 0},
		},
	} {
		t.Run(name, func(t *testing.T) { runTable(t, spec, rows) })
	}
	runTable(t, ruleSpec{kind: kindAnchored, rate: 1, per: second}, []want{
		{zero, 1, true, 0}, {zero, 1, false, 0}, {zero + second - 1, 1, false, 0}, {zero + second, 1, true, 0},
	})
}

// TestAnchoredCancel: a window that was opened by a charge that was given back
// is as if never opened.
func TestAnchoredCancel(t *testing.T) {
	a := must(t, ruleSpec{kind: kindAnchored, rate: 3, per: 10 * second})
	l := NewLedger([]Rule{a}, start)
	id, _ := l.Reserve(start, 3, Never)
	l.Settle(start+second, id, 0)
	if !l.Unused(start + second) {
		t.Error("not unused after a cancel")
	}
	v := l.Take(start+9*second, 3)
	if !v.OK || v.ResetAt != start+19*second {
		t.Errorf("the window must open with the charge: %+v", v)
	}
}
