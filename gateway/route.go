package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/upstream"
)

// Route is an http.Handler that sends requests to a pool of endpoints. All methods may be called by any number of
// goroutines.
//
// The class of work of a request is that of its context, see budget.WithClass.
type Route struct {
	pool  *upstream.Pool
	proxy *httputil.ReverseProxy
}

// New returns a route whose limits and budgets are those of l.
func New(l weir.Limiter, c Config, accounts ...budget.Config) (*Route, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	pool, err := upstream.New(l, c.Pool, accounts...)
	if err != nil {
		return nil, err
	}
	return newRoute(pool, c), nil
}

// Attach returns a route that charges an engine, as upstream.Attach does.
func Attach(engine *ruleset.Engine, accounts func(name string) *budget.Account, c Config) (*Route, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	pool, err := upstream.Attach(engine, accounts, c.Pool)
	if err != nil {
		return nil, err
	}
	return newRoute(pool, c), nil
}

func newRoute(pool *upstream.Pool, c Config) *Route {
	r := &Route{pool: pool}
	r.proxy = &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: r}
	return r
}

// Name returns the route's name.
func (r *Route) Name() string { return r.pool.Name() }

// Pool returns the pool that requests are sent to.
func (r *Route) Pool() *upstream.Pool { return r.pool }

// Run probes the endpoints until ctx ends.
func (r *Route) Run(ctx context.Context) { r.pool.Run(ctx) }

// Replace gives the route another configuration, or returns an error and changes nothing. Calls in flight end as they
// began, and what was used stays used.
func (r *Route) Replace(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return r.pool.Replace(ctx, c.Pool)
}

// ServeHTTP serves a request whose path is what comes after the route's name.
func (r *Route) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.proxy.ServeHTTP(w, req) }

// RoundTrip sends a request to the pool.
func (r *Route) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	parsed, err := jsonrpc.Parse(body)
	if err != nil {
		return nil, err
	}
	c := &upstream.Call{Class: budget.ClassOf(req.Context()), Repeatable: true, Began: began}
	for _, each := range parsed.Calls {
		c.Methods = append(c.Methods, each.Method)
		c.Repeatable = c.Repeatable && upstream.IsRepeatable(each.Method, nil)
	}
	req.URL = &url.URL{}
	reply, err := r.pool.Send(req, c)
	if err != nil {
		return nil, err
	}
	return reply.Response, nil
}
