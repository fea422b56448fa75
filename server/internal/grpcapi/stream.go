package grpcapi

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/tracing"
)

// maxStreams is the maximum number of open streams on all connections. Only health's Watch and
// reflection use streams, and their callers decide how long a stream stays open.
const maxStreams = 256

// stream is the interceptor of health's Watch, which everybody may call, and of reflection, which
// needs the authentication of the first service.
func (s *Server) stream(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	isHealth := strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/")
	ctx, span := ss.Context(), tracing.Span{}
	if !isHealth {
		ctx, span = s.cfg.Tracer.RPC(ctx, info.FullMethod)
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			err = s.recovered(info.FullMethod, panicked)
		}
		ended(span, err)
	}()
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		return status.Errorf(codes.ResourceExhausted, "%d streams are open, and more are not served", maxStreams)
	}
	c := callerOf(ctx)
	if !isHealth {
		if _, err := s.enter(ctx, c, &s.cfg.Services[0]); err != nil {
			return err
		}
		s.markProven(c)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	return next(server, &endingStream{ss, ctx})
}

// endingStream is a stream that ends when the server stops.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (e *endingStream) Context() context.Context { return e.ctx }

// RecvMsg returns when the server stops. Then the stream ends, and with it the goroutine that
// still waits for a message.
func (e *endingStream) RecvMsg(m any) error {
	got := make(chan error, 1)
	go func() { got <- e.ServerStream.RecvMsg(m) }()
	select {
	case err := <-got:
		return err
	case <-e.ctx.Done():
		return status.FromContextError(e.ctx.Err()).Err()
	}
}
