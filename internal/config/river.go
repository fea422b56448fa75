package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// riverFile is the form of the rateLimits section of a River node.
type riverFile struct {
	RateLimits riverLimits `yaml:"rateLimits" example:"{enabled: true}" jsonschema:"required"`
}

type riverLimits struct {
	Enabled            *bool               `yaml:"enabled"`
	MaxTrackedUsers    int64               `yaml:"maxTrackedUsers" jsonschema:"minimum=1,maximum=1000000"`
	CleanupInterval    *Duration           `yaml:"cleanupInterval"`
	InactivityTimeout  *Duration           `yaml:"inactivityTimeout"`
	GlobalLimits       *riverRate          `yaml:"globalLimits"`
	EndpointLimits     []riverEndpoint     `yaml:"endpointLimits"`
	Violations         *riverViolations    `yaml:"violations"`
	SubscriptionLimits *riverSubscriptions `yaml:"subscriptionLimits"`
	ExemptAddresses    []string            `yaml:"exemptAddresses"`
}

type riverRate struct {
	Rate     Units    `yaml:"rate" example:"50" jsonschema:"required,minimum=1,maximum=9007199254740991"`
	Interval Duration `yaml:"interval" example:"1m" jsonschema:"required"`
}

type riverEndpoint struct {
	Endpoint string    `yaml:"endpoint" example:"/river.StreamService/GetStream" jsonschema:"required"`
	Rate     int64     `yaml:"rate" jsonschema:"minimum=0"`
	Interval *Duration `yaml:"interval"`
	Disabled bool      `yaml:"disabled"`
}

type riverViolations struct {
	Threshold         int64      `yaml:"threshold" jsonschema:"minimum=1"`
	PenaltyMultiplier Multiplier `yaml:"penaltyMultiplier"`
	PenaltyDuration   *Duration  `yaml:"penaltyDuration"`
}

type riverSubscriptions struct {
	MaxSubscriptionsPerUser          int64     `yaml:"maxSubscriptionsPerUser" jsonschema:"minimum=1"`
	MaxStreamsPerSubscription        int64     `yaml:"maxStreamsPerSubscription" jsonschema:"minimum=1"`
	MaxTotalSubscribedStreams        int64     `yaml:"maxTotalSubscribedStreams" jsonschema:"minimum=1"`
	SubscriptionCreationRate         int64     `yaml:"subscriptionCreationRate" jsonschema:"minimum=1"`
	SubscriptionCreationInterval     *Duration `yaml:"subscriptionCreationInterval"`
	SubscriptionModificationRate     int64     `yaml:"subscriptionModificationRate" jsonschema:"minimum=1"`
	SubscriptionModificationInterval *Duration `yaml:"subscriptionModificationInterval"`
}

// ImportRiver turns the rateLimits section of a River node into a configuration with a guard section. What it
// cannot take over, or takes over in another way, is in the notes; what the form does not have is a
// problem. Variables of environ that begin with RIVER_RATELIMITS_ change what the file says: their
// names are the path of a field in capitals, with an underscore between its steps.
func ImportRiver(name string, data []byte, environ []string) ([]byte, []Note, error) {
	content := plainText(data)
	r := newReport(content)
	tree := parseYAML(name, content, r)
	if tree == nil {
		return nil, nil, r.err(nil)
	}
	if tree.kind == null {
		tree.kind = mapping
	}
	in := &riverImport{report: r, tree: tree}
	in.variables(environ)
	d := &decoder{report: r}
	d.value(tree, reflect.ValueOf(&in.file).Elem(), nil)
	root := in.convert()
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s. For /v1/auth, add guard.client_ip.trusted_proxies: docs/guard.md.\n", strings.Map(oneColumn, name))
	p := &printer{}
	p.mapping(root, "")
	_ = p.write(&b) // a Buffer takes everything
	out := &Config{tree: root, loaded: contents{}}
	out.fill(&decoder{report: r}, readFile)
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), in.notes, nil
}

// riverImport makes our form of River's.
type riverImport struct {
	*report
	tree  *node
	file  riverFile
	notes []Note
}

// note notes something about the field at a path of River's file.
func (in *riverImport) note(at path, format string, args ...any) {
	where := in.tree.find(at)
	in.notes = append(in.notes, Note{where.source, where.line, at.String(), fmt.Sprintf(format, args...)})
}

