package tracing

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Call is what a request is, in words that the program chooses. A request of which the Call is zero, such
// as one for health, has no span.
type Call struct {
	// Route is the path, with a name in braces for each part that callers choose:
	// "/v1/auth/{policy}".
	Route string

	// RPC is the full name of the method, such as "weir.v1.LimiterService/Check", and System is GRPC or
	// Connect. Without RPC, the request is one of plain HTTP.
	RPC, System string
}

// Handler starts a span for each request to a handler. Describe returns what a request is. A request that
// is not traced has no trace context, so a handler that sends requests of its own needs Relay.
func (t *Tracer) Handler(next http.Handler, describe func(*http.Request) Call) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch t.sampling.early(r.Header[traceparentHeader]) {
		case skipped:
			next.ServeHTTP(w, r)
		case chosen:
			t.handle(asChosen(r.Context()), next, w, r, describe(r))
		default:
			t.handle(r.Context(), next, w, r, describe(r))
		}
	})
}

// Relay is Handler for a handler that sends requests with Client: those for requests that are not traced
// tell their receivers so.
func (t *Tracer) Relay(next http.Handler, describe func(*http.Request) Call) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.handle(r.Context(), next, w, r, describe(r))
	})
}

// handle answers a request within a span.
func (t *Tracer) handle(ctx context.Context, next http.Handler, w http.ResponseWriter, r *http.Request, call Call) {
	if call == (Call{}) {
		next.ServeHTTP(w, r)
		return
	}
	ctx, span := t.serve(incoming(ctx, headerValues(r.Header)), call.name(r))
	r = r.WithContext(ctx)
	if !span.IsRecording() {
		next.ServeHTTP(w, r)
		return
	}
	span.recording.SetAttributes(call.attributes(r)...)
	span.watch(next, w, r)
}

var serverKind = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}

// serve starts the span of a request that came in.
func (t *Tracer) serve(ctx context.Context, name string) (context.Context, Span) {
	ctx, s := t.tracer.Start(ctx, name, serverKind...)
	return ctx, spanOf(s)
}

// watch answers a request and ends its span.
func (s Span) watch(next http.Handler, w http.ResponseWriter, r *http.Request) {
	returned := false
	defer func() {
		if !returned {
			s.Fail("panic") // net/http logs it and closes the connection
		}
		s.End()
	}()
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	next.ServeHTTP(seen, r)
	returned = true
	s.recording.SetAttributes(semconv.HTTPResponseStatusCode(seen.status))
	if seen.status >= http.StatusInternalServerError && !s.hasFailed() { // a code of RPC says more
		s.Fail(strconv.Itoa(seen.status))
	}
}

// name returns the name of a span.
func (c Call) name(r *http.Request) string {
	switch method := knownMethod(r.Method); {
	case c.RPC != "":
		return c.RPC
	case method == "":
		return "HTTP"
	default:
		return method + " " + c.Route
	}
}

// attributes returns those that are known before the response.
func (c Call) attributes(r *http.Request) []attribute.KeyValue {
	if c.RPC != "" {
		return []attribute.KeyValue{semconv.RPCSystemNameKey.String(c.System), semconv.RPCMethod(c.RPC)}
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	list := []attribute.KeyValue{method(r.Method), semconv.URLScheme(scheme), semconv.NetworkProtocolVersion(protocolVersion(r)), semconv.HTTPRoute(c.Route)}
	if c.Route == r.URL.Path { // otherwise, it has what the caller chose
		list = append(list, semconv.URLPath(c.Route))
	}
	return list
}

// methods are those of HTTP that spans have. Others are _OTHER, because callers choose them.
var methods = []string{
	http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut, "QUERY", http.MethodTrace,
}

// knownMethod returns the method, or "" if it is not one of those.
func knownMethod(name string) string {
	if slices.Contains(methods, name) {
		return name
	}
	return ""
}

func method(name string) attribute.KeyValue {
	if knownMethod(name) == "" {
		return semconv.HTTPRequestMethodOther
	}
	return semconv.HTTPRequestMethodKey.String(name)
}

func protocolVersion(r *http.Request) string {
	if r.ProtoMajor == 1 {
		return "1." + strconv.Itoa(r.ProtoMinor)
	}
	return strconv.Itoa(r.ProtoMajor)
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the header. Informational responses come before it.
func (w *statusWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for streams.
func (w *statusWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a writer without Flush is flushed at the end
}
