package tracing

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// reportEvery is how often the log says that spans are lost.
const reportEvery = time.Minute

// exporter is the SDK's exporter, whose errors it logs without their secrets: they have the URL and what
// the collector answered.
type exporter struct {
	inner  sdktrace.SpanExporter // set by newExporter, like everything up to abort
	client *http.Client
	status *lastStatus
	log    *slog.Logger
	name   string // of the collector, without secrets

	// aborted is canceled when spans that are left are lost.
	aborted context.Context
	abort   context.CancelFunc

	// The SDK exports one batch at a time, and these are of that time.
	lost     int // spans since the last report
	reported time.Time
}

var _ sdktrace.SpanExporter = (*exporter)(nil)

// newExporter returns an exporter to the endpoint of the configuration, else to that of the environment.
func newExporter(c *Config, env *environment) (*exporter, error) {
	endpoint := cmp.Or(c.Endpoint, env.endpoint)
	if endpoint == "" {
		bad := &EnvironmentError{}
		bad.wrong(forAll+"ENDPOINT", "is not set, and neither is an endpoint in the configuration")
		return nil, bad
	}
	target, problem := parseEndpoint(endpoint)
	if problem != "" {
		return nil, errors.New("tracing: the endpoint " + problem)
	}
	if c.Endpoint != "" {
		target = target.JoinPath(tracesPath)
	}
	status := &lastStatus{next: c.transport}
	if status.next == nil {
		status.next = newTransport(env)
	}
	e := &exporter{client: newClient(status, env.timeout), status: status, log: c.Log, name: host(endpoint)}
	e.aborted, e.abort = context.WithCancel(context.Background())
	var err error
	e.inner, err = otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL((&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}).String()),
		otlptracehttp.WithHeaders(headers(c, env, target.User)),
		otlptracehttp.WithTLSClientConfig(nil), // the client has it
		otlptracehttp.WithHTTPClient(e.client),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 8 * time.Second, MaxElapsedTime: 30 * time.Second}))
	return e, err
}

// headers returns those of each batch.
func headers(c *Config, env *environment, user *url.Userinfo) map[string]string {
	out := map[string]string{}
	if user != nil {
		password, _ := user.Password()
		out["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
	}
	given := c.Headers
	if len(given) == 0 {
		given = env.headers
	}
	for name, value := range given {
		out[http.CanonicalHeaderKey(name)] = value
	}
	return out
}

func newTransport(env *environment) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		t = standard.Clone()
	}
	t.TLSClientConfig = env.tls
	return t
}

// newClient returns a client that follows no redirects: the headers are for the collector alone.
func newClient(t http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport:     t,
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ExportSpans sends a batch. It returns no errors: it logs them.
func (e *exporter) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.aborted, cancel)()
	err := e.aborted.Err()
	if err == nil {
		e.status.code.Store(0)
		err = e.inner.ExportSpans(ctx, batch)
	}
	if err == nil {
		return nil
	}
	e.lost += len(batch)
	if e.reported.IsZero() || time.Since(e.reported) >= reportEvery {
		e.report(e.reason(err))
	}
	return nil
}

// Shutdown ends the SDK's exporter. The SDK calls it after the last batch.
func (e *exporter) Shutdown(ctx context.Context) error {
	if e.lost > 0 {
		e.report("they could not be sent before the end")
	}
	return e.inner.Shutdown(ctx)
}

// close ends what Shutdown left, if the SDK had nothing to shut down.
func (e *exporter) close() {
	e.abort()
	e.client.CloseIdleConnections()
}

func (e *exporter) report(reason string) {
	e.log.Warn("spans are lost", "collector", e.name, "spans", e.lost, "reason", reason)
	e.lost, e.reported = 0, time.Now()
}

// reason returns why a batch was not taken.
func (e *exporter) reason(err error) string {
	_, isTransport := errors.AsType[*url.Error](err)
	switch code := int(e.status.code.Load()); {
	case code/100 == 2:
		return "the collector rejected some of them, or its answer cannot be read"
	case code != 0:
		return fmt.Sprintf("the collector answered %d %s", code, http.StatusText(code))
	case isTransport:
		return withoutURL(err).Error()
	case e.aborted.Err() != nil:
		return "they could not be sent before the end"
	case errors.Is(err, context.DeadlineExceeded):
		return "the collector did not answer in time"
	}
	return "they could not be sent"
}

// withoutURL returns the cause of an error of net/http.
func withoutURL(err error) error {
	for {
		withURL, ok := errors.AsType[*url.Error](err)
		if !ok {
			return err
		}
		err = withURL.Err
	}
}

// lastStatus is a transport that remembers the status of the last response, 0 if there was none.
type lastStatus struct {
	next http.RoundTripper
	code atomic.Int32
}

// RoundTrip makes a request.
func (s *lastStatus) RoundTrip(r *http.Request) (*http.Response, error) {
	s.code.Store(0)
	response, err := s.next.RoundTrip(r)
	if err == nil {
		s.code.Store(int32(response.StatusCode)) //nolint:gosec // three digits
	}
	return response, err
}

// CloseIdleConnections is for http.Client.
func (s *lastStatus) CloseIdleConnections() {
	if c, ok := s.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
