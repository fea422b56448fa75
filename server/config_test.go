package server

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
)

func TestDefaultPolicy(t *testing.T) {
	rules, err := ruleset.Compile([]ruleset.Policy{DefaultPolicy()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := rules.Rule("default").Base().Limits()
	if len(l) != 1 || l[0].String() != "100 per 1s" || l[0].Burst != 100 {
		t.Errorf("%v", l)
	}
}

func TestNewTellsEveryProblem(t *testing.T) {
	_, err := New(Config{
		HTTP:     Listener{Address: "0.0.0.0:8080"},
		Admin:    Listener{Address: "0.0.0.0:8081"},
		MaxConns: -1,
		Live: Live{
			Policies:  []ruleset.Policy{DefaultPolicy(), {Name: "a b"}, DefaultPolicy()},
			Clients:   nil,
			Operators: []Operator{{Name: "ops", Tokens: []secret.Secret{secret.New("short")}}},
		},
	})
	wantError(t, err,
		`HTTP.Address: is not loopback`, "add clients, or set auth: none",
		"Limiter: is missing", "MaxConns -1", `policy "a b": name`, `policy "default": name: is taken`,
		`admin token "ops": scopes: is missing`, "a token has at least 32 bytes")
	if strings.Contains(err.Error(), "short") {
		t.Error("the error shows a token")
	}
}

// token is long enough for one.
func token(name string) []secret.Secret {
	return []secret.Secret{secret.New(name + strings.Repeat("-0123456789", 3))}
}

func TestWhoCanReachIt(t *testing.T) {
	clients := []Client{{Name: "checkout", Tokens: token("checkout")}}
	operators := []Operator{{Name: "ops", Tokens: token("ops"), Scopes: ScopeRead}}
	tests := []struct {
		name    string
		http    string
		admin   string
		live    Live
		problem string
	}{
		{"default", "", "", Live{}, ""},
		{"IPv4", "127.0.0.1:8080", "", Live{}, ""},
		{"any port", "127.0.0.1:0", "", Live{}, ""},
		{"name", "localhost:8080", "", Live{}, ""},
		{"name in capitals", "LocalHost:8080", "", Live{}, ""},
		{"IPv6", "[::1]:8080", "", Live{}, ""},
		{"net 127", "127.1.2.3:8080", "", Live{}, ""},
		{"socket", "unix:/run/weir.sock", "", Live{}, ""},
		{"everywhere", "0.0.0.0:8080", "", Live{}, "is not loopback"},
		{"everywhere, IPv6", "[::]:8080", "", Live{}, "is not loopback"},
		{"no host", ":8080", "", Live{}, "is not loopback"},
		{"private", "10.0.0.1:8080", "", Live{}, "is not loopback"},
		{"another name", "example.com:8080", "", Live{}, "is not loopback"},
		{"localhost of somebody else", "localhost.example.com:8080", "", Live{}, "is not loopback"},
		{"with clients", "0.0.0.0:8080", "", Live{Clients: clients}, ""},
		{"with operators alone", "0.0.0.0:8080", "", Live{Operators: operators}, "is not loopback"},
		{"open", "0.0.0.0:8080", "", Live{Open: true}, ""},
		{"admin everywhere", "", "0.0.0.0:9090", Live{}, "add admin.tokens"},
		{"admin everywhere, open", "", "0.0.0.0:9090", Live{Open: true}, "add admin.tokens"},
		{"admin with tokens", "", "0.0.0.0:9090", Live{Operators: operators}, ""},
		{"admin on loopback", "0.0.0.0:8080", "127.0.0.1:9090", Live{Clients: clients}, ""},
		{"no port", "127.0.0.1", "", Live{}, "must be host:port"},
		{"no brackets", "::1:8080", "", Live{}, "must be host:port"},
		{"a port alone", "8080", "", Live{}, "must be host:port"},
		{"a service", "127.0.0.1:http", "", Live{}, "the port must be a number"},
		{"a port too far", "127.0.0.1:65536", "", Live{}, "the port must be a number"},
		{"an empty port", "127.0.0.1:", "", Live{}, "the port must be a number"},
		{"a relative socket", "unix:weir.sock", "", Live{}, "must begin with /"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(Config{HTTP: Listener{Address: tt.http}, Admin: Listener{Address: tt.admin}, Live: tt.live, Limiter: frozenTable(t)})
			if tt.problem == "" && err != nil {
				t.Error(err)
			}
			if tt.problem != "" {
				wantError(t, err, tt.problem)
			}
		})
	}
}

func TestGRPCReach(t *testing.T) {
	c := Config{Limiter: frozenTable(t), GRPC: Listener{Address: "0.0.0.0:8081"}}
	wantError(t, c.Validate(), `GRPC.Address: is not loopback`)
	c.Live.Open = true
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.GRPC.Address = "8081"
	wantError(t, c.Validate(), "server: GRPC", "must be host:port")
}

// Everything in Config can be made by other modules: its types are exported, or this package has
// names for them.
func TestConfigHasNoInternalTypes(t *testing.T) {
	named := []reflect.Type{
		reflect.TypeFor[Client](), reflect.TypeFor[Operator](), reflect.TypeOf(ScopeRead), reflect.TypeFor[Override](), reflect.TypeFor[Setting](), reflect.TypeFor[PendingSetting](),
		reflect.TypeFor[Grants](), reflect.TypeFor[Patterns](), reflect.TypeFor[Grant](),
		reflect.TypeFor[EnvoyDomain](), reflect.TypeFor[EnvoyDescriptor](), reflect.TypeFor[EnvoyLimit](),
		reflect.TypeOf(ParseEnvoyUnit).Out(0),
	}
	seen := map[reflect.Type]bool{}
	var walk func(path string, v reflect.Type)
	walk = func(path string, v reflect.Type) {
		if seen[v] {
			return
		}
		seen[v] = true
		if strings.Contains(v.PkgPath(), "/internal/") && !slices.Contains(named, v) {
			t.Errorf("%s is a %v", path, v)
		}
		switch v.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(path, v.Elem())
		case reflect.Struct:
			for f := range v.Fields() {
				if f.IsExported() {
					walk(path+"."+f.Name, f.Type)
				}
			}
		}
	}
	walk("Config", reflect.TypeFor[Config]())
}
