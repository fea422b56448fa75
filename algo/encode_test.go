package algo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// reload puts a copy that went through its encoding in the ledger's place.
func (p *pair) reload() {
	p.t.Helper()
	p.note("reload")
	data := p.real.AppendBinary(nil)
	restored := NewLedger([]Rule{must(p.t, gcraSpec(1, second, 1))}, 0) // what it was before must not matter
	if err := restored.ReadBinary(p.real.rules, data); err != nil {
		p.fail("%v: %x", err, data)
	}
	if again := restored.AppendBinary(nil); !bytes.Equal(data, again) {
		p.fail("written as %x, read and written again as %x", data, again)
	}
	p.real = restored
}

// TestEncodingIsInvisible: a ledger that is written and read now and then decides
// as the model does. Every rule, several at once, holds, overruns, other rules.
func TestEncodingIsInvisible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := fromRapid(t, 60)
		specs := make([]ruleSpec, between(src, 1, 3))
		for i := range specs {
			specs[i] = drawSpec(src, allKinds...)
		}
		p := newPair(t, specs)
		for src.more() {
			if oneIn(src, 2) {
				p.reload()
			}
			p.step(src, true)
		}
		p.finish()
	})
}

// TestEncodingOfALoweredLog: the log of a rule that was lowered has more entries
// than the rule has units.
func TestEncodingOfALoweredLog(t *testing.T) {
	log := func(rate int64) ruleSpec { return ruleSpec{kind: kindLog, rate: rate, per: hour} }
	p := newPair(t, []ruleSpec{log(10)})
	for range 10 {
		p.take(1)
		p.now += second
	}
	p.set([]ruleSpec{log(3)})
	p.reload()
	p.peekAll()
}

// TestEncodingOfAnOverrunLog: an entry that was overrun beyond all measure is
// kept as one that no wait will see the end of, not refused with the whole file.
func TestEncodingOfAnOverrunLog(t *testing.T) {
	rules := []Rule{must(t, ruleSpec{kind: kindLog, rate: 3, per: hour})}
	l := NewLedger(rules, start)
	for range maxLogEntries { // an overrun each
		id, _ := l.Reserve(start, 0, start+hour)
		l.Settle(start, id, MaxCost)
	}
	restored := &Ledger{}
	if err := restored.ReadBinary(rules, l.AppendBinary(nil)); err != nil {
		t.Fatal(err)
	}
	if a, b := l.Peek(start, 1), restored.Peek(start, 1); a != b {
		t.Errorf("%+v, then %+v", a, b)
	}
	if g := restored.states[0].Log; g.sum <= 0 || g.sum > maxCount {
		t.Errorf("%d units in use", g.sum)
	}
}

// fullLedger is a ledger with something of everything in it.
func fullLedger(t testing.TB) *Ledger {
	l := NewLedger([]Rule{
		must(t, gcraSpec(10, second, 50)), must(t, fixedSpec(50, hour)), must(t, slidingSpec(50, minute)),
		must(t, ruleSpec{kind: kindLog, rate: 50, per: hour}), must(t, ruleSpec{kind: kindAnchored, rate: 50, per: hour}),
	}, start)
	l.Take(start, 3)
	l.Reserve(start+1, 4, start+minute)
	l.Reserve(start+2, 5, start+hour)
	if err := l.Set(start+3, l.rules, []int{1, 0, 2, 3, 4}); err != nil { // the holds are rebooked
		t.Fatal(err)
	}
	l.Reserve(start+4, 1, Never)
	id, _ := l.Reserve(start+5, 3, start+hour)
	l.Settle(start+6, id, 2)
	return l
}

