package config

import (
	"errors"
	"regexp"
	"time"

	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/upstream"
)

// Routes are routes of the gateway, by name. Each has its own endpoints: those with the same alias in two routes
// have nothing in common.
type Routes map[string]Route

// Route is an address, /gw/NAME, whose requests go to endpoints of providers. docs/gateway.md explains it.
type Route struct {
	// Kind is what the endpoints speak: jsonrpc.
	Kind RouteKind `yaml:"kind" example:"jsonrpc" jsonschema:"required"`

	// Strategy is how an endpoint is chosen among those that can take a request. balanced spreads requests over
	// the fastest of the best priority, by weight and by what they have left. sticky uses the first one until it
	// cannot take a request.
	Strategy Strategy `yaml:"strategy" default:"balanced" example:"sticky"`

	// MaxWait is how long a request may wait while all endpoints are at their limits. off means that it is
	// refused at once.
	MaxWait MaxWait `yaml:"max_wait" default:"3s" example:"off"`

	// MaxQueue is how many requests may wait.
	MaxQueue int `yaml:"max_queue" default:"1000" example:"200" jsonschema:"minimum=1,maximum=100000"`

	// Chain is what probes expect of the endpoints.
	Chain Chain `yaml:"chain"`

	// Timeout is how long an endpoint may take until its response begins.
	Timeout Duration `yaml:"timeout" default:"30s" example:"10s"`

	// MaxBody is how many bytes the body of a request may have.
	MaxBody int64 `yaml:"max_body" default:"5242880" example:"1048576" jsonschema:"minimum=1,maximum=5242880"`

	// Origins are those whose pages may call the route from a browser, or * for all. The default is none.
	Origins []string `yaml:"origins" example:"[\"https://app.example.com\"]"`

	// Repeatable are methods that may be executed twice, so that a failed request is sent again, in addition
	// to those that change nothing; a * at the end matches the rest of a name. The default is none.
	Repeatable []string `yaml:"repeatable" example:"[eth_sendRawTransaction]"`

	// Cooldown is how long an account gets no calls after a refusal that does not say; twice as long after
	// each further one, up to 10 s.
	Cooldown Duration `yaml:"cooldown" default:"100ms" example:"1s"`

	// Probe is how endpoints are monitored. A probe counts against their limits.
	Probe Probe `yaml:"probe"`

	// Endpoints are 1 to 100 endpoints of providers.
	Endpoints []Upstream `yaml:"upstreams" example:"[{alias: public, rpc: \"https://rpc.example.org\"}]" jsonschema:"required"`
}

// RouteKind is what the endpoints of a route speak.
type RouteKind string

func (RouteKind) choices() []string { return []string{"jsonrpc"} }

func (RouteKind) hint(text string) string {
	if text == "http" || text == "llm" {
		return "is not served yet: must be jsonrpc"
	}
	return ""
}

// Strategy is how an endpoint is chosen.
type Strategy string

func (Strategy) choices() []string {
	return []string{upstream.Balanced.String(), upstream.Sticky.String()}
}

// MaxWait is a duration, or off.
type MaxWait struct{ time.Duration }

func (w *MaxWait) set(text string) error {
	if text == "off" {
		w.Duration = -1
		return nil
	}
	d := new(Duration)
	if d.set(text) != nil {
		return errors.New("must be a duration such as 3s, or off")
	}
	w.Duration = d.Duration
	return nil
}

func (*MaxWait) pattern() (string, string) {
	return `^(off|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`, "3s"
}

// Chain is the blockchain that endpoints serve.
type Chain struct {
	// ID is the chain's id; an endpoint with another is down. The default is not to ask.
	ID int64 `yaml:"id" example:"1" jsonschema:"minimum=1"`

	// MaxLag is how many blocks an endpoint may be behind the others; one that is further is down. The default
	// is not to compare.
	MaxLag int64 `yaml:"max_lag" example:"3" jsonschema:"minimum=1"`
}

// Probe is how endpoints are monitored.
type Probe struct {
	// Every is the time between probes of an endpoint that is up.
	Every Duration `yaml:"every" default:"15s" example:"1m"`

	// Timeout is how long a probe may take.
	Timeout Duration `yaml:"timeout" default:"5s" example:"2s"`

	// Method is the method that is called. chain.max_lag needs eth_blockNumber.
	Method string `yaml:"method" default:"eth_blockNumber" example:"sui_getChainIdentifier"`
}

