package tracing

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/weirlimit/weir/internal/tracetest"
)

func TestInEnvironment(t *testing.T) {
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, tt := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"nothing", nil, false},
		{"an endpoint", map[string]string{endpoint: "http://h"}, true},
		{"one for traces", map[string]string{traces: "http://h"}, true},
		{"spaces", map[string]string{endpoint: " "}, false},
		{"other settings", map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, false},
		{"disabled", map[string]string{endpoint: "http://h", "OTEL_SDK_DISABLED": "TRUE"}, false},
		{"not disabled", map[string]string{endpoint: "http://h", "OTEL_SDK_DISABLED": "no"}, true},
		{"no exporter", map[string]string{endpoint: "http://h", "OTEL_TRACES_EXPORTER": "none"}, false},
		{"another exporter", map[string]string{endpoint: "http://h", "OTEL_TRACES_EXPORTER": "console"}, false},
		{"this exporter", map[string]string{endpoint: "http://h", "OTEL_TRACES_EXPORTER": "console, otlp"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set(t, tt.env)
			if got := InEnvironment(); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func set(t *testing.T, env map[string]string) {
	for name, value := range env {
		t.Setenv(name, value)
	}
}

// TestTheEnvironmentCounts: what the configuration leaves open.
func TestTheEnvironmentCounts(t *testing.T) {
	c := tracetest.New(t)
	set(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":    c.URL + "/base",
		"OTEL_EXPORTER_OTLP_HEADERS":     "x-api-key=a%2Cb%3D%20c, x-other = d ",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"OTEL_EXPORTER_OTLP_TIMEOUT":     "5000",
		"OTEL_SERVICE_NAME":              "limits",
		"OTEL_RESOURCE_ATTRIBUTES":       "deployment.environment.name=production,service.name=ignored,host.name=a%20b",
		"OTEL_TRACES_SAMPLER":            "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG":        "1.0",
	})
	tracer, end := must(t, Config{Version: "v1"})
	_, span := tracer.RPC(t.Context(), "/a.B/C")
	span.End()
	end()
	got, r := c.One("a.B/C"), c.Requests()[0]
	if x := got.Resource; x["service.name"] != "limits" || x["deployment.environment.name"] != "production" || x["host.name"] != "a b" || x["service.version"] != "v1" {
		t.Errorf("from %v", x)
	}
	if r.Path != "/base/v1/traces" || r.Header.Get("X-Api-Key") != "a,b= c" || r.Header.Get("X-Other") != "d" || r.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%s with %v", r.Path, r.Header)
	}
}

// TestTheConfigurationWins: where it says something.
func TestTheConfigurationWins(t *testing.T) {
	c, other := tracetest.New(t), tracetest.New(t)
	set(t, map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": other.URL + "/as-it-is",
		"OTEL_EXPORTER_OTLP_HEADERS":         "x-api-key=environment,x-other=environment",
		"OTEL_TRACES_SAMPLER":                "always_off",
		"OTEL_EXPORTER_OTLP_CERTIFICATE":     authority(t),
	})
	tracer, end := must(t, Config{Endpoint: c.URL, Headers: map[string]string{"X-Api-Key": "configuration"}, Sample: always})
	_, span := tracer.RPC(t.Context(), "/a.B/C")
	span.End()
	end()
	c.One("a.B/C")
	if h := c.Requests()[0].Header; h.Get("X-Api-Key") != "configuration" || h.Get("X-Other") != "" {
		t.Errorf("headers %v", h)
	}
	if len(other.Requests()) != 0 {
		t.Error("the endpoint of the environment got something")
	}

	// Without a configuration, the variable for traces wins over the one for all, and is taken as it is.
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	tracer, end = must(t, Config{})
	_, span = tracer.RPC(t.Context(), "/a.B/D")
	span.End()
	end()
	other.One("a.B/D")
	if got := other.Requests()[0].Path; got != "/as-it-is" {
		t.Errorf("path %s", got)
	}
}

// TestTLS: a collector whose authority the environment names is trusted, and only then.
func TestTLS(t *testing.T) {
	c := tracetest.New(t)
	secure := httptest.NewUnstartedServer(c)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for _, file := range []string{"", certificateOf(t, secure)} {
		t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file)
		out := &logged{}
		tracer, end := must(t, Config{Endpoint: secure.URL, Sample: always, Log: logTo(out)})
		_, span := tracer.RPC(t.Context(), "/a.B/C")
		span.End()
		end()
		if trusted := len(c.Spans()) == 1; trusted != (file != "") || trusted == strings.Contains(out.String(), "unknown authority") {
			t.Errorf("with %q: %d spans, logged %s", file, len(c.Spans()), out)
		}
	}
}

func authority(t *testing.T) string {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return certificateOf(t, s)
}

