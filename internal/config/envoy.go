package config

import (
	"reflect"

	"github.com/weirlimit/weir/server"
)

// Domains are the rules of the Envoy rate limit service.
type Domains []Domain

// Domain is a set of rules of the Envoy rate limit service.
type Domain struct {
	// Name is the name that Envoy sends.
	Name string `yaml:"domain" example:"edge" jsonschema:"required"`

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
	// is limited for itself; a * matches any text. Of several patterns that match, the one with
	// the most characters besides * applies, or with compat the first.
	Value string `yaml:"value" example:"10.0.0.*"`

	// Limit is the limit for requests whose last entry this is. If it is left out, there is
	// none.
	Limit *EnvoyLimit `yaml:"rate_limit"`

	// ShadowMode counts, but admits.
	ShadowMode bool `yaml:"shadow_mode" example:"true"`

	// QuotaMode refuses only if all limits in this mode that are for a request do.
	QuotaMode bool `yaml:"quota_mode" example:"true"`

	// ShareThreshold makes all values that match share one counter. The value has a *.
	ShareThreshold bool `yaml:"share_threshold" example:"true"`

	// Descriptors are for requests that have further entries.
	Descriptors []Descriptor `yaml:"descriptors"`
}

// EnvoyLimit is so many requests per unit of time.
type EnvoyLimit struct {
	// Unit is second, minute, hour, day, week, month or year.
	Unit EnvoyUnit `yaml:"unit" example:"second"`

	// UnitMultiplier is how many units a period has. The default is 1.
	UnitMultiplier uint32 `yaml:"unit_multiplier" example:"30" jsonschema:"minimum=1"`

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

func (list *Domains) check(c *checker, at path) {
	out := make([]server.EnvoyDomain, len(*list))
	for i := range *list {
		out[i] = (*list)[i].server(c, at.item(i))
	}
	c.invalid(server.Live{Envoy: out}.Validate(), reflect.TypeFor[Domains](), at)
	c.out.server.Live.Envoy = out
}

func (d *Domain) server(c *checker, at path) server.EnvoyDomain {
	return server.EnvoyDomain{
		Name: d.Name, Descriptors: serverDescriptors(c, d.Descriptors, at.key("descriptors")), Compat: d.Compat == "envoy",
		Headers: d.Headers, NegativeHits: d.NegativeHits, ShadowMode: d.ShadowMode,
	}
}

func serverDescriptors(c *checker, list []Descriptor, at path) (out []server.EnvoyDescriptor) {
	for i, d := range list {
		out = append(out, server.EnvoyDescriptor{
			Key: d.Key, Value: d.Value, Limit: d.Limit.server(c, at.item(i).key("rate_limit")), ShadowMode: d.ShadowMode, QuotaMode: d.QuotaMode,
			ShareThreshold: d.ShareThreshold, Descriptors: serverDescriptors(c, d.Descriptors, at.item(i).key("descriptors")),
		})
	}
	return out
}

func (l *EnvoyLimit) server(c *checker, at path) *server.EnvoyLimit {
	if l == nil {
		return nil
	}
	switch {
	case l.Unlimited && l.RequestsPerUnit != nil:
		c.wrong(at.key("unlimited"), "leaves nothing to count: remove requests_per_unit, or unlimited")
	case !l.Unlimited && l.RequestsPerUnit == nil && c.isKnown(at.key("requests_per_unit")):
		c.wrong(at, "needs requests_per_unit, or unlimited: true")
	}
	out := &server.EnvoyLimit{Unlimited: l.Unlimited, Name: l.Name, UnitMultiplier: l.UnitMultiplier}
	out.Unit, _ = server.ParseEnvoyUnit(string(l.Unit)) // the decoder has refused others
	if l.RequestsPerUnit != nil {
		out.RequestsPerUnit = *l.RequestsPerUnit
	}
	for _, r := range l.Replaces {
		out.Replaces = append(out.Replaces, r.Name)
	}
	return out
}
