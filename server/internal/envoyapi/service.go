package envoyapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
)

// Config is what New needs. All fields but Now are required.
type Config struct {
	Limiter weir.Limiter
	Observe func(*ruleset.Record) // called with each decision; it must not retain the record
	Log     *slog.Logger
	Now     func() time.Time // the default is time.Now
}

// Service is Envoy's rate limit service. Make one with New.
type Service struct {
	cfg       Config
	overrides overrides
	refunds   keyLocks

	mu      sync.Mutex              // held by Set; guards the field below
	applied map[string]*weir.Policy // the policies that are in force in the limiter, by name, including removed ones
}

var _ rlsv3.RateLimitServiceServer = (*Service)(nil)

// New returns a service.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg: cfg, refunds: newKeyLocks(), applied: map[string]*weir.Policy{}}
}

// Set changes the limits of the limiter to those of rules. Counters are kept. Policies with a new
// name are not set in the limiter; see Rules.Policies. If Set returns an error, the limits before
// it are in force.
func (s *Service) Set(ctx context.Context, rules *Rules) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var done []*weir.Policy // the replaced policies
	for name, p := range rules.policies {
		old := s.applied[name]
		if old == nil || old.Same(p) {
			s.applied[name] = p
			continue
		}
		err := s.cfg.Limiter.Set(ctx, old, p)
		if err == nil || errors.Is(err, weir.ErrUnknown) { // the limiter may have applied it
			s.applied[name] = p
			done = append(done, old)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("envoy: policy %q: %w", name, err), s.undoLocked(ctx, done))
		}
	}
	return nil
}

// undoLocked sets replaced policies again. It requires s.mu.
func (s *Service) undoLocked(ctx context.Context, done []*weir.Policy) (problems error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, old := range done {
		problems = errors.Join(problems, s.cfg.Limiter.Set(ctx, s.applied[old.Name()], old))
		s.applied[old.Name()] = old
	}
	return problems
}

// caller is the caller of a request and the rules for it. It is a context value.
type caller struct {
	rules  *Rules
	client *identity.Client // nil for an anonymous caller
}

type callerKey struct{}

// WithCaller returns a context for a call of client, which is nil for an anonymous caller, that is
// decided by rules.
func WithCaller(ctx context.Context, rules *Rules, client *identity.Client) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller{rules, client})
}

// ShouldRateLimit answers one request.
func (s *Service) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	c := ctx.Value(callerKey{}).(*caller)
	d := c.rules.domains[r.GetDomain()]
	if d == nil {
		d = &domain{Domain: Domain{Name: r.GetDomain()}}
	}
	if err := c.check(r); err != nil {
		return nil, err
	}
	e, err := s.read(d, r)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	began := s.cfg.Now()
	if err := e.decide(ctx, s.cfg.Limiter, &s.refunds); err != nil {
		return nil, s.undecided(ctx, d, err)
	}
	if d.observe != nil {
		s.observe(c, e, began, s.cfg.Now().Sub(began))
	}
	return e.response(began), nil
}

const maxDescriptors = 256

// check refuses invalid requests, and clients without permission.
func (c *caller) check(r *rlsv3.RateLimitRequest) error {
	switch {
	case r.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "the domain is empty")
	case len(r.GetDescriptors()) == 0:
		return status.Error(codes.InvalidArgument, "there are no descriptors")
	case len(r.GetDescriptors()) > maxDescriptors:
		return status.Errorf(codes.InvalidArgument, "a request may have %d descriptors", maxDescriptors)
	case c.client != nil && !c.client.May(Label(r.GetDomain())):
		return status.Errorf(codes.PermissionDenied, "the client %s may not use the policy %s", c.client.Name, Label(r.GetDomain()))
	}
	return nil
}

// undecided logs the error and returns the status of a call without a decision.
func (s *Service) undecided(ctx context.Context, d *domain, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	s.cfg.Log.Error("no decision", "policy", Label(d.Name), "error", err)
	if errors.Is(err, compiled.ErrLimits) { // limit overrides of the request are invalid, or too many
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return status.Error(codes.Unavailable, "no decision could be made; the daemon's log says why")
}

// observe reports a decision, with the key and hits of the descriptor whose limit refused or, in
// shadow, would have refused.
func (s *Service) observe(c *caller, e *evaluation, began time.Time, took time.Duration) {
	record := ruleset.Record{Cost: 1, Took: took}
	record.Verdict = ruleset.Verdict{Variant: e.domain.observe, Limit: -1, Shadow: -1}
	record.Allowed, record.Reason = e.admitted || e.domain.ShadowMode, weir.Admitted
	record.Estimate = slices.ContainsFunc(e.list, func(desc descriptor) bool { return desc.estimate })
	if c.client != nil {
		record.Client = c.client.Name
	}
	if desc := e.refuser(); desc != nil {
		record.Key, record.Cost = desc.key, desc.hits
		if record.Allowed {
			record.Shadow = 0 // the index of the placeholder limit of domain.observe
		} else {
			record.Reason, record.LimitName, record.RetryAfter = weir.Exhausted, e.limitName(desc), desc.retryAfter(began)
		}
	}
	s.cfg.Observe(&record)
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
