package pacer

import (
	"errors"
	"fmt"
	"time"
)

// Config says how fast a Pacer goes and what it does about lateness. The zero
// value of every field but Rate is what most callers want.
type Config struct {
	// Rate is how many units start per second, from MinRate to MaxRate. A unit is
	// an operation, or whatever WaitN counts: bytes, rows, credits.
	Rate float64

	// Mode says what lateness is worth. The default is Average.
	Mode Mode

	// BurstRatio is how much faster than Rate the mode Burst may go while it is
	// behind: 1.1 is 110 %. It is at least 1. The default is 1.1. Other modes do
	// not look at it.
	BurstRatio float64

	// Credit is the lateness that the modes Average and Burst catch up at once: a
	// caller who comes 5 ms late loses nothing, and nobody has to wake up in time.
	// The default is 10 ms. Strict has none.
	Credit time.Duration

	// MaxDebt bounds the lateness that the mode Burst may catch up in all. What
	// is older is forfeited. The default is one second, or Credit if that is more.
	MaxDebt time.Duration

	// IdleReset distinguishes lateness from idleness: if there was no call for
	// longer than this, the time since then is idle, and nobody may catch up on it.
	// The default, 0, counts all of it as lateness.
	IdleReset time.Duration

	// Smooth wakes up in time instead of a millisecond late, for the price of some
	// CPU; see the package comment.
	Smooth bool
}

// The rates that a Pacer can keep, and the defaults of a Config.
const (
	MinRate = 1e-6 // one in eleven days
	MaxRate = 1e10 // ten in a nanosecond, which makes sense for WaitN: positions last for 29 years

	DefaultBurstRatio = 1.1
	DefaultCredit     = 10 * time.Millisecond
	DefaultMaxDebt    = time.Second

	maxRatio = 1000
	maxSpan  = 365 * 24 * time.Hour // of Credit, MaxDebt and IdleReset
)

// Mode says what lateness is worth.
type Mode uint8

const (
	// Average catches up at once, for lateness up to Credit.
	Average Mode = iota

	// Strict does not catch up: starts are never closer than 1/Rate. Since
	// operating systems wake sleepers late, it goes slower than Rate, the more so
	// the higher that is.
	Strict

	// Burst catches up at BurstRatio × Rate, for lateness up to MaxDebt.
	Burst
)

var modes = [...]string{Average: "average", Strict: "strict", Burst: "burst"}

// String returns "average", "strict" or "burst".
func (m Mode) String() string {
	if int(m) < len(modes) {
		return modes[m]
	}
	return fmt.Sprintf("Mode(%d)", m)
}

// Validate returns what is wrong with c, all of it.
func (c Config) Validate() error {
	c = c.withDefaults()
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("pacer: "+format, args...))
	}
	if !(c.Rate >= MinRate && c.Rate <= MaxRate) { // nor NaN
		wrong("rate %v: want %v to %v per second", c.Rate, float64(MinRate), float64(MaxRate))
	}
	if int(c.Mode) >= len(modes) {
		wrong("mode %d: want Average, Strict or Burst", c.Mode)
	}
	if !(c.BurstRatio >= 1 && c.BurstRatio <= maxRatio) {
		wrong("burst ratio %v: want 1 to %d", c.BurstRatio, maxRatio)
	}
	for _, span := range []struct {
		name  string
		value time.Duration
	}{{"credit", c.Credit}, {"max debt", c.MaxDebt}, {"idle reset", c.IdleReset}} {
		if span.value < 0 || span.value > maxSpan {
			wrong("%s %v: want 0 to %v", span.name, span.value, maxSpan)
		}
	}
	if c.MaxDebt < c.Credit {
		wrong("max debt %v is less than the credit %v", c.MaxDebt, c.Credit)
	}
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	if c.BurstRatio == 0 {
		c.BurstRatio = DefaultBurstRatio
	}
	if c.Credit == 0 {
		c.Credit = DefaultCredit
	}
	if c.MaxDebt == 0 {
		c.MaxDebt = max(DefaultMaxDebt, c.Credit)
	}
	return c
}

// credit returns how late a start may be without consequences.
func (c *Config) credit() int64 {
	if c.Mode == Strict {
		return 0
	}
	return int64(c.Credit)
}

// maxLate returns how late a start may be before the schedule moves.
func (c *Config) maxLate() int64 {
	switch c.Mode {
	case Strict:
		return 0
	case Burst:
		return int64(c.MaxDebt)
	default:
		return int64(c.Credit)
	}
}

// slack returns how early a start may be, because a sleep so short is not worth
// it. Strict starts are never early.
func (c *Config) slack() int64 { return min(usefulSleep, c.credit()/2) }

// usefulSleep is the shortest sleep: less takes longer to arrange than to pass.
const usefulSleep = int64(700 * time.Nanosecond)
