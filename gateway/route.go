package gateway

import (
	"cmp"
	"context"
	"log"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

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
	pool     *upstream.Pool
	settings atomic.Pointer[settings]
	changing sync.Mutex // held while settings change
	room     room
	logged   atomic.Int64 // when undecided has logged something, in Unix nanoseconds
}

// settings are what a route itself needs of a configuration. They never change.
type settings struct {
	maxBody    int64
	repeatable []string
	origins    origins
	filters    filters
	quotas     quotas
	logger     *slog.Logger
	errorLog   *log.Logger // the same for the proxy: responses that end before their end
}

func newSettings(c Config) *settings {
	logger := cmp.Or(c.Logger, slog.Default())
	return &settings{
		maxBody: cmp.Or(c.MaxBody, jsonrpc.MaxRequest), repeatable: c.Repeatable, origins: newOrigins(c.Origins),
		filters: newFilters(c.Pool), logger: logger,
		errorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
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
	r.settings.Store(newSettings(c))
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
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.pool.Replace(ctx, c.Pool); err != nil {
		return err
	}
	r.settings.Store(newSettings(c))
	return nil
}

var _ http.Handler = (*Route)(nil)
