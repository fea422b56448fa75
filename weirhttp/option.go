package weirhttp

import (
	"fmt"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
)

// Option is an option of Limit, Guard and Stages. Limit needs at least one By, which the others
// do not have; Attributes and Failed are for the others only. Of options other than By that are
// given twice, the last one counts.
type Option func(*config)

// RuleOption is an option of By.
type RuleOption func(*rule)

// config is what the options say. It is not changed after Limit, Guard or Stages.
type config struct {
	rules     []rule // of Limit
	cost      func(*http.Request) int64
	skip      func(*http.Request) bool
	chargeAll bool
	refuse    func(http.ResponseWriter, *http.Request, Denial)
	onError   func(*http.Request, error) bool
	legacy    Legacy

	attributes func(*http.Request) []ruleset.Attribute // of Guard, like the next
	isFailure  func(r *http.Request, status int) bool
}

// rule is one By.
type rule struct {
	policy *weir.Policy
	key    KeyFunc
	hidden bool
	first  int // the index in the quotas of all rules of the policy's first limit
	limits int // how many limits the policy has
}

// By limits requests by a policy, for each key on its own. With several rules a request is
// charged to all of them or to none. Each rule needs a policy of its own, because keys of
// one policy share its counters, and an address could be sent as an API key.
//
// Limit panics if the policy is nil, limits concurrency, which only Reserve can, or is in
// two rules.
func By(policy *weir.Policy, key KeyFunc, options ...RuleOption) Option {
	r := rule{policy: policy, key: key}
	for _, o := range options {
		o(&r)
	}
	return func(c *config) { c.rules = append(c.rules, r) }
}

// Hide keeps a rule from clients, as befits limits against abuse: it is in no header field,
// and a refusal by it has no name and no numbers but Retry-After.
func Hide() RuleOption { return func(r *rule) { r.hidden = true } }

// Cost sets what a request costs, in units of all rules. The default is 1. A cost of 0
// charges nothing. Costs below 0 or above weir.MaxCost make the limiter return an error;
// mind that http.Request.ContentLength is -1 if it is unknown.
//
// In Guard it sets the cost at the endpoint, and 0 and less mean that of the endpoint. Limits
// of addresses always count requests.
func Cost(f func(*http.Request) int64) Option { return func(c *config) { c.cost = f } }

// Skip lets requests pass for which f returns true: they are not charged, and their
// responses get no header fields. It is in addition to what is free by default; see
// ChargeAll.
func Skip(f func(*http.Request) bool) Option { return func(c *config) { c.skip = f } }

// ChargeAll charges also what is free by default: CORS preflights, which are OPTIONS
// requests with Origin and Access-Control-Request-Method, and health probes, which are GET
// and HEAD requests of /healthz, /readyz, /livez and /health, and calls of grpc.health.v1.Health.
func ChargeAll() Option { return func(c *config) { c.chargeAll = true } }

// LegacyHeaders adds X-RateLimit fields. The default is LegacyOff.
func LegacyHeaders(l Legacy) Option { return func(c *config) { c.legacy = l } }

// Refuse replaces the reply to a request that is refused: f writes the status and the body.
// RateLimit-Policy, RateLimit, Retry-After and Cache-Control: no-store are set already, and
// f may change them. The default is d.Problem.Write(w).
func Refuse(f func(w http.ResponseWriter, r *http.Request, d Denial)) Option {
	return func(c *config) { c.refuse = f }
}

// OnError sets what happens when the limiter returns an error instead of a decision. f
// says whether the request may pass; it is also the place to log the error. The default is
// to refuse: 503, with a problem of TypeReducedCapacity. Errors of the request's context,
// because the client has left, are among them.
//
// A limiter of package tiered decides by itself while its store is unavailable, and returns
// hardly any errors.
func OnError(f func(r *http.Request, err error) (pass bool)) Option {
	return func(c *config) { c.onError = f }
}

// Denial is a request that was refused.
type Denial struct {
	// Problem is the default reply. It does not name hidden limits.
	Problem Problem

	// Policy is that of the rule that refused; if several did, of the one with the
	// longest RetryAfter. It is nil if the limiter returned an error, and of Guard.
	Policy *weir.Policy

	// Hidden says that the rule has the option Hide or, of Guard, that the limit is hidden:
	// clients should not see which one it is.
	Hidden bool

	// Decision is what the limiter said for Policy. It is zero if it returned an error.
	Decision weir.Decision

	// Verdict is what a Guard said: why the request was refused, whom it would have been
	// charged to, and at which endpoint. It is zero if the limiter returned an error, if the
	// path is invalid, and of Limit.
	Verdict guard.Verdict

	// Err is the limiter's error, or nil.
	Err error
}

// check panics if the configuration cannot work: it is made of constants, so the mistake
// shows when the program starts.
func (c *config) check() {
	if c.attributes != nil || c.isFailure != nil {
		panic("weirhttp: Limit: Attributes and Failed are options of Guard")
	}
	if len(c.rules) == 0 {
		panic("weirhttp: Limit: there is no rule; add weirhttp.By(policy, key)")
	}
	seen := map[string]bool{}
	for i, r := range c.rules {
		switch {
		case r.policy == nil:
			panic(fmt.Sprintf("weirhttp: Limit: rule %d: the policy is nil", i))
		case r.key == nil:
			panic(fmt.Sprintf("weirhttp: Limit: policy %q: the key function is nil", r.policy.Name()))
		case r.policy.ReserveOnly():
			panic(fmt.Sprintf("weirhttp: Limit: policy %q limits concurrency, which only Reserve can do", r.policy.Name()))
		case seen[r.policy.Name()]:
			panic(fmt.Sprintf("weirhttp: Limit: policy %q is in two rules, whose keys would share counters; make a policy for each", r.policy.Name()))
		}
		seen[r.policy.Name()] = true
	}
}

// quotas returns those of all rules, of which the hidden ones have none.
func (c *config) quotas() Quotas {
	var list []Quota
	for i := range c.rules {
		r := &c.rules[i]
		r.first, r.limits = len(list), len(r.policy.Limits())
		if r.hidden {
			list = append(list, make([]Quota, r.limits)...)
			continue
		}
		list = append(list, PolicyQuotas(r.policy, "").list...)
	}
	return NewQuotas(list...)
}
