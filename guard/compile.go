package guard

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// Names of policies that are not an endpoint's. Those with a slash are charged by a Guard alone;
// names of configured policies have none.
const (
	perIPName     = "guard.ip"
	defaultName   = "guard.default"
	rolloutGroup  = "guard"
	privatePrefix = "guard"
)

// Bounds of a configuration.
const (
	maxEndpoints    = 10_000
	maxExemptions   = 10_000
	maxEndpointName = 64
	maxTimeout      = time.Hour
	defaultTimeout  = time.Minute
	defaultRows     = 100_000
)

// Rules are a compiled Config. They are immutable.
type Rules struct {
	mode       ruleset.Mode // of Config; never ModeDefault
	identifier *Identifier
	matcher    *matcher
	endpoints  []*endpoint // by the index of their pattern
	fallback   *endpoint   // of all others
	perIP      *ruleset.Rule
	blocks     BeforeAuth // its caps of requests in flight
	inFlight   int64      // of one subject
	exemptions map[string][]exemption
	penalties  *penaltyRules          // nil if there are none
	abuse      *weir.Policy           // nil if it is not looked for
	events     [kinds][2]*weir.Policy // how often a subject's violations are reported; enforced and shadow
	subs       *subscriptionLimits    // nil if subscriptions are not limited
	shared     bool                   // Config.Shared
	measure    bool                   // Config.Measure
	maxRows    int                    // Config.MaxSubjects
}

// An endpoint is a compiled Endpoint.
type endpoint struct {
	name     string
	disabled bool
	rule     *ruleset.Rule // nil if there are no limits
	by       []string      // the attributes that its limits are by, but "ip"
	cost     int64
	count    Count
	settle   bool
	timeout  time.Duration
	measured *measured // nil unless Config.Measure
}

// reserves says whether the cost is known only when a request has ended.
func (e *endpoint) reserves() bool { return e.count != CountAll || e.settle }

// An exemption is for the endpoints of a matcher.
type exemption struct {
	endpoints *matcher
	until     time.Time
}

// find returns the endpoint of a request.
func (r *Rules) find(method, path string) *endpoint {
	if i := r.matcher.find(method, path); i >= 0 {
		return r.endpoints[i]
	}
	return r.fallback
}

// Policies returns the policies of the configuration, for a program that compiles them together with
// others and passes the result to Compile.
func (c *Config) Policies() []ruleset.Policy {
	var list []ruleset.Policy
	if len(c.BeforeAuth.PerIP) > 0 {
		limits := slices.Clone(c.BeforeAuth.PerIP)
		for i := range limits {
			limits[i].Hidden = true
		}
		list = append(list, ruleset.Policy{Name: perIPName, Mode: c.Mode, Rollout: c.Rollout, RolloutGroup: rolloutGroup, Limits: limits})
	}
	if len(c.Default.Limits) > 0 {
		list = append(list, c.policy(&c.Default, c.defaultName()))
	}
	for i := range c.Endpoints {
		if e := &c.Endpoints[i]; len(e.Limits) > 0 && !e.Disabled {
			list = append(list, c.policy(e, e.name()))
		}
	}
	return list
}

// policy returns the policy of an endpoint.
func (c *Config) policy(e *Endpoint, name string) ruleset.Policy {
	p := ruleset.Policy{
		Name: name, Mode: e.Mode, Rollout: e.Rollout, RolloutGroup: rolloutGroup,
		Limits: e.Limits, Plans: slices.Clone(e.Plans), Overrides: e.Overrides,
	}
	if p.Mode == ruleset.ModeDefault || c.Mode == ruleset.Off {
		p.Mode = c.Mode
	}
	if p.Rollout == 0 {
		p.Rollout = c.Rollout
	}
	for _, plan := range c.Plans {
		own := slices.ContainsFunc(e.Plans, func(own ruleset.Plan) bool { return own.Name == plan.Name })
		if multiplied := plan.of(e.Limits); !own && len(multiplied.Limits) > 0 {
			p.Plans = append(p.Plans, multiplied)
		}
	}
	return p
}

// of returns the limits of a subject multiplied. Those by other attributes are shared with subjects that
// do not have the plan.
func (p Plan) of(limits []ruleset.Limit) ruleset.Plan {
	out := ruleset.Plan{Name: p.Name}
	for _, l := range limits {
		if l.By != "" {
			continue
		}
		l.Rate = times(l.Rate, p.Multiplier)
		if l.Burst != 0 {
			l.Burst = times(l.Burst, p.Multiplier)
		}
		out.Limits = append(out.Limits, l)
	}
	return out
}

