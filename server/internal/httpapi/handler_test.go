package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
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
		{"DELETE", "/", 405, "this path answers GET, HEAD only", "GET, HEAD"},
		{"GET", "/v1/check", 405, "this path answers POST only", "POST"},
		{"PUT", "/v1/check", 405, "this path answers POST only", "POST"},
		{"OPTIONS", "/v1/check", 405, "this path answers POST only", "POST"},
		{"POST", "/assets/weir.js", 405, "this path answers GET, HEAD only", "GET, HEAD"},
		{"GET", "/nope", 404, `nothing is at \"/nope\"`, ""},
		{"GET", "/%0d%0aSet-Cookie:x", 404, `nothing is at \"/\\r\\nSet-Cookie:x\"`, ""},
		{"POST", "/v1/check/", 404, `nothing is at \"/v1/check/\"`, ""},
		{"GET", "/assets/", 404, `nothing is at \"/assets/\"`, ""},
		{"GET", "/assets/index.html", 404, `nothing is at`, ""},
		{"GET", "/assets/..%2findex.html", 404, `nothing is at`, ""},
	}
	h := New(config(t, &scripted{}))
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			w := serve(h, tt.method, tt.path, "")
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) || w.Header().Get("Allow") != tt.allow {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
			if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options = %q", got)
			}
			if kind := w.Header().Get("Content-Type"); w.Code >= 400 && kind != "application/problem+json" {
				t.Errorf("content type = %q", kind)
			}
		})
	}
}

func TestReadyzWhileStopping(t *testing.T) {
	cfg := config(t, &scripted{})
	cfg.Ready = func() bool { return false }
	h := New(cfg)
	if w := serve(h, "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable || w.Body.String() != "stopping\n" {
		t.Errorf("/readyz = %d %q, want 503", w.Code, w.Body)
	}
	if w := serve(h, "GET", "/healthz", ""); w.Code != http.StatusOK {
		t.Errorf("/healthz = %d, want 200: the process still runs", w.Code)
	}
}

func TestHosts(t *testing.T) {
	tests := []struct {
		host string
		want bool
	}{
		{"localhost", true},
		{"LOCALHOST:80", true},
		{"localhost:8080", true},
		{"127.0.0.1", true},
		{"127.0.0.1:65535", true},
		{"127.8.9.1:1", true},
		{"[::1]", true},
		{"[::1]:8080", true},
		{"", false},
		{":8080", false},
		{"example.com", false},
		{"example.com:8080", false},
		{"localhost.example.com", false},
		{"localhost:8080.example.com", false},
		{"localhost:123456", false},
		{"127.0.0.1.example.com", false},
		{"0.0.0.0", false},
		{"10.0.0.1:8080", false},
		{"[::]", false},
		{"[::1%25lo]:80", false},
		{"localhost@example.com", false},
		{"2130706433", false},
	}
	limiter := &scripted{}
	h := New(config(t, limiter))
	for _, tt := range tests {
		r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(`{"policy":"default","key":"a"}`))
		r.Host = tt.host
		limiter.calls = 0
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Code == http.StatusOK && limiter.calls == 1; got != tt.want {
			t.Errorf("host %q: status %d after %d calls, want served = %v", tt.host, w.Code, limiter.calls, tt.want)
		}
		if !tt.want {
			wantProblem(t, w, http.StatusMisdirectedRequest, "is not this machine's loopback")
		}
	}
}

func TestOtherOriginsCannotCharge(t *testing.T) {
	tests := []struct {
		name    string
		headers []string
		status  int
	}{
		{"no browser", nil, 200},
		{"own page", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8080"}, 200},
		{"own page, old browser", []string{"Origin", "http://localhost:8080"}, 200},
		{"typed by the user", []string{"Sec-Fetch-Site", "none"}, 200},
		{"cross-site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another port", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://localhost:3000"}, 403},
		{"cross-origin, old browser", []string{"Origin", "https://example.com"}, 403},
		{"sandboxed", []string{"Origin", "null"}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limiter := &scripted{}
			w := serve(New(config(t, limiter)), "POST", "/v1/check", `{"policy":"default","key":"a"}`, tt.headers...)
			if w.Code != tt.status || (limiter.calls == 1) != (tt.status == 200) {
				t.Errorf("status %d after %d calls, want %d", w.Code, limiter.calls, tt.status)
			}
			if tt.status != http.StatusOK {
				wantProblem(t, w, tt.status, "another origin")
			}
		})
	}
}

func TestConnectIsRefused(t *testing.T) {
	r := httptest.NewRequest("CONNECT", "localhost:443", nil)
	w := httptest.NewRecorder()
	New(config(t, &scripted{})).ServeHTTP(w, r)
	wantProblem(t, w, http.StatusMethodNotAllowed, "weir is no proxy")
	if w.Header().Get("Connection") != "close" {
		t.Error("the connection stays open")
	}
}

func TestPage(t *testing.T) {
	srv := httptest.NewServer(New(config(t, &scripted{})))
	defer srv.Close()
	html, header := get(t, srv, "/")
	host := strings.TrimPrefix(srv.URL, "http://")
	for _, want := range []string{
		"curl -s http://" + host + `/v1/check -d '{"policy":"default","key":"alice"}'`, "v0.0.0-test",
		"<td>api</td><td>api.daily</td><td>12 per day", `data-steady="true">default<`, `data-steady="false">api<`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := header.Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'self'") || strings.Contains(got, "unsafe") {
		t.Errorf("Content-Security-Policy = %q", got)
	}
	for _, bad := range []string{`<script>`, `<style`, ` style="`, ` onclick=`, `href="http`, `src="http`, `src="//`} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %q, which its security policy forbids", bad)
		}
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(html, -1) {
		if body, _ := get(t, srv, m[1]); body == "" {
			t.Errorf("%s is empty", m[1])
		}
	}
}

func TestPageEscapesTheHost(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = `localhost"><script>alert(1)</script>`
	w := httptest.NewRecorder()
	New(config(t, &scripted{})).ServeHTTP(w, r)
	if w.Code != http.StatusMisdirectedRequest || strings.Contains(w.Body.String(), "<script>") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func get(t *testing.T, srv *httptest.Server, path string) (string, http.Header) {
	t.Helper()
	resp, err := srv.Client().Get(srv.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET %s = %s", path, resp.Status)
	}
	return string(body), resp.Header
}
