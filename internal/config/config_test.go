package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
	"github.com/weirlimit/weir/weirhttp"
)

// infraTable is a table of costs.
const infraTable = `{"name": "infra", "version": 1, "date": "2026-11-18", "source": "test", "units": {"credits": "of a day"},
	"batch": {"sum_plus": {"credits": 5}}, "failed_requests": "free", "unknown": "refuse", "methods": {"eth_call": {"credits": 80}}}`

// goodFiles are the secrets of testdata/good.
func goodFiles(name string) ([]byte, fs.FileMode, error) {
	switch name {
	case "dir/secrets/search":
		return []byte("CANARY-search-one-0123456789-0123456789\r\n"), 0o644, nil
	case "dir/costs/infra.json":
		return []byte(infraTable), 0o644, nil
	case "/abs/search-three":
		return []byte("CANARY-search-three-0123456789-0123456789"), 0o600, nil
	case "dir/secrets/admin":
		return []byte("CANARY-admin-0123456789-0123456789-012\n"), 0o640, nil
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func parseGood(t *testing.T, name string) *Config {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/good", name))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("dir/"+name, data, environOf(string(data)), goodFiles)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Print says what is in force and where it comes from, for each file in testdata/good.
func TestPrint(t *testing.T) {
	for _, name := range []string{"full", "empty", "bom", "sockets", "guard", "classes", "budgets", "routes"} {
		c := parseGood(t, name+".yaml")
		for format, ending := range map[Format]string{YAML: ".print", JSON: ".json"} {
			var b strings.Builder
			if err := c.Print(&b, format); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), "CANARY") {
				t.Errorf("a secret is printed:\n%s", b.String())
			}
			golden.Check(t, filepath.Join("testdata/good", name+ending), []byte(b.String()))
		}
	}
}

func TestWarnings(t *testing.T) {
	c := parseGood(t, "full.yaml")
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.Where()+" "+w.Path+": "+w.Text)
	}
	want := []string{
		"dir/full.yaml:19:17 clients.search.token_file: dir/secrets/search: the file is world-readable: chmod 600 it",
		"dir/full.yaml:29:14 store.snapshot: has no effect, because the counts are in Redis",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/abs/search-three", "dir/full.yaml", "dir/secrets/admin", "dir/secrets/search"}, slices.Sorted(maps.Keys(c.loaded))); diff != "" {
		t.Error(diff)
	}
}

func TestStoreSettings(t *testing.T) {
	c := parseGood(t, "full.yaml")
	s := c.Store
	if c.File.Store.Kind != InRedis || s.Redis.Prefix != "shop:" || s.Redis.Timeout != 25*time.Millisecond {
		t.Errorf("%+v", s)
	}
	r := s.Redis.Redis
	if !reflect.DeepEqual(r.Addrs, []string{"redis.example:6380"}) || r.Username != "weir" || r.Password.Reveal() != "CANARY" || r.DB != 2 || r.TLS == nil {
		t.Errorf("%+v", r)
	}
	if s.Tier.Mode != tiered.Leased || s.Tier.OnError != weir.FailClosed || s.Tier.Nodes != 3 || s.Tier.Timeout != 25*time.Millisecond {
		t.Errorf("%+v", s.Tier)
	}
	if got := c.File.Store.Snapshot; got.File.Name != "dir/weir.snap" || got.Every.Duration != time.Minute {
		t.Errorf("%+v", got)
	}
	if err := s.Redis.Validate(); err != nil {
		t.Error(err)
	}
	none := parseGood(t, "empty.yaml").Store
	if diff := cmp.Diff(memstore.Config{MaxKeys: 1_000_000}, none.Memory, cmp.Comparer(func(a, b func() weir.Instant) bool { return a == nil && b == nil })); diff != "" {
		t.Error(diff)
	}
}