// TestEncodingCutShort: nothing but the whole is a ledger.
func TestEncodingCutShort(t *testing.T) {
	l := fullLedger(t)
	data := l.AppendBinary(nil)
	for n := range data {
		if err := new(Ledger).ReadBinary(l.rules, data[:n]); !errors.Is(err, ErrEncoding) {
			t.Errorf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	if err := new(Ledger).ReadBinary(l.rules, append(data, 0)); !errors.Is(err, ErrEncoding) {
		t.Errorf("one more byte: %v", err)
	}
	if err := new(Ledger).ReadBinary(l.rules[:4], data); !errors.Is(err, ErrEncoding) {
		t.Errorf("other rules: %v", err)
	}
}

// TestBadEncodings are those that only a mistake or an enemy writes.
func TestBadEncodings(t *testing.T) {
	rate, log := gcraSpec(1, second, 3), ruleSpec{kind: kindLog, rate: 3, per: hour}
	head := func(states ...int64) []byte { // format, last, next id, A and B, then as given
		b := binary.AppendVarint(nil, format)
		b = binary.AppendVarint(b, start)
		b = append(b, 2, 0, 0)
		for _, n := range states {
			b = binary.AppendVarint(b, n)
		}
		return b
	}
	// A count n is written as uvarint, which as varint is n/2 or so.
	count := func(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }
	for name, c := range map[string]struct {
		spec ruleSpec
		data []byte
	}{
		"more holds than bytes":  {rate, head(count(9_000))},
		"too many holds":         {rate, head(count(MaxHolds + 1))},
		"endless number":         {rate, bytes.Repeat([]byte{0xff}, 100)},
		"negative hold":          {rate, head(count(1), count(1), -1, start, start)},
		"huge hold":              {rate, head(count(1), count(1), MaxCost+1, start, start, count(0))},
		"holds out of order":     {rate, head(count(2), count(1), 1, start+2, start, count(2), 1, start+1, start, count(0))},
		"two holds of one id":    {rate, head(count(2), count(1), 1, start+1, start, count(1), 1, start+2, start, count(0))},
		"rebooked to more rules": {rate, head(count(1), count(1), 1, start, start, count(2), count(1), count(0), 0, start, count(1), count(0), 0, start)},
		"nothing was rebooked":   {rate, head(count(0), count(1), count(1), count(0), 0, start)},
		"too many outcomes":      {rate, append(head(count(0), count(0), count(MaxOutcomes+1)), make([]byte, 4*MaxOutcomes+4)...)},
		"more entries than data": {log, head(count(60_000))},
		"too many entries":       {log, append(head(count(maxLogEntries+1)), make([]byte, 2*maxLogEntries+2)...)},
		"empty entry":            {log, head(count(1), start, 0, count(0))},
		"negative entry":         {log, head(count(1), start, -1, count(0))},
		"entries out of order":   {log, head(count(2), start, 1, start, 1, count(0))},
		"entry out of time":      {log, head(count(1), math.MaxInt64, 1, count(0))},
	} {
		for nothing := range 5 { // whatever else it has none of
			data := append(slices.Clone(c.data), make([]byte, nothing)...)
			if err := new(Ledger).ReadBinary([]Rule{must(t, c.spec)}, data); !errors.Is(err, ErrEncoding) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := new(Ledger).ReadBinary([]Rule{must(t, log)}, head(count(1), start, 1, count(1), count(1), 1, start, start, count(1), count(1), count(0), 0, start, count(1), count(7), start, 1, 0)); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// FuzzLedgerBinary: whatever is read as a ledger is one, and writes what it read.
func FuzzLedgerBinary(f *testing.F) {
	l := fullLedger(f)
	f.Add([]byte{0}, NewLedger([]Rule{must(f, gcraSpec(10, second, 1))}, start).AppendBinary(nil), start, int64(1))
	f.Add([]byte{255, 3, 1, 4}, l.AppendBinary(nil), start+hour, int64(2))
	f.Add([]byte{2, 5, 9, 0, 5, 9, 0, 5}, l.AppendBinary(nil), int64(math.MaxInt64), MaxCost)
	f.Fuzz(func(t *testing.T, shape, data []byte, now, cost int64) {
		src := &byteSource{shape}
		rules := make([]Rule, between(src, 1, 5))
		for i := range rules {
			rules[i] = must(t, drawSpec(src, allKinds...))
		}
		l, again := &Ledger{}, &Ledger{}
		if l.ReadBinary(rules, data) != nil {
			return
		}
		if err := again.ReadBinary(rules, l.AppendBinary(nil)); err != nil || !bytes.Equal(l.AppendBinary(nil), again.AppendBinary(nil)) {
			t.Fatalf("%x, then %x: %v", l.AppendBinary(nil), again.AppendBinary(nil), err)
		}
		useFuzzed(t, l, now, clampCost(cost))
	})
}

// useFuzzed does everything with a ledger that may say anything. It must not panic,
// and what remains must make sense.
func useFuzzed(t *testing.T, l *Ledger, now, cost int64) {
	check := func(v Verdict) {
		t.Helper()
		if v.Remaining < 0 || v.Remaining > v.Limit {
			t.Fatalf("%+v", v)
		}
	}
	check(l.Peek(now, cost))
	check(l.Take(now, cost))
	l.Usage(now)
	l.Unused(now)
	id, v := l.Reserve(now, 1, now+min(hour, math.MaxInt64-max(now, 0)))
	check(v)
	holds := []Hold{{ID: id}}
	for h := range l.holds.all() {
		holds = append(holds, *h)
	}
	for _, h := range holds {
		l.Renew(now, h.ID, h.Expiry)
		l.Settle(now, h.ID, cost)
	}
	_ = l.Clone().Set(now, l.rules, make([]int, len(l.rules)))
	l.Reset(now)
	check(l.Peek(now, cost))
}

// TestFirstEncoding: what was written before holds were rebooked all at once is read,
// and what a window cannot tell is forfeited.
func TestFirstEncoding(t *testing.T) {
	window := fixedSpec(50, hour)
	old := func(at ...int64) []byte { // two holds, with when they count as charged
		b := binary.AppendVarint(nil, start)
		b = append(b, 2)
		b = binary.AppendUvarint(b, must(t, window).(*Fixed).number(start)<<must(t, window).(*Fixed).shift|7)
		b = append(b, 0, 2)
		for id, units := range []int64{3, 4} {
			b = append(b, byte(id+1))
			b = binary.AppendVarint(b, units)
			b = binary.AppendVarint(b, start+minute)
			b = binary.AppendVarint(b, start)
			b = append(b, byte(len(at)))
			for _, a := range at {
				b = binary.AppendVarint(b, a)
			}
		}
		return b
	}
	for name, c := range map[string]struct {
		data   []byte
		refund int64
	}{
		"never rebooked":        {old(), 4},
		"rebooked as it was":    {old(start), 4},
		"rebooked later":        {old(start + 1), 0},
		"rebooked to nowhere":   {old(forfeited), 0},
		"and written once more": {rewritten(t, window, old(forfeited)), 0},
	} {
		l := &Ledger{}
		if err := l.ReadBinary([]Rule{must(t, window)}, c.data); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v := l.Peek(start, 1); v.Remaining != 43 || l.Holds() != 2 {
			t.Errorf("%s: %d holds, %+v", name, l.Holds(), v)
		}
		if out := l.Settle(start, 2, 0); out != (Settlement{Refunded: c.refund}) {
			t.Errorf("%s: settled as %+v, want %d refunded", name, out, c.refund)
		}
		if id, _ := l.Reserve(start, 1, start+hour); id != 3 || l.Settle(start, id, 0).Refunded != 1 {
			t.Errorf("%s: a new hold, %d, is not refunded", name, id)
		}
	}
}

func rewritten(t *testing.T, s ruleSpec, data []byte) []byte {
	l := &Ledger{}
	if err := l.ReadBinary([]Rule{must(t, s)}, data); err != nil {
		t.Fatal(err)
	}
	return l.AppendBinary(nil)
}
