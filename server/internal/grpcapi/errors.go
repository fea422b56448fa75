package grpcapi

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

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
	_ = grpc.SetTrailer(ctx, metadata.Pairs(identity.Pushback, r.PushbackMillis()))
	return status.ErrorProto(&spb.Status{Code: int32(codes.ResourceExhausted), Message: r.Problem, Details: r.Details()})
}
