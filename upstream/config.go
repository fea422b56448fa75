package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/secret"
)

// Endpoint is an address of a provider.
type Endpoint struct {
	// Alias is its name in answers, statistics and logs: 1 to 48 letters, digits or -_. as in "alchemy-1".
	Alias string

	// RPC is its URL, with http or https. It usually contains a key, so it is a secret.
	RPC secret.Secret

	// WS is the URL for WebSockets. It is reserved: nothing connects to it yet.
	WS secret.Secret

	// Priority says which endpoints are used first: those with the lowest. Others are used while these cannot
	// take a request. The default is 10.
	Priority int

	// Unselectable means that it gets no requests, only probes.
	Unselectable bool

	// Unmonitored means that it gets no probes, only requests.
	Unmonitored bool

	// Limits are how many requests it may get; see Rate. The default is no limit.
	Limits []weir.Limit

	// Budget is the name of the account that pays for its calls. Several endpoints may have the same. The
	// default is none.
	Budget string

	// Weight is its share of the requests among equals. The default is 100.
	Weight int

	// Provider says which endpoints suffer together if one is overloaded. The default is the host of RPC.
	Provider string

	// Headers are added to each request, in place of what the caller has sent.
	Headers []Header

	// Allow are the methods that it is used for, Deny those it is not: names, or beginnings followed by a *.
	// Deny wins. The default is all methods.
	Allow, Deny []string

	// Concurrency is how many calls of this process may be in flight, until their responses have ended. The default is
	// no limit.
	Concurrency int
}

// Header is a header of requests.
type Header struct {
	Name  string
	Value secret.Secret
}

// Strategy is how a pool chooses among endpoints that can take a request.
type Strategy int

// The strategies.
const (
	// Balanced spreads requests over the fastest endpoints of the best priority, by weight and by what they
	// have left.
	Balanced Strategy = iota

	// Sticky uses the first endpoint, by priority and then as they are listed, until it cannot take a request,
	// and comes back to it as soon as it can.
	Sticky
)

// String returns "balanced" or "sticky".
func (s Strategy) String() string {
	if s == Sticky {
		return "sticky"
	}
	return "balanced"
}

// Config describes a pool.
type Config struct {
	// Name is the pool's namespace: 1 to 48 letters, digits or -_. Limits of endpoints with the same alias in
	// pools with other names have nothing to do with each other.
	Name string

	// Endpoints are 1 to 100.
	Endpoints []Endpoint

	// Strategy is how it chooses. The default is Balanced.
	Strategy Strategy

	// JSONRPC means that endpoints speak JSON-RPC: probes are calls, and errors in responses with a status of 200
	// are looked for.
	JSONRPC bool

	// Chain is what probes expect of JSON-RPC endpoints.
	Chain Chain

	// MaxWait is how long a request may wait in line, if its context does not end before. The default is 3 s; a
	// negative one means that requests do not wait.
	MaxWait time.Duration

	// MaxQueue is how many requests may wait. The default is 1,000.
	MaxQueue int

	// Cooldown is how long an account gets no calls after a refusal that does not say. The default is 100 ms,
	// twice as long after each further one, up to 10 s.
	Cooldown time.Duration

	// Timeout is how long an endpoint may take until its response begins, and until its end if that is read to find a
	// refusal: errors, and all responses of JSON-RPC endpoints, up to 64 KiB. The default is 30 s.
	Timeout time.Duration

	// Probe says how endpoints are monitored.
	Probe Probe

	// Transport sends requests. The default is one of the pool's own, with HTTP/2 and without a proxy.
	Transport http.RoundTripper

	// Logger is for endpoints that go down and come back. The default is slog.Default().
	Logger *slog.Logger
}

// Chain is the blockchain that endpoints serve.
type Chain struct {
	// ID is the chain's id; an endpoint with another is down. One that is monitored gets no calls until a probe has
	// confirmed it, so that Pool.Run is needed. It is confirmed again by every 20th probe, and by the first one after
	// the endpoint was out of use. 0 means that it is not asked for.
	ID uint64

	// MaxLag is how many blocks an endpoint may be behind the others; one that is further is down. 0 means that
	// heads are not compared. The head of reference is the second highest, so that one endpoint alone cannot put
	// the others out of use; of two endpoints it is the highest.
	MaxLag uint64
}

