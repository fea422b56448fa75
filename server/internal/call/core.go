package call

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// Core carries out calls. All fields but Tracer are required, and all are set once.
type Core struct {
	Engine *ruleset.Engine
	Log    *slog.Logger

	// Observe records a decision. It does not retain the record.
	Observe func(*ruleset.Record)

	// ObserveEach is Observe for the decisions on several items. Took is the duration of the
	// first; the others are not timed.
	ObserveEach func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration)

	// Tracer, if set, makes a span for each decision of a call that has one.
	Tracer *tracing.Tracer
}

// State is the configuration by which a call is decided. It is immutable; a change replaces it. A
// call uses one State.
type State struct {
	Rules         *ruleset.Rules
	Authenticator *identity.Authenticator
	Guard         *Guard // nil if none is configured

	// Budgets are the accounts of the policies that are budgets, by name.
	Budgets map[string]*budget.Account
}

// A Caller is an authenticated client, or an anonymous caller where those are accepted.
type Caller struct {
	State  *State
	Client *identity.Client // nil for an anonymous caller
}

// Authenticate returns the caller with these credentials.
func (c *Core) Authenticate(s *State, credentials identity.Credentials) (Caller, *Error) {
	client, err := s.Authenticator.Authenticate(credentials)
	if err != nil {
		return Caller{}, Refused(err)
	}
	return Caller{s, client}, nil
}

// HTTP returns the caller that sent a request.
func (c *Core) HTTP(s *State, r *http.Request) (Caller, *Error) {
	client, err := s.Authenticator.Client(r)
	if err != nil {
		return Caller{}, Refused(err)
	}
	return Caller{s, client}, nil
}

// Name returns the client's name, "" for an anonymous caller.
func (c Caller) Name() string {
	if c.Client == nil {
		return ""
	}
	return c.Client.Name
}

// Rule returns the policy with a name, if the caller may use it.
func (c Caller) Rule(name []byte) (*ruleset.Rule, *Error) {
	if !c.State.Authenticator.MayPolicy(c.Client, string(name)) {
		return nil, c.forbidden("policy", string(name))
	}
	if c.State.Guard.owns(name) {
		return nil, c.guarded(name)
	}
	rule := c.State.Rules.RuleNamed(name)
	if rule == nil {
		return nil, Errorf(NotFound, "no policy is called %s; the page at / and GET /admin/v1/policies list those there are", strictjson.Quote(string(name)))
	}
	return rule, nil
}

// MayUseDomain refuses clients that may not use a domain of Envoy's service.
func (c Caller) MayUseDomain(domain string) *Error {
	if !c.State.Authenticator.MayDomain(c.Client, domain) {
		return c.forbidden("domain", domain)
	}
	return nil
}

func (c Caller) forbidden(what, name string) *Error {
	return Errorf(Forbidden, "the client %s may not use the %s %s", c.Client.Name, what, strictjson.Quote(name))
}

// Check decides a query under a policy that the caller may use, and records the decision. A peek
// charges nothing.
func (c *Core) Check(ctx context.Context, caller Caller, policy []byte, q *ruleset.Query, peek bool) (ruleset.Verdict, *Error) {
	rule, err := caller.Rule(policy)
	if err != nil {
		return ruleset.Verdict{}, err
	}
	if err := caller.Own(rule, q); err != nil {
		return ruleset.Verdict{}, err
	}
	ctx, span := c.span(ctx, spanCheck, rule.Name())
	began := time.Now()
	v, err := c.Evaluate(ctx, caller.State, rule, q, peek)
	endDecision(span, v.Allowed, v.Reason.String(), err)
	if err == nil {
		c.Record(q, &v, peek, time.Since(began)-v.Waited)
	}
	return v, err
}

// Evaluate decides a query that Caller.Own has completed. It is a part of Check, for callers that find rules,
// time and record decisions themselves.
func (c *Core) Evaluate(ctx context.Context, s *State, rule *ruleset.Rule, q *ruleset.Query, peek bool) (v ruleset.Verdict, _ *Error) {
	account, err := s.prepare(rule, q)
	switch {
	case err != nil:
	case account != nil:
		v, err = c.checkBudget(ctx, account, rule, q, peek)
	case peek:
		v, err = c.Engine.Peek(ctx, rule, q)
	default:
		v, err = c.Engine.Check(ctx, rule, q)
	}
	if err != nil {
		return v, c.Undecided(ctx, rule.Name(), err)
	}
	return v, nil
}

// records pools the records of single decisions.
var records = sync.Pool{New: func() any { return new(ruleset.Record) }}

// Record records a decision.
func (c *Core) Record(q *ruleset.Query, v *ruleset.Verdict, peek bool, took time.Duration) {
	r := records.Get().(*ruleset.Record)
	*r = ruleset.NewRecord(q, v, peek, took)
	c.Observe(r)
	*r = ruleset.Record{} // so that the pool retains no keys
	records.Put(r)
}

// A Batch is how several queries are decided.
type Batch uint8

// The batches.
const (
	Each  Batch = iota // each on its own
	All                // all are charged or none
	Debit              // each is charged whether it fits or not
)

// CheckBatch decides several queries of a caller and records the decisions. The verdicts may be in
// out, which is reused; it may be nil.
func (c *Core) CheckBatch(ctx context.Context, caller Caller, kind Batch, items []ruleset.Item, out []ruleset.Verdict) ([]ruleset.Verdict, *Error) {
	began := time.Now()
	for i := range items {
		if kind == All && items[i].Peek {
			return nil, Invalid("a check with peek cannot be part of an atomic batch").In(i)
		}
		if err := caller.Own(items[i].Rule, &items[i].Query); err != nil {
			return nil, err.In(i)
		}
	}
	ctx, span := c.span(ctx, spanBatch, "")
	span.Int("weir.batch.size", len(items))
	out, err := c.EvaluateBatch(ctx, caller.State, kind, items, out)
	EndSpan(span, err)
	if err != nil {
		return nil, err
	}
	c.ObserveEach(items, out, time.Since(began)/time.Duration(max(1, len(out)))) // it is one measurement
	return out, nil
}

