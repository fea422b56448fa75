package grpcapi

import (
	"context"
	"errors"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/call"
)

// failed converts a service's error to a gRPC status.
func (s *Server) failed(method string, err error) error {
	if bad, ok := errors.AsType[*call.Error](err); ok {
		return convert(bad)
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	s.cfg.Log.Error("a service failed", "procedure", method, "error", err)
	return status.Error(codes.Internal, "the daemon made a mistake; its log says which")
}

func convert(err *call.Error) error { return status.Error(err.Code(), err.Text()) }

// refused returns the status of a failed authentication. If the caller is throttled, it has the
// time to wait in both ways that gRPC clients support: the status details, and the trailer
// grpc-retry-pushback-ms of grpc-go's automatic retries. Errors of SetHeader and SetTrailer are
// ignored: they mean that the caller is gone.
func refused(ctx context.Context, err *call.Error) error {
	switch err.Kind {
	case call.Unauthenticated:
		_ = grpc.SetHeader(ctx, metadata.Pairs("www-authenticate", `Bearer realm="weir"`))
	case call.Throttled:
		_ = grpc.SetTrailer(ctx, metadata.Pairs(identity.Pushback, err.Refusal.PushbackMillis()))
		return status.ErrorProto(&spb.Status{Code: int32(codes.ResourceExhausted), Message: err.Text(), Details: err.Refusal.Details()})
	}
	return convert(err)
}
