package budget

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
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
	// One that has the name of a preset's replaces it, if it counts the same unit or names none. A limit in ruleset.Shadow is soft: calls
	// within it are charged to it, and those beyond it are admitted, counted and warned of. All hard
	// limits admit a call, or none is charged. See also Prepaid.
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

	// Logger is for changes of the level, calls beyond soft limits, calendar periods whose quota will be used up before
	// their end, each once, denials of access, unknown methods, each of the 100 names that the table remembers once, and
	// methods whose cost can never be admitted, when the account is configured; those of a preset as it comes are Debug.
	// The default is slog.Default().
	Logger *slog.Logger

	// Clock is the clock of cooldowns and utilisation, for tests. The default is weir.Now.
	Clock func() weir.Instant
}

// Class is a kind of work with a guaranteed share of a budget, which it lends to the others
// while it is idle.
type Class struct {
	// Name is the class's name, for example "realtime".
	Name string

	// Share is the guaranteed part of the limit with the shortest period, in percent, to a hundredth.
	// It is rounded down to whole units.
	Share float64

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
// in advance. To top it up, raise the amount. It is called "prepaid", or "prepaid-credits" for the
// unit credits.
func Prepaid(unit string, amount int64) ruleset.Limit {
	name := "prepaid"
	if unit != "" {
		name += "-" + unit
	}
	return ruleset.Limit{
		Limit: weir.Limit{Name: name, Rate: amount, Per: weir.Every(prepaidPeriod), Algorithm: weir.FixedWindow},
		Unit:  unit,
	}
}

// IsPrepaid reports whether a limit is one of Prepaid. Its refusals end when it is topped up: their RetryAfter is the end of a
// period of 40 years.
func IsPrepaid(l ruleset.Limit) bool { return l.Per == weir.Every(prepaidPeriod) }

// prepaidPeriod is the longest period there is. Its windows begin in 2010 and 2050.
const prepaidPeriod = 40 * 8766 * time.Hour

// withPreset returns the configuration with what it does not say itself from its preset, and the
// defaults.
func (c Config) withPreset() (Config, error) {
	if c.Preset != "" {
		p, err := Preset(c.Preset)
		if err != nil {
			return c, c.wrong(c.Preset, "is no preset: use "+strings.Join(Presets(), ", "), "Preset")
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

// overrideLimits returns limits with those of the same name replaced, and the others added. One of another
// unit is added too, and refused for its name: to forget the name must not remove a limit.
func overrideLimits(limits, by []ruleset.Limit) []ruleset.Limit {
	limits = slices.Clone(limits)
	for _, l := range by {
		same := func(o ruleset.Limit) bool { return limitName(o) == limitName(l) && (l.Unit == "" || l.Unit == o.Unit) }
		if i := slices.IndexFunc(limits, same); i >= 0 {
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

// Validate returns what is wrong with the configuration: a *fielderr.Error for each problem.
func (c Config) Validate() error {
	_, err := c.checked()
	return err
}

// checked returns the configuration with its preset and the defaults, or what is wrong with it.
func (c Config) checked() (Config, error) {
	full, err := c.withPreset()
	if err != nil {
		return c, err
	}
	p, err := full.policy()
	if err != nil {
		return c, err
	}
	rules, err := ruleset.Compile([]ruleset.Policy{p}, nil)
	if err != nil {
		return c, c.located(err, &full)
	}
	return full, c.checkUnits(full.Costs, rules.Rule(c.Name))
}

// wrong returns the error of a field.
func (c *Config) wrong(value any, problem string, path ...any) error {
	return &fielderr.Error{Package: fmt.Sprintf("budget: account %q", c.Name), Path: path, Value: value, Problem: problem}
}

// located returns the errors of package ruleset as those of the configuration's fields. Full is the
// configuration with its preset.
func (c *Config) located(err error, full *Config) error {
	var problems []error
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*ruleset.Error](e)
		switch {
		case !ok:
			problems = append(problems, c.wrong(nil, e.Error()))
		case bad.Plan == "": // in the plan, a problem is there again
			problem := c.wrong(nil, bad.Problem, c.pathOf(bad, full)...)
			if !slices.ContainsFunc(problems, func(o error) bool { return o.Error() == problem.Error() }) { // as Pace of each limit
				problems = append(problems, problem)
			}
		}
	}
	if len(problems) == 0 {
		return fmt.Errorf("budget: account %q: %w", c.Name, err)
	}
	return errors.Join(problems...)
}

// pathOf returns the path of the field that an error of package ruleset is about.
func (c *Config) pathOf(bad *ruleset.Error, full *Config) []any {
	if bad.Limit < 0 {
		return []any{bad.Field}
	}
	if class, ok := strings.CutPrefix(bad.Field, "classes."); ok {
		dot := strings.LastIndexByte(class, '.')
		at := slices.IndexFunc(c.Classes, func(k Class) bool { return k.Name == class[:dot] })
		if at < 0 {
			return []any{"Classes"}
		}
		return []any{"Classes", at, class[dot+1:]}
	}
	switch bad.Field {
	case "classes":
		return []any{"Classes"}
	case "pace":
		return []any{"Pace"}
	}
	at := c.placeOf(full.Limits[bad.Limit])
	if at < 0 {
		return []any{"Preset"}
	}
	return []any{"Limits", at, bad.Field}
}

// placeOf returns the last place in Limits with the name of a limit, -1 if it is the preset's.
func (c *Config) placeOf(l ruleset.Limit) int {
	for at, own := range slices.Backward(c.Limits) {
		if limitName(own) == limitName(l) {
			return at
		}
	}
	return -1
}

// checkUnits refuses limits that no cost could ever count for.
func (c *Config) checkUnits(costs *Table, r *ruleset.Rule) error {
	if costs == nil {
		return nil
	}
	info := costs.Info()
	var problems []error
	for _, l := range r.Policy().Limits {
		unit := cmp.Or(l.Unit, ruleset.Requests)
		if unit == ruleset.Requests || costs.counts(unit) {
			continue
		}
		path := []any{"Costs"}
		if at := c.placeOf(l); at >= 0 {
			path = []any{"Limits", at, "Unit"}
		}
		problems = append(problems, c.wrong(unit, fmt.Sprintf("is a unit which table %q of costs does not count", info.Name), path...))
	}
	return errors.Join(problems...)
}

// ClassNames returns the names of the classes, those of the preset or the default ones included.
func (c Config) ClassNames() (names []string) {
	if full, err := c.withPreset(); err == nil {
		c = full
	}
	for _, class := range c.Classes {
		names = append(names, class.Name)
	}
	return names
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
	p := ruleset.Policy{Name: c.Name, Limits: slices.Clone(c.Limits), NoOverrides: true}
	problems := []error{c.checkThresholds()}
	if len(p.Limits) == 0 {
		problems = append(problems, c.wrong(nil, "there is none: name a preset, or give a limit such as 500 per second", "Limits"))
		return p, errors.Join(problems...)
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.OnError == weir.OnError(0) {
			l.OnError = c.OnError
		}
		if _, zone := l.Per.Calendar(); zone != nil && l.Pace == "" {
			l.Pace = strings.Join(c.Pace, ",")
		}
	}
	return p, errors.Join(append(problems, c.share(&p))...)
}

// checkThresholds returns the errors of the thresholds.
func (c *Config) checkThresholds() error {
	var problems []error
	for _, e := range fielderr.Split(c.Thresholds.Validate()) {
		bad, _ := errors.AsType[*fielderr.Error](e)
		problems = append(problems, c.wrong(bad.Value, bad.Problem, append([]any{"Thresholds"}, bad.Path...)...))
	}
	return errors.Join(problems...)
}

// share gives the limit with the shortest period the classes, and the policy the plan in which those
// with a share do not borrow; those without one, which could not do anything then, do.
func (c *Config) share(p *ruleset.Policy) error {
	if len(c.Classes) == 0 {
		if len(c.Pace) > 0 {
			return c.wrong(nil, "names classes, and there are none", "Pace")
		}
		return nil
	}
	at := shortest(p.Limits)
	switch {
	case at >= 0:
	case slices.Equal(c.Classes, defaultClasses): // perhaps nobody wrote them
		return c.wrong(nil, "the default classes (realtime 60 %, backfill 40 %) need a limit with a period such as a second or a minute: add one, or write Classes: []Class{}", "Limits")
	default:
		return c.wrong(nil, "share a limit with a rate, such as 500 per second, and there is none: an empty list means that there are no classes", "Classes")
	}
	l := &p.Limits[at]
	if l.Classes == (weir.Classes{}) {
		if err := c.checkShares(); err != nil {
			return err
		}
		l.Classes, l.Algorithm = c.classes(l.Rate), weir.Lending
	}
	alone := *l
	list := l.Classes.List()
	for i := range list {
		list[i].NoBorrow = list[i].NoBorrow || list[i].Guaranteed > 0
	}
	alone.Classes = weir.ClassesOf(list...)
	p.Plans = []ruleset.Plan{{Name: pausedPlan, Limits: []ruleset.Limit{alone}}}
	return nil
}

// shortest returns the place of the hard limit with the shortest period that can have classes, -1 if
// there is none.
func shortest(limits []ruleset.Limit) int {
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
	return at
}

// checkShares returns the errors of the classes' shares.
func (c *Config) checkShares() error {
	var problems []error
	for i, k := range c.Classes {
		const precision = 1e-6 // 12.35 × 100 is a little more than 1235
		switch hundredths := k.Share * 100; {
		case !(k.Share >= 0 && k.Share <= 100) || math.Abs(hundredths-math.Round(hundredths)) > precision:
			problems = append(problems, c.wrong(k.Share, "must be 0 to 100 percent, to a hundredth", "Classes", i, "Share"))
		case k.Share != 0 && k.Guaranteed != 0:
			problems = append(problems, c.wrong(nil, fmt.Sprintf("class %q has a share and a guaranteed number of units: say one of them", k.Name), "Classes", i, "Guaranteed"))
		}
	}
	return errors.Join(problems...)
}

// classes returns the classes of a limit with a rate.
func (c *Config) classes(rate int64) weir.Classes {
	var list []weir.Class
	for _, k := range c.Classes {
		w := weir.Class{Name: k.Name, Guaranteed: k.Guaranteed, Burst: k.Burst, NoBorrow: k.NoBorrow}
		if part := int64(math.Round(k.Share * 100)); part != 0 {
			w.Guaranteed = rate/10_000*part + rate%10_000*part/10_000
		}
		list = append(list, w)
	}
	return weir.ClassesOf(list...)
}
