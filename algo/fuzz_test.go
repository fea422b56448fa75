package algo

import (
	"math"
	"testing"
)

// The fuzz targets give the step functions any word that a store may hand back
// and any number that a caller may bring.

// clampCost makes a cost that the step functions accept.
func clampCost(n int64) int64 {
	return (n&math.MaxInt64)%1_000 + n>>63&1*(MaxCost-1_000)
}

// checkStep asks what every rule must obey: Take agrees with Remaining and
// RetryAt, remaining lies between 0 and the capacity and falls by the cost.
func checkStep(t *testing.T, b bare, capacity, now, cost int64) (ok bool) {
	t.Helper()
	before, retry := b.remaining(now), b.retryAt(now, cost)
	reset := b.resetAt(now)
	if before < 0 || before > capacity {
		t.Fatalf("%d of %d remaining", before, capacity)
	}
	if retry < now || reset < now {
		t.Fatalf("retry at %d, reset at %d, now %d", retry, reset, now)
	}
	ok = b.take(now, cost)
	if want := cost == 0 || cost <= before; ok != want {
		t.Fatalf("take %d = %v with %d remaining", cost, ok, before)
	}
	if ok != (retry == now) || cost > capacity && retry != Never || retry < now { // a word may lie so far ahead that it never comes
		t.Fatalf("take %d of %d = %v, retry at %d, now %d", cost, capacity, ok, retry, now)
	}
	after := b.remaining(now)
	if ok && after != before-cost || !ok && after != before {
		t.Fatalf("take %d = %v: %d remained, then %d", cost, ok, before, after)
	}
	return ok
}

func FuzzGCRAState(f *testing.F) {
	f.Add(uint64(0), int64(10), second, int64(5), int64(0), start, int64(1))
	f.Add(uint64(1<<63-1), int64(3), second, int64(3), int64(2), start, int64(3))
	f.Add(uint64(1<<62), int64(2), int64(1), int64(1), int64(1), int64(Horizon), int64(1))
	f.Add(uint64(1), int64(1), maxFill, int64(1), int64(0), int64(-1), int64(1))
	f.Fuzz(func(t *testing.T, word uint64, rate, per, burst, debt, now, cost int64) {
		g, err := NewGCRA(rate, per, burst, debt, 0)
		if err != nil {
			return
		}
		word &^= 1 << 63 // a caller's mark
		cost = clampCost(cost)
		now = min(now, Horizon) // beyond it the clock stands
		b := &bareGCRA{g, word}
		ok := checkStep(t, b, burst, now, cost)
		tick := g.Tick(now)
		switch {
		case b.word >= 1<<63:
			t.Fatalf("TAT %#x", b.word)
		case ok && cost > 0 && b.word > tick+g.burst:
			t.Fatalf("TAT %d is beyond the burst at %d", b.word, tick)
		case ok && b.word < word:
			t.Fatalf("TAT fell from %d to %d", word, b.word)
		case !ok && b.word != word:
			t.Fatalf("a refusal changed TAT from %d to %d", word, b.word)
		}
		if healed := g.Heal(word, now); healed != min(word, tick+g.most) {
			t.Fatalf("TAT %d healed to %d at %d", word, healed, tick)
		}
	})
}

func FuzzFixedState(f *testing.F) {
	f.Add(uint64(0), int64(10), second, start, int64(1))
	f.Add(uint64(math.MaxUint64), int64(1), int64(1), start, int64(1))
	f.Add(uint64(1<<63-1), int64(10), maxFill, int64(Horizon), int64(MaxCost))
	f.Fuzz(func(t *testing.T, word uint64, rate, per, now, cost int64) {
		r, err := NewFixed(rate, per, 0)
		if err != nil {
			return
		}
		word &^= 1 << 63
		now = min(max(now, Epoch), Horizon)
		// A number that the rule wrote lies within its range.
		if word>>r.shift > r.number(Horizon) {
			return
		}
		b := &bareFixed{r, word}
		if ok := checkStep(t, b, rate, now, clampCost(cost)); ok && b.word < word {
			t.Fatalf("the word fell from %#x to %#x", word, b.word)
		}
		if b.word >= 1<<63 {
			t.Fatalf("word %#x", b.word)
		}
	})
}

func FuzzDualState(f *testing.F) {
	f.Add(uint64(0), int64(50), int64(2_400), start, int64(1))
	f.Add(uint64(math.MaxUint64), int64(1), int64(1), start, int64(1))
	f.Add(DualMark, int64(0), int64(5), int64(Horizon), int64(1))
	f.Fuzz(func(t *testing.T, word uint64, perSecond, perMinute, now, cost int64) {
		d, err := NewDual(perSecond, perMinute, 0)
		if err != nil {
			return
		}
		now = min(max(now, Epoch), Epoch+1<<25*minute-1)
		b := &bareDual{d, word}
		if perSecond == 0 && word&MaxPerSecond != 0 || perMinute == 0 && word>>21&MaxPerMinute != 0 {
			return // counts that this rule does not write
		}
		ok := checkStep(t, b, d.Capacity(), now, clampCost(cost))
		if ok && b.word < word {
			t.Fatalf("the word fell from %#x to %#x", word, b.word)
		}
		if !ok && b.word != word {
			t.Fatalf("a refusal changed %#x to %#x", word, b.word)
		}
		if word>>15&63 < 60 && b.word>>15&63 > 59 {
			t.Fatalf("second %d", b.word>>15&63)
		}
	})
}

