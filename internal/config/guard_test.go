package config

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
)

// sketch is the guard section from which the form of the file was designed.
const sketch = `
guard:
  client_ip: {header: x-forwarded-for, trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
  subjects: [principal, api_key, ip]        # the first that is *verified*; the IP stage always applies
  api_keys: {hashes_file: secrets/api-keys}
  before_auth: {per_ip: {rate: 300, per: 1m, burst: 100}, in_flight: 2000}
  default: {limits: [{rate: 50, per: 1m}]}
  endpoints:
    /river.StreamService/CreateStream: {limits: [{rate: 10, per: 1m}]}
    /river.StreamService/GetStream: {limits: [{rate: 1000, per: 1m, burst: 200}]}
    /river.AppRegistryService/GetStatus: disabled    # no limit here and no fallback; the IP stage still applies
  penalties: {after: 5, within: 1m, multiplier: 0.5, for: 5m}
  abuse: {requests: 60, per: 2s}
  subscriptions: {per_subject: 10, items_each: 100, items_total: 500, create: {rate: 5, per: 1m}, modify: {rate: 30, per: 1m}}
  exemptions:
    - {subject: "service:notifications", endpoints: [/river.StreamService/SyncStreams], until: 2027-06-30}
`

func TestGuard(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(sketch), nil, exampleFiles)
	if err != nil {
		t.Fatal(err)
	}
	g := c.Live().Guard
	if err := c.Live().Validate(); err != nil {
		t.Fatal(err)
	}
	if g.Identity.ClientIP.Header != "x-forwarded-for" || len(g.Identity.ClientIP.Trusted) != 1 || g.Identity.ClientIP.IPv6Prefix != 64 {
		t.Errorf("client_ip: %+v", g.Identity.ClientIP)
	}
	if !slices.Equal(g.Identity.Sources, []guard.Source{guard.SourceContext, guard.SourceKey}) || len(g.Identity.Keys) != 1 || g.Identity.KeyHeader != "x-api-key" {
		t.Errorf("subjects: %+v", g.Identity)
	}
	if ip := g.BeforeAuth.PerIP; len(ip) != 1 || ip[0].Rate != 300 || ip[0].Burst != 100 || g.BeforeAuth.InFlight != 2000 {
		t.Errorf("before_auth: %+v", g.BeforeAuth)
	}
	if g.Mode != ruleset.Enforce || g.Rollout != ruleset.All || g.Default.Limits[0].Rate != 50 {
		t.Errorf("mode %v, rollout %v, default %+v", g.Mode, g.Rollout, g.Default)
	}
	var patterns []string
	for _, e := range g.Endpoints {
		patterns = append(patterns, e.Pattern)
	}
	if len(patterns) != 3 || !g.Endpoints[2].Disabled || g.Endpoints[1].Limits[0].Burst != 200 {
		t.Errorf("endpoints: %q, %+v", patterns, g.Endpoints)
	}
	if p := g.Penalties; *p != (guard.Penalties{
		After: 5, Within: time.Minute, Interval: time.Second, Multiplier: 0.5, For: 5 * time.Minute, Sustained: 3, SustainedWithin: time.Hour,
	}) {
		t.Errorf("penalties: %+v", p)
	}
	if *g.Abuse != (guard.Abuse{Requests: 60, Per: 2 * time.Second}) {
		t.Errorf("abuse: %+v", g.Abuse)
	}
	if s := g.Subscriptions; s.PerSubject != 10 || s.ItemsEach != 100 || s.ItemsTotal != 500 || s.Create.Rate != 5 || s.Modify.Rate != 30 {
		t.Errorf("subscriptions: %+v", s)
	}
	if x := g.Exemptions[0]; x.Subject != "user:service:notifications" || !x.Until.Equal(time.Date(2027, 6, 30, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("exemption: %+v", x)
	}
	names := map[string]int64{}
	for _, p := range g.Policies() {
		names[p.Name] = p.Limits[0].Rate
	}
	if names["guard.ip"] != 300 || names["river.StreamService.CreateStream"] != 10 || names["guard.default"] != 50 {
		t.Errorf("policies: %v", names)
	}
}