// With kind: redis alone, the defaults are those of the packages.
func TestRedisDefaults(t *testing.T) {
	c, err := Parse("weir.yaml", []byte("store: {kind: redis}"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Store; s.Redis.Prefix != "weir:" || s.Tier.Timeout != tiered.DefaultTimeout || s.Tier.OnError != weir.FailLocal ||
		s.Tier.Mode != tiered.Exact || s.Tier.Nodes != 0 || len(s.Redis.Redis.Addrs) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSockets(t *testing.T) {
	s := parseGood(t, "sockets.yaml").Server()
	if s.GRPC.Mode != 0o666 || s.GRPC.Group != "www-data" || s.RESP.Mode != 0o600 || s.RESP.Group != "" || s.HTTP.Mode != 0 {
		t.Errorf("%+v", s)
	}
}

func TestServer(t *testing.T) {
	c := parseGood(t, "full.yaml")
	s := c.Server()
	if s.HTTP.Address != "0.0.0.0:8080" || s.Admin.Address != "127.0.0.1:9090" || s.MaxConns != 100 || s.Backend != "redis" {
		t.Errorf("%+v", s)
	}
	s.Limiter = weirLimiter(t)
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	live := s.Live
	wantClients := []identity.Client{
		{Name: "checkout", Tokens: secrets("CANARY-checkout-0123456789-0123456789"), Grants: identity.Grants{Policies: []string{"api", "ten*"}}},
		{Name: "search", Tokens: secrets("CANARY-search-one-0123456789-0123456789", "CANARY-search-two-0123456789-0123456789", "CANARY-search-three-0123456789-0123456789")},
		{Name: "billing", Certificate: "billing.internal"},
	}
	if diff := cmp.Diff(wantClients, live.Clients); diff != "" {
		t.Error(diff)
	}
	wantOperators := []identity.Operator{
		{Name: "ops", Tokens: secrets("CANARY-admin-0123456789-0123456789-012"), Scopes: identity.Read | identity.Write | identity.Block},
		{Name: "night", Tokens: secrets("CANARY-night-0123456789-0123456789-#:{"), Scopes: identity.Read},
	}
	if diff := cmp.Diff(wantOperators, live.Operators); diff != "" {
		t.Error(diff)
	}
	wantForward := server.ForwardAuth{
		Trusted:   []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		TrustUnix: true, AddressHeader: "forwarded", KeyHeader: "x-user", IPv6Prefix: 56,
	}
	if !reflect.DeepEqual(live.ForwardAuth, wantForward) {
		t.Errorf("%+v", live.ForwardAuth)
	}
	if live.LegacyHeaders != weirhttp.LegacyGitHub || live.Open || !reflect.DeepEqual(live.Hosts, []string{"a.example.com", "b.example.com"}) {
		t.Errorf("%+v", live)
	}
	if len(live.Effective) == 0 {
		t.Error("the settings are not shown")
	}
	if x := c.Server().Tracing; x.Endpoint.Reveal() != "https://user:CANARY@collector.example:4318/v1" || *x.Sample != 0.005 || len(x.Headers) != 1 {
		t.Errorf("%+v", x)
	}
}

func secrets(list ...string) (out []secret.Secret) {
	for _, s := range list {
		out = append(out, secret.New(s))
	}
	return out
}

func weirLimiter(t *testing.T) weir.Limiter {
	t.Helper()
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestPolicies(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	every := func(d time.Duration) weir.Period { return weir.Every(d) }
	want := []ruleset.Policy{
		{
			Name: "api", Mode: ruleset.Shadow, Rollout: 1250, Limits: []ruleset.Limit{
				{Limit: weir.Limit{Rate: 150, Per: every(time.Second), Burst: 200, Algorithm: weir.TokenBucket, Initial: weir.Filled(0.5), MaxDebt: 1000}},
				{Limit: weir.Limit{Name: "daily", Rate: 50000, Per: weir.Calendar(weir.Day, berlin), Algorithm: weir.FixedWindow, OnError: weir.FailOpen}},
				{Limit: weir.Limit{Name: "per-ip", Rate: 20, Per: every(90 * time.Second), Burst: 20, Algorithm: weir.GCRA, Initial: weir.Filled(0)}, By: "ip", Mode: ruleset.Enforce},
				{Limit: weir.Limit{Name: "tokens", Rate: 100000, Per: every(time.Minute), Algorithm: weir.SlidingWindow}, Unit: "tokens"},
			}, Overrides: []ruleset.Override{
				{Key: "alice.smith", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1000, Per: every(time.Second), Burst: 7}}}},
				{Key: "partner-*", Limits: []ruleset.Limit{{Limit: weir.Limit{Name: "daily", Rate: 7, Per: weir.Calendar(weir.Month, nil)}}}},
			},
		},
		{Name: "tenants", Mode: ruleset.Enforce, Rollout: ruleset.All, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 5, Algorithm: weir.Concurrency}}}},
		{Name: "extra", Mode: ruleset.Enforce, Rollout: ruleset.All, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: every(time.Hour), Burst: 1, Algorithm: weir.GCRA}}}},
	}
	if got := parseGood(t, "full.yaml").Live().Policies; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What there is without a file is what the server has by itself.
