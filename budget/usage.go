package budget

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Usage is what is used of an account, by all workers that share it, with what this process has
// counted.
type Usage struct {
	Account     string    `json:"account"`
	At          time.Time `json:"at"`
	Level       string    `json:"level"`
	Utilisation float64   `json:"utilisation"`      // of the limit with the shortest period, averaged over a second; 1 is all of it
	CooldownMs  int64     `json:"cooldown_ms"`      // the provider wants no calls for so long
	Denied      *Denial   `json:"denied,omitempty"` // the provider does not let the account in

	Horizons []HorizonUsage `json:"horizons"`
	Classes  []ClassUsage   `json:"classes"`

	// The following is of this process.
	Ledgers        map[string]Ledger `json:"ledgers"`         // by unit
	Methods        map[string]int64  `json:"methods"`         // calls
	UnknownMethods map[string]int64  `json:"unknown_methods"` // calls that the table does not list, refused ones included; some methods
	UnknownCalls   int64             `json:"unknown_calls"`   // all of them
	Drift          map[string]int64  `json:"drift"`           // units that the provider has counted and we had not: somebody else uses the key
	SoftExceeded   int64             `json:"soft_exceeded"`
	Refusals       map[string]int64  `json:"refusals"` // calls that the provider refused, by class: rate, quota, denied, overloaded
}

// HorizonUsage is what is used of one limit.
type HorizonUsage struct {
	Limit     string        `json:"limit"`
	Unit      string        `json:"unit"`
	Soft      bool          `json:"soft"`
	Capacity  int64         `json:"capacity"`
	Used      int64         `json:"used"` // at most Capacity: what was used beyond it shows in ResetMs
	Remaining int64         `json:"remaining"`
	ResetMs   int64         `json:"reset_ms"`
	Burn      *Burn         `json:"burn,omitempty"` // of calendar periods
	Per       weir.Period   `json:"per"`
	reset     time.Duration // ResetMs, exactly
}

// Burn is how fast a calendar period's quota is used.
type Burn struct {
	Since     time.Time  `json:"since"`               // when the period began
	PerDay    float64    `json:"per_day"`             // units, on average since the period began
	Projected int64      `json:"projected"`           // used at the end of the period, if it goes on like that
	Exhausted *time.Time `json:"exhausted,omitempty"` // when nothing is left, if that is before the end
}

// ClassUsage is what a class has of the limit with the shortest period, and what all workers have used of it.
type ClassUsage struct {
	Class      string `json:"class"`
	Guaranteed int64  `json:"guaranteed"` // units per period of the limit that are the class's own
	Used       int64  `json:"used"`       // of what the class can save up of them: the units in use, without those that it borrows
	Capacity   int64  `json:"capacity"`   // the most that it can take at once
	Available  int64  `json:"available"`  // what it can take now, borrowed units included if it may borrow at the level
}

// Usage returns what is used, and observes the utilisation. It charges nothing. With an error, the
// Usage has what this process knows without the store.
func (a *Account) Usage(ctx context.Context) (Usage, error) { return a.usage(ctx, nil) }

// usage is Usage. Charged are the costs of a charge that was made just now.
func (a *Account) usage(ctx context.Context, charged []ruleset.Cost) (Usage, error) {
	now := a.wallClock().UTC()
	u := Usage{Account: a.name, At: now, CooldownMs: ruleset.Millis(a.Cooldown()), Denied: a.Denied(), Horizons: []HorizonUsage{}, Classes: []ClassUsage{}}
	a.addCounts(&u)
	r, err := a.rule()
	if err != nil {
		return u, err
	}
	plan := a.plan()
	err = u.read(ctx, a.engine, r, plan)
	if err != nil {
		return u, err
	}
	a.warnProjected(&u)
	if at := observed(u.Horizons); at >= 0 {
		h := &u.Horizons[at]
		u.Utilisation = a.observe(h.Used, amountOf(charged, h.Unit), h.Capacity)
	}
	u.Level = a.Level().String()
	if now := a.plan(); now != plan { // the level has changed what the classes have
		err = u.read(ctx, a.engine, r, now)
	}
	return u, err
}

// read reads what is used of the limits of a plan, and what its classes have.
func (u *Usage) read(ctx context.Context, engine *ruleset.Engine, r *ruleset.Rule, plan string) error {
	list, err := engine.Usage(ctx, r, &ruleset.Query{Key: accountKey, Plan: plan})
	if err != nil {
		return err
	}
	u.Horizons, u.Classes = u.Horizons[:0], u.Classes[:0]
	for i := range list {
		l := &list[i]
		if l.Class != "" {
			u.Classes = append(u.Classes, ClassUsage{Class: l.Class, Guaranteed: l.Guaranteed, Used: l.OwnUsed, Capacity: l.Capacity, Available: l.Remaining})
			continue
		}
		h := HorizonUsage{
			Limit: limitName(l.Limit), Unit: l.Limit.Unit, Soft: l.Limit.Mode == ruleset.Shadow, Per: l.Limit.Per,
			Capacity: l.Capacity, Used: l.Used(), Remaining: l.Remaining, ResetMs: ruleset.Millis(l.Reset), reset: l.Reset,
		}
		h.Burn = burnOf(&h, u.At)
		u.Horizons = append(u.Horizons, h)
	}
	return nil
}

