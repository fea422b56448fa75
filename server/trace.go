package server

import (
	"net/http"
	"strings"
)

// traced starts a span for each call, if there is a tracer.
func (s *Server) traced(h http.Handler) http.Handler {
	if s.cfg.Tracer == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		span := s.cfg.Tracer.Start(spanName(r), r.Header.Get("Traceparent"))
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
	case "/v1/check", "/v1/check/batch", "/v1/reserve", "/v1/commit", "/v1/cancel", "/v1/renew":
		return r.URL.Path
	}
	if strings.HasPrefix(r.URL.Path, "/weir.v1.LimiterService/") {
		return "/weir.v1.LimiterService"
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
