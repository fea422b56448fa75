package floor

import (
	"context"
	"net"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// ServeGRPC answers the two calls that weir is measured with, Check and ShouldRateLimit, by
// grpc-go with its defaults. The replies are constants as long as weir's; grpc-go decodes
// each request and encodes each reply all the same.
func ServeGRPC(l net.Listener) error {
	s := grpc.NewServer()
	weirv1.RegisterLimiterServiceServer(s, limiter{})
	rlsv3.RegisterRateLimitServiceServer(s, envoy{})
	return s.Serve(l)
}

type limiter struct {
	weirv1.UnimplementedLimiterServiceServer
}

// Check returns a constant.
func (limiter) Check(context.Context, *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	return checkReply, nil
}

type envoy struct{}

// ShouldRateLimit returns a constant.
func (envoy) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return envoyReply, nil
}

var checkReply = &weirv1.CheckResponse{
	Allowed: true, Policy: "plenty", Limit: 1_000_000, Remaining: 999_999, ResetAfterMs: 1, Reason: "admitted",
}

var envoyReply = &rlsv3.RateLimitResponse{
	OverallCode: rlsv3.RateLimitResponse_OK,
	Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{{
		Code: rlsv3.RateLimitResponse_OK,
		CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{
			RequestsPerUnit: 4_000_000_000, Unit: rlsv3.RateLimitResponse_RateLimit_YEAR,
		},
		LimitRemaining:     3_999_999_999,
		DurationUntilReset: durationpb.New(100*24*time.Hour + 123_456_789),
	}},
}
