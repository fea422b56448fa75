package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// gate stands before all paths and turns away what no path should see.
type gate struct {
	origin *http.CrossOriginProtection
	next   http.Handler
}

func newGate(next http.Handler) *gate {
	return &gate{origin: http.NewCrossOriginProtection(), next: next}
}

// Header values that are the same in every answer. They are shared, so nobody
// may append to them.
var (
	nosniff     = []string{"nosniff"}
	contentJSON = []string{"application/json"}
)

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-Content-Type-Options"] = nosniff
	if r.Method == http.MethodConnect { // this is no proxy, and what follows a CONNECT is not HTTP
		w.Header().Set("Allow", "GET, HEAD, POST")
		w.Header().Set("Connection", "close")
		writeProblem(w, http.StatusMethodNotAllowed, "weir is no proxy: CONNECT is not answered")
		return
	}
	if !isLoopbackHost(r.Host) {
		writeProblem(w, http.StatusMisdirectedRequest, "the Host header "+quote(r.Host)+
			" is not this machine's loopback; use localhost, 127.0.0.1 or [::1]")
		return
	}
	if err := g.origin.Check(r); err != nil {
		writeProblem(w, http.StatusForbidden, "pages of another origin may not call weir")
		return
	}
	g.next.ServeHTTP(w, r)
}

// isLoopbackHost says whether a Host header names loopback. A page that had its
// own name pointed at 127.0.0.1 (DNS rebinding) sends that name, so names other
// than localhost are refused; an address cannot be pointed anywhere.
func isLoopbackHost(host string) bool {
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
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback() && addr.Zone() == ""
}

func isPort(port string) bool {
	return len(port) <= 5 && strings.Trim(port, "0123456789") == ""
}
