package config

import (
	"errors"
	"strings"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/budget"
)

// Budgets are budgets of accounts with providers, by name. A budget is used as a policy of that name.
type Budgets map[string]Budget

// Budget is what may be used of an account with a provider, by everybody who shares it. docs/budgets.md
// explains it.
type Budget struct {
	// Preset is a set of limits, classes and costs that comes with weir. Everything else here changes
	// or adds to it. The default is none.
	Preset Preset `yaml:"preset" example:"alchemy-free"`

	// Limits are so many units per period, for each of its horizons: seconds, a day, a month. One that
	// has the name of a preset's replaces it. With mode: shadow it is soft: a call beyond it is
	// admitted, and counted.
	Limits []Limit `yaml:"limits"`

	// Classes are kinds of work that share the limit with the shortest period, in the order of the
	// file: each has a guaranteed share, and what one leaves idle is lent to the others. {} means
	// none. The default is the preset's, else realtime with 60% and backfill with 40%.
	Classes *Classes `yaml:"classes" example:"{realtime: {guaranteed: 60%}, backfill: {guaranteed: 40%}}"`

	// Pace are classes that may use only as much of a day, week, month or year as has passed of it.
	// The default is none.
	Pace []string `yaml:"pace" example:"[backfill]"`

	// Costs are what each method costs. The default is the preset's, else none: then callers say the
	// cost.
	Costs *Costs `yaml:"costs"`

	// Thresholds are the utilisations at which something happens.
	Thresholds Thresholds `yaml:"thresholds"`

	// Prepaid are amounts that do not come back, by unit: credits or money that were paid in advance.
	// To top one up, raise it.
	Prepaid map[string]Credit `yaml:"prepaid" example:"{credits: 5000000}"`

	// OnError is what happens while Redis does not answer. The default is that of the store.
	OnError OnError `yaml:"on_error" example:"local"`
}

// Preset is a set of limits, classes and costs that comes with weir.
type Preset string

func (Preset) choices() []string { return budget.Presets() }

// Costs are what the methods of a provider cost.
type Costs struct {
	// Table is the table of costs: one that comes with weir, alchemy or generic, or the path of a
	// file. The default is the preset's.
	Table CostTable `yaml:"table" example:"alchemy"`

	// Methods are other costs than the table's. Of a method that the table lists, units that are left
	// out keep their amount; of another one, all units must be there.
	Methods map[string]Amounts `yaml:"methods" example:"{eth_getLogs: {cu: 75}}"`

	// Unknown is what is done about methods that are not listed: refuse, or a default. The default is
	// the table's.
	Unknown *UnknownMethods `yaml:"unknown" example:"refuse"`
}

// CostTable is the name of a table of costs, or the path of a file with one.
type CostTable struct {
	Path
	Builtin string // its name, "" if it is a file
}

func (t *CostTable) set(text string) error {
	if _, err := budget.BuiltinTable(text); err == nil {
		t.Builtin = text
		return nil
	}
	if !strings.ContainsAny(text, "./") || t.Path.set(text) != nil {
		return errors.New("must be alchemy, generic or the path of a file, such as costs.json")
	}
	return nil
}

// Amounts are amounts of units.
type Amounts map[string]Amount

// Amount is what one call costs of a unit.
type Amount int64

func (a *Amount) set(text string) error {
	n, err := parseInt(text, 0, budget.MaxAmount)
	*a = Amount(n)
	return err
}

// Credit is so much of a unit, paid in advance.
type Credit int64

func (c *Credit) set(text string) error {
	n, err := parseInt(text, 0, algo.MaxRate)
	*c = Credit(n)
	return err
}

// UnknownMethods is what is done about methods that a table does not list. Either way they are counted.
type UnknownMethods struct {
	// Refuse means that calls of them are refused. It may be written as unknown: refuse.
	Refuse Refuse `yaml:"refuse" example:"true"`

	// Default is what they cost: an amount of each unit of the table.
	Default Amounts `yaml:"default" example:"{cu: 20, throughput: 20}"`
}

func (UnknownMethods) shorthand() string { return "refuse" }

// prepare takes the word refuse for true.
func (*UnknownMethods) prepare(n *node) {
	if r := n.child("refuse"); r != nil && r.kind == scalar && r.text == "refuse" && !r.quoted {
		r.text = "true"
	}
}

// Refuse is whether something is refused.
type Refuse bool

func (Refuse) hint(string) string {
	return "must be refuse, or a default such as {default: {cu: 20}}"
}

// Thresholds are utilisations of the limit with the shortest period, averaged over a second, at which
// something happens. Each is a percentage or off.
type Thresholds struct {
	// Warning is where the level warning begins: it is logged, and an event.
	Warning *Threshold `yaml:"warning" default:"80%" example:"70%"`

	// Pause is where the level paused begins: classes do not borrow until the utilisation is below
	// resume.
	Pause *Threshold `yaml:"pause" default:"90%" example:"off"`

	// Critical is where the level critical begins: it is logged, and an event.
	Critical *Threshold `yaml:"critical" default:"100%" example:"98%"`

	// Resume is the utilisation below which paused ends. It cannot be off. The default is 75%, or
	// pause if that is less.
	Resume *Threshold `yaml:"resume" example:"75%"`
}

// Threshold is a whole percentage, or off.
type Threshold int

func (t *Threshold) set(text string) error {
	if text == "off" {
		*t = budget.Off
		return nil
	}
	number, ok := strings.CutSuffix(text, "%")
	n, err := parseInt(number, 0, 100)
	if !ok || err != nil {
		return errors.New("must be a whole percentage from 0% to 100%, such as 80%, or off")
	}
	*t = Threshold(n)
	return nil
}

func (*Threshold) pattern() (string, string) { return `^([0-9]{1,3}%|off)$`, "80%" }
