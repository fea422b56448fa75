package algo

// Slots limits concurrency: so many units may be held at once. They are held,
// not spent; time alone gives nothing back, but settling a hold does, and so
// does its expiry.
//
// It promises that never more than so many units are held. It costs one word
// per key, the units held; where holds have ids and expiries the word is their
// sum and nothing is stored twice.
//
// A charge of c is admitted if held + c ≤ slots. It can be retried when the
// holds that expire first have freed enough, or never by waiting alone if those
// do not expire. Reset is the last expiry.
//
// Example: 3 slots, held by one unit until 10 s and two until 30 s. A charge of
// 1 can be retried at 10 s, a charge of 2 at 30 s.
//
// Edges. Settling frees the whole hold, whatever was used of it. The clock plays
// no part but for expiries.
//
// Source: the counting semaphore; Stripe's concurrent requests limiter.
type Slots struct{ units int64 }

// NewSlots returns the rule for so many slots.
func NewSlots(slots int64) (*Slots, error) {
	if err := checkCount("rate", slots); err != nil {
		return nil, err
	}
	return &Slots{units: slots}, nil
}

// Capacity returns the number of slots.
func (l *Slots) Capacity() int64 { return l.units }

// Words returns 0: the holds are the state.
func (l *Slots) Words() int { return 0 }

// Take holds cost more slots if they are free and returns the next word; a
// refusal returns the word as it was.
func (l *Slots) Take(held uint64, cost int64) (next uint64, ok bool) {
	if held+uint64(cost) > uint64(l.units) && cost > 0 {
		return held, false
	}
	return held + uint64(cost), true
}

// Give frees cost slots and returns the next word.
func (l *Slots) Give(held uint64, cost int64) uint64 {
	return held - min(held, uint64(cost))
}

// Fresh returns the state in which nothing is held.
func (l *Slots) Fresh(int64) State { return State{} }

func (l *Slots) admits(_ *State, hs *Holds, now, cost int64) bool {
	return l.remaining(nil, hs, now) >= cost
}

func (l *Slots) remaining(_ *State, hs *Holds, now int64) int64 {
	return max(0, l.units-hs.openUnits(now))
}

func (l *Slots) retryAt(_ *State, hs *Holds, now, cost int64) int64 {
	if cost > l.units {
		return Never
	}
	held := hs.units
	at := now
	for h := range hs.all() {
		if held+cost <= l.units {
			break
		}
		held -= h.Units
		at = max(at, h.Expiry)
	}
	return at
}

func (l *Slots) resetAt(_ *State, hs *Holds, now int64) int64 {
	if h := hs.last(); h != nil {
		return max(now, h.Expiry)
	}
	return now
}

// The hold is the state: there is nothing to charge, give back or convert.

func (l *Slots) charge(*State, *Holds, int64, int64)                    {}
func (l *Slots) fold(*State, *Holds, int64)                             {}
func (l *Slots) refund(_ *State, _ *Holds, _, _, _ int64) int64         { return 0 }
func (l *Slots) reset(*State, *Holds, int, int64)                       {}
func (l *Slots) used(*State, *Holds, int64) int64                       { return 0 }
func (l *Slots) countsSince(*State, int64) int64                        { return countsNone }
func (l *Slots) book(int64, int64) (State, error)                       { return State{}, nil }
func (l *Slots) adopt(Rule, *State, *Holds, int64) (State, bool, error) { return State{}, true, nil }
