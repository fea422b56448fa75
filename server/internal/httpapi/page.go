package httpapi

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/index.html"))

// pageSecurity lets the page load only what the daemon itself serves, from
// files: nothing inline, nothing from elsewhere, in nobody's frame.
const pageSecurity = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page is what GET / shows. Its fields are the template's, set once by newPage.
type page struct {
	Version  string
	Policies []pagePolicy
}

type pagePolicy struct {
	Name   string
	Limits []pageLimit
	Steady bool // refills evenly, so that the bar may too
}

type pageLimit struct{ Name, Text string }

func newPage(cfg Config) *page {
	pg := &page{Version: cfg.Version}
	for _, p := range cfg.Policies {
		view := pagePolicy{Name: p.Name(), Steady: true}
		for i, l := range p.Limits() {
			view.Limits = append(view.Limits, pageLimit{p.LimitName(i), l.String()})
			view.Steady = view.Steady && (l.Algorithm == weir.GCRA || l.Algorithm == weir.TokenBucket)
		}
		pg.Policies = append(pg.Policies, view)
	}
	return pg
}

// serve renders the page for the host that the caller used, so that the command
// it shows works where it is read. The gate has checked the host.
func (pg *page) serve(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, struct {
		*page
		Host string
	}{pg, r.Host}); err != nil { // a buffer takes everything, and the data always fits
		panic(err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pageSecurity)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(body.Bytes()) // an error means that the caller is gone
}

// assets are the files that the page loads, with their types.
var assets = map[string]string{
	"weir.css": "text/css; charset=utf-8",
	"weir.js":  "text/javascript; charset=utf-8",
	"weir.svg": "image/svg+xml",
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	kind, ok := assets[name]
	if !ok {
		notFound(w, r)
		return
	}
	data, err := pageFiles.ReadFile("page/" + name)
	if err != nil { // every asset is embedded
		panic(err)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Security-Policy", pageSecurity)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}
