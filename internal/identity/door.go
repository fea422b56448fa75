package identity

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
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
	RetryAfter time.Duration // if the status is 429; weir.Never if waiting does not help
	From       string        // who has to wait, if the status is 429: "192.0.2.1", a network of IPv6, or "unix"
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

// Shown is what somebody shows who wants to come in.
type Shown struct {
	Token   string   // "" if there was none
	Names   []string // in a certificate that was verified, the one that counts first
	Address string   // host and port where it came from; anything else means this machine
}

// Names returns the names in a certificate that prove a client: its DNS names, then its
// common name. Without a certificate that was verified there are none.
func Names(state *tls.ConnectionState) []string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	cert := state.VerifiedChains[0][0]
	return append(slices.Clip(cert.DNSNames), cert.Subject.CommonName)
}

// Who returns who shows something, nil if that does not matter: nobody is configured, or
// the door is open.
func (d *Door) Who(s Shown) (*Client, *Refusal) {
	if d.Clients.Len() == 0 {
		return nil, nil
	}
	if c := d.Clients.ByCertificate(s.Names...); c != nil {
		return c, nil
	}
	if s.Token == "" && d.Open {
		return nil, nil
	}
	return prove(d, s, "client", d.Clients.ByToken)
}

// Client is Who for a request.
func (d *Door) Client(r *http.Request) (*Client, *Refusal) {
	if d.Clients.Len() == 0 {
		return nil, nil
	}
	return d.Who(Shown{Token: Bearer(r.Header.Get("Authorization")), Names: Names(r.TLS), Address: r.RemoteAddr})
}

// Operator returns who sent a request, nil if no operators are configured. It
// refuses operators who lack the scope.
func (d *Door) Operator(r *http.Request, need Scope) (*Operator, *Refusal) {
	if d.Operators.Len() == 0 {
		return nil, nil
	}
	shown := Shown{Token: Bearer(r.Header.Get("Authorization")), Address: r.RemoteAddr}
	o, no := prove(d, shown, "admin", d.Operators.ByToken)
	if no != nil {
		return nil, no
	}
	if !o.Scopes.Has(need) {
		return nil, &Refusal{Status: http.StatusForbidden, Problem: fmt.Sprintf("the token %s has the scopes %v; this needs %v", o.Name, o.Scopes, need)}
	}
	return o, nil
}

// prove looks a token up, unless its sender has to wait.
func prove[T any](d *Door, s Shown, kind string, find func(token string) *T) (*T, *Refusal) {
	from := network(s.Address)
	if wait, blocked := d.Throttle.Blocked(from); blocked {
		return nil, &Refusal{Status: http.StatusTooManyRequests, Problem: "too many wrong tokens came from this address", RetryAfter: wait, From: from}
	}
	if s.Token == "" {
		return nil, &Refusal{Status: http.StatusUnauthorized, Problem: "a token is needed: Authorization: Bearer, and the " + kind + " token"}
	}
	if found := find(s.Token); found != nil {
		return found, nil
	}
	d.Throttle.Failed(from)
	return nil, &Refusal{Status: http.StatusUnauthorized, Problem: "this is no " + kind + " token that is known here"}
}

// Bearer returns the token in an Authorization header, "" if there is none.
func Bearer(header string) string {
	const scheme = "bearer "
	if len(header) <= len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(header[len(scheme):])
}

// network returns where somebody came from: of an IPv6 address the network, since whoever
// has one address there has them all.
func network(address string) string {
	from, err := netip.ParseAddrPort(address)
	if err != nil {
		return "unix"
	}
	addr := from.Addr().Unmap().WithZone("")
	if network, err := addr.Prefix(64); err == nil && addr.Is6() {
		return network.String()
	}
	return addr.String()
}
