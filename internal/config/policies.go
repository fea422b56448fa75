package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// Policies are policies by name.
type Policies map[string]Policy

// Policy is limits that a request must meet together.
type Policy struct {
	// Mode is what happens to a refusal: enforce, shadow to count and only report it, or
	// off. A limit may have its own.
	Mode Mode `yaml:"mode" default:"enforce" example:"shadow"`

	// Rollout is the part of all keys for which the policy is enforced. For the others it
	// is in shadow. A key that is enforced at 10% also is at 20%.
	Rollout Percent `yaml:"rollout" default:"100%" example:"12.5%"`

	// Limits are what a request must meet. It is charged on all of them or on none.
	Limits []Limit `yaml:"limits"`

	// Overrides give a key such as alice, or all keys with a prefix such as partner-*,
	// other limits. An exact key has precedence, then the longest prefix.
	Overrides map[string]Override `yaml:"overrides"`
}

// prepare fills in defaults of the limits. Overrides inherit them from the limits that
// they replace.
func (*Policy) prepare(n *node) {
	limits := n.child("limits")
	if limits == nil {
		return
	}
	by := place{source: fromDefault}
	for _, l := range limits.items {
		per, rate := l.child("per"), l.child("rate")
		if l.child("algorithm") == nil && per != nil {
			l.put("algorithm", newScalar(defaultAlgorithm(per.text, l.child("classes")), by))
		}
		algorithm := l.child("algorithm")
		bursts := algorithm != nil && slices.Contains([]string{"gcra", "token_bucket", "lending"}, algorithm.text)
		if bursts && l.child("burst") == nil && rate != nil && isRate(rate) {
			l.put("burst", newScalar(rate.text, by))
		}
	}
}

// defaultAlgorithm returns how a limit per period counts that may have classes.
func defaultAlgorithm(per string, classes *node) string {
	p := new(Per)
	switch isCalendar := p.set(per) == nil && p.isCalendar(); {
	case isCalendar:
		return "fixed_window"
	case classes != nil && len(classes.pairs) > 0:
		return "lending"
	}
	return "gcra"
}

// isRate says whether n can be a rate, so that an invalid one is reported only once.
func isRate(n *node) bool {
	_, err := parseInt(n.text, 1, algo.MaxRate)
	return err == nil && !n.quoted
}

// Mode is what happens to a refusal.
type Mode struct{ ruleset.Mode }

func (Mode) choices() []string { return []string{"enforce", "shadow", "off"} }

// Limit is so many units per period.
type Limit struct {
	// Name identifies the limit within its policy. At most one may have no name: it is called
	// main.
	Name string `yaml:"name" example:"daily"`

	// Rate is the number of units per period, at least 1. For algorithm: concurrency it
	// is how many may be held at once.
	Rate Units `yaml:"rate" example:"100" jsonschema:"required,minimum=1,maximum=9007199254740991"`

	// Per is the period: a duration such as 1s, or day, week, month or year, which are
	// those of the calendar.
	Per Per `yaml:"per" example:"1s"`

	// Zone is where days, weeks, months and years begin. The default is UTC.
	Zone Zone `yaml:"zone" example:"Europe/Berlin"`

	// Burst is how many units may be taken at once after a pause. The default is rate.
	Burst int64 `yaml:"burst" example:"200" jsonschema:"minimum=1"`

	// Algorithm is how the limit counts. The default is gcra for durations, lending if there are
	// classes, and fixed_window for the calendar.
	Algorithm Algorithm `yaml:"algorithm" example:"sliding_window"`

	// Initial is how full the limit starts: full, empty or a share such as 50%. The
	// default is full.
	Initial Initial `yaml:"initial" example:"50%"`

	// MaxDebt is how many units beyond burst may be owed, for gcra, token_bucket and lending.
	// The default is all that can be represented.
	MaxDebt int64 `yaml:"max_debt" example:"1000" jsonschema:"minimum=1"`

	// Classes are kinds of work that share the limit, in the order of the file: each has a
	// guaranteed share, and what one leaves idle is lent to the others. One limit of a policy may
	// have them, that with the shortest period. The default is none.
	Classes Classes `yaml:"classes" example:"{realtime: {guaranteed: 60%}, backfill: {guaranteed: 40%}}"`

	// Pace are classes that may use only as much of a day, week, month or year as has passed of
	// it. The default is none.
	Pace []string `yaml:"pace" example:"[backfill]"`

	// By is the attribute of a request whose value is charged, for example ip. The default
	// is the request's key.
	By string `yaml:"by" example:"ip"`

	// Unit is what the limit counts, for example tokens. The default is requests.
	Unit string `yaml:"unit" example:"tokens"`

	// Mode is this limit's. The default is the policy's.
	Mode Mode `yaml:"mode" example:"shadow"`

	// OnError is what happens while Redis does not answer. The default is that of the
	// store.
	OnError OnError `yaml:"on_error" example:"open"`

	// Hidden means that the limit is not shown to clients in headers. Overrides and plans cannot
	// change it. The default is that it is shown.
	Hidden bool `yaml:"hidden" example:"true"`
}

