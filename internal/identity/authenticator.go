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

// Authenticator authenticates clients and operators. It is immutable except for the Throttle,
// which is shared by the Authenticators of successive configurations.
type Authenticator struct {
	Clients   *Clients
	Open      bool // clients without a token are accepted as anonymous
	Operators *Operators
	Throttle  *Throttle
}

// Refusal is the error of a failed authentication or authorization.
type Refusal struct {
	Status     int // 401, 403 or 429
	Problem    string
	RetryAfter time.Duration // if the status is 429; weir.Never if waiting does not help
	From       string        // the throttled address, if the status is 429: "192.0.2.1", an IPv6 network, or "unix"
}

func (r *Refusal) Error() string { return r.Problem }

// Write writes the refusal as an HTTP response.
func (r *Refusal) Write(w http.ResponseWriter) {
	switch r.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.FormatInt(1+int64(r.RetryAfter/time.Second), 10))
	}
	weirhttp.Problem{Status: r.Status, Detail: r.Problem}.Write(w)
}

// Credentials are what a caller presents to authenticate.
type Credentials struct {
	Token   string   // "" if there was none
	Names   []string // of a verified certificate, in the order in which they are looked up
	Address string   // the caller's host and port; anything else means a Unix socket
}

// Names returns the names in a certificate that identify a client: its DNS names, then its
// common name. Without a verified certificate there are none.
func Names(state *tls.ConnectionState) []string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	cert := state.VerifiedChains[0][0]
	return append(slices.Clip(cert.DNSNames), cert.Subject.CommonName)
}

// Authenticate returns the client with these credentials. It returns nil, nil for an anonymous
// caller that is accepted: no clients are configured, or Open is set and there is no token.
func (a *Authenticator) Authenticate(c Credentials) (*Client, *Refusal) {
	if a.Clients.Len() == 0 {
		return nil, nil
	}
	if client := a.Clients.ByCertificate(c.Names...); client != nil {
		return client, nil
	}
	if c.Token == "" && a.Open {
		return nil, nil
	}
	return lookUp(a, c, "client", a.Clients.ByToken)
}

// Client authenticates the client that sent a request. See Authenticate.
func (a *Authenticator) Client(r *http.Request) (*Client, *Refusal) {
	if a.Clients.Len() == 0 {
		return nil, nil
	}
	return a.Authenticate(Credentials{Token: Bearer(r.Header.Get("Authorization")), Names: Names(r.TLS), Address: r.RemoteAddr})
}

// Operator returns the operator who sent a request, nil if no operators are configured. It
// refuses operators who lack the scope.
func (a *Authenticator) Operator(r *http.Request, need Scope) (*Operator, *Refusal) {
	if a.Operators.Len() == 0 {
		return nil, nil
	}
	credentials := Credentials{Token: Bearer(r.Header.Get("Authorization")), Address: r.RemoteAddr}
	o, err := lookUp(a, credentials, "admin", a.Operators.ByToken)
	if err != nil {
		return nil, err
	}
	if !o.Scopes.Has(need) {
		return nil, &Refusal{Status: http.StatusForbidden, Problem: fmt.Sprintf("the token %s has the scopes %v; this needs %v", o.Name, o.Scopes, need)}
	}
	return o, nil
}

// lookUp returns the holder of a token, unless the caller's address is throttled.
func lookUp[T any](a *Authenticator, c Credentials, kind string, find func(token string) *T) (*T, *Refusal) {
	from := network(c.Address)
	if wait, blocked := a.Throttle.Blocked(from); blocked {
		return nil, &Refusal{Status: http.StatusTooManyRequests, Problem: "too many wrong tokens came from this address", RetryAfter: wait, From: from}
	}
	if c.Token == "" {
		return nil, &Refusal{Status: http.StatusUnauthorized, Problem: "a token is needed: Authorization: Bearer, and the " + kind + " token"}
	}
	if found := find(c.Token); found != nil {
		return found, nil
	}
	a.Throttle.Failed(from)
	return nil, &Refusal{Status: http.StatusUnauthorized, Problem: "unknown " + kind + " token"}
}

// Bearer returns the token in an Authorization header, "" if there is none.
func Bearer(header string) string {
	const scheme = "bearer "
	if len(header) <= len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(header[len(scheme):])
}

// network returns the part of a caller's address that is throttled: an IPv4 address, or the
// /64 network of an IPv6 address, since one host usually owns all of it.
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