// certificateOf returns a file with the certificate of a server, which is its own authority.
func certificateOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSamplers(t *testing.T) {
	const root, sampled, unsampled = 0, 1, 2
	for _, tt := range []struct {
		name, arg string
		want      [3]bool // of roots, with a parent that is traced, with one that is not
	}{
		{"always_on", "", [3]bool{true, true, true}},
		{"always_off", "", [3]bool{}},
		{"traceidratio", "0", [3]bool{}},
		{"traceidratio", "", [3]bool{true, true, true}},
		{"parentbased_always_on", "", [3]bool{true, true, false}},
		{"parentbased_always_off", "", [3]bool{false, true, false}},
		{" ParentBased_TraceIDRatio ", "0", [3]bool{false, true, false}},
	} {
		t.Run(tt.name+tt.arg, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", tt.name)
			if tt.arg != "" {
				t.Setenv("OTEL_TRACES_SAMPLER_ARG", tt.arg)
			}
			tracer, end := must(t, Config{Endpoint: "http://127.0.0.1:1"})
			defer end()
			got := [3]bool{}
			for i, parent := range [3]string{root: "", sampled: traced, unsampled: untraced} {
				ctx := callers["HTTP"](t.Context(), map[string][]string{"traceparent": {parent}})
				_, span := tracer.serve(ctx, "x")
				got[i] = span.IsRecording()
			}
			if got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestEnvironmentErrors: what is wrong is said with its name and without its value.
func TestEnvironmentErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, tt := range []struct{ name, value, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://%zzCANARY", "must be the URL of a collector"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "CANARY:4318", "must be the URL of a collector"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h/?key=CANARY", "has a query or fragment"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "CANARY", "must be headers such as x-api-key=value"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "x-key=%zzCANARY", "must be headers"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=CANARY%0d%0ax:y", "must be headers"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "host=CANARY", "must be headers"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "must be milliseconds"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be http/protobuf"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "must be gzip or none"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", missing, "missing.pem"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", os.Args[0], "must be a file of certificates"},
		{"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", missing, "CLIENT_KEY"},
		{"OTEL_TRACES_SAMPLER", "jaeger_remote", "must be always_on, always_off or traceidratio"},
		{"OTEL_TRACES_SAMPLER", "parentbased_", "must be always_on"},
		{"OTEL_RESOURCE_ATTRIBUTES", "CANARY", "must be attributes such as"},
		{"OTEL_RESOURCE_ATTRIBUTES", "a=%zzCANARY", "must be attributes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv(tt.name, tt.value)
			_, err := New(Config{Log: logTo(&logged{})})
			bad, ok := errors.AsType[*EnvironmentError](err)
			if !ok || len(bad.Problems) != 1 || !strings.HasPrefix(err.Error(), tt.name+": ") || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%v, want %s: … %s", err, tt.name, tt.want)
			}
		})
	}
	t.Run("no endpoint", func(t *testing.T) {
		_, err := New(Config{Log: logTo(&logged{})})
		if _, ok := errors.AsType[*EnvironmentError](err); !ok || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_ENDPOINT: is not set") {
			t.Error(err)
		}
	})
	t.Run("several", func(t *testing.T) {
		set(t, map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2", "OTEL_EXPORTER_OTLP_TIMEOUT": "0"})
		_, err := New(Config{Endpoint: "http://h", Log: logTo(&logged{})})
		if bad, ok := errors.AsType[*EnvironmentError](err); !ok || len(bad.Problems) != 2 {
			t.Error(err)
		}
	})
}

// TestDisabled: the standard switch turns off what the configuration turns on.
func TestDisabled(t *testing.T) {
	t.Setenv("OTEL_SDK_DISABLED", "true")
	var out logged
	tracer, err := New(Config{Endpoint: "http://127.0.0.1:1", Log: logTo(&out)})
	if tracer != nil || err != nil || !strings.Contains(out.String(), "OTEL_SDK_DISABLED") {
		t.Errorf("%v, %v, logged %q", tracer, err, &out)
	}
}

// TestBounds: settings of the environment cannot make the queue or a wait unbounded.
func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		set, want sdktrace.BatchSpanProcessorOptions
	}{
		{
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: 2048, MaxExportBatchSize: 512, BatchTimeout: 5 * time.Second, ExportTimeout: 30 * time.Second},
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: 2048, MaxExportBatchSize: 512, BatchTimeout: 5 * time.Second, ExportTimeout: 30 * time.Second},
		},
		{
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: 1 << 40, MaxExportBatchSize: 1 << 40, BatchTimeout: time.Hour, ExportTimeout: time.Hour},
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: maxQueue, MaxExportBatchSize: maxQueue, BatchTimeout: time.Minute, ExportTimeout: time.Minute},
		},
		{
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: -1, ExportTimeout: -1},
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: 2048, MaxExportBatchSize: 512, BatchTimeout: 5 * time.Second, ExportTimeout: 30 * time.Second},
		},
		{
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: 10, MaxExportBatchSize: 512, BatchTimeout: time.Second, ExportTimeout: time.Second},
			sdktrace.BatchSpanProcessorOptions{MaxQueueSize: 10, MaxExportBatchSize: 10, BatchTimeout: time.Second, ExportTimeout: time.Second},
		},
	} {
		got := tt.set
		if bounded(&got); got != tt.want {
			t.Errorf("%+v became %+v, want %+v", tt.set, got, tt.want)
		}
	}
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4611686018427387904") // the SDK would panic
	tracer, err := New(Config{Endpoint: "http://127.0.0.1:1", Log: logTo(&logged{})})
	if err != nil {
		t.Fatal(err)
	}
	tracer.Start()
	tracer.Shutdown(context.Background())
}
