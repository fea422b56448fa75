package grpcapi

import (
	"context"
	"errors"
	"runtime/debug"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/server/internal/call"
)

// tap is called when the head of a call has arrived, before its message is received, for one call of
// a connection at a time.
func (s *Server) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	c := callerOf(ctx)
	if c.proven.Load() || s.cfg.Known(credentialsOf(ctx, c)) {
		return ctx, nil
	}
	if c.calls.Load() >= maxUnproven {
		return nil, status.Errorf(codes.ResourceExhausted, "at most %d calls at once are served on a connection without an authenticated call", maxUnproven)
	}
	c.calls.Add(1)
	context.AfterFunc(ctx, func() { c.calls.Add(-1) }) // the context ends with the call
	return ctx, nil
}

// unary is the interceptor of each unary call.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
	service := s.services[info.Server] // nil for health, which needs no authentication
	var span tracing.Span
	if service != nil {
		ctx, span = s.cfg.Tracer.RPC(ctx, info.FullMethod)
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			reply, err = nil, s.recovered(info.FullMethod, panicked)
		}
		ended(span, err)
	}()
	c := callerOf(ctx)
	if service != nil {
		if ctx, err = s.enter(ctx, c, service); err != nil {
			return nil, err
		}
		s.markProven(c)
	}
	if reply, err = next(ctx, req); err != nil {
		return nil, s.failed(info.FullMethod, err)
	}
	return reply, nil
}

// enter authenticates a caller.
func (s *Server) enter(ctx context.Context, c *caller, service *Service) (context.Context, error) {
	inside, err := service.Enter(ctx, credentialsOf(ctx, c))
	if err != nil {
		return nil, refused(ctx, err)
	}
	return inside, nil
}

func credentialsOf(ctx context.Context, c *caller) identity.Credentials {
	return identity.Credentials{Token: token(ctx), Names: c.names, Address: c.address}
}

// token returns the bearer token of a call. A call with two authorization values has none: one
// of them may have been added by another party.
func token(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) == 1 {
		return identity.Bearer(values[0])
	}
	return ""
}

// markProven reports the connection of an authenticated call to Config.Proven.
func (s *Server) markProven(c *caller) {
	if !c.proven.Load() {
		c.proven.Store(true)
		s.cfg.Proven(c.conn)
	}
}

// recovered logs a service's panic and returns the error for the caller, which has no details.
func (s *Server) recovered(method string, panicked any) error {
	s.cfg.Log.Error("panic", "procedure", method, "panic", panicked, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "the daemon made a mistake; its log says which")
}

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

// ended ends the span of a call that ended with err.
func ended(span tracing.Span, err error) {
	if span.IsRecording() {
		span.RPCStatus(status.Code(err))
		span.End()
	}
}
