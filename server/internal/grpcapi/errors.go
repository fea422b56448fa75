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

// failed converts a service's error to a gRPC status. Connect's codes are those of gRPC.
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

// refused returns the status of a failed authentication. Errors of SetHeader are ignored: they
// mean that the caller is gone.
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

// exhausted returns a status with the time to wait, in both ways that gRPC clients support: the
// status details, and the trailer grpc-retry-pushback-ms of grpc-go's automatic retries.
func exhausted(ctx context.Context, r *identity.Refusal) error {
	_ = grpc.SetTrailer(ctx, metadata.Pairs(identity.Pushback, r.PushbackMillis()))
	return status.ErrorProto(&spb.Status{Code: int32(codes.ResourceExhausted), Message: r.Problem, Details: r.Details()})
}
