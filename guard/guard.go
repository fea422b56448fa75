package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/topk"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// Guard decides requests. Make one with New. All methods may be called by any number of goroutines.
type Guard struct {
	engine *ruleset.Engine // set by New, like the fields up to the blank line
	hooks  Hooks
	local  *memstore.Table // what this process counts for itself: abuse, and how often it reports

	// rules is replaced by Replace. A request loads it once.
	rules atomic.Pointer[Rules]

	penalties *penaltyCache
	offenders *topk.Sketch
	inFlight  inFlight
	stats     counters
	measurer  *measurer
	subs      *subscriptions

	setting sync.Mutex // held by Set
}

// offendersKept is the size of the sketch of offenders: whoever has more than 1/256 of all refusals is
// found.
const offendersKept = 256

// New returns a Guard that charges l. Its error joins all problems of the configuration.
func New(l weir.Limiter, c Config) (*Guard, error) {
	rules, err := ruleset.Compile(c.Policies(), nil)
	if err != nil {
		return nil, c.Validate()
	}
	own, err := Compile(c, rules)
	if err != nil {
		return nil, err
	}
	engine, err := ruleset.New(l, rules)
	if err != nil {
		return nil, err
	}
	return NewWith(engine, own, c.Hooks)
}

// NewWith returns a Guard on an engine that has the policies of the rules.
func NewWith(engine *ruleset.Engine, rules *Rules, hooks Hooks) (*Guard, error) {
	if hooks.Now == nil {
		hooks.Now = time.Now
	}
	local, err := memstore.New(memstore.Config{MaxKeys: rules.maxRows})
	if err != nil {
		return nil, fmt.Errorf("guard: MaxSubjects: %w", err)
	}
	m, err := newMeasurer(rules.maxRows)
	if err != nil {
		return nil, fmt.Errorf("guard: MaxSubjects: %w", err)
	}
	g := &Guard{
		engine: engine, hooks: hooks, local: local, measurer: m,
		penalties: newPenaltyCache(), offenders: topk.New(offendersKept), subs: newSubscriptions(engine.Limiter()),
	}
	g.inFlight.init()
	if err := g.Apply(context.Background(), rules); err != nil {
		return nil, err
	}
	g.Replace(rules)
	return g, nil
}

// Set replaces the configuration but for MaxSubjects and Hooks. Counts and penalties are kept. If it
// returns an error, the old configuration stays.
func (g *Guard) Set(ctx context.Context, c Config) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	old, before := g.rules.Load(), g.engine.Rules()
	rules, err := ruleset.Compile(c.Policies(), before)
	if err != nil {
		return c.Validate()
	}
	next, err := Compile(c, rules)
	if err != nil {
		return err
	}
	if err := g.engine.Set(ctx, rules); err != nil {
		return err
	}
	if err := g.Apply(ctx, next); err != nil {
		return errors.Join(err, g.engine.Set(context.WithoutCancel(ctx), before), g.Apply(context.WithoutCancel(ctx), old))
	}
	g.Replace(next)
	return nil
}

// Apply puts those limits in force that are not policies of the engine's rules: those of penalties and
// subscriptions. A program that uses NewWith calls it before Replace.
func (g *Guard) Apply(ctx context.Context, rules *Rules) error {
	return g.engine.Apply(ctx, rules.Private()...)
}

// Private returns the limits that are not policies of ruleset.
func (r *Rules) Private() []*weir.Policy {
	list := r.penalties.policies()
	if r.subs != nil {
		list = append(list, r.subs.policies()...)
	}
	return list
}

// Replace puts rules in force whose policies the engine has applied.
func (g *Guard) Replace(rules *Rules) {
	if old := g.rules.Load(); old != nil {
		rules.inherit(old)
	}
	g.stats.name(rules)
	g.rules.Store(rules)
}

// inherit continues the measurements of endpoints that are in both rules.
func (r *Rules) inherit(old *Rules) {
	if r == old { // a change was undone
		return
	}
	before := map[string]*measured{}
	for _, e := range old.all() {
		before[e.name] = e.measured
	}
	for _, e := range r.all() {
		e.measured.inherit(before[e.name])
	}
}

// all returns the endpoints, the default first.
func (r *Rules) all() []*endpoint { return append([]*endpoint{r.fallback}, r.endpoints...) }

// Suggestions returns the bursts that the subjects of each endpoint needed, if Config.Measure is set.
func (g *Guard) Suggestions() []Suggestion {
	list := []Suggestion{}
	for _, e := range g.rules.Load().all() {
		if e.measured != nil {
			list = append(list, e.measured.suggestion())
		}
	}
	return list
}

// Rules returns the rules that are in force.
func (g *Guard) Rules() *Rules { return g.rules.Load() }

// Mode returns Config.Mode: Enforce, Shadow or Off.
func (g *Guard) Mode() ruleset.Mode { return g.rules.Load().mode }

// Close ends all subscriptions.
func (g *Guard) Close() { g.subs.close() }

// Identifier returns what identifies callers.
func (g *Guard) Identifier() *Identifier { return g.rules.Load().identifier }

// IsExempt says whether an endpoint is disabled, so that no limits of endpoints apply to it.
func (g *Guard) IsExempt(method, path string) bool { return g.rules.Load().find(method, path).disabled }
