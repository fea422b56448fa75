package config

import (
	"log/slog"
	"net"
	"reflect"
	"strings"

	"github.com/weirlimit/weir/weirhttp"
)

// File is what a configuration file may have. Every section may be left out.
type File struct {
	// Listen is where the daemon listens.
	Listen Listen `yaml:"listen"`

	// Auth is none to serve every caller that reaches the daemon. Without it and
	// without clients, the daemon listens only on loopback addresses and sockets.
	Auth Auth `yaml:"auth" example:"none"`

	// Clients are the programs that may call the daemon, by name. If there are any, all
	// other callers are refused.
	Clients Clients `yaml:"clients"`

	// Admin is who may administer the daemon.
	Admin Admin `yaml:"admin"`

	// Store is where the counts are.
	Store Store `yaml:"store"`

	// Policies are what callers refer to, by name: 1 to 64 letters, digits or -_. each.
	// If there are none, there is one called default: 100 per second, for each key.
	Policies Policies `yaml:"policies"`

	// ForwardAuth is how /v1/auth/{policy} derives the key from the headers of a proxy.
	ForwardAuth ForwardAuth `yaml:"forward_auth"`

	// Guard is who may call which endpoint of a service, for /v1/auth and weir.v1.GuardService. If it
	// is left out, neither is served.
	Guard *Guard `yaml:"guard"`

	// Budgets are budgets of accounts with providers, by name. A caller uses one as a policy of that
	// name, which no policy may have.
	Budgets Budgets `yaml:"budgets"`

	// Routes are the routes of the gateway, by name: 1 to 48 letters, digits or -_ each. A program sends its
	// requests to /gw/NAME, and the route chooses the endpoint and keeps to its limits.
	Routes Routes `yaml:"routes"`

	// Headers configures the headers of responses.
	Headers Headers `yaml:"headers"`

	// Hosts are names by which browsers may call the daemon without a token, besides
	// localhost and IP addresses: weir.example.com, or *.example.com for all names below.
	// This protects against DNS rebinding. Other callers may use any name.
	Hosts Hosts `yaml:"hosts" example:"[weir.example.com]"`

	// Log is what is logged, and how.
	Log Log `yaml:"log"`

	// Tracing is where spans of HTTP and gRPC requests are sent. If it is left out, there are none unless
	// OTEL_EXPORTER_OTLP_ENDPOINT is set.
	Tracing *Tracing `yaml:"tracing"`

	// Envoy are the domains of the Envoy rate limit service, in the form that
	// envoyproxy/ratelimit has. The service is on listen.grpc.
	Envoy Domains `yaml:"envoy"`
}

// atStart marks a section that only a start reads: a change of it needs a restart. The others are
// part of server.Live.
type atStart interface{ atStart() }

func (*Listen) atStart()  {}
func (*Store) atStart()   {}
func (*Log) atStart()     {}
func (*Tracing) atStart() {}

// NeedsRestart reports whether a change of the field at a path, such as "listen.http.address", takes
// effect only after a restart.
func NeedsRestart(path string) bool {
	section, _, _ := strings.Cut(path, ".")
	for _, f := range fieldsOf(reflect.TypeFor[File]()) {
		if f.name == section {
			_, ok := as[atStart](f.typ)
			return ok
		}
	}
	return false
}

// Auth is who may call if no clients are known.
type Auth string

func (Auth) choices() []string { return []string{"none"} }

func (a *Auth) check(c *checker, _ path) { c.out.server.Live.Open = *a == "none" }

// Hosts are names of hosts.
type Hosts []string

func (h *Hosts) check(c *checker, at path) {
	for i, name := range *h {
		host, _, err := net.SplitHostPort(name)
		rest := strings.TrimPrefix(name, "*.")
		switch {
		case err == nil && host != "" && !strings.ContainsAny(name, "/@"):
			c.wrong(at.item(i), "%q has a port: write %s", name, host)
		case rest == "" || len(name) > 253 || strings.ContainsAny(rest, "/:*@ \t\n") || strings.ContainsRune(name, 0):
			c.wrong(at.item(i), "%q must be the name of a host, such as weir.example.com, or *. and the end of one", shorten(name))
		}
	}
	c.out.server.Live.Hosts = *h
}

// Headers configures the headers of responses.
type Headers struct {
	// Legacy adds X-RateLimit headers to the standard ones: off for none, github with
	// the reset as a Unix time, delta with the reset as seconds from now.
	Legacy Legacy `yaml:"legacy" default:"off" example:"github"`
}

func (h *Headers) check(c *checker, _ path) { c.out.server.Live.LegacyHeaders = h.Legacy.Legacy }

// Legacy is a style of X-RateLimit headers.
type Legacy struct{ weirhttp.Legacy }

func (Legacy) choices() []string { return []string{"off", "github", "delta"} }

// Log is what is logged, and how.
type Log struct {
	// Format is text or json.
	Format LogFormat `yaml:"format" default:"text" example:"json"`

	// Level is the least that is logged. Keys appear at debug only, but for the subjects of the
	// guard's violations.
	Level LogLevel `yaml:"level" default:"info" example:"debug"`
}

// LogFormat is how messages are written.
type LogFormat string

func (LogFormat) choices() []string { return []string{"text", "json"} }

// LogLevel is how important a message must be.
type LogLevel struct{ slog.Level }

func (LogLevel) choices() []string { return []string{"debug", "info", "warn", "error"} }

// prepare adds the policy that there is if there are none.
func (*File) prepare(n *node) {
	if p := n.child("policies"); p != nil && (p.kind != mapping || len(p.pairs) > 0) && p.kind != null {
		return
	}
	list := parseYAML(fromDefault, "default: {limits: [{rate: 100, per: 1s, burst: 100}]}", newReport(""))
	list.comeFrom(place{source: fromDefault})
	n.put("policies", list)
}
