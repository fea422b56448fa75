package algo

import "math/bits"

// Sliding is the estimated sliding window: two counters stand for a log.
//
// It promises that arrivals which are uniform within each window never exceed
// rate units in any interval as long as a window. Against an adversary it
// promises less than twice the rate: a burst at the end of one window looks as if
// it had been spread over it. Use SlidingLog where the limit is small and must
// be exact, GCRA where a burst and a rate will do.
//
// It costs two words per key:
//
//	A: 0 (1) | window number | used in this window     B: used in the window before
//
// With P used in the window before, C in this one, e nanoseconds into it and
// windows of W nanoseconds, the estimate is what of P is still covered, plus C:
//
//	estimate = P × (W − e)/W + C;   a charge of c is admitted if estimate + c ≤ rate
//
// compared exactly, in 128 bits. It can be retried in this window once
// P × (W − e) ≤ (rate − C − c) × W or, if C + c > rate, in the next once
// C × (W − e) ≤ (rate − c) × W. The estimate falls steadily and is continuous
// across the edge, so what fits once goes on fitting.
//
// Example: 10 per minute, P = 8, C = 4, 15 s into the window: the estimate is
// 8 × 45/60 + 4 = 10, so 1 is refused; it fits when 8 × (60 − e) ≤ 5 × 60, at
// e = 22.5 s, in 7.5 s. (Solving for an estimate of 10, without the 1 that is to
// fit, finds an instant at which it is refused again.)
//
// Edges. Windows are always aligned to the clock, also the first. A window
// without charges makes P zero; P is never a window older than the last. A clock
// that steps back counts as the start of the stored window.
//
// Source: Cloudflare, "How we built rate limiting capable of scaling to
// millions of domains", 2017; wowistudio/rali, corrected.
type Sliding struct {
	windows
	units int64
	shift uint
	most  uint64
	fill  Fill
}

// NewSliding returns the rule for rate units per per nanoseconds.
func NewSliding(rate, per int64, fill Fill) (*Sliding, error) {
	f, err := NewFixed(rate, per, fill)
	if err != nil {
		return nil, err
	}
	return &Sliding{windows: f.windows, units: f.units, shift: f.shift, most: f.most, fill: fill}, nil
}

// slide is a sliding state, moved to now.
type slide struct {
	number    uint64
	cur, prev uint64
	start     int64 // of window number
	elapsed   int64 // in it, at least 0 and less than its length
}

func (w *Sliding) current(s State, now int64) slide {
	v := slide{number: w.number(now)}
	switch stored := s.A >> w.shift; {
	case stored >= v.number:
		v.number, v.cur, v.prev = stored, s.A&w.most, min(s.B, w.most)
	case stored+1 == v.number:
		v.prev = s.A & w.most
	}
	v.start, _ = w.bounds(v.number)
	v.elapsed = min(max(now-v.start, 0), w.per-1)
	return v
}

func (w *Sliding) pack(v slide) State {
	return State{A: v.number<<w.shift | v.cur, B: v.prev}
}

// Capacity returns the units per window.
func (w *Sliding) Capacity() int64 { return w.units }

// Words returns 2.
func (w *Sliding) Words() int { return 2 }

// Take charges cost units at now if they fit and returns the next state; a
// refusal returns the state as it was. Cost must lie between 0 and MaxCost.
func (w *Sliding) Take(s State, now, cost int64) (next State, ok bool) {
	v := w.current(s, now)
	if cost == 0 || w.room(v) < cost {
		return s, cost == 0
	}
	v.cur += uint64(cost)
	return w.pack(v), true
}

// Remaining returns how many units fit at now.
func (w *Sliding) Remaining(s State, now int64) int64 { return w.room(w.current(s, now)) }

func (w *Sliding) room(v slide) int64 {
	return max(0, w.units-w.estimate(v))
}

// estimate returns P × (W − e)/W + C, rounded up.
func (w *Sliding) estimate(v slide) int64 {
	covered := mulDivUp(v.prev, uint64(w.per-v.elapsed), uint64(w.per))
	return int64(min(covered+v.cur, uint64(maxCount)))
}

// mulDivUp returns ⌈a × b / c⌉ for b ≤ c.
func mulDivUp(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, rest := bits.Div64(hi, lo, c)
	if rest > 0 {
		q++
	}
	return q
}

