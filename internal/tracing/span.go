package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Span is the time that something takes. It is for one goroutine at a time. The methods of the zero Span,
// which is that of a request that is not traced, do nothing.
type Span struct{ recording trace.Span }

// spanOf returns a span, the zero Span if it records nothing.
func spanOf(s trace.Span) Span {
	if !s.IsRecording() {
		return Span{}
	}
	return Span{s}
}

// Child starts a span of a part of what ctx's span is about. It is the zero Span if there is none.
func (t *Tracer) Child(ctx context.Context, name string) (context.Context, Span) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, Span{}
	}
	ctx, s := t.tracer.Start(ctx, name)
	return ctx, spanOf(s)
}

// SpanOf returns the span of a context.
func (t *Tracer) SpanOf(ctx context.Context) Span {
	if t == nil {
		return Span{}
	}
	return spanOf(trace.SpanFromContext(ctx))
}

// IsRecording reports whether the span will be sent.
func (s Span) IsRecording() bool { return s.recording != nil }

// Text sets an attribute. It must be no secret, and nothing that callers choose.
func (s Span) Text(key, value string) {
	if s.recording != nil {
		s.recording.SetAttributes(attribute.String(key, value))
	}
}

// Int sets an attribute.
func (s Span) Int(key string, value int) {
	if s.recording != nil {
		s.recording.SetAttributes(attribute.Int(key, value))
	}
}

// Bool sets an attribute.
func (s Span) Bool(key string, value bool) {
	if s.recording != nil {
		s.recording.SetAttributes(attribute.Bool(key, value))
	}
}

// Fail marks the span as failed. Kind is one of few words, for example "timeout".
func (s Span) Fail(kind string) {
	if s.recording != nil {
		s.recording.SetAttributes(semconv.ErrorTypeKey.String(kind))
		s.recording.SetStatus(codes.Error, "")
	}
}

func (s Span) hasFailed() bool {
	ended, ok := s.recording.(sdktrace.ReadOnlySpan)
	return ok && ended.Status().Code == codes.Error
}

// End ends the span and queues it.
func (s Span) End() {
	if s.recording != nil {
		s.recording.End()
	}
}