// Probe is how endpoints are monitored. A probe is charged like any other call, as one of the most urgent class of its
// account, and left out if there is no room for it within Timeout.
type Probe struct {
	// Every is the time between probes of an endpoint that is up. The default is 15 s. After a failure they come
	// every second. While it is down they come when it may be tried again, at least every second, and every minute
	// if access is denied.
	Every time.Duration

	// Timeout is how long a probe may take until it is answered. The default is 5 s.
	Timeout time.Duration

	// Method is the method that is called. The default is eth_blockNumber, which Chain.MaxLag needs.
	Method string
}

// Defaults and bounds.
const (
	maxEndpoints    = 100
	defaultMaxWait  = 3 * time.Second
	defaultMaxQueue = 1000
	defaultTimeout  = 30 * time.Second
	defaultPriority = 10
	defaultWeight   = 100
	maxWeight       = 1_000_000
	maxName         = 48
)

// normal returns the configuration with its defaults.
func (c Config) normal() Config {
	c.MaxWait = orDefault(c.MaxWait, defaultMaxWait)
	c.MaxQueue = orDefault(c.MaxQueue, defaultMaxQueue)
	c.Timeout = orDefault(c.Timeout, defaultTimeout)
	c.Probe.Every = orDefault(c.Probe.Every, 15*time.Second)
	c.Probe.Timeout = orDefault(c.Probe.Timeout, 5*time.Second)
	c.Probe.Method = orDefault(c.Probe.Method, "eth_blockNumber")
	c.Logger = orDefault(c.Logger, slog.Default())
	c.Endpoints = slices.Clone(c.Endpoints)
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		e.Priority, e.Weight = orDefault(e.Priority, defaultPriority), orDefault(e.Weight, defaultWeight)
		if u, err := parseURL(e.RPC); err == nil {
			e.Provider = orDefault(e.Provider, u.Hostname())
		}
	}
	return c
}

func orDefault[T comparable](value, other T) T {
	var zero T
	if value == zero {
		return other
	}
	return value
}

// Validate returns everything that is wrong with the configuration: a *fielderr.Error for each problem. None has a
// URL or a header in it.
func (c Config) Validate() error {
	var problems []error
	add := func(problem string, path ...any) {
		problems = append(problems, fielderr.New("upstream", problem, path...))
	}
	if !isName(c.Name, "") {
		add("must be 1 to 48 letters, digits or -_", "Name")
	}
	if len(c.Endpoints) < 1 || len(c.Endpoints) > maxEndpoints {
		add(fmt.Sprintf("there are %d: 1 to %d are needed", len(c.Endpoints), maxEndpoints), "Endpoints")
	}
	switch {
	case c.Strategy != Balanced && c.Strategy != Sticky:
		add("must be Balanced or Sticky", "Strategy")
	case c.MaxQueue < 0:
		add("must not be negative", "MaxQueue")
	case c.Cooldown < 0:
		add("must not be negative", "Cooldown")
	case c.Timeout < 0:
		add("must not be negative", "Timeout")
	case c.Probe.Every < 0 || c.Probe.Timeout < 0:
		add("times must not be negative", "Probe")
	case (c.Chain.ID != 0 || c.Chain.MaxLag != 0) && !c.JSONRPC:
		add("is for endpoints that speak JSON-RPC", "Chain")
	}
	seen := map[string]bool{}
	for i, e := range c.Endpoints {
		if e.Alias != "" && seen[e.Alias] {
			add(fmt.Sprintf("%q is the alias of another endpoint", e.Alias), "Endpoints", i, "Alias")
		}
		seen[e.Alias] = true
		e.validate(func(problem string, path ...any) { add(problem, append([]any{"Endpoints", i}, path...)...) })
		if isName(e.Alias, ".") && isName(c.Name, "") && len(e.Limits) > 0 {
			if _, err := weir.NewPolicy(policyName(c.Name, e.Alias), e.Limits...); err != nil {
				add(err.Error(), "Endpoints", i, "Limits")
			}
		}
	}
	return errors.Join(problems...)
}