func TestDefaultPolicy(t *testing.T) {
	got := parseGood(t, "empty.yaml").Live().Policies[0]
	want := server.DefaultPolicy()
	want.Mode, want.Rollout, want.Limits[0].Algorithm = ruleset.Enforce, ruleset.All, weir.GCRA
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Every value that a field takes is one that the package behind it takes.
func TestChoices(t *testing.T) {
	for _, word := range (Algorithm{}).choices() {
		if err := new(weir.Algorithm).UnmarshalText([]byte(word)); err != nil {
			t.Error(err)
		}
	}
	for _, word := range (OnError{}).choices() {
		if err := new(weir.OnError).UnmarshalText([]byte(word)); err != nil {
			t.Error(err)
		}
	}
	for _, word := range (Consistency{}).choices() {
		if _, err := tiered.ParseMode(word); err != nil {
			t.Error(err)
		}
	}
	for _, word := range (Mode{}).choices() {
		var m ruleset.Mode
		if err := m.UnmarshalText([]byte(word)); err != nil {
			t.Error(err)
		}
	}
	for _, word := range (Scope{}).choices() {
		if err := new(identity.Scope).UnmarshalText([]byte(word)); err != nil {
			t.Error(err)
		}
	}
	for _, word := range (Legacy{}).choices() {
		c, err := Parse("x", []byte("headers: {legacy: "+word+"}"), nil, nil)
		if err != nil || c.Live().LegacyHeaders.String() != word {
			t.Error(word, err)
		}
	}
	for _, word := range (LogLevel{}).choices() {
		c, err := Parse("x", []byte("log: {level: "+word+"}"), nil, nil)
		if err != nil || !strings.EqualFold(c.File.Log.Level.String(), word) {
			t.Error(word, err)
		}
	}
}

// A flag wins over the environment, which wins over the file.
func TestFlags(t *testing.T) {
	flag := Flag{Name: "--http", Path: "listen.http", Value: "127.0.0.1:3"}
	environ := []string{"WEIR__LISTEN__HTTP__ADDRESS=127.0.0.1:2", "WEIR__LOG__LEVEL=error"}
	c, err := Parse("weir.yaml", []byte("listen: {http: 127.0.0.1:1}"), environ, nil, flag)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.File.Listen.HTTP.Address; got != "127.0.0.1:3" {
		t.Error(got)
	}
	if s := c.Live().Effective[0]; s != (server.Setting{Path: "listen.http.address", Value: "127.0.0.1:3", Source: "--http"}) {
		t.Error(s)
	}
	level := Flag{Name: "--log-level", Path: "log.level", Value: "warn"}
	c, err = Parse("weir.yaml", []byte("log: {level: info}"), environ, nil, level)
	if err != nil || c.File.Log.Level.Level != slog.LevelWarn {
		t.Error(c, err)
	}
	flag.Value = "nowhere"
	_, err = Parse("", nil, nil, nil, flag)
	if err == nil || !strings.HasPrefix(err.Error(), "--http: listen.http.address: must be host:port") {
		t.Error(err)
	}
}

// Only kind selects the store. Settings of the other kind cause a warning.
func TestStoresWithoutEffect(t *testing.T) {
	for text, want := range map[string]string{
		"{redis: {addrs: ['127.0.0.1:6379']}}":        "store.redis: has no effect",
		"{kind: memory, redis: {}}":                   "",
		"{kind: redis, snapshot: {file: weir.snap}}":  "store.snapshot: has no effect",
		"{kind: redis, redis: {addrs: ['h:6379']}}":   "",
		"{kind: memory, snapshot: {file: weir.snap}}": "",
		"{redis: # commented out\n}":                  "",
	} {
		c, err := Parse("weir.yaml", []byte("store: "+text), nil, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if len(c.Warnings) > 1 || (len(c.Warnings) == 1) != (want != "") || want != "" && !strings.Contains(c.Warnings[0].Error(), want) {
			t.Errorf("%s: %v, want %q", text, c.Warnings, want)
		}
	}
}

// An address from outside leaves what else the file says of a listener, above all that
// it speaks TLS. It need not be YAML.
func TestAddressesFromOutside(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir)
	file := []byte("listen: {http: {address: '127.0.0.1:1', tls: {cert_file: cert.pem, key_file: key.pem}}}")
	for _, address := range []string{"127.0.0.1:2", "[::1]:2", "localhost:2"} {
		for source, environ := range map[string][]string{"--http": nil, "WEIR__LISTEN__HTTP": {"WEIR__LISTEN__HTTP=" + address}} {
			var flags []Flag
			if environ == nil {
				flags = []Flag{{Name: source, Path: "listen.http", Value: address}}
			}
			c, err := Parse(filepath.Join(dir, "weir.yaml"), file, environ, nil, flags...)
			if err != nil {
				t.Error(err)
				continue
			}
			if got := c.Server().HTTP; got.Address != address || got.TLS == nil {
				t.Errorf("%s=%s: %+v", source, address, got)
			}
		}
	}
	whole := Flag{Name: "--http", Path: "listen.http", Value: "{address: '127.0.0.1:2'}"}
	c, err := Parse(filepath.Join(dir, "weir.yaml"), file, nil, nil, whole)
	if err != nil || c.Server().HTTP.TLS != nil {
		t.Errorf("a whole mapping does not replace the file's: %v", err)
	}
}

// Places in lists are put in by their numbers, and a list before what is in it.
func TestListsFromEnvironment(t *testing.T) {
	environ := []string{"WEIR__HOSTS=[a, b]"}
	for i := range 10 {
		environ = append(environ, fmt.Sprintf("WEIR__HOSTS__%d=h%d", i+1, i+1))
	}
	c, err := Parse("", nil, environ, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9", "h10"}
	if diff := cmp.Diff(want, []string(c.File.Hosts)); diff != "" {
		t.Error(diff)
	}
}

// What is too large is refused before the parser, which would take long, has seen it.
func TestTooLarge(t *testing.T) {
	for name, data := range map[string]string{
		"bytes": strings.Repeat("# comment\n", maxBytes/10+1),
		"lines": strings.Repeat("#\r\n", maxBytes/3+1), // that end in two bytes each, of which one is left out
		"keys":  "policies:\n" + strings.Repeat("  a: {}\n", maxKeys+1),
		"list":  "envoy:\n- domain: x\n  descriptors:\n" + strings.Repeat("  - a: b\n    c: d\n", maxKeys+1), // is fine, but its fields
	} {
		_, err := Parse("weir.yaml", []byte(data), nil, nil)
		if err == nil {
			t.Errorf("%s: it is taken", name)
		}
		tooMuch := err != nil && (strings.Contains(err.Error(), "more than") || strings.Contains(err.Error(), "at most"))
		if tooMuch == (name == "list") {
			t.Errorf("%s: %.500v", name, err)
		}
	}
}

// Many problems are reported in a few lines, and quickly even if they are all on one line.
func TestManyProblems(t *testing.T) {
	text := "policies: {" + strings.Repeat(strings.Repeat("a", 30)+": 1, ", 1000) + "}"
	_, err := Parse("weir.yaml", []byte(text), nil, nil)
	bad, ok := errors.AsType[*Error](err)
	if !ok || len(bad.Problems) != 1000 {
		t.Fatalf("%.500v", err)
	}
	for i, p := range bad.Problems {
		if (p.Shown != "") != (i < maxShown) {
			t.Errorf("problem %d is shown as %q", i, p.Shown)
		}
	}
	if !strings.HasSuffix(err.Error(), "\nand 950 more") {
		t.Errorf("%.500v", err)
	}
}

// As many overrides as a policy may have can be said.
func TestManyOverrides(t *testing.T) {
	var b strings.Builder
	b.WriteString("policies:\n  api:\n    limits: [{rate: 1, per: 1s}]\n    overrides:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "      user-%d: {limits: [{rate: 1000, per: 1s, burst: 2000}]}\n", i)
	}
	c, err := Parse("weir.yaml", []byte(b.String()), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Live().Policies[0].Overrides); n != 10_000 {
		t.Error(n)
	}
}

func TestLoadMissing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	if _, err := Load(name, nil); err == nil || !strings.HasPrefix(err.Error(), name+": cannot be read") {
		t.Error(err)
	}
}

// A secret in a world-readable file causes a warning, one from elsewhere does not.
func TestExposedFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, name, "clients:\n  a: {token: CANARY-a-0123456789-0123456789-0123456789}\n  b: {token: \"${B}\"}\n")
	environ := []string{"B=CANARY-b-0123456789-0123456789-0123456789"}
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o640: 0, 0o644: 1} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		c, err := Load(name, environ)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Warnings) != want {
			t.Errorf("%v: %v", mode, c.Warnings)
		}
		for _, w := range c.Warnings {
			if w.Path != "clients.a.token" || strings.Contains(w.Error(), "CANARY") {
				t.Error(w)
			}
		}
	}
}

