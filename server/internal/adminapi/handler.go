package adminapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// New returns the handler of /admin/v1.
func New(cfg Config) http.Handler {
	a := &api{Config: cfg, began: time.Now()}
	a.routes = map[string][]route{
		"/admin/v1/config":     {{method: http.MethodGet, need: identity.Read, serve: a.settings}},
		"/admin/v1/policies":   {{method: http.MethodGet, need: identity.Read, serve: a.policies}},
		"/admin/v1/keys":       {{method: http.MethodGet, need: identity.Read, serve: a.inspect}},
		"/admin/v1/overrides":  {{method: http.MethodGet, need: identity.Read, serve: a.list}},
		"/admin/v1/stats":      {{method: http.MethodGet, need: identity.Read, serve: a.stats}},
		"/admin/v1/events":     {{method: http.MethodGet, need: identity.Read, serve: a.events, stream: true}},
		"/admin/v1/keys/reset": {{method: http.MethodPost, need: identity.Write, action: "reset", decode: decodeReset, serve: a.reset}},
		"/admin/v1/keys/override": {
			{method: http.MethodPut, need: identity.Write, action: "override.set", decode: decodePut, serve: a.put},
			{method: http.MethodDelete, need: identity.Write, action: "override.remove", decode: decodeRemove, serve: a.remove},
		},
		"/admin/v1/guard":         {{method: http.MethodGet, need: identity.Read, serve: a.guardStats}},
		"/admin/v1/guard/subject": {{method: http.MethodGet, need: identity.Read, serve: a.subject}},
		"/admin/v1/guard/pardon":  {{method: http.MethodPost, need: identity.Write, action: "guard.pardon", decode: decodePardon, serve: a.pardon}},
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
	need   identity.Scope
	action string // what the audit log calls it; "" if it changes nothing
	stream bool   // it answers by itself, and until the caller leaves

	// decode, if set, fills in call.req. It is called before the scope is checked, so
	// that the audit log can tell what was tried.
	decode func(*call) error

	// serve returns what is written as JSON, or an error for finish.
	serve func(*call) (any, error)
}

// call is one request on its way to an answer.
type call struct {
	w        http.ResponseWriter
	r        *http.Request
	state    *State // the same for the whole call
	operator string
	req      request
}

// anonymous is the operator's name where none are configured.
const anonymous = "anonymous"

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	list := a.routes[r.URL.Path]
	if list == nil {
		problemf(http.StatusNotFound, "nothing is at %s; docs/admin.md lists what there is", strictjson.Quote(r.URL.Path)).Write(w)
		return
	}
	for i := range list {
		if list[i].takes(r.Method) {
			a.answer(&call{w: w, r: r, state: a.State(), operator: anonymous}, &list[i])
			return
		}
	}
	methods := allow(list)
	w.Header().Set("Allow", methods)
	problemf(http.StatusMethodNotAllowed, "this path answers %s only", methods).Write(w)
}

func (rt *route) takes(method string) bool {
	return method == rt.method || method == http.MethodHead && rt.method == http.MethodGet && !rt.stream
}

// allow lists the methods of a path.
func allow(list []route) string {
	var methods []string
	for i := range list {
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if list[i].takes(m) {
				methods = append(methods, m)
			}
		}
	}
	return strings.Join(methods, ", ")
}

// answer serves a call for whoever may make it.
func (a *api) answer(c *call, rt *route) {
	operator, refusal := c.state.Authenticator.Operator(c.r, 0)
	if refusal != nil {
		refusal.Write(c.w)
		return
	}
	if operator != nil {
		c.operator = operator.Name
	}
	answer, err := a.serve(c, rt)
	if rt.action != "" {
		a.audit(c, rt.action, err)
	}
	a.finish(c, answer, err)
}

// serve carries a call out if its sender has the scope.
func (a *api) serve(c *call, rt *route) (any, error) {
	var wrong error
	if rt.decode != nil {
		wrong = rt.decode(c)
	}
	if _, err := c.state.Authenticator.Operator(c.r, rt.need); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	return rt.serve(c)
}
