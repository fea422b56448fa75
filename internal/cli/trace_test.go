package cli

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/internal/tracetest"
)

// TestTracingByTheEnvironment: the standard variables turn tracing on; the file wins where it says
// something.
func TestTracingByTheEnvironment(t *testing.T) {
	const always = "OTEL_TRACES_SAMPLER=always_on"
	for _, tt := range []struct {
		name, config    string // with the collector's URL for %s
		env             []string
		spans           int
		service, header string
	}{
		{"the environment alone", "{}", []string{always, "OTEL_EXPORTER_OTLP_ENDPOINT=%s", "OTEL_SERVICE_NAME=limits", "OTEL_EXPORTER_OTLP_HEADERS=x-key=a"}, 2, "limits", "a"},
		{"the file, and what it leaves open", "tracing: {endpoint: '%s'}", []string{always, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS=x-key=a"}, 2, "weir", "a"},
		{"the file wins", "tracing: {endpoint: '%s', sample: 100%%, headers: {x-key: b}}", []string{"OTEL_TRACES_SAMPLER=always_off", "OTEL_EXPORTER_OTLP_HEADERS=x-key=a"}, 2, "weir", "b"},
		{"the file turns sampling off", "tracing: {endpoint: '%s', sample: 0%%}", []string{always}, 0, "", ""},
		{"disabled", "tracing: {endpoint: '%s', sample: 100%%}", []string{"OTEL_SDK_DISABLED=true"}, 0, "", ""},
		{"no exporter", "{}", []string{always, "OTEL_EXPORTER_OTLP_ENDPOINT=%s", "OTEL_TRACES_EXPORTER=none"}, 0, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := tracetest.New(t)
			fill := func(text string) string {
				if strings.Contains(text, "%") {
					return fmt.Sprintf(text, c.URL)
				}
				return text
			}
			for i := range tt.env {
				tt.env[i] = fill(tt.env[i])
			}
			d := startWith(t, fill(tt.config), append(tt.env, "OTEL_BSP_SCHEDULE_DELAY=10"))
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			response, err := client.Post(d.url+"/v1/check", "application/json", strings.NewReader(`{"policy":"default","key":"alice"}`))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			// not only at the stop, which waits for a second at most
			eventually(t, fmt.Sprintf("%d spans", tt.spans), func() bool { return len(c.Spans()) >= tt.spans })
			if _, code, err := d.signal(syscall.SIGTERM); code != 0 || err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("status %d, exit code %d, %v", response.StatusCode, code, err)
			}
			spans := c.Spans()
			if len(spans) != tt.spans {
				t.Fatalf("%d spans, want %d\n%s", len(spans), tt.spans, c)
			}
			if tt.spans == 0 {
				return
			}
			r, header := spans[0].Resource, c.Requests()[0].Header
			if r["service.name"] != tt.service || r["service.version"] == "" || header.Get("X-Key") != tt.header {
				t.Errorf("from %v, X-Key %q", r, header.Get("X-Key"))
			}
		})
	}
}
