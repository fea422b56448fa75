package guard

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Request is what is known of a request before it is authenticated.
type Request struct {
	// Method is the HTTP method, and "" for RPC procedures and methods of JSON-RPC.
	Method string

	// Path is the path without the query ("/v1/users/42", see RequestPath), the procedure
	// ("/river.StreamService/CreateStream") or the method of JSON-RPC ("eth_call").
	Path string

	// Address is the client's, as Identifier.Address returns it.
	Address netip.Addr

	// Cost is what the request costs. 0 means that of the endpoint.
	Cost int64

	// Attributes are what limits may be by, beside the subject and "ip".
	Attributes []ruleset.Attribute

	// Client is the program that the request is decided for, if that is not this one. Tickets
	// belong to it.
	Client string
}

// Verdict is the decision of a stage.
type Verdict struct {
	// Verdict is the decision and the limits that were applied. Variant is nil if there were none.
	// Held also says of a request that was admitted that its units are reserved until the outcome is
	// known; ResetAfter is an upper bound then.
	ruleset.Verdict

	// Cause says what refused the request. It is Admitted if nothing did.
	Cause Cause

	// Subject is who was charged.
	Subject Subject

	// Endpoint is the name of the endpoint's policy, or of that before authentication.
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
	causes
)

var causeNames = [causes]string{"admitted", "limit", "blocked", "overload", "in_flight"}

// String returns the name of the cause, such as "in_flight".
func (c Cause) String() string { return causeNames[c] }

// Pass is a request on its way through a Guard. The caller owns it and may use it again after Done. Its
// methods must not be called concurrently.
type Pass struct {
	guard    *Guard
	rules    *Rules
	endpoint *endpoint
	request  Request
	address  Subject // that of the request's address

	query  ruleset.Query
	keys   [4]ruleset.Attribute // room for query.Keys
	ticket *ruleset.Ticket      // of an endpoint that counts by outcome

	// shadowed says that limits in shadow before authentication would have refused the request, so
	// that later ones must not be charged.
	shadowed bool

	entered    bool      // counted in flight
	identified bool      // Identify was called
	keyed      [2]uint64 // hashes of the address and of the subject, counted in flight
	keyedUsed  [2]bool

	// used is what Settle was given: settleClosed, settleOpen, or the cost plus settleCost. Handlers
	// may call Settle from any goroutine, also from one that outlives the request.
	used atomic.Int64
}

// The values of Pass.used.
const (
	settleClosed = iota // Settle is not possible
	settleOpen          // no cost was given yet
	settleCost          // and above: the cost
)

// Enter is the stage before authentication: blocks, requests in flight, and limits of the address.
// If the verdict is Allowed, the caller must call Done when the request has ended.
//
// An error means that there is no decision, because the limiter failed. Then Done need not be called.
func (g *Guard) Enter(ctx context.Context, p *Pass, r Request) (Verdict, error) {
	rules := g.rules.Load()
	p.begin(g, rules, &r)
	if rules.mode == ruleset.Off {
		return p.admitted(p.address), nil
	}
	if v, blocked := g.blocked(p, &p.address); blocked {
		return v, nil
	}
	if v, full := g.enterFlight(p); full {
		return v, nil
	}
	if rules.perIP == nil {
		return p.admitted(p.address), nil
	}
	v, err := g.checkAddress(ctx, p)
	if err != nil || !v.Allowed {
		p.leave()
	}
	return v, err
}

// begin prepares p for a request.
func (p *Pass) begin(g *Guard, rules *Rules, r *Request) {
	p.guard, p.rules, p.request = g, rules, *r
	p.endpoint = rules.find(r.Method, r.Path)
	p.address = rules.identifier.AddressSubject(r.Address)
	p.query, p.ticket, p.shadowed = ruleset.Query{}, nil, false
	p.entered, p.identified, p.keyedUsed = false, false, [2]bool{}
	p.used.Store(settleClosed)
}

// admitted returns the verdict of a request that no limit was applied to.
func (p *Pass) admitted(s Subject) Verdict {
	return Verdict{
		Verdict:  ruleset.Verdict{Decision: weir.Decision{Allowed: true, Reason: weir.Admitted}, Limit: -1, Shadow: -1},
		Subject:  s,
		Endpoint: p.endpoint.name,
	}
}

