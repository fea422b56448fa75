package middleware

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

// An entrant wraps the bare handler.
type entrant struct {
	name   string // as in harness.Subject, like the next two
	kind   harness.Kind
	module string
	only   []string

	// wrap returns the handler, and what ends it.
	wrap func(next http.Handler) (h http.Handler, stop func(), err error)
}

// entrants returns all, the bare handler first.
func entrants() []entrant {
	return []entrant{
		{name: "bare handler", kind: harness.Floor, wrap: func(h http.Handler) (http.Handler, func(), error) { return h, func() {}, nil }},
		{name: "weirhttp.Limit by address", kind: harness.Weir, wrap: wrapWeir(false)},
		{name: "weirhttp.Limit by key and by address", kind: harness.Weir, only: []string{added, addedAllocs}, wrap: wrapWeir(true)},
		{name: "httprate by address", kind: harness.Peer, module: "github.com/go-chi/httprate", wrap: wrapHTTPRate},
		{name: "go-limiter httplimit by address", kind: harness.Peer, module: "github.com/sethvargo/go-limiter", wrap: wrapGoLimiter},
	}
}

// bare is a small handler.
var bare = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte("hello\n"))
})

// The limits are so high that nobody reaches them.
const (
	perSecond = 1_000_000_000
	perHour   = 1 << 40
	maxKeys   = 1_000_000
)

func wrapWeir(both bool) func(http.Handler) (http.Handler, func(), error) {
	return func(next http.Handler) (http.Handler, func(), error) {
		table, err := memstore.New(memstore.Config{MaxKeys: maxKeys})
		if err != nil {
			return nil, nil, err
		}
		perIP, err := weir.NewPolicy("per-ip", weir.PerSecond(perSecond))
		if err != nil {
			return nil, nil, err
		}
		perKey, err := weir.NewPolicy("per-key", weir.PerSecond(perSecond))
		if err != nil {
			return nil, nil, err
		}
		rules := []weirhttp.Option{weirhttp.By(perIP, weirhttp.ClientIP())}
		if both {
			rules = append(rules, weirhttp.By(perKey, weirhttp.Header("X-Api-Key")))
		}
		return weirhttp.Limit(table, rules...)(next), func() {}, nil
	}
}

// wrapHTTPRate uses the key that its documentation advises, of the peer of the connection.
func wrapHTTPRate(next http.Handler) (http.Handler, func(), error) {
	limit := httprate.LimitBy(perHour, time.Hour, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	})
	return limit(next), func() {}, nil
}

func wrapGoLimiter(next http.Handler) (http.Handler, func(), error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: perHour, Interval: time.Hour, InitialAlloc: maxKeys})
	if err != nil {
		return nil, nil, err
	}
	m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, nil, err
	}
	return m.Handle(next), func() { _ = store.Close(background) }, nil
}

// origins returns addresses of IPv4 with a port, and for each an API key.
func origins(n int) (addresses, keys []string) {
	for i := range n {
		addresses = append(addresses, fmt.Sprintf("198.%d.%d.%d:4711", i>>16&255, i>>8&255, i&255))
		keys = append(keys, fmt.Sprintf("key-%028d", i))
	}
	return addresses, keys
}
