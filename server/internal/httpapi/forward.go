package httpapi

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/weirhttp"
)

// forward answers /v1/auth/{policy}: whether a proxy may let a request pass. The cost is 1, and the
// policy is that of the path. The rate-limit key and the attributes come from the headers of a
// trusted proxy; for other callers, the key is their address.
func (a *api) forward(w http.ResponseWriter, r *http.Request) *call.Error {
	state := a.State()
	caller, trusted, err := a.proxy(state, r)
	if err != nil {
		return err
	}
	refusal, err := refusalStatus(r)
	if err != nil {
		return err
	}
	x := exchanges.Get().(*exchange)
	defer x.free()
	state.identify(&x.request, r, trusted)
	v, err := a.Core.Check(r.Context(), caller, []byte(r.PathValue("policy")), &x.request.query, false)
	if err != nil {
		return err
	}
	state.setHeaders(w.Header(), &v)
	writePass(w, &v, refusal)
	return nil
}

// proxy returns the caller: a client, or an anonymous caller for a trusted proxy, which is identified
// by its address, because the token in its request is that of its own client.
func (a *api) proxy(s *State, r *http.Request) (c call.Caller, trusted bool, err *call.Error) {
	if s.Proxies.TrustsPeer(r.RemoteAddr) {
		return call.Caller{State: s.State}, true, nil
	}
	c, err = a.Core.HTTP(s.State, r)
	return c, false, err
}

// writePass answers the proxy.
func writePass(w http.ResponseWriter, v *ruleset.Verdict, refusal int) {
	if v.Allowed {
		w.WriteHeader(http.StatusOK)
		return
	}
	problem := weirhttp.Denied(v.Policy(), v.LimitedBy(), v.Decision)
	if refusal != 0 {
		problem.Status = refusal
	}
	problem.Write(w)
}

// refusalStatus returns the status that the proxy requests for refusals, 0 for the default.
func refusalStatus(r *http.Request) (int, *call.Error) {
	if r.URL.RawQuery == "" {
		return 0, nil
	}
	switch r.URL.Query().Get("deny") {
	case "":
		return 0, nil
	case "403":
		return http.StatusForbidden, nil
	case "429":
		return http.StatusTooManyRequests, nil
	}
	return 0, call.Invalid("deny is the status of a refusal: 403 or 429")
}

// identify sets the query's rate-limit key, and the attributes of the proxied request: ip, method,
// host and path. Callers of /v1/check must hash long keys themselves, but a proxy passes on paths and
// tokens of its clients, which can be long.
func (s *State) identify(req *request, r *http.Request, trusted bool) {
	q := &req.query
	q.Cost, q.Implied = 1, true
	from := "unknown" // callers without an address share a key
	if addr, ok := s.Proxies.Client(r.RemoteAddr, r.Header); ok {
		from = s.Proxies.Key(addr)
	}
	q.Key, q.Keys = from, append(req.keyed[:0], ruleset.Attribute{Name: "ip", Value: from})
	if !trusted {
		return
	}
	if s.KeyFrom != "" {
		if key := r.Header.Get(s.KeyFrom); key != "" {
			q.Key = call.FitKey(key)
		}
	}
	h := r.Header
	if method := cmp.Or(h.Get("X-Forwarded-Method"), h.Get("X-Original-Method")); method != "" {
		q.Keys = append(q.Keys, ruleset.Attribute{Name: "method", Value: call.FitKey(method)})
	}
	if host := h.Get("X-Forwarded-Host"); host != "" {
		q.Keys = append(q.Keys, ruleset.Attribute{Name: "host", Value: call.FitKey(host)})
	}
	if uri := cmp.Or(h.Get("X-Forwarded-Uri"), h.Get("X-Original-Uri")); uri != "" {
		q.Keys = append(q.Keys, ruleset.Attribute{Name: "path", Value: call.FitKey(pathOnly(uri))})
	}
}

// pathOnly cuts the query from a path.
func pathOnly(uri string) string {
	if i := strings.IndexAny(uri, "?#"); i >= 0 {
		return uri[:i]
	}
	return uri
}
