package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/upstream"
	"github.com/weirlimit/weir/weirhttp"
)

// The headers of responses that are weir's own, as http.Header stores them.
const (
	fieldUpstream = "Weir-Upstream" // the alias of the endpoint that has answered
	fieldLimit    = "Weir-Limit"    // the tightest limit, or the one that refuses
)

// Values of headers that never change. Their slices are shared: nobody appends to them.
var (
	mediaType = []string{"application/json"}
	agent     = []string{"weir"}
)

// forwarded returns the headers of a request to an endpoint. Of those of the caller only the trace context is passed
// on: the others are about the caller and the connection, or say what is known of a request of JSON-RPC anyway.
// Without Accept-Encoding the transport asks for compression itself, and undoes it, so that refusals can be read.
func forwarded(caller http.Header) http.Header {
	h := make(http.Header, 4)
	h["Content-Type"], h["Accept"], h["User-Agent"] = mediaType, mediaType, agent
	if parent := caller["Traceparent"]; len(parent) == 1 {
		h["Traceparent"] = parent
	}
	return h
}

// returned are the headers of endpoints that callers get. Others are about the provider's site and its connection,
// such as Set-Cookie, Alt-Svc, Strict-Transport-Security and those of CORS, or could have the URL in them.
var returned = []string{"Cache-Control", "Content-Encoding", "Content-Type", "Ratelimit", "Ratelimit-Policy", "Retry-After"}

// returnedHeader returns the headers of a response for the caller.
func (q *quotas) returnedHeader(reply *upstream.Reply) http.Header {
	h := make(http.Header, 8)
	for _, name := range returned {
		if values := reply.Header[name]; len(values) > 0 && isWellFormed(name, values) {
			h[name] = values
		}
	}
	if n := reply.ContentLength; n > 0 || n == 0 && reply.StatusCode != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.FormatInt(n, 10)}
	}
	if reply.ContentLength != 0 && !isJSON(h.Get("Content-Type")) { // no browser may take it for a page
		h["Content-Type"] = mediaType
	}
	h[fieldUpstream] = []string{reply.Alias}
	q.set(h, reply)
	return h
}

// isWellFormed reports whether the values of a header are what its definition says, where clients compute with them.
func isWellFormed(name string, values []string) bool {
	switch name {
	case "Retry-After":
		_, ok := weirhttp.ParseRetryAfter(values[0], time.Now(), 0)
		return ok && len(values) == 1
	case "Ratelimit", "Ratelimit-Policy":
		return budget.IsList(values)
	}
	return true
}

// quotas are the texts of the limits in headers, made once for each limit.
type quotas struct{ known sync.Map } // quotaKey -> *quota

type quotaKey struct {
	alias, limit, unit string
	quota              weir.Limit
}

type quota struct {
	name  []string
	texts weirhttp.Quotas
}

// limitName returns the name of an endpoint's limit for callers. It does not have the account's name in it.
func limitName(alias, limit string) string { return alias + "." + limit }

// set adds what is left of the tightest limit. The endpoint's own RateLimit fields stay: without them it would look
// as if there were more.
func (q *quotas) set(h http.Header, reply *upstream.Reply) {
	if reply.Limit == "" || reply.StatusCode == http.StatusTooManyRequests { // then the provider knows better what is left
		return
	}
	key := quotaKey{reply.Alias, reply.Limit, reply.Unit, reply.Quota}
	known, ok := q.known.Load(key)
	if !ok {
		name := limitName(reply.Alias, reply.Limit)
		known, _ = q.known.LoadOrStore(key, &quota{[]string{name}, weirhttp.NewQuotas(weirhttp.NewQuota(name, reply.Quota, reply.Unit))})
	}
	one := known.(*quota)
	h[fieldLimit] = one.name
	theirs := http.Header{}
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
		if len(h[name]) > 0 {
			theirs[name] = h[name]
			delete(h, name)
		}
	}
	weirhttp.SetHeaders(h, one.texts, 0, reply.Decision)
	for name, values := range theirs {
		h[name] = slices.Concat(values, h[name])
	}
}
