// Package tracetest is an OpenTelemetry collector for tests. It decodes what arrives strictly.
package tracetest

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector receives spans. Its URL is that of an endpoint, without a path.
type Collector struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex // guards the fields below
	spans    []Span
	requests []Request
	answers  []func(http.ResponseWriter)
}

// Request is what the collector got, as bytes and headers.
type Request struct {
	Path   string
	Header http.Header
	Body   []byte // not compressed
}

// Span is what arrived of one span.
type Span struct {
	Trace, ID, Parent string // in hexadecimal; Parent is "" for a root
	State             string // the tracestate
	Name, Kind        string // Kind is SERVER, CLIENT or INTERNAL
	Failed            bool
	Attributes        map[string]string
	Resource          map[string]string
}

// New returns a collector that runs until the test ends. The answers are given to the first requests,
// whose spans are not recorded; then all are taken.
func New(t testing.TB, answers ...func(http.ResponseWriter)) *Collector {
	t.Helper()
	c := &Collector{t: t, answers: answers}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// Status returns an answer.
func Status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

// ServeHTTP answers a request.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, spans, err := decode(r)
	if err != nil {
		c.t.Errorf("the collector got something else than spans: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, Request{r.URL.Path, r.Header, body})
	if len(c.answers) > 0 {
		answer := c.answers[0]
		c.answers = c.answers[1:]
		answer(w)
		return
	}
	c.spans = append(c.spans, spans...)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func decode(r *http.Request) ([]byte, []Span, error) {
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, nil, err
		}
		in = unzipped
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, nil, err
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return body, nil, fmt.Errorf("%s %s of %q", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}
	var request collectorpb.ExportTraceServiceRequest
	if err := (proto.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(body, &request); err != nil {
		return body, nil, err
	}
	var spans []Span
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				spans = append(spans, read(s, texts(resource.GetResource().GetAttributes())))
			}
		}
	}
	return body, spans, nil
}

func read(s *tracepb.Span, resource map[string]string) Span {
	return Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		State: s.GetTraceState(), Name: s.GetName(), Kind: strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_"),
		Failed:     s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
		Attributes: texts(s.GetAttributes()), Resource: resource,
	}
}

func texts(list []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[a.GetKey()] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_BoolValue:
			out[a.GetKey()] = fmt.Sprint(v.BoolValue)
		default:
			out[a.GetKey()] = fmt.Sprintf("%T", v)
		}
	}
	return out
}

// Spans returns what was taken so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Requests returns all that came so far.
func (c *Collector) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// One returns the only span with a name.
func (c *Collector) One(name string) Span {
	c.t.Helper()
	var found []Span
	for _, s := range c.Spans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		c.t.Fatalf("%d spans %q, want one of %s", len(found), name, c)
	}
	return found[0]
}

// Contains reports whether a text is anywhere in what came, headers aside.
func (c *Collector) Contains(text string) bool {
	for _, r := range c.Requests() {
		if bytes.Contains(r.Body, []byte(text)) {
			return true
		}
	}
	return false
}

// String returns a line for each span, in the order of the alphabet.
func (c *Collector) String() string {
	var lines []string
	for _, s := range c.Spans() {
		lines = append(lines, s.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// String returns the kind, the name and the attributes.
func (s Span) String() string {
	line := s.Kind + " " + s.Name
	for _, key := range slices.Sorted(maps.Keys(s.Attributes)) {
		line += " " + key + "=" + s.Attributes[key]
	}
	if s.Failed {
		line += " failed"
	}
	return line
}
