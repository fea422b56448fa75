package server

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
	"github.com/weirlimit/weir/upstream"
)

// classHeader is the header with the class of work of a request to a route.
const classHeader = "Weir-Class"

// routeHandler serves the routes of the gateway. Each request uses one state.
type routeHandler struct {
	server *Server
	origin *http.CrossOriginProtection
}

func (s *Server) newRouteHandler() http.Handler {
	h := &routeHandler{server: s, origin: http.NewCrossOriginProtection()}
	return s.tracer.Relay(h, func(*http.Request) tracing.Call { return tracing.Call{Route: gatewayPath + "{route}"} })
}

func (h *routeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.TransferEncoding) > 0 { // net/http does not say if there was a Content-Length, too, about which a proxy in front may think otherwise
		w.Header().Set("Connection", "close")
	}
	st := h.server.state.Load()
	name, rest := cutRoute(r.URL.Path)
	route, config := st.routes[name], st.routeConfig(name)
	if h.origin.Check(r) != nil && !allowsOrigin(config, r.Header.Get("Origin")) {
		writeProblem(w, http.StatusForbidden, "pages of this origin may not call the route: origins of its configuration lists those that may")
		return
	}
	if route != nil && isPreflight(r) { // which has no credentials, and sends nothing
		h.pass(w, r, route, rest)
		return
	}
	caller, err := h.server.core.HTTP(st.call, r)
	if err != nil {
		err.Write(w)
		return
	}
	if err := caller.MayUseRoute(name); err != nil {
		err.Write(w)
		return
	}
	if route == nil {
		call.Errorf(call.NotFound, "no route is called %s; GET /admin/v1/upstreams lists those there are", strictjson.Quote(name)).Write(w)
		return
	}
	class, err := caller.RouteClass(classesOf(st, config), r.Header.Values(classHeader))
	if err != nil {
		err.Write(w)
		return
	}
	h.server.tracer.SpanOf(r.Context()).Text("weir.route", name)
	ctx := budget.WithClass(r.Context(), class)
	if st.call.Authenticator.Clients.Len() > 1 {
		ctx = upstream.WithClient(ctx, caller.Name())
	}
	h.pass(w, r.WithContext(ctx), route, rest)
}

// pass sends a request to a route, without what is this server's.
func (h *routeHandler) pass(w http.ResponseWriter, r *http.Request, route *gateway.Route, rest string) {
	out := r.Clone(r.Context())
	out.URL.Path, out.URL.RawPath = rest, ""
	out.Header.Del("Authorization")
	out.Header.Del(classHeader)
	route.ServeHTTP(&patientWriter{w, http.NewResponseController(w), h.server.gateway.stall}, out)
}

// defaultStall is how long a caller may take for the next part of a response.
const defaultStall = 30 * time.Second

// patientWriter is for responses that may take any time, as long as the caller reads them.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// Write gives the caller some time to read what is written before.
func (w *patientWriter) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall)) // a connection without deadlines has none
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// isPreflight reports whether a browser asks whether a page may send a request (CORS).
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// allowsOrigin reports whether pages of an origin may call a route. None may call one that there is not.
func allowsOrigin(c *gateway.Config, origin string) bool {
	return c != nil && slices.ContainsFunc(c.Origins, func(o string) bool { return o == "*" || strings.EqualFold(o, origin) })
}

// routeConfig returns the configuration of a route, nil if there is no such route.
func (st *state) routeConfig(name string) *gateway.Config {
	i := slices.IndexFunc(st.live.Routes, func(c gateway.Config) bool { return c.Pool.Name == name })
	if i < 0 {
		return nil
	}
	return &st.live.Routes[i]
}

// classesOf returns the classes of the budgets of a route, in their order.
func classesOf(st *state, c *gateway.Config) (classes []string) {
	var budgets []string
	for _, e := range c.Pool.Endpoints {
		if rule := st.call.Rules.Rule(e.Budget); rule != nil && !slices.Contains(budgets, e.Budget) {
			budgets = append(budgets, e.Budget)
			for _, class := range rule.Classes() {
				if !slices.Contains(classes, class) {
					classes = append(classes, class)
				}
			}
		}
	}
	return classes
}

// tracedTransport makes a span for each request that is sent to an endpoint.
type tracedTransport struct {
	base   http.RoundTripper
	tracer *tracing.Tracer
}

func (t *tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // the span's context is set in its header
	r, span := t.tracer.Client(r)
	defer span.End()
	response, err := t.base.RoundTrip(r)
	span.Result(response, err)
	return response, err
}

// newUpstreamTransport returns what sends requests to endpoints.
func newUpstreamTransport(tracer *tracing.Tracer) (http.RoundTripper, *http.Transport) {
	base := upstream.NewTransport()
	if tracer == nil {
		return base, base
	}
	return &tracedTransport{base, tracer}, base
}
