package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/adminapi"
	"github.com/weirlimit/weir/server/internal/envoyapi"
	"github.com/weirlimit/weir/weirhttp"
)

// Config configures a Server. Only Limiter is required.
type Config struct {
	// HTTP serves the JSON API and Connect. The default is DefaultHTTP.
	HTTP Listener

	// GRPC serves gRPC alone, on a transport that costs a third of that of HTTP. The default
	// is no such listener; the conventional address is DefaultGRPC.
	GRPC Listener

	// RESP serves the Redis protocol. The default is no such listener; the conventional
	// address is DefaultRESP.
	RESP Listener

	// Reflection enables gRPC server reflection. The default is off.
	Reflection bool

	// Admin serves operators: /admin/v1, /metrics and the page. The default is that HTTP
	// serves them if it is loopback, and that they are not served otherwise.
	Admin Listener

	// Limiter makes the decisions.
	Limiter weir.Limiter

	// Exclusive says that no other process shares the counters of Limiter. Then New applies the
	// limits of Live, also if the store has newer ones, for example from a snapshot. The
	// default is false: New changes no limits, because other processes may have changed them
	// since Live was written; Reload does.
	Exclusive bool

	// Backend names, in metrics, what Limiter counts with: "memory" (the default) or
	// "redis".
	Backend string

	// Overrides keeps the overrides that operators set. The default keeps them in
	// memory, as long as the server lives.
	Overrides Overrides

	// Live is the part that Reload can change.
	Live Live

	// MaxConns is the maximum number of open connections of each listener. At most half of
	// them, and a quarter from one address, may be unproven: without an authenticated request
	// or, where callers may be anonymous, without any complete one. Further connections replace
	// the oldest unproven one; if there is none, they wait. The default is 4096.
	MaxConns int

	// Log receives the daemon's messages. Keys appear at debug level only, but for the subjects
	// of the guard's violations. The default is slog.Default.
	Log *slog.Logger

	// Collectors are exported at /metrics in addition to the server's own.
	Collectors []prometheus.Collector

	// Stats, if set, returns statistics of the store, for GET /admin/v1/stats.
	Stats func() map[string]any

	// Degraded, if set, says why decisions are not made as usual, for GET /readyz: a few words
	// without names, such as "the store is unavailable", or "".
	Degraded func() string

	// Tracing, if set, is where the spans of each sampled request are sent.
	Tracing *Tracing

	// Version is the version that INFO, metrics and the page show. The default is "devel".
	Version string

	// OnListen, if set, is called once by Run when all addresses are bound, before
	// the first request is answered.
	OnListen func(Bound)
}

// Live is the part of the configuration that can change while the server runs.
type Live struct {
	// Policies are those that callers may name. The default is DefaultPolicy alone.
	Policies []ruleset.Policy

	// Budgets are the budgets of accounts with providers, at most 100. Callers name them as they name
	// policies, whose names are other ones. Logger and OnLevel are the server's and ignored.
	Budgets []budget.Config

	// Routes are the routes of the gateway, at most 100, served at /gw/{name}. Their endpoints may have
	// Budgets. Logger and Transport are the server's and ignored.
	Routes []gateway.Config

	// Clients are the programs that may call. Without any, everybody who reaches a listener
	// may call, so listeners must be loopback unless Open is set.
	Clients []Client

	// Open accepts callers without a token on all addresses.
	Open bool

	// Operators are those who may administer. Without any, everybody who reaches the Admin
	// listener may, so it must be loopback.
	Operators []Operator

	// Envoy are the domains of Envoy's rate limit service, which GRPC serves. Without any, it
	// admits everything.
	Envoy []EnvoyDomain

	// ForwardAuth configures /v1/auth.
	ForwardAuth ForwardAuth

	// Guard configures /v1/auth without a policy, and weir.v1.GuardService. Without it, they are not
	// served.
	Guard *Guard

	// LegacyHeaders adds X-RateLimit headers. The default is off.
	LegacyHeaders weirhttp.Legacy

	// Hosts are the names by which browsers may call without a token, in addition to localhost
	// and IP addresses: "weir.example.com", or "*.example.com" for all names below. Other
	// requests of browsers are refused, which protects against DNS rebinding.
	Hosts []string

	// Effective is the response of GET /admin/v1/config: the settings, and where each comes
	// from.
	Effective []Setting
}

// Setting is a value that is in force: its path, such as "policies.api.limits[0].rate",
// the value, secrets masked, and where it comes from, such as "weir.yaml:12".
type Setting = adminapi.Setting

// PendingSetting is the value that a Setting has after a restart.
type PendingSetting = adminapi.Pending

// EnvoyDomain is a set of rules of Envoy's rate limit service.
type EnvoyDomain = envoyapi.Domain

