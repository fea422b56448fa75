package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The headers of W3C Trace Context, in the form of gRPC and in that of net/http.
const (
	traceparent       = "traceparent"
	traceparentHeader = "Traceparent"
	tracestateHeader  = "Tracestate"
)

// incoming returns ctx with the caller's trace context. Get returns the values of a header.
func incoming(ctx context.Context, get func(name string) []string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, reader(get))
}

// reader reads the headers of a request. A tracestate may be in several parts. Two traceparents are none,
// since it is not known which of them the caller sent: joined, they are malformed.
type reader func(name string) []string

// Get returns the values of a header.
func (get reader) Get(name string) string { return strings.Join(get(name), ",") }

// Set does nothing.
func (reader) Set(string, string) {}

// Keys returns nothing.
func (reader) Keys() []string { return nil }

// headerValues returns the values of the headers of W3C Trace Context, whose form is known.
func headerValues(h http.Header) func(name string) []string {
	return func(name string) []string {
		if name == traceparent {
			return h[traceparentHeader]
		}
		return h[tracestateHeader]
	}
}

// outgoing sets the trace context of ctx in the headers of a request, in place of what is there.
func outgoing(ctx context.Context, h http.Header) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	delete(h, tracestateHeader)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}
