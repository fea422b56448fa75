package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
	"github.com/weirlimit/weir/ruleset"
)

// Account is the budget of an account with a provider. Workers in several processes share it through
// the limiter that it charges. All methods may be called by any number of goroutines.
type Account struct {
	config   Config // set by Attach, like the next four
	engine   *ruleset.Engine
	attached *ruleset.Rule
	key      string
	units    []string // that the limits count

	// cooldown is the instant before which the provider wants no calls. It only grows.
	cooldown atomic.Int64

	// level is the Level of the last observation.
	level atomic.Int32

	// observed is the instant of the last observation. Whoever changes it does the work.
	observed atomic.Int64

	// learned is the instant of the last comparison with the provider's view. It is written with
	// learning held.
	learned  atomic.Int64
	learning sync.Mutex // held during a comparison

	mu      sync.Mutex // guards the fields below
	meter   meter
	gauge   *gauge
	ledger  map[string]*Ledger // by unit
	open    map[*Reservation]struct{}
	methods map[string]int64
	drift   map[string]int64 // by unit
	soft    int64            // calls beyond soft limits

	calling sync.Mutex // held while OnLevel runs; taken before mu
}

// New returns the account of a configuration, which charges l: a table in memory, or Redis for
// workers in several processes. Every worker must use the same configuration. At most 10,000 callers of a
// process wait at once; those beyond are refused as weir.QueueFull.
func New(l weir.Limiter, c Config) (*Account, error) {
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
	q, err := queue.New(l, queue.Config{MaxPerKey: maxWaiting, MaxTotal: maxWaiting})
	if err != nil {
		return nil, err
	}
	engine, err := ruleset.NewQueued(q, rules)
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
	c, err := c.withPreset()
	if err != nil {
		return nil, err
	}
	rule := engine.Rules().Rule(c.Name)
	if rule == nil {
		return nil, fmt.Errorf("budget: account %q is none of the engine's policies", c.Name)
	}
	a := &Account{
		config: c, engine: engine, attached: rule, key: accountKey, units: rule.Units(), gauge: newGauge(c.Thresholds),
		ledger: map[string]*Ledger{}, open: map[*Reservation]struct{}{}, methods: map[string]int64{}, drift: map[string]int64{},
	}
	a.observed.Store(int64(c.Clock()) - int64(observeEvery))
	return a, a.checkUnits()
}

// accountKey is the key under which the limits of an account are charged.
const accountKey = "account"

// checkUnits refuses limits that no cost could ever count for.
func (a *Account) checkUnits() error {
	if a.config.Costs == nil {
		return nil
	}
	known := a.config.Costs.Info().Units
	var problems []error
	for _, unit := range a.units {
		if unit != ruleset.Requests && !slices.ContainsFunc(known, func(u UnitInfo) bool { return u.Name == unit }) {
			problems = append(problems, fmt.Errorf("budget: account %q: a limit counts %q, which table %q does not", a.config.Name, unit, a.config.Costs.Info().Name))
		}
	}
	return errors.Join(problems...)
}

// Name returns the account's name.
func (a *Account) Name() string { return a.config.Name }

// Costs returns the account's table, nil if it has none.
func (a *Account) Costs() *Table { return a.config.Costs }

// Classes returns the names of the classes, from the most urgent to the least.
func (a *Account) Classes() []string { return a.rule().Classes() }

// Units returns the units that the limits count.
func (a *Account) Units() []string { return a.units }

// rule returns the rule in force. An account whose policy was removed from the engine goes on with the one
// that it was attached to.
func (a *Account) rule() *ruleset.Rule {
	if r := a.engine.Rules().Rule(a.config.Name); r != nil {
		return r
	}
	return a.attached
}

// Cost is what a call costs. Make one with Units, In or Method.
type Cost struct {
	plain  int64
	units  Amounts
	method string
}

// Units returns the cost of n units: of every unit that the budget counts, except that a call is one
// request unless requests are all that is counted.
func Units(n int64) Cost { return Cost{plain: n} }

// In returns a cost in several units.
func In(a Amounts) Cost { return Cost{units: a} }

// Method returns the cost that the account's table has for a method.
func Method(name string) Cost { return Cost{method: name} }

