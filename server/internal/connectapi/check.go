package connectapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/ruleset"
)

// Check is POST /v1/check.
func (s *service) Check(ctx context.Context, req *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	c := callerOf(ctx)
	q, bad := c.query(req, req.Cost)
	if bad == nil {
		q.MaxWait, bad = maxWait(req.GetMaxWaitMs())
	}
	if bad != nil {
		return nil, bad
	}
	rule, bad := c.rule(req.GetPolicy())
	if bad != nil {
		return nil, bad
	}
	decide := s.engine.Check
	if req.GetPeek() {
		decide = s.engine.Peek
	}
	began := time.Now()
	v, err := decide(ctx, rule, &q)
	if err != nil {
		return nil, s.undecided(ctx, rule.Name(), err)
	}
	s.tell(&q, &v, req.GetPeek(), time.Since(began)-v.Waited)
	return checkResponse(&v), nil
}

// tell reports a decision to the observer.
func (s *service) tell(q *ruleset.Query, v *ruleset.Verdict, peek bool, took time.Duration) {
	record := newRecord(q, v, peek, took)
	s.observe(&record)
}

func newRecord(q *ruleset.Query, v *ruleset.Verdict, peek bool, took time.Duration) ruleset.Record {
	return ruleset.Record{Verdict: *v, Key: q.Key, Cost: q.Cost, Client: q.Client, Peek: peek, Took: took}
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
