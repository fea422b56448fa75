package otlp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
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

// Validate returns everything that is wrong with c.
func (c Config) Validate() error {
	problems := []error{c.checkEndpoint()}
	if !(c.Ratio >= 0 && c.Ratio <= 1) { // also refuses NaN
		problems = append(problems, fmt.Errorf("otlp: Ratio: %v is not between 0 and 1", c.Ratio))
	}
	if c.QueueSize < 0 || c.QueueSize > maxQueue {
		problems = append(problems, fmt.Errorf("otlp: QueueSize: %d is not between 0 and %d", c.QueueSize, maxQueue))
	}
	if c.Timeout < 0 {
		problems = append(problems, fmt.Errorf("otlp: Timeout: %v is negative", c.Timeout))
	}
	for name, value := range c.Headers {
		problems = append(problems, checkHeader(name, value))
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return errors.Join(problems...)
}

const maxQueue = 1 << 16

// checkEndpoint does not repeat the endpoint, nor errors of url.Parse, which do.
func (c Config) checkEndpoint() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "":
		return errors.New("otlp: Endpoint: missing")
	case err != nil:
		return errors.New("otlp: Endpoint: not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("otlp: Endpoint: does not begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("otlp: Endpoint: names no host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("otlp: Endpoint: has a query or fragment")
	}
	return nil
}

// taken are the headers that the exporter or net/http sets.
var taken = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Transfer-Encoding"}

func checkHeader(name, value string) error {
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !tokenRune(r) }):
		return fmt.Errorf("otlp: Headers: %q is not a name", name)
	case slices.Contains(taken, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("otlp: Headers: %s cannot be set", name)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r >= 0x7f }):
		return fmt.Errorf("otlp: Headers: the value of %s has characters other than printable ASCII", name)
	}
	return nil
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
	if err != nil || (Config{Endpoint: endpoint}).checkEndpoint() != nil {
		return "***"
	}
	if u.User != nil {
		return u.Scheme + "://***@" + u.Host
	}
	return u.Scheme + "://" + u.Host
}