// Units is how many units a limit admits.
type Units int64

// Override gives a key other limits.
type Override struct {
	// Limits replace those of the policy that have the same name. by, unit and mode stay
	// the policy's, and so do the parts that classes have of the rate.
	Limits []Limit `yaml:"limits"`
}

// Algorithm is how a limit counts.
type Algorithm struct{ weir.Algorithm }

func (Algorithm) choices() []string {
	return []string{"gcra", "token_bucket", "fixed_window", "anchored_window", "sliding_window", "sliding_log", "dual_window", "concurrency", "lending"}
}

// check makes the policies of package ruleset and has them compiled.
func (list *Policies) check(c *checker, root path) {
	for _, name := range c.keys(root) {
		at, p := root.key(name), (*list)[name]
		out := p.rule(c, name, at)
		_, err := ruleset.Compile([]ruleset.Policy{out}, nil)
		c.noteRules(err, root)
		c.out.server.Live.Policies = append(c.out.server.Live.Policies, out)
	}
}

func (p *Policy) rule(c *checker, name string, at path) ruleset.Policy {
	if p.Rollout.Share == 0 {
		c.wrong(at.key("rollout"), "0%% enforces it for no key: set mode: shadow")
	}
	out := ruleset.Policy{Name: name, Mode: p.Mode.Mode, Rollout: p.Rollout.Share, Limits: rules(c, p.Limits, at)}
	for _, key := range c.keys(at.key("overrides")) {
		o := p.Overrides[key]
		out.Overrides = append(out.Overrides, ruleset.Override{Key: key, Limits: rules(c, o.Limits, at.key("overrides").key(key))})
	}
	return out
}

// rules makes the limits of package ruleset, which checks them.
func rules(c *checker, list []Limit, at path) []ruleset.Limit {
	return limitsAt(c, list, at.key("limits"))
}

// limitsAt is rules for a list that is at a path.
func limitsAt(c *checker, list []Limit, at path) (out []ruleset.Limit) {
	for i := range list {
		l := &list[i]
		out = append(out, ruleset.Limit{By: l.By, Unit: l.Unit, Mode: l.Mode.Mode, Hidden: l.Hidden, Limit: weir.Limit{
			Name: l.Name, Rate: int64(l.Rate), Per: l.period(c, at.item(i)), Burst: l.Burst, MaxDebt: l.MaxDebt,
			Initial: l.Initial.Fill, Algorithm: l.Algorithm.Algorithm, OnError: l.OnError.OnError,
			Classes: l.classes(c, at.item(i)), Pace: strings.Join(l.Pace, ","),
		}})
	}
	return out
}

func (l *Limit) period(c *checker, at path) weir.Period {
	unit, zone := l.Per.Calendar()
	switch {
	case l.Per == (Per{}) && l.Algorithm.Algorithm != weir.Concurrency && c.isKnown(at.key("per")):
		c.complain(c.at(at), at, "has no period: add per, such as per: 1s or per: day")
		c.unknown[at.key("per").String()] = true
	case l.Zone.Location != nil && zone == nil:
		c.wrong(at.key("zone"), "is for per: day, week, month or year: a duration is the same everywhere")
	case l.Zone.Location != nil:
		return weir.Calendar(unit, l.Zone.Location)
	}
	return l.Per.Period
}

// inFiles turns what weir says to programmers into what files have.
var inFiles = strings.NewReplacer(
	"FixedWindow, or Every with a duration", "fixed_window, or a duration", "such as Every(time.Second)", "such as 1s",
	"GCRA", "gcra", "TokenBucket", "token_bucket", "FixedWindow", "fixed_window", "SlidingLog", "sliding_log",
	"SlidingWindow", "sliding_window", "AnchoredWindow", "anchored_window", "DualWindow", "dual_window", "Concurrency", "concurrency")

// independent are the fields of a limit that are right or wrong whatever the others are.
var independent = []string{"name", "by", "unit", "mode"}

// noteRules notes the errors of package ruleset.
func (c *checker) noteRules(err error, root path) {
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*ruleset.Error](e)
		if !ok {
			c.wrong(root, "%v", e)
			continue
		}
		at := root.key(bad.Policy)
		if bad.Override != "" {
			at = at.key("overrides").key(bad.Override)
		}
		limits := at.key("limits")
		if bad.Limit >= 0 {
			limits = limits.item(bad.Limit)
			at = limits
		}
		if (bad.Limit >= 0 || bad.Field != "name") && c.isUnknown(limits) && !slices.Contains(independent, bad.Field) {
			continue // it may be wrong only because of the field that is not known
		}
		isKey := bad.Override == "" && bad.Field == "name" || bad.Override != "" && bad.Field == "overrides"
		if bad.Limit >= 0 || !isKey {
			at = at.field(bad.Field)
		}
		c.wrong(at, "%s", inFiles.Replace(bad.Problem))
	}
}
