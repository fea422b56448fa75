package config

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
)

// Tracing is where spans of HTTP and gRPC requests are sent.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, for example
	// http://127.0.0.1:4318.
	Endpoint Address `yaml:"endpoint" example:"http://127.0.0.1:4318" jsonschema:"required"`

	// Sample is the part of the requests that are traced unless their caller decided.
	Sample Percent `yaml:"sample" default:"1%" example:"10%"`

	// Headers are sent to the collector, for example with a token. Their values are
	// secrets.
	Headers map[string]Secret `yaml:"headers" example:"{authorization: \"${COLLECTOR_AUTH}\"}"`
}

// hosts checks the names by which browsers call.
func (c *checker) hosts() {
	for i, name := range c.file.Hosts {
		at := path{}.key("hosts").item(i)
		host, _, err := net.SplitHostPort(name)
		rest := strings.TrimPrefix(name, "*.")
		switch {
		case err == nil && host != "" && !strings.ContainsAny(name, "/@"):
			c.wrong(at, "%q has a port: write %s", name, host)
		case rest == "" || len(name) > 253 || strings.ContainsAny(rest, "/:*@ \t\n") || strings.ContainsRune(name, 0):
			c.wrong(at, "%q must be the name of a host, such as weir.example.com, or *. and the end of one", shorten(name))
		}
	}
}

// tracing checks the collector's URL. It is not quoted: it may have a key in it.
func (c *checker) tracing() {
	t, at := c.file.Tracing, path{}.key("tracing")
	if t == nil || c.failed(at) {
		return
	}
	if t.Endpoint.IsZero() {
		c.wrong(at, "needs an endpoint, such as http://127.0.0.1:4318")
		return
	}
	u, err := url.Parse(t.Endpoint.Reveal())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		c.wrong(at.key("endpoint"), "must be the URL of a collector, such as http://127.0.0.1:4318")
	} else if strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1/traces") {
		c.wrong(at.key("endpoint"), "leave /v1/traces out: it is put after the URL")
	}
	out := &server.Tracing{Endpoint: t.Endpoint.Secret, Sample: float64(t.Sample.Share) / 10_000, Headers: map[string]secret.Secret{}}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		value := t.Headers[name]
		where := at.key("headers").key(name)
		if !isHeader(name) || name == "" {
			c.wrong(where, "is no name of a header")
		}
		if strings.ContainsAny(value.Reveal(), "\r\n\x00") {
			c.wrong(where, "has more than one line")
		}
		out.Headers[name] = value.Secret
	}
	if !c.failed(at) {
		c.tracingProblems(out.Validate(), at)
	}
	c.out.Tracing = out
}

// tracingProblems reports what the exporter does not accept, before the daemon starts. It
// quotes no values.
func (c *checker) tracingProblems(err error, at path) {
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		field, text, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "otlp: "), ": ")
		c.wrong(at.key(strings.ToLower(field)), "%s", text)
	}
}
