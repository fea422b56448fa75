package algo

// Dual is the dual window: so many units per second and so many per minute,
// charged together in one word. It suits upstream servers that publish both.
//
// It promises at most perSecond units in any clock second and perMinute in any
// clock minute, all or nothing, and so at most twice either across an edge.
// Its decisions equal those of two Fixed windows.
//
// It costs one word per key for both:
//
//	word: minute since Epoch (25) | used this minute (18) | second of minute (6) | used this second (15)
//
// Seconds of a minute end at 59; 63 is free for a caller's mark (see DualMark).
// The minute's number does not repeat before October 2083, so no length of
// idling makes an old count look new or a new one old, as numbers of 15 and 16
// bits would. From then on it stands still, and what is used up stays so.
//
// With the later of the stored time and now, and counts of past windows zero, a
// charge of c is admitted if secondUsed + c ≤ perSecond and minuteUsed + c ≤
// perMinute. Retry is the end of the refusing window, the minute's if both
// refuse.
//
// Example: 50 per second and 2,400 per minute. 50 units in each of the seconds
// :00 to :47 use up the minute; the next fits at :00 of the following one.
//
// Edges. Limits are 32,767 per second and 262,143 per minute; NewDual refuses
// more. Zero means no such limit. A clock that steps back
// stays in the stored second.
//
// Source: the suibase daemon's design of dual rate limits, corrected.
type Dual struct {
	perSecond, perMinute     uint64 // beyond every count where there is no such limit
	countSecond, countMinute uint64 // 1 if the window is limited, else 0: nothing is counted
	fill                     Fill
}

const (
	// MaxPerSecond and MaxPerMinute are what 15 and 18 bits can count.
	MaxPerSecond = 1<<15 - 1
	MaxPerMinute = 1<<18 - 1

	// DualMark is a word that no charge produces.
	DualMark uint64 = 63 << 15

	secondNs int64 = 1_000_000_000
	minuteNs int64 = 60 * secondNs
)

// NewDual returns the rule for so many units per second and per minute. Either
// may be 0, which is no limit.
func NewDual(perSecond, perMinute int64, fill Fill) (*Dual, error) {
	if perSecond < 0 || perSecond > MaxPerSecond {
		return nil, badParam("rate", perSecond, "a dual window counts at most %d per second", MaxPerSecond)
	}
	if perMinute < 0 || perMinute > MaxPerMinute {
		return nil, badParam("rate", perMinute, "a dual window counts at most %d per minute", MaxPerMinute)
	}
	if perSecond+perMinute == 0 {
		return nil, badParam("rate", 0, "a dual window needs a limit per second, per minute or both")
	}
	if err := checkFill(fill); err != nil {
		return nil, err
	}
	return &Dual{
		perSecond:   orUnlimited(perSecond),
		perMinute:   orUnlimited(perMinute),
		countSecond: uint64(min(perSecond, 1)),
		countMinute: uint64(min(perMinute, 1)),
		fill:        fill,
	}, nil
}

func orUnlimited(n int64) uint64 {
	if n == 0 {
		return uint64(maxCount)
	}
	return uint64(n)
}

// NewDualHalf returns one half of a dual window as a window by itself: rate units
// per second, or per minute. Like the whole it stands still from 2083 on.
func NewDualHalf(rate, per int64, fill Fill) (*Fixed, error) {
	var err error
	w, which := every(max(per, 1)), wholeWindow
	switch per {
	case secondNs:
		_, err = NewDual(rate, 0, fill)
		w.last, which = 60<<25-1, secondHalf
	case minuteNs:
		_, err = NewDual(0, rate, fill)
		w.last, which = 1<<25-1, minuteHalf
	default:
		err = badParam("per", per, "a dual window is per second or per minute")
	}
	if err != nil {
		return nil, err
	}
	f, err := newFixed(rate, w, fill)
	if err != nil {
		return nil, err
	}
	f.half = which
	return f, nil
}

// Capacity returns the most units that ever fit at once.
func (d *Dual) Capacity() int64 { return int64(min(d.perSecond, d.perMinute)) }

// DualUse is what a dual word says at an instant.
type DualUse struct {
	Second, Minute         int64 // units used in this second and this minute
	SecondEnds, MinuteEnds int64 // the instants at which these end; Never from 2083 on
}

