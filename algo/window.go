package algo

import (
	"math"
	"math/bits"
)

// windows cuts time into numbered windows: equal ones aligned to the Unix epoch,
// or those of a calendar. Numbers start near zero at Epoch, so that they are
// short, and never decrease.
type windows struct {
	per   int64     // length in nanoseconds; 0 for a calendar
	first int64     // the number of Epoch's window, counted from 1970
	last  uint64    // the greatest number there is; time stands still in that window
	by    divisor   // divides by per
	cal   *Calendar // nil for equal windows
}

func every(per int64) windows {
	return windows{per: per, first: Epoch / per, last: math.MaxUint64, by: newDivisor(uint64(per))}
}

func (w *windows) number(now int64) uint64 {
	if w.cal != nil {
		return uint64(w.cal.Number(now))
	}
	return min(w.by.quo(sinceEpoch(now)+uint64(Epoch))-uint64(w.first), w.last)
}

func (w *windows) bounds(number uint64) (start, end int64) {
	if w.cal != nil {
		return w.cal.Bounds(int64(number))
	}
	start = (int64(number) + w.first) * w.per
	return start, start + w.per
}

// ends returns the end of a window, or Never of the last.
func (w *windows) ends(number uint64) int64 {
	if number >= w.last {
		return Never
	}
	_, end := w.bounds(number)
	return end
}

// countBits returns how many of 63 bits are left beside the window number.
func (w *windows) countBits() uint {
	return 63 - uint(bits.Len64(w.number(Horizon)))
}

// Fixed is the fixed window: so many units per window, windows being aligned to
// the clock or to a calendar.
//
// It promises at most rate units in any one window, and so at most twice the
// rate in an interval as long as a window that straddles an edge. Use GCRA
// where that matters; use Fixed for limits published as "1,000 a day, reset at
// midnight".
//
// It costs one word per key:
//
//	word: 0 (1) | window number (as many bits as it needs until 2120) | used (the rest)
//
// With n the greater of the stored number and now's, and used = 0 if n is new,
// a charge of c is admitted if used + c ≤ rate. Retry and reset are the end of
// window n.
//
// Example: 100 per minute at 12:00:59 with 100 used is refused, retry after
// 1 s. At 12:01:00.000000000 the number is new and 100 more are admitted:
// 200 within 2 s, the edge known as the boundary exploit.
//
// Edges. A clock that steps back stays in the stored window. A one-second
// window has 32 bits of number and 31 of count; a rate that does not fit beside
// the number is refused by NewFixed. Overruns and debits are counted up to what
// fits and never wrap.
//
// Source: wowistudio/rali, "clock-based fixed window".
type Fixed struct {
	windows
	units int64
	shift uint   // bits of the count
	most  uint64 // the greatest count
	fill  Fill
	half  half // of a dual window, if it is one
}

// half says which half of a dual window a Fixed is, if any.
type half uint8

const (
	wholeWindow half = iota // none
	secondHalf
	minuteHalf
)

// NewFixed returns the rule for rate units in every window of per nanoseconds.
func NewFixed(rate, per int64, fill Fill) (*Fixed, error) {
	if err := checkPer(per); err != nil {
		return nil, err
	}
	return newFixed(rate, every(per), fill)
}

// NewCalendarFixed returns the rule for rate units in every window of cal.
func NewCalendarFixed(rate int64, cal *Calendar, fill Fill) (*Fixed, error) {
	return newFixed(rate, windows{cal: cal, last: math.MaxUint64}, fill)
}

func newFixed(rate int64, w windows, fill Fill) (*Fixed, error) {
	if err := checkCount("rate", rate); err != nil {
		return nil, err
	}
	if err := checkFill(fill); err != nil {
		return nil, err
	}
	w.last = min(w.last, w.number(Horizon))
	f := &Fixed{windows: w, units: rate, shift: w.countBits(), fill: fill}
	f.most = 1<<f.shift - 1
	if uint64(rate) > f.most {
		return nil, badParam("rate", rate, "does not fit beside the number of so short a window; at most %d do", f.most)
	}
	return f, nil
}

// Capacity returns the units per window.
func (f *Fixed) Capacity() int64 { return f.units }

// Words returns 1.
func (f *Fixed) Words() int { return 1 }

// current splits the word and moves it to now's window.
func (f *Fixed) current(word uint64, now int64) (number, used uint64) {
	number = f.number(now)
	if stored := word >> f.shift; stored >= number {
		return stored, word & f.most
	}
	return number, 0
}

