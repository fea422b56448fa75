package identity

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/weirhttp"
)

// Door says who may come in. It is immutable but for the Throttle, which outlives it.
type Door struct {
	Clients   *Clients
	Open      bool // clients need not prove who they are
	Operators *Operators
	Throttle  *Throttle
}

// Refusal is why somebody does not come in.
type Refusal struct {
	Status     int // 401, 403 or 429
	Problem    string
	RetryAfter time.Duration // if the status is 429
}

func (r *Refusal) Error() string { return r.Problem }

// Write answers with the refusal.
func (r *Refusal) Write(w http.ResponseWriter) {
	switch r.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.FormatInt(1+int64(r.RetryAfter/time.Second), 10))
	}
	weirhttp.Problem{Status: r.Status, Detail: r.Problem}.Write(w)
}

// Client returns who sent a request, nil if that does not matter: nobody is configured, or
// the door is open.
func (d *Door) Client(r *http.Request) (*Client, *Refusal) {
	if d.Clients.Len() == 0 {
		return nil, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert := r.TLS.VerifiedChains[0][0]
		if c := d.Clients.ByCertificate(cert.DNSNames...); c != nil {
			return c, nil
		}
		if c := d.Clients.ByCertificate(cert.Subject.CommonName); c != nil {
			return c, nil
		}
	}
	token, shown := bearer(r)
	if !shown && d.Open {
		return nil, nil
	}
	return prove(d, r, shown, "client", func() *Client { return d.Clients.ByToken(token) })
}

// Operator returns who sent a request, nil if no operators are configured. It
// refuses operators who lack the scope.
func (d *Door) Operator(r *http.Request, need Scope) (*Operator, *Refusal) {
	if d.Operators.Len() == 0 {
		return nil, nil
	}
	token, shown := bearer(r)
	o, no := prove(d, r, shown, "admin", func() *Operator { return d.Operators.ByToken(token) })
	if no != nil {
		return nil, no
	}
	if !o.Scopes.Has(need) {
		return nil, &Refusal{Status: http.StatusForbidden, Problem: fmt.Sprintf("the token %s has the scopes %v; this needs %v", o.Name, o.Scopes, need)}
	}
	return o, nil
}

// prove looks a token up, unless its sender has to wait.
func prove[T any](d *Door, r *http.Request, shown bool, kind string, find func() *T) (*T, *Refusal) {
	from := address(r)
	if wait, blocked := d.Throttle.Blocked(from); blocked {
		return nil, &Refusal{Status: http.StatusTooManyRequests, Problem: "too many wrong tokens came from this address", RetryAfter: wait}
	}
	if !shown {
		return nil, &Refusal{Status: http.StatusUnauthorized, Problem: "a token is needed: Authorization: Bearer, and the " + kind + " token"}
	}
	if found := find(); found != nil {
		return found, nil
	}
	d.Throttle.Failed(from)
	return nil, &Refusal{Status: http.StatusUnauthorized, Problem: "this is no " + kind + " token that is known here"}
}

// bearer returns the token that a request shows.
func bearer(r *http.Request) (string, bool) {
	const scheme = "bearer "
	h := r.Header.Get("Authorization")
	if len(h) <= len(scheme) || !strings.EqualFold(h[:len(scheme)], scheme) {
		return "", false
	}
	return strings.TrimSpace(h[len(scheme):]), true
}

// address returns where a request came from: of an IPv6 address the network, since whoever
// has one address there has them all.
func address(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unix"
	}
	addr := from.Addr().Unmap().WithZone("")
	if network, err := addr.Prefix(64); err == nil && addr.Is6() {
		return network.String()
	}
	return addr.String()
}
