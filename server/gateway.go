package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/upstream"
)

// MaxRoutes bounds the routes of a configuration, and so the series of their metrics.
const MaxRoutes = 100

// validateRoutes returns what is wrong with the routes.
func (l *Live) validateRoutes() error {
	var problems []error
	if n := len(l.Routes); n > MaxRoutes {
		problems = append(problems, fielderr.New("server", fmt.Sprintf("there are %d: at most %d fit", n, MaxRoutes), "Routes"))
	}
	names := map[string]bool{}
	for i, c := range l.Routes {
		problems = append(problems, c.Validate())
		if names[c.Pool.Name] {
			problems = append(problems, fielderr.New("server", fmt.Sprintf("%q is the name of another route", c.Pool.Name), "Routes", i, "Pool", "Name"))
		}
		names[c.Pool.Name] = true
		for j, e := range c.Pool.Endpoints {
			if e.Budget != "" && !slices.ContainsFunc(l.Budgets, func(b budget.Config) bool { return b.Name == e.Budget }) {
				problems = append(problems, fielderr.New("server", fmt.Sprintf("no budget is called %q", e.Budget), "Routes", i, "Pool", "Endpoints", j, "Budget"))
			}
		}
	}
	return errors.Join(problems...)
}

// upstreamPolicies returns the limits of the endpoints of all routes.
func (l *Live) upstreamPolicies() []*weir.Policy {
	var list []*weir.Policy
	for _, c := range l.Routes {
		list = append(list, c.Pool.Policies()...)
	}
	return list
}

// prepareRoutes checks the routes. A route outlives its configuration, so that what it has counted and learnt
// stays.
func prepareRoutes(_ *Server, next, old *state) error {
	if err := next.live.validateRoutes(); err != nil {
		return err
	}
	next.routes = make(map[string]*gateway.Route, len(next.live.Routes))
	for _, c := range next.live.Routes {
		if old != nil && old.routes[c.Pool.Name] != nil {
			next.routes[c.Pool.Name] = old.routes[c.Pool.Name]
		}
	}
	return nil
}

// commitRoutes puts the limits of a state's endpoints in force, and makes the routes that are new. Those that
// there are get their configuration from finishRoutes, so that a change which fails takes nothing from them.
func commitRoutes(s *Server, t *transaction, st *state) error {
	err := s.core.Engine.Apply(t.ctx, st.live.upstreamPolicies()...)
	if err != nil {
		return err
	}
	s.gateway.accounts = st.call.Budgets
	for _, c := range st.live.Routes {
		if st.routes[c.Pool.Name] != nil {
			continue
		}
		if st.routes[c.Pool.Name], err = gateway.Attach(s.core.Engine, s.gateway.account, s.routeConfig(c)); err != nil {
			break
		}
	}
	if err != nil && t.old != nil {
		return errors.Join(err, s.core.Engine.Apply(t.ctx, t.old.live.upstreamPolicies()...))
	}
	return err
}

// finishRoutes gives the routes their configurations. It cannot fail, because limits are in force and budgets are
// there.
func finishRoutes(s *Server, t *transaction) {
	s.gateway.accounts = t.next.call.Budgets
	for _, c := range t.next.live.Routes {
		if t.old == nil || t.old.routes[c.Pool.Name] == nil {
			continue
		}
		if err := t.next.routes[c.Pool.Name].Replace(t.ctx, s.routeConfig(c)); err != nil {
			s.cfg.Log.Error("a route keeps its old configuration", "route", c.Pool.Name, "error", err)
		}
	}
	s.gateway.probes.keep(t.next.routes)
}

// gateways is what all routes of a server share.
type gateways struct {
	transport http.RoundTripper // set once, like the next one
	base      *http.Transport   // below transport
	stall     time.Duration     // how long a caller may take for the next part of a response
	probes    probes
	accounts  map[string]*budget.Account // by name; guarded by Server.changing
}

// stop ends probes and closes connections, when all requests have ended.
func (g *gateways) stop() {
	g.probes.stop()
	g.base.CloseIdleConnections()
}

// account returns the account of a name, nil if there is none. Routes call it while they are made or replaced.
func (g *gateways) account(name string) *budget.Account { return g.accounts[name] }

// routeConfig returns the configuration of a route with what is the server's.
func (s *Server) routeConfig(c gateway.Config) gateway.Config {
	c.Logger, c.Pool.Logger, c.Pool.Transport = s.cfg.Log, s.cfg.Log, s.gateway.transport
	return c
}

// routeStats returns the statistics of all routes, by name.
func (s *Server) routeStats() []upstream.Stats {
	var list []upstream.Stats
	for _, r := range s.state.Load().routes {
		list = append(list, r.Pool().Stats())
	}
	slices.SortFunc(list, func(a, b upstream.Stats) int { return cmp.Compare(a.Pool, b.Pool) })
	return list
}

// resumeUpstream lets an endpoint of a route be tried again, if there is one.
func (s *Server) resumeUpstream(route, alias string) {
	for _, r := range s.state.Load().routes {
		if r.Name() == route {
			r.Pool().Resume(alias)
		}
	}
}

// resumeBudget lets all routes try the account of a budget again.
func (s *Server) resumeBudget(name string) {
	for _, r := range s.state.Load().routes {
		r.Pool().ResumeBudget(name)
	}
}

// gatewayPath is where routes are served.
const gatewayPath = "/gw/"

// cutRoute returns the name of the route in a path, and what comes after it.
func cutRoute(path string) (name, rest string) {
	name, rest, found := strings.Cut(strings.TrimPrefix(path, gatewayPath), "/")
	if found {
		rest = "/" + rest
	}
	return name, rest
}