// times multiplies n, to no less than 1 and no more than what a float64 counts exactly.
func times(n int64, factor float64) int64 {
	return int64(min(max(1, math.Round(float64(n)*factor)), 1<<53-1))
}

func (c *Config) defaultName() string {
	if c.Default.Name != "" {
		return c.Default.Name
	}
	return defaultName
}

// name returns the name of the endpoint's policy.
func (e *Endpoint) name() string {
	if e.Name != "" {
		return e.Name
	}
	return patternName(e.Pattern)
}

// patternName makes a name of a pattern: other characters than letters, digits, hyphens and underscores
// become dots, and a * at the end "all". For example, "GET /v1/users/{id}" becomes "GET.v1.users.id",
// and "eth_*" becomes "eth_all".
func patternName(pattern string) string {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		pattern = prefix + "all"
	}
	var b strings.Builder
	dot := true // so that none comes first
	for _, r := range pattern {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
		switch {
		case letter:
			b.WriteRune(r)
		case !dot:
			b.WriteByte('.')
		}
		dot = !letter
	}
	return strings.TrimSuffix(b.String(), ".")
}

func isEndpointName(name string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return name != "" && len(name) <= maxEndpointName && strings.Trim(name, chars) == ""
}

// Validate returns everything that is wrong with the configuration, joined.
func (c *Config) Validate() error {
	rules, err := ruleset.Compile(c.Policies(), nil)
	_, own := Compile(*c, rules)
	return errors.Join(own, c.place(err))
}

// compiler compiles a configuration and collects all problems.
type compiler struct {
	config   *Config
	rules    *ruleset.Rules // nil if they are invalid
	out      *Rules
	problems []error
}

func (c *compiler) complain(problem string, path ...any) {
	c.problems = append(c.problems, fielderr.New("guard", problem, path...))
}

// note adds the problems of an error, at a path.
func (c *compiler) note(err error, path ...any) {
	for _, e := range fielderr.Split(err) {
		if field, ok := errors.AsType[*fielderr.Error](e); ok {
			c.problems = append(c.problems, &fielderr.Error{Package: "guard", Path: slices.Concat(path, field.Path), Value: field.Value, Problem: field.Problem})
			continue
		}
		if limit, ok := errors.AsType[*weir.LimitError](e); ok {
			c.problems = append(c.problems, &fielderr.Error{Package: "guard", Path: append(slices.Clone(path), limit.Field), Value: limit.Value, Problem: limit.Problem})
			continue
		}
		c.complain(e.Error(), path...)
	}
}

// Compile compiles a configuration whose Policies are among rules. Its error joins all problems, but
// for those of the policies, which ruleset.Compile has reported.
func Compile(config Config, rules *ruleset.Rules) (*Rules, error) {
	c := compiler{config: &config, rules: rules, out: &Rules{
		mode: config.Mode, blocks: config.BeforeAuth, inFlight: config.InFlight,
		shared: config.Shared, measure: config.Measure, maxRows: config.MaxSubjects,
	}}
	if c.out.mode == ruleset.ModeDefault {
		c.out.mode = ruleset.Enforce
	}
	if c.out.maxRows == 0 {
		c.out.maxRows = defaultRows
	}
	var err error
	if c.out.identifier, err = NewIdentifier(config.Identity); err != nil {
		c.note(err, "Identity")
	}
	c.numbers()
	c.endpoints()
	c.plans()
	c.exemptions()
	c.penalties()
	if config.Subscriptions != nil {
		c.out.subs, err = newSubscriptionLimits(privatePrefix, config.Subscriptions)
		c.note(err, "Subscriptions")
	}
	if len(c.problems) > 0 {
		return nil, errors.Join(c.problems...)
	}
	return c.out, nil
}

// numbers checks the numbers of Config itself.
func (c *compiler) numbers() {
	for _, n := range []struct {
		value int64
		path  []any
	}{
		{c.config.InFlight, []any{"InFlight"}},
		{int64(c.config.MaxSubjects), []any{"MaxSubjects"}},
		{c.config.BeforeAuth.InFlight, []any{"BeforeAuth", "InFlight"}},
		{c.config.BeforeAuth.InFlightPerIP, []any{"BeforeAuth", "InFlightPerIP"}},
	} {
		if n.value < 0 {
			c.problems = append(c.problems, &fielderr.Error{Package: "guard", Path: n.path, Value: n.value, Problem: "must not be negative"})
		}
	}
	for i, l := range c.config.BeforeAuth.PerIP {
		if l.By != "" || l.Algorithm == weir.Concurrency {
			c.complain("a limit before authentication is by address, and a rate: leave out by, and use in_flight_per_ip for requests at once", "BeforeAuth", "PerIP", i)
		}
	}
	c.out.perIP = c.rule(perIPName)
}

