package grpcapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
)

// failed returns a service's error the way gRPC sends it. The codes of connect are those of
// gRPC.
func (s *Server) failed(method string, err error) error {
	if problem, ok := errors.AsType[*connect.Error](err); ok {
		return status.Error(codes.Code(problem.Code()), problem.Message())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	s.log.Error("a service failed", "procedure", method, "error", err)
	return status.Error(codes.Internal, "the daemon made a mistake; its log says which")
}

// refused answers who may not come in. What is set beside it is lost only if the caller is
// gone.
func refused(ctx context.Context, r *identity.Refusal) error {
	switch r.Status {
	case http.StatusUnauthorized:
		_ = grpc.SetHeader(ctx, metadata.Pairs("www-authenticate", `Bearer realm="weir"`))
		return status.Error(codes.Unauthenticated, r.Problem)
	case http.StatusTooManyRequests:
		return exhausted(ctx, r)
	}
	return status.Error(codes.PermissionDenied, r.Problem)
}

// exhausted is a refusal that says when to come again, in all ways that clients of gRPC
// look for: the details for those that retry by themselves, the trailer for grpc-go.
func exhausted(ctx context.Context, r *identity.Refusal) error {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(guard.Millis(r.RetryAfter), 10)))
	out, err := status.New(codes.ResourceExhausted, r.Problem).WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)},
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: "clientip", Description: r.Problem, QuotaId: "failed-logins"}}},
	)
	if err != nil { // they are messages like others
		return status.Error(codes.ResourceExhausted, r.Problem)
	}
	return out.Err()
}
