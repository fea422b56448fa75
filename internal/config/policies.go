package config

import (
	"errors"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/ruleset"
)

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
			algorithm := "gcra"
			if p := new(Per); p.set(per.text) == nil && p.isCalendar() {
				algorithm = "fixed_window"
			}
			l.put("algorithm", newScalar(algorithm, by))
		}
		algorithm := l.child("algorithm")
		bursts := algorithm != nil && (algorithm.text == "gcra" || algorithm.text == "token_bucket")
		if bursts && l.child("burst") == nil && rate != nil && isRate(rate) {
			l.put("burst", newScalar(rate.text, by))
		}
	}
}

// isRate says whether n can be a rate, so that an invalid one is reported only once.
func isRate(n *node) bool {
	_, err := parseInt(n.text, 1, algo.MaxRate)
	return err == nil && !n.quoted
}

// Mode is what happens to a refusal.
type Mode string

func (Mode) choices() []string { return []string{"enforce", "shadow", "off"} }

// Limit is so many units per period.
type Limit struct {
	// Name tells the limits of a policy apart. At most one may go without: it is called
	// main.
	Name string `yaml:"name" example:"daily"`

	// Rate is the number of units per period, at least 1. For algorithm: concurrency it
	// is how many may be held at once.
	Rate *Units `yaml:"rate" example:"100" jsonschema:"required,minimum=1"`

	// Per is the period: a duration such as 1s, or day, week, month or year, which are
	// those of the calendar.
	Per *Per `yaml:"per" example:"1s"`

	// Zone is where days, weeks, months and years begin. The default is UTC.
	Zone *Zone `yaml:"zone" example:"Europe/Berlin"`

	// Burst is how many units may be taken at once after a pause. The default is rate.
	Burst *int64 `yaml:"burst" example:"200" jsonschema:"minimum=1"`

	// Algorithm is how the limit counts. The default is gcra for durations and
	// fixed_window for the calendar.
	Algorithm Algorithm `yaml:"algorithm" example:"sliding_window"`

	// Initial is how full the limit starts: full, empty or a share such as 50%. The
	// default is full.
	Initial *Initial `yaml:"initial" example:"50%"`

	// MaxDebt is how many units beyond burst may be owed, for gcra and token_bucket. The
	// default is all that can be represented.
	MaxDebt *int64 `yaml:"max_debt" example:"1000" jsonschema:"minimum=1"`

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
}

// Units is how many units a limit admits.
type Units int64

// Override gives a key other limits.
type Override struct {
	// Limits replace those of the policy that have the same name. by, unit and mode stay
	// the policy's.
	Limits []Limit `yaml:"limits"`
}

// Algorithm is how a limit counts.
type Algorithm string

func (Algorithm) choices() []string {
	return []string{"gcra", "token_bucket", "fixed_window", "anchored_window", "sliding_window", "sliding_log", "dual_window", "concurrency"}
}

// policies makes the policies of package ruleset and has them compiled.
func (c *checker) policies() {
	root := path{}.key("policies")
	for _, name := range c.keys("policies") {
		at := root.key(name)
		if c.failed(at) {
			continue
		}
		p := c.file.Policies[name]
		out := c.policy(name, &p, at)
		if c.failed(at) {
			continue
		}
		if _, err := ruleset.Compile([]ruleset.Policy{out}, nil); err != nil {
			c.rulesetProblems(err, root)
			continue
		}
		c.out.policies = append(c.out.policies, out)
	}
}

func (c *checker) policy(name string, p *Policy, at path) ruleset.Policy {
	out := ruleset.Policy{Name: name, Mode: c.mode(p.Mode, at.key("mode")), Rollout: p.Rollout.Share}
	if out.Rollout == 0 {
		c.wrong(at.key("rollout"), "0%% enforces it for no key: set mode: shadow")
	}
	for i := range p.Limits {
		out.Limits = append(out.Limits, c.limit(&p.Limits[i], at.key("limits").item(i)))
	}
	overrides := c.tree.child("policies").child(name).child("overrides")
	if overrides == nil {
		return out
	}
	for _, pair := range overrides.pairs {
		o, where := p.Overrides[pair.key], at.key("overrides").key(pair.key).key("limits")
		one := ruleset.Override{Key: pair.key}
		for i := range o.Limits {
			one.Limits = append(one.Limits, c.limit(&o.Limits[i], where.item(i)))
		}
		out.Overrides = append(out.Overrides, one)
	}
	return out
}

