package httpapi

import (
	"net/http"
	"strings"
	"testing"
)

func TestPaths(t *testing.T) {
	tests := []struct {
		method, path string
		status       int
		body, allow  string
	}{
		{"GET", "/healthz", 200, "ok\n", ""},
		{"HEAD", "/healthz", 200, "ok\n", ""}, // net/http drops the body
		{"GET", "/healthcheck", 200, "ok\n", ""},
		{"GET", "/readyz", 200, "ready\n", ""},
		{"POST", "/healthz", 405, "this path answers GET, HEAD only", "GET, HEAD"},
		{"GET", "/v1/check", 405, "this path answers POST only", "POST"},
		{"PUT", "/v1/check", 405, "this path answers POST only", "POST"},
		{"OPTIONS", "/v1/check", 405, "this path answers POST only", "POST"},
		{"GET", "/nope", 404, `nothing is at \"/nope\"`, ""},
		{"GET", "/%0d%0aSet-Cookie:x", 404, `nothing is at \"/\\r\\nSet-Cookie:x\"`, ""},
		{"POST", "/v1/check/", 404, `nothing is at \"/v1/check/\"`, ""},
		{"POST", "/v1%2Fcheck", 404, `nothing is at`, ""},
		{"GET", "/v1/check/batch", 405, "this path answers POST only", "POST"},
		{"GET", "/v1/reserve", 405, "this path answers POST only", "POST"},
		{"GET", "/v1/commit", 405, "this path answers POST only", "POST"},
		{"GET", "/v1/cancel", 405, "this path answers POST only", "POST"},
		{"GET", "/v1/renew", 405, "this path answers POST only", "POST"},
		{"GET", "/v1/auth/", 404, `nothing is at`, ""},
		{"GET", "/v1/auth/nope", 404, `no policy is called \"nope\"`, ""},
		{"GET", "/v1/auth/a/b", 404, `nothing is at`, ""},
	}
	h := handler(t, &scripted{})
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			w := serve(h, tt.method, tt.path, "")
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) || w.Header().Get("Allow") != tt.allow {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
			if kind := w.Header().Get("Content-Type"); w.Code >= 400 && kind != "application/problem+json" {
				t.Errorf("content type = %q", kind)
			}
		})
	}
}

func TestReadyz(t *testing.T) {
	tests := []struct {
		ready  bool
		detail string
		status int
		body   string
	}{
		{true, "", 200, "ready\n"},
		{true, "the last reload failed", 200, "ready\nthe last reload failed\n"},
		{false, "", 503, "stopping\n"},
	}
	for _, tt := range tests {
		h := New(Config{Ready: func() (bool, string) { return tt.ready, tt.detail }})
		if w := serve(h, "GET", "/readyz", ""); w.Code != tt.status || w.Body.String() != tt.body {
			t.Errorf("%+v: %d %q", tt, w.Code, w.Body)
		}
		if w := serve(h, "GET", "/healthz", ""); w.Code != http.StatusOK {
			t.Errorf("/healthz = %d, want 200: the process still runs", w.Code)
		}
	}
}