// EnvoyDescriptor matches an entry of a request's descriptor, and may set its limit.
type EnvoyDescriptor = envoyapi.Descriptor

// EnvoyLimit is a number of requests per unit of time.
type EnvoyLimit = envoyapi.Limit

// ParseEnvoyUnit returns the unit of an EnvoyLimit: second, minute, hour, day, week, month
// or year.
func ParseEnvoyUnit(name string) (envoyapi.Unit, bool) { return envoyapi.ParseUnit(name) }

// Client is a program that may request decisions.
type Client = identity.Client

// Grants are what a client may use: policies and their classes, routes, and domains of Envoy's rate limit service. The
// default is everything.
type Grants = identity.Grants

// Grant is whether a client may use something that has no name.
type Grant = identity.Grant

// The grants.
const (
	GrantDefault = identity.GrantDefault // if the Grants include everything
	Granted      = identity.Granted
	Withheld     = identity.Withheld
)

// Patterns are names; a * at the end stands for the rest of a name.
type Patterns = identity.Patterns

// Operator is somebody who administers the server.
type Operator = identity.Operator

// Scope is what an operator may do: a set of the constants.
type Scope = identity.Scope

// The scopes of operators.
const (
	ScopeRead  = identity.Read
	ScopeWrite = identity.Write
	ScopeBlock = identity.Block // reserved: nothing requires it yet
)

// ForwardAuth configures how /v1/auth/{policy} derives the rate-limit key from a proxy's
// request.
type ForwardAuth struct {
	// Trusted are the proxies whose headers are used. Other callers are answered, too, but
	// their headers are ignored.
	Trusted []netip.Prefix

	// TrustUnix trusts callers on a Unix socket.
	TrustUnix bool

	// AddressHeader is the header in which trusted proxies pass the client's address:
	// x-forwarded-for (the default), forwarded or x-real-ip. The others are ignored.
	AddressHeader string

	// KeyHeader is the header in which trusted proxies pass the rate-limit key, for example
	// "x-user". By default, and in requests without the header, the key is the client's
	// address.
	KeyHeader string

	// IPv6Prefix is the number of leading bits of an IPv6 address that form the key, 48 to
	// 128. The default is 64.
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
func DefaultPolicy() ruleset.Policy {
	return ruleset.Policy{Name: "default", Limits: []ruleset.Limit{
		{Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Second), Burst: 100}},
	}}
}

// Validate returns everything that is wrong with the configuration, joined.
func (c Config) Validate() error {
	c = c.normal()
	problems := []error{c.Live.Validate(), c.ValidateListeners()}
	if c.Limiter == nil {
		problems = append(problems, errors.New("server: Limiter: is missing; memstore.New makes one"))
	}
	if c.MaxConns < 0 {
		problems = append(problems, fmt.Errorf("server: MaxConns %d: must not be negative", c.MaxConns))
	}
	if c.Tracing != nil {
		problems = append(problems, c.Tracing.Validate())
	}
	return errors.Join(problems...)
}

// Validate returns everything that is wrong with it, joined.
func (l Live) Validate() error {
	l = l.normal()
	rulesErr, budgetsErr := l.validatePolicies(), l.validateBudgets()
	routesErr := l.validateRoutes()
	_, clientsErr := identity.NewClients(l.Clients)
	_, operatorsErr := identity.NewOperators(l.Operators)
	_, resolverErr := l.ForwardAuth.resolver()
	_, domainsErr := envoyapi.Compile(l.Envoy, nil)
	return errors.Join(rulesErr, budgetsErr, routesErr, clientsErr, operatorsErr, resolverErr, domainsErr)
}

// ValidateListeners returns everything that is wrong with the listeners, as joined *fielderr.Errors
// with paths such as {"HTTP", "Address"}. It refuses listeners that other machines can reach without
// authentication: Live has no clients or operators.
func (c Config) ValidateListeners() error {
	callers, operators := "", ""
	if len(c.Live.Clients) == 0 && !c.Live.Open {
		callers = "add clients, or set auth: none"
	}
	if len(c.Live.Operators) == 0 {
		operators = "add admin.tokens"
	}
	return errors.Join(c.HTTP.check("HTTP", callers), c.GRPC.check("GRPC", callers), c.RESP.check("RESP", callers), c.Admin.check("Admin", operators))
}

// normal returns the configuration with its defaults filled in.
func (c Config) normal() Config {
	c.HTTP.Address = cmp.Or(c.HTTP.Address, DefaultHTTP)
	c.Backend = cmp.Or(c.Backend, "memory")
	c.MaxConns = cmp.Or(c.MaxConns, defaultMaxConns)
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Version = cmp.Or(c.Version, "devel")
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
		l.Policies = []ruleset.Policy{DefaultPolicy()}
	}
	return l
}
