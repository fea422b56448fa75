package envoyapi

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// response returns the response of the call.
func (e *evaluation) response(now time.Time) *rlsv3.RateLimitResponse {
	out := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(e.list))}
	if !e.admitted && !e.domain.ShadowMode {
		out.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	for i := range e.list {
		out.Statuses[i] = e.list[i].status(now)
	}
	if e.domain.Headers {
		out.ResponseHeadersToAdd = headers(out.Statuses)
	}
	return out
}

func (desc *descriptor) status(now time.Time) *rlsv3.RateLimitResponse_DescriptorStatus {
	out := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	switch {
	case desc.limit == nil:
		return out
	case desc.limit.Unlimited:
		out.LimitRemaining = math.MaxUint32
		return out
	case desc.over && desc.limit.mode != shadow:
		out.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	out.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
		Name: desc.limit.Name, RequestsPerUnit: desc.limit.RequestsPerUnit, Unit: rlsv3.RateLimitResponse_RateLimit_Unit(desc.limit.period.unit),
	}
	if desc.limit.times > 1 {
		out.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(desc.limit.times)
	}
	out.LimitRemaining = uint32(min(max(0, desc.remaining), math.MaxUint32))
	out.DurationUntilReset = durationpb.New(desc.untilReset(now))
	return out
}

// untilReset returns the time to the end of the limit's window. The limiter does not return it for
// an unused window.
func (desc *descriptor) untilReset(now time.Time) time.Duration {
	if desc.reset > 0 {
		return desc.reset
	}
	length, err := desc.limit.period.length()
	if err != nil { // impossible: the limit was compiled
		return 0
	}
	return length - time.Duration(now.UnixNano())%length
}

// headers returns the headers of the tightest limit: the one with the least remaining, of several
// the one that resets last.
func headers(list []*rlsv3.RateLimitResponse_DescriptorStatus) []*corev3.HeaderValue {
	limited := slices.DeleteFunc(slices.Clone(list), func(s *rlsv3.RateLimitResponse_DescriptorStatus) bool { return s.CurrentLimit == nil })
	if len(limited) == 0 {
		return nil
	}
	tightest := slices.MinFunc(limited, func(a, b *rlsv3.RateLimitResponse_DescriptorStatus) int {
		return cmp.Or(cmp.Compare(a.LimitRemaining, b.LimitRemaining), cmp.Compare(b.DurationUntilReset.AsDuration(), a.DurationUntilReset.AsDuration()))
	})
	seconds := (tightest.DurationUntilReset.AsDuration() + time.Second - 1) / time.Second
	return []*corev3.HeaderValue{
		{Key: "RateLimit-Limit", Value: strconv.FormatUint(uint64(tightest.CurrentLimit.RequestsPerUnit), 10)},
		{Key: "RateLimit-Remaining", Value: strconv.FormatUint(uint64(tightest.LimitRemaining), 10)},
		{Key: "RateLimit-Reset", Value: strconv.FormatInt(int64(seconds), 10)},
	}
}
