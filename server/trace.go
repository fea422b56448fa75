package server

import (
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/otlp"
	"github.com/weirlimit/weir/secret"
)

// Tracing is where the spans of HTTP and gRPC requests are sent.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, for example
	// "http://127.0.0.1:4318".
	Endpoint secret.Secret

	// Sample is the part of the requests without a traceparent that is traced, from 0 to 1. The
	// default is 0: only requests that their caller traces.
	Sample float64

	// Headers are sent to the collector, for example with a token.
	Headers map[string]secret.Secret
}

// Validate returns everything that is wrong with it, without the values, joined.
func (t *Tracing) Validate() error { return t.exporter().Validate() }

func (t *Tracing) exporter() otlp.Config {
	headers := map[string]string{}
	for name, value := range t.Headers {
		headers[name] = value.Reveal()
	}
	return otlp.Config{Endpoint: t.Endpoint.Reveal(), Headers: headers, Ratio: t.Sample}
}

// newTracer returns the exporter of spans, nil if there is no tracing.
func (s *Server) newTracer() (*otlp.Exporter, error) {
	if s.cfg.Tracing == nil {
		return nil, nil
	}
	c := s.cfg.Tracing.exporter()
	c.ServiceVersion = s.cfg.Version
	c.OnError = func(err error) { s.cfg.Log.Warn("spans could not be sent", "error", err) }
	return otlp.New(c)
}

// traced starts a span for each call, if there is a tracer.
func (s *Server) traced(h http.Handler) http.Handler {
	if s.tracer == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		span := s.tracer.Start(spanName(r), r.Header.Get("Traceparent"))
		if span == nil {
			h.ServeHTTP(w, r)
			return
		}
		returned := false
		defer func() {
			if !returned {
				span.Fail("panic") // net/http logs it and closes the connection
			}
			span.End()
		}()
		span.Str("http.request.method", r.Method)
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(seen, r)
		returned = true
		span.Int("http.response.status_code", int64(seen.status))
		if seen.status >= http.StatusInternalServerError {
			span.Fail(http.StatusText(seen.status))
		}
	})
}

// spanName returns the route, without parts that callers choose.
func spanName(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/v1/auth/") {
		return "/v1/auth/{policy}"
	}
	switch r.URL.Path {
	case "/v1/check", "/v1/check/batch", "/v1/reserve", "/v1/commit", "/v1/cancel", "/v1/renew", "/v1/auth", "/v1/guard", "/v1/guard/finish", "/v1/guard/quotas":
		return r.URL.Path
	}
	for _, service := range []string{"/weir.v1.LimiterService", "/weir.v1.GuardService"} {
		if strings.HasPrefix(r.URL.Path, service+"/") {
			return service
		}
	}
	return "other"
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for streams.
func (w *statusWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a writer without Flush is flushed at the end
}