// mode returns the mode of package ruleset; "" is the default.
func (c *checker) mode(m Mode, at path) (out ruleset.Mode) {
	if m == "" {
		return ruleset.ModeDefault
	}
	if err := out.UnmarshalText([]byte(m)); err != nil {
		c.wrong(at, "%v", err)
	}
	return out
}

// limit makes the limit of package ruleset. What weir itself checks is left to it.
func (c *checker) limit(l *Limit, at path) ruleset.Limit {
	out := ruleset.Limit{By: l.By, Unit: l.Unit, Mode: c.mode(l.Mode, at.key("mode"))}
	out.Name, out.OnError = l.Name, c.onError(l.OnError, at.key("on_error"))
	switch {
	case l.Rate == nil:
		c.wrong(at, "has no rate: how many units are admitted per period? For no limit, leave it out")
	default:
		out.Rate = int64(*l.Rate)
	}
	out.Burst, out.MaxDebt = c.positive(l.Burst, at.key("burst")), c.positive(l.MaxDebt, at.key("max_debt"))
	if l.Initial != nil {
		out.Initial = l.Initial.Fill
	}
	if l.Algorithm != "" {
		if err := out.Algorithm.UnmarshalText([]byte(l.Algorithm)); err != nil {
			c.wrong(at.key("algorithm"), "%v", err)
		}
	}
	out.Per = c.period(l, at)
	return out
}

// positive returns an optional number. 0 would mean the default, which is not what
// somebody means who writes it.
func (c *checker) positive(n *int64, at path) int64 {
	if n == nil {
		return 0
	}
	if *n < 1 {
		c.wrong(at, "%d must be at least 1; leave it out for the default", *n)
	}
	return *n
}

func (c *checker) period(l *Limit, at path) weir.Period {
	if l.Per == nil {
		if l.Algorithm != "concurrency" {
			c.wrong(at, "has no period: add per, such as per: 1s or per: day")
		}
		if l.Zone != nil {
			c.wrong(at.key("zone"), "is for per: day, week, month or year")
		}
		return weir.Period{}
	}
	unit, zone := l.Per.Calendar()
	switch {
	case l.Zone == nil:
		return l.Per.Period
	case zone == nil:
		c.wrong(at.key("zone"), "is for per: day, week, month or year: a duration is the same everywhere")
		return l.Per.Period
	}
	return weir.Calendar(unit, l.Zone.Location)
}

// inFiles turns what weir says to programmers into what files have.
var inFiles = strings.NewReplacer(
	"FixedWindow, or Every with a duration", "fixed_window, or a duration", "such as Every(time.Second)", "such as 1s",
	"GCRA", "gcra", "TokenBucket", "token_bucket", "FixedWindow", "fixed_window", "SlidingLog", "sliding_log",
	"SlidingWindow", "sliding_window", "AnchoredWindow", "anchored_window", "DualWindow", "dual_window", "Concurrency", "concurrency")

// rulesetProblems maps the errors of package ruleset to their places in the file.
func (c *checker) rulesetProblems(err error, root path) {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		c.wrong(root, "%v", err)
		return
	}
	for _, e := range many.Unwrap() {
		bad, ok := errors.AsType[*ruleset.Error](e)
		if !ok {
			c.wrong(root, "%v", e)
			continue
		}
		at := root.key(bad.Policy)
		if bad.Override != "" {
			at = at.key("overrides").key(bad.Override)
		}
		if bad.Limit >= 0 {
			at = at.key("limits").item(bad.Limit)
		}
		at = c.fieldOf(at, bad.Field)
		if bad.Limit < 0 && bad.Field == "limits" && c.failed(at) {
			continue // that one of the limits is wrong has been said
		}
		c.wrong(at, "%s", inFiles.Replace(c.punctuate(at, bad.Problem)))
	}
}

// punctuate puts a colon between a value and a sentence that does not go on from it.
func (c *checker) punctuate(at path, problem string) string {
	value := c.tree.textAt(at)
	rest, ok := strings.CutPrefix(problem, value+" ")
	if !ok || value == "" || strings.HasPrefix(rest, "must ") || strings.HasPrefix(rest, "is ") {
		return problem
	}
	return value + ": " + rest
}

// fieldOf returns the path of a field. What package ruleset calls the name of a policy is its key.
func (c *checker) fieldOf(at path, name string) path {
	if len(at) == 2 && name == "name" || name == "overrides" && len(at) > 2 {
		return at
	}
	return at.key(name)
}
