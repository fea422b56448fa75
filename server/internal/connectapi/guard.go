package connectapi

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// NewGuard is New for weir.v1.GuardService.
func NewGuard(core *call.Core, state func() *call.State) (path string, handler http.Handler) {
	options := handlerOptions(&service{core: core})
	path, inner := weirv1connect.NewGuardServiceHandler(&guardService{core: core}, options...)
	return path, &authHandler{core: core, state: state, inner: inner, errors: connect.NewErrorWriter(options...)}
}

// NewGuardService is NewService for weir.v1.GuardService.
func NewGuardService(core *call.Core) weirv1.GuardServiceServer { return &guardService{core: core} }

// guardService implements the methods.
type guardService struct {
	weirv1.UnsafeGuardServiceServer // nil: the compiler reports missing methods

	core *call.Core // set once
}

var (
	_ weirv1connect.GuardServiceHandler = (*guardService)(nil)
	_ weirv1.GuardServiceServer         = (*guardService)(nil)
)

// Admit is POST /v1/guard.
func (s *guardService) Admit(ctx context.Context, req *weirv1.AdmitRequest) (*weirv1.AdmitResponse, error) {
	q := call.AdmitQuery{
		Method: req.GetMethod(), Path: req.GetPath(), Address: req.GetAddress(), Principal: req.GetPrincipal(), Plan: req.GetPlan(),
		APIKey: req.GetApiKey(), Cost: req.GetCost(),
	}
	for name, value := range req.GetAttributes() {
		q.Attributes = append(q.Attributes, ruleset.Attribute{Name: name, Value: value})
	}
	a, bad := s.core.AdmitQuery(ctx, call.CallerOf(ctx), &q)
	if bad != nil {
		return nil, bad
	}
	return &weirv1.AdmitResponse{
		Allowed:      a.Allowed,
		Policy:       a.Policy(),
		LimitedBy:    a.LimitedBy(),
		Limit:        a.Decision.Limit,
		Remaining:    a.Remaining,
		RetryAfterMs: a.RetryMillis(),
		ResetAfterMs: ruleset.Millis(a.ResetAfter),
		Reason:       a.Reason.String(),
		Cause:        a.Cause.String(),
		Penalized:    a.Penalized,
		Exempt:       a.Exempt,
		SubjectKind:  a.SubjectKind(),
		Ticket:       a.Ticket.ID,
		ExpiresInMs:  a.Ticket.ExpiresMillis(),
		Hidden:       a.Hidden(),
	}, nil
}

// Finish is POST /v1/guard/finish.
func (s *guardService) Finish(ctx context.Context, req *weirv1.FinishRequest) (*weirv1.FinishResponse, error) {
	settled, bad := s.core.FinishQuery(ctx, call.CallerOf(ctx), req.GetTicket(), req.GetFailed(), req.Cost)
	if bad != nil {
		return nil, bad
	}
	return &weirv1.FinishResponse{Refunded: settled.Refunded, Overrun: settled.Overrun, Late: settled.Late}, nil
}

// Quotas is POST /v1/guard/quotas.
func (s *guardService) Quotas(ctx context.Context, req *weirv1.QuotasRequest) (*weirv1.QuotasResponse, error) {
	subject := guard.Subject{Key: req.GetSubject(), Plan: req.GetPlan()}
	list, bad := s.core.QuotasQuery(ctx, call.CallerOf(ctx), subject, req.GetMethod(), req.GetPath())
	if bad != nil {
		return nil, bad
	}
	out := &weirv1.QuotasResponse{}
	for _, q := range list {
		out.Quotas = append(out.Quotas, &weirv1.Quota{
			Policy: q.Endpoint, Name: q.Limit, Limit: q.Capacity, Remaining: q.Remaining, ResetAfterMs: ruleset.Millis(q.Reset), Hidden: q.Hidden, Shadow: q.Shadow,
		})
	}
	return out, nil
}
