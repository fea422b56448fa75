package algo

// Word is how a policy's rules keep their whole state in one 64-bit word: one
// GCRA, one fixed window, or one dual window be it half or whole. Then a decision
// is a single compare-and-swap of that word by its owner.
//
// A word is never Mark, so its owner may put that in its place to say that the
// state is elsewhere.
type Word struct {
	gcra  *GCRA
	fixed *Fixed
	dual  *Dual
	rules []Rule

	second, minute *Fixed // a dual window's halves; either may be nil
	secondAt       int    // their places among rules
	minuteAt       int
}

// Mark is a word that no rule produces: GCRA and fixed windows leave bit 63
// clear, dual windows have no second 63.
const Mark = 1<<63 | DualMark

// NewWord returns how rules share a word, or nil if they do not fit one. It keeps
// rules.
func NewWord(rules []Rule) *Word {
	w := &Word{rules: rules}
	if w.dual = pairDual(rules); w.dual != nil {
		w.placeHalves()
		return w
	}
	if len(rules) != 1 {
		return nil
	}
	switch r := rules[0].(type) {
	case *GCRA:
		w.gcra = r
	case *Fixed:
		w.fixed = r
	default:
		return nil
	}
	return w
}

// pairDual returns the dual window of which rules are the halves, or the only
// half. It is nil if they are something else.
func pairDual(rules []Rule) *Dual {
	var rates [2]int64
	var fill Fill
	for i, r := range rules {
		f, ok := r.(*Fixed)
		if !ok || f.half == wholeWindow || rates[f.half-1] != 0 || i > 0 && f.fill != fill {
			return nil
		}
		rates[f.half-1], fill = f.units, f.fill
	}
	d, err := NewDual(rates[0], rates[1], fill)
	if err != nil { // no rules at all
		return nil
	}
	return d
}

// GCRA returns the rule if the word is a TAT, else nil. It is for owners that
// inline its steps.
func (w *Word) GCRA() *GCRA { return w.gcra }

// Take charges cost units at now if they fit and returns the next word; a
// refusal returns the word as it was. Cost must lie between 0 and MaxCost.
func (w *Word) Take(word uint64, now, cost int64) (next uint64, ok bool) {
	switch {
	case w.gcra != nil:
		return w.gcra.Take(word, now, cost)
	case w.fixed != nil:
		return w.fixed.Take(word, now, cost)
	}
	return w.dual.Take(word, now, cost)
}

// Verdict returns the verdict for a word after Take returned ok, or for a future charge,
// where ok says whether it would be admitted.
func (w *Word) Verdict(word uint64, now, cost int64, ok bool) Verdict {
	if w.gcra == nil {
		return w.windowVerdict(word, now, cost, ok)
	}
	view := w.gcra.View(word, now, cost)
	v := Verdict{OK: ok, Limit: w.gcra.units, Remaining: view.Remaining, RetryAt: now, ResetAt: view.ResetAt}
	if !ok {
		v.RetryAt, v.TooCostly = view.RetryAt, cost > w.gcra.units
	}
	return v
}

// windowVerdict looks at a fixed window, or at a dual one as two.
func (w *Word) windowVerdict(word uint64, now, cost int64, ok bool) Verdict {
	states := w.split(word)
	var best Verdict
	for i, r := range w.rules {
		f, s := r.(*Fixed), states[i].A
		v := Verdict{
			OK: ok, By: uint8(i), Limit: f.units,
			Remaining: f.Remaining(s, now), RetryAt: f.RetryAt(s, now, cost), ResetAt: f.ResetAt(s, now),
		}
		if v.TooCostly = !ok && cost > f.units; i == 0 || v.tighter(best) {
			best = v
		}
	}
	if ok {
		best.RetryAt = now
	}
	return best
}

// tighter says whether v rather than o is the verdict on a charge: if refused, the one with
// the longest wait; if admitted, the one with the least remaining.
func (v Verdict) tighter(o Verdict) bool {
	if !v.OK {
		return v.RetryAt > o.RetryAt
	}
	return v.Remaining < o.Remaining || v.Remaining == o.Remaining && v.ResetAt > o.ResetAt
}

// GrantedSince returns the earliest instant at which a grant can have left word.
func (w *Word) GrantedSince(word uint64) int64 {
	switch {
	case w.gcra != nil:
		return w.gcra.GrantedSince(word)
	case w.fixed != nil:
		return w.fixed.GrantedSince(word)
	}
	return w.dual.GrantedSince(word)
}

// Load puts the state into a ledger of the same rules.
func (w *Word) Load(l *Ledger, word uint64) {
	states := w.split(word)
	for i := range w.rules {
		l.SetState(i, states[i])
	}
}

// Save returns the word for a ledger of the same rules.
func (w *Word) Save(l *Ledger) uint64 {
	if w.dual == nil {
		return l.states[0].A
	}
	return w.dual.Pack(l.states[w.secondAt], l.states[w.minuteAt], w.second, w.minute)
}

// split returns the word as the states of the rules.
func (w *Word) split(word uint64) (states [2]State) {
	if w.dual == nil {
		states[0].A = word
		return states
	}
	s, m := w.dual.Unpack(word, w.second, w.minute)
	if w.second != nil {
		states[w.secondAt] = s
	}
	if w.minute != nil {
		states[w.minuteAt] = m
	}
	return states
}

func (w *Word) placeHalves() {
	for i, r := range w.rules {
		if f := r.(*Fixed); f.half == secondHalf {
			w.second, w.secondAt = f, i
		} else {
			w.minute, w.minuteAt = f, i
		}
	}
}

// Usage returns the limit status of the word's rules at now.
func (w *Word) Usage(word uint64, now int64) (most Usage) {
	if w.gcra != nil {
		return w.gcra.usage(word, w.gcra.Tick(now))
	}
	states := w.split(word)
	for i, r := range w.rules {
		most.Join(UsageOf(r, states[i], now))
	}
	return most
}
