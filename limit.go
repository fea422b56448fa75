package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimit/weir/algo"
)

// Limit is so many units per period. The zero value of every field but Rate and
// Per is a sensible default.
type Limit struct {
	// Name identifies the limit within its policy; its state survives a change of the
	// other fields. At most one limit of a policy may have no name; it is called
	// "main".
	Name string

	// Rate is the number of units per Per, at least 1. For Concurrency it is
	// the number of slots.
	Rate int64

	// Per is Every(d) or Calendar(unit, zone). Concurrency has none.
	Per Period

	// Burst is how many units may be taken at once after a pause. The default
	// is Rate. Burst 1 means that no two units are closer than Per/Rate.
	// Windows have no burst of their own.
	Burst int64

	// Algorithm is how the limit counts. The default is GCRA for durations
	// and FixedWindow for calendars.
	Algorithm Algorithm

	// Initial is how full the limit starts. The default is full.
	Initial Fill

	// MaxDebt is how many units beyond Burst a key may owe after an overrun or a debit;
	// units beyond that are not charged. Set fails if a key owes more than the new
	// limit allows. The default is all that can be represented. Only GCRA, TokenBucket
	// and Lending have it.
	MaxDebt int64

	// Classes divide the limit: each has a guaranteed share, and what one leaves idle is lent to
	// the others. The default is none. One limit of a policy may have them, that with the
	// shortest period. Policy.Class returns the policy for charges of a class.
	Classes Classes `json:",omitzero"`

	// Pace names classes, separated by commas, that may use only the share of a calendar period
	// that has passed: of 30 million a month, one million for each day so far. What was not used
	// stays available. Charges of other classes count, but are not held back. The default is none.
	Pace string `json:",omitempty"`

	// OnError is what the limit does while its store is unavailable, under a limiter
	// that decides nevertheless, such as package tiered's. The default is what that
	// limiter is configured to do.
	OnError OnError
}

// MaxCost is the greatest cost of one charge: 2,147,483,647.
const MaxCost = algo.MaxCost

// String returns the limit as people write it, such as "100 per 1s burst 20".
func (l Limit) String() string {
	if l.Algorithm == Concurrency {
		return fmt.Sprintf("%d at once", l.Rate)
	}
	s := fmt.Sprintf("%d per %v", l.Rate, l.Per)
	if l.Burst != 0 && l.Burst != l.Rate {
		s += fmt.Sprintf(" burst %d", l.Burst)
	}
	if l.Algorithm != Auto {
		s += fmt.Sprintf(" (%v)", l.Algorithm)
	}
	for _, c := range l.Classes.List() {
		s += " " + c.String()
	}
	return s
}

// PerSecond returns a limit of n units per second, with a burst of n. For another burst or
// algorithm set the field:
//
//	limit := weir.PerSecond(50)
//	limit.Burst = 1
func PerSecond(n int64) Limit { return Limit{Rate: n, Per: Every(time.Second)} }

// PerMinute returns a limit of n units per minute, with a burst of n.
func PerMinute(n int64) Limit { return Limit{Rate: n, Per: Every(time.Minute)} }

// normal returns the limit with its defaults filled in.
func (l Limit) normal() Limit {
	if l.Name == "" {
		l.Name = "main"
	}
	if l.Algorithm == Auto {
		l.Algorithm = GCRA
		if l.Per.isCalendar() {
			l.Algorithm = FixedWindow
		}
		if l.Classes != (Classes{}) {
			l.Algorithm = Lending
		}
	}
	if l.Burst == 0 {
		l.Burst = l.Rate
	}
	return l
}

// compile returns the rule of a normal limit.
func (l Limit) compile(fill algo.Fill) (algo.Rule, error) {
	if err := l.checkShape(); err != nil {
		return nil, err
	}
	per := int64(l.Per.every)
	switch l.Algorithm {
	case GCRA, TokenBucket:
		return algo.NewGCRA(l.Rate, per, l.Burst, l.MaxDebt, fill)
	case FixedWindow:
		if l.Per.isCalendar() {
			return l.calendarRule(fill)
		}
		return algo.NewFixed(l.Rate, per, fill)
	case AnchoredWindow:
		return algo.NewAnchored(l.Rate, per, fill)
	case SlidingWindow:
		return algo.NewSliding(l.Rate, per, fill)
	case SlidingLog:
		return algo.NewSlidingLog(l.Rate, per, fill)
	case DualWindow:
		return algo.NewDualHalf(l.Rate, per, fill)
	case Concurrency:
		return algo.NewSlots(l.Rate)
	case Lending:
		return l.lendingRule(fill)
	}
	return nil, badField("algorithm", l.Algorithm, "is not one that weir knows")
}

