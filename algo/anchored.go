package algo

// Anchored is the request-anchored fixed window: the window opens with the
// first charge after the last one closed.
//
// It promises at most rate units in any one window and, as a window cannot
// open before the last has closed, at most twice the rate in an interval as
// long as a window. A caller who starts anywhere gets a whole window, which a
// clock-aligned one does not give.
//
// It costs two words per key: the window's start (nanoseconds since Epoch,
// plus one; zero means none) and the units used in it.
//
// While now < start + per the window is open and a charge of c is admitted if
// used + c ≤ rate. Otherwise the next charge sets start = now, used = c. Retry
// and reset are start + per.
//
// Example: 3 per 10 s. Charges at 4 s, 5 s and 12 s fill the window [4 s, 14 s);
// one at 13.999999999 s is refused, retry after 1 ns; one at 14 s opens the next.
//
// Edges. Refused charges and charges of nothing open no window. A clock that
// steps back stays in the open window.
//
// Source: wowistudio/rali, "request-based fixed window".
type Anchored struct {
	per   int64
	units int64
	fill  Fill
}

// NewAnchored returns the rule for rate units in windows of per nanoseconds.
func NewAnchored(rate, per int64, fill Fill) (*Anchored, error) {
	if err := checkCount("rate", rate); err != nil {
		return nil, err
	}
	if err := checkPer(per); err != nil {
		return nil, err
	}
	if err := checkFill(fill); err != nil {
		return nil, err
	}
	return &Anchored{per: per, units: rate, fill: fill}, nil
}

// Capacity returns the units per window.
func (a *Anchored) Capacity() int64 { return a.units }

// Words returns 2.
func (a *Anchored) Words() int { return 2 }

// current returns the open window's start and use at now. If none is open, it
// is one that would open now.
func (a *Anchored) current(s State, now int64) (start, used int64) {
	now = inRange(now)
	if s.A == 0 {
		return now, 0
	}
	start = Epoch + int64(s.A-1)
	if now >= start+a.per {
		return now, 0
	}
	return start, int64(min(s.B, uint64(maxCount)))
}

func anchoredAt(start, used int64) State {
	return State{A: uint64(start-Epoch) + 1, B: uint64(used)}
}

// Take charges cost units at now if they fit and returns the next state; a
// refusal returns the state as it was. Cost must lie between 0 and MaxCost.
func (a *Anchored) Take(s State, now, cost int64) (next State, ok bool) {
	start, used := a.current(s, now)
	if cost == 0 || used+cost > a.units {
		return s, cost == 0
	}
	return anchoredAt(start, used+cost), true
}

// Remaining returns how many units fit at now.
func (a *Anchored) Remaining(s State, now int64) int64 {
	_, used := a.current(s, now)
	return max(0, a.units-used)
}

// RetryAt returns the first instant at which cost units fit if nothing else
// happens: now if they fit already, Never if they cannot.
func (a *Anchored) RetryAt(s State, now, cost int64) int64 {
	if cost > a.units {
		return Never
	}
	start, used := a.current(s, now)
	if used+cost <= a.units || cost == 0 {
		return now
	}
	return reachable(start + a.per)
}

// ResetAt returns the end of the window, or now if none is open.
func (a *Anchored) ResetAt(s State, now int64) int64 {
	start, used := a.current(s, now)
	if used == 0 {
		return now
	}
	return reachable(start + a.per)
}

// Fresh returns the state of a key that was never used. A rule that starts less
// than full has a window open since epoch, with the missing units used.
func (a *Anchored) Fresh(epoch int64) State {
	if a.fill == 0 {
		return State{}
	}
	return anchoredAt(inRange(epoch), int64(missingUnits(a.units, a.fill)))
}

func (a *Anchored) admits(s *State, _ *Holds, now, cost int64) bool {
	return a.Remaining(*s, now) >= cost
}

func (a *Anchored) charge(s *State, _ *Holds, now, cost int64) {
	start, used := a.current(*s, now)
	*s = anchoredAt(start, used+min(cost, maxCount-used))
}

// maxCount is where counts that have a word of their own stop growing.
const maxCount int64 = 1<<62 - 1

func (a *Anchored) fold(*State, *Holds, int64) {}

func (a *Anchored) refund(s *State, _ *Holds, at, now, units int64) int64 {
	if at < a.countsSince(s, now) {
		return 0
	}
	start, used := a.current(*s, now)
	back := min(units, used)
	if *s = (State{}); used > back { // an emptied window is as if never opened
		*s = anchoredAt(start, used-back)
	}
	return back
}

func (a *Anchored) countsSince(s *State, now int64) int64 {
	start, used := a.current(*s, now)
	if used == 0 {
		return countsNone
	}
	return start
}

func (a *Anchored) reset(s *State, hs *Holds, i int, now int64) {
	start, _ := a.current(*s, now)
	since := a.countsSince(s, now)
	var held int64
	for h := range hs.all() {
		if hs.chargedAt(h, i) >= since {
			held += h.Units
		}
	}
	if *s = (State{}); held > 0 {
		*s = anchoredAt(start, held)
	}
}

func (a *Anchored) remaining(s *State, _ *Holds, now int64) int64 { return a.Remaining(*s, now) }

func (a *Anchored) retryAt(s *State, _ *Holds, now, cost int64) int64 {
	return a.RetryAt(*s, now, cost)
}

func (a *Anchored) resetAt(s *State, _ *Holds, now int64) int64 { return a.ResetAt(*s, now) }

func (a *Anchored) used(s *State, _ *Holds, now int64) int64 {
	_, used := a.current(*s, now)
	return used
}

func (a *Anchored) book(now, used int64) (State, error) {
	if used == 0 {
		return State{}, nil
	}
	return anchoredAt(inRange(now), used), nil
}

// adopt keeps the state of a rule with windows of the same length.
func (a *Anchored) adopt(old Rule, s *State, _ *Holds, _ int64) (State, bool, error) {
	o, ok := old.(*Anchored)
	if !ok || o.per != a.per {
		return State{}, false, nil
	}
	return *s, true, nil
}
