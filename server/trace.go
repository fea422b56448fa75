package server

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/secret"
)

// Tracing is where the spans of HTTP and gRPC requests are sent. What it leaves open comes from the
// environment, by the names that OpenTelemetry has for it: OTEL_EXPORTER_OTLP_HEADERS, for example.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, for example
	// "http://127.0.0.1:4318". The default is OTEL_EXPORTER_OTLP_ENDPOINT.
	Endpoint secret.Secret

	// Sample is the part of the requests without a traceparent that is traced, from 0 to 1. With 0,
	// only requests that their caller traces are. The default, nil, is OTEL_TRACES_SAMPLER, or
	// 0.01 without it.
	Sample *float64

	// Headers are sent to the collector, for example with a token. The default is
	// OTEL_EXPORTER_OTLP_HEADERS.
	Headers map[string]secret.Secret
}

// Validate returns everything that is wrong with it, without the values, joined. It does not look at the
// environment.
func (t *Tracing) Validate() error { return t.config().Validate() }

func (t *Tracing) config() tracing.Config {
	headers := map[string]string{}
	for name, value := range t.Headers {
		headers[name] = value.Reveal()
	}
	return tracing.Config{Endpoint: t.Endpoint.Reveal(), Headers: headers, Sample: t.Sample}
}

// flushTimeout is how long the collector may take for the spans that are left at the end.
const flushTimeout = time.Second

// newTracer returns what makes spans, nil if there is no tracing. An environment that is wrong turns it
// off: it may be that of many programs, and limits work without spans.
func (s *Server) newTracer() (*tracing.Tracer, error) {
	if s.cfg.Tracing == nil {
		return nil, nil
	}
	c := s.cfg.Tracing.config()
	c.Version, c.Log = s.cfg.Version, s.cfg.Log
	tracer, err := tracing.New(c)
	if bad, ok := errors.AsType[*tracing.EnvironmentError](err); ok {
		s.cfg.Log.Warn("tracing is off: the environment is wrong", "error", bad)
		return nil, nil
	}
	return tracer, err
}

// routes are the paths of the API that have spans of their own name.
var routes = map[string]bool{
	"/v1/check": true, "/v1/check/batch": true, "/v1/reserve": true, "/v1/commit": true, "/v1/cancel": true, "/v1/renew": true,
	"/v1/auth": true, "/v1/guard": true, "/v1/guard/finish": true, "/v1/guard/quotas": true,
}

// describe returns what a request of the API is, without parts that callers choose. Health has no spans, and
// neither have paths at which there is nothing.
func describe(r *http.Request) tracing.Call {
	switch {
	case routes[r.URL.Path]:
		return tracing.Call{Route: r.URL.Path}
	case strings.HasPrefix(r.URL.Path, "/v1/auth/"):
		return tracing.Call{Route: "/v1/auth/{policy}"}
	}
	return tracing.Call{}
}

// procedures are the methods of Connect by their paths.
var procedures = procedurePaths(&weirv1.LimiterService_ServiceDesc, &weirv1.GuardService_ServiceDesc)

func procedurePaths(services ...*grpc.ServiceDesc) map[string]string {
	paths := map[string]string{}
	for _, service := range services {
		for _, method := range service.Methods {
			name := service.ServiceName + "/" + method.MethodName
			paths["/"+name] = name
		}
	}
	return paths
}

// describeRPC returns what a request of Connect's handlers is.
func describeRPC(r *http.Request) tracing.Call {
	name := procedures[r.URL.Path]
	if name == "" {
		name = "_OTHER"
	}
	system := tracing.Connect
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") { // and gRPC-Web
		system = tracing.GRPC
	}
	return tracing.Call{RPC: name, System: system}
}
