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

// Authenticator authenticates clients and operators. It is immutable except for the Failures,
// which are shared by the Authenticators of successive configurations.
type Authenticator struct {
	Clients   *Clients
	Open      bool // clients without a token are accepted as anonymous
	Operators *Operators
	Failures  *Failures
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
	Name    string   // the client that the caller claims to be; "" if it did not say
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
	if client, ok := a.Find(c); ok {
		return client, nil
	}
	return nil, a.Refuse(c)
}

// Find is Authenticate for a look without consequences: a failure is not recorded.
func (a *Authenticator) Find(c Credentials) (client *Client, ok bool) {
	if a.Clients.Len() == 0 {
		return nil, true
	}
	if client := a.Clients.ByCertificate(c.Names...); client != nil {
		return client, true
	}
	if c.Token == "" {
		return nil, a.Open
	}
	client = a.Clients.ByToken(c.Token)
	if client == nil || c.Name != "" && c.Name != client.Name {
		return nil, false
	}
	return client, true
}

// Refuse records that a client with these credentials is refused, and returns the refusal.
func (a *Authenticator) Refuse(c Credentials) *Refusal { return a.refuse(clientKind, c) }

// MayPolicy reports whether a client, nil for an anonymous caller, may use a policy. It records if
// not.
func (a *Authenticator) MayPolicy(c *Client, name string) bool {
	return c == nil || a.granted(c, c.Grants.MayPolicy(name))
}

// MayDomain is MayPolicy for a domain of Envoy's rate limit service.
func (a *Authenticator) MayDomain(c *Client, name string) bool {
	return c == nil || a.granted(c, c.Grants.MayDomain(name))
}

// MayRoute is MayPolicy for a route of the gateway.
func (a *Authenticator) MayRoute(c *Client, name string) bool {
	return c == nil || a.granted(c, c.Grants.MayRoute(name))
}

// MayClass is MayPolicy for a class of a policy.
func (a *Authenticator) MayClass(c *Client, name string) bool {
	return c == nil || a.granted(c, c.Grants.MayClass(name))
}

// MayGuard is MayPolicy for the guard.
func (a *Authenticator) MayGuard(c *Client) bool {
	return c == nil || a.granted(c, c.Grants.MayGuard())
}

func (a *Authenticator) granted(c *Client, ok bool) bool {
	if !ok {
		a.Failures.record(clientKind, forbidden, "")
	}
	return ok
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
	o := a.Operators.ByToken(credentials.Token)
	if o == nil {
		return nil, a.refuse(adminKind, credentials)
	}
	if !o.Scopes.Has(need) {
		a.Failures.record(adminKind, forbidden, r.RemoteAddr)
		return nil, &Refusal{Status: http.StatusForbidden, Problem: fmt.Sprintf("the token %s has the scopes %v; this needs %v", o.Name, o.Scopes, need)}
	}
	return o, nil
}

// refuse records credentials that nobody has. A caller is throttled only here, after the lookup, so a
// valid token is never refused for what others at its address send. Throttling before it would not
// slow down guessing of 32-byte tokens any further, since a lookup costs one SHA-256.
func (a *Authenticator) refuse(k kind, c Credentials) *Refusal {
	if c.Token == "" {
		a.Failures.record(k, missing, c.Address)
		return &Refusal{Status: http.StatusUnauthorized, Problem: "missing " + kindNames[k] + " token: send the header Authorization: Bearer TOKEN"}
	}
	if wait := a.Failures.record(k, unknown, c.Address); wait > 0 {
		return &Refusal{Status: http.StatusTooManyRequests, Problem: "too many wrong tokens came from this address", RetryAfter: wait, From: network(c.Address)}
	}
	return &Refusal{Status: http.StatusUnauthorized, Problem: "unknown " + kindNames[k] + " token"}
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
