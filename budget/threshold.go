package budget

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
)

// Off as a threshold means that it is never reached.
const Off = -1

// The thresholds of a budget for which none are set, in percent.
const (
	DefaultWarning  = 80
	DefaultPause    = 90
	DefaultCritical = 100
	DefaultResume   = 75
)

// Thresholds are the levels of utilisation, in percent of what a budget has, at which something happens. A
// nil field is its default, so that 0 can be set:
//
//	Thresholds{Warning: new(70), Critical: new(budget.Off)}
type Thresholds struct {
	// Warning is where the level Warning begins. The default is 80.
	Warning *int

	// Pause is where the level Paused begins. The default is 90.
	Pause *int

	// Critical is where the level Critical begins. The default is 100.
	Critical *int

	// Resume is the mark below which Paused ends, so that a budget around Pause does not change its level
	// with each call. It cannot be off; the value of Pause means no such distance. The default is 75, or
	// Pause if that is less.
	Resume *int
}

// Validate returns an error for each threshold that is wrong.
func (t Thresholds) Validate() error {
	var errs []error
	add := func(value int, problem, field string) {
		errs = append(errs, &fielderr.Error{Package: "budget", Path: []any{field}, Value: value, Problem: problem})
	}
	m := t.marks()
	fields := []struct {
		name string
		mark int
	}{{"Warning", m.warning}, {"Pause", m.pause}, {"Critical", m.critical}}
	for i, f := range fields {
		if f.mark != Off && (f.mark < 0 || f.mark > 100) {
			add(f.mark, "must be 0 to 100 percent, or Off", f.name)
			continue
		}
		for _, lower := range fields[:i] {
			if f.mark != Off && lower.mark > f.mark && lower.mark <= 100 {
				add(f.mark, fmt.Sprintf("must not be less than %s, which is %d", lower.name, lower.mark), f.name)
			}
		}
	}
	switch {
	case m.resume < 0 || m.resume > 100:
		add(m.resume, "must be 0 to 100 percent", "Resume")
	case m.pause != Off && m.resume > m.pause:
		add(m.resume, fmt.Sprintf("must not be more than Pause, which is %d", m.pause), "Resume")
	case m.pause > 0 && m.resume == 0:
		add(m.resume, "no utilisation is below 0, so a pause would never end: use at least 1", "Resume")
	}
	return errors.Join(errs...)
}

// marks are thresholds with their defaults filled in.
type marks struct{ warning, pause, critical, resume int }

func (t Thresholds) marks() marks {
	m := marks{
		warning:  valueOr(t.Warning, DefaultWarning),
		pause:    valueOr(t.Pause, DefaultPause),
		critical: valueOr(t.Critical, DefaultCritical),
	}
	resume := DefaultResume
	if m.pause >= 0 {
		resume = min(resume, m.pause)
	}
	m.resume = valueOr(t.Resume, resume)
	return m
}

func valueOr(p *int, def int) int {
	if p == nil {
		return def
	}
	return *p
}

// Level is how close a budget is to its end.
type Level int

// The levels, each worse than the one before.
const (
	Normal   Level = iota
	Warning        // at Thresholds.Warning or above
	Paused         // reached Thresholds.Pause, and was not below Thresholds.Resume since
	Critical       // at Thresholds.Critical or above
)

