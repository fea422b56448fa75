package config

import (
	"reflect"

	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
)

// Tracing is where spans of HTTP and gRPC requests are sent. What is left out comes from the environment, by
// the names that OpenTelemetry has for it.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, for example
	// http://127.0.0.1:4318.
	Endpoint Address `yaml:"endpoint" example:"http://127.0.0.1:4318" jsonschema:"required"`

	// Sample is the part of the requests that are traced unless their caller decided. Without it,
	// OTEL_TRACES_SAMPLER counts if it is set.
	Sample Percent `yaml:"sample" default:"1%" example:"10%"`

	// Headers are sent to the collector, for example with a token. Their values are
	// secrets. Without any, those of OTEL_EXPORTER_OTLP_HEADERS are.
	Headers map[string]Secret `yaml:"headers" example:"{authorization: \"${COLLECTOR_AUTH}\"}"`
}

func (t *Tracing) check(c *checker, at path) {
	out := &server.Tracing{Endpoint: t.Endpoint.Secret, Headers: map[string]secret.Secret{}}
	if c.at(at.key("sample")).source != fromDefault { // the environment may say something else than the default
		sample := float64(t.Sample.Share) / 10_000
		out.Sample = &sample
	}
	for name, value := range t.Headers {
		out.Headers[name] = value.Secret
	}
	c.invalid(out.Validate(), reflect.TypeFor[Tracing](), at)
	c.out.server.Tracing = out
}
