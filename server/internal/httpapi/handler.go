package httpapi

import (
	"fmt"
	"io"
	"net/http"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/weirhttp"
)

// Config is what New needs. All fields are required.
type Config struct {
	Core  *call.Core
	State func() *State                      // the current state; called once per request
	Ready func() (ready bool, detail string) // false once the daemon stops; called by GET /readyz

	Degraded func() string // why decisions are not made as usual, "" if they are; nil = always ""
}

// State is the configuration that can change while the daemon runs. A State is immutable; a
// change replaces it.
type State struct {
	*call.State
	Proxies *clientip.Resolver // resolves client addresses for /v1/auth
	KeyFrom string             // the trusted proxies' header with the rate-limit key, "" for the address
	Legacy  weirhttp.Legacy
}

// newQuotas makes the quotas of a variant.
func newQuotas(v *ruleset.Variant) any {
	var list []weirhttp.Quota
	for at, l := range v.Limits() {
		q := weirhttp.Quota{} // hidden limits and those in shadow are not shown to clients
		if l.Mode == ruleset.Enforce && !l.Hidden {
			q = weirhttp.NewQuota(v.LimitName(at), l.Limit, l.Unit)
		}
		list = append(list, q)
	}
	return weirhttp.NewQuotas(list...)
}

// New returns the handler of /v1, /healthz, /healthcheck and /readyz.
func New(cfg Config) http.Handler {
	a := &api{core: cfg.Core, state: cfg.State, ready: cfg.Ready, degraded: cfg.Degraded}
	mux := http.NewServeMux()
	check := only(http.MethodPost, a.check)
	mux.Handle("/v1/check", check)
	mux.Handle("/v1/check/batch", only(http.MethodPost, a.batch))
	mux.Handle("/v1/reserve", only(http.MethodPost, a.reserve))
	mux.Handle("/v1/commit", only(http.MethodPost, a.commit))
	mux.Handle("/v1/cancel", only(http.MethodPost, a.cancel))
	mux.Handle("/v1/renew", only(http.MethodPost, a.renew))
	mux.HandleFunc("/v1/auth/{policy}", a.forward)
	mux.HandleFunc("/v1/auth", a.guard)
	mux.Handle("/v1/guard", only(http.MethodPost, a.admit))
	mux.Handle("/v1/guard/finish", only(http.MethodPost, a.finish))
	mux.Handle("/v1/guard/quotas", only(http.MethodPost, a.quotas))
	mux.Handle("/healthz", only(http.MethodGet, healthy))
	mux.Handle("/healthcheck", only(http.MethodGet, healthy))
	mux.Handle("/readyz", only(http.MethodGet, a.readyz))
	mux.Handle("/openapi.yaml", only(http.MethodGet, serveOpenAPI))
	mux.HandleFunc("/", NotFound)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/check" && r.URL.RawPath == "" { // the most frequent path, without the cost of the mux
			check.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// api holds what the handlers share. All fields are set once by New.
type api struct {
	core     *call.Core
	state    func() *State
	ready    func() (bool, string)
	degraded func() string
}

// only accepts one method, and HEAD along with GET.
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
	ready, detail := a.ready()
	if detail != "" {
		detail += "\n"
	}
	if !ready {
		writeText(w, http.StatusServiceUnavailable, "stopping\n"+detail)
		return
	}
	status := "ready"
	if a.degraded != nil {
		if why := a.degraded(); why != "" { // it is ready all the same: requests are answered as configured
			status += ", degraded: " + why
		}
	}
	writeText(w, http.StatusOK, status+"\n"+detail)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, text) // an error means that the caller is gone
}

// NotFound answers requests for unknown paths.
func NotFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, http.StatusNotFound, fmt.Sprintf("nothing is at %s; GET / shows what is", call.Quote(r.URL.Path)))
}
