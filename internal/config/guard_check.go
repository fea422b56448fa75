package config

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
)

// guardChecker makes the configuration of package guard, and finds the places of its problems.
type guardChecker struct {
	*checker
	file     *Guard
	root     path     // where the section is
	patterns []string // of the endpoints, in the order of the file
	plans    []string // in the order of the file
}

func (g *Guard) check(c *checker, at path) {
	b := &guardChecker{checker: c, file: g, root: at, patterns: c.keys(at.key("endpoints")), plans: c.keys(at.key("plans"))}
	out := &server.Guard{Config: b.config(), PrincipalHeader: g.Principal.Header, PlanHeader: g.Principal.PlanHeader}
	if len(g.ClientIP.TrustedProxies) == 0 && len(g.Endpoints) > 0 {
		c.warn(c.at(at), at, "client_ip.trusted_proxies is empty: /v1/auth ignores the endpoint and the address that a proxy sends, and applies only before_auth and default")
	}
	b.headers()
	b.note(out.Config.Validate())
	for _, p := range out.Config.Policies() {
		if _, taken := c.file.Policies[p.Name]; taken {
			c.wrong(path{}.key("policies").key(p.Name), "is also the name of a policy of the guard: rename it, or give the endpoint another name")
		}
	}
	c.out.server.Live.Guard = out
}

// config returns the configuration of package guard.
func (b *guardChecker) config() guard.Config {
	g := b.file
	out := guard.Config{
		Mode: g.Mode.Mode, Rollout: b.rollout(&g.Rollout, b.root), Identity: b.identity(),
		BeforeAuth: guard.BeforeAuth{
			PerIP: b.limits(g.BeforeAuth.PerIP, b.root.key("before_auth").key("per_ip")), InFlight: g.BeforeAuth.InFlight, InFlightPerIP: g.BeforeAuth.InFlightPerIP,
		},
		InFlight: g.InFlight, Measure: g.Measure, MaxSubjects: g.MaxSubjects,
	}
	if g.Default != nil {
		out.Default = b.endpoint(g.Default, "", b.root.key("default"))
	}
	for _, pattern := range b.patterns {
		e := g.Endpoints[pattern]
		out.Endpoints = append(out.Endpoints, b.endpoint(&e, pattern, b.root.key("endpoints").key(pattern)))
	}
	for _, name := range b.plans {
		out.Plans = append(out.Plans, guard.Plan{Name: name, Multiplier: float64(g.Plans[name].Multiplier)})
	}
	if p := g.Penalties; p != nil {
		out.Penalties = &guard.Penalties{
			After: p.After, Within: p.Within.Duration, Interval: p.Interval.Duration, Multiplier: float64(p.Multiplier), For: p.For.Duration,
			Sustained: p.Sustained, SustainedWithin: p.SustainedWithin.Duration,
		}
		if p.Multiplier == 0 {
			b.wrong(b.root.key("penalties").key("multiplier"), "0 must be more than 0: a rate is reduced, never to zero")
		}
	}
	if a := g.Abuse; a != nil {
		out.Abuse = &guard.Abuse{Requests: a.Requests, Per: a.Per.Duration}
	}
	if s := g.Subscriptions; s != nil {
		out.Subscriptions = &guard.Subscriptions{
			PerSubject: s.PerSubject, ItemsEach: s.ItemsEach, ItemsTotal: s.ItemsTotal, Create: s.Create.limit(), Modify: s.Modify.limit(),
		}
	}
	for i := range g.Exemptions {
		x := &g.Exemptions[i]
		out.Exemptions = append(out.Exemptions, guard.Exemption{Subject: x.key(), Endpoints: x.Endpoints, Until: x.Until.Time})
	}
	return out
}

// rollout returns a share, 0 for that of the guard.
func (b *guardChecker) rollout(p *Percent, at path) ruleset.Share {
	switch {
	case p == nil:
		return 0
	case p.Share == 0:
		b.wrong(at.key("rollout"), "0%% enforces it for nobody: set mode: shadow")
	}
	return p.Share
}

// limits makes limits, which are below a path.
func (b *guardChecker) limits(list []Limit, at path) []ruleset.Limit {
	for i := range list {
		if where := at.item(i).key("classes"); len(list[i].Classes) > 0 {
			b.wrong(where, "are not for the guard, because the requests that it decides name no class: have them in a policy")
			b.unknown[where.String()] = true
		}
	}
	return limitsAt(b.checker, list, at)
}

