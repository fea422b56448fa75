// Package otlp sends traces to an OpenTelemetry collector: one span for each request that
// is sampled, in JSON over HTTP, with the standard library alone.
//
//	exporter, err := otlp.New(otlp.Config{Endpoint: "http://127.0.0.1:4318", Ratio: 0.01})
//	go exporter.Run(ctx) // until ctx ends; then it sends what is left
//
//	span := exporter.Start("POST /v1/check", r.Header.Get("Traceparent"))
//	span.Str("weir.policy", "login")
//	defer span.End()
//
// # Which requests are traced
//
// A request with a valid traceparent is traced if its caller traces it: the flag is
// honoured either way, so that a trace is whole or not there. The others are roots, and
// Config.Ratio of them are traced. Anybody who may send requests can ask to be traced, so
// an unauthenticated caller can fill the queue, but not more than that.
//
// # What it costs
//
// Without an exporter (a nil *Exporter) and for a request that is not traced, Start
// returns nil, all methods of a nil *Span do nothing, and together they take 4 to 11 ns and
// no memory, the most where chance decides. A traced request takes about half a microsecond and some hundred bytes,
// which go to a queue of bounded length. Nobody ever waits for the collector: when the
// queue is full the span is dropped and [Stats] counts it.
//
// Spans have at most 16 attributes, and texts are cut at 256 bytes, so that the default
// queue is some 12 MB at the very worst (2,048 × 5.5 kB) and a batch below the 20 MiB that
// collectors take (512 × 16 × 256 bytes, each of which may become six in JSON: 12.6 MB).
//
// # Delivery
//
// [Exporter.Run] sends batches of 512 spans, or what there is one second after the first.
// Answers 429, 502, 503 and 504 are tried again, at most five times in all, after the time
// in Retry-After or else after 1, 2, 4 and 8 seconds, each less up to a half by chance. A
// collector that asks for more than 30 seconds has the batch dropped. Nothing else is
// tried again: not a connection that broke, after which the collector may have the batch,
// and no redirect is followed. Traces are a sample already; a restarted collector misses
// a second or two.
//
// # Secrets
//
// Headers, user and password of the endpoint, and its path do not appear in errors, nor
// where a Config or an Exporter is printed. What the collector answers is not repeated.
//
// # What is missing
//
// Spans inside a span, events, links, tracestate, metrics, logs, protobuf and gRPC. Who
// needs those runs a collector beside weir, or an OpenTelemetry SDK in a program of their
// own.
//
// # Sources
//
// W3C Trace Context, level 1, section 3.2 (traceparent); OTLP 1.x, section OTLP/HTTP, and
// its trace.proto: ids are hexadecimal, 64-bit numbers are texts, enums are numbers.
package otlp