// Upstream is an endpoint of a provider.
type Upstream struct {
	// Alias is its name in answers, statistics and logs: 1 to 48 letters, digits or -_. each.
	Alias string `yaml:"alias" example:"alchemy-1" jsonschema:"required"`

	// RPC is its URL or, better, ${NAME}: a variable of the environment. It usually has a key in it, so it
	// is never shown.
	RPC URL `yaml:"rpc" example:"\"${ALCHEMY_1}\"" jsonschema:"required"`

	// WS is its URL for WebSockets. It is reserved: nothing connects to it yet.
	WS URL `yaml:"ws" example:"\"${ALCHEMY_1_WS}\""`

	// Budget is the budget that pays for its calls. Those of one account have the same. The default is none.
	Budget string `yaml:"budget" example:"alchemy-main"`

	// Priority says which endpoints are used first: those with the lowest number.
	Priority int `yaml:"priority" default:"10" example:"20" jsonschema:"minimum=1"`

	// Weight is its share of the requests among equals.
	Weight int `yaml:"weight" default:"100" example:"50" jsonschema:"minimum=1,maximum=1000000"`

	// Selectable is whether it gets requests.
	Selectable bool `yaml:"selectable" default:"true" example:"false"`

	// Monitored is whether it gets probes.
	Monitored bool `yaml:"monitored" default:"true" example:"false"`

	// MaxPerSecs is how many requests it gets in any second, as they are sent. Networks delay some more than others,
	// so stay 2 to 3 % below a provider's limit, or give limits of 1.02 s, if the provider is not next door.
	// The default is no limit.
	MaxPerSecs Requests `yaml:"max_per_secs" example:"50" jsonschema:"minimum=1,maximum=9007199254740991"`

	// MaxPerMin is how many requests it gets in any minute. The default is no limit.
	MaxPerMin Requests `yaml:"max_per_min" example:"2400" jsonschema:"minimum=1,maximum=9007199254740991"`

	// Aligned counts seconds and minutes of the clock instead: up to twice as many may then come around the
	// full second or minute. max_per_secs can then be at most 32767 and max_per_min 262143.
	Aligned bool `yaml:"aligned" default:"false" example:"true"`

	// Smooth spreads max_per_min over the minute, so that it is not used up in its first seconds.
	Smooth bool `yaml:"smooth" default:"false" example:"true"`

	// Limits are how many requests it gets, if max_per_secs and max_per_min do not say it.
	Limits []Limit `yaml:"limits" example:"[{rate: 25, per: 10s}]"`

	// Headers are added to its requests; their values are secrets.
	Headers map[string]Secret `yaml:"headers" example:"{x-api-key: \"${NODE_KEY}\"}"`

	// Allow are the methods that it gets; a * at the end matches the rest of a name. The default is all.
	Allow []string `yaml:"allow" example:"[\"eth_*\", net_version]"`

	// Deny are the methods that it does not get, also if they are allowed.
	Deny []string `yaml:"deny" example:"[\"debug_*\", \"trace_*\"]"`

	// Concurrency is how many calls of this daemon may be in flight, until their responses have ended. The default is
	// no limit.
	Concurrency int `yaml:"concurrency" example:"20" jsonschema:"minimum=1"`

	// Provider says which endpoints suffer together if one is overloaded. The default is the host of rpc.
	Provider string `yaml:"provider" example:"alchemy"`
}

// Requests is a number of requests.
type Requests int64

func (Requests) hint(text string) string {
	if text == "0" {
		return "must be at least 1: leave it out for no limit, or use selectable: false for no requests"
	}
	return ""
}

// URL is the URL of an endpoint, which may have a key in any of its parts. It may be ${NAME}.
type URL struct{ secret.Secret }

func (u *URL) set(text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	u.Secret = secret.New(text)
	return nil
}

func (*URL) substitutes()      {}
func (*URL) hides(string) bool { return true }

// isPublic reports whether a URL that is in a file that others may read needs no warning.
func (*URL) isPublic(text string) bool { return publicURL.MatchString(text) }

// publicURL is a URL without anything that looks like a key: short names, and neither user, path nor query.
var publicURL = regexp.MustCompile(`^[a-z]+://([A-Za-z0-9-]{1,24}\.)*[A-Za-z0-9-]{1,24}(:[0-9]{1,5})?/?$`)
