package identity

import (
	"slices"
	"strings"
)

// Grants are what a client may use. The zero Grants include everything. As soon as any field but
// Classes has a pattern or is Granted, they include only what was granted, so that a client restricted
// in one respect gets nothing else by default.
type Grants struct {
	// Policies matches names of policies, for example "api" or "team-*".
	Policies Patterns

	// Domains matches domains of Envoy's rate limit service, for example "edge" or "*".
	Domains Patterns

	// Routes matches routes of the gateway, for example "ethereum".
	Routes Patterns

	// Guard is whether the client may have requests decided by the guard.
	Guard Grant

	// Classes matches classes of work, for example "realtime", under the policies and routes that the
	// client may use. Without any, it may use all classes of these. Classes restrict what is granted, and
	// grant nothing themselves, so they leave everything else as it is.
	Classes Patterns
}

// Grant is whether a client may use something that has no name.
type Grant uint8

// The grants. GrantDefault includes it if the Grants include everything.
const (
	GrantDefault Grant = iota
	Granted
	Withheld
)

// domainPrefix marks a domain in the configuration's list of policies, and in metrics.
const domainPrefix = "envoy."

// ParseGrants returns the grants of a list as people write it: names of policies, and domains with
// the prefix "envoy."; a * at the end matches the rest of a name. A pattern whose * stands for that
// prefix, too, such as "*", matches policies and all domains. An empty list grants everything.
func ParseGrants(list []string) Grants {
	var g Grants
	for _, pattern := range list {
		if domain, ok := strings.CutPrefix(pattern, domainPrefix); ok {
			g.Domains = append(g.Domains, domain)
			continue
		}
		g.Policies = append(g.Policies, pattern)
		if start, open := strings.CutSuffix(pattern, "*"); open && strings.HasPrefix(domainPrefix, start) {
			g.Domains = append(g.Domains, "*")
		}
	}
	return g
}

// MayPolicy reports whether the grants include a policy.
func (g *Grants) MayPolicy(name string) bool { return g.all() || g.Policies.Match(name) }

// MayDomain reports whether the grants include a domain of Envoy's rate limit service.
func (g *Grants) MayDomain(name string) bool { return g.all() || g.Domains.Match(name) }

// MayRoute reports whether the grants include a route of the gateway.
func (g *Grants) MayRoute(name string) bool { return g.all() || g.Routes.Match(name) }

// MayGuard reports whether the grants include the guard.
func (g *Grants) MayGuard() bool { return g.Guard == Granted || g.Guard == GrantDefault && g.all() }

// MayClass reports whether the grants include a class.
func (g *Grants) MayClass(name string) bool { return len(g.Classes) == 0 || g.Classes.Match(name) }

func (g *Grants) all() bool {
	return len(g.Policies) == 0 && len(g.Domains) == 0 && len(g.Routes) == 0 && g.Guard != Granted
}

// Patterns match names. A * at the end of a pattern matches the rest of a name.
type Patterns []string

// Match reports whether a pattern matches the name.
func (p Patterns) Match(name string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		start, open := strings.CutSuffix(pattern, "*")
		return pattern == name || open && strings.HasPrefix(name, start)
	})
}
