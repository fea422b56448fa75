package tracing

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// reportEvery is how often the log says that spans are lost.
const reportEvery = time.Minute

// exporter is the SDK's exporter, of which it logs the errors.
type exporter struct {
	inner  sdktrace.SpanExporter // set by newExporter, like everything up to abort
	client *http.Client
	log    *slog.Logger
	name   string // of the collector, without secrets

	stop  context.CancelFunc // nothing is tried again
	abort context.CancelFunc // what is left is lost

	aborted context.Context // canceled by abort

	// The SDK exports one batch at a time, and these are of that time.
	lost     int    // spans since the last report
	reason   string // of the last loss
	reported time.Time
}

var _ sdktrace.SpanExporter = (*exporter)(nil)

// newExporter returns an exporter to the endpoint of the configuration, else to that of the environment.
func newExporter(c *Config, env *environment) (*exporter, error) {
	target, err := target(c, env)
	if err != nil {
		return nil, err
	}
	up := &uploader{client: newClient(c.transport, env), url: target.String(), header: headers(c, env, target.User), zip: env.zip}
	e := &exporter{inner: otlptrace.NewUnstarted(up), client: up.client, log: c.Log, name: host(target.String())}
	up.stopping, e.stop = context.WithCancel(context.Background())
	e.aborted, e.abort = context.WithCancel(context.Background())
	return e, nil
}

// target returns the URL to which spans are sent.
func target(c *Config, env *environment) (*url.URL, error) {
	endpoint := cmp.Or(c.Endpoint, env.endpoint)
	if endpoint == "" {
		bad := &EnvironmentError{}
		bad.wrong(forAll+"ENDPOINT", "is not set, and neither is an endpoint in the configuration")
		return nil, bad
	}
	u, problem := parseEndpoint(endpoint)
	if problem != "" {
		return nil, errors.New("tracing: the endpoint " + problem)
	}
	if c.Endpoint != "" {
		u = u.JoinPath(tracesPath)
	}
	return u, nil
}

// headers returns those of each batch.
func headers(c *Config, env *environment, user *url.Userinfo) http.Header {
	out := http.Header{}
	if user != nil {
		password, _ := user.Password()
		out.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	given := c.Headers
	if len(given) == 0 {
		given = env.headers
	}
	for name, value := range given {
		out.Set(name, value)
	}
	out.Set("Content-Type", "application/x-protobuf")
	if env.zip {
		out.Set("Content-Encoding", "gzip")
	}
	return out
}

// newClient returns a client that follows no redirects: the headers are for the collector alone.
func newClient(t http.RoundTripper, env *environment) *http.Client {
	if t == nil {
		t = newTransport(env)
	}
	return &http.Client{
		Transport:     t,
		Timeout:       env.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newTransport(env *environment) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		t = standard.Clone()
	}
	t.TLSClientConfig = env.tls
	return t
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
		err = e.inner.ExportSpans(ctx, batch)
	}
	if err != nil {
		e.failed(len(batch), err)
	}
	return nil
}

// failed counts spans that are lost, and logs them if the last report is old enough.
func (e *exporter) failed(spans int, err error) {
	e.reason = "they could not be sent before the end"
	if failure, ok := errors.AsType[*uploadError](err); ok {
		e.reason, spans = failure.reason, cmp.Or(failure.lost, spans)
	}
	e.lost += spans
	if e.reported.IsZero() || time.Since(e.reported) >= reportEvery {
		e.report()
	}
}

func (e *exporter) report() {
	e.log.Warn("spans are lost", "collector", e.name, "spans", e.lost, "reason", e.reason)
	e.lost, e.reported = 0, time.Now()
}

// Shutdown reports what was lost since the last report. The SDK calls it after the last batch.
func (e *exporter) Shutdown(context.Context) error {
	if e.lost > 0 {
		e.report()
	}
	return nil
}

// close ends everything.
func (e *exporter) close() {
	e.stop()
	e.abort()
	e.client.CloseIdleConnections()
}
