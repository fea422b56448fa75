package budget

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Config describes the budget of an account with a provider. Several keys and URLs may share an
// account; it is the account that the provider limits.
type Config struct {
	// Name is the account's name, for example "alchemy-main": 1 to 64 letters, digits or -_.
	Name string

	// Preset is the name of limits and costs that come with the package, see Presets. Everything
	// else here changes or adds to it. The default is none.
	Preset string

	// Limits are the horizons of the budget: so many units per ten seconds, minute, day or month.
	// One that has the name of a preset's replaces it. A limit in ruleset.Shadow is soft: it is
	// charged, and a call beyond it is admitted with a warning. All hard limits admit a call, or
	// none is charged. See also Prepaid.
	Limits []ruleset.Limit

	// Classes are the kinds of work that share the budget, from the most urgent to the least.
	// They divide the limit with the shortest period. The default is those of the preset, else
	// "realtime" with 60 % and "backfill" with 40 %. An empty list, not nil, means none.
	Classes []Class

	// Pace names the classes that may use only as much of calendar periods as has passed of them:
	// of 30 million a month, one million for each day so far. The default is none.
	Pace []string

	// Costs say what each method costs. The default is the preset's, else none: then costs are
	// given with each call.
	Costs *Table

	// Thresholds are the utilisations at which something happens.
	Thresholds Thresholds

	// OnError is what happens while the store is unavailable. The default is weir.FailLocal: this
	// process goes on with its share of the budget.
	OnError weir.OnError

	// OnLevel is called when the level of utilisation changes. Calls come one after the other. The
	// default is to log it.
	OnLevel func(LevelChange)

	// Logger is for changes of the level, calls beyond soft limits, methods of unknown cost and denials
	// of access. The default is slog.Default().
	Logger *slog.Logger

	// Clock is the clock of cooldowns and utilisation, for tests. The default is weir.Now.
	Clock func() weir.Instant
}

// Class is a kind of work with a guaranteed share of a budget, which it lends to the others
// while it is idle.
type Class struct {
	// Name is the class's name, for example "realtime".
	Name string

	// Share is the guaranteed part of the limit with the shortest period, in percent. It is rounded
	// down to whole units.
	Share int

	// Guaranteed is that part in units, instead of Share.
	Guaranteed int64

	// Burst is how much of the part may be saved up, in units. The default is that part of the
	// limit's burst.
	Burst int64

	// NoBorrow means that the class never uses more than its part.
	NoBorrow bool
}

// defaultClasses are document 001's: 300 of 500 are reserved for real-time work.
var defaultClasses = []Class{{Name: "realtime", Share: 60}, {Name: "backfill", Share: 40}}

// Prepaid returns the limit of an amount that does not come back: credits or money that were paid
// in advance. To top it up, raise the amount.
func Prepaid(unit string, amount int64) ruleset.Limit {
	return ruleset.Limit{
		Limit: weir.Limit{Name: "prepaid", Rate: amount, Per: weir.Every(prepaidPeriod), Algorithm: weir.FixedWindow},
		Unit:  unit,
	}
}

// prepaidPeriod is the longest period there is. Its windows begin in 2010 and 2050.
const prepaidPeriod = 40 * 8766 * time.Hour

// withPreset returns the configuration with what it does not say itself from its preset, and the
// defaults.
func (c Config) withPreset() (Config, error) {
	if c.Preset != "" {
		p, err := preset(c.Preset)
		if err != nil {
			return c, err
		}
		c.Limits = overrideLimits(p.Limits, c.Limits)
		if c.Classes == nil {
			c.Classes = p.Classes
		}
		if c.Costs == nil {
			c.Costs = p.Costs
		}
	}
	if c.Classes == nil {
		c.Classes = defaultClasses
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = weir.Now
	}
	return c, nil
}

// overrideLimits returns limits with those of the same name replaced, and the others added.
func overrideLimits(limits, by []ruleset.Limit) []ruleset.Limit {
	limits = slices.Clone(limits)
	for _, l := range by {
		if i := slices.IndexFunc(limits, func(o ruleset.Limit) bool { return limitName(o) == limitName(l) }); i >= 0 {
			if l.Unit == "" {
				l.Unit = limits[i].Unit
			}
			limits[i] = l
			continue
		}
		limits = append(limits, l)
	}
	return limits
}

