package adminapi

import (
	"slices"

	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
	"github.com/weirlimit/weir/upstream"
)

// upstreamsPath is the path of the endpoints of all routes. Below it, the rest of a path is the name of a route.
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
	for _, r := range a.routeStats() {
		if r.Pool == x.name {
			return a.upstreamsOf(x, []upstream.Stats{r}), nil
		}
	}
	return nil, call.Errorf(call.NotFound, "no route is called %s; GET %s lists those there are", strictjson.Quote(x.name), upstreamsPath)
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
