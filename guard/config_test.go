package guard

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// TestValidate shows where each problem is reported.
func TestValidate(t *testing.T) {
	until := time.Date(2027, 6, 30, 0, 0, 0, 0, time.UTC)
	good := per(1, time.Minute)
	for _, tt := range []struct {
		name   string
		config Config
		want   string // the beginning of the only error
	}{
		{"zero rate", Config{Endpoints: []Endpoint{{Pattern: "/a", Limits: good}, {Pattern: "/b", Limits: per(0, time.Minute)}}}, "guard: Endpoints[1].Limits[0].rate:"},
		{"rate before authentication", Config{BeforeAuth: BeforeAuth{PerIP: per(0, time.Minute)}}, "guard: BeforeAuth.PerIP[0].rate:"},
		{"rate of the default", Config{Default: Endpoint{Limits: per(0, time.Minute)}}, "guard: Default.Limits[0].rate:"},
		{"no limits", Config{Endpoints: []Endpoint{{Pattern: "/a"}}}, "guard: Endpoints[0].Limits: there is none"},
		{"disabled with limits", Config{Endpoints: []Endpoint{{Pattern: "/a", Disabled: true, Limits: good}}}, "guard: Endpoints[0].Disabled: it is disabled and has limits"},
		{"wildcard", Config{Endpoints: []Endpoint{{Pattern: "/a*b", Limits: good}}}, "guard: Endpoints[0].Pattern:"},
		{"twice", Config{Endpoints: []Endpoint{{Pattern: "/a/{x}", Limits: good}, {Pattern: "/a/{y}", Name: "other", Limits: good}}}, "guard: Endpoints[1].Pattern:"},
		{"overlap", Config{Endpoints: []Endpoint{{Pattern: "/{s}/x", Limits: good}, {Pattern: "/a/{y}", Limits: good}}}, "guard: Endpoints[1].Pattern:"},
		{"same name", Config{Endpoints: []Endpoint{{Pattern: "/a.b", Limits: good}, {Pattern: "/a/b", Limits: good}}}, "guard: Endpoints[1].Name:"},
		{"long name", Config{Endpoints: []Endpoint{{Pattern: "/" + strings.Repeat("a", 65), Limits: good}}}, "guard: Endpoints[0].Name:"},
		{"bad name", Config{Endpoints: []Endpoint{{Pattern: "/a", Name: "a b", Limits: good}}}, "guard: Endpoints[0].Name:"},
		{"concurrency", Config{Endpoints: []Endpoint{{Pattern: "/a", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Algorithm: weir.Concurrency}}}}}}, "guard: Endpoints[0].Limits[0].algorithm:"},
		{"cost", Config{Endpoints: []Endpoint{{Pattern: "/a", Cost: -1, Limits: good}}}, "guard: Endpoints[0].Cost:"},
		{"timeout", Config{Endpoints: []Endpoint{{Pattern: "/a", Timeout: 2 * time.Hour, Limits: good}}}, "guard: Endpoints[0].Timeout:"},
		{"override", Config{Endpoints: []Endpoint{{Pattern: "/a", Limits: good, Overrides: []ruleset.Override{{Key: "user:x", Limits: per(0, time.Minute)}}}}}, "guard: Endpoints[0].Overrides.user:x.Limits[0].rate:"},
		{"plan", Config{Endpoints: []Endpoint{{Pattern: "/a", Limits: good, Plans: []ruleset.Plan{{Name: "pro", Limits: per(0, time.Minute)}}}}}, "guard: Endpoints[0].Plans.pro.Limits[0].rate:"},
		{"multiplier", Config{Plans: []Plan{{Name: "pro", Multiplier: 0}}}, "guard: Plans[0].Multiplier 0:"},
		{"exemption without an end", Config{Exemptions: []Exemption{{Subject: "user:a", Endpoints: []string{"*"}}}}, "guard: Exemptions[0].Until: is missing"},
		{"exemption of an address", Config{Exemptions: []Exemption{{Subject: "ip:192.0.2.1", Endpoints: []string{"*"}, Until: until}}}, "guard: Exemptions[0].Subject"},
		{"exemption of the unknown", Config{Exemptions: []Exemption{{Subject: Unknown, Endpoints: []string{"*"}, Until: until}}}, "guard: Exemptions[0].Subject"},
		{"exemption for nothing", Config{Exemptions: []Exemption{{Subject: "user:a", Until: until}}}, "guard: Exemptions[0].Endpoints:"},
		{"exemption with a bad pattern", Config{Exemptions: []Exemption{{Subject: "user:a", Endpoints: []string{"/ok", "a*b"}, Until: until}}}, "guard: Exemptions[0].Endpoints[1]:"},
		{"in flight", Config{InFlight: -1}, "guard: InFlight -1:"},
		{"penalty", Config{Penalties: &Penalties{For: -1}}, "guard: Penalties.For:"},
		{"score", Config{Penalties: &Penalties{After: -1}}, "guard: Penalties.Within:"},
		{"abuse", Config{Abuse: &Abuse{Requests: -1}}, "guard: Abuse.rate -1:"},
		{"subscriptions", Config{Subscriptions: &Subscriptions{PerSubject: -1}}, "guard: Subscriptions.PerSubject"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := fielderr.Split(tt.config.Validate())
			if len(list) != 1 || !strings.HasPrefix(list[0].Error(), tt.want) {
				t.Errorf("%v, want one that begins with %q", list, tt.want)
			}
			if _, err := New(newTable(t), tt.config); err == nil {
				t.Error("New accepts it")
			}
		})
	}
	c := river()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