func (b *guardChecker) endpoint(e *GuardEndpoint, pattern string, at path) guard.Endpoint {
	out := guard.Endpoint{
		Pattern: pattern, Name: e.Name, Disabled: bool(e.Disabled), Limits: b.limits(e.Limits, at.key("limits")), Mode: e.Mode.Mode,
		Rollout: b.rollout(e.Rollout, at), Cost: e.Cost, Settle: e.Settle,
	}
	if e.Count == "failures" {
		out.Count = guard.CountFailures
	}
	if e.Timeout != nil {
		out.Timeout = e.Timeout.Duration
	}
	for _, name := range b.keys(at.key("plans")) {
		out.Plans = append(out.Plans, ruleset.Plan{Name: name, Limits: b.limits(e.Plans[name].Limits, at.key("plans").key(name).key("limits"))})
	}
	for _, key := range b.keys(at.key("overrides")) {
		o := e.Overrides[key]
		override := ruleset.Override{Key: key, Limits: b.limits(o.Limits, at.key("overrides").key(key).key("limits"))}
		if o.Until != nil {
			override.Until = o.Until.Time
		}
		out.Overrides = append(out.Overrides, override)
	}
	return out
}

// identity returns how callers are identified.
func (b *guardChecker) identity() guard.Identity {
	g := b.file
	out := guard.Identity{ClientIP: clientip.Config{IPv6Prefix: g.ClientIP.IPv6Prefix}}
	for _, p := range g.ClientIP.TrustedProxies {
		if p.Unix {
			out.ClientIP.TrustUnix = true
		} else {
			out.ClientIP.Trusted = append(out.ClientIP.Trusted, p.Prefix)
		}
	}
	if len(g.ClientIP.TrustedProxies) > 0 {
		out.ClientIP.Header = string(g.ClientIP.Header)
	}
	if g.APIKeys != nil {
		out.KeyHeader, out.Keys = g.APIKeys.Header, b.keyList()
	}
	kinds := map[SubjectKind]guard.Source{"principal": guard.SourceContext, "api_key": guard.SourceKey, "certificate": guard.SourceCertificate}
	for i, kind := range g.Subjects {
		at := b.root.key("subjects").item(i)
		switch {
		case slices.Contains(g.Subjects[:i], kind):
			b.wrong(at, "is listed twice")
		case kind == "ip" && i < len(g.Subjects)-1:
			b.wrong(at, "every caller has an address, so that nothing after ip is used: put it last")
		case kind == "api_key" && g.APIKeys == nil:
			b.wrong(at, "needs api_keys, which says which keys there are")
		case kind != "ip":
			out.Sources = append(out.Sources, kinds[kind])
		}
	}
	if len(g.Subjects) == 1 && g.Subjects[0] == "ip" {
		out.Sources = []guard.Source{guard.SourceToken}
		out.VerifyToken = func(context.Context, string) (guard.Owner, bool) { return guard.Owner{}, false } // nobody
	}
	return out
}

// maxKeyFile is how much of a file with hashes of keys is read.
const maxKeyFile = 16 << 20

// keyList reads the hashes of API keys.
func (b *guardChecker) keyList() map[guard.KeyHash]guard.Owner {
	none := map[guard.KeyHash]guard.Owner{}
	file, at := b.file.APIKeys.HashesFile, b.root.key("api_keys").key("hashes_file")
	if file == nil {
		return none
	}
	data, mode, ok := b.contentUpTo(maxKeyFile, *file, at)
	if !ok {
		return none
	}
	if mode&worldReadable != 0 {
		b.warn(b.at(at), at, "%s: the file is world-readable: chmod 600 it", file.Name)
	}
	keys, err := guard.ReadKeys(bytes.NewReader(data))
	for _, e := range fielderr.Split(err) {
		b.complain(b.at(at), at, "%s: %s", file.Name, strings.TrimPrefix(e.Error(), "guard: keys: "))
	}
	if err != nil {
		return none
	}
	return keys
}

// headers checks the names of headers.
func (b *guardChecker) headers() {
	g, at := b.file, b.root.key("principal")
	for _, h := range []struct{ field, name string }{{"header", g.Principal.Header}, {"plan_header", g.Principal.PlanHeader}} {
		switch {
		case h.name != "" && !httpguts.ValidHeaderFieldName(h.name):
			b.wrong(at.key(h.field), "%q is no name of a header", h.name)
		case h.name != "" && len(g.ClientIP.TrustedProxies) == 0:
			b.wrong(at.key(h.field), "is believed from client_ip.trusted_proxies only, and there are none")
		}
	}
	switch {
	case g.Principal.PlanHeader != "" && g.Principal.Header == "":
		b.wrong(at.key("plan_header"), "is the plan of a principal: set header, too")
	case g.Principal.Header != "" && len(g.Subjects) > 0 && !slices.Contains(g.Subjects, "principal"):
		b.wrong(at.key("header"), "has no effect: subjects does not list principal")
	case g.APIKeys != nil && len(g.Subjects) > 0 && !slices.Contains(g.Subjects, "api_key"):
		b.wrong(b.root.key("api_keys"), "has no effect: subjects does not list api_key")
	}
}

