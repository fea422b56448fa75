package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/otlp"
	"github.com/weirlimit/weir/server/internal/adminapi"
	"github.com/weirlimit/weir/server/internal/envoyapi"
	"github.com/weirlimit/weir/weirhttp"
)

// Config says what a Server serves, and where. Only Limiter is required.
type Config struct {
	// HTTP is where callers are answered. The default is DefaultHTTP.
	HTTP Listener

	// GRPC is where callers are answered by gRPC alone, on a transport that costs a third
	// of that of HTTP. The default is nowhere; DefaultGRPC is where people look for it.
	GRPC Listener

	// RESP is where callers are answered by the Redis protocol. The default is nowhere;
	// DefaultRESP is where people look for it.
	RESP Listener

	// Reflection lets gRPC callers ask what there is to call. The default is off.
	Reflection bool

	// Admin is where operators are answered: /admin/v1, /metrics and the page. The
	// default is on HTTP as long as that is loopback, and nowhere otherwise.
	Admin Listener

	// Limiter decides.
	Limiter weir.Limiter

	// Exclusive says that no other process decides by the counts of Limiter. Then New puts the
	// limits of Live in force as they are, also if counts that are older than this process, such as those of a
	// snapshot, have replaced them. The default is false: a start changes no limits, because
	// other processes may have changed them since Live was written; Reload does.
	Exclusive bool

	// Backend names, in metrics, what Limiter counts with: "memory" (the default) or
	// "redis".
	Backend string

	// Overrides keeps the overrides that operators set. The default keeps them in
	// memory, as long as the server lives.
	Overrides Overrides

	// Live is what Reload can change.
	Live Live

	// MaxConns is how many connections may be open at once on each listener. Further
	// ones take the place of those that were opened a second ago or earlier and
	// still have not sent one whole request; if there are none, they wait. The default
	// is 4096.
	MaxConns int

	// Log takes the daemon's messages. Keys appear at debug level only. The
	// default is slog.Default.
	Log *slog.Logger

	// Collectors are shown at /metrics besides the server's own.
	Collectors []prometheus.Collector

	// Stats, if set, returns figures of the store, for GET /admin/v1/stats.
	Stats func() map[string]any

	// Tracer, if set, gets a span for each request that is sampled.
	Tracer *otlp.Exporter

	// Version is shown to people. The default is "devel".
	Version string

	// OnListen, if set, is called once by Run when all addresses are bound, before
	// the first request is answered.
	OnListen func(Bound)
}

// Live is the part of the configuration that can change while the server runs.
type Live struct {
	// Policies are those that callers may name. The default is DefaultPolicy alone.
	Policies []guard.Policy

	// Clients are those who may call. With none, everybody who reaches the listener
	// may, which therefore must be loopback unless Open says otherwise.
	Clients []Client

	// Open lets everybody call who reaches the listener, wherever that is.
	Open bool

	// Operators are those who may administer. With none, everybody may who reaches
	// the listener, which therefore must be loopback.
	Operators []Operator

	// Envoy are the domains of Envoy's rate limit service, which is on GRPC. With none
	// it answers that nothing is limited.
	Envoy []EnvoyDomain

	// ForwardAuth is about /v1/auth.
	ForwardAuth ForwardAuth

	// LegacyHeaders adds X-RateLimit headers. The default is off.
	LegacyHeaders weirhttp.Legacy

	// Hosts are names by which the server may be called, besides localhost and
	// addresses. They are for browsers: a page that has a name of its own pointed at
	// this server is turned away.
	Hosts []string

	// Effective is what GET /admin/v1/config shows: the settings, and where each comes
	// from.
	Effective []Setting
}

// Setting is a value that is in force: its path, such as "policies.api.limits[0].rate",
// the value, secrets masked, and where it comes from, such as "weir.yaml:12".
type Setting = adminapi.Setting

// EnvoyDomain is a set of rules of Envoy's rate limit service.
type EnvoyDomain = envoyapi.Domain

// EnvoyDescriptor is what an entry of a request must be, and the limit then.
type EnvoyDescriptor = envoyapi.Descriptor

// EnvoyLimit is so many requests per unit of time.
type EnvoyLimit = envoyapi.Limit

// ParseEnvoyUnit returns the unit of an EnvoyLimit: second, minute, hour, day, week, month
// or year.
func ParseEnvoyUnit(name string) (envoyapi.Unit, bool) { return envoyapi.ParseUnit(name) }

// Client is a program that may ask for decisions.
type Client = identity.Client

