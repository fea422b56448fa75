package grpcapi

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/otlp"
)

// unary stands around each call.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
	service := s.services[info.Server] // nil for health, which is for everybody
	var span *otlp.Span
	if service != nil {
		span = s.trace(ctx, info.FullMethod)
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			reply, err = nil, s.recovered(info.FullMethod, panicked)
		}
		traced(span, err)
	}()
	c := callerOf(ctx)
	if service != nil {
		if ctx, err = s.enter(ctx, c, service); err != nil {
			return nil, err
		}
	}
	s.markProven(c)
	if reply, err = next(ctx, req); err != nil {
		return nil, s.failed(info.FullMethod, err)
	}
	return reply, nil
}

// enter lets a caller in.
func (s *Server) enter(ctx context.Context, c *caller, service *Service) (context.Context, error) {
	inside, err := service.Enter(ctx, identity.Credentials{Token: token(ctx), Names: c.names, Address: c.address})
	if err != nil {
		return nil, refused(ctx, err)
	}
	return inside, nil
}

// token returns what a call brings to prove who sent it. Who brings two brings none: they
// may come from two sources, of which one was to be believed.
func token(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) == 1 {
		return identity.Bearer(values[0])
	}
	return ""
}

// settle notes that a connection is in use.
func (s *Server) markProven(c *caller) {
	if !c.proven.Load() {
		c.proven.Store(true)
		s.proven(c.conn)
	}
}

// recovered answers when a service panicked. What it panicked with is for the log alone.
func (s *Server) recovered(method string, panicked any) error {
	s.log.Error("panic", "procedure", method, "panic", panicked, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "the daemon made a mistake; its log says which")
}
