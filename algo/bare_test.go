package algo

import (
	"testing"

	"pgregory.net/rapid"
)

// bare is a rule with the state of one key, through the exported functions that
// work on bare words.
type bare interface {
	take(now, cost int64) bool
	remaining(now int64) int64
	retryAt(now, cost int64) int64
	resetAt(now int64) int64
}

func newBare(t rapid.TB, s ruleSpec) bare {
	switch r := must(t, s).(type) {
	case *GCRA:
		return &bareGCRA{rule: r}
	case *Fixed:
		return &bareFixed{rule: r}
	case *Anchored:
		return &bareAnchored{rule: r}
	case *Sliding:
		return &bareSliding{rule: r}
	case *SlidingLog:
		return &bareLog{rule: r, log: &Log{}}
	}
	t.Fatalf("%v has no bare words", s.kind)
	return nil
}

type bareGCRA struct {
	rule *GCRA
	word uint64
}

func (b *bareGCRA) take(now, cost int64) bool {
	next, ok := b.rule.Take(b.word, now, cost)
	b.word = next
	return ok
}
func (b *bareGCRA) remaining(now int64) int64     { return b.rule.Remaining(b.word, now) }
func (b *bareGCRA) retryAt(now, cost int64) int64 { return b.rule.RetryAt(b.word, now, cost) }
func (b *bareGCRA) resetAt(now int64) int64       { return b.rule.ResetAt(b.word, now) }

type bareFixed struct {
	rule *Fixed
	word uint64
}

func (b *bareFixed) take(now, cost int64) bool {
	next, ok := b.rule.Take(b.word, now, cost)
	b.word = next
	return ok
}
func (b *bareFixed) remaining(now int64) int64     { return b.rule.Remaining(b.word, now) }
func (b *bareFixed) retryAt(now, cost int64) int64 { return b.rule.RetryAt(b.word, now, cost) }
func (b *bareFixed) resetAt(now int64) int64       { return b.rule.ResetAt(b.word, now) }

type bareAnchored struct {
	rule *Anchored
	s    State
}

func (b *bareAnchored) take(now, cost int64) bool {
	next, ok := b.rule.Take(b.s, now, cost)
	b.s = next
	return ok
}
func (b *bareAnchored) remaining(now int64) int64     { return b.rule.Remaining(b.s, now) }
func (b *bareAnchored) retryAt(now, cost int64) int64 { return b.rule.RetryAt(b.s, now, cost) }
func (b *bareAnchored) resetAt(now int64) int64       { return b.rule.ResetAt(b.s, now) }

type bareSliding struct {
	rule *Sliding
	s    State
}

func (b *bareSliding) take(now, cost int64) bool {
	next, ok := b.rule.Take(b.s, now, cost)
	b.s = next
	return ok
}
func (b *bareSliding) remaining(now int64) int64     { return b.rule.Remaining(b.s, now) }
func (b *bareSliding) retryAt(now, cost int64) int64 { return b.rule.RetryAt(b.s, now, cost) }
func (b *bareSliding) resetAt(now int64) int64       { return b.rule.ResetAt(b.s, now) }

type bareLog struct {
	rule *SlidingLog
	log  *Log
}

func (b *bareLog) take(now, cost int64) bool     { return b.rule.Take(b.log, now, cost) }
func (b *bareLog) remaining(now int64) int64     { return b.rule.Remaining(b.log, now) }
func (b *bareLog) retryAt(now, cost int64) int64 { return b.rule.RetryAt(b.log, now, cost) }
func (b *bareLog) resetAt(now int64) int64       { return b.rule.ResetAt(b.log, now) }

// compareBare asks a rule and its model the same at now.
func compareBare(t rapid.TB, s ruleSpec, b bare, m ruleModel, now int64) {
	t.Helper()
	if got, want := b.remaining(now), m.room(now, nil); got != want {
		t.Fatalf("%+v at %d: remaining %d, want %d", s, now, got, want)
	}
	unused := func(at int64) bool { return m.unused(at, nil) }
	if got := b.resetAt(now); !isFirst(got, now, unused) {
		t.Fatalf("%+v at %d: reset at %d, want %d", s, now, got, firstInstant(now, unused))
	}
	for _, cost := range []int64{0, 1, 2, m.capacity(), m.capacity() + 1} {
		fits := func(at int64) bool { return admits(m, at, cost, nil) }
		if got := b.retryAt(now, cost); !isFirst(got, now, fits) {
			t.Fatalf("%+v at %d: cost %d: retry at %d, want %d", s, now, cost, got, firstInstant(now, fits))
		}
	}
}

// driveBare compares a rule with its model over random charges; the clock goes
// back now and then, if that is allowed.
func driveBare(t rapid.TB, src source, s ruleSpec, back bool) {
	b, m := newBare(t, s), s.model()
	now := start
	var grants []grant
	for src.more() {
		step := drawStep(src, s.length())
		if step < 0 && !back {
			step = -step
		}
		now = min(max(now+step, start-year), start+30*year)
		if at := b.retryAt(now, 1); oneIn(src, 4) && at > now && at < start+30*year {
			now = at - src.upTo(1)
		}
		cost := drawCost(src, m.capacity())
		want := admits(m, now, cost, nil)
		if got := b.take(now, cost); got != want {
			t.Fatalf("%+v at %d: take %d = %v, want %v", s, now, cost, got, want)
		}
		if want && cost > 0 {
			m.charge(now, cost, nil)
			grants = append(grants, grant{now, now, cost})
		}
		compareBare(t, s, b, m, now)
	}
	if s.kind == kindGCRA {
		checkBound(t, s, grants)
	}
}

// TestBareModels holds each rule's bare words against its model.
func TestBareModels(t *testing.T) {
	t.Parallel()
	for k := kindGCRA; k < kindSlots; k++ {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				src := fromRapid(t, 60)
				s := drawSpec(src, k)
				s.debt = 0 // so that a clock that goes back meets no clamp
				driveBare(t, src, s, true)
			})
		})
	}
}
