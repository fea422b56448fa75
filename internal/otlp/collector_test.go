package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// collector is a small OTLP receiver. It takes nothing that the specification does not
// allow, and no fields it does not know.
type collector struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex // guards the fields below
	batches []wireScope
	headers []http.Header
	answers []func(http.ResponseWriter) // for the next requests; then all are taken
}

type (
	wireRequest struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []wireAttribute `json:"attributes"`
			} `json:"resource"`
			ScopeSpans []wireScope `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	wireScope struct {
		resource map[string]any
		Scope    struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"scope"`
		Spans []wireSpan `json:"spans"`
	}
	wireSpan struct {
		TraceID      string          `json:"traceId"`
		SpanID       string          `json:"spanId"`
		ParentSpanID *string         `json:"parentSpanId"`
		Flags        uint32          `json:"flags"`
		Name         string          `json:"name"`
		Kind         json.RawMessage `json:"kind"`
		Start        json.RawMessage `json:"startTimeUnixNano"`
		End          json.RawMessage `json:"endTimeUnixNano"`
		Attributes   []wireAttribute `json:"attributes"`
		Dropped      uint32          `json:"droppedAttributesCount"`
		Status       *struct {
			Message string          `json:"message"`
			Code    json.RawMessage `json:"code"`
		} `json:"status"`
	}
	wireAttribute struct {
		Key   string                     `json:"key"`
		Value map[string]json.RawMessage `json:"value"`
	}
)

func newCollector(t *testing.T, answers ...func(http.ResponseWriter)) *collector {
	t.Helper()
	c := &collector{t: t, answers: answers}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header)
	batch, err := decode(r)
	if err != nil {
		c.t.Errorf("the collector got something else: %v", err)
	}
	if len(c.answers) > 0 {
		answer := c.answers[0]
		c.answers = c.answers[1:]
		answer(w)
		return
	}
	c.batches = append(c.batches, batch)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

func decode(r *http.Request) (wireScope, error) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.URL.RawQuery != "" {
		return wireScope{}, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		return wireScope{}, fmt.Errorf("content type %q", got)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return wireScope{}, err
	}
	var req wireRequest
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return wireScope{}, err
	}
	if len(req.ResourceSpans) != 1 || len(req.ResourceSpans[0].ScopeSpans) != 1 {
		return wireScope{}, fmt.Errorf("not one resource with one scope: %s", body)
	}
	batch := req.ResourceSpans[0].ScopeSpans[0]
	problems := make([]error, 0, len(batch.Spans))
	for _, s := range batch.Spans {
		problems = append(problems, s.check())
	}
	batch.resource, err = values(req.ResourceSpans[0].Resource.Attributes)
	return batch, errors.Join(append(problems, err)...)
}

var (
	traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)
	spanID  = regexp.MustCompile(`^[0-9a-f]{16}$`)
	uint64s = regexp.MustCompile(`^"[1-9][0-9]{0,19}"$`)
	int64s  = regexp.MustCompile(`^"-?[0-9]{1,19}"$`)
	enum    = regexp.MustCompile(`^[0-9]$`)
)

func (s wireSpan) check() error {
	switch {
	case !traceID.MatchString(s.TraceID) || !spanID.MatchString(s.SpanID):
		return fmt.Errorf("ids %q and %q", s.TraceID, s.SpanID)
	case s.ParentSpanID != nil && !spanID.MatchString(*s.ParentSpanID):
		return fmt.Errorf("parent %q", *s.ParentSpanID)
	case !enum.Match(s.Kind):
		return fmt.Errorf("kind %s", s.Kind)
	case !uint64s.Match(s.Start) || !uint64s.Match(s.End):
		return fmt.Errorf("from %s to %s", s.Start, s.End)
	case s.Status != nil && !enum.Match(s.Status.Code):
		return fmt.Errorf("status %s", s.Status.Code)
	case s.Name == "":
		return errors.New("no name")
	}
	_, err := values(s.Attributes)
	return err
}

// values returns attributes as string, int64 and bool.
func values(list []wireAttribute) (map[string]any, error) {
	all := map[string]any{}
	for _, a := range list {
		if _, twice := all[a.Key]; twice || len(a.Value) != 1 {
			return nil, fmt.Errorf("attribute %q twice, or of %d values", a.Key, len(a.Value))
		}
		for kind, raw := range a.Value {
			value, err := valueOf(kind, raw)
			if err != nil {
				return nil, fmt.Errorf("attribute %q: %w", a.Key, err)
			}
			all[a.Key] = value
		}
	}
	return all, nil
}

func valueOf(kind string, raw json.RawMessage) (any, error) {
	switch {
	case kind == "stringValue":
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	case kind == "boolValue":
		var yes bool
		err := json.Unmarshal(raw, &yes)
		return yes, err
	case kind == "intValue" && int64s.Match(raw):
		return strconv.ParseInt(string(raw[1:len(raw)-1]), 10, 64)
	}
	return nil, fmt.Errorf("%s: %s", kind, raw)
}

// spans returns all that were taken.
func (c *collector) spans() (all []wireSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.batches {
		all = append(all, b.Spans...)
	}
	return all
}

// answering answers with a code and, if there is one, a Retry-After.
func answering(code int, retryAfter string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	}
}
