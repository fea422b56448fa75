package config

import (
	"errors"
	"reflect"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/upstream"
)

func (list *Routes) check(c *checker, root path) {
	names := c.keys(root)
	if len(names) > server.MaxRoutes {
		c.wrong(root, "there are %d: at most %d fit", len(names), server.MaxRoutes)
	}
	for _, name := range names {
		file := (*list)[name]
		r := &routeChecker{checker: c, file: &file, root: root.key(name), name: name}
		out := r.config()
		r.note(out.Validate())
		c.out.server.Live.Routes = append(c.out.server.Live.Routes, out)
	}
}

// routeChecker makes the configuration of a route, and finds the places of its problems.
type routeChecker struct {
	*checker
	file *Route
	root path // where the route is
	name string
}

// config returns the configuration of package gateway.
func (r *routeChecker) config() gateway.Config {
	f := r.file
	out := gateway.Config{MaxBody: f.MaxBody, Repeatable: f.Repeatable, Origins: f.Origins, Pool: upstream.Config{
		Name: r.name, JSONRPC: true, Chain: upstream.Chain{ID: uint64(f.Chain.ID), MaxLag: uint64(f.Chain.MaxLag)},
		MaxWait: f.MaxWait.Duration, MaxQueue: f.MaxQueue, Cooldown: f.Cooldown.Duration, Timeout: f.Timeout.Duration,
		Probe: upstream.Probe{Every: f.Probe.Every.Duration, Timeout: f.Probe.Timeout.Duration, Method: f.Probe.Method},
	}}
	if f.Strategy == Strategy(upstream.Sticky.String()) {
		out.Pool.Strategy = upstream.Sticky
	}
	for i := range f.Endpoints {
		out.Pool.Endpoints = append(out.Pool.Endpoints, r.endpoint(&f.Endpoints[i], r.root.key("upstreams").item(i)))
	}
	return out
}

// endpoint returns the endpoint at a path.
func (r *routeChecker) endpoint(u *Upstream, at path) upstream.Endpoint {
	e := upstream.Endpoint{
		Alias: u.Alias, RPC: u.RPC.Secret, WS: u.WS.Secret, Priority: u.Priority, Weight: u.Weight,
		Unselectable: !u.Selectable, Unmonitored: !u.Monitored, Limits: r.limits(u, at), Budget: u.Budget, Provider: u.Provider,
		Allow: u.Allow, Deny: u.Deny, Concurrency: u.Concurrency,
	}
	for _, name := range r.keys(at.key("headers")) {
		e.Headers = append(e.Headers, upstream.Header{Name: name, Value: u.Headers[name].Secret})
	}
	if budgets := r.keys(path{}.key("budgets")); u.Budget != "" && !slices.Contains(budgets, u.Budget) {
		r.wrong(at.key("budget"), "%s", unknown("no budget is called that", u.Budget, budgets))
	}
	return e
}

// limits returns the limits of an endpoint, without those that are wrong.
func (r *routeChecker) limits(u *Upstream, at path) []weir.Limit {
	short := upstream.Rate{PerSecond: int64(u.MaxPerSecs), PerMinute: int64(u.MaxPerMin), Aligned: u.Aligned, Smooth: u.Smooth}
	r.shorthand(u, at)
	if r.failed(at.key("limits")) || r.failed(at.key("max_per_secs")) || r.failed(at.key("max_per_min")) {
		return nil
	}
	list, from := short.Limits(), func(i int) path { return at }
	if len(u.Limits) > 0 {
		list, from = r.written(u.Limits, at.key("limits")), at.key("limits").item
	}
	if len(list) == 0 {
		return nil
	}
	var rules []ruleset.Limit
	for _, l := range list {
		rules = append(rules, ruleset.Limit{Limit: l})
	}
	_, err := ruleset.Compile([]ruleset.Policy{{Name: "upstream", Limits: rules}}, nil)
	for _, e := range fielderr.Split(err) {
		if bad, ok := errors.AsType[*ruleset.Error](e); ok && bad.Limit >= 0 {
			r.wrong(from(bad.Limit).field(bad.Field), "%s", inFiles.Replace(bad.Problem))
		} else {
			r.wrong(at, "%v", e)
		}
	}
	if err != nil {
		return nil
	}
	return list
}