// validate reports what is wrong with an endpoint.
func (e *Endpoint) validate(add func(problem string, path ...any)) {
	if !isName(e.Alias, ".") {
		add("must be 1 to 48 letters, digits or -_.", "Alias")
	}
	if _, err := parseURL(e.RPC); err != nil {
		add(err.Error(), "RPC")
	}
	if u, err := url.Parse(e.WS.Reveal()); !e.WS.IsZero() && (err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "") {
		add("must be a URL that begins with ws:// or wss://", "WS") // without the value, which may have a key in it
	}
	switch {
	case e.Priority < 0:
		add("must not be negative", "Priority")
	case e.Weight < 0 || e.Weight > maxWeight:
		add(fmt.Sprintf("must be 1 to %d", maxWeight), "Weight")
	case e.Concurrency < 0:
		add("must not be negative", "Concurrency")
	}
	for i, h := range e.Headers {
		if !isHeader(h.Name) {
			add("is not the name of a header that can be set", "Headers", i, "Name")
		}
		if strings.ContainsAny(h.Value.Reveal(), "\r\n\x00") {
			add("has a line break", "Headers", i, "Value")
		}
	}
	for i, pattern := range e.Allow {
		if !isPattern(pattern) {
			add("must be a method, or the beginning of one and a *", "Allow", i)
		}
	}
	for i, pattern := range e.Deny {
		if !isPattern(pattern) {
			add("must be a method, or the beginning of one and a *", "Deny", i)
		}
	}
}

// parseURL parses the URL of an endpoint. Its errors do not contain it.
func parseURL(s secret.Secret) (*url.URL, error) {
	u, err := url.Parse(s.Reveal())
	switch {
	case s.IsZero():
		return nil, errors.New("is missing: the URL of the endpoint, as in https://rpc.example.org")
	case err != nil:
		return nil, errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.Fragment != "":
		return nil, errors.New("has a part after #, which is never sent")
	}
	return u, nil
}

// hopByHop are headers of a connection, which nobody may set.
var hopByHop = []string{"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func isHeader(name string) bool {
	return name != "" && !slices.Contains(hopByHop, http.CanonicalHeaderKey(name)) &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) })
}

// isName reports whether a text is a name: letters, digits, -_ and those of more.
func isName(name, more string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_"+more, r)
	})
}

func isPattern(pattern string) bool {
	return pattern != "" && len(pattern) <= 256 && !strings.Contains(strings.TrimSuffix(pattern, "*"), "*")
}

// policyName is the name of the policy that has an endpoint's limits. It has slashes, so no configured policy has it.
func policyName(pool, alias string) string { return "upstream/" + pool + "/" + alias }

// Rate is a number of requests per second, per minute, or both, as a short form of limits. The zero value has
// none.
type Rate struct {
	// PerSecond and PerMinute are the most requests in any second and in any minute, measured where they are sent: a
	// provider may see a few more, as networks delay some more than others. 0 means no limit.
	PerSecond, PerMinute int64

	// Aligned counts seconds and minutes of the clock instead: up to twice as many may then come around the
	// full second or minute. At most 32,767 and 262,143 can be counted.
	Aligned bool

	// Smooth spreads the limit per minute over the minute, if both are given or it is alone, so that it is not
	// used up in its first seconds.
	Smooth bool
}

// smoothBurst is the part of a smooth limit per minute that may come at once.
const smoothBurst = 60

// Limits returns the limits: exact logs, or a dual window if Aligned.
func (r Rate) Limits() (list []weir.Limit) {
	algorithm := weir.SlidingLog
	if r.Aligned {
		algorithm = weir.DualWindow
	}
	if r.PerSecond != 0 {
		list = append(list, weir.Limit{Name: "second", Rate: r.PerSecond, Per: weir.Every(time.Second), Algorithm: algorithm})
	}
	if r.PerMinute == 0 {
		return list
	}
	minute := weir.Limit{Name: "minute", Rate: r.PerMinute, Per: weir.Every(time.Minute), Algorithm: algorithm}
	if r.Smooth && r.PerMinute > 1 { // in any minute at most burst + rate
		minute.Algorithm, minute.Burst = weir.GCRA, max(1, min(orDefault(r.PerSecond, r.PerMinute), r.PerMinute/smoothBurst))
		minute.Rate -= minute.Burst
	}
	return append(list, minute)
}
