package algo

import "testing"

func TestSlotsWord(t *testing.T) {
	l := must(t, ruleSpec{kind: kindSlots, rate: 3}).(*Slots)
	held := uint64(0)
	for i, c := range []struct {
		take, give int64
		ok         bool
		held       uint64
	}{
		{take: 2, ok: true, held: 2},
		{take: 2, ok: false, held: 2},
		{take: 0, ok: true, held: 2},
		{take: 1, ok: true, held: 3},
		{take: 1, ok: false, held: 3},
		{take: 0, ok: true, held: 3},
		{give: 1, held: 2},
		{take: 4, ok: false, held: 2},
		{give: 9, held: 0},
	} {
		if c.give > 0 {
			held = l.Give(held, c.give)
		} else {
			next, ok := l.Take(held, c.take)
			if ok != c.ok {
				t.Errorf("row %d: %v", i, ok)
			}
			held = next
		}
		if held != c.held {
			t.Errorf("row %d: %d held, want %d", i, held, c.held)
		}
	}
}

// TestSlotsLedger is the example in the type's comment.
func TestSlotsLedger(t *testing.T) {
	l := NewLedger([]Rule{must(t, ruleSpec{kind: kindSlots, rate: 3})}, start)
	one, _ := l.Reserve(start, 1, start+10*second)
	two, _ := l.Reserve(start, 2, start+30*second)
	for _, c := range []struct{ now, cost, retry int64 }{
		{start, 1, start + 10*second},
		{start, 2, start + 30*second},
		{start, 4, Never},
		{start + 10*second - 1, 1, start + 10*second},
	} {
		if v := l.Peek(c.now, c.cost); v.OK || v.RetryAt != c.retry {
			t.Errorf("%+v: %+v", c, v)
		}
	}
	if v := l.Peek(start+10*second, 1); !v.OK || v.Remaining != 1 {
		t.Errorf("after the first expiry: %+v", v)
	}
	if got := l.Settle(start+11*second, one, 1); !got.Late {
		t.Errorf("settled after expiry: %+v", got)
	}
	if got := l.Settle(start+11*second, two, 2); got.Late {
		t.Errorf("settled in time: %+v", got)
	}
	if v := l.Peek(start+11*second, 3); !v.OK || v.ResetAt != start+11*second {
		t.Errorf("all free: %+v", v)
	}
	l.Reserve(start+12*second, 3, Never)
	if v := l.Peek(start+13*second, 1); v.OK || v.RetryAt != Never || v.TooCostly || v.ResetAt != Never {
		t.Errorf("held for ever: %+v", v)
	}
}
