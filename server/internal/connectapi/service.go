package connectapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// NewService returns the methods for another transport, which authenticates callers and adds them
// to the context of each call with call.WithCaller. Errors are of type *call.Error.
func NewService(core *call.Core) weirv1.LimiterServiceServer { return &service{core: core} }

// service implements the methods.
type service struct {
	weirv1.UnsafeLimiterServiceServer // nil: the compiler reports missing methods

	core *call.Core // set once
}

var (
	_ weirv1connect.LimiterServiceHandler = (*service)(nil)
	_ weirv1.LimiterServiceServer         = (*service)(nil)
)

// Check is POST /v1/check.
func (s *service) Check(ctx context.Context, req *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	q, bad := query(req, req.Cost)
	if bad == nil {
		q.MaxWait, bad = maxWait(req.GetMaxWaitMs())
	}
	if bad != nil {
		return nil, bad
	}
	v, bad := s.core.Check(ctx, call.CallerOf(ctx), []byte(req.GetPolicy()), &q, req.GetPeek())
	if bad != nil {
		return nil, bad
	}
	return checkResponse(&v), nil
}

func checkResponse(v *ruleset.Verdict) *weirv1.CheckResponse {
	out := &weirv1.CheckResponse{
		Allowed:      v.Allowed,
		Policy:       v.Policy(),
		LimitedBy:    v.LimitedBy(),
		Limit:        v.Decision.Limit,
		Remaining:    v.Remaining,
		RetryAfterMs: v.RetryMillis(),
		ResetAfterMs: ruleset.Millis(v.ResetAfter),
		Reason:       v.Reason.String(),
	}
	if v.Waited > 0 {
		out.DelayMs = proto.Int64(ruleset.Millis(v.Waited))
	}
	return out
}

// Reserve is POST /v1/reserve.
func (s *service) Reserve(ctx context.Context, req *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
	q, bad := query(req, req.Cost)
	if bad == nil {
		q.MaxWait, bad = maxWait(req.GetMaxWaitMs())
	}
	if bad != nil {
		return nil, bad
	}
	ttl, bad := lasts(req.GetTtlMs())
	if bad != nil {
		return nil, bad
	}
	v, ticket, bad := s.core.Reserve(ctx, call.CallerOf(ctx), []byte(req.GetPolicy()), &q, ttl)
	if bad != nil {
		return nil, bad
	}
	return reserveResponse(&v, ticket, ttl), nil
}

func reserveResponse(v *ruleset.Verdict, ticket *ruleset.Ticket, ttl time.Duration) *weirv1.ReserveResponse {
	out := &weirv1.ReserveResponse{
		Allowed:      v.Allowed,
		Policy:       v.Policy(),
		LimitedBy:    v.LimitedBy(),
		Limit:        v.Decision.Limit,
		Remaining:    v.Remaining,
		RetryAfterMs: v.RetryMillis(),
		ResetAfterMs: ruleset.Millis(v.ResetAfter),
		Reason:       v.Reason.String(),
	}
	if v.Waited > 0 {
		out.DelayMs = proto.Int64(ruleset.Millis(v.Waited))
	}
	if ticket != nil {
		out.Id, out.ExpiresInMs = ticket.String(), ttl.Milliseconds()
	}
	return out
}

// Commit is POST /v1/commit.
func (s *service) Commit(ctx context.Context, req *weirv1.CommitRequest) (*weirv1.CommitResponse, error) {
	used, bad := usedOf(req)
	if bad != nil {
		return nil, bad
	}
	settled, err := s.settle(ctx, req.GetId(), used)
	if err != nil {
		return nil, err
	}
	return &weirv1.CommitResponse{Refunded: settled.Refunded, Overrun: settled.Overrun, Late: settled.Late}, nil
}

// usedOf reads what was used. A unit that is left out was used as reserved.
func usedOf(req *weirv1.CommitRequest) (used ruleset.Used, bad *call.Error) {
	used.All = req.Used == nil && len(req.GetUsedCosts()) == 0
	used.HaveCost, used.Cost = req.Used != nil, req.GetUsed()
	if bad := checkCost(`"used"`, used.Cost); bad != nil {
		return used, bad
	}
	used.Costs, bad = costs("used_costs", req.GetUsedCosts())
	return used, bad
}

// Cancel is POST /v1/cancel.
func (s *service) Cancel(ctx context.Context, req *weirv1.CancelRequest) (*weirv1.CancelResponse, error) {
	settled, err := s.settle(ctx, req.GetId(), ruleset.Used{None: true})
	if err != nil {
		return nil, err
	}
	return &weirv1.CancelResponse{Refunded: settled.Refunded, Overrun: settled.Overrun, Late: settled.Late}, nil
}

func (s *service) settle(ctx context.Context, id string, used ruleset.Used) (weir.Settled, error) {
	if id == "" {
		return weir.Settled{}, noID()
	}
	settled, bad := s.core.Settle(ctx, call.CallerOf(ctx), id, used)
	if bad != nil {
		return weir.Settled{}, bad
	}
	return settled, nil
}

// Renew is POST /v1/renew.
func (s *service) Renew(ctx context.Context, req *weirv1.RenewRequest) (*weirv1.RenewResponse, error) {
	ttl, bad := lasts(req.GetTtlMs())
	if bad != nil {
		return nil, bad
	}
	if req.GetId() == "" {
		return nil, noID()
	}
	renewed, bad := s.core.Renew(ctx, call.CallerOf(ctx), req.GetId(), ttl)
	if bad != nil {
		return nil, bad
	}
	if !renewed {
		ttl = 0
	}
	return &weirv1.RenewResponse{Renewed: renewed, ExpiresInMs: ttl.Milliseconds()}, nil
}

func noID() *call.Error { return call.Invalid(`"id" is missing: what Reserve returned`) }
