package budget

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
	"github.com/weirlimit/weir/ruleset"
)

// Account is the budget of an account with a provider. Workers in several processes share it through
// the limiter that it charges. All methods may be called by any number of goroutines.
//
// If the account's policy is removed from the engine's rules, charges and reports fail with
// ErrRemoved, and what was reserved can still be settled.
type Account struct {
	name   string // set by Attach, like the next two
	engine *ruleset.Engine
	clock  func() weir.Instant

	// settings is the configuration with its defaults. Replace replaces it; it is never changed. A
	// call that loads it twice may see two configurations, one after the other.
	settings atomic.Pointer[Config]

	// cooldown is the instant before which the provider wants no calls. It only grows, until EndCooldown sets it to 0.
	cooldown atomic.Int64

	// refusals is how long to wait after refusals of the provider that do not say.
	refusals Backoff

	// denied is the denial of access that the last call got, nil if it got none. Whoever learns of one stores it.
	denied atomic.Pointer[Denial]

	// level is the Level of the last observation.
	level atomic.Int32

	// blind is whether the last observation of somebody who did not ask for the usage failed.
	blind atomic.Bool

	// observed is the instant of the last observation. Whoever changes it does the work.
	observed atomic.Int64

	// learning says when the provider's view is compared again.
	learning Learning

	mu      sync.Mutex // guards the fields below
	meter   meter
	gauge   *gauge
	ledger  map[string]*Ledger // by unit
	open    openReservations
	swept   weir.Instant // when expired ones were last looked for
	methods map[string]int64
	drift   map[string]int64     // by unit
	soft    int64                // calls beyond soft limits
	warned  map[string]time.Time // by limit: the start of the last period of which warnProjected has warned
	refused map[string]int64     // calls that the provider refused, by class
	logged  loggedDenial
	changes []LevelChange // that OnLevel has not been told of
	telling bool          // somebody tells it
}

// New returns the account of a configuration, which charges l: a table in memory, or Redis for
// workers in several processes. Every worker must use the same configuration. At most 10,000 callers of a
// process wait at once; those beyond are refused as weir.QueueFull.
func New(l weir.Limiter, c Config) (*Account, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, err := c.Policy()
	if err != nil {
		return nil, err
	}
	rules, err := ruleset.Compile([]ruleset.Policy{p}, nil)
	if err != nil {
		return nil, fmt.Errorf("budget: account %q: %w", c.Name, err)
	}
	if l == nil {
		return nil, fmt.Errorf("budget: account %q: a limiter is needed", c.Name)
	}
	engine, err := ruleset.NewQueued(l, queue.Config{MaxPerKey: maxWaiting, MaxTotal: maxWaiting}, rules)
	if err != nil {
		return nil, err
	}
	return Attach(engine, c)
}

// maxWaiting bounds the callers of a process that wait for an account. All of them wait for one key.
const maxWaiting = 10_000

// Attach returns the account of a configuration whose Policy is one of an engine's rules. It is for
// programs whose limits and budgets are one set of rules.
func Attach(engine *ruleset.Engine, c Config) (*Account, error) {
	c, err := c.checked()
	if err != nil {
		return nil, err
	}
	if engine.Rules().Rule(c.Name) == nil {
		return nil, fmt.Errorf("budget: account %q is none of the engine's policies", c.Name)
	}
	a := &Account{
		name: c.Name, engine: engine, clock: c.Clock, gauge: &gauge{},
		ledger: map[string]*Ledger{}, open: openReservations{}, methods: map[string]int64{}, drift: map[string]int64{}, refused: map[string]int64{}, warned: map[string]time.Time{},
	}
	a.settings.Store(&c)
	a.observed.Store(int64(c.Clock()) - int64(observeEvery))
	engine.SetGate(c.Name, a.terms)
	c.warnTooCostly(nil)
	return a, nil
}

// accountKey is the key under which the limits of an account are charged.
const accountKey = "account"

// Replace gives the account another configuration, or returns an error and changes nothing. It is for
// accounts of Attach, after the engine has got the configuration's Policy. What is used, the ledgers,
// the cooldown and the counts stay; thresholds that change apply from the next observation on. Name
// must stay, and Clock is ignored.
func (a *Account) Replace(c Config) error {
	if c.Name != a.name {
		return fmt.Errorf("budget: account %q cannot be renamed to %q: its units in use belong to the name", a.name, c.Name)
	}
	c, err := c.checked()
	if err != nil {
		return err
	}
	before := a.config()
	if old := before.Costs; old != nil && c.Costs != nil && c.Costs != old {
		c.Costs.keepCounts(old)
	}
	a.settings.Store(&c)
	c.warnTooCostly(before)
	return nil
}

// ErrRemoved is wrapped by the errors of an account whose policy was removed from the engine's rules.
var ErrRemoved = errors.New("budget: the account was removed")

// rule returns the rule in force.
func (a *Account) rule() (*ruleset.Rule, error) {
	if r := a.engine.Rules().Rule(a.name); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %q is none of the engine's policies any more", ErrRemoved, a.name)
}

// config returns the configuration in force, which must not be changed.
func (a *Account) config() *Config { return a.settings.Load() }

// Name returns the account's name.
func (a *Account) Name() string { return a.name }

// Costs returns the account's table, nil if it has none.
func (a *Account) Costs() *Table { return a.config().Costs }

// Classes returns the names of the classes, from the most urgent to the least.
func (a *Account) Classes() []string {
	if r, err := a.rule(); err == nil {
		return r.Classes()
	}
	return nil
}

