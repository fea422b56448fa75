package config

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir/server"
)

// Domain is a set of rules of the Envoy rate limit service.
type Domain struct {
	// Domain is the name that Envoy sends.
	Domain string `yaml:"domain" example:"edge" jsonschema:"required"`

	// Descriptors are the rules.
	Descriptors []Descriptor `yaml:"descriptors"`

	// Compat is envoy to count as envoyproxy/ratelimit does: each descriptor on its own,
	// and refused hits, too. If it is left out, a request is charged as a whole or not at
	// all.
	Compat EnvoyCompat `yaml:"compat" example:"envoy"`

	// Headers adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the
	// tightest limit to answers.
	Headers bool `yaml:"headers" example:"true"`

	// NegativeHits lets requests return hits. Hits that are counted at the same instant may
	// then be lost.
	NegativeHits bool `yaml:"negative_hits" example:"true"`

	// ShadowMode counts, but admits every request.
	ShadowMode bool `yaml:"shadow_mode" example:"true"`
}

// EnvoyCompat is whose counting a domain has.
type EnvoyCompat string

func (EnvoyCompat) choices() []string { return []string{"envoy"} }

// Descriptor is what an entry of a request must be, and the limit then.
type Descriptor struct {
	// Key is the entry's key, for example remote_address.
	Key string `yaml:"key" example:"remote_address" jsonschema:"required"`

	// Value is the entry's value. If it is left out, each value that has no rule of its own
	// is limited for itself; a * at the end matches any rest.
	Value string `yaml:"value" example:"10.0.0.*"`

	// RateLimit is the limit for requests whose last entry this is. If it is left out,
	// there is none.
	RateLimit *EnvoyLimit `yaml:"rate_limit"`

	// ShadowMode counts, but admits.
	ShadowMode bool `yaml:"shadow_mode" example:"true"`

	// QuotaMode refuses only if all limits in this mode that are for a request do.
	QuotaMode bool `yaml:"quota_mode" example:"true"`

	// Descriptors are for requests that have further entries.
	Descriptors []Descriptor `yaml:"descriptors"`
}

// EnvoyLimit is so many requests per unit of time.
type EnvoyLimit struct {
	// Unit is second, minute, hour, day, week, month or year.
	Unit EnvoyUnit `yaml:"unit" example:"second"`

	// UnitMultiplier is how many units a period has. The default is 1.
	UnitMultiplier *uint32 `yaml:"unit_multiplier" example:"30"`

	// RequestsPerUnit is how many requests are admitted; 0 refuses all.
	RequestsPerUnit *uint32 `yaml:"requests_per_unit" example:"50"`

	// Unlimited admits all requests.
	Unlimited bool `yaml:"unlimited" example:"true"`

	// Name is what replaces of other limits call this one.
	Name string `yaml:"name" example:"per-address"`

	// Replaces are limits that do not count for requests that this one is for.
	Replaces []EnvoyReplaces `yaml:"replaces"`
}

// EnvoyReplaces names a limit.
type EnvoyReplaces struct {
	// Name is the name of a limit.
	Name string `yaml:"name" example:"per-address"`
}

// EnvoyUnit is a unit of time.
type EnvoyUnit string

func (EnvoyUnit) choices() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

// domains returns the rules for Envoy.
func (f *File) domains() (list []server.EnvoyDomain) {
	for _, d := range f.Envoy {
		list = append(list, server.EnvoyDomain{
			Name: d.Domain, Descriptors: serverDescriptors(d.Descriptors), Compat: d.Compat == "envoy",
			Headers: d.Headers, NegativeHits: d.NegativeHits, ShadowMode: d.ShadowMode,
		})
	}
	return list
}

func serverDescriptors(list []Descriptor) (out []server.EnvoyDescriptor) {
	for _, d := range list {
		out = append(out, server.EnvoyDescriptor{
			Key: d.Key, Value: d.Value, Limit: d.RateLimit.server(), ShadowMode: d.ShadowMode, QuotaMode: d.QuotaMode,
			Descriptors: serverDescriptors(d.Descriptors),
		})
	}
	return out
}