// costs returns a cost in the units of the account.
func (a *Account) costs(c Cost) ([]ruleset.Cost, error) {
	amounts := c.units
	if c.method != "" {
		if a.config.Costs == nil {
			return nil, fmt.Errorf("budget: account %q has no table of costs, so the cost of %q is unknown", a.config.Name, c.method)
		}
		var err error
		if amounts, err = a.config.Costs.Cost(c.method); err != nil {
			return nil, err
		}
	}
	list := make([]ruleset.Cost, 0, len(a.units))
	for _, unit := range a.units {
		n, ok := amounts[unit]
		switch {
		case ok:
		case unit == ruleset.Requests && (len(a.units) > 1 || amounts != nil):
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

// query returns the query for a cost of a class.
func (a *Account) query(class string, cost Cost) (*ruleset.Query, error) {
	costs, err := a.costs(cost)
	if err != nil {
		return nil, err
	}
	q := &ruleset.Query{Key: a.key, Class: class, Costs: costs, Implied: true, Shadow: true, Alone: true}
	if a.Level() >= Paused {
		q.Plan = pausedPlan
	}
	return q, nil
}

// Level returns the level of utilisation at the last observation. Charges observe it several times a
// second, and Usage and ShouldPause at every call.
func (a *Account) Level() Level { return Level(a.level.Load()) }

// LevelChange is a change of the level of utilisation.
type LevelChange struct {
	Account     string
	From, To    Level
	Utilisation float64 // of the limit with the shortest period, averaged over a second; 1 is all of it
}

// observeEvery is how long charges let pass before they observe the utilisation again.
const observeEvery = 250 * time.Millisecond

// observeSometimes observes the utilisation if that is due.
func (a *Account) observeSometimes(ctx context.Context) {
	now, last := a.config.Clock(), a.observed.Load()
	if int64(now)-last >= int64(observeEvery) && a.observed.CompareAndSwap(last, int64(now)) {
		if _, err := a.Usage(ctx); err != nil && ctx.Err() == nil {
			a.config.Logger.Warn("budget: utilisation cannot be observed", "account", a.config.Name, "error", err)
		}
	}
}

// observe adds an observation and tells of a change of the level.
func (a *Account) observe(used, limit int64) float64 {
	a.calling.Lock()
	defer a.calling.Unlock()
	now := a.config.Clock()
	a.mu.Lock()
	if now-a.meter.last > meterSpan { // what was observed so long ago says nothing about the last second
		a.meter = meter{}
	}
	a.meter.add(now, used, limit)
	average := a.meter.average(now)
	from := Level(a.level.Load())
	to, changed := a.gauge.observe(average)
	a.level.Store(int32(to))
	a.mu.Unlock()
	a.observed.Store(int64(now))
	share := float64(average) / full
	if changed {
		a.tell(LevelChange{Account: a.config.Name, From: from, To: to, Utilisation: share})
	}
	return share
}

func (a *Account) tell(c LevelChange) {
	if a.config.OnLevel != nil {
		a.config.OnLevel(c)
		return
	}
	log := a.config.Logger.Info
	if c.To > c.From {
		log = a.config.Logger.Warn
	}
	log("budget: utilisation "+c.To.String(), "account", c.Account, "from", c.From.String(), "utilisation", c.Utilisation)
}

// Cool lets no charge of this process be admitted before a time has passed: the provider has asked
// for that. A cooldown is extended, never shortened.
func (a *Account) Cool(d time.Duration) {
	until := int64(a.config.Clock().Add(min(max(0, d), maxCooldown)))
	for {
		was := a.cooldown.Load()
		if was >= until || a.cooldown.CompareAndSwap(was, until) {
			return
		}
	}
}

// maxCooldown bounds what a provider can ask for.
const maxCooldown = 366 * 24 * time.Hour

// Cooldown returns how long no charge is admitted because the provider has asked for that.
func (a *Account) Cooldown() time.Duration {
	until := a.cooldown.Load()
	if until == 0 { // never cooled: the clock need not be read
		return 0
	}
	return max(0, time.Duration(until-int64(a.config.Clock())))
}