// Units returns the units that the limits count.
func (a *Account) Units() []string {
	if r, err := a.rule(); err == nil {
		return r.Units()
	}
	return nil
}

// Cost is what a call costs. Make one with Units, In, Method or Batch.
type Cost struct {
	plain   int64
	units   Amounts
	methods []string
	batch   bool
}

// Units returns the cost of n units: of every unit that the budget counts, except that a call is one
// request unless requests are all that is counted.
func Units(n int64) Cost { return Cost{plain: n} }

// In returns a cost in several units.
func In(a Amounts) Cost { return Cost{units: a.clone()} }

// Method returns the cost that the account's table has for a method.
func Method(name string) Cost { return Cost{methods: []string{name}} }

// Batch returns the cost of calls of methods in one request, by the rule of the account's table.
func Batch(methods ...string) Cost { return Cost{methods: methods, batch: true} }

// costs returns a cost in units.
func (a *Account) costs(units []string, c Cost) ([]ruleset.Cost, error) {
	amounts, err := a.amounts(c)
	if err != nil {
		return nil, err
	}
	if err := a.checkUnits(units, c.units); err != nil {
		return nil, err
	}
	list := make([]ruleset.Cost, 0, len(units))
	for _, unit := range units {
		n, ok := amounts[unit]
		switch {
		case ok:
		case unit == ruleset.Requests && (len(units) > 1 || amounts != nil):
			n = 1
		case amounts == nil:
			n = c.plain
		}
		if n < 0 || n > weir.MaxCost {
			return nil, fmt.Errorf("budget: cost of %d %s: must be 0 to %d: %w", n, unit, weir.MaxCost, weir.ErrInvalid)
		}
		list = append(list, ruleset.Cost{Unit: unit, Amount: n})
	}
	return list, nil
}

// checkUnits refuses amounts of units that neither the limits nor the account's table know: they are
// misspelt, and would be free.
func (a *Account) checkUnits(units []string, amounts Amounts) error {
	for unit := range amounts {
		if unit != ruleset.Requests && !slices.Contains(units, unit) && !slices.Contains(a.Units(), unit) && !a.Costs().counts(unit) {
			return fmt.Errorf("budget: account %q does not count %q; it counts %s: %w", a.name, shorten(unit), strings.Join(units, ", "), weir.ErrInvalid)
		}
	}
	return nil
}

// amounts returns the units of a cost, nil if it is a plain number. The caller must not change them.
func (a *Account) amounts(c Cost) (Amounts, error) {
	switch {
	case c.batch:
		return a.batchCosts(c.methods)
	case len(c.methods) > 0:
		return a.methodCosts(c.methods...)
	}
	return c.units, nil
}

// methodCosts returns what a call of a method costs by the table, or a batch of several calls.
func (a *Account) methodCosts(methods ...string) (Amounts, error) {
	if table := a.config().Costs; table != nil && len(methods) == 1 {
		return table.cost(methods[0], a.warnUnknown)
	}
	return a.batchCosts(methods)
}

// batchCosts returns what a batch of calls costs by the table.
func (a *Account) batchCosts(methods []string) (Amounts, error) {
	table := a.config().Costs
	switch {
	case table != nil:
		return table.batchCost(methods, a.warnUnknown)
	case len(methods) == 0:
		return nil, errors.New("budget: an empty batch has no cost")
	}
	return nil, fmt.Errorf("budget: account %q has no table of costs, so the cost of %q is unknown", a.name, shorten(methods[0]))
}

// warnUnknown warns of a method that the table does not list: whatever it costs then is a guess.
func (a *Account) warnUnknown(t *Table, method string) {
	a.config().Logger.Warn("budget: the table of costs does not list a method", "account", a.name, "method", method, "table", t.info.Name, "refused", t.unknown.Refuse)
}

// query returns the rule in force and a query for a cost of a class.
func (a *Account) query(class string, cost Cost) (*ruleset.Rule, *ruleset.Query, error) {
	r, err := a.rule()
	if err != nil {
		return nil, nil, err
	}
	costs, err := a.costs(r.Units(), cost)
	if err != nil {
		return nil, nil, err
	}
	q := &ruleset.Query{Key: accountKey, Class: class, Costs: costs, Methods: cost.methods, Implied: true, Shadow: true, Alone: true}
	return r, q, nil
}

// wallClock returns the time of the account's clock.
func (a *Account) wallClock() time.Time { return time.Unix(0, int64(a.clock())) }

// Cool lets no charge of this process be admitted before a time has passed, not even one that waits
// already: the provider has asked for that. A cooldown is extended, never shortened; EndCooldown ends it.
func (a *Account) Cool(d time.Duration) {
	until := int64(a.clock().Add(min(max(0, d), maxCooldown)))
	for {
		was := a.cooldown.Load()
		if was >= until || a.cooldown.CompareAndSwap(was, until) {
			return
		}
	}
}

// maxCooldown bounds what a provider can ask for.
const maxCooldown = 366 * 24 * time.Hour

// EndCooldown lets charges be admitted again at once, also those that wait already, and returns how long the cooldown
// would still have lasted. It is for an operator who knows more than the provider has said. If the provider
// still refuses, another cooldown begins.
func (a *Account) EndCooldown() time.Duration {
	left := a.Cooldown()
	a.cooldown.Store(0)
	a.refusals.Success()
	a.engine.Retry(a.name)
	return left
}

// Cooldown returns how long no charge is admitted because the provider has asked for that.
func (a *Account) Cooldown() time.Duration {
	until := a.cooldown.Load()
	if until == 0 { // never cooled: the clock need not be read
		return 0
	}
	return max(0, time.Duration(until-int64(a.clock())))
}