// A client may be given domains of Envoy, by the names that the service asks for.
func TestClientsOfEnvoy(t *testing.T) {
	for pattern, fits := range map[string]bool{
		"envoy.*": true, "envoy.edge": true, "envoy.e*": true, "api": true, "*": true,
		"envoy.other": false, "edge": false, "envoy": false,
	} {
		_, err := Parse("weir.yaml", []byte(`
clients: {a: {token: 0123456789-0123456789-0123456789, policies: ["`+pattern+`"]}}
policies: {api: {limits: [{rate: 1, per: 1s}]}}
envoy: [{domain: edge}, {domain: "with space"}]
`), nil, nil)
		if (err == nil) != fits {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// What is wrong in one place does not hide what is wrong beside it, and is not said twice.
func TestAllProblems(t *testing.T) {
	for text, want := range map[string][]string{
		"policies: {api: {limits: [{rate: 0, per: 1s, brust: 5}]}}":                                                                              {"brust", "rate"},
		"policies: {api: {limits: [{rate: 0, per: 1s}], colour: red}}":                                                                           {"rate", "colour"},
		"policies: {api: {limits: [{rte: 5, per: 1s, by: 'a b'}]}}":                                                                              {"rte", "by"},
		"policies: {api: {limits: [{rate: 5, pr: 1s, burst: 0}]}}":                                                                               {"pr", "burst"},
		"policies: {api: {limits: [{rate: x, per: y, unit: 'a b', mode: z}]}}":                                                                   {"rate", "per", "unit", "mode"},
		"policies: {api: {limits: [{rate: x, burst: 3, per: 1s, algorithm: fixed_window}]}}":                                                     {"rate"}, // burst must be the rate, which is not known
		"policies: {api: {limits: [100/s, [], {name: a, rate: 1, per: 1s}]}}":                                                                    {"limits[0]", "limits[1]"},
		"policies: {api: {limits: [{name: a}]}}":                                                                                                 {"limits[0]: has no rate", "limits[0]: has no period"},
		"policies: {api: {limits: [{rate: 0, per: 1s}], overrides: {k: {limits: [{rate: -1, per: 1s}]}}}}":                                       {"limits[0].rate", "k.limits[0].rate"},
		"policies: {api: {limits: [{rate: 1, per: day, algorithm: gcra}], overrides: {k: {limits: [{}]}}}}":                                      {"algorithm", "k.limits[0]: has no rate", "k.limits[0]: has no period"},
		"policies: {api: {limits: [{rate: 1, per: day, algorithm: gcra}], overrides: {k: {limits: []}}}}":                                        {"algorithm", "overrides.k.limits"},
		"policies: {api: {limits: [{rate: 10, per: 1s, classes: {a: {guaranteed: 200%}, b: {guaranteed: 5, brst: 1}}}]}}":                        {"a.guaranteed", "b.brst"},
		"policies: {api: {limits: [{rate: 0, per: 1s, classes: {a: {guaranteed: 5}}}]}}":                                                         {"rate"}, // whether 5 is too many is not known
		"clients: {a: {token: short, colour: red, policies: [defalt]}}":                                                                          {"token", "colour", "policies[0]"},
		"clients: {a: {tokn: 0123456789012345678901234567890123}}":                                                                               {"tokn"},
		"store: {redis: {addr: [x], timeout: 0s, prefix: 'a b'}}":                                                                                {"addr", "timeout", "prefix"},
		"tracing: {endpint: 'http://h', headers: {host: x}}":                                                                                     {"endpint", "headers.host"},
		"tracing: {headers: {host: x}}":                                                                                                          {"tracing: has no endpoint", "headers.host"},
		"envoy: [{domain: d, descriptors: [{kee: a}, {key: b, rate_limit: {unit: sec, requests_per_unit: 1, name: n, replaces: [{name: n}]}}]}]": {"kee", "unit", "replaces[0]"},
	} {
		_, err := Parse("weir.yaml", []byte(text), nil, nil)
		bad, _ := errors.AsType[*Error](err)
		if bad == nil || len(bad.Problems) != len(want) {
			t.Errorf("%s: %v, want %q", text, err, want)
			continue
		}
		for _, part := range want {
			if !slices.ContainsFunc(bad.Problems, func(p *Problem) bool { return strings.HasSuffix(p.Path, part) || strings.Contains(p.Summary(), part) }) {
				t.Errorf("%s: %v, want %q in it", text, err, part)
			}
		}
	}
}

// Each field of File is a section. The log's settings are used as they are.
func TestSections(t *testing.T) {
	for _, f := range fieldsOf(reflect.TypeFor[File]()) {
		if _, ok := as[section](f.typ); ok == (f.name == "log") {
			t.Errorf("%s: is a section: %v", f.name, ok)
		}
	}
}

func TestNeedsRestart(t *testing.T) {
	for path, want := range map[string]bool{
		"listen.http.address": true, "store.kind": true, "log.level": true, "tracing.endpoint": true, "tracing": true,
		"policies.api.limits[0].rate": false, "clients.shop.token": false, "hosts": false, "envoy": false, "nothing": false,
	} {
		if got := NeedsRestart(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
