package httpapi

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/realip"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/weirhttp"
)

// Config is what New needs. All fields are required.
type Config struct {
	Engine  *ruleset.Engine
	State   func() *State // the current state; called once per request
	Observe func(*ruleset.Record)

	// ObserveEach is Observe for the decisions on several items. Took is the duration of the
	// first; the others are not timed.
	ObserveEach func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration)

	Log   *slog.Logger
	Ready func() (ready bool, detail string) // false once the daemon stops; called by GET /readyz

	Degraded func() string // why decisions are not made as usual, "" if they are; nil = always ""
}

// State is the configuration that can change while the daemon runs. A State is immutable; a
// change replaces it.
type State struct {
	Rules         *ruleset.Rules
	Quotas        []weirhttp.Quotas // by ruleset.Variant.ID
	Authenticator *identity.Authenticator
	Proxies       *realip.Resolver // resolves client addresses for /v1/auth
	KeyFrom       string           // the trusted proxies' header with the rate-limit key, "" for the address
	Legacy        weirhttp.Legacy
}

// NewQuotas makes the quotas of rules, for State.
func NewQuotas(rules *ruleset.Rules) []weirhttp.Quotas {
	all := make([]weirhttp.Quotas, len(rules.Variants()))
	for i, v := range rules.Variants() {
		var list []weirhttp.Quota
		for at, l := range v.Limits() {
			q := weirhttp.Quota{} // limits in shadow are not shown to clients
			if l.Mode == ruleset.Enforce {
				q = weirhttp.NewQuota(v.LimitName(at), l.Limit, l.Unit)
			}
			list = append(list, q)
		}
		all[i] = weirhttp.NewQuotas(list...)
	}
	return all
}

// New returns the handler of /v1, /healthz, /healthcheck and /readyz.
func New(cfg Config) http.Handler {
	a := &api{engine: cfg.Engine, state: cfg.State, observe: cfg.Observe, observeEach: cfg.ObserveEach, log: cfg.Log, ready: cfg.Ready, degraded: cfg.Degraded}
	mux := http.NewServeMux()
	check := only(http.MethodPost, a.check)
	mux.Handle("/v1/check", check)
	mux.Handle("/v1/check/batch", only(http.MethodPost, a.batch))
	mux.Handle("/v1/reserve", only(http.MethodPost, a.reserve))
	mux.Handle("/v1/commit", only(http.MethodPost, a.commit))
	mux.Handle("/v1/cancel", only(http.MethodPost, a.cancel))
	mux.Handle("/v1/renew", only(http.MethodPost, a.renew))
	mux.HandleFunc("/v1/auth/{policy}", a.forward)
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
	engine      *ruleset.Engine
	state       func() *State
	observe     func(*ruleset.Record)
	observeEach func([]ruleset.Item, []ruleset.Verdict, time.Duration)
	log         *slog.Logger
	ready       func() (bool, string)
	degraded    func() string
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

// caller authenticates a client, or answers with a problem and returns false.
func caller(w http.ResponseWriter, r *http.Request, s *State) (*identity.Client, bool) {
	c, err := s.Authenticator.Client(r)
	if err != nil {
		err.Write(w)
		return nil, false
	}
	return c, true
}

// rule returns a policy that the client may use, or answers with a problem and returns nil.
func (s *State) rule(w http.ResponseWriter, c *identity.Client, name []byte) *ruleset.Rule {
	rule, problem := s.find(c, name)
	if rule == nil {
		problem.Write(w)
	}
	return rule
}

// find returns a policy that the client may use, or a problem.
func (s *State) find(c *identity.Client, name []byte) (*ruleset.Rule, weirhttp.Problem) {
	if c != nil && !c.May(string(name)) {
		return nil, weirhttp.Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("the client %s may not use the policy %s", c.Name, quote(string(name)))}
	}
	rule := s.Rules.RuleNamed(name)
	if rule == nil {
		return nil, weirhttp.Problem{Status: http.StatusNotFound, Detail: "no policy is called " + quote(string(name)) + "; the page at / and GET /admin/v1/policies list those there are"}
	}
	return rule, weirhttp.Problem{}
}

func nameOf(c *identity.Client) string {
	if c == nil {
		return ""
	}
	return c.Name
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
	writeProblem(w, http.StatusNotFound, fmt.Sprintf("nothing is at %s; GET / shows what is", quote(r.URL.Path)))
}
