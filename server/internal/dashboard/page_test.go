package dashboard

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPage(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(Serve))
	defer srv.Close()
	html, header := get(t, srv, "/")
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

// Keys and names are anybody's, so nothing of them may become HTML or code.
func TestScriptsWriteTextOnly(t *testing.T) {
	for _, name := range []string{"weir.js", "call.js"} {
		text, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|localStorage|sessionStorage`).Find(text); bad != nil {
			t.Errorf("%s has %s", name, bad)
		}
	}
}

// TestInABrowser does with the page what testdata/script.js says, in the part of a browser that
// testdata/browser.js is, and holds what is seen to a golden file.
func TestInABrowser(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("there is no node, which scripts/setup.sh installs: %v", err)
	}
	dir := t.TempDir()
	for _, pattern := range []string{"page/*", "testdata/*.js"} {
		list, err := filepath.Glob(pattern)
		if err != nil || len(list) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range list {
			copyFile(t, name, filepath.Join(dir, filepath.Base(name)))
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "browser.js")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	golden.Check(t, "testdata/browser.golden", bytes.TrimLeft(out, "\n"))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
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
		Serve(w, httptest.NewRequest(tt.method, "http://localhost"+tt.path, nil))
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
