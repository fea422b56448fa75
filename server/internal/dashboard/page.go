// Package dashboard is the page that people see at /.
//
// The page is the same for everybody and has no data: it asks the admin API, with an operator's
// token where there are operators, and writes what it gets as text, never as HTML.
package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir/weirhttp"
)

//go:embed page
var pageFiles embed.FS

// pageSecurity lets the page load only what the daemon itself serves, from
// files: nothing inline, nothing from elsewhere, in nobody's frame.
const pageSecurity = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// files are what is served, with their types.
var files = map[string]struct{ name, kind string }{
	"/":                {"index.html", "text/html; charset=utf-8"},
	"/assets/weir.css": {"weir.css", "text/css; charset=utf-8"},
	"/assets/weir.js":  {"weir.js", "text/javascript; charset=utf-8"},
	"/assets/call.js":  {"call.js", "text/javascript; charset=utf-8"},
	"/assets/weir.svg": {"weir.svg", "image/svg+xml"},
}

// Serve answers GET / and GET /assets/…; others are not found.
func Serve(w http.ResponseWriter, r *http.Request) {
	file, known := files[r.URL.Path]
	switch {
	case !known:
		weirhttp.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("nothing is at %.80q; GET / shows what is", r.URL.Path)}.Write(w)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		weirhttp.Problem{Status: http.StatusMethodNotAllowed, Detail: "this path answers GET, HEAD only"}.Write(w)
		return
	}
	data, err := pageFiles.ReadFile("page/" + file.name)
	if err != nil { // every file is embedded
		panic(err)
	}
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("Content-Security-Policy", pageSecurity)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, file.name, time.Time{}, bytes.NewReader(data))
}