// amountOf returns how much of a unit some costs have.
func amountOf(costs []ruleset.Cost, unit string) int64 {
	for _, c := range costs {
		if c.Unit == cmp.Or(unit, ruleset.Requests) {
			return c.Amount
		}
	}
	return 0
}

// observed returns the place of the limit whose utilisation counts: the hard one with the shortest period.
func observed(list []HorizonUsage) int {
	at := -1
	for i := range list {
		if !list[i].Soft && (at < 0 || length(list[i].Per) < length(list[at].Per)) {
			at = i
		}
	}
	return at
}

// length returns about how long a period is.
func length(p weir.Period) time.Duration {
	const day = 24 * time.Hour
	switch unit, zone := p.Calendar(); {
	case zone == nil:
		return p.Duration()
	case unit == weir.Day:
		return day
	case unit == weir.Week:
		return 7 * day
	case unit == weir.Month:
		return 30 * day
	}
	return 365 * day
}

// burnOf returns how fast a calendar period's quota is used.
func burnOf(h *HorizonUsage, now time.Time) *Burn {
	start, end, ok := h.Per.Bounds(now)
	if !ok {
		return nil
	}
	passed := max(now.Sub(start), time.Second)
	perSecond := float64(h.Used) / passed.Seconds()
	b := &Burn{Since: start, PerDay: perSecond * 86_400, Projected: int64(perSecond * end.Sub(start).Seconds())}
	if h.Used > 0 && b.Projected > h.Capacity {
		at := start.Add(time.Duration(float64(h.Capacity) / perSecond * float64(time.Second)))
		b.Exhausted = &at
	}
	return b
}

// settledPart is the part of a period, one in settledPart, after which its projection is believed: what is used in
// the first minutes of a month says little about its end.
const settledPart = 20

// warnProjected warns of each calendar period whose limit would be used up before its end, once per period.
func (a *Account) warnProjected(u *Usage) {
	for i := range u.Horizons {
		h := &u.Horizons[i]
		if h.Burn == nil || h.Burn.Exhausted == nil {
			continue
		}
		start, end, _ := h.Per.Bounds(u.At)
		if u.At.Sub(start) >= end.Sub(start)/settledPart && a.warnsFirst(h.Limit, start) {
			a.config().Logger.Warn("budget: a limit will be used up before its period ends, if it goes on like that", "account", a.name,
				"limit", h.Limit, "used", h.Used, "capacity", h.Capacity, "projected", h.Burn.Projected, "exhausted", h.Burn.Exhausted.Round(time.Second))
		}
	}
}

// warnsFirst reports whether the caller is the first to warn of a limit in the period that begins at start.
func (a *Account) warnsFirst(limit string, start time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.warned[limit].Equal(start) {
		return false
	}
	a.warned[limit] = start
	return true
}

// addCounts adds what this process has counted.
func (a *Account) addCounts(u *Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweepLocked(a.clock())
	u.Level, u.Ledgers, u.UnknownMethods = a.Level().String(), map[string]Ledger{}, map[string]int64{}
	for unit, l := range a.ledger {
		u.Ledgers[unit] = *l
	}
	u.Methods, u.Drift, u.SoftExceeded, u.Refusals = maps.Clone(a.methods), maps.Clone(a.drift), a.soft, maps.Clone(a.refused)
	if t := a.Costs(); t != nil {
		maps.Copy(u.UnknownMethods, t.UnknownMethods())
		u.UnknownCalls = t.UnknownCalls()
	}
}

// Utilisation returns how much of the limit with the shortest period is used, averaged over a second; 1 is
// all of it.
func (a *Account) Utilisation(ctx context.Context) (float64, error) {
	u, err := a.Usage(ctx)
	return u.Utilisation, err
}

// Available returns how many units a class can take at once now of the limit with the shortest period.
func (a *Account) Available(ctx context.Context, class string) (int64, error) {
	u, err := a.Usage(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range u.Classes {
		if c.Class == class {
			return c.Available, nil
		}
	}
	_, err = a.Controller(class)
	return 0, err
}

// warnSoft counts a call beyond a soft limit, and warns of the first one and of every thousandth.
func (a *Account) warnSoft(v *ruleset.Verdict) {
	if v.Shadow < 0 || !v.Allowed {
		return
	}
	a.mu.Lock()
	a.soft++
	n := a.soft
	a.mu.Unlock()
	if n%1000 == 1 {
		a.config().Logger.Warn("budget: a call was admitted beyond a soft limit", "account", a.name, "limit", v.Variant.LimitName(v.Shadow), "calls", n)
	}
}