// Operator is somebody who administers the server.
type Operator = identity.Operator

// The scopes of operators.
const (
	ScopeRead  = identity.Read
	ScopeWrite = identity.Write
	ScopeBlock = identity.Block
)

// ForwardAuth is how /v1/auth/{policy} finds out on whose behalf a proxy asks.
type ForwardAuth struct {
	// Trusted are the proxies whose headers are believed. Others may ask, too, but
	// their headers are ignored.
	Trusted []netip.Prefix

	// TrustUnix believes whoever asks through a Unix socket.
	TrustUnix bool

	// AddressHeader is where trusted proxies say who called them: x-forwarded-for
	// (the default), forwarded or x-real-ip. The others are ignored.
	AddressHeader string

	// KeyHeader is where trusted proxies say who is to pay, for example "x-user". The
	// default, and what counts if it is absent, is the client's address.
	KeyHeader string

	// IPv6Prefix is how many bits of an IPv6 address tell clients apart, 48 to 128.
	// The default is 64.
	IPv6Prefix int
}

// Defaults.
const (
	DefaultHTTP = "127.0.0.1:8080"
	DefaultGRPC = "127.0.0.1:8081"
	DefaultRESP = "127.0.0.1:6380"

	defaultMaxConns = 4096
)

// DefaultPolicy returns the policy that is served when no other is configured:
// "default", 100 per second with a burst of 100, for each key.
func DefaultPolicy() guard.Policy {
	return guard.Policy{Name: "default", Limits: []guard.Limit{
		{Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Second), Burst: 100}},
	}}
}

// Validate returns everything that is wrong with the configuration, joined.
func (c Config) Validate() error {
	c = c.normal()
	problems := []error{c.HTTP.validate("HTTP"), c.Live.Validate()}
	for _, more := range []struct {
		Listener
		field string
	}{{c.GRPC, "GRPC"}, {c.RESP, "RESP"}, {c.Admin, "Admin"}} {
		if more.Address != "" {
			problems = append(problems, more.validate(more.field))
		}
	}
	if c.Limiter == nil {
		problems = append(problems, errors.New("server: Limiter: is missing; memstore.New makes one"))
	}
	if c.MaxConns < 0 {
		problems = append(problems, fmt.Errorf("server: MaxConns %d: must not be negative", c.MaxConns))
	}
	return errors.Join(append(problems, c.checkReach(&c.Live))...)
}

// Validate returns everything that is wrong with it, joined.
func (l Live) Validate() error {
	l = l.normal()
	_, noRules := guard.Compile(l.Policies, nil)
	_, noClients := identity.NewClients(l.Clients)
	_, noOperators := identity.NewOperators(l.Operators)
	_, noResolver := l.ForwardAuth.resolver()
	_, noDomains := envoyapi.Compile(l.Envoy, nil)
	return errors.Join(noRules, noClients, noOperators, noResolver, noDomains)
}

// checkReach refuses listeners that anybody could reach who is not known.
func (c *Config) checkReach(l *Live) error {
	var problems []error
	for _, calls := range []struct {
		Listener
		field string
	}{{c.HTTP, "HTTP"}, {c.GRPC, "GRPC"}, {c.RESP, "RESP"}} {
		if calls.Address != "" && !calls.isLocal() && len(l.Clients) == 0 && !l.Open {
			problems = append(problems, fmt.Errorf(
				"server: %s %q: is not loopback, and anybody who reaches it could use it: configure clients, or say auth: none", calls.field, calls.Address))
		}
	}
	if c.Admin.Address != "" && !c.Admin.isLocal() && len(l.Operators) == 0 {
		problems = append(problems, fmt.Errorf(
			"server: Admin %q: is not loopback, and anybody who reaches it could use it: configure admin.tokens", c.Admin.Address))
	}
	return errors.Join(problems...)
}

// normal returns the configuration with its defaults filled in.
func (c Config) normal() Config {
	if c.HTTP.Address == "" {
		c.HTTP.Address = DefaultHTTP
	}
	if c.Backend == "" {
		c.Backend = "memory"
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Version == "" {
		c.Version = "devel"
	}
	if c.Stats == nil {
		c.Stats = func() map[string]any { return nil }
	}
	if c.OnListen == nil {
		c.OnListen = func(Bound) {}
	}
	c.Live = c.Live.normal()
	return c
}

func (l Live) normal() Live {
	if len(l.Policies) == 0 {
		l.Policies = []guard.Policy{DefaultPolicy()}
	}
	return l
}
