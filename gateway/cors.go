package gateway

import (
	"net/http"
	"slices"
	"strings"
)

// origins are those whose pages may call a route.
type origins struct {
	all  bool
	list []string
}

func newOrigins(list []string) origins {
	return origins{all: slices.Contains(list, "*"), list: list}
}

// exposed are the headers of responses that pages may read.
const exposed = "RateLimit, RateLimit-Policy, Retry-After, Weir-Upstream, Weir-Limit"

// requestable are the headers that pages may send.
var requestable = []string{"accept", "authorization", "content-type", "traceparent", "tracestate", "weir-class", "x-api-key"}

// allow sets the headers that let the page read the response, if its origin may.
func (o origins) allow(h http.Header, r *http.Request) bool {
	if len(o.list) == 0 {
		return false
	}
	if !o.all {
		h.Add("Vary", "Origin")
	}
	origin := r.Header.Get("Origin")
	switch {
	case origin == "" || !o.all && !slices.Contains(o.list, origin):
		return false
	case o.all:
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
	return true
}

// preflight answers whether a page may send a request. What it may not is not said.
func (o origins) preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Allow", "OPTIONS, POST")
	if allowed := o.allow(h, r); allowed && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Del("Access-Control-Expose-Headers") // they belong to the response itself
		h.Set("Access-Control-Allow-Methods", http.MethodPost)
		h.Set("Access-Control-Max-Age", "600")
		if list := requested(r); list != "" {
			h.Set("Access-Control-Allow-Headers", list)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// requested returns those of the headers that a page wants to send which it may.
func requested(r *http.Request) string {
	var list []string
	for _, line := range r.Header.Values("Access-Control-Request-Headers") {
		for _, name := range strings.Split(line, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if slices.Contains(requestable, name) && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return strings.Join(list, ", ")
}
