package algo

import (
	"math/bits"
	"slices"
)

// Paced is a calendar window in which some classes may use only the share of the period that
// has passed, so that a quota lasts until its end.
//
// It promises what Fixed does and, for the paced classes, that after each of their charges
// what all classes have used in the window is at most rate × (time passed / length of the
// window), rounded down. What was not used stays available until the window ends. It costs
// the word of Fixed.
//
// With the window [s, e), a charge of c at now by a paced class
//
//	is admitted if  used + c ≤ rate × (now − s) / (e − s)
//	retry at        s + ⌈(used + c) × (e − s) / rate⌉, in this window or the next
//
// Example: 30 million in April, which has 30 days. At the end of April 3rd a paced class is
// admitted up to 3 million used by everybody; a class that is not paced, up to 30 million.
//
// Edges. A window that begins has nothing for paced classes; after a day it has a day's share. All of it
// is there when it ends, and never before: so the last unit is not for paced classes, and what costs all
// never fits.
type Paced struct {
	*Fixed
	classes []string
}

// NewPaced returns the rule for rate units in every window of cal, of which classes are paced.
func NewPaced(rate int64, cal *Calendar, fill Fill, classes []string) (*Paced, error) {
	f, err := NewCalendarFixed(rate, cal, fill)
	if err != nil {
		return nil, err
	}
	return &Paced{Fixed: f, classes: classes}, nil
}

// Words returns 1.
func (p *Paced) Words() int { return 1 }

// Classes returns the paced classes. The caller must not change them.
func (p *Paced) Classes() []string { return p.classes }

func (p *Paced) paces(hs *Holds) bool { return slices.Contains(p.classes, hs.charging.class) }

// passed returns how many units the time that has passed of now's window is worth.
func (p *Paced) passed(s *State, now int64) int64 {
	number, _ := p.current(s.A, now)
	start, end := p.bounds(number)
	since := min(max(0, inRange(now)-start), end-start)
	hi, lo := bits.Mul64(uint64(p.units), uint64(since))
	units, _ := bits.Div64(hi, lo, uint64(end-start))
	return int64(units)
}

func (p *Paced) admits(s *State, hs *Holds, now, cost int64) bool {
	return p.remaining(s, hs, now) >= cost
}

func (p *Paced) remaining(s *State, hs *Holds, now int64) int64 {
	if !p.paces(hs) {
		return p.Fixed.remaining(s, hs, now)
	}
	return max(0, p.passed(s, now)-p.used(s, hs, now))
}

func (p *Paced) retryAt(s *State, hs *Holds, now, cost int64) int64 {
	if !p.paces(hs) || cost > p.units || p.admits(s, hs, now, cost) {
		return p.Fixed.retryAt(s, hs, now, cost)
	}
	number, used := p.current(s.A, now)
	for ; number <= p.last; number, used = number+1, 0 {
		if at, ok := p.fitsIn(number, int64(used)+cost); ok {
			return max(now, reachable(at))
		}
		if used == 0 {
			break // nor does it fit any later window
		}
	}
	return Never
}

// fitsIn returns when a window has passed so far that it is worth some units, if that is before its end.
func (p *Paced) fitsIn(number uint64, units int64) (at int64, ok bool) {
	start, end := p.bounds(number)
	if units >= p.units {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(units), uint64(end-start))
	lo, carry := bits.Add64(lo, uint64(p.units-1), 0)
	wait, _ := bits.Div64(hi+carry, lo, uint64(p.units))
	return start + int64(wait), int64(wait) < end-start
}

// adopt is Fixed's, which also continues windows that were not paced.
func (p *Paced) adopt(old Rule, s *State, hs *Holds, now int64) (State, bool, error) {
	return p.Fixed.adopt(old, s, hs, now)
}