// convert returns our configuration. Its values have the places of those that they come from.
func (in *riverImport) convert() *node {
	l, at := &in.file.RateLimits, path{}.key("rateLimits")
	root, g := newMapping(in.tree.at), newMapping(in.tree.find(at))
	in.mode(g, at)
	if l.MaxTrackedUsers > 0 {
		in.maxUsers(root, g, at.key("maxTrackedUsers"))
	}
	if l.CleanupInterval != nil {
		in.note(at.key("cleanupInterval"), "left out: nothing has to be cleaned up, because a row that is as if unused counts as free")
	}
	if l.InactivityTimeout != nil {
		in.note(at.key("inactivityTimeout"), "left out: a row is forgotten when its limits are as if unused; beyond store.max_keys, keys that are being refused are kept")
	}
	if r := l.GlobalLimits; r != nil {
		g.put("default", in.limited(r.Rate.text(), r.Interval, at.key("globalLimits")))
	}
	if len(l.EndpointLimits) > 0 {
		g.put("endpoints", in.endpoints(at.key("endpointLimits")))
	}
	if l.Violations != nil {
		g.put("penalties", in.penalties(at.key("violations")))
	}
	if l.SubscriptionLimits != nil {
		g.put("subscriptions", in.subscriptions(at.key("subscriptionLimits")))
	}
	for i, address := range l.ExemptAddresses {
		in.exempt(address, at.key("exemptAddresses").item(i))
	}
	root.put("guard", g)
	return root
}

// text returns the number as files have it.
func (u Units) text() string { return strconv.FormatInt(int64(u), 10) }

// mode takes enabled over.
func (in *riverImport) mode(g *node, at path) {
	enabled := in.file.RateLimits.Enabled
	at = at.key("enabled")
	mode := "enforce"
	switch {
	case enabled == nil:
		mode = "shadow"
		in.note(at, "is left out, which means false there; here mode: shadow reports what would be refused, and mode: enforce enforces it")
	case !*enabled:
		mode = "shadow"
		in.note(at, "false is mode: shadow here: nothing is refused, and what would be is counted and reported; for no guard at all, mode: off")
	}
	in.set(g, "mode", mode, at)
}

// maxUsers takes maxTrackedUsers over. Each endpoint that a user calls takes a key of the store.
func (in *riverImport) maxUsers(root, g *node, at path) {
	l := &in.file.RateLimits
	policies := int64(1)
	for _, e := range l.EndpointLimits {
		if !e.Disabled {
			policies++
		}
	}
	store := newMapping(in.tree.find(at))
	in.set(store, "max_keys", strconv.FormatInt(min(l.MaxTrackedUsers*policies, 1_000_000_000), 10), at)
	root.put("store", store)
	in.set(g, "max_subjects", strconv.FormatInt(l.MaxTrackedUsers, 10), at)
	in.note(at, "a user takes a key for each policy that it uses: store.max_keys is %d users with %d policies; keys that are being refused are never evicted", l.MaxTrackedUsers, policies)
}

// set puts a scalar that comes from a path.
func (in *riverImport) set(n *node, key, value string, at path) {
	n.put(key, newScalar(value, in.tree.find(at)))
}

// limited returns {limits: [{rate, per}]}.
func (in *riverImport) limited(rate string, per Duration, at path) *node {
	limit := newMapping(in.tree.find(at))
	in.set(limit, "rate", rate, at.key("rate"))
	in.set(limit, "per", shortDuration(per), at.key("interval"))
	out := newMapping(in.tree.find(at))
	out.put("limits", &node{kind: sequence, items: []*node{limit}, at: limit.at})
	return out
}