// rule returns the compiled policy with a name, or nil.
func (c *compiler) rule(name string) *ruleset.Rule {
	if c.rules == nil {
		return nil
	}
	return c.rules.Rule(name)
}

// endpoints compiles the endpoints and their patterns.
func (c *compiler) endpoints() {
	if len(c.config.Endpoints) > maxEndpoints {
		c.complain(fmt.Sprintf("there are %d: at most %d fit", len(c.config.Endpoints), maxEndpoints), "Endpoints")
		return
	}
	c.config.Default.Pattern = "*"
	c.out.fallback = c.endpoint(&c.config.Default, c.config.defaultName(), "Default")
	var patterns []string
	seen := map[string]string{c.config.defaultName(): "the default", perIPName: "the limits before authentication"}
	for i := range c.config.Endpoints {
		e := &c.config.Endpoints[i]
		patterns = append(patterns, e.Pattern)
		c.out.endpoints = append(c.out.endpoints, c.endpoint(e, e.name(), "Endpoints", i))
		if other, taken := seen[e.name()]; taken {
			c.complain(fmt.Sprintf("%q is the name of %s: give the endpoint another name", e.name(), other), "Endpoints", i, "Name")
		}
		seen[e.name()] = fmt.Sprintf("endpoint %q", e.Pattern)
	}
	var problems []patternError
	c.out.matcher, problems = newMatcher(patterns)
	for _, p := range problems {
		c.complain(p.problem, "Endpoints", p.index, "Pattern")
	}
}

func (c *compiler) endpoint(e *Endpoint, name string, path ...any) *endpoint {
	out := &endpoint{name: name, disabled: e.Disabled, cost: e.Cost, count: e.Count, settle: e.Settle, timeout: e.Timeout}
	if out.cost == 0 {
		out.cost = 1
	}
	if out.timeout == 0 {
		out.timeout = defaultTimeout
	}
	for _, l := range e.Limits {
		if l.By != "" && l.By != "ip" && !slices.Contains(out.by, l.By) {
			out.by = append(out.by, l.By)
		}
	}
	c.checkEndpoint(e, out, path)
	c.checkLimits(e, path)
	if !out.disabled && len(e.Limits) > 0 {
		out.rule = c.rule(name)
	}
	if c.config.Measure && out.rule != nil {
		if out.measured = newMeasured(name, e.Limits); out.measured != nil && name != c.config.defaultName() {
			out.measured.pattern = e.Pattern
		}
	}
	return out
}

// checkEndpoint checks an endpoint but for its limits.
func (c *compiler) checkEndpoint(e *Endpoint, out *endpoint, path []any) {
	at := func(field string) []any { return append(slices.Clone(path), field) }
	switch {
	case e.Name == "" && len(out.name) > maxEndpointName:
		c.complain(fmt.Sprintf("%q, made of the pattern, is longer than %d characters: give the endpoint a name", out.name, maxEndpointName), at("Name")...)
	case !isEndpointName(out.name):
		c.complain(fmt.Sprintf("%q: must be 1 to %d letters, digits or -_.", out.name, maxEndpointName), at("Name")...)
	case e.Disabled && (len(e.Limits) > 0 || len(e.Plans) > 0 || len(e.Overrides) > 0):
		c.complain("it is disabled and has limits: remove one of the two", at("Disabled")...)
	case !e.Disabled && len(e.Limits) == 0 && path[0] != "Default":
		c.complain("there is none; say at least {rate: 100, per: 1m}, or disabled", at("Limits")...)
	}
	if out.cost < 0 || out.cost > weir.MaxCost {
		c.complain(fmt.Sprintf("must be between 1 and %d", weir.MaxCost), at("Cost")...)
	}
	if out.timeout < 0 || out.timeout > maxTimeout {
		c.complain("must be between 0 and an hour", at("Timeout")...)
	}
}

// checkLimits checks what limits of endpoints may be, beside what ruleset.Compile checks.
func (c *compiler) checkLimits(e *Endpoint, path []any) {
	at := func(field string) []any { return append(slices.Clone(path), field) }
	units := map[string]bool{}
	for i, l := range e.Limits {
		units[l.Unit] = true
		if l.Algorithm == weir.Concurrency {
			c.complain("limits of endpoints are rates: use in_flight for requests at once", append(at("Limits"), i, "algorithm")...)
		}
	}
	if len(units) > 1 && !units[""] && !units[ruleset.Requests] {
		c.complain("they count several units, and a request has one cost: make them endpoints of their own, or count requests as well", at("Limits")...)
	}
	for _, p := range e.Plans {
		c.shared(e, p.Limits, append(at("Plans"), p.Name)...)
	}
	for _, o := range e.Overrides {
		c.shared(e, o.Limits, append(at("Overrides"), o.Key)...)
	}
}

