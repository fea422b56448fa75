package adminapi

import (
	"slices"

	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
	"github.com/weirlimit/weir/upstream"
)

// upstreamsPath is the path of the endpoints of all routes. Below it is the name of a route.
const upstreamsPath = "/admin/v1/upstreams"

// upstreamsAnswer is how the endpoints of routes are, and what is used of the budgets that they have.
type upstreamsAnswer struct {
	Routes  []upstream.Stats `json:"routes"`
	Budgets []budgetAnswer   `json:"budgets"`
}

// upstreams answers GET /admin/v1/upstreams.
func (a *api) upstreams(x *exchange) (any, error) { return a.upstreamsOf(x, a.routeStats()), nil }

// route answers GET /admin/v1/upstreams/{name}.
func (a *api) route(x *exchange) (any, error) {
	r, err := a.routeOf(x)
	if err != nil {
		return nil, err
	}
	return a.upstreamsOf(x, []upstream.Stats{*r}), nil
}

// routeOf returns the statistics of the route that the path names, or a problem.
func (a *api) routeOf(x *exchange) (*upstream.Stats, error) {
	for _, r := range a.routeStats() {
		if r.Pool == x.names.name {
			return &r, nil
		}
	}
	return nil, call.Errorf(call.NotFound, "no route is called %s; GET %s lists those there are", strictjson.Quote(x.names.name), upstreamsPath)
}

// resumedUpstream says how the endpoint was before.
type resumedUpstream struct {
	Route      string `json:"route"`
	Upstream   string `json:"upstream"`
	Health     string `json:"health"`
	Reason     string `json:"reason"`
	CooldownMs int64  `json:"cooldown_ms"`
}

// resumeUpstream answers POST /admin/v1/upstreams/{name}/{alias}/resume. The account of the endpoint is tried again in
// other routes, too.
func (a *api) resumeUpstream(x *exchange) (any, error) {
	r, err := a.routeOf(x)
	if err != nil {
		return nil, err
	}
	for _, e := range r.Endpoints {
		if e.Alias != x.names.alias {
			continue
		}
		if a.ResumeUpstream != nil {
			a.ResumeUpstream(r.Pool, e.Alias)
		}
		if a.ResumeBudget != nil && e.Budget != "" {
			a.ResumeBudget(e.Budget)
		}
		return resumedUpstream{Route: r.Pool, Upstream: e.Alias, Health: e.Health, Reason: e.Reason, CooldownMs: e.CooldownMs}, nil
	}
	return nil, call.Errorf(call.NotFound, "route %s has no upstream %s; GET %s/%s lists those there are", strictjson.Quote(r.Pool), strictjson.Quote(x.names.alias), upstreamsPath, r.Pool)
}

// upstreamsOf adds the budgets of routes.
func (a *api) upstreamsOf(x *exchange, routes []upstream.Stats) upstreamsAnswer {
	out := upstreamsAnswer{Routes: routes, Budgets: []budgetAnswer{}}
	for _, account := range a.accounts() {
		if slices.ContainsFunc(routes, func(r upstream.Stats) bool {
			return slices.ContainsFunc(r.Endpoints, func(e upstream.EndpointStats) bool { return e.Budget == account.Name() })
		}) {
			out.Budgets = append(out.Budgets, a.usageOf(x, account))
		}
	}
	return out
}

// routeStats returns the statistics of the routes, by name.
func (a *api) routeStats() []upstream.Stats {
	if a.Routes == nil {
		return []upstream.Stats{}
	}
	return append([]upstream.Stats{}, a.Routes()...)
}
