package connectapi

import (
	"context"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
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
	caller := call.CallerOf(ctx)
	rule, bad := caller.Rule([]byte(req.GetPolicy()))
	if bad != nil {
		return nil, bad
	}
	v, bad := s.core.Check(ctx, caller, rule, &q, req.GetPeek())
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
