package tracing

import (
	"context"
	"math/rand/v2"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// sampling is how requests are selected. All samplers with standard names are such pairs.
type sampling struct {
	parentBased bool    // the caller's decision counts, if there is one
	ratio       float64 // the part of the others
}

// sampler returns the SDK's sampler.
func (s sampling) sampler() sdktrace.Sampler {
	root := sdktrace.TraceIDRatioBased(s.ratio)
	if s.parentBased {
		root = sdktrace.ParentBased(root)
	}
	return forced{root}
}

// A verdict is what is known of a request before the SDK sees it.
type verdict int

const (
	undecided verdict = iota // the SDK decides
	skipped
	chosen
)

// early decides most requests, which are not traced, without the microseconds and the memory of the SDK.
// Parents are the values of the header traceparent.
func (s sampling) early(parents []string) verdict {
	switch {
	case len(parents) == 1 && s.parentBased && declines(parents[0]):
		return skipped
	case len(parents) > 0:
		return undecided
	case s.ratio < 1 && rand.Float64() >= s.ratio:
		return skipped
	}
	return chosen
}

// declines reports whether a traceparent has the flag that its caller does not trace. Should the rest be
// malformed, the request is not traced either.
func declines(parent string) bool {
	const length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if len(parent) != length {
		return false
	}
	switch parent[length-1] {
	case '0', '2', '4', '6', '8', 'a', 'c', 'e':
		return true
	}
	return false
}

type chosenKey struct{}

// asChosen returns a context whose spans are traced.
func asChosen(ctx context.Context) context.Context {
	return context.WithValue(ctx, chosenKey{}, true)
}

// forced is a sampler that takes the spans of chosen requests.
type forced struct{ sdktrace.Sampler }

// ShouldSample decides about a span.
func (f forced) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.ParentContext.Value(chosenKey{}) != nil {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return f.Sampler.ShouldSample(p)
}