// shared refuses limits of a plan or an override that replace one by another attribute than the subject:
// its count is shared with subjects that have the endpoint's own limits.
func (c *compiler) shared(e *Endpoint, limits []ruleset.Limit, path ...any) {
	for i, l := range limits {
		for _, own := range e.Limits {
			if own.By != "" && own.Name == l.Name {
				c.complain(fmt.Sprintf("the limit is by %s, so that its count is shared with others: only limits of the subject can differ", own.By), append(path, "Limits", i)...)
			}
		}
	}
}

func (c *compiler) plans() {
	for i, p := range c.config.Plans {
		if !(p.Multiplier >= 0.01 && p.Multiplier <= 1e6) {
			c.problems = append(c.problems, &fielderr.Error{
				Package: "guard", Path: []any{"Plans", i, "Multiplier"}, Value: p.Multiplier, Problem: "must be between 0.01 and 1,000,000",
			})
		}
		if p.Name == "" || slices.ContainsFunc(c.config.Plans[:i], func(o Plan) bool { return o.Name == p.Name }) {
			c.complain("must be the name of one plan", "Plans", i, "Name")
		}
	}
}

func (c *compiler) exemptions() {
	if len(c.config.Exemptions) > maxExemptions {
		c.complain(fmt.Sprintf("there are %d: at most %d fit", len(c.config.Exemptions), maxExemptions), "Exemptions")
		return
	}
	c.out.exemptions = map[string][]exemption{}
	for i, x := range c.config.Exemptions {
		if kind, id, ok := strings.Cut(x.Subject, ":"); !ok || id == "" || kind == "ip" {
			c.problems = append(c.problems, &fielderr.Error{
				Package: "guard", Path: []any{"Exemptions", i, "Subject"}, Value: x.Subject,
				Problem: "must be a verified subject, such as user:notifications, key:batch or cert:billing; an address can be forged or shared",
			})
		}
		if x.Until.IsZero() {
			c.complain("is missing: an exemption needs an end, such as 2027-06-30", "Exemptions", i, "Until")
		}
		if len(x.Endpoints) == 0 {
			c.complain("is missing: name the endpoints, or * for all", "Exemptions", i, "Endpoints")
		}
		m, problems := newMatcher(x.Endpoints)
		for _, p := range problems {
			c.complain(p.problem, "Exemptions", i, "Endpoints", p.index)
		}
		subject := fit(x.Subject)
		c.out.exemptions[subject] = append(c.out.exemptions[subject], exemption{m, x.Until})
	}
}

// isExempt says whether the limits of an endpoint do not apply to a subject.
func (r *Rules) isExempt(s *Subject, method, path string, now func() time.Time) bool {
	if !s.Verified || len(r.exemptions) == 0 {
		return false
	}
	for _, x := range r.exemptions[s.Key] {
		if x.endpoints.find(method, path) >= 0 && now().Before(x.until) {
			return true
		}
	}
	return false
}

// place returns the problems of the configuration's policies, as problems of its fields.
func (c *Config) place(err error) error {
	var problems []error
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*ruleset.Error](e)
		if !ok {
			problems = append(problems, e)
			continue
		}
		if bad.Field == "name" && bad.Limit < 0 && bad.Override == "" && bad.Plan == "" {
			continue // Compile has reported it
		}
		problems = append(problems, &fielderr.Error{Package: "guard", Path: c.pathOf(bad), Problem: bad.Problem})
	}
	return errors.Join(problems...)
}

// pathOf returns the path of a policy's problem in Config.
func (c *Config) pathOf(bad *ruleset.Error) (path []any) {
	limits := "Limits"
	switch i := slices.IndexFunc(c.Endpoints, func(e Endpoint) bool { return e.name() == bad.Policy }); {
	case bad.Policy == perIPName:
		path, limits = []any{"BeforeAuth"}, "PerIP"
	case bad.Policy == c.defaultName():
		path = []any{"Default"}
	case i >= 0:
		path = []any{"Endpoints", i}
	}
	switch {
	case bad.Override != "":
		path = append(path, "Overrides", bad.Override)
	case bad.Plan != "":
		path = append(path, "Plans", bad.Plan)
	}
	if bad.Limit >= 0 {
		path = append(path, limits, bad.Limit)
	}
	return append(path, bad.Field)
}
