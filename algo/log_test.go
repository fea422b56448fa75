package algo

import "testing"

func TestLogTables(t *testing.T) {
	spec := ruleSpec{kind: kindLog, rate: 3, per: 10 * second}
	for name, rows := range map[string][]want{
		"the example in its comment": {
			{start + 1*second, 1, true, 2},
			{start + 2*second, 1, true, 1},
			{start + 5*second, 1, true, 0},
			{start + 9*second, 2, false, 0},
			{start + 12*second - 1, 2, false, 1},
			{start + 12*second, 2, true, 0},
		},
		"a clock that goes back an hour": {
			{start, 2, true, 1},
			{start - hour, 2, false, 1},
			{start - hour, 1, true, 0}, // counts as taken at start
			{start + 10*second - 1, 1, false, 0},
			{start + 10*second, 3, true, 0},
		},
		"a year idle": {
			{start, 3, true, 0},
			{start + year, 3, true, 0},
			{start + year, 1, false, 0},
		},
	} {
		t.Run(name, func(t *testing.T) { runTable(t, spec, rows) })
	}
}

// TestLogRefunds: entries that were emptied cost nobody his place, so the log
// stays exact however many charges are cancelled.
func TestLogRefunds(t *testing.T) {
	p := newPair(t, []ruleSpec{{kind: kindLog, rate: 3, per: 10 * second}})
	for i := range 6 {
		p.now += second / 10
		p.reserve(1, Never)
		p.settle(0, 0)
		if i == 2 || i == 4 {
			p.take(1)
		}
		p.peekAll()
	}
	p.now += second
	p.take(1)
	p.peekAll()
}

// TestLogBounded: a key's log stays as short as its rate, whatever happens.
func TestLogBounded(t *testing.T) {
	l := must(t, ruleSpec{kind: kindLog, rate: 10, per: minute}).(*SlidingLog)
	ledger := NewLedger([]Rule{l}, start)
	now := start
	for range 5_000 {
		now += second / 3
		ledger.Take(now, 1)
		if id, v := ledger.Reserve(now, 1, now+1); v.OK {
			ledger.Settle(now, id, 3)
		}
	}
	if n := len(ledger.State(0).Log.entries); n > 40 {
		t.Errorf("%d entries for a rate of 10", n)
	}
}
