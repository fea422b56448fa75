package algo

import (
	"slices"
	"sort"
)

// SlidingLog is the exact sliding window: it remembers when each unit was
// taken and gives it back exactly one period later.
//
// It promises at most rate units in any interval (t − per, t], with no error at
// all up to a rate of ExactLogRate; the other rules are measured against it.
//
// It costs one entry of 16 bytes for every charge that still counts, at most
// rate entries per key; charges at the same instant share one. Above ExactLogRate
// instants are rounded up to steps of per/256: a unit comes back up to a
// 256th of the period late, never early, and a key has at most 258 entries.
//
// An entry of u units at a counts while now < a + per. A charge of c is
// admitted if the sum of the entries that count plus c is at most rate. It can be
// retried when the oldest entries that together free enough have left. Reset
// is when the youngest has left.
//
// Example: 3 per 10 s with entries at 1 s, 2 s and 5 s. At 9 s a charge of 2 is
// refused and can be retried at 12 s, when the second entry has left.
//
// Edges. A clock that steps back counts as the youngest entry's instant, so
// that entries stay in order. An overrun or a debit when all entries are taken joins
// the youngest, which then counts from now; beyond 2^62 units in all, no more are
// counted.
//
// Source: wowistudio/rali, "sliding window".
type SlidingLog struct {
	per   int64
	units int64
	step  int64 // instants are rounded up to a multiple of it
	fill  Fill
}

const (
	// MaxLogRate is the greatest rate of a sliding log.
	MaxLogRate = 1 << 40

	// ExactLogRate is the greatest rate of a log that remembers every instant.
	ExactLogRate = 4096

	logSteps = 256 // of a period, for greater rates
)

// LogStep returns the steps, in microseconds, in which a log of a greater rate than ExactLogRate
// counts a period, both in microseconds.
func LogStep(per int64) int64 { return (per + logSteps - 1) / logSteps }

// NewSlidingLog returns the rule for rate units in any per nanoseconds.
func NewSlidingLog(rate, per int64, fill Fill) (*SlidingLog, error) {
	if rate < 1 || rate > MaxLogRate {
		return nil, badParam("rate", rate, "must be between 1 and %d", MaxLogRate)
	}
	if err := checkPer(per); err != nil {
		return nil, err
	}
	if err := checkFill(fill); err != nil {
		return nil, err
	}
	l := &SlidingLog{per: per, units: rate, step: 1, fill: fill}
	if rate > ExactLogRate {
		l.step = LogStep((per+999)/1000) * 1000
	}
	return l, nil
}

// stepOf returns the instant at which a charge counts as made.
func (l *SlidingLog) stepOf(at int64) int64 {
	at = inRange(at)
	return min(at+(l.step-at%l.step)%l.step, Horizon)
}

// Log is the state of a sliding log: charges in order of time.
type Log struct {
	entries []entry // entries[0:head] have left
	head    int
	sum     int64 // of entries[head:]
}

type entry struct{ at, units int64 }

func (g *Log) clone() *Log {
	return &Log{entries: slices.Clone(g.entries[g.head:]), sum: g.sum}
}

// Capacity returns the units per period.
func (l *SlidingLog) Capacity() int64 { return l.units }

// Words returns -1: the state is a Log.
func (l *SlidingLog) Words() int { return -1 }

// Fresh returns the state of a key that was never used. A rule that starts less
// than full has the missing units taken at epoch.
func (l *SlidingLog) Fresh(epoch int64) State {
	s := State{Log: &Log{}}
	if l.fill > 0 {
		l.append(s.Log, epoch, int64(missingUnits(l.units, l.fill)))
	}
	return s
}

// Take charges cost units at now if they fit. A refusal changes nothing. Cost
// must lie between 0 and MaxCost.
func (l *SlidingLog) Take(g *Log, now, cost int64) bool {
	if cost == 0 || l.Remaining(g, now) < cost {
		return cost == 0
	}
	l.append(g, now, cost)
	return true
}

// live returns where the entries that count at now begin, and their sum.
func (l *SlidingLog) live(g *Log, now int64) (head int, sum int64) {
	now = inRange(now)
	head, sum = g.head, g.sum
	for head < len(g.entries) && g.entries[head].at+l.per <= now {
		sum -= g.entries[head].units
		head++
	}
	return head, sum
}

