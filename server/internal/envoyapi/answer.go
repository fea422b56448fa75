package envoyapi

import (
	"math"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// answer returns what Envoy is told.
func (a *asking) answer(now time.Time) *rlsv3.RateLimitResponse {
	out := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(a.list))}
	if !a.admitted && !a.domain.ShadowMode {
		out.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	for i := range a.list {
		out.Statuses[i] = a.list[i].status(now)
	}
	if a.domain.Headers {
		out.ResponseHeadersToAdd = headers(out.Statuses)
	}
	return out
}

func (q *question) status(now time.Time) *rlsv3.RateLimitResponse_DescriptorStatus {
	out := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	switch {
	case q.limit == nil:
		return out
	case q.limit.Unlimited:
		out.LimitRemaining = math.MaxUint32
		return out
	case q.over && q.limit.mode != shadow:
		out.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	out.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
		Name: q.limit.Name, RequestsPerUnit: q.limit.RequestsPerUnit, Unit: rlsv3.RateLimitResponse_RateLimit_Unit(q.limit.period.unit),
	}
	if q.limit.times > 1 {
		out.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(q.limit.times)
	}
	out.LimitRemaining = uint32(min(max(0, q.remaining), math.MaxUint32))
	out.DurationUntilReset = durationpb.New(q.untilReset(now))
	return out
}

// untilReset returns how long the limit's window lasts. Of one in which nothing was counted
// the limiter does not say.
func (q *question) untilReset(now time.Time) time.Duration {
	if q.reset > 0 {
		return q.reset
	}
	length, err := q.limit.period.length()
	if err != nil { // it was compiled
		return 0
	}
	return length - time.Duration(now.UnixNano())%length
}

// headers tells callers of the tightest limit: the one with the least remaining, of several
// the one that resets last.
func headers(list []*rlsv3.RateLimitResponse_DescriptorStatus) []*corev3.HeaderValue {
	var tightest *rlsv3.RateLimitResponse_DescriptorStatus
	for _, s := range list {
		if s.CurrentLimit != nil && (tightest == nil || isTighter(s, tightest)) {
			tightest = s
		}
	}
	if tightest == nil {
		return nil
	}
	seconds := (tightest.DurationUntilReset.AsDuration() + time.Second - 1) / time.Second
	return []*corev3.HeaderValue{
		{Key: "RateLimit-Limit", Value: strconv.FormatUint(uint64(tightest.CurrentLimit.RequestsPerUnit), 10)},
		{Key: "RateLimit-Remaining", Value: strconv.FormatUint(uint64(tightest.LimitRemaining), 10)},
		{Key: "RateLimit-Reset", Value: strconv.FormatInt(int64(seconds), 10)},
	}
}

func isTighter(a, b *rlsv3.RateLimitResponse_DescriptorStatus) bool {
	if a.LimitRemaining != b.LimitRemaining {
		return a.LimitRemaining < b.LimitRemaining
	}
	return a.DurationUntilReset.AsDuration() > b.DurationUntilReset.AsDuration()
}
