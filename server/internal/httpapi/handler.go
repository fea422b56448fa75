package httpapi

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/weirlimit/weir"
)

// Config is what New needs. All fields are required.
type Config struct {
	Limiter  weir.Limiter
	Policies []*weir.Policy // with different names
	Log      *slog.Logger
	Ready    func() bool // false once the daemon stops; asked by GET /readyz
	Version  string      // shown on the page
}

// New returns the handler of all paths.
func New(cfg Config) http.Handler {
	a := &api{
		limiter:  cfg.Limiter,
		policies: make(map[string]*served, len(cfg.Policies)),
		log:      cfg.Log,
		ready:    cfg.Ready,
	}
	for _, p := range cfg.Policies {
		a.policies[p.Name()] = newServed(p)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/check", only(http.MethodPost, a.check))
	mux.Handle("/healthz", only(http.MethodGet, healthy))
	mux.Handle("/healthcheck", only(http.MethodGet, healthy))
	mux.Handle("/readyz", only(http.MethodGet, a.readyz))
	mux.Handle("/{$}", only(http.MethodGet, newPage(cfg).serve))
	mux.Handle("/assets/{name}", only(http.MethodGet, serveAsset))
	mux.HandleFunc("/", notFound)
	return newGate(mux)
}

// api holds what the handlers share. All fields are set once by New.
type api struct {
	limiter  weir.Limiter
	policies map[string]*served
	log      *slog.Logger
	ready    func() bool
}

// served is a policy with the names of its limits, made once so that no
// decision makes them again.
type served struct {
	policy     *weir.Policy
	limitNames []string
}

func newServed(p *weir.Policy) *served {
	s := &served{policy: p, limitNames: make([]string, len(p.Limits()))}
	for i := range s.limitNames {
		s.limitNames[i] = p.LimitName(i)
	}
	return s
}

// only lets one method through, and HEAD along with GET.
func only(method string, h http.HandlerFunc) http.Handler {
	allow := method
	if method == http.MethodGet {
		allow = "GET, HEAD"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
			h(w, r)
			return
		}
		w.Header().Set("Allow", allow)
		writeProblem(w, http.StatusMethodNotAllowed, "this path answers "+allow+" only")
	})
}

func healthy(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	if !a.ready() {
		writeText(w, http.StatusServiceUnavailable, "stopping\n")
		return
	}
	writeText(w, http.StatusOK, "ready\n")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, text) // an error means that the caller is gone
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, http.StatusNotFound, fmt.Sprintf("nothing is at %s; GET / shows what is", quote(r.URL.Path)))
}