// String returns the name in lower case, such as "paused".
func (l Level) String() string {
	switch l {
	case Normal:
		return "normal"
	case Warning:
		return "warning"
	case Paused:
		return "paused"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// full is a utilisation of 100 %. Utilisations are in millionths, so that a percentage is a whole number of
// them and "at the mark" is exact.
const full = 1_000_000

// gauge turns utilisations into levels. Going up, a level begins at its mark. Going down, Critical ends
// below its mark, Paused below the resume mark, and Warning below both its mark and the resume mark. With the
// default marks:
//
//	79 % normal · 80 % warning · 90 % paused · 100 % critical · 99 % paused · 75 % paused · 74 % normal
//
// Marks that change begin anew: what was reached under others does not count.
//
// It is not safe for concurrent use. The zero value is at Normal.
type gauge struct {
	marks  marks // of the last observation
	paused bool  // reached the pause mark, and was not below the resume mark since
	level  Level
}

// observe returns the level at a utilisation in millionths, and whether it is another than before.
func (g *gauge) observe(utilisation int64, by marks) (level Level, changed bool) {
	before := g.level
	if by != g.marks {
		*g = gauge{marks: by}
	}
	if reached(utilisation, g.marks.pause) {
		g.paused = true
	} else if !reached(utilisation, g.marks.resume) {
		g.paused = false
	}
	g.level = g.next(utilisation)
	return g.level, g.level != before
}

func (g *gauge) next(utilisation int64) Level {
	warned := g.level != Normal && g.marks.warning != Off && reached(utilisation, g.marks.resume)
	switch {
	case reached(utilisation, g.marks.critical):
		return Critical
	case g.paused:
		return Paused
	case reached(utilisation, g.marks.warning), warned:
		return Warning
	}
	return Normal
}

// reached reports whether a utilisation is at a mark in percent or above.
func reached(utilisation int64, mark int) bool {
	return mark != Off && utilisation >= int64(mark)*(full/100)
}

// meter averages the utilisation of a budget over the last second, so that one burst does not pause
// anything. What is added counts until the next is added: the average is weighted by time. In the first
// second it is over the time since the first was added.
//
// The second is kept in 64 slots. It is exact, but for the slot that is just leaving the second: of that the
// mean counts for the part that is left. A clock that goes back stands still.
//
// It is not safe for concurrent use.
type meter struct {
	started bool
	first   weir.Instant // of the first utilisation
	last    weir.Instant // up to which the slots are filled
	current int64        // the utilisation since last
	slots   [meterSlots + 1]meterSlot
}

const (
	meterSpan  = 1_000_000_000 // ns
	meterSlots = 64
	slotSpan   = meterSpan / meterSlots // ns, without a rest

	// maxUtilisation keeps the sums within int64, 10^7 × 10^9. More is possible with debt only.
	maxUtilisation = 10 * full
)

// meterSlot is the part of the time with one number = ⌊instant / slotSpan⌋.
type meterSlot struct {
	number int64
	sum    int64 // utilisation × ns
}

// add says what is used of a limit from now on. A limit of 0 is used up.
func (m *meter) add(at weir.Instant, used, limit int64) {
	at = m.advance(at)
	if !m.started {
		m.started, m.first = true, at
	}
	m.current = utilisation(used, limit)
}

// average returns the mean utilisation in the second before an instant, in millionths. Before the first was
// added it is 0.
func (m *meter) average(at weir.Instant) int64 {
	at = m.advance(at)
	from := max(m.first, at-meterSpan)
	if !m.started || from == at {
		return m.current
	}
	var sum int64
	oldest := int64(from) / slotSpan
	for n := oldest; n <= int64(at)/slotSpan; n++ {
		if s := m.slots[n%int64(len(m.slots))]; s.number == n {
			sum += s.sum
		}
	}
	return (sum - m.outside(oldest, from)) / int64(at-from)
}

// outside returns how much of the sum of a slot lies before an instant in it.
func (m *meter) outside(number int64, from weir.Instant) int64 {
	begin := max(m.first, weir.Instant(number*slotSpan))
	end := min(m.last, weir.Instant((number+1)*slotSpan))
	if from <= begin {
		return 0
	}
	sum := m.slots[number%int64(len(m.slots))].sum
	return mulDivUp(sum, int64(from-begin), int64(end-begin))
}

// advance fills the slots up to an instant, and returns it or a later one that was reached before.
func (m *meter) advance(at weir.Instant) weir.Instant {
	at = max(at, m.last)
	if m.started {
		// What is older than the second is outside of it, whole slots excepted.
		for t := max(m.last, at-meterSpan-slotSpan); t < at; {
			number := int64(t) / slotSpan
			end := min(at, weir.Instant((number+1)*slotSpan))
			s := &m.slots[number%int64(len(m.slots))]
			if s.number != number {
				*s = meterSlot{number: number}
			}
			s.sum += m.current * int64(end-t)
			t = end
		}
	}
	m.last = at
	return at
}

// utilisation returns used/limit in millionths, rounded down.
func utilisation(used, limit int64) int64 {
	switch {
	case used <= 0 && limit > 0:
		return 0
	case limit <= 0:
		return full
	}
	hi, lo := bits.Mul64(uint64(used), full)
	if hi >= uint64(limit) {
		return maxUtilisation
	}
	q, _ := bits.Div64(hi, lo, uint64(limit))
	return int64(min(q, maxUtilisation))
}

// mulDivUp returns ⌈a × b / c⌉ for 0 ≤ a, 0 ≤ b ≤ c and 0 < c.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	return int64(q)
}
