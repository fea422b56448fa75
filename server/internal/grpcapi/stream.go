package grpcapi

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxStreams is how many streams may be open at once, on all connections: they are for the
// few who watch health or look around, and each is held for as long as its caller likes.
const maxStreams = 256

// stream stands around health's Watch, which everybody may call, and reflection, which is
// for those who may call the first service.
func (s *Server) stream(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = s.recovered(info.FullMethod, panicked)
		}
	}()
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		return status.Errorf(codes.ResourceExhausted, "%d streams are open, and more are not served", maxStreams)
	}
	c := callerOf(ss.Context())
	if !strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/") {
		if _, err := s.enter(ss.Context(), c, s.first); err != nil {
			return err
		}
	}
	s.markProven(c)
	ctx, cancel := context.WithCancel(ss.Context())
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

// RecvMsg gives up when the server stops. Then the stream ends, and with it the goroutine
// that still waits.
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
