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

// TestLogInSteps: beyond ExactLogRate never more than the rate in any period, and hardly less.
func TestLogInSteps(t *testing.T) {
	const rate, per = 5000, int64(10_000_000_000)
	l, err := NewSlidingLog(rate, per, 0)
	if err != nil {
		t.Fatal(err)
	}
	g, start := &Log{}, Epoch+year+12_345
	var grants []entry
	total := int64(0)
	for now := start; now < start+6*per; {
		cost := 1 + (total*7)%75
		if l.Take(g, now, cost) {
			grants = append(grants, entry{now, cost})
			total += cost
			continue
		}
		next := l.RetryAt(g, now, cost)
		if next <= now || l.Take(g, next-1, cost) {
			t.Fatalf("refused at %d, retry at %d", now, next)
		}
		now = next
		if n := len(g.entries) - g.head; n > logSteps+2 {
			t.Fatalf("%d entries", n)
		}
	}
	for i, from := 0, 0; i < len(grants); i++ {
		sum := int64(0)
		for from = 0; from < i && grants[from].at <= grants[i].at-per; from++ {
			continue
		}
		for _, e := range grants[from : i+1] {
			sum += e.units
		}
		if sum > rate {
			t.Fatalf("%d units within a period", sum)
		}
	}
	if least := int64(6*rate) * 98 / 100; total < least {
		t.Errorf("%d units in six periods, want at least %d", total, least)
	}
}
