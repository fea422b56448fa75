// Package dashboard is the page that people see at /.
package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/weirhttp"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/index.html"))

// pageSecurity lets the page load only what the daemon itself serves, from
// files: nothing inline, nothing from elsewhere, in nobody's frame.
const pageSecurity = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page is what GET / shows.
type Page struct {
	version string
	rules   func() *ruleset.Rules // what is in force now
}

// New returns the page of a daemon.
func New(version string, rules func() *ruleset.Rules) *Page { return &Page{version, rules} }

// view is what the template shows.
type view struct {
	Version  string
	Host     string
	Policies []pagePolicy
}

type pagePolicy struct {
	Name   string
	Limits []pageLimit
	Steady bool // refills evenly, so that the bar may too
}

type pageLimit struct{ Name, Text string }

func newView(version, host string, rules *ruleset.Rules) view {
	pg := view{Version: version, Host: host}
	for _, r := range rules.All() {
		p := pagePolicy{Name: r.Name(), Steady: true}
		for i, l := range r.Base().Limits() {
			p.Limits = append(p.Limits, pageLimit{r.Base().LimitName(i), describe(&l)})
			p.Steady = p.Steady && (l.Algorithm == weir.Auto || l.Algorithm == weir.GCRA || l.Algorithm == weir.TokenBucket)
		}
		pg.Policies = append(pg.Policies, p)
	}
	return pg
}

// describe tells a limit in a few words.
func describe(l *ruleset.Limit) string {
	text := l.Limit.String()
	if l.Unit != ruleset.Requests {
		text += " in " + l.Unit
	}
	if l.By != "" {
		text += " by " + l.By
	}
	if l.Mode == ruleset.Shadow {
		text += ", in shadow"
	}
	return text
}

// serve renders the page for the host that the caller used, so that the command
// it shows works where it is read. The gate has checked the host.
func (pg *Page) serve(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, newView(pg.version, r.Host, pg.rules())); err != nil { // a buffer takes everything, and the data always fits
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

// ServeHTTP answers GET / and GET /assets/…; others are not found.
func (pg *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, isAsset := strings.CutPrefix(r.URL.Path, "/assets/")
	kind, known := assets[name]
	switch {
	case isAsset && !known || !isAsset && r.URL.Path != "/":
		weirhttp.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("nothing is at %.80q; GET / shows what is", r.URL.Path)}.Write(w)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		weirhttp.Problem{Status: http.StatusMethodNotAllowed, Detail: "this path answers GET, HEAD only"}.Write(w)
	case isAsset:
		serveAsset(w, r, name, kind)
	default:
		pg.serve(w, r)
	}
}

func serveAsset(w http.ResponseWriter, r *http.Request, name, kind string) {
	data, err := pageFiles.ReadFile("page/" + name)
	if err != nil { // every asset is embedded
		panic(err)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Security-Policy", pageSecurity)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}
