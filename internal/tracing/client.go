package tracing

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

var clientKind = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}

// Client starts the span of an outgoing request, as a part of what the span of its context is about. It
// sets the trace context in the request's header, so that the receiver goes on with the trace, or, if the
// trace is not sampled, with that decision. The span has the host of the URL, and neither path nor query,
// which may have keys.
//
//	r, span := tracer.Client(r)
//	defer span.End()
//	response, err := transport.RoundTrip(r)
//	span.Result(response, err)
func (t *Tracer) Client(r *http.Request) (*http.Request, Span) {
	if t == nil {
		return r, Span{}
	}
	name := knownMethod(r.Method)
	if name == "" {
		name = "HTTP"
	}
	ctx, s := t.tracer.Start(r.Context(), name, clientKind...)
	span := spanOf(s)
	if span.IsRecording() {
		span.recording.SetAttributes(method(r.Method), semconv.URLScheme(r.URL.Scheme), semconv.ServerAddress(r.URL.Hostname()))
		if port, err := strconv.Atoi(r.URL.Port()); err == nil {
			span.recording.SetAttributes(semconv.ServerPort(port))
		}
	}
	r = r.WithContext(ctx)
	outgoing(ctx, r.Header)
	return r, span
}

// Result sets how an outgoing request ended.
func (s Span) Result(response *http.Response, err error) {
	switch {
	case s.recording == nil:
		return
	case err != nil:
		s.Fail(errorKind(err))
		return
	}
	s.recording.SetAttributes(semconv.HTTPResponseStatusCode(response.StatusCode))
	if response.StatusCode >= http.StatusBadRequest {
		s.Fail(strconv.Itoa(response.StatusCode))
	}
}

// errorKind returns the kind of an error, whose text may have the URL.
func errorKind(err error) string {
	netErr, isNet := errors.AsType[net.Error](err)
	_, isDNS := errors.AsType[*net.DNSError](err)
	_, isOp := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case isNet && netErr.Timeout():
		return "timeout"
	case isDNS:
		return "name_resolution"
	case isOp:
		return "connection"
	}
	return "_OTHER"
}
