package server

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// A route has the rules for requests below a path. The zero value has those for short calls: the
// server's timeouts, no pages of other origins, and time to finish while the server stops.
type route struct {
	prefix  string
	handler http.Handler // nil means the listener's

	// read and write, if not 0, replace the timeouts of the request's body and of the response.
	// unlimited means that there is none.
	read, write time.Duration

	// stopping, if set, is canceled when requests must end, which is when the server begins to
	// stop or some time after that. It is for responses that do not end by themselves.
	stopping context.Context

	anyOrigin bool // the handler checks the Origin header: for CORS and WebSockets
	anyHost   bool // the Host header is not checked
}

// unlimited is no timeout.
const unlimited time.Duration = -1

// noRoute has the rules of paths without a route.
var noRoute route

// find returns the route of a path.
func (g *gate) find(path string) *route {
	for i := range g.routes {
		if strings.HasPrefix(path, g.routes[i].prefix) {
			return &g.routes[i]
		}
	}
	return &noRoute
}

// serve answers a request by the route's rules. Where a connection cannot have deadlines, it has
// none.
func (rt *route) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if rt.handler != nil {
		next = rt.handler
	}
	if rt.read != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(deadlineIn(rt.read))
	}
	if rt.write != 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(deadlineIn(rt.write))
	}
	if rt.stopping != nil {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(rt.stopping, cancel)()
		r = r.WithContext(ctx)
	}
	next.ServeHTTP(w, r)
}

func deadlineIn(d time.Duration) time.Time {
	if d == unlimited {
		return time.Time{}
	}
	return time.Now().Add(d)
}
