package envoyapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/identity"
)

// Config is what New needs. All fields but Now are required.
type Config struct {
	Limiter weir.Limiter
	Observe func(*guard.Record) // is told each decision; it must not keep the record
	Log     *slog.Logger
	Now     func() time.Time // the default is time.Now
}

// Service answers Envoy. Make one with New.
type Service struct {
	cfg       Config
	overrides overrides
	refunds   turns

	mu      sync.Mutex              // held by Set, one at a time; guards the field below
	applied map[string]*weir.Policy // the limits of the last rules that had the name, also if they are gone
}

var _ rlsv3.RateLimitServiceServer = (*Service)(nil)

// New returns a service.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg: cfg, refunds: newTurns(), applied: map[string]*weir.Policy{}}
}

// Set changes the limiter's limits to those of rules that calls are to bring from now on. Counts
// are kept. Limits of a name that is new are left as the limiter has them; see Rules.Policies. If
// it returns an error, the rules before are in force.
func (s *Service) Set(ctx context.Context, rules *Rules) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var done []*weir.Policy // what was in force before
	for name, p := range rules.policies {
		old := s.applied[name]
		if old == nil || old.Same(p) {
			s.applied[name] = p
			continue
		}
		err := s.cfg.Limiter.Set(ctx, old, p)
		if err == nil || errors.Is(err, weir.ErrUnknown) { // then it may have been set
			s.applied[name] = p
			done = append(done, old)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("envoy: policy %q: %w", name, err), s.undoLocked(ctx, done))
		}
	}
	return nil
}

// undoLocked puts policies in force again. It requires s.mu.
func (s *Service) undoLocked(ctx context.Context, done []*weir.Policy) (problems error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, old := range done {
		problems = errors.Join(problems, s.cfg.Limiter.Set(ctx, s.applied[old.Name()], old))
		s.applied[old.Name()] = old
	}
	return problems
}

// caller is who asks, and what holds for the call. It travels in the context.
type caller struct {
	rules  *Rules
	client *identity.Client // nil if it does not matter who
}

type callerKey struct{}

// WithCaller returns a context for a call of client, who is nil if it does not matter who
// calls, that is decided by rules.
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
	a, err := s.read(d, r)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	began := s.cfg.Now()
	if err := a.decide(ctx, s.cfg.Limiter, &s.refunds); err != nil {
		return nil, s.undecided(ctx, d, err)
	}
	if d.observe != nil {
		s.tell(c, a, s.cfg.Now().Sub(began))
	}
	return a.answer(began), nil
}

const maxDescriptors = 256

// check refuses requests that are not in order, and callers who may not make them.
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

// undecided answers when no decision was made. What to do then is Envoy's to know.
func (s *Service) undecided(ctx context.Context, d *domain, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	s.cfg.Log.Error("no decision", "policy", Label(d.Name), "error", err)
	if errors.Is(err, compiled.ErrLimits) { // limits of the request cannot be counted, or are too many
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return status.Error(codes.Unavailable, "no decision could be made; the daemon's log says why")
}

// tell reports a decision to those who watch, with the key and hits of who refused or, in
// shadow, would have.
func (s *Service) tell(c *caller, a *asking, took time.Duration) {
	record := guard.Record{Cost: 1, Took: took}
	record.Verdict = guard.Verdict{Variant: a.domain.observe, Limit: -1, Shadow: -1}
	record.Allowed, record.Reason = a.admitted || a.domain.ShadowMode, weir.Admitted
	if c.client != nil {
		record.Client = c.client.Name
	}
	if q := a.refuser(); q != nil {
		record.Key, record.Cost = q.key, q.hits
		if record.Allowed {
			record.Shadow = 0 // the domain stands for its limits
		} else {
			record.Reason = weir.Exhausted
		}
	}
	s.cfg.Observe(&record)
}

// refuser returns the first question whose limit refused the request, else the first in shadow
// that would have, nil if there is none.
func (a *asking) refuser() (would *question) {
	for i := range a.list {
		switch q := &a.list[i]; {
		case q.over && q.mode() != shadow && !a.admitted:
			return q
		case q.over && q.mode() == shadow && would == nil:
			would = q
		}
	}
	return would
}
