package adminapi

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
	"github.com/weirlimit/weir/weirhttp"
)

// New returns the handler of /admin/v1.
func New(cfg Config) http.Handler {
	a := &api{Config: cfg, began: time.Now()}
	a.routes = map[string][]route{
		"/admin/v1/config":     {{method: http.MethodGet, serve: a.settings}},
		"/admin/v1/policies":   {{method: http.MethodGet, serve: a.policies}},
		"/admin/v1/keys":       {{method: http.MethodGet, params: []string{"policy", "key", "class", attributePrefix}, serve: a.inspect}},
		"/admin/v1/overrides":  {{method: http.MethodGet, serve: a.list}},
		"/admin/v1/stats":      {{method: http.MethodGet, params: []string{"top"}, serve: a.stats}},
		"/admin/v1/events":     {{method: http.MethodGet, params: []string{"policy", "denied"}, serve: a.events, stream: true}},
		"/admin/v1/keys/reset": {{method: http.MethodPost, body: &resetForm, action: "reset", serve: a.reset}},
		"/admin/v1/keys/override": {
			{method: http.MethodPut, body: &overrideForm, action: "override.set", serve: a.put},
			{method: http.MethodDelete, params: []string{"policy", "key"}, action: "override.remove", serve: a.remove},
		},
		budgetsPath:                              {{method: http.MethodGet, serve: a.budgets}},
		budgetsPath + "/{name}":                  {{method: http.MethodGet, serve: a.budget}},
		upstreamsPath:                            {{method: http.MethodGet, serve: a.upstreams}},
		upstreamsPath + "/{name}":                {{method: http.MethodGet, serve: a.route}},
		budgetsPath + "/{name}/resume":           {{method: http.MethodPost, action: "budgets.resume", serve: a.resumeBudget}},
		upstreamsPath + "/{name}/{alias}/resume": {{method: http.MethodPost, action: "upstreams.resume", serve: a.resumeUpstream}},
		"/admin/v1/guard":                        {{method: http.MethodGet, params: []string{"top"}, serve: a.guardStats}},
		"/admin/v1/guard/subject":                {{method: http.MethodGet, params: []string{"subject", "plan", "method", "path"}, serve: a.subject}},
		"/admin/v1/guard/pardon":                 {{method: http.MethodPost, body: &pardonForm, action: "guard.pardon", serve: a.pardon}},
	}
	return a
}

// api answers. All fields are set once by New.
type api struct {
	Config
	began  time.Time
	routes map[string][]route // by path
}

// A route is what a path does for a method.
type route struct {
	method string
	params []string // that the query may have
	body   *form    // nil if there is none
	action string   // what the audit log calls it; "" if it changes nothing
	stream bool     // it answers by itself, and until the caller leaves

	// serve returns what is written as JSON, nil if it has written already.
	serve func(*exchange) (any, error)
}

// exchange is one request on its way to an answer.
type exchange struct {
	w        http.ResponseWriter
	r        *http.Request
	state    *State // the same for the whole call
	operator string
	names    names             // in the path
	params   map[string]string // of the query
	req      request
}

// anonymous is the operator's name where none are configured.
const anonymous = "anonymous"

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	list, names := a.find(r)
	if list == nil {
		call.Errorf(call.NotFound, "nothing is at %s; docs/admin.md lists what there is", strictjson.Quote(r.URL.Path)).Write(w)
		return
	}
	for i := range list {
		if list[i].takes(r.Method) {
			a.answer(&exchange{w: w, r: r, state: a.State(), operator: anonymous, names: names}, &list[i])
			return
		}
	}
	methods := allow(list)
	w.Header().Set("Allow", methods)
	weirhttp.Problem{Status: http.StatusMethodNotAllowed, Detail: "this path answers " + methods + " only"}.Write(w)
}

func (rt *route) takes(method string) bool {
	return method == rt.method || method == http.MethodHead && rt.method == http.MethodGet && !rt.stream
}

// allow lists the methods of a path.
func allow(list []route) string {
	var methods []string
	for i := range list {
		methods = append(methods, list[i].method)
		if list[i].takes(http.MethodHead) {
			methods = append(methods, http.MethodHead)
		}
	}
	return strings.Join(methods, ", ")
}

// answer serves a call for whoever may make it.
func (a *api) answer(x *exchange, rt *route) {
	operator, refusal := x.state.Authenticator.Operator(x.r, 0)
	if refusal != nil {
		refusal.Write(x.w)
		return
	}
	if operator != nil {
		x.operator = operator.Name
	}
	answer, err := a.serve(x, rt)
	var body []byte
	if err == nil && answer != nil {
		body, err = json.Marshal(answer)
	}
	problem := x.problem(err)
	if rt.action != "" {
		a.audit(x, rt.action, problem)
	}
	if problem == failed {
		a.Log.Error("admin call failed", "path", x.r.URL.Path, "error", err)
	}
	switch {
	case problem != nil:
		problem.Write(x.w)
	case body != nil:
		x.w.Header().Set("Content-Type", "application/json")
		x.w.Write(append(body, '\n')) // an error means that the caller is gone
	}
}

// serve carries a call out if its sender has the scope. The request is read before that is checked, so
// that the audit log can tell what was tried.
func (a *api) serve(x *exchange, rt *route) (any, error) {
	wrong := x.decode(rt)
	need := identity.Read
	if rt.action != "" {
		need = identity.Write
	}
	if _, err := x.state.Authenticator.Operator(x.r, need); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	return rt.serve(x)
}

// failed answers an error that is not the caller's mistake.
var failed = call.Errorf(call.Unavailable, "the call failed; the daemon's log says why")

// problem returns how an error is answered, nil if there is none.
func (x *exchange) problem(err error) *call.Error {
	if bad, ok := errors.AsType[*call.Error](err); ok {
		return bad
	}
	if refusal, ok := errors.AsType[*identity.Refusal](err); ok {
		return call.Refused(refusal)
	}
	switch {
	case err == nil:
		return nil
	case x.r.Context().Err() != nil: // the caller left; nobody is to blame and nobody reads this
		return call.Errorf(call.Canceled, "the request was canceled")
	}
	return failed
}

// audit notes a change, or that one was tried. The values are quoted by slog.
func (a *api) audit(x *exchange, action string, problem *call.Error) {
	status, level := http.StatusOK, slog.LevelInfo
	if problem != nil {
		status, level = problem.Status(), slog.LevelWarn
	}
	a.Log.LogAttrs(x.r.Context(), level, "audit",
		slog.String("operator", x.operator), slog.String("remote", x.r.RemoteAddr), slog.String("action", action),
		slog.String("policy", strictjson.Clip(x.req.policy)), slog.String("key", x.req.key),
		slog.String("outcome", outcome(status)), slog.Int("status", status))
}

// outcome says in a word what became of a change.
func outcome(status int) string {
	switch {
	case status == http.StatusOK:
		return "done"
	case status == http.StatusForbidden || status == http.StatusTooManyRequests:
		return "refused"
	case status < http.StatusInternalServerError:
		return "invalid"
	}
	return "failed" // it may have been carried out
}
