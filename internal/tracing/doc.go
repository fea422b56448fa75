// Package tracing makes the spans of the daemon with the OpenTelemetry SDK and sends them to a
// collector, OTLP over HTTP. It is the only package that knows the SDK.
//
//	tracer, err := tracing.New(tracing.Config{Endpoint: "http://127.0.0.1:4318", Log: log})
//	tracer.Start()
//	defer tracer.Shutdown(ctx) // sends what is left until ctx ends
//
//	handler = tracer.Handler(handler, describe) // a span for each request of HTTP
//	ctx, span := tracer.Child(ctx, "weir.check") // a part of it
//	defer span.End()
//
// A nil *Tracer is tracing that is off: Handler returns its argument, the other methods return what they
// were given and a zero [Span], of which all methods do nothing. That allocates nothing and starts no
// goroutine.
//
// # Which requests are traced
//
// A request with a valid traceparent is traced if its caller traces it, so that a trace is whole or not
// there; its tracestate is kept. Of the others, the part Config.Sample is. Anybody who may send requests
// can ask to be traced, so an unauthenticated caller can fill the queue, but not more than that.
//
// # What is in a span
//
// Names and attributes are those of the semantic conventions of OpenTelemetry for HTTP and RPC, as far as
// they cannot have secrets: no keys, tokens, addresses of callers, queries, or paths that callers choose.
// Names of policies come from the configuration and are in the spans of decisions. Texts are cut at
// 256 bytes unless OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT says otherwise.
//
// # Delivery
//
// Spans wait in a queue of 2,048, from which the SDK's batch processor sends up to 512, or what there is
// after five seconds. When the queue is full, spans are dropped; no request ever waits for the
// collector. A batch is sent again for up to 30 seconds if the collector cannot be reached or answers 429,
// 502, 503 or 504, in the time of Retry-After or else after 1, 2, 4 and 8 seconds, less up to a half by
// chance. Lost spans are logged, at most once a minute. Redirects are not followed.
//
// # What it costs
//
// Most requests are not traced, and for them the SDK is not called: their header, or a random number, is
// looked at before. That takes some ten nanoseconds and no memory.
//
// # The environment
//
// What Config leaves open comes from the standard variables of OpenTelemetry: OTEL_EXPORTER_OTLP_ENDPOINT,
// _HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY, and the same with
// OTEL_EXPORTER_OTLP_TRACES_; OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER,
// OTEL_TRACES_SAMPLER_ARG, OTEL_BSP_* and OTEL_SPAN_*. OTEL_SDK_DISABLED=true is off whatever Config says.
// A variable that is wrong makes New fail with an [EnvironmentError].
//
// # Secrets
//
// Headers, user and password of the endpoint, and its path do not appear in errors, nor where a Config is
// printed. What the collector answers is not repeated.
//
// # Sources
//
// W3C Trace Context, level 2; OTLP 1.x; semantic conventions 1.43. OpenTelemetry's environment variable
// specification.
package tracing
