package dashboard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPage(t *testing.T) *Page {
	t.Helper()
	second := weir.Every(time.Second)
	rules, err := ruleset.Compile([]ruleset.Policy{
		{Name: "default", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: second}}}},
		{Name: "api", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 3, Per: second, Burst: 10}},
			{Limit: weir.Limit{Name: "daily", Rate: 12, Per: weir.Calendar(weir.Day, nil), Algorithm: weir.FixedWindow}, By: "ip", Mode: ruleset.Shadow},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return New("v0.0.0-test", func() *ruleset.Rules { return rules })
}

func TestPage(t *testing.T) {
	srv := httptest.NewServer(newPage(t))
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
	for _, m := range regexp.MustCompile(`(?:src|href)="(/assets/[^"]*)"`).FindAllStringSubmatch(html, -1) {
		if body, _ := get(t, srv, m[1]); body == "" {
			t.Errorf("%s is empty", m[1])
		}
	}
}

func TestPageEscapesTheHost(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = `localhost"><script>alert(1)</script>`
	w := httptest.NewRecorder()
	newPage(t).ServeHTTP(w, r)
	if strings.Contains(w.Body.String(), "<script>") {
		t.Errorf("%s", w.Body)
	}
}

func TestOtherPaths(t *testing.T) {
	tests := []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 200},
		{"HEAD", "/", 200},
		{"DELETE", "/", 405},
		{"POST", "/assets/weir.js", 405},
		{"GET", "/assets/weir.js", 200},
		{"GET", "/assets/", 404},
		{"GET", "/assets/index.html", 404},
		{"GET", "/assets/..%2findex.html", 404},
		{"GET", "/nope", 404},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		newPage(t).ServeHTTP(w, httptest.NewRequest(tt.method, "http://localhost"+tt.path, nil))
		if w.Code != tt.status {
			t.Errorf("%s %s: %d", tt.method, tt.path, w.Code)
		}
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