// refused returns the verdict of a request that was refused by something else than a limit.
func (p *Pass) refused(s Subject, cause Cause, reason weir.Reason, retry time.Duration) Verdict {
	v := p.admitted(s)
	v.Decision = weir.Decision{Reason: reason, RetryAfter: retry}
	v.Cause = cause
	p.guard.stats.refused[cause].Add(1)
	p.guard.offend(s.Key)
	return v
}

// blocked asks Hooks.Blocked.
func (g *Guard) blocked(p *Pass, s *Subject) (Verdict, bool) {
	if g.hooks.Blocked == nil {
		return Verdict{}, false
	}
	until, blocked := g.hooks.Blocked(*s)
	if !blocked {
		return Verdict{}, false
	}
	retry := weir.Never
	if !until.IsZero() {
		retry = max(time.Second, until.Sub(g.hooks.Now()))
	}
	return p.refused(*s, ByBlock, weir.Blocked, retry), true
}

// overloadRetry is when to try again if there is no capacity: nobody knows when there will be.
const overloadRetry = time.Second

// enterFlight counts the request among those in flight: all, and those of its address. In shadow,
// nothing is refused.
func (g *Guard) enterFlight(p *Pass) (Verdict, bool) {
	blocks, enforce := &p.rules.blocks, p.rules.mode == ruleset.Enforce
	most := blocks.InFlight
	if !enforce {
		most = 0
	}
	if !g.inFlight.enter(most) {
		return p.refused(p.address, ByOverload, weir.QueueFull, overloadRetry), true
	}
	p.entered = true
	if v, full := g.enterKey(p, byAddress, &p.address, blocks.InFlightPerIP); full {
		p.leave()
		return v, true
	}
	return Verdict{}, false
}

// enterKey counts the request among those of its address or of its subject.
func (g *Guard) enterKey(p *Pass, which int, s *Subject, most int64) (Verdict, bool) {
	if most == 0 || p.rules.mode != ruleset.Enforce {
		return Verdict{}, false
	}
	hash, ok := g.inFlight.enterKey(which, s.Key, most)
	if !ok {
		return p.refused(*s, ByInFlight, weir.QueueFull, overloadRetry), true
	}
	p.keyed[which], p.keyedUsed[which] = hash, true
	return Verdict{}, false
}

// leave ends what enterFlight and enterKey began.
func (p *Pass) leave() {
	for which, used := range p.keyedUsed {
		if used {
			p.guard.inFlight.leaveKey(which, p.keyed[which])
		}
	}
	if p.entered {
		p.guard.inFlight.leave()
	}
	p.entered, p.keyedUsed = false, [2]bool{}
}

// checkAddress charges the limits before authentication.
func (g *Guard) checkAddress(ctx context.Context, p *Pass) (Verdict, error) {
	v := p.admitted(p.address)
	v.Endpoint = perIPName
	p.query = ruleset.Query{Key: p.address.Key, Cost: 1, Implied: true, Client: p.request.Client, Alone: true, Shadow: true}
	var err error
	v.Verdict, err = g.engine.Check(ctx, p.rules.perIP, &p.query)
	if err != nil {
		v.Decision = weir.Decision{} // there is none
		return v, err
	}
	p.shadowed = v.Shadow >= 0
	g.decided(ctx, p, &v)
	return v, nil
}

// decided counts the decision of a limit, and reports a refusal.
func (g *Guard) decided(ctx context.Context, p *Pass, v *Verdict) {
	g.stats.decided(v)
	if v.Allowed && v.Shadow < 0 {
		return
	}
	if !v.Allowed {
		v.Cause = ByLimit
	}
	if !isExceeded(v) {
		return
	}
	violation := Violation{Kind: Exceeded, Subject: v.Subject.Key, Endpoint: v.Endpoint, Shadow: v.Allowed}
	if v.Allowed {
		violation.Limit = v.Variant.LimitName(v.Shadow)
	} else {
		violation.Limit = v.LimitedBy()
		g.offend(v.Subject.Key)
	}
	// Refusals before authentication do not add to the score: the requests may be those of anybody
	// who shares the address.
	g.violate(ctx, p.rules, violation, v.Endpoint != perIPName && !p.isPenalized(violation.Shadow))
}

// isExceeded says whether a request was refused, or would have been in shadow, because its subject
// exceeded a limit, and not because the store is unavailable or has too many reservations.
func isExceeded(v *Verdict) bool {
	exceeded := func(d weir.Decision) bool { return d.Reason == weir.Exhausted || d.Reason == weir.TooCostly }
	if !v.Allowed {
		return exceeded(v.Decision)
	}
	return slices.ContainsFunc(v.ShadowRefusals, func(r ruleset.ShadowRefusal) bool { return exceeded(r.Decision) })
}