// Without the section there is no guard, also if all of it is commented out.
func TestNoGuard(t *testing.T) {
	for _, text := range []string{"{}", "guard:\n  # mode: shadow\n"} {
		c, err := Parse("weir.yaml", []byte(text), nil, nil)
		if err != nil || c.Live().Guard != nil {
			t.Errorf("%q: %v, %v", text, c.Live().Guard, err)
		}
	}
}

// Forms that say the same.
func TestGuardForms(t *testing.T) {
	guardOf := func(text string, environ ...string) *guard.Config {
		t.Helper()
		c, err := Parse("weir.yaml", []byte(text), environ, nil)
		if err != nil {
			t.Fatal(err)
		}
		return &c.Live().Guard.Config
	}
	for _, text := range []string{
		"guard: {before_auth: {per_ip: {rate: 3, per: 1m}}}",
		"guard: {before_auth: {per_ip: [{rate: 3, per: 1m}]}}",
	} {
		if ip := guardOf(text).BeforeAuth.PerIP; len(ip) != 1 || ip[0].Rate != 3 || ip[0].Burst != 3 {
			t.Errorf("%s: %+v", text, ip)
		}
		if ip := guardOf(text, "WEIR__GUARD__BEFORE_AUTH__PER_IP__0__RATE=7").BeforeAuth.PerIP; len(ip) != 1 || ip[0].Rate != 7 {
			t.Errorf("%s and a variable: %+v", text, ip)
		}
	}
	for _, text := range []string{"disabled", "{disabled: true}", "{disabled: disabled}"} {
		if g := guardOf("guard: {endpoints: {/a: " + text + "}}"); !g.Endpoints[0].Disabled {
			t.Errorf("%s: %+v", text, g.Endpoints[0])
		}
	}
	for until, want := range map[string]time.Time{
		"2027-06-30":                  time.Date(2027, 6, 30, 0, 0, 0, 0, time.UTC),
		"2027-06-30T18:00:00Z":        time.Date(2027, 6, 30, 18, 0, 0, 0, time.UTC),
		`"2027-06-30T18:00:00+02:00"`: time.Date(2027, 6, 30, 16, 0, 0, 0, time.UTC),
	} {
		g := guardOf(`guard: {exemptions: [{subject: "key:a", endpoints: ["*"], until: ` + until + "}]}")
		if x := g.Exemptions[0]; !x.Until.Equal(want) || x.Subject != "key:a" {
			t.Errorf("%s: %+v", until, x)
		}
	}
	if g := guardOf("guard: {subjects: [ip]}"); len(g.Identity.Sources) != 1 || g.Identity.Sources[0] != guard.SourceToken {
		t.Errorf("addresses alone: %v", g.Identity.Sources)
	}
}

// A list of keys may be longer than a configuration.
func TestGuardKeys(t *testing.T) {
	var list strings.Builder
	const hex = "0123456789abcdef"
	for i := range 20_000 {
		hash := []byte(strings.Repeat("0", 64))
		for j, rest := 63, i; rest > 0; j, rest = j-1, rest/16 {
			hash[j] = hex[rest%16]
		}
		list.WriteString(string(hash) + " owner\n")
	}
	read := func(string) ([]byte, fs.FileMode, error) { return []byte(list.String()), 0o644, nil }
	c, err := Parse("weir.yaml", []byte("guard: {api_keys: {hashes_file: keys}}"), nil, read)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Live().Guard.Identity.Keys); n != 20_000 || list.Len() < maxBytes {
		t.Errorf("%d keys of %d bytes", n, list.Len())
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Text, "world-readable") || !slices.Contains(slices.Collect(maps.Keys(c.loaded)), "keys") {
		t.Errorf("warnings %v, files %v", c.Warnings, c.loaded)
	}
}
