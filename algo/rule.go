package algo

// State is the state of one key under one rule: one word, or two for the
// anchored and the sliding window, or a log, or levels. The zero value means never used.
type State struct {
	A, B   uint64
	Log    *Log    // sliding log only
	Levels *Levels // lending only; nil = full
}

func (s *State) clone() State {
	c := *s
	if s.Log != nil {
		c.Log = s.Log.clone()
	}
	if s.Levels != nil {
		levels := *s.Levels
		c.Levels = &levels
	}
	return c
}

// A Rule is one limit, compiled: *GCRA, *Fixed, *Anchored, *Sliding,
// *SlidingLog, *Slots, *Lending or *Paced. Rules are immutable and hold no state, so that one
// serves any number of keys.
//
// The exported step functions of each rule work on bare words and know no
// holds; they are for tables that have none. A Ledger combines several rules
// and holds through the unexported methods, which all take now ≥ every earlier
// now of the key.
type Rule interface {
	// Capacity returns the most units that ever fit at once.
	Capacity() int64
	// Words returns how many words of a State the rule uses, or -1 if it
	// needs a Log or Levels.
	Words() int
	// Fresh returns the state of a key that was never used, in a limiter
	// that was started at epoch.
	Fresh(epoch int64) State

	// admits says whether cost units fit.
	admits(s *State, hs *Holds, now, cost int64) bool
	// charge takes cost units whether they fit or not.
	charge(s *State, hs *Holds, now, cost int64)
	// fold adds holds that have expired at now to the state.
	fold(s *State, hs *Holds, now int64)
	// refund gives back units that were charged at at, and returns how many
	// could be. The hold they belong to is still in hs.
	refund(s *State, hs *Holds, at, now, units int64) int64
	// reset clears everything but the holds; i is the rule's index.
	reset(s *State, hs *Holds, i int, now int64)

	remaining(s *State, hs *Holds, now int64) int64
	retryAt(s *State, hs *Holds, now, cost int64) int64
	resetAt(s *State, hs *Holds, now int64) int64

	// used returns the units in use at now, rounded up, held ones included.
	used(s *State, hs *Holds, now int64) int64
	// countsSince returns the instant since which charges are still, and wholly,
	// part of used: countsAll or countsNone if it does not matter when.
	countsSince(s *State, now int64) int64
	// book returns a state with used units in use at now.
	book(now, used int64) (State, error)
	// adopt converts a state that old wrote where that keeps more than the
	// number of used units, and says whether it did.
	adopt(old Rule, s *State, hs *Holds, now int64) (State, bool, error)
}

// Usage is the limit status of a key: how much of a rule is in use. Tables use it to
// choose what to evict.
type Usage struct {
	Used  int64   // units, rounded up
	Share float64 // of the capacity
	Full  bool    // a charge of one unit would be refused
}

// UsageOf returns the limit status of a state without holds at now.
func UsageOf(r Rule, s State, now int64) Usage {
	if l, ok := r.(*Lending); ok {
		return l.usage(&s, now)
	}
	used := r.used(&s, &noHolds, now)
	return Usage{Used: used, Share: float64(used) / float64(r.Capacity()), Full: !r.admits(&s, &noHolds, now, 1)}
}

// Join combines the status of several rules: the result is that of the rule with the largest
// share in use, and is full if one of them is.
func (s *Usage) Join(o Usage) {
	full := s.Full || o.Full
	if o.Share > s.Share {
		*s = o
	}
	s.Full = full
}

// capacityOf returns the most units that ever fit at once for the charge at hand.
func capacityOf(r Rule, hs *Holds) int64 {
	if l, ok := r.(*Lending); ok {
		return l.capacity(hs)
	}
	return r.Capacity()
}

var noHolds Holds // never written

// convert returns the state under rule that keeps the units used under old,
// and whether they had to be booked anew at now.
func convert(old, rule Rule, s *State, hs *Holds, now int64) (next State, booked bool, err error) {
	if next, ok, err := rule.adopt(old, s, hs, now); ok || err != nil {
		return next, false, err
	}
	next, err = rule.book(now, old.used(s, hs, now))
	return next, true, err
}
