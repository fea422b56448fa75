package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/hist"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
)

// Pool sends requests to endpoints. Make one with New. All methods may be called by any number of goroutines.
type Pool struct {
	name     string // set once, like the next five
	engine   *ruleset.Engine
	accounts func(name string) *budget.Account
	own      *http.Transport // for configurations without one
	lines    *lines
	probes   chan struct{} // see probeNow

	set      atomic.Pointer[set] // written with changing held
	changing sync.Mutex          // guards the fields below
	memories map[string]*memory  // by alias
	quotas   map[string]*quota   // by account, or by alias after a slash
	groups   map[string]*gate    // by provider

	retries                                    retryBudget
	requests, waited, limited, failed, retried atomic.Int64
	cancelled                                  atomic.Int64
	queueTime                                  hist.Histogram
}

// A set is a configuration in use. It never changes.
type set struct {
	config    Config // with its defaults
	endpoints []*endpoint
	transport http.RoundTripper
}

// New returns a pool whose limits and budgets are those of l: a table in memory, or Redis for several processes.
// Accounts are those that endpoints name as their Budget.
func New(l weir.Limiter, c Config, accounts ...budget.Config) (*Pool, error) {
	if l == nil {
		return nil, errors.New("upstream: a limiter is needed")
	}
	var policies []ruleset.Policy
	for _, a := range accounts {
		p, err := a.Policy()
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	rules, err := ruleset.Compile(policies, nil)
	if err != nil {
		return nil, err
	}
	engine, err := ruleset.New(l, rules)
	if err != nil {
		return nil, err
	}
	byName := map[string]*budget.Account{}
	for _, a := range accounts {
		if byName[a.Name], err = budget.Attach(engine, a); err != nil {
			return nil, err
		}
	}
	return Attach(engine, func(name string) *budget.Account { return byName[name] }, c)
}

// Attach returns a pool that charges an engine, whose rules are those of the accounts. It is for programs in which
// pools, budgets and other limits are one set of rules. Accounts returns the account of a name, or nil.
func Attach(engine *ruleset.Engine, accounts func(name string) *budget.Account, c Config) (*Pool, error) {
	p := &Pool{
		name: c.Name, engine: engine, accounts: accounts, own: NewTransport(), lines: newLines(), probes: make(chan struct{}, 1),
		memories: map[string]*memory{}, quotas: map[string]*quota{}, groups: map[string]*gate{},
	}
	if err := p.Replace(context.Background(), c); err != nil {
		return nil, err
	}
	return p, nil
}

// NewTransport returns a transport for many calls to few hosts, like that of a pool whose configuration has none.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// Replace gives the pool another configuration, or returns an error and changes nothing. Calls in flight end as
// they began. What endpoints of the same alias have used, counted and learnt stays; one with another URL or other
// headers begins healthy. Those to which access was denied are tried again.
func (p *Pool) Replace(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Name != p.name {
		return fmt.Errorf("upstream: pool %q cannot be renamed to %q: the units in use belong to the name", p.name, c.Name)
	}
	p.changing.Lock()
	defer p.changing.Unlock()
	next := &set{config: c.normal(), transport: c.Transport}
	if next.transport == nil {
		next.transport = p.own
	}
	var policies []*weir.Policy
	for i, config := range next.config.Endpoints {
		e, err := p.endpoint(i, config)
		if err != nil {
			return err
		}
		next.endpoints = append(next.endpoints, e)
		if !config.Unmonitored {
			e.chain = next.config.Chain.ID
		}
		if e.policy != nil {
			policies = append(policies, e.policy)
		}
	}
	if err := p.engine.Apply(ctx, policies...); err != nil {
		return fmt.Errorf("upstream: pool %q: %w", p.name, err)
	}
	p.put(next)
	return nil
}

// endpoint makes an endpoint of its configuration, still without memory.
func (p *Pool) endpoint(index int, c Endpoint) (*endpoint, error) {
	e := &endpoint{Endpoint: c, index: index, header: http.Header{}}
	var err error
	if e.url, err = parseURL(c.RPC); err != nil {
		return nil, err
	}
	if user := e.url.User; user != nil { // as net/http does it for requests
		password, _ := user.Password()
		r := http.Request{Header: e.header}
		r.SetBasicAuth(user.Username(), password)
	}
	for _, h := range c.Headers {
		e.header.Set(h.Name, h.Value.Reveal())
	}
	e.secrets, e.url.User = secretsOf(e.url, e.header), nil
	if len(c.Limits) > 0 {
		if e.policy, err = weir.NewPolicy(policyName(p.name, c.Alias), c.Limits...); err != nil {
			return nil, err
		}
		if e.views, err = viewsOf(e.policy); err != nil {
			return nil, err
		}
	}
	if c.Budget != "" {
		if e.budget = p.accounts(c.Budget); e.budget == nil {
			return nil, fmt.Errorf("upstream: endpoint %q: there is no budget %q", c.Alias, c.Budget)
		}
	}
	return e, nil
}

// put puts a set in force, whose endpoints get their memories.
func (p *Pool) put(next *set) {
	old := p.set.Load()
	memories, quotas, groups := map[string]*memory{}, map[string]*quota{}, map[string]*gate{}
	for _, e := range next.endpoints {
		e.memory = keep(memories, p.memories, e.Alias, func() *memory { return &memory{} })
		name := "/" + e.Alias
		if e.budget != nil {
			name = e.Budget
		}
		e.quota = keep(quotas, p.quotas, name, func() *quota { return &quota{account: e.budget} })
		e.group = keep(groups, p.groups, e.Provider, func() *gate { return &gate{} })
		if was := old.find(e.Alias); was != nil {
			p.continueFrom(next, was, e)
		}
	}
	p.memories, p.quotas, p.groups = memories, quotas, groups
	p.set.Store(next)
	p.lines.rearrange(next)
	p.probeNow()
}

// Takes reports whether an endpoint is configured to take a call, however it is at the moment.
func (p *Pool) Takes(c *Call) bool {
	return slices.ContainsFunc(p.set.Load().endpoints, func(e *endpoint) bool { return e.takes(c) })
}

// keep returns what has a name among the old or the new ones, and makes it if nothing has.
func keep[T any](next, old map[string]*T, name string, create func() *T) *T {
	if next[name] == nil {
		if next[name] = old[name]; next[name] == nil {
			next[name] = create()
		}
	}
	return next[name]
}

// continueFrom adapts the memory of an endpoint that was configured in another way.
func (p *Pool) continueFrom(next *set, was, e *endpoint) {
	switch {
	case was.RPC != e.RPC || !slices.Equal(was.Headers, e.Headers):
		e.memory.gate.open()
		e.memory.answers()
		e.memory.probeFailed.Store(false)
		e.memory.latency.Store(0)
		e.memory.chain.Store(0)
		e.memory.vouched.Store(0)
		e.memory.wrong.Store(false)
		if e.budget == nil {
			e.quota.gate.open()
		}
	case !e.memory.wrong.Load(): // what is on another chain has to be probed first
		e.memory.gate.retry()
	}
	if before, now := was.limitText(), e.limitText(); before != now {
		next.config.Logger.Info("upstream: the limit of an endpoint has changed", "pool", p.name, "upstream", e.Alias, "from", before, "to", now)
	}
}

// find returns the endpoint of an alias, or nil.
func (s *set) find(alias string) *endpoint {
	if s == nil {
		return nil
	}
	for _, e := range s.endpoints {
		if e.Alias == alias {
			return e
		}
	}
	return nil
}

// retryBudget bounds how often requests are sent again: for n requests ⌈n/10⌉ times, and at most ten times in a row
// after many requests that needed none.
type retryBudget struct {
	mu      sync.Mutex
	balance int // tenths
}

const (
	retryCost = 10
	retryMost = 10 * retryCost
)

func (b *retryBudget) request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balance = min(b.balance+1, retryMost)
}

// take reports whether a request may be sent again. The first may be on credit.
func (b *retryBudget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.balance < 1 {
		return false
	}
	b.balance -= retryCost
	return true
}

// patient returns the context of a call to the store: as for accounts, a late decision is better than one without the store.
func patient(ctx context.Context) context.Context {
	return storeapi.WithPatience(ctx, ruleset.StorePatience)
}

// do has the limiter execute a batch about endpoints' own limits.
func (p *Pool) do(ctx context.Context, b *weir.Batch) error {
	return p.engine.Limiter().Do(patient(ctx), b)
}
