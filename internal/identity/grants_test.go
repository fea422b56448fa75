package identity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseGrants(t *testing.T) {
	for _, tt := range []struct {
		list []string
		want Grants
	}{
		{nil, Grants{}},
		{[]string{"api", "team-*"}, Grants{Policies: Patterns{"api", "team-*"}}},
		{[]string{"envoy.edge", "envoy.eu-*"}, Grants{Domains: Patterns{"edge", "eu-*"}}},
		{[]string{"api", "envoy.*"}, Grants{Policies: Patterns{"api"}, Domains: Patterns{"*"}}},
		{[]string{"*"}, Grants{Policies: Patterns{"*"}, Domains: Patterns{"*"}}},
		{[]string{"env*"}, Grants{Policies: Patterns{"env*"}, Domains: Patterns{"*"}}},
		{[]string{"envoy*"}, Grants{Policies: Patterns{"envoy*"}, Domains: Patterns{"*"}}},
		{[]string{"envoys*", "envoy"}, Grants{Policies: Patterns{"envoys*", "envoy"}}},
	} {
		if diff := cmp.Diff(tt.want, ParseGrants(tt.list)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.list, diff)
		}
	}
}

// Classes restrict what is granted, and leave the other grants as they are.
func TestGrantsOfClasses(t *testing.T) {
	for _, tt := range []struct {
		classes Patterns
		name    string
		want    bool
	}{
		{nil, "realtime", true},
		{nil, "", true},
		{Patterns{"realtime"}, "realtime", true},
		{Patterns{"realtime"}, "backfill", false},
		{Patterns{"realtime"}, "", false},
		{Patterns{"real*", "batch"}, "realtime", true},
		{Patterns{"*"}, "backfill", true},
	} {
		g := Grants{Classes: tt.classes}
		if got := g.MayClass(tt.name); got != tt.want {
			t.Errorf("%q: %q is granted: %v", tt.classes, tt.name, got)
		}
		if !g.MayPolicy("api") || !g.MayDomain("edge") || !g.MayGuard() {
			t.Errorf("%q: something else is not granted any more", tt.classes)
		}
	}
}

// A policy and a domain of the same name are two things.
func TestGrants(t *testing.T) {
	for _, tt := range []struct {
		grants         Grants
		name           string
		policy, domain bool
	}{
		{Grants{}, "api", true, true},
		{Grants{Policies: Patterns{"api"}}, "api", true, false},
		{Grants{Policies: Patterns{"api"}}, "api2", false, false},
		{Grants{Policies: Patterns{"api"}}, "ap", false, false},
		{Grants{Policies: Patterns{"api-*"}}, "api-1", true, false},
		{Grants{Policies: Patterns{"api-*"}}, "api-", true, false},
		{Grants{Policies: Patterns{"api-*"}}, "api", false, false},
		{Grants{Policies: Patterns{"*"}}, "", true, false},
		{Grants{Policies: Patterns{""}}, "api", false, false},
		{Grants{Policies: Patterns{"x", "api"}}, "api", true, false},
		{Grants{Policies: Patterns{"a*i"}}, "api", false, false},
		{Grants{Policies: Patterns{"envoy.edge"}}, "edge", false, false},
		{Grants{Domains: Patterns{"edge"}}, "edge", false, true},
		{Grants{Domains: Patterns{"edge"}}, "envoy.edge", false, false},
		{Grants{Domains: Patterns{"eu/*"}}, "eu/shop 1", false, true},
		{Grants{Policies: Patterns{"x"}, Domains: Patterns{"edge"}}, "edge", false, true},
	} {
		if p, d := tt.grants.MayPolicy(tt.name), tt.grants.MayDomain(tt.name); p != tt.policy || d != tt.domain {
			t.Errorf("%+v: %q as a policy %v, as a domain %v", tt.grants, tt.name, p, d)
		}
	}
}