var errIdentify = errors.New("guard: Identify is called once for each request that Enter has admitted")

// Identify is the stage after authentication: the limits of the subject at the endpoint. It is called
// at most once, after Enter has admitted the request. The zero Subject is that of the address. Done
// must be called whatever it returns.
func (g *Guard) Identify(ctx context.Context, p *Pass, s Subject) (Verdict, error) {
	if p.guard == nil || p.identified {
		return Verdict{}, errIdentify
	}
	p.identified = true
	r := p.rules
	if s.Key = fit(s.Key); s.Key == "" {
		s = p.address
	}
	if r.mode == ruleset.Off {
		return p.admitted(s), nil
	}
	if s.Key != p.address.Key {
		if v, blocked := g.blocked(p, &s); blocked {
			return v, nil
		}
	}
	if v, full := g.enterKey(p, bySubject, &s, r.inFlight); full {
		return v, nil
	}
	return g.applyLimits(ctx, p, &s, p.endpoint.reserves())
}

// Charge charges the limits of the endpoint to a subject again, for a message of a stream that Enter and
// Identify have admitted. The request is that of the stream, whose Pass is another one than p; that
// needs no Done, because a message is not in flight. Blocks and exemptions apply, and a change of the
// configuration since the stream began. Where requests are counted by outcome, messages count in
// full.
func (g *Guard) Charge(ctx context.Context, p *Pass, r Request, s Subject) (Verdict, error) {
	rules := g.rules.Load()
	p.begin(g, rules, &r)
	if s.Key = fit(s.Key); s.Key == "" {
		s = p.address
	}
	if rules.mode == ruleset.Off {
		return p.admitted(s), nil
	}
	if v, blocked := g.blocked(p, &p.address); blocked {
		return v, nil
	}
	if s.Key != p.address.Key {
		if v, blocked := g.blocked(p, &s); blocked {
			return v, nil
		}
	}
	return g.applyLimits(ctx, p, &s, false)
}

// applyLimits charges the limits of the endpoint, if there are any for the subject.
func (g *Guard) applyLimits(ctx context.Context, p *Pass, s *Subject, reserve bool) (Verdict, error) {
	if p.rules.isExempt(s, p.request.Method, p.request.Path, g.hooks.Now) {
		g.stats.exempted.Add(1)
		v := p.admitted(*s)
		v.Exempt = true
		return v, nil
	}
	if p.endpoint.disabled || p.endpoint.rule == nil {
		return p.admitted(*s), nil
	}
	return g.checkSubject(ctx, p, s, reserve)
}

// checkSubject charges the limits of the endpoint.
func (g *Guard) checkSubject(ctx context.Context, p *Pass, s *Subject, reserve bool) (Verdict, error) {
	r, e := p.rules, p.endpoint
	v := p.admitted(*s)
	var penalty penalized
	now := weir.Now()
	if r.penalties != nil {
		penalty = g.penaltyOf(ctx, r, s.Key, now)
	}
	p.charge(s)
	if r.penalties != nil {
		p.query.Scale = penalty.share(r.penalties, enforced, now)
		p.query.ShadowScale = penalty.share(r.penalties, shadow, now)
	}
	v.Penalized = p.query.Scale != 0
	g.watch(ctx, p, &v)
	var err error
	if reserve {
		v.Verdict, p.ticket, err = g.engine.Reserve(ctx, e.rule, &p.query, e.timeout)
		v.Held = v.Held || p.ticket != nil
		if p.ticket != nil && e.settle {
			p.used.Store(settleOpen)
		}
	} else {
		v.Verdict, err = g.engine.Check(ctx, e.rule, &p.query)
	}
	if err != nil {
		v.Decision = weir.Decision{} // there is none
		return v, err
	}
	if e.measured != nil && v.Variant.Override() == nil && v.Variant.Plan() == "" { // others have other rates
		g.measurer.observe(ctx, e.measured, s.Key, p.query.Cost, !v.Allowed || v.Shadow >= 0)
	}
	g.decided(ctx, p, &v)
	return v, nil
}