// Take charges cost units at now if they fit and returns the next word; a
// refusal returns the word as it was. Cost must lie between 0 and MaxCost.
func (f *Fixed) Take(word uint64, now, cost int64) (next uint64, ok bool) {
	number, used := f.current(word, now)
	if cost == 0 || used+uint64(cost) > uint64(f.units) {
		return word, cost == 0
	}
	return number<<f.shift | (used + uint64(cost)), true
}

// Remaining returns how many units fit at now.
func (f *Fixed) Remaining(word uint64, now int64) int64 {
	_, used := f.current(word, now)
	return max(0, f.units-int64(used))
}

// RetryAt returns the first instant at which cost units fit if nothing else
// happens: now if they fit already, Never if they cannot.
func (f *Fixed) RetryAt(word uint64, now, cost int64) int64 {
	if cost > f.units {
		return Never
	}
	number, used := f.current(word, now)
	if int64(used)+cost <= f.units || cost == 0 {
		return now
	}
	return f.ends(number)
}

// ResetAt returns the end of the window, or now if nothing is used in it.
func (f *Fixed) ResetAt(word uint64, now int64) int64 {
	number, used := f.current(word, now)
	if used == 0 {
		return now
	}
	return f.ends(number)
}

// GrantedSince returns the earliest instant at which Take can have written the
// word: the start of its window.
func (f *Fixed) GrantedSince(word uint64) int64 {
	start, _ := f.bounds(word >> f.shift)
	return start
}

// Fresh returns the word of a key that was never used. A rule that starts less
// than full has the missing units used up in epoch's window.
func (f *Fixed) Fresh(epoch int64) State {
	if f.fill == 0 {
		return State{}
	}
	return State{A: f.number(epoch)<<f.shift | missingUnits(f.units, f.fill)}
}

// missingUnits returns fill × units, rounded up.
func missingUnits(units int64, fill Fill) uint64 {
	hi, lo := bits.Mul64(uint64(units), uint64(fill))
	q, rest := bits.Div64(hi, lo, FillSteps)
	if rest > 0 {
		q++
	}
	return q
}

func (f *Fixed) admits(s *State, _ *Holds, now, cost int64) bool {
	return f.Remaining(s.A, now) >= cost
}

func (f *Fixed) charge(s *State, _ *Holds, now, cost int64) {
	number, used := f.current(s.A, now)
	s.A = number<<f.shift | addCap(used, uint64(cost), f.most)
}

func (f *Fixed) fold(*State, *Holds, int64) {}

func (f *Fixed) refund(s *State, _ *Holds, at, now, units int64) int64 {
	if at < f.countsSince(s, now) {
		return 0
	}
	number, used := f.current(s.A, now)
	back := min(uint64(units), used)
	s.A = number<<f.shift | (used - back)
	return int64(back)
}

func (f *Fixed) countsSince(s *State, now int64) int64 {
	number, _ := f.current(s.A, now)
	start, _ := f.bounds(number)
	return start
}

func (f *Fixed) reset(s *State, hs *Holds, i int, now int64) {
	number, _ := f.current(s.A, now)
	since := f.countsSince(s, now)
	var held uint64
	for h := range hs.all() {
		if hs.chargedAt(h, i) >= since {
			held = addCap(held, uint64(h.Units), f.most)
		}
	}
	s.A = number<<f.shift | held
}

func (f *Fixed) remaining(s *State, _ *Holds, now int64) int64 { return f.Remaining(s.A, now) }

func (f *Fixed) retryAt(s *State, _ *Holds, now, cost int64) int64 {
	return f.RetryAt(s.A, now, cost)
}

func (f *Fixed) resetAt(s *State, _ *Holds, now int64) int64 { return f.ResetAt(s.A, now) }

func (f *Fixed) used(s *State, _ *Holds, now int64) int64 {
	_, used := f.current(s.A, now)
	return int64(used)
}

func (f *Fixed) book(now, used int64) (State, error) {
	if uint64(used) > f.most {
		return State{}, badParam("used", used, "units in use exceed what the new limit can count; at most %d fit", f.most)
	}
	return State{A: f.number(now)<<f.shift | uint64(used)}, nil
}

// adopt keeps the word of a rule whose current window is the same, to the
// nanosecond; zones of one name may differ.
func (f *Fixed) adopt(old Rule, s *State, _ *Holds, now int64) (State, bool, error) {
	if paced, ok := old.(*Paced); ok {
		old = paced.Fixed
	}
	o, ok := old.(*Fixed)
	if !ok || o.shift != f.shift || (o.cal == nil) != (f.cal == nil) {
		return State{}, false, nil
	}
	number, _ := o.current(s.A, now)
	oldStart, oldEnd := o.bounds(number)
	start, end := f.bounds(number)
	if start != oldStart || end != oldEnd {
		return State{}, false, nil
	}
	return *s, true, nil
}