type bareDual struct {
	rule *Dual
	word uint64
}

func (b *bareDual) take(now, cost int64) bool {
	next, ok := b.rule.Take(b.word, now, cost)
	b.word = next
	return ok
}
func (b *bareDual) remaining(now int64) int64     { return b.rule.Remaining(b.word, now) }
func (b *bareDual) retryAt(now, cost int64) int64 { return b.rule.RetryAt(b.word, now, cost) }
func (b *bareDual) resetAt(now int64) int64       { return b.rule.ResetAt(b.word, now) }

func FuzzSlidingState(f *testing.F) {
	f.Add(uint64(0), uint64(0), int64(10), second, start, int64(1))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), int64(10), second, start, int64(1))
	f.Add(uint64(0), uint64(math.MaxUint64), int64(1), int64(1), Epoch, int64(1))
	f.Fuzz(func(t *testing.T, a, prev uint64, rate, per, now, cost int64) {
		r, err := NewSliding(rate, per, 0)
		if err != nil {
			return
		}
		a &^= 1 << 63
		if a>>r.shift > r.number(Horizon) {
			return
		}
		b := &bareSliding{r, State{A: a, B: prev}}
		checkStep(t, b, rate, min(max(now, Epoch), Horizon), clampCost(cost))
	})
}

func FuzzAnchoredState(f *testing.F) {
	f.Add(uint64(0), uint64(0), int64(10), second, start, int64(1))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), int64(10), second, start, int64(1))
	f.Add(uint64(1), uint64(1<<63), int64(1), int64(1), Epoch, int64(1))
	f.Fuzz(func(t *testing.T, a, used uint64, rate, per, now, cost int64) {
		r, err := NewAnchored(rate, per, 0)
		if err != nil {
			return
		}
		if a > uint64(Horizon-Epoch)+1 {
			return
		}
		b := &bareAnchored{r, State{A: a, B: used}}
		checkStep(t, b, rate, min(max(now, Epoch), Horizon), clampCost(cost))
	})
}

// FuzzLimits builds rules from any numbers: an error that says why, or a rule
// that gives its capacity once and then refuses.
func FuzzLimits(f *testing.F) {
	f.Add(int64(10), second, int64(5), int64(0), uint32(0))
	f.Add(int64(-1), int64(0), int64(math.MinInt64), int64(math.MaxInt64), uint32(math.MaxUint32))
	f.Add(MaxRate, maxFill, MaxRate, MaxCost, uint32(FillSteps))
	f.Add(int64(2), int64(1), int64(1), int64(1), uint32(1))
	f.Fuzz(func(t *testing.T, rate, per, burst, debt int64, fill uint32) {
		for _, build := range []func() (Rule, error){
			func() (Rule, error) { return orNil(NewGCRA(rate, per, burst, debt, Fill(fill))) },
			func() (Rule, error) { return orNil(NewFixed(rate, per, Fill(fill))) },
			func() (Rule, error) { return orNil(NewAnchored(rate, per, Fill(fill))) },
			func() (Rule, error) { return orNil(NewSliding(rate, per, Fill(fill))) },
			func() (Rule, error) { return orNil(NewSlidingLog(rate, per, Fill(fill))) },
			func() (Rule, error) { return orNil(NewSlots(rate)) },
		} {
			r, err := build()
			if err != nil {
				if p, ok := err.(*ParamError); !ok || p.Field == "" || p.Problem == "" {
					t.Fatalf("error %#v", err)
				}
				continue
			}
			checkLimit(t, r)
		}
	})
}

// orNil makes a nil *T a nil Rule.
func orNil[R Rule](r R, err error) (Rule, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func checkLimit(t *testing.T, r Rule) {
	t.Helper()
	l := NewLedger([]Rule{r}, Epoch)
	now := Epoch + 80*year // where every fill has filled
	capacity := r.Capacity()
	if v := l.Peek(now, 1); !v.OK || v.Remaining != capacity || v.Limit != capacity {
		t.Fatalf("%#v, new: %+v", r, v)
	}
	if v := l.Peek(now, capacity+1); v.OK || !v.TooCostly || v.RetryAt != Never {
		t.Fatalf("%#v: %+v", r, v)
	}
	if _, isSlots := r.(*Slots); isSlots {
		return
	}
	if v := l.Take(now, capacity); !v.OK || v.Remaining != 0 || v.ResetAt <= now {
		t.Fatalf("%#v, all of it: %+v", r, v)
	}
	v := l.Take(now, 1)
	if v.OK || v.RetryAt <= now || v.RetryAt > v.ResetAt || v.TooCostly {
		t.Fatalf("%#v, used up: %+v", r, v)
	}
	if v.RetryAt <= Horizon && (l.Peek(v.RetryAt-1, 1).OK || !l.Peek(v.RetryAt, 1).OK) {
		t.Fatalf("%#v: the retry at %d is not exact", r, v.RetryAt)
	}
}

// FuzzLedger reads operations from bytes and compares with the model.
func FuzzLedger(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03\x02\x00\x05\x05\x05\x05\x05\x05\x05\x05"))
	f.Add([]byte("\x02\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18"))
	f.Add([]byte("reserve, commit, cancel, expire, renew, reset, set: every byte is a choice, and the text is as good as any"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 600 {
			return
		}
		drive(t, &byteSource{data}, true)
	})
}