// current splits the word and moves it to now. Minute and second are counted
// from Epoch and from the minute.
func (d *Dual) current(word uint64, now int64) (minute, usedMinute, second, usedSecond uint64) {
	secs := sinceEpoch(now) / uint64(secondNs)
	minute, second = secs/60, secs%60
	if minute >= 1<<25 {
		minute, second = 1<<25-1, 59
	}
	m, um, s, us := word>>39, word>>21&MaxPerMinute, word>>15&63, word&MaxPerSecond
	switch {
	case m > minute || m == minute && s >= second:
		return m, um, s, us
	case m == minute:
		return m, um, second, 0
	}
	return minute, 0, second, 0
}

func packDual(minute, usedMinute, second, usedSecond uint64) uint64 {
	return minute<<39 | min(usedMinute, MaxPerMinute)<<21 | second<<15 | min(usedSecond, MaxPerSecond)
}

// Take charges cost units at now if they fit both windows and returns the next
// word; a refusal returns the word as it was. Cost must lie between 0 and
// MaxCost.
func (d *Dual) Take(word uint64, now, cost int64) (next uint64, ok bool) {
	minute, um, second, us := d.current(word, now)
	c := uint64(cost)
	if cost == 0 || us+c > d.perSecond || um+c > d.perMinute {
		return word, cost == 0
	}
	return packDual(minute, um+c*d.countMinute, second, us+c*d.countSecond), true
}

// Use returns the counts at now.
func (d *Dual) Use(word uint64, now int64) DualUse {
	minute, um, second, us := d.current(word, now)
	starts := Epoch + int64(minute)*minuteNs
	u := DualUse{
		Second: int64(us), Minute: int64(um),
		SecondEnds: starts + int64(second+1)*secondNs, MinuteEnds: starts + minuteNs,
	}
	if minute >= 1<<25-1 { // the last
		u.MinuteEnds = Never
		if second >= 59 {
			u.SecondEnds = Never
		}
	}
	return u
}

// Remaining returns how many units fit at now.
func (d *Dual) Remaining(word uint64, now int64) int64 {
	u := d.Use(word, now)
	return max(0, min(int64(d.perSecond)-u.Second, int64(d.perMinute)-u.Minute))
}

// RetryAt returns the first instant at which cost units fit if nothing else
// happens: now if they fit already, Never if they cannot.
func (d *Dual) RetryAt(word uint64, now, cost int64) int64 {
	u := d.Use(word, now)
	switch {
	case cost == 0:
		return now
	case cost > d.Capacity():
		return Never
	case u.Minute+cost > int64(d.perMinute):
		return u.MinuteEnds
	case u.Second+cost > int64(d.perSecond):
		return u.SecondEnds
	}
	return now
}

// ResetAt returns the instant from which nothing of the past counts.
func (d *Dual) ResetAt(word uint64, now int64) int64 {
	switch u := d.Use(word, now); {
	case u.Minute > 0:
		return u.MinuteEnds
	case u.Second > 0:
		return u.SecondEnds
	}
	return now
}

// GrantedSince returns the earliest instant at which Take can have written the
// word: the start of its second.
func (d *Dual) GrantedSince(word uint64) int64 {
	return Epoch + int64(word>>39)*minuteNs + int64(word>>15&63)*secondNs
}

// Fresh returns the word of a key that was never used.
func (d *Dual) Fresh(epoch int64) uint64 {
	if d.fill == 0 {
		return 0
	}
	minute, _, second, _ := d.current(0, epoch)
	return packDual(minute,
		d.countMinute*missingUnits(int64(d.perMinute), d.fill), second,
		d.countSecond*missingUnits(int64(d.perSecond), d.fill))
}

// Unpack returns the same state as two fixed windows have it, of a second and
// of a minute. Either may be nil.
func (d *Dual) Unpack(word uint64, second, minute *Fixed) (s, m State) {
	mn, um, sn, us := word>>39, word>>21&MaxPerMinute, word>>15&63, word&MaxPerSecond
	if second != nil {
		s.A = (mn*60+sn)<<second.shift | us
	}
	if minute != nil {
		m.A = mn<<minute.shift | um
	}
	return s, m
}

// Pack is the inverse of Unpack. Counts beyond the caps stop at them.
func (d *Dual) Pack(s, m State, second, minute *Fixed) uint64 {
	var secs, us, mn, um uint64
	if second != nil {
		secs, us = s.A>>second.shift, s.A&second.most
	}
	if minute != nil {
		mn, um = m.A>>minute.shift, m.A&minute.most
	}
	mn, secs = min(mn, 1<<25-1), min(secs, 60<<25-1) // from 2083 on it stands
	if secs < mn*60 {
		secs, us = mn*60, 0
	}
	if secs/60 > mn {
		mn, um = secs/60, 0
	}
	return packDual(mn, um, secs%60, us)
}
