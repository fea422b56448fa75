package call

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
)

// An AdmitQuery is a request that a client of the daemon describes: it vouches for the address and for who is
// authenticated.
type AdmitQuery struct {
	Method, Path string
	Address      string
	Principal    string
	Plan         string
	APIKey       string
	Cost         int64 // 0 is that of the endpoint
	Attributes   []ruleset.Attribute
}

// An AdmitAnswer is the decision on an AdmitQuery.
type AdmitAnswer struct {
	guard.Verdict
	Ticket Ticket
}

// maxAttributes is how many attributes a request may have.
const maxAttributes = 16

// AdmitQuery decides a request for a client that will tell its outcome with Finish.
func (c *Core) AdmitQuery(ctx context.Context, caller Caller, q *AdmitQuery) (out AdmitAnswer, bad *Error) {
	g, bad := caller.MayGuard()
	if bad != nil {
		return out, bad
	}
	a := Admission{Later: true, Request: guard.Request{Method: q.Method, Cost: q.Cost, Attributes: q.Attributes}}
	if bad := q.check(); bad != nil {
		return out, bad
	}
	if a.Path, bad = endpointPath(q.Path); bad != nil {
		return out, bad
	}
	if a.Address, bad = address(q.Address); bad != nil {
		return out, bad
	}
	if q.Principal != "" {
		s := guard.User(q.Principal)
		s.Plan = q.Plan
		ctx = guard.WithSubject(ctx, s)
	}
	if q.APIKey != "" {
		a.Credentials.Header = http.Header{g.KeyHeader: {q.APIKey}}
	}
	out.Verdict, out.Ticket, bad = c.Admit(ctx, caller, g, &a)
	return out, bad
}

// check returns what is wrong with the fields that are taken as they are.
func (q *AdmitQuery) check() *Error {
	switch {
	case q.Path == "":
		return Invalid(`"path" is missing: the path of the request, its procedure, or its method of JSON-RPC`)
	case q.Plan != "" && q.Principal == "":
		return Invalid(`"plan" is that of a principal, and there is none`)
	case q.Cost < 0 || q.Cost > weir.MaxCost:
		return Invalid(`"cost" must be between 1 and %d, or 0 for that of the endpoint`, weir.MaxCost)
	case len(q.Attributes) > maxAttributes:
		return Invalid(`"attributes" may have %d entries`, maxAttributes)
	}
	for _, a := range q.Attributes {
		if storeapi.CheckKey(a.Value) != nil {
			return Invalid(`a value of "attributes" has %d bytes: at most %d fit; hash longer ones`, len(a.Value), weir.MaxKeyBytes)
		}
	}
	return nil
}

// endpointPath returns the path of a URI, or a method of JSON-RPC as it is.
func endpointPath(text string) (string, *Error) {
	if !strings.HasPrefix(text, "/") {
		return text, nil
	}
	u, err := url.ParseRequestURI(text)
	if err != nil {
		return "", Invalid(`"path" is no path`)
	}
	return guard.RequestPath(u), nil
}

// address returns the address that a text is, the zero Addr of "".
func address(text string) (netip.Addr, *Error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, Invalid(`"address" must be an IP address without a port`)
	}
	return addr.WithZone(""), nil
}

// FinishQuery settles a ticket. Cost is nil if it is as reserved.
func (c *Core) FinishQuery(ctx context.Context, caller Caller, id string, failed bool, cost *int64) (weir.Settled, *Error) {
	g, bad := caller.MayGuard()
	if bad != nil {
		return weir.Settled{}, bad
	}
	used := int64(-1)
	if cost != nil {
		used = *cost
	}
	switch {
	case id == "":
		return weir.Settled{}, Invalid(`"ticket" is missing: what Admit returned`)
	case cost != nil && (used < 0 || used > weir.MaxCost):
		return weir.Settled{}, Invalid(`"cost" must be between 0 and %d`, weir.MaxCost)
	}
	settled, bad := c.Finish(ctx, caller, g, id, failed, used)
	if bad != nil && bad.Field == "id" {
		bad.Field, bad.Problem = "ticket", "is no ticket of this client: it is what Admit returned"
	}
	return settled, bad
}

// QuotasQuery returns what a subject has left at an endpoint, or at all if the path is "".
func (c *Core) QuotasQuery(ctx context.Context, caller Caller, s guard.Subject, method, path string) ([]guard.Quota, *Error) {
	g, bad := caller.MayGuard()
	if bad != nil {
		return nil, bad
	}
	switch {
	case s.Key == "":
		return nil, Invalid(`"subject" is missing, such as user:alice or ip:192.0.2.1`)
	case storeapi.CheckKey(s.Key) != nil:
		return nil, Invalid(`"subject" has %d bytes: at most %d fit`, len(s.Key), weir.MaxKeyBytes)
	}
	if path, bad = endpointPath(path); bad != nil {
		return nil, bad
	}
	list, err := g.Guard.Quotas(ctx, s, method, path)
	if err != nil {
		return nil, c.Undecided(ctx, "", err)
	}
	return list, nil
}

// Policy returns the policy that decided.
func (a *AdmitAnswer) Policy() string { return a.Endpoint }

// LimitedBy returns the name of the limit that refused, "" if none did.
func (a *AdmitAnswer) LimitedBy() string {
	if a.Variant == nil {
		return ""
	}
	return a.Verdict.LimitedBy()
}

// SubjectKind returns how the subject was identified: the part of its key before the colon.
func (a *AdmitAnswer) SubjectKind() string {
	kind, _, ok := strings.Cut(a.Subject.Key, ":")
	if !ok {
		return guard.Unknown
	}
	return kind
}

// Hidden says whether the limit that decided is not to be shown to whoever sent the request.
func (a *AdmitAnswer) Hidden() bool {
	return a.Variant != nil && a.Verdict.Verdict.Limit >= 0 && a.Variant.Limits()[a.Verdict.Verdict.Limit].Hidden
}

// ExpiresMillis returns how long the ticket is valid.
func (t Ticket) ExpiresMillis() int64 { return t.Expires.Milliseconds() }