// The most that can be counted by the clock: 15 and 18 bits.
const (
	maxAlignedSecond = 1<<15 - 1
	maxAlignedMinute = 1<<18 - 1
)

// shorthand checks the short form of limits.
func (r *routeChecker) shorthand(u *Upstream, at path) {
	hasShort := u.MaxPerSecs > 0 || u.MaxPerMin > 0
	switch {
	case hasShort && len(u.Limits) > 0:
		r.wrong(at.key("limits"), "max_per_secs and max_per_min are a short form of limits: set only one of them")
	case u.Aligned && !hasShort:
		r.wrong(at.key("aligned"), "is for max_per_secs and max_per_min, and none of them is set")
	case u.Smooth && u.MaxPerMin == 0:
		r.wrong(at.key("smooth"), "is for max_per_min, which is not set")
	case u.Smooth && u.Aligned:
		r.wrong(at.key("smooth"), "cannot be together with aligned, which counts minutes of the clock: leave one of them out")
	}
	if !u.Aligned {
		return
	}
	if u.MaxPerSecs > maxAlignedSecond {
		r.wrong(at.key("max_per_secs"), "%d: at most %d can be counted with aligned: true; leave that out", u.MaxPerSecs, maxAlignedSecond)
	}
	if u.MaxPerMin > maxAlignedMinute {
		r.wrong(at.key("max_per_min"), "%d: at most %d can be counted with aligned: true; leave that out", u.MaxPerMin, maxAlignedMinute)
	}
}

// written returns the limits that are written out, which have nothing of what only policies have.
func (r *routeChecker) written(list []Limit, at path) (out []weir.Limit) {
	for i := range list {
		l := &list[i]
		for _, field := range []struct {
			name string
			set  bool
		}{{"by", l.By != ""}, {"unit", l.Unit != ""}, {"mode", l.Mode.Mode != ruleset.Mode(0)}, {"hidden", l.Hidden}, {"classes", len(l.Classes) > 0}, {"pace", len(l.Pace) > 0}} {
			if field.set {
				r.wrong(at.item(i).key(field.name), "is for policies and budgets: a limit of an endpoint counts its requests")
				r.unknown[at.item(i).key(field.name).String()] = true
			}
		}
		l.Classes, l.Pace = nil, nil
	}
	for _, l := range limitsAt(r.checker, list, at) {
		out = append(out, l.Limit)
	}
	return out
}

// note notes the problems of packages gateway and upstream where they are.
func (r *routeChecker) note(err error) {
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*fielderr.Error](e)
		if !ok {
			r.wrong(r.root, "%v", e)
			continue
		}
		steps := bad.Path
		if len(steps) > 0 && steps[0] == "Pool" {
			steps = steps[1:]
		}
		at := r.pathOf(steps)
		switch {
		case len(at) == len(r.root): // the name
			r.complain(r.keyPlace(at), at, "%s", bad.Text())
		case !r.failed(at):
			r.wrong(at, "%s", bad.Text())
		}
	}
}

// pathOf returns the path of a field that package gateway or upstream names.
func (r *routeChecker) pathOf(steps []any) path {
	if len(steps) < 4 || steps[0] != "Endpoints" || steps[2] != "Headers" {
		return r.root.below(steps, reflect.TypeFor[Route]())
	}
	headers := r.root.key("upstreams").item(steps[1].(int)).key("headers")
	return headers.key(r.keys(headers)[steps[3].(int)])
}

// mayRoute refuses patterns that fit no route.
func (c *checker) mayRoute(patterns []string, at path) {
	names := c.keys(path{}.key("routes"))
	for i, p := range patterns {
		grant := server.Grants{Routes: server.Patterns{p}}
		if !slices.ContainsFunc(names, grant.MayRoute) {
			c.wrong(at.item(i), "%s", unknown("no route is called that", p, names))
		}
	}
}
