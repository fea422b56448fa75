package call

import (
	"context"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// Guard is the part of a State by which requests to another service are decided. It is immutable once the
// State is in use.
type Guard struct {
	Guard *guard.Guard

	// Policies are the names of its policies. They belong to its endpoints, so callers cannot name
	// them.
	Policies map[string]bool

	// Proxies says which callers are trusted proxies.
	Proxies *clientip.Resolver

	// PrincipalHeader and PlanHeader are the headers in which trusted proxies send who is
	// authenticated, in canonical form, or "".
	PrincipalHeader, PlanHeader string

	// KeyHeader is the header of API keys, in canonical form.
	KeyHeader string
}

// owns says whether a policy is the guard's.
func (g *Guard) owns(name []byte) bool { return g != nil && g.Policies[string(name)] }

// guarded is the error of a caller that names a policy of the guard.
func (c Caller) guarded(name []byte) *Error {
	return &Error{Kind: Forbidden, Problem: "the policy " + strictjson.Quote(string(name)) +
		" belongs to the guard: /v1/auth, /v1/guard and weir.v1.GuardService apply it to requests of its endpoint", Item: NoItem}
}

// MayGuard returns the guard, if there is one and the caller may use it.
func (c Caller) MayGuard() (*Guard, *Error) {
	if !c.State.Authenticator.MayGuard(c.Client) {
		return nil, &Error{Kind: Forbidden, Problem: "the client " + c.Client.Name + " may not use the guard", Item: NoItem}
	}
	if c.State.Guard == nil {
		return nil, &Error{Kind: NotFound, Problem: "no guard is configured: add a guard section to the configuration", Item: NoItem}
	}
	return c.State.Guard, nil
}

// An Admission is a request to a service that the guard protects.
type Admission struct {
	guard.Request

	// Credentials identify who sent it, after those of the context (guard.WithSubject).
	Credentials guard.Credentials

	// Later says that the caller will tell the outcome: then units of endpoints that count by
	// outcome are held. Otherwise the request counts in full.
	Later bool
}

// A Ticket is held for a request of which the outcome is not known yet.
type Ticket struct {
	ID      string // "" if nothing is held
	Expires time.Duration
}

// Admit decides a request by both stages of the guard and records their decisions. In flight it counts only
// while it is decided.
func (c *Core) Admit(ctx context.Context, caller Caller, g *Guard, a *Admission) (guard.Verdict, Ticket, *Error) {
	ctx, span := c.span(ctx, spanAdmit, "")
	v, t, err := c.admit(ctx, caller, g, a)
	endDecision(span, v.Allowed, v.Reason.String(), err)
	return v, t, err
}

func (c *Core) admit(ctx context.Context, caller Caller, g *Guard, a *Admission) (v guard.Verdict, t Ticket, _ *Error) {
	if caller.State.Authenticator.Clients.Len() > 0 {
		a.Client = caller.Name()
	}
	var p guard.Pass
	began := time.Now()
	v, err := g.Guard.Enter(ctx, &p, a.Request)
	if err != nil {
		return v, t, c.Undecided(ctx, v.Endpoint, err)
	}
	c.recordStage(&p, &v, time.Since(began))
	if !v.Allowed {
		return v, t, nil
	}
	defer func() { p.Done(ctx, true) }()
	subject := g.Guard.Identifier().Subject(ctx, &a.Credentials, a.Address)
	began = time.Now()
	v, err = g.Guard.Identify(ctx, &p, subject)
	if err != nil {
		return v, t, c.Undecided(ctx, v.Endpoint, err)
	}
	c.recordStage(&p, &v, time.Since(began))
	if v.Allowed && a.Later {
		if ticket, lasts := p.Detach(); ticket != nil {
			t = Ticket{ticket.String(), lasts}
		}
	}
	return v, t, nil
}

// recordStage records the decision of a stage, if limits made it.
func (c *Core) recordStage(p *guard.Pass, v *guard.Verdict, took time.Duration) {
	if v.Variant != nil {
		c.Record(p.Query(), &v.Verdict, false, took)
	}
}

// Finish settles the ticket of a request whose outcome is known. Cost is less than 0 if it is as reserved.
func (c *Core) Finish(ctx context.Context, caller Caller, g *Guard, id string, failed bool, cost int64) (weir.Settled, *Error) {
	ticket, bad := c.ticket(ctx, caller, id)
	if bad != nil {
		return weir.Settled{}, bad
	}
	return c.settle(ctx, caller.State, ticket, g.Guard.Rules().Outcome(ticket.Policy(), failed, cost))
}

// Principal adds the principal that a trusted proxy has sent to the context. A request with two lines of
// the header has none.
func (g *Guard) Principal(ctx context.Context, h http.Header) context.Context {
	id, ok := single(h, g.PrincipalHeader)
	if !ok {
		return ctx
	}
	s := guard.User(id)
	s.Plan, _ = single(h, g.PlanHeader)
	return guard.WithSubject(ctx, s)
}

// single returns the value of a header that has one line.
func single(h http.Header, name string) (string, bool) {
	if lines := h[name]; name != "" && len(lines) == 1 && lines[0] != "" {
		return lines[0], true
	}
	return "", false
}
