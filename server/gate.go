package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/weirhttp"
)

// gate is the outermost handler of a listener. It rejects CONNECT, unknown host names and
// cross-origin requests.
type gate struct {
	origin *http.CrossOriginProtection
	names  func() []string // the accepted host names; called for each request
	next   http.Handler
}

func newGate(names func() []string, next http.Handler) *gate {
	return &gate{origin: http.NewCrossOriginProtection(), names: names, next: next}
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
	if !isOwnHost(r.Host, g.names) {
		writeProblem(w, http.StatusMisdirectedRequest, fmt.Sprintf(
			"the Host header %.80q is no name of this server; use localhost or an address, or add the name to hosts: in the configuration", r.Host))
		return
	}
	if err := g.origin.Check(r); err != nil {
		writeProblem(w, http.StatusForbidden, "pages of another origin may not call weir")
		return
	}
	g.next.ServeHTTP(w, r)
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	weirhttp.Problem{Status: status, Detail: detail}.Write(w)
}

// isOwnHost reports whether a Host header names this server. A page whose name was made to
// resolve to this server's address (DNS rebinding) sends that name, so only localhost,
// configured names and IP addresses are accepted.
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
	return slices.ContainsFunc(names(), func(n string) bool { return strings.EqualFold(n, name) })
}

func isPort(port string) bool {
	return len(port) <= 5 && strings.Trim(port, "0123456789") == ""
}