// charge makes the query of the request. Requests without an attribute that a limit is by share the
// value Unknown. No attribute and no cost is an error, which a server may answer by admitting the
// request: a value that is too long for a key is replaced by its hash, and a cost that is too high is
// the highest.
func (p *Pass) charge(s *Subject) {
	e := p.endpoint
	p.query = ruleset.Query{
		Key: s.Key, Plan: s.Plan, Cost: e.cost, Implied: true, Shadow: true, SkipShadow: p.shadowed,
		Client: p.request.Client, Alone: p.request.Client == "",
		Keys: append(append(p.keys[:0], ruleset.Attribute{Name: "ip", Value: p.address.Key}), p.request.Attributes...),
	}
	if p.request.Cost > 0 {
		p.query.Cost = min(p.request.Cost, weir.MaxCost)
	}
	for i := range p.query.Keys {
		p.query.Keys[i].Value = fit(p.query.Keys[i].Value)
	}
	for _, by := range e.by {
		p.query.Keys = append(p.query.Keys, ruleset.Attribute{Name: by, Value: Unknown})
	}
}

// watch looks for subjects that send many requests in a short time. It is in shadow where the limits
// of the endpoint are.
func (g *Guard) watch(ctx context.Context, p *Pass, v *Verdict) {
	if p.rules.abuse == nil {
		return
	}
	inShadow := !p.endpoint.rule.Base().Enforces(v.Subject.Key)
	if inShadow && p.shadowed {
		return
	}
	d, err := g.local.Take(ctx, p.rules.abuse, v.Subject.Key, 1)
	if err != nil || d.Allowed {
		return
	}
	g.violate(ctx, p.rules, Violation{Kind: RapidFire, Subject: v.Subject.Key, Endpoint: v.Endpoint, Shadow: inShadow}, !p.isPenalized(inShadow))
}

// isPenalized says whether the request was charged with a penalty.
func (p *Pass) isPenalized(inShadow bool) bool {
	if inShadow {
		return p.query.ShadowScale != 0
	}
	return p.query.Scale != 0
}

// settleWithin is how long the end of a request may wait for the store.
const settleWithin = time.Second

// Done ends a request. Failed says that it failed, for endpoints that count failures. It may be
// called more than once, and also after an error. It waits for the store only if the endpoint counts
// by outcome; if that cannot be reached, the request counts in full.
func (p *Pass) Done(ctx context.Context, failed bool) {
	if p.guard == nil {
		return
	}
	p.leave()
	if p.ticket == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	if _, err := p.guard.engine.Settle(ctx, p.ticket, p.outcome(failed)); err != nil {
		p.guard.stats.unsettled.Add(1)
	}
	p.ticket = nil
}

// outcome returns what a request has used. Settle is not possible after it.
func (p *Pass) outcome(failed bool) ruleset.Used {
	return p.endpoint.outcome(failed, p.used.Swap(settleClosed)-settleCost)
}

// outcome returns what a request has used. Cost is what Settle was given, less than 0 if it was not called.
func (e *endpoint) outcome(failed bool, cost int64) ruleset.Used {
	if e.count == CountFailures && !failed {
		return ruleset.Used{None: true}
	}
	if cost >= 0 && e.settle {
		return ruleset.Used{Cost: cost, HaveCost: true}
	}
	return ruleset.Used{All: true}
}

type passKey struct{}

// WithPass returns a context in which Settle finds p. It is needed only if p.Settles. P must not be used
// for another request then.
func WithPass(ctx context.Context, p *Pass) context.Context {
	return context.WithValue(ctx, passKey{}, p)
}

// Settles says whether the handler may set the cost of the request with Settle.
func (p *Pass) Settles() bool { return p.used.Load() != settleClosed }

// CountsFailures says whether the request counts only if it failed, so that Done needs to know whether
// it did. It is false before Identify and for requests to which no limit was applied.
func (p *Pass) CountsFailures() bool {
	return p.ticket != nil && p.endpoint.count == CountFailures
}

// Settle sets the actual cost of the request that ctx belongs to. It is charged when the request
// ends: the rest of what was reserved is refunded, and more is charged in addition. It returns false
// if the endpoint does not allow that or the request has ended, so that the cost is what was charged.
// It may be called by any goroutine, and more than once: the last cost counts.
func Settle(ctx context.Context, cost int64) bool {
	p, _ := ctx.Value(passKey{}).(*Pass)
	if p == nil || cost < 0 || cost > weir.MaxCost {
		return false
	}
	for {
		used := p.used.Load()
		if used == settleClosed {
			return false
		}
		if p.used.CompareAndSwap(used, cost+settleCost) {
			return true
		}
	}
}
