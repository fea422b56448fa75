package tracing

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/fielderr"
)

// DefaultSample is the part of the requests without a traceparent that is traced if nothing says
// otherwise.
const DefaultSample = 0.01

// Config says where spans go. Printed, it shows no secrets.
type Config struct {
	// Endpoint is the collector's URL, for example "http://127.0.0.1:4318". Spans go to its path with
	// /v1/traces after it. A user and password in it are sent as basic authentication. The default
	// is that of the environment.
	Endpoint string

	// Headers are sent with each batch, for example an API key. They are secret. The default is
	// those of the environment.
	Headers map[string]string

	// Sample is which part of the requests without a traceparent is traced, from 0 to 1. With 0, only
	// those that the caller traces are. The default, nil, is the sampler of the environment,
	// or DefaultSample.
	Sample *float64

	// Version is that of the program. The default is none.
	Version string

	// Log receives a line when spans are lost, at most once a minute. It is required.
	Log *slog.Logger

	// transport makes the requests of tests. The default is like http.DefaultTransport.
	transport http.RoundTripper
}

// Validate returns everything that is wrong with c, as joined *fielderr.Errors. It repeats neither
// the endpoint nor headers, which are secret. It does not look at the environment.
func (c Config) Validate() error {
	var problems []error
	wrong := func(problem string, path ...any) {
		if problem != "" {
			problems = append(problems, fielderr.New("tracing", problem, path...))
		}
	}
	if c.Endpoint != "" {
		wrong(baseProblem(c.Endpoint), "Endpoint")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		wrong(headerProblem(name, c.Headers[name]), "Headers", name)
	}
	if c.Sample != nil {
		wrong(sampleProblem(*c.Sample), "Sample")
	}
	return errors.Join(problems...)
}

// baseProblem returns what is wrong with a URL to which /v1/traces is added, "" if nothing is.
func baseProblem(endpoint string) string {
	u, problem := parseEndpoint(endpoint)
	if problem == "" && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), tracesPath) {
		return "leave /v1/traces out: it is put after the URL"
	}
	return problem
}

// tracesPath is where a collector receives spans.
const tracesPath = "/v1/traces"

// parseEndpoint returns the URL of a collector, or what is wrong with it. It does not repeat the
// endpoint, nor errors of url.Parse, which do.
func parseEndpoint(endpoint string) (*url.URL, string) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, "must be the URL of a collector, such as http://127.0.0.1:4318"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, "has a query or fragment"
	}
	return u, ""
}

// taken are the headers that the exporter or net/http sets.
var taken = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Transfer-Encoding"}

func headerProblem(name, value string) string {
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !tokenRune(r) }):
		return "is not the name of a header"
	case slices.Contains(taken, http.CanonicalHeaderKey(name)):
		return "cannot be set"
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r >= 0x7f }):
		return "has characters other than printable ASCII"
	}
	return ""
}

func tokenRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func sampleProblem(sample float64) string {
	if !(sample >= 0 && sample <= 1) { // also refuses NaN
		return fmt.Sprintf("%v is not between 0 and 1", sample)
	}
	return ""
}

// String returns the collector's host.
func (c Config) String() string { return "spans to " + host(c.Endpoint) }

// Format prints String for every verb, because others would show the fields.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String, for JSON and log/slog.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// host returns what may be logged of an endpoint: scheme and host. Of one that is not valid
// that is nothing, since its parts cannot be told apart.
func host(endpoint string) string {
	u, problem := parseEndpoint(endpoint)
	if problem != "" {
		return "***"
	}
	if u.User != nil {
		return u.Scheme + "://***@" + u.Host
	}
	return u.Scheme + "://" + u.Host
}
