package envoyapi

import (
	"context"
	"errors"
	"slices"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// Service is Envoy's rate limit service. Make one with New.
type Service struct {
	core      *call.Core       // set by New, like the next two
	limiter   weir.Limiter     // the engine's
	now       func() time.Time // time.Now, but for tests
	overrides overrides
	refunds   keyLocks
}

var _ rlsv3.RateLimitServiceServer = (*Service)(nil)

// New returns a service. The policies of the rules must be in force in the core's engine.
func New(core *call.Core) *Service {
	return &Service{core: core, limiter: core.Engine.Limiter(), now: time.Now, refunds: newKeyLocks()}
}

type rulesKey struct{}

// WithRules returns a context for a call that is decided by rules. It has a call.Caller, too.
func WithRules(ctx context.Context, rules *Rules) context.Context {
	return context.WithValue(ctx, rulesKey{}, rules)
}

// ShouldRateLimit answers one request.
func (s *Service) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	caller := call.CallerOf(ctx)
	if bad := check(caller, r); bad != nil {
		return nil, bad
	}
	d := ctx.Value(rulesKey{}).(*Rules).domains[r.GetDomain()]
	if d == nil {
		d = &domain{Domain: Domain{Name: r.GetDomain()}}
	}
	e, err := s.read(d, r)
	if err != nil {
		return nil, call.Invalid("%s", err)
	}
	ctx, span := s.span(ctx, d)
	began := s.now()
	if err := e.decide(ctx, s.limiter, &s.refunds); err != nil {
		err = s.undecided(ctx, d, err)
		bad, _ := errors.AsType[*call.Error](err)
		call.EndSpan(span, bad)
		return nil, err
	}
	span.Bool("weir.allowed", e.admitted || d.ShadowMode)
	span.End()
	if d.observe != nil {
		s.observe(caller, e, began, s.now().Sub(began))
	}
	return e.response(began), nil
}

// span starts the span of a decision, with the domain if it is configured: callers choose others.
func (s *Service) span(ctx context.Context, d *domain) (context.Context, tracing.Span) {
	policy := ""
	if d.observe != nil {
		policy = Label(d.Name)
	}
	return s.core.DecisionSpan(ctx, policy)
}

const maxDescriptors = 256

// check refuses invalid requests, and clients without permission.
func check(caller call.Caller, r *rlsv3.RateLimitRequest) *call.Error {
	switch {
	case r.GetDomain() == "":
		return call.Invalid("the domain is empty")
	case len(r.GetDescriptors()) == 0:
		return call.Invalid("there are no descriptors")
	case len(r.GetDescriptors()) > maxDescriptors:
		return call.Invalid("a request may have %d descriptors", maxDescriptors)
	}
	return caller.MayUseDomain(r.GetDomain())
}

// undecided returns the error of a call without a decision.
func (s *Service) undecided(ctx context.Context, d *domain, err error) error {
	if errors.Is(err, compiled.ErrLimits) { // limit overrides of the request are invalid, or too many
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return s.core.Undecided(ctx, Label(d.Name), err)
}

// observe reports a decision, with the key and hits of the descriptor whose limit refused or, in
// shadow, would have refused.
func (s *Service) observe(caller call.Caller, e *evaluation, began time.Time, took time.Duration) {
	record := ruleset.Record{Cost: 1, Client: caller.Name(), Took: took}
	record.Verdict = ruleset.Verdict{Variant: e.domain.observe, Limit: -1, Shadow: -1}
	record.Allowed, record.Reason = e.admitted || e.domain.ShadowMode, weir.Admitted
	record.Estimate = slices.ContainsFunc(e.list, func(desc descriptor) bool { return desc.estimate })
	if desc := e.refuser(); desc != nil {
		record.Key, record.Cost = desc.key, desc.hits
		if record.Allowed {
			record.Shadow = 0 // the index of the placeholder limit of domain.observe
		} else {
			record.Reason, record.LimitName, record.RetryAfter = weir.Exhausted, e.limitName(desc), desc.retryAfter(began)
		}
	}
	s.core.Observe(&record)
}

// limitName returns the name of a descriptor's limit: its own, or that of its policy. A limit of no
// requests has no policy; then it is that of the domain.
func (e *evaluation) limitName(desc *descriptor) string {
	switch {
	case desc.limit.Name != "":
		return desc.limit.Name
	case desc.limit.policy != nil:
		return desc.limit.policy.Name()
	}
	return Label(e.domain.Name)
}

// retryAfter returns when the window of a limit that refused ends.
func (desc *descriptor) retryAfter(now time.Time) time.Duration {
	if desc.limit.RequestsPerUnit == 0 {
		return weir.Never
	}
	return desc.untilReset(now)
}

// refuser returns the first descriptor whose limit refused the request, else the first in shadow
// that would have, nil if there is none.
func (e *evaluation) refuser() (would *descriptor) {
	for i := range e.list {
		switch desc := &e.list[i]; {
		case desc.over && desc.mode() != shadow && !e.admitted:
			return desc
		case desc.over && desc.mode() == shadow && would == nil:
			would = desc
		}
	}
	return would
}