func (l *EnvoyLimit) server() *server.EnvoyLimit {
	if l == nil {
		return nil
	}
	out := &server.EnvoyLimit{Unlimited: l.Unlimited, Name: l.Name}
	out.Unit, _ = server.ParseEnvoyUnit(string(l.Unit)) // it was checked, unless there is no limit
	if l.UnitMultiplier != nil {
		out.UnitMultiplier = *l.UnitMultiplier
	}
	if l.RequestsPerUnit != nil {
		out.RequestsPerUnit = *l.RequestsPerUnit
	}
	for _, r := range l.Replaces {
		out.Replaces = append(out.Replaces, r.Name)
	}
	return out
}

// domains checks the rules for Envoy.
func (c *checker) domains(list []Domain, root path) {
	seen := map[string]int{}
	for i := range list {
		d, at := &list[i], root.item(i)
		if first, twice := seen[d.Domain]; twice && d.Domain != "" {
			c.wrong(at.key("domain"), "%q is that of %v, too: put their descriptors together", d.Domain, root.item(first))
		}
		seen[d.Domain] = i
		c.domain(d, at)
	}
}

func (c *checker) domain(d *Domain, at path) {
	if d.Domain == "" {
		c.wrong(at, "needs a domain: the name that Envoy sends")
	}
	c.descriptors(d.Descriptors, at.key("descriptors"))
}

func (c *checker) descriptors(list []Descriptor, root path) {
	type entry struct{ key, value string }
	seen := map[entry]int{}
	for i := range list {
		d, at := &list[i], root.item(i)
		first, twice := seen[entry{d.Key, d.Value}]
		switch {
		case d.Key == "":
			c.wrong(at, "needs a key, such as remote_address")
		case twice:
			c.wrong(at, "is for the same key and value as %v: only one can count", root.item(first))
		case strings.Contains(strings.TrimSuffix(d.Value, "*"), "*"):
			c.warn(c.at(at.key("value")), at.key("value"), "has a * that is not at the end: there it is a character like others")
		}
		seen[entry{d.Key, d.Value}] = i
		if d.RateLimit != nil && !c.failed(at.key("rate_limit")) {
			c.envoyLimit(d.RateLimit, at.key("rate_limit"))
		}
		c.descriptors(d.Descriptors, at.key("descriptors"))
	}
}

func (c *checker) envoyLimit(l *EnvoyLimit, at path) {
	counts := l.Unit != "" || l.RequestsPerUnit != nil || l.UnitMultiplier != nil
	switch {
	case l.Unlimited && counts:
		c.wrong(at.key("unlimited"), "leaves nothing to count: remove unit and requests_per_unit, or unlimited")
	case !l.Unlimited && l.Unit == "":
		c.wrong(at, "needs a unit: %s", either(l.Unit.choices()))
	case !l.Unlimited && l.RequestsPerUnit == nil:
		c.wrong(at, "needs requests_per_unit, or unlimited: true")
	case l.UnitMultiplier != nil && *l.UnitMultiplier == 0:
		c.wrong(at.key("unit_multiplier"), "0 must be at least 1")
	case l.UnitMultiplier != nil && l.server().Check() != nil:
		c.wrong(at.key("unit_multiplier"), "%d %ss are too long: a period has at most 40 years", *l.UnitMultiplier, l.Unit)
	}
	for i, r := range l.Replaces {
		switch {
		case r.Name == "":
			c.wrong(at.key("replaces").item(i), "needs the name of a limit")
		case r.Name == l.Name:
			c.wrong(at.key("replaces").item(i), "a limit cannot replace itself")
		case slices.Contains(l.Replaces[:i], r):
			c.wrong(at.key("replaces").item(i), "is there twice")
		}
	}
}
