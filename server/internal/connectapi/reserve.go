package connectapi

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// Reserve is POST /v1/reserve.
func (s *service) Reserve(ctx context.Context, req *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
	q, bad := query(req, req.Cost)
	if bad != nil {
		return nil, bad
	}
	ttl, bad := lasts(req.GetTtlMs())
	if bad != nil {
		return nil, bad
	}
	caller := call.CallerOf(ctx)
	rule, bad := caller.Rule([]byte(req.GetPolicy()))
	if bad != nil {
		return nil, bad
	}
	v, ticket, bad := s.core.Reserve(ctx, caller, rule, &q, ttl)
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
	if bad := checkRange(`"used"`, used.Cost, weir.MaxCost); bad != nil {
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