// checkShape refuses combinations of fields that mean nothing.
func (l Limit) checkShape() error {
	switch {
	case l.Rate < 1 || l.Rate > algo.MaxRate:
		return badField("rate", l.Rate, fmt.Sprintf("must be between 1 and %d; leave the limit out for no limit", algo.MaxRate))
	case l.Algorithm == Concurrency && l.Per != Period{}:
		return badField("per", l.Per, "slots are held, not spent per period; leave it out")
	case l.Algorithm == Concurrency && l.Initial != (Fill{}):
		return badField("initial", l.Initial, "slots always start free; leave it out")
	case l.Algorithm != Concurrency && l.Per == Period{}:
		return badField("per", "none", "say how long a period is, such as Every(time.Second)")
	case l.Per.isCalendar() && (l.Per.unit < algo.Day || l.Per.unit > algo.Year):
		return badField("per", l.Per, "must be a day, week, month or year")
	case l.Per.isCalendar() && l.Algorithm != FixedWindow:
		return badField("algorithm", l.Algorithm, "calendar periods differ in length; use FixedWindow, or Every with a duration")
	case l.Burst < 0:
		return badField("burst", l.Burst, "must not be negative")
	case l.Burst != l.Rate && !l.bursts():
		return badField("burst", l.Burst, fmt.Sprintf("a window admits its rate; leave burst out or make it %d", l.Rate))
	case l.MaxDebt < 0:
		return badField("max_debt", l.MaxDebt, "must not be negative")
	case l.MaxDebt != 0 && !l.bursts():
		return badField("max_debt", l.MaxDebt, "only GCRA and TokenBucket have it; leave it out")
	case l.Classes != (Classes{}) && l.Algorithm != Lending:
		return badField("classes", l.Algorithm, "such a limit has no classes; leave the algorithm out, or make it lending")
	case l.Classes == (Classes{}) && l.Algorithm == Lending:
		return badField("classes", "none", "lending is between classes: name at least one")
	case l.Pace != "" && !l.Per.isCalendar():
		return badField("pace", fmt.Sprintf("%q", l.Pace), "only calendar periods can be paced, such as a month")
	case l.OnError > FailClosed:
		return badField("on_error", l.OnError, "must be FailLocal, FailOpen or FailClosed, or left out")
	}
	return nil
}

func (l Limit) bursts() bool {
	return l.Algorithm == GCRA || l.Algorithm == TokenBucket || l.Algorithm == Lending
}

// scale returns the limit with num/den of its rate and the same burst, for
// windows and slots num/den of their units, never less than one. It returns
// false if such a rate cannot be represented to a millionth.
func (l Limit) scale(num, den int64) (Limit, bool) {
	if !l.bursts() {
		l.Rate = max(1, mulDiv(l.Rate, num, den))
		l.Burst = l.Rate
		return l, true
	}
	if l.Algorithm == Lending { // whose classes have rates for the same period
		l.Per = Every(time.Duration(mulDiv(int64(l.Per.every), den, num)))
		return l, l.Per.every >= 1 && int64(l.Per.every) <= algo.MaxPer
	}
	want := float64(l.Rate) / float64(l.Per.every) * float64(num) / float64(den)
	g := gcd(num, den)
	num, den = num/g, den/g
	g = gcd(l.Rate, den)
	rate, den := l.Rate/g, den/g
	g = gcd(int64(l.Per.every), num)
	per, num := int64(l.Per.every)/g, num/g
	for num > algo.MaxRate/rate || den > max(1, algo.MaxPer/per) {
		num, den = (num+1)/2, (den+1)/2
	}
	l.Rate, l.Per = rate*num, Every(time.Duration(per*den))
	return l, math.Abs(float64(l.Rate)/float64(l.Per.every)/want-1) < 1e-6
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
