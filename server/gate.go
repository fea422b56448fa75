package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/weirhttp"
)

// gate is the outermost handler of a listener. It rejects CONNECT, requests of browsers for
// unknown host names, and cross-origin requests, and applies the rules of routes.
type gate struct {
	origin *http.CrossOriginProtection
	names  func() []string            // the accepted host names; called for each request
	known  func(r *http.Request) bool // reports whether a request is authenticated
	routes []route                    // the first one that fits is used
	next   http.Handler               // for all others
}

func (s *Server) newGate(next http.Handler, routes ...route) *gate {
	return &gate{
		origin: http.NewCrossOriginProtection(), routes: routes, next: next,
		names: func() []string { return s.state.Load().live.Hosts },
		known: func(r *http.Request) bool { return isKnown(s.state.Load().http.Authenticator, credentialsOf(r)) },
	}
}

// nosniff is shared by all responses and must not be modified.
var nosniff = []string{"nosniff"}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-Content-Type-Options"] = nosniff
	if r.Method == http.MethodConnect { // weir is no proxy, and the bytes after a CONNECT are not HTTP
		w.Header().Set("Allow", "GET, HEAD, POST")
		w.Header().Set("Connection", "close")
		writeProblem(w, http.StatusMethodNotAllowed, "weir is no proxy: CONNECT is not answered")
		return
	}
	rt := g.find(r.URL.Path)
	if !rt.anyHost && !isOwnHost(r.Host, g.names) && couldBeBrowser(r) && !g.known(r) {
		writeProblem(w, http.StatusMisdirectedRequest, misdirected(r.Host))
		return
	}
	if !rt.anyOrigin && g.origin.Check(r) != nil {
		writeProblem(w, http.StatusForbidden, "pages of another origin may not call weir")
		return
	}
	rt.serve(g.next, w, r)
}

// misdirected says what to do if a browser used a name that is not configured.
func misdirected(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return fmt.Sprintf("%.80q is not a name of this server, so a browser may not use it: "+
		"add the name to hosts in the configuration (hosts: [%.80q]), use localhost or an IP address, or send a token", host, name)
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	weirhttp.Problem{Status: status, Detail: detail}.Write(w)
}

// couldBeBrowser reports whether a page in a browser could have sent a request. A page whose name
// was made to resolve to this server's address (DNS rebinding) is of the same origin, so it can set
// most headers, and over plain HTTP there are no Sec-Fetch headers. But no page can keep its browser
// from sending one of these headers, also not in old browsers. Other clients send none of them, but
// for the fetch of Node.js: it sends Sec-Fetch-Mode without Sec-Fetch-Site, which no browser does
// and no page can do.
func couldBeBrowser(r *http.Request) bool {
	if r.Header["Sec-Fetch-Mode"] != nil && r.Header["Sec-Fetch-Site"] == nil {
		return false
	}
	for _, name := range []string{"Accept-Language", "Cookie", "Origin", "Referer", "Sec-Fetch-Site", "Upgrade-Insecure-Requests"} {
		if r.Header[name] != nil {
			return true
		}
	}
	return strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// isOwnHost reports whether a Host header names this server: localhost, an IP address, or a
// configured name.
func isOwnHost(host string, names func() []string) bool {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if !isPort(port) {
			return false
		}
		name = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Zone() == ""
	}
	name = strings.TrimSuffix(name, ".")
	return slices.ContainsFunc(names(), func(pattern string) bool { return matchesHost(pattern, name) })
}

// matchesHost reports whether a name is the pattern, or below it if that begins with "*.".
func matchesHost(pattern, name string) bool {
	if !strings.HasPrefix(pattern, "*.") {
		return strings.EqualFold(pattern, name)
	}
	suffix := pattern[1:]
	at := len(name) - len(suffix)
	return at > 0 && strings.EqualFold(name[at:], suffix)
}

func isPort(port string) bool {
	return len(port) <= 5 && strings.Trim(port, "0123456789") == ""
}

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
