package config

import (
	"strings"
	"testing"
)

// What the exporter does not accept is reported with its place, before a daemon starts with it.
func TestTracingProblems(t *testing.T) {
	for text, want := range map[string]string{
		"endpoint: 'http://127.0.0.1:4318/v1/traces'":                    "tracing.endpoint: leave /v1/traces out",
		"endpoint: 'http://h/CANARY/v1/traces/'":                         "tracing.endpoint: leave /v1/traces out",
		"endpoint: 'http://collector/?key=CANARY'":                       "tracing.endpoint: has a query or fragment",
		"endpoint: 'http://:4318/CANARY'":                                "tracing.endpoint: must be the URL of a collector",
		"endpoint: 'http://h', headers: {content-type: CANARY}":          "tracing.headers.content-type: cannot be set",
		"endpoint: 'http://h', headers: {x-key: 'CANARY-ü'}":             "tracing.headers.x-key: has characters",
		"endpoint: 'http://h', headers: {'x key': CANARY}":               `tracing.headers."x key": is not the name of a header`,
		"endpoint: 'http://h', headers: {x-key: \"CANARY\\r\\nx: y\"}":   "tracing.headers.x-key: has characters",
		"endpoint: 'ftp://u:CANARY@h'":                                   "tracing.endpoint: must be the URL of a collector",
		"endpoint: 'http://h', headers: {host: CANARY, x-key: 'CÄNARY'}": "tracing.headers.x-key: has characters",
	} {
		_, err := Parse("weir.yaml", []byte("tracing: {"+text+"}"), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