// RetryAt returns the first instant at which cost units fit if nothing else
// happens: now if they fit already, Never if they cannot.
func (w *Sliding) RetryAt(s State, now, cost int64) int64 {
	if cost > w.units {
		return Never
	}
	v := w.current(s, now)
	if cost == 0 || w.room(v) >= cost {
		return now
	}
	if room := w.units - cost - int64(v.cur); room >= 0 {
		return w.after(v, w.falls(v.prev, room))
	}
	return w.after(v, w.per+w.falls(v.cur, w.units-cost))
}

// after returns the instant so long after the start of a window, or Never if its window
// does not come.
func (w *Sliding) after(v slide, d int64) int64 {
	if v.number+uint64(d/w.per) > w.last {
		return Never
	}
	return v.start + d
}

// falls returns how far into a window the weight of prev has fallen to room:
// the least e with prev × (W − e) ≤ room × W. Room is less than prev.
func (w *Sliding) falls(prev uint64, room int64) int64 {
	hi, lo := bits.Mul64(uint64(room), uint64(w.per))
	q, _ := bits.Div64(hi, lo, prev)
	return w.per - int64(q)
}

// ResetAt returns the instant from which nothing of the past counts.
func (w *Sliding) ResetAt(s State, now int64) int64 {
	switch v := w.current(s, now); {
	case v.cur > 0:
		return w.after(v, 2*w.per)
	case v.prev > 0:
		return w.after(v, w.per)
	}
	return now
}

// Fresh returns the state of a key that was never used. A rule that starts less
// than full has the missing units used up in epoch's window.
func (w *Sliding) Fresh(epoch int64) State {
	if w.fill == 0 {
		return State{}
	}
	return State{A: w.number(epoch)<<w.shift | missingUnits(w.units, w.fill)}
}

func (w *Sliding) admits(s *State, _ *Holds, now, cost int64) bool {
	return w.Remaining(*s, now) >= cost
}

func (w *Sliding) charge(s *State, _ *Holds, now, cost int64) {
	v := w.current(*s, now)
	v.cur = addCap(v.cur, uint64(cost), w.most)
	*s = w.pack(v)
}

func (w *Sliding) fold(*State, *Holds, int64) {}

// refund gives back into the window that was charged, be it this one or the
// one before.
func (w *Sliding) refund(s *State, _ *Holds, at, now, units int64) int64 {
	v := w.current(*s, now)
	into := w.counter(&v, at)
	if into == nil {
		return 0
	}
	back := min(uint64(units), *into)
	*into -= back
	*s = w.pack(v)
	return int64(back)
}

// counter returns the counter that a charge at at went into, or nil.
func (w *Sliding) counter(v *slide, at int64) *uint64 {
	if at == forfeited {
		return nil
	}
	switch w.number(at) {
	case v.number:
		return &v.cur
	case v.number - 1:
		return &v.prev
	}
	return nil
}

func (w *Sliding) countsSince(s *State, now int64) int64 {
	return w.current(*s, now).start // the window before counts in part only
}

func (w *Sliding) reset(s *State, hs *Holds, i int, now int64) {
	v := w.current(*s, now)
	v.cur, v.prev = 0, 0
	for h := range hs.all() {
		if into := w.counter(&v, hs.chargedAt(h, i)); into != nil {
			*into = addCap(*into, uint64(h.Units), w.most)
		}
	}
	*s = w.pack(v)
}

func (w *Sliding) remaining(s *State, _ *Holds, now int64) int64 { return w.Remaining(*s, now) }

func (w *Sliding) retryAt(s *State, _ *Holds, now, cost int64) int64 {
	return w.RetryAt(*s, now, cost)
}

func (w *Sliding) resetAt(s *State, _ *Holds, now int64) int64 { return w.ResetAt(*s, now) }

func (w *Sliding) used(s *State, _ *Holds, now int64) int64 {
	return w.estimate(w.current(*s, now))
}

func (w *Sliding) book(now, used int64) (State, error) {
	if uint64(used) > w.most {
		return State{}, badParam("used", used, "units in use exceed what the new limit can count; at most %d fit", w.most)
	}
	return State{A: w.number(now)<<w.shift | uint64(used)}, nil
}

// adopt keeps both counters of a rule with the same windows.
func (w *Sliding) adopt(old Rule, s *State, _ *Holds, _ int64) (State, bool, error) {
	o, ok := old.(*Sliding)
	if !ok || o.per != w.per {
		return State{}, false, nil
	}
	return *s, true, nil
}
