package httpapi

import (
	_ "embed"
	"io"
	"net/http"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
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

// New returns the handler of /v1, /healthz, /healthcheck and /readyz.
func New(cfg Config) http.Handler {
	a := &api{cfg}
	mux := http.NewServeMux()
	check := a.post(&checkForm, a.check)
	mux.Handle("/v1/check", check)
	mux.Handle("/v1/check/batch", a.post(&batchForm, a.checkBatch))
	mux.Handle("/v1/reserve", a.post(&reserveForm, a.reserve))
	mux.Handle("/v1/commit", a.post(&commitForm, a.commit))
	mux.Handle("/v1/cancel", a.post(&cancelForm, a.cancel))
	mux.Handle("/v1/renew", a.post(&renewForm, a.renew))
	mux.HandleFunc("/v1/auth/{policy}", answering(a.forward))
	mux.HandleFunc("/v1/auth", answering(a.guard))
	mux.Handle("/v1/guard", only(http.MethodPost, answering(a.admit)))
	mux.Handle("/v1/guard/finish", only(http.MethodPost, answering(a.finish)))
	mux.Handle("/v1/guard/quotas", only(http.MethodPost, answering(a.quotas)))
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

// api answers.
type api struct{ Config }

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
		weirhttp.Problem{Status: http.StatusMethodNotAllowed, Detail: "this path answers " + allow + " only"}.Write(w)
	})
}

func healthy(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	ready, detail := a.Ready()
	if detail != "" {
		detail += "\n"
	}
	if !ready {
		writeText(w, http.StatusServiceUnavailable, "stopping\n"+detail)
		return
	}
	status := "ready"
	if a.Degraded != nil {
		if why := a.Degraded(); why != "" { // it is ready all the same: requests are answered as configured
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
	call.Errorf(call.NotFound, "nothing is at %s; GET / shows what is", strictjson.Quote(r.URL.Path)).Write(w)
}

// openAPI describes /v1 to programs (OpenAPI 3.1). Its test holds it to the handlers.
//
//go:embed openapi.yaml
var openAPI []byte

// serveOpenAPI answers GET /openapi.yaml.
func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml") // RFC 9512
	w.Write(openAPI)                                   // an error means that the caller is gone
}
