package tracing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/weirlimit/weir/internal/tracetest"
)

// TestClient: the receiver of an outgoing request sees the span of that request as its parent, the
// caller's tracestate, and the caller's decision.
func TestClient(t *testing.T) {
	for _, tt := range []struct {
		name, header string
		wantFlags    string
	}{
		{"traced", traced, "01"},
		{"not traced", untraced, "00"},
		{"no parent", "", "00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tracetest.New(t)
			tracer, end := must(t, Config{Endpoint: c.URL, Sample: new(float64)})
			var sentHeader http.Header
			relay := tracer.Relay(http.HandlerFunc(func(_ http.ResponseWriter, in *http.Request) {
				r := httptest.NewRequest(http.MethodPost, "https://user:canary@upstream.example:8545/canary?key=canary", nil).WithContext(in.Context())
				r.Header.Set("Traceparent", "00-11111111111111111111111111111111-2222222222222222-01") // what was there
				r.Header.Set("Tracestate", "old=1")
				r, span := tracer.Client(r)
				span.Result(&http.Response{StatusCode: http.StatusBadGateway}, nil)
				span.End()
				sentHeader = r.Header
			}), func(*http.Request) Call { return Call{Route: "/"} })
			in := httptest.NewRequest(http.MethodPost, "/", nil)
			in.Header.Set("Tracestate", "congo=1")
			if tt.header != "" {
				in.Header.Set("Traceparent", tt.header)
			}
			relay.ServeHTTP(httptest.NewRecorder(), in)
			end()

			got := sentHeader.Get("Traceparent")
			if got[len(got)-2:] != tt.wantFlags || (tt.header != "") != (got[3:35] == traceID) {
				t.Fatalf("traceparent %s", got)
			}
			if state := sentHeader.Values("Tracestate"); (tt.header != "") != (len(state) == 1 && state[0] == "congo=1") || tt.header == "" && len(state) > 0 {
				t.Errorf("tracestate %q", state)
			}
			if tt.wantFlags == "00" {
				if len(c.Spans()) != 0 {
					t.Errorf("spans\n%s", c)
				}
				return
			}
			sent, parent := c.One("POST"), c.One("POST /")
			if sent.Parent != parent.ID || parent.Parent != parentID || sent.Trace != traceID || got[36:52] != sent.ID {
				t.Errorf("%+v is not between %+v and %s", sent, parent, got)
			}
			const want = "CLIENT POST error.type=502 http.request.method=POST http.response.status_code=502 server.address=upstream.example server.port=8545 url.scheme=https failed"
			if sent.String() != want {
				t.Errorf("got  %s\nwant %s", sent, want)
			}
			if c.Contains("canary") {
				t.Error("the URL is in the span")
			}
		})
	}
}

// TestClientErrors: the kind of an error is in the span, and not its text, which may have the URL.
func TestClientErrors(t *testing.T) {
	for want, err := range map[string]error{
		"timeout":         context.DeadlineExceeded,
		"canceled":        fmt.Errorf("x: %w", context.Canceled),
		"connection":      &net.OpError{Op: "dial", Err: errors.New("refused")},
		"name_resolution": &net.OpError{Op: "dial", Err: &net.DNSError{Name: "canary"}},
		"_OTHER":          errors.New("canary"),
	} {
		c := tracetest.New(t)
		tracer, end := must(t, Config{Endpoint: c.URL, Sample: always})
		_, span := tracer.Client(httptest.NewRequest("CANARY", "http://upstream.example/", nil))
		span.Result(nil, &url.Error{Op: "Post", URL: "http://upstream.example/canary", Err: err})
		span.End()
		end()
		if got := c.String(); got != "CLIENT HTTP error.type="+want+" http.request.method=_OTHER server.address=upstream.example url.scheme=http failed" {
			t.Errorf("%s: %s", want, got)
		}
		if c.Contains("canary") {
			t.Errorf("%s: the text of the error is in the span", want)
		}
	}
}
