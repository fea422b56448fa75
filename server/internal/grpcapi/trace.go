package grpcapi

import (
	"context"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/otlp"
)

// trace begins the span of a call, nil if it is not traced. A method is one of those there
// are: grpc-go answers for all others itself.
func (s *Server) trace(ctx context.Context, method string) *otlp.Span {
	if s.cfg.Tracer == nil {
		return nil
	}
	parent := ""
	if values := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(values) == 1 {
		parent = values[0]
	}
	method = strings.TrimPrefix(method, "/")
	span := s.cfg.Tracer.Start(method, parent)
	span.Str("rpc.system.name", "grpc")
	span.Str("rpc.method", method)
	return span
}

// traced ends the span of a call that ended with err. Those of which the server is to blame
// have failed.
func traced(span *otlp.Span, err error) {
	if span == nil {
		return
	}
	defer span.End()
	c := status.Code(err)
	name := code.Code(c).String() //nolint:gosec // there are 17
	span.Str("rpc.response.status_code", name)
	switch c {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		span.Fail(name)
	}
}
