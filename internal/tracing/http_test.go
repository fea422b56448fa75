package tracing

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir/internal/tracetest"
)

// TestHandler: names and attributes are those of the semantic conventions, and nothing that the caller
// chose is in them.
func TestHandler(t *testing.T) {
	const canary = "canary"
	for _, tt := range []struct {
		name, method, target string
		call                 Call
		secure               bool
		answer               func(http.ResponseWriter)
		want                 string
	}{
		{
			"a route", "POST", "/v1/check?key=canary",
			Call{Route: "/v1/check"},
			false, tracetest.Status(429),
			"SERVER POST /v1/check http.request.method=POST http.response.status_code=429 http.route=/v1/check network.protocol.version=1.1 url.path=/v1/check url.scheme=http",
		},
		{
			"a part of the path is the caller's", "GET", "/v1/auth/canary",
			Call{Route: "/v1/auth/{policy}"},
			true, tracetest.Status(200),
			"SERVER GET /v1/auth/{policy} http.request.method=GET http.response.status_code=200 http.route=/v1/auth/{policy} network.protocol.version=1.1 url.scheme=https",
		},
		{"no call", "GET", "/canary", Call{}, false, tracetest.Status(404), ""},
		{
			"another method", "CANARY", "/v1/check",
			Call{Route: "/v1/check"},
			false, tracetest.Status(405),
			"SERVER HTTP http.request.method=_OTHER http.response.status_code=405 http.route=/v1/check network.protocol.version=1.1 url.path=/v1/check url.scheme=http",
		},
		{
			"a method of RPC", "POST", "/a.B/C?canary",
			Call{RPC: "a.B/C", System: Connect},
			false, tracetest.Status(200),
			"SERVER a.B/C http.response.status_code=200 rpc.method=a.B/C rpc.system.name=connectrpc",
		},
		{
			"a failure", "POST", "/v1/check",
			Call{Route: "/v1/check"},
			false, tracetest.Status(503),
			"SERVER POST /v1/check error.type=503 http.request.method=POST http.response.status_code=503 http.route=/v1/check network.protocol.version=1.1 url.path=/v1/check url.scheme=http failed",
		},
		{
			"an informational response", "GET", "/x",
			Call{Route: "/x"},
			false,
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); _, _ = w.Write([]byte("canary")) },
			"SERVER GET /x http.request.method=GET http.response.status_code=200 http.route=/x network.protocol.version=1.1 url.path=/x url.scheme=http",
		},
		{
			"a panic", "GET", "/x",
			Call{Route: "/x"},
			false, func(http.ResponseWriter) { panic(canary) },
			"SERVER GET /x error.type=panic http.request.method=GET http.route=/x network.protocol.version=1.1 url.path=/x url.scheme=http failed",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tracetest.New(t)
			tracer, end := must(t, Config{Endpoint: c.URL, Sample: always})
			h := tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if hasSpan := tracer.SpanOf(r.Context()).IsRecording(); hasSpan != (tt.want != "") {
					t.Errorf("the handler has a span: %v", hasSpan)
				}
				tt.answer(w)
			}), func(*http.Request) Call { return tt.call })
			r := httptest.NewRequest(tt.method, tt.target, nil)
			r.Header.Set("Authorization", "Bearer "+canary)
			r.Header.Set("User-Agent", canary)
			r.Host, r.RemoteAddr = canary, canary
			if tt.secure {
				r.TLS = &tls.ConnectionState{}
			} else {
				r.TLS = nil
			}
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			end()
			if got := c.String(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if c.Contains(canary) {
				t.Error("what the caller sent is in the span")
			}
		})
	}
}

// TestHandlerStreams: a handler behind a span can flush and use http.ResponseController.
func TestHandlerStreams(t *testing.T) {
	c := tracetest.New(t)
	tracer, end := must(t, Config{Endpoint: c.URL, Sample: always})
	w := httptest.NewRecorder()
	tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}), func(*http.Request) Call { return Call{Route: "/"} }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	end()
	if !w.Flushed || len(c.Spans()) != 1 {
		t.Errorf("flushed: %v, %d spans", w.Flushed, len(c.Spans()))
	}
}