// note notes the problems of package guard where they are.
func (b *guardChecker) note(err error) {
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*fielderr.Error](e)
		if !ok {
			b.wrong(b.root, "%v", e)
			continue
		}
		if strings.HasPrefix(bad.Problem, "is taken by another policy") {
			continue // of endpoints with the same name, package guard has said so
		}
		b.noteField(bad)
	}
}

func (b *guardChecker) noteField(bad *fielderr.Error) {
	text := inFiles.Replace(bad.Text())
	at, t := b.root, reflect.TypeFor[Guard]()
	steps := bad.Path
	switch steps[0] {
	case "Identity":
		b.noteIdentity(steps[1:], text)
		return
	case "Endpoints":
		if len(steps) == 1 {
			break
		}
		pattern := b.patterns[steps[1].(int)]
		at, t, steps = at.key("endpoints").key(pattern), reflect.TypeFor[GuardEndpoint](), steps[2:]
		named := b.file.Endpoints[pattern].Name != ""
		switch {
		case steps[0] == "name" && !named: // of a name that is made of the pattern, package guard has said more
			return
		case steps[0] == "Pattern" || steps[0] == "Name" && !named:
			b.complain(b.keyPlace(at), at, "%s", text)
			return
		case steps[0] == "Limits" && b.unknown[at.key("disabled").String()]:
			return
		}
		if name, ok := b.planOf(pattern, steps); ok {
			b.wrong(b.root.key("plans").key(name), "at endpoint %s: %s", pattern, text)
			return
		}
	case "Plans":
		at, t, steps = at.key("plans").key(b.plans[steps[1].(int)]), reflect.TypeFor[GuardPlan](), steps[2:]
	}
	at = at.below(steps, t)
	if limits := at.limit(); limits != nil && b.isUnknown(limits) && !slices.Contains(independent, at[len(at)-1].key) {
		return // it may be wrong only because of a field that is not known
	}
	b.wrong(at, "%s", text)
}

// planOf returns the plan of the guard that a problem of an endpoint comes from: one that the endpoint
// does not have itself.
func (b *guardChecker) planOf(pattern string, steps []any) (string, bool) {
	if steps[0] != "Plans" || len(steps) < 2 {
		return "", false
	}
	name, _ := steps[1].(string)
	_, own := b.file.Endpoints[pattern].Plans[name]
	return name, !own
}

// noteIdentity notes a problem of guard.Identity.
func (b *guardChecker) noteIdentity(steps []any, text string) {
	at := b.root
	switch steps[0] {
	case "ClientIP":
		at = at.key("client_ip")
		for i, p := range b.file.ClientIP.TrustedProxies {
			if strings.HasPrefix(text, "trusted "+p.Prefix.String()+": ") {
				at, text = at.key("trusted_proxies").item(i), strings.TrimPrefix(text, "trusted ")
				break
			}
		}
	case "KeyHeader":
		at = at.key("api_keys").key("header")
	case "Sources": // the subjects have been checked
		return
	}
	b.wrong(at, "%s", text)
}

// keyPlace returns where the key of an entry is.
func (c *checker) keyPlace(at path) place {
	n := c.tree
	for _, s := range at[:len(at)-1] {
		if n = n.step(s); n == nil {
			return c.at(at)
		}
	}
	if i := n.index(at[len(at)-1].key); i >= 0 {
		return n.pairs[i].at
	}
	return c.at(at)
}

// below returns the path that steps lead to from p, which has the type t. Names are those of Go or those of
// the file.
func (p path) below(steps []any, t reflect.Type) path {
	for _, s := range steps {
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch name, isName := s.(string); {
		case t == nil:
			return p
		case !isName:
			p, t = p.item(s.(int)), t.Elem()
		case t.Kind() == reflect.Map:
			p, t = p.key(name), t.Elem()
		case t.Kind() == reflect.Struct:
			i := slices.IndexFunc(fieldsOf(t), func(f field) bool { return f.name == name || t.Field(f.index).Name == name })
			if i < 0 {
				return p
			}
			p, t = p.key(fieldsOf(t)[i].name), fieldsOf(t)[i].typ
		default:
			return p
		}
	}
	return p
}

// limit returns the path of the limit that p is in, nil if it is in none.
func (p path) limit() path {
	for i := len(p) - 1; i > 0; i-- {
		if !p[i].name && (p[i-1].key == "limits" || p[i-1].key == "per_ip") {
			return p[:i+1]
		}
	}
	return nil
}
