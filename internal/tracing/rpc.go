package tracing

import (
	"context"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The systems of Call.
const (
	GRPC    = "grpc"
	Connect = "connectrpc"
)

// RPC starts the span of a call of gRPC. The method, such as "/weir.v1.LimiterService/Check", is one that
// exists. As behind Handler, a call that is not traced has no trace context.
func (t *Tracer) RPC(ctx context.Context, method string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	switch t.sampling.early(metadata.ValueFromIncomingContext(ctx, traceparent)) {
	case skipped:
		return ctx, Span{}
	case chosen:
		ctx = asChosen(ctx)
	}
	return t.rpc(ctx, strings.TrimPrefix(method, "/"))
}

// rpc is apart from RPC because its closure takes memory.
func (t *Tracer) rpc(ctx context.Context, method string) (context.Context, Span) {
	caller := incoming(ctx, func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) })
	inside, span := t.serve(caller, method)
	if span.IsRecording() {
		span.recording.SetAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method))
	}
	return inside, span
}

// RPCStatus sets how a call of gRPC ended. Those of which the server is to blame have failed.
func (s Span) RPCStatus(c codes.Code) {
	s.rpcStatus(c, code.Code(c).String()) //nolint:gosec // there are 17
}

// ConnectStatus is RPCStatus for the error of a call of Connect, whose codes have other names.
func (s Span) ConnectStatus(c codes.Code) {
	s.rpcStatus(c, strings.ToLower(code.Code(c).String())) //nolint:gosec // there are 17
}

func (s Span) rpcStatus(c codes.Code, name string) {
	if s.recording == nil {
		return
	}
	s.recording.SetAttributes(semconv.RPCResponseStatusCode(name))
	switch c {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		s.Fail(name)
	}
}
