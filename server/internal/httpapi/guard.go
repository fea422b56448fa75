package httpapi

import (
	"net/http"
	"net/url"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/weirhttp"
)

// guard answers /v1/auth: whether a proxy may let a request pass, by both stages of the guard. The endpoint
// and the client come from the headers of a trusted proxy; other callers are clients of the daemon, whose
// headers identify neither.
func (a *api) guard(w http.ResponseWriter, r *http.Request) *call.Error {
	state := a.State()
	caller, trusted, err := a.guardCaller(state, r)
	if err != nil {
		return err
	}
	g, err := caller.MayGuard()
	if err != nil {
		return err
	}
	refusal, err := refusalStatus(r)
	if err != nil {
		return err
	}
	admission, ctx := call.Admission{Credentials: guard.Credentials{RemoteAddr: r.RemoteAddr, TLS: r.TLS}}, r.Context()
	if trusted {
		admission.Credentials = guard.Credentials{RemoteAddr: r.RemoteAddr, Header: r.Header} // the certificate is the proxy's
		if admission.Method, admission.Path, err = forwarded(r.Header); err != nil {
			return err
		}
		admission.Attributes = hostOf(r.Header)
		ctx = g.Principal(ctx, r.Header)
	}
	admission.Address = g.Guard.Identifier().Address(&admission.Credentials)
	v, _, err := a.Core.Admit(ctx, caller, g, &admission)
	if err != nil {
		return err
	}
	state.setGuardHeaders(w.Header(), &v)
	writeVerdict(w, &v, refusal)
	return nil
}

// guardCaller returns the caller: an anonymous one for a trusted proxy of the guard, whose request has the
// token of its own client, else a client.
func (a *api) guardCaller(s *State, r *http.Request) (c call.Caller, trusted bool, err *call.Error) {
	if s.Guard != nil && s.Guard.Proxies.TrustsPeer(r.RemoteAddr) {
		return call.Caller{State: s.State}, true, nil
	}
	c, err = a.Core.HTTP(s.State, r)
	return c, false, err
}

// forwarded returns the method and the path of the proxied request. Proxies send them in one of two pairs of
// headers and pass on the other pair as the client sent it, so that two different ones are an error: a
// client could choose its endpoint.
func forwarded(h http.Header) (method, path string, err *call.Error) {
	method, uri, problem := endpointIn(h, "X-Forwarded-Method", "X-Forwarded-Uri")
	otherMethod, otherURI, otherProblem := endpointIn(h, "X-Original-Method", "X-Original-Uri")
	switch {
	case problem || otherProblem:
		return "", "", call.Invalid("a header with the method or the URI of the request is there twice: the proxy must replace what the client sends")
	case uri == "" && method == "":
		method, uri = otherMethod, otherURI
	case (otherURI != "" || otherMethod != "") && (otherURI != uri || otherMethod != method):
		return "", "", call.Invalid("X-Forwarded-Method and -Uri differ from X-Original-Method and -Uri: the proxy must remove those that it does not set")
	}
	if uri == "" {
		return "", "", call.Invalid("the URI of the request is missing: the proxy must send X-Forwarded-Uri or X-Original-Uri, and X-Forwarded-Method or X-Original-Method")
	}
	u, parseErr := url.ParseRequestURI(uri)
	if parseErr != nil {
		return "", "", call.Invalid("the URI of the request is none")
	}
	return method, guard.RequestPath(u), nil
}

// endpointIn returns the values of a pair of headers.
func endpointIn(h http.Header, methodHeader, uriHeader string) (method, uri string, twice bool) {
	methods, uris := h[methodHeader], h[uriHeader]
	if len(methods) > 1 || len(uris) > 1 {
		return "", "", true
	}
	return h.Get(methodHeader), h.Get(uriHeader), false
}

// hostOf returns the attributes of a proxied request.
func hostOf(h http.Header) []ruleset.Attribute {
	if host := h.Get("X-Forwarded-Host"); host != "" {
		return []ruleset.Attribute{{Name: "host", Value: call.FitKey(host)}}
	}
	return nil
}

// setGuardHeaders sets the rate limit headers of a verdict. Refusals that no limit made have Retry-After
// alone.
func (s *State) setGuardHeaders(h http.Header, v *guard.Verdict) {
	switch {
	case v.Variant == nil || v.Verdict.Limit < 0:
		weirhttp.SetHeaders(h, weirhttp.Quotas{}, -1, v.Decision)
	case v.Variant.Limits()[v.Verdict.Limit].Hidden:
		weirhttp.SetHeaders(h, weirhttp.VariantQuotas(v.Variant), -1, v.Decision)
	default:
		s.setHeaders(h, &v.Verdict)
	}
}

// writeVerdict answers the proxy.
func writeVerdict(w http.ResponseWriter, v *guard.Verdict, refusal int) {
	if v.Allowed {
		w.WriteHeader(http.StatusOK)
		return
	}
	problem := weirhttp.GuardDenied(v)
	if refusal != 0 {
		problem.Status = refusal
	}
	problem.Write(w)
}
