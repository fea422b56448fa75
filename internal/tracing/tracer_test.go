package tracing

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/internal/tracetest"
)

// TestSpansArrive: a span and its child, the program's attributes, and the headers that the endpoint and
// the configuration ask for.
func TestSpansArrive(t *testing.T) {
	c := tracetest.New(t)
	tracer, end := must(t, Config{
		Endpoint: strings.Replace(c.URL, "http://", "http://user:hunter2@", 1) + "/base", Headers: map[string]string{"x-api-key": "canary"},
		Version: "v1.2.3", Sample: always,
	})
	ctx, span := tracer.RPC(t.Context(), "/weir.v1.LimiterService/Check")
	_, child := tracer.Child(ctx, "weir.check")
	child.Text("weir.policy", strings.Repeat("p", 300))
	child.Bool("weir.allowed", false)
	child.Int("weir.batch.size", 3)
	child.End()
	span.RPCStatus(codes.Unavailable)
	span.End()
	end()

	parent, part := c.One("weir.v1.LimiterService/Check"), c.One("weir.check")
	if parent.Parent != "" || part.Parent != parent.ID || part.Trace != parent.Trace {
		t.Errorf("%+v is not a child of %+v", part, parent)
	}
	want := "INTERNAL weir.check weir.allowed=false weir.batch.size=3 weir.policy=" + strings.Repeat("p", 256) + "\n" +
		"SERVER weir.v1.LimiterService/Check error.type=UNAVAILABLE rpc.method=weir.v1.LimiterService/Check rpc.response.status_code=UNAVAILABLE rpc.system.name=grpc failed"
	if got := c.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := parent.Resource; r["service.name"] != "weir" || r["service.version"] != "v1.2.3" || r["telemetry.sdk.name"] != "opentelemetry" {
		t.Errorf("from %v", r)
	}
	got := c.Requests()[0]
	if got.Path != "/base/v1/traces" || got.Header.Get("X-Api-Key") != "canary" || got.Header.Get("Authorization") != "Basic dXNlcjpodW50ZXIy" {
		t.Errorf("%s with %v", got.Path, got.Header)
	}
}

// TestOff: without a tracer nothing is allocated, started or changed.
func TestOff(t *testing.T) {
	var off *Tracer
	goroutines := runtime.NumGoroutine()
	off.Start()
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
	handler := http.NotFoundHandler()
	if got := off.Handler(handler, nil); fmt.Sprintf("%p", got) != fmt.Sprintf("%p", handler) {
		t.Error("the handler is another one")
	}
	r := httptest.NewRequest(http.MethodPost, "http://upstream.example/", nil)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		same, call := off.RPC(ctx, "/a.B/C")
		part, child := off.Child(same, "weir.check")
		request, outgoing := off.Client(r)
		if part != ctx || request != r || off.SpanOf(ctx).IsRecording() {
			t.Fatal("something was changed")
		}
		for _, s := range []Span{call, child, outgoing} {
			s.Text("a", "b")
			s.Int("a", 1)
			s.Bool("a", true)
			s.RPCStatus(codes.OK)
			s.Result(nil, nil)
			s.Fail("x")
			s.End()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(r.Header) != 0 {
		t.Errorf("headers %v", r.Header)
	}
	off.Shutdown(ctx)
}

// TestNewStartsNothing: only Start has goroutines, so a server that never runs leaves none.
func TestNewStartsNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	tracer, err := New(Config{Endpoint: "http://127.0.0.1:1", Sample: always, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracer.RPC(t.Context(), "/a.B/C")
	span.End()
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
}

func TestValidate(t *testing.T) {
	for _, sample := range []float64{0, 1} {
		good := Config{Endpoint: "https://user:x@collector.example/otlp", Sample: &sample, Headers: map[string]string{"Authorization": "Bearer x"}}
		if err := good.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, sample := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		bad := Config{Endpoint: "http://CANARY@", Sample: &sample, Headers: map[string]string{"content-type": "CANARY", "": "CANARY", "X-Ok": "CANARY\r\nb: c"}}
		err := bad.Validate()
		for _, part := range []string{"Endpoint", "Sample", "content-type", `""`, "X-Ok"} {
			if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%s is not in: %v", part, err)
			}
		}
		if _, newErr := New(bad); newErr == nil || newErr.Error() != err.Error() {
			t.Errorf("New: %v", newErr)
		}
	}
	for _, endpoint := range []string{"collector:4318", "ftp://x", "http://", "http://:4318", "http://x?", "http://x#f", "/v1", "http://x/v1/traces"} {
		if (Config{Endpoint: endpoint}).Validate() == nil {
			t.Errorf("%q is accepted", endpoint)
		}
	}
}

// TestConfigIsSecret: a configuration that is printed shows the host.
func TestConfigIsSecret(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://CANARY:CANARY@host:4318/CANARY": "spans to http://***@host:4318",
		"https://host/CANARY":                   "spans to https://host",
		"http://host/\x7fCANARY":                "spans to ***",
	} {
		c := Config{Endpoint: endpoint, Headers: map[string]string{"X-Key": "CANARY"}}
		var out logged
		logTo(&out).Info("x", "config", c)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb, c)
		}
		if text := out.String(); strings.Contains(text, "CANARY") || !strings.Contains(text, want) {
			t.Errorf("%s", text)
		}
	}
}

// BenchmarkHandler is what tracing adds to a request.
func BenchmarkHandler(b *testing.B) {
	never := new(float64)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	describe := func(*http.Request) Call { return Call{Route: "/v1/check"} }
	on, end := must(b, Config{Endpoint: "http://127.0.0.1:1", Sample: never})
	defer end()
	for name, test := range map[string]struct {
		tracer *Tracer
		parent string
	}{
		"off":         {nil, traced},
		"not sampled": {on, ""},
		"parent says": {on, untraced},
		"traced":      {on, traced},
	} {
		b.Run(name, func(b *testing.B) {
			h := test.tracer.Handler(answer, describe)
			r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
			if test.parent != "" {
				r.Header.Set("Traceparent", test.parent)
			}
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