// append books units at now, after forgetting what has left.
func (l *SlidingLog) append(g *Log, now, units int64) {
	g.head, g.sum = l.live(g, now)
	now = l.stepOf(now)
	if units = min(units, maxCount-g.sum); units == 0 {
		return
	}
	g.sum += units
	if n := len(g.entries); n > g.head {
		last := &g.entries[n-1]
		if now <= last.at || int64(n-g.head) >= l.units {
			last.at = max(last.at, now)
			last.units += units
			return
		}
	}
	if g.head > len(g.entries)/2 { // amortised: moves less than has left
		g.entries = append(g.entries[:0], g.entries[g.head:]...)
		g.head = 0
	}
	g.entries = append(g.entries, entry{now, units})
}

// Remaining returns how many units fit at now.
func (l *SlidingLog) Remaining(g *Log, now int64) int64 {
	_, sum := l.live(g, now)
	return max(0, l.units-sum)
}

// RetryAt returns the first instant at which cost units fit if nothing else
// happens: now if they fit already, Never if they cannot.
func (l *SlidingLog) RetryAt(g *Log, now, cost int64) int64 {
	if cost > l.units {
		return Never
	}
	at := now
	head, sum := l.live(g, now)
	for ; cost > 0 && sum+cost > l.units; head++ {
		sum -= g.entries[head].units
		at = reachable(g.entries[head].at + l.per)
	}
	return at
}

// ResetAt returns the instant from which nothing of the past counts.
func (l *SlidingLog) ResetAt(g *Log, now int64) int64 {
	if head, _ := l.live(g, now); head < len(g.entries) {
		return reachable(g.entries[len(g.entries)-1].at + l.per)
	}
	return now
}

func (l *SlidingLog) admits(s *State, _ *Holds, now, cost int64) bool {
	return l.Remaining(s.Log, now) >= cost
}

func (l *SlidingLog) charge(s *State, _ *Holds, now, cost int64) {
	if cost > 0 {
		l.append(s.Log, now, cost)
	}
}

func (l *SlidingLog) fold(*State, *Holds, int64) {}

// refund takes the units out of the entry they are in. An emptied entry goes,
// so that it neither delays the reset nor takes another's place.
func (l *SlidingLog) refund(s *State, _ *Holds, at, now, units int64) int64 {
	i := l.find(s.Log, at, now)
	if i < 0 {
		return 0
	}
	e := &s.Log.entries[i]
	back := min(units, e.units)
	s.Log.sum -= back
	if e.units -= back; e.units == 0 {
		s.Log.entries = slices.Delete(s.Log.entries, i, i+1)
	}
	return back
}

// find returns the entry that counts a charge at at, or -1: the first that
// is not older, as charges may have joined a younger one.
func (l *SlidingLog) find(g *Log, at, now int64) int {
	head, _ := l.live(g, now)
	if at == forfeited || l.stepOf(at)+l.per <= now {
		return -1
	}
	at = l.stepOf(at)
	live := g.entries[head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].at >= at })
	if i == len(live) {
		return -1
	}
	return head + i
}

func (l *SlidingLog) countsSince(s *State, now int64) int64 {
	if head, _ := l.live(s.Log, now); head == len(s.Log.entries) {
		return countsNone
	}
	gone := inRange(now) - l.per
	return gone - gone%l.step + 1
}

func (l *SlidingLog) reset(s *State, hs *Holds, i int, now int64) {
	held := &Log{}
	charges := make([]entry, 0, hs.count)
	for h := range hs.all() {
		if k := l.find(s.Log, hs.chargedAt(h, i), now); k >= 0 && h.Units > 0 {
			charges = append(charges, entry{s.Log.entries[k].at, h.Units})
		}
	}
	slices.SortFunc(charges, func(a, b entry) int { return int(min(1, max(-1, a.at-b.at))) })
	for _, c := range charges {
		l.append(held, c.at, c.units)
	}
	s.Log = held
}

func (l *SlidingLog) remaining(s *State, _ *Holds, now int64) int64 {
	return l.Remaining(s.Log, now)
}

func (l *SlidingLog) retryAt(s *State, _ *Holds, now, cost int64) int64 {
	return l.RetryAt(s.Log, now, cost)
}

func (l *SlidingLog) resetAt(s *State, _ *Holds, now int64) int64 { return l.ResetAt(s.Log, now) }

func (l *SlidingLog) used(s *State, _ *Holds, now int64) int64 {
	_, sum := l.live(s.Log, now)
	return sum
}

func (l *SlidingLog) book(now, used int64) (State, error) {
	s := State{Log: &Log{}}
	if used > 0 {
		l.append(s.Log, now, used)
	}
	return s, nil
}

// adopt keeps the log of a rule with the same period.
func (l *SlidingLog) adopt(old Rule, s *State, _ *Holds, _ int64) (State, bool, error) {
	o, ok := old.(*SlidingLog)
	if !ok || o.per != l.per || o.step != l.step {
		return State{}, false, nil
	}
	return s.clone(), true, nil
}
