package guard

import (
	"context"
	"net/netip"

	"github.com/weirlimit/weir/ruleset"
)

// Request is what is known of a request before it is authenticated.
type Request struct {
	// Method is the HTTP method, and "" for RPC procedures and methods of JSON-RPC.
	Method string

	// Path is the path without the query ("/v1/users/42"), the procedure
	// ("/river.StreamService/CreateStream") or the method of JSON-RPC ("eth_call").
	Path string

	// Address is the client's, as Identifier.Address returns it.
	Address netip.Addr

	// Cost is what the request costs. 0 means that of the endpoint.
	Cost int64

	// Attributes are what limits may be by, beside the subject and "ip".
	Attributes []ruleset.Attribute
}

// Verdict is the decision of a stage.
type Verdict struct {
	// Verdict is the decision and the limits that were applied. Variant is nil if there were none.
	ruleset.Verdict

	// Cause says what refused the request. It is Admitted if nothing did.
	Cause Cause

	// Subject is who was charged.
	Subject Subject

	// Endpoint is the name of the endpoint's policy, "" if it has no limits.
	Endpoint string

	// Penalized says that the limits were applied with a penalty.
	Penalized bool

	// Exempt says that an exemption applied.
	Exempt bool
}

// Cause says what refused a request.
type Cause uint8

// The causes.
const (
	Admitted   Cause = iota
	ByLimit          // a limit of the subject or of the address
	ByBlock          // Hooks.Blocked
	ByOverload       // the process handles too many requests at once
	ByInFlight       // too many requests of the subject, or of the address, are handled at once
)

// Pass is a request on its way through a Guard. The caller owns it and may use it again after Done. Its
// methods must not be called concurrently.
type Pass struct{}

// Enter is the stage before authentication: blocks, requests in flight, and limits of the address.
// If the verdict is Allowed, the caller must call Done when the request has ended.
func (g *Guard) Enter(ctx context.Context, p *Pass, r Request) (Verdict, error) {
	return Verdict{}, nil
}

// Identify is the stage after authentication: the limits of the subject at the endpoint. It may be
// called once, after Enter has admitted the request. Done must be called whatever it returns.
func (g *Guard) Identify(ctx context.Context, p *Pass, s Subject) (Verdict, error) {
	return Verdict{}, nil
}

// Done ends a request. Failed says that it failed, for endpoints that count failures. It may be
// called more than once.
func (p *Pass) Done(ctx context.Context, failed bool) {}

// WithPass returns a context in which Settle finds p. It is needed only if p.Settles.
func WithPass(ctx context.Context, p *Pass) context.Context { return ctx }

// Settles says whether the handler may set the cost of the request with Settle.
func (p *Pass) Settles() bool { return false }

// Settle sets the actual cost of the request that ctx belongs to. It is charged when the request
// ends. It returns false if the endpoint does not allow that, so that the cost is what was charged.
func Settle(ctx context.Context, cost int64) bool { return false }
