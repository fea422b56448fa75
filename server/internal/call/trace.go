package call

import (
	"context"

	"github.com/weirlimit/weir/internal/tracing"
)

// The spans of what the store does. Their attributes are names from the configuration and constants, never
// keys.
const (
	spanCheck   = "weir.check"
	spanBatch   = "weir.check_batch"
	spanReserve = "weir.reserve"
	spanSettle  = "weir.settle"
	spanRenew   = "weir.renew"
	spanAdmit   = "weir.admit"
)

// DecisionSpan, for decisions that other packages make, starts the span of a decision, the zero Span if the call has none. Policy is a name from the
// configuration, or "".
func (c *Core) DecisionSpan(ctx context.Context, policy string) (context.Context, tracing.Span) {
	return c.span(ctx, spanCheck, policy)
}

func (c *Core) span(ctx context.Context, name, policy string) (context.Context, tracing.Span) {
	ctx, span := c.Tracer.Child(ctx, name)
	if policy != "" {
		span.Text("weir.policy", policy)
	}
	return ctx, span
}

// endDecision ends the span of a decision.
func endDecision(span tracing.Span, allowed bool, reason string, err *Error) {
	if err == nil {
		span.Bool("weir.allowed", allowed)
		span.Text("weir.reason", reason)
	}
	EndSpan(span, err)
}

// EndSpan ends a span. Errors that are the caller's do not make it a failure.
func EndSpan(span tracing.Span, err *Error) {
	if err != nil {
		switch err.Kind {
		case Unavailable:
			span.Fail("unavailable")
		case DeadlineExceeded:
			span.Fail("deadline_exceeded")
		}
	}
	span.End()
}