func limitName(l ruleset.Limit) string {
	if l.Name == "" {
		return "main"
	}
	return l.Name
}

// Policy returns the budget as a policy for a ruleset.Engine: with the classes at the limit with the
// shortest period, and a plan in which no class borrows.
func (c Config) Policy() (ruleset.Policy, error) {
	c, err := c.withPreset()
	if err != nil {
		return ruleset.Policy{}, err
	}
	return c.policy()
}

// pausedPlan is the plan of a budget at the level Paused: classes do not borrow. What they have
// not lent is not affected.
const pausedPlan = "paused"

func (c *Config) policy() (ruleset.Policy, error) {
	p := ruleset.Policy{Name: c.Name, Limits: slices.Clone(c.Limits)}
	if err := c.Thresholds.Validate(); err != nil {
		return p, fmt.Errorf("budget: account %q: %w", c.Name, err)
	}
	if len(p.Limits) == 0 {
		return p, fmt.Errorf("budget: account %q has no limits: name a preset, or give one such as {Rate: 500, Per: weir.Every(time.Second)}", c.Name)
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.OnError == weir.OnError(0) {
			l.OnError = c.OnError
		}
		if _, zone := l.Per.Calendar(); zone != nil && l.Pace == "" {
			l.Pace = joined(c.Pace)
		}
	}
	if len(c.Classes) == 0 {
		if len(c.Pace) > 0 {
			return p, fmt.Errorf("budget: account %q: Pace names classes, and there are none", c.Name)
		}
		return p, nil
	}
	at, err := shortest(p.Limits)
	if err != nil {
		return p, fmt.Errorf("budget: account %q: %w", c.Name, err)
	}
	l := &p.Limits[at]
	if l.Classes == (weir.Classes{}) {
		if l.Classes, err = c.classes(l.Limit, false); err != nil {
			return p, fmt.Errorf("budget: account %q: %w", c.Name, err)
		}
		l.Algorithm = weir.Lending
	}
	alone := *l
	if alone.Classes, err = c.classes(l.Limit, true); err == nil {
		p.Plans = []ruleset.Plan{{Name: pausedPlan, Limits: []ruleset.Limit{alone}}}
	}
	return p, nil
}

func joined(names []string) (text string) {
	for i, name := range names {
		if i > 0 {
			text += ","
		}
		text += name
	}
	return text
}

// shortest returns the hard limit with the shortest period that can have classes.
func shortest(limits []ruleset.Limit) (int, error) {
	at := -1
	for i, l := range limits {
		_, zone := l.Per.Calendar()
		switch {
		case l.Mode == ruleset.Shadow || l.Mode == ruleset.Off || zone != nil:
		case l.Algorithm != weir.Auto && l.Algorithm != weir.GCRA && l.Algorithm != weir.TokenBucket && l.Algorithm != weir.Lending:
		case at < 0 || l.Per.Duration() < limits[at].Per.Duration():
			at = i
		}
	}
	if at < 0 {
		return -1, errors.New("classes share a limit with a rate, such as {Rate: 500, Per: weir.Every(time.Second)}, and there is none; for a budget without classes make Classes an empty list")
	}
	return at, nil
}

// classes returns the classes of a limit. If alone, none of them borrows; those without a share,
// which could not do anything then, are left to borrow.
func (c *Config) classes(l weir.Limit, alone bool) (weir.Classes, error) {
	var list []weir.Class
	for _, k := range c.Classes {
		if k.Share < 0 || k.Share > 100 {
			return weir.Classes{}, fmt.Errorf("class %q: share %d: must be 0 to 100 percent", k.Name, k.Share)
		}
		if k.Share != 0 && k.Guaranteed != 0 {
			return weir.Classes{}, fmt.Errorf("class %q has a share and a guaranteed number of units: say one of them", k.Name)
		}
		w := weir.Class{Name: k.Name, Guaranteed: k.Guaranteed, Burst: k.Burst, NoBorrow: k.NoBorrow}
		if k.Share != 0 {
			w.Guaranteed = l.Rate / 100 * int64(k.Share)
			w.Guaranteed += l.Rate % 100 * int64(k.Share) / 100
		}
		w.NoBorrow = w.NoBorrow || alone && w.Guaranteed > 0
		list = append(list, w)
	}
	return weir.ClassesOf(list...), nil
}