// EvaluateBatch is a part of CheckBatch, for callers that time and record decisions themselves.
func (c *Core) EvaluateBatch(ctx context.Context, s *State, kind Batch, items []ruleset.Item, out []ruleset.Verdict) (_ []ruleset.Verdict, _ *Error) {
	budgets, err := s.prepareEach(items)
	switch {
	case err != nil:
	case budgets:
		out, err = c.batchWithBudgets(ctx, s, kind, items, out)
	default:
		out, err = c.evaluateBatch(ctx, kind, items, out)
	}
	if err != nil {
		policy := ""
		if bad, ok := errors.AsType[*ruleset.ItemError](err); ok {
			policy = items[bad.Index].Rule.Name()
		}
		return nil, c.Undecided(ctx, policy, err)
	}
	return out, nil
}

func (c *Core) evaluateBatch(ctx context.Context, kind Batch, items []ruleset.Item, out []ruleset.Verdict) ([]ruleset.Verdict, error) {
	switch kind {
	case All:
		return c.Engine.CheckAll(ctx, items)
	case Debit:
		return c.Engine.DebitEach(ctx, items)
	}
	return c.Engine.CheckEach(ctx, items, out)
}

// Reserve is Check for a query that is charged and held if it fits. The ticket is nil if it was
// refused.
func (c *Core) Reserve(ctx context.Context, caller Caller, policy []byte, q *ruleset.Query, ttl time.Duration) (ruleset.Verdict, *ruleset.Ticket, *Error) {
	rule, bad := caller.Rule(policy)
	if bad != nil {
		return ruleset.Verdict{}, nil, bad
	}
	if bad := caller.Own(rule, q); bad != nil {
		return ruleset.Verdict{}, nil, bad
	}
	ctx, span := c.span(ctx, spanReserve, rule.Name())
	began := time.Now()
	v, ticket, err := c.reserve(ctx, caller.State, rule, q, ttl)
	if err != nil {
		bad := c.Undecided(ctx, rule.Name(), err)
		EndSpan(span, bad)
		return v, nil, bad
	}
	endDecision(span, v.Allowed, v.Reason.String(), nil)
	c.Record(q, &v, false, time.Since(began)-v.Waited)
	return v, ticket, nil
}

func (c *Core) reserve(ctx context.Context, s *State, rule *ruleset.Rule, q *ruleset.Query, ttl time.Duration) (ruleset.Verdict, *ruleset.Ticket, error) {
	account, err := s.prepare(rule, q)
	switch {
	case err != nil:
		return ruleset.Verdict{}, nil, err
	case account != nil:
		return c.reserveBudget(ctx, account, rule, q, ttl)
	}
	return c.Engine.Reserve(ctx, rule, q, ttl)
}

// settler settles and renews reservations: an engine, or the account of a budget.
type settler interface {
	Settle(context.Context, *ruleset.Ticket, ruleset.Used) (weir.Settled, error)
	Renew(context.Context, *ruleset.Ticket, time.Duration) (bool, error)
}

// settler returns what settles and renews the reservations of a policy.
func (c *Core) settler(s *State, policy string) settler {
	if account := s.Budget(policy); account != nil {
		return account
	}
	return c.Engine
}

// Settle ends a reservation of the caller.
func (c *Core) Settle(ctx context.Context, caller Caller, id string, used ruleset.Used) (weir.Settled, *Error) {
	ticket, bad := c.ticket(ctx, caller, id)
	if bad != nil {
		return weir.Settled{}, bad
	}
	return c.settle(ctx, caller.State, ticket, used)
}

func (c *Core) settle(ctx context.Context, s *State, ticket *ruleset.Ticket, used ruleset.Used) (weir.Settled, *Error) {
	ctx, span := c.span(ctx, spanSettle, "") // the ticket's policy is what the caller sent
	settled, err := c.settler(s, ticket.Policy()).Settle(ctx, ticket, used)
	if err == nil {
		span.End()
		return settled, nil
	}
	bad := c.Undecided(ctx, ticket.Policy(), err)
	EndSpan(span, bad)
	return settled, bad
}

// Renew moves the expiry of a reservation of the caller. It returns false if that is over.
func (c *Core) Renew(ctx context.Context, caller Caller, id string, ttl time.Duration) (bool, *Error) {
	ticket, bad := c.ticket(ctx, caller, id)
	if bad != nil {
		return false, bad
	}
	ctx, span := c.span(ctx, spanRenew, "")
	renewed, err := c.settler(caller.State, ticket.Policy()).Renew(ctx, ticket, ttl)
	if err == nil {
		span.End()
		return renewed, nil
	}
	bad = c.Undecided(ctx, ticket.Policy(), err)
	EndSpan(span, bad)
	return false, bad
}

func (c *Core) ticket(ctx context.Context, caller Caller, id string) (*ruleset.Ticket, *Error) {
	ticket, err := ruleset.ParseTicket(id, caller.Name())
	if err != nil {
		return nil, c.Undecided(ctx, "", err)
	}
	return ticket, nil
}

type callerKey struct{}

// WithCaller returns a context for a call of a caller, for protocols whose authentication is apart
// from their methods.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &c)
}

// CallerOf returns the caller of WithCaller.
func CallerOf(ctx context.Context) Caller { return *ctx.Value(callerKey{}).(*Caller) }