// shortDuration returns a duration without zero units: 1m, not 1m0s.
func shortDuration(d Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

func (in *riverImport) endpoints(at path) *node {
	out := newMapping(in.tree.find(at))
	first := map[string]int{}
	for i, e := range in.file.RateLimits.EndpointLimits {
		where := at.item(i)
		if !in.isKnownAt(where) {
			continue
		}
		if before, twice := first[e.Endpoint]; twice {
			in.complain(in.tree.find(where.key("endpoint")), where.key("endpoint"), "%q has limits already, at %s: remove one of the two", shorten(e.Endpoint), in.tree.find(at.item(before)))
			continue
		}
		first[e.Endpoint] = i
		if value := in.endpoint(&e, where); value != nil {
			out.pairs = append(out.pairs, pair{e.Endpoint, in.tree.find(where.key("endpoint")), value})
		}
	}
	return out
}

// isKnownAt says whether nothing at or below a path is missing or wrong.
func (in *riverImport) isKnownAt(at path) bool {
	c := checker{report: in.report}
	return !c.isUnknown(at)
}

// endpoint returns an endpoint, nil if it is wrong.
func (in *riverImport) endpoint(e *riverEndpoint, at path) *node {
	switch {
	case e.Disabled && (e.Rate != 0 || e.Interval != nil):
		in.note(at.key("disabled"), "the rate is left out, because the endpoint is disabled")
		fallthrough
	case e.Disabled:
		return newScalar("disabled", in.tree.find(at.key("disabled")))
	case e.Rate == 0 || e.Interval == nil:
		in.complain(in.tree.find(at), at, "has no rate and interval: add both, such as rate: 10 and interval: 1m, or disabled: true")
		return nil
	}
	if strings.HasSuffix(e.Endpoint, "/RemoveStreamFromSync") {
		in.note(at, "a limit of removals keeps load up: consider disabled")
	}
	return in.limited(strconv.FormatInt(e.Rate, 10), *e.Interval, at)
}

func (in *riverImport) penalties(at path) *node {
	v := in.file.RateLimits.Violations
	out := newMapping(in.tree.find(at))
	if v.Threshold > 0 {
		in.set(out, "after", strconv.FormatInt(v.Threshold, 10), at.key("threshold"))
	}
	if n := in.nodeAt(at.key("penaltyMultiplier")); n != nil {
		in.set(out, "multiplier", n.text, at.key("penaltyMultiplier"))
	}
	if v.PenaltyDuration != nil {
		in.set(out, "for", shortDuration(*v.PenaltyDuration), at.key("penaltyDuration"))
	}
	in.note(at.key("threshold"), "violations have no window there; here the score falls by the threshold in a minute (penalties.within), and counts a second of refusals once")
	return out
}

// nodeAt returns the value at a path, or nil.
func (in *riverImport) nodeAt(at path) *node {
	n := in.tree
	for _, s := range at {
		if n = n.step(s); n == nil {
			return nil
		}
	}
	return n
}

func (in *riverImport) subscriptions(at path) *node {
	s := in.file.RateLimits.SubscriptionLimits
	out := newMapping(in.tree.find(at))
	for _, x := range []struct {
		ours, theirs string
		value        int64
	}{
		{"per_subject", "maxSubscriptionsPerUser", s.MaxSubscriptionsPerUser},
		{"items_each", "maxStreamsPerSubscription", s.MaxStreamsPerSubscription},
		{"items_total", "maxTotalSubscribedStreams", s.MaxTotalSubscribedStreams},
	} {
		if x.value > 0 {
			in.set(out, x.ours, strconv.FormatInt(x.value, 10), at.key(x.theirs))
		}
	}
	for _, x := range []struct {
		ours, rate, interval, method string
		value                        int64
		per                          *Duration
		usual                        string // what it is if it is left out
	}{
		{"create", "subscriptionCreationRate", "subscriptionCreationInterval", "/SyncStreams", s.SubscriptionCreationRate, s.SubscriptionCreationInterval, "5 per 1m"},
		{"modify", "subscriptionModificationRate", "subscriptionModificationInterval", "/ModifySync", s.SubscriptionModificationRate, s.SubscriptionModificationInterval, "30 per 1m"},
	} {
		if x.value == 0 && x.per == nil {
			continue
		}
		if x.value == 0 || x.per == nil {
			in.complain(in.tree.find(at), at, "%s and %s belong together: add the other one", x.rate, x.interval)
			continue
		}
		value, per := strconv.FormatInt(x.value, 10), shortDuration(*x.per)
		if e := in.limitOf(x.method); e != nil {
			kept, keptPer := strconv.FormatInt(e.Rate, 10), shortDuration(*e.Interval)
			in.note(at.key(x.rate), "%s per %s is left out: the limit of endpoint %s, %s per %s, is the one that is kept", value, per, e.Endpoint, kept, keptPer)
			value, per = kept, keptPer
			if value+" per "+per == x.usual { // that of the subscriptions is the same by itself
				continue
			}
		}
		rate := newMapping(in.tree.find(at.key(x.rate)))
		in.set(rate, "rate", value, at.key(x.rate))
		in.set(rate, "per", per, at.key(x.interval))
		out.put(x.ours, rate)
	}
	return out
}

// limitOf returns the endpoint with a limit whose name ends in a text, or nil.
func (in *riverImport) limitOf(method string) *riverEndpoint {
	list := in.file.RateLimits.EndpointLimits
	i := slices.IndexFunc(list, func(e riverEndpoint) bool {
		return strings.HasSuffix(e.Endpoint, method) && !e.Disabled && e.Rate > 0 && e.Interval != nil
	})
	if i < 0 {
		return nil
	}
	return &list[i]
}

// exempt says why an address is not exempt.
func (in *riverImport) exempt(address string, at path) {
	if strings.Trim(strings.TrimPrefix(address, "0x"), "0") == "" {
		in.note(at, "left out: the zero address is that of whoever is not identified, so that anybody could be exempt")
		return
	}
	in.note(at, `left out: an exemption is for some endpoints and ends; add guard.exemptions: [{subject: "user:%s", endpoints: [...], until: DATE}]`, shorten(address))
}
