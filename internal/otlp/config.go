package otlp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/fielderr"
)

// Config says where traces go. Printed, it shows no secrets.
type Config struct {
	// Endpoint is the collector's URL, for example "http://127.0.0.1:4318". Traces go to
	// its path with /v1/traces after it. A user and password in it are sent as basic
	// authentication. It has no default.
	Endpoint string

	// Headers are sent with each batch, for example an API key. They are secret. The
	// default is none.
	Headers map[string]string

	// ServiceName and ServiceVersion are who sends. The defaults are "weir" and none.
	ServiceName, ServiceVersion string

	// Attributes tell more of the sender, for example "deployment.environment.name":
	// "production". The default is none.
	Attributes map[string]string

	// Ratio is which part of the requests without a traceparent is traced, from 0 to 1.
	// The default is 0: those that the caller traces, and no others.
	Ratio float64

	// QueueSize is how many spans wait at most to be sent; further ones are dropped. More
	// rides out a longer pause of the collector and costs memory, typically 1 kB each. The
	// default is 2,048.
	QueueSize int

	// Timeout is how long the collector has to take a batch, and how long Run takes at the
	// end to send what is left. The default is 10 seconds.
	Timeout time.Duration

	// Transport makes the requests. The default is one of its own like
	// http.DefaultTransport.
	Transport http.RoundTripper

	// OnError is called by Run with the error of a lost batch, at most once a minute. The default is
	// nil: errors are only counted, in Stats.
	OnError func(error)
}

// Validate returns everything that is wrong with c, as joined *fielderr.Errors. It repeats neither
// the endpoint nor headers, which are secret.
func (c Config) Validate() error {
	var problems []error
	wrong := func(problem string, path ...any) {
		if problem != "" {
			problems = append(problems, fielderr.New("otlp", problem, path...))
		}
	}
	wrong(c.endpointProblem(), "Endpoint")
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		wrong(headerProblem(name, c.Headers[name]), "Headers", name)
	}
	if c.QueueSize < 0 || c.QueueSize > maxQueue {
		wrong(fmt.Sprintf("%d is not between 0 and %d", c.QueueSize, maxQueue), "QueueSize")
	}
	if !(c.Ratio >= 0 && c.Ratio <= 1) { // also refuses NaN
		wrong(fmt.Sprintf("%v is not between 0 and 1", c.Ratio), "Ratio")
	}
	if c.Timeout < 0 {
		wrong(fmt.Sprintf("%v is negative", c.Timeout), "Timeout")
	}
	return errors.Join(problems...)
}

const maxQueue = 1 << 16

// endpointProblem does not repeat the endpoint, nor errors of url.Parse, which do.
func (c Config) endpointProblem() string {
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "":
		return "missing"
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "must be the URL of a collector, such as http://127.0.0.1:4318"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "has a query or fragment"
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1/traces"):
		return "leave /v1/traces out: it is put after the URL"
	}
	return ""
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

// String tells the host and the ratio.
func (c Config) String() string {
	return fmt.Sprintf("otlp to %s, ratio %v", host(c.Endpoint), c.Ratio)
}

// Format prints String for every verb, because others would show the fields.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String, for JSON and log/slog.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// host returns what may be logged of an endpoint: scheme and host. Of one that is not valid
// that is nothing, since there is no telling what stands where.
func host(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || (Config{Endpoint: endpoint}).endpointProblem() != "" {
		return "***"
	}
	if u.User != nil {
		return u.Scheme + "://***@" + u.Host
	}
	return u.Scheme + "://" + u.Host
}
