package weirhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

// stopped is a clock that stands still, so that the output is the same every time.
func stopped() weir.Instant { return 1_800_000_000_000_000_000 }

// show sends requests as a client of 192.0.2.1 and prints the replies.
func show(h http.Handler, requests ...*http.Request) {
	for _, r := range requests {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
		for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After", "Content-Type"} {
			if value := w.Header().Get(name); value != "" {
				fmt.Printf("%s: %s\n", name, value)
			}
		}
		fmt.Print(w.Body)
	}
}

// A service with a limit per API key and one per address. examples/limited is the same as a
// program of 20 lines.
func ExampleLimit() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	perKey := weir.Must(weir.NewPolicy("per-key", weir.PerMinute(100)))
	perIP := weir.Must(weir.NewPolicy("per-ip", weir.PerMinute(1)))
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))

	handler := weirhttp.Limit(table,
		weirhttp.By(perKey, weirhttp.Header("X-Api-Key")),
		weirhttp.By(perIP, weirhttp.ClientIP()))(mux)

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Api-Key", "alice's")
	show(handler, r, r)
	// Output:
	// 200
	// RateLimit-Policy: "per-key";q=100;w=60, "per-ip";q=1;w=60
	// RateLimit: "per-ip";r=0;t=60
	// Content-Type: text/plain; charset=utf-8
	// hello
	// 429
	// RateLimit-Policy: "per-key";q=100;w=60, "per-ip";q=1;w=60
	// RateLimit: "per-ip";r=0;t=60
	// Retry-After: 60
	// Content-Type: application/problem+json
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"policy per-ip is used up; retry after 1m0s","violated-policies":["per-ip"]}
}

// Behind proxies that send RFC 7239's Forwarded.
func ExampleClientIPFrom() {
	resolver := weir.Must(clientip.New(clientip.Config{
		Header:  "forwarded",
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}))
	key := weirhttp.ClientIPFrom(resolver)

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("Forwarded", `for="[2001:db8:1:2::7]:4711"`)
	fmt.Printf("%s\n", key(r, nil))
	// Output: 2001:db8:1:2::/64
}

// Another status, body and content type.
func ExampleRefuse() {
	policy := weir.Must(weir.NewPolicy("api", weir.PerMinute(1)))
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	limit := weirhttp.Limit(table, weirhttp.By(policy, weirhttp.ClientIP()),
		weirhttp.Refuse(func(w http.ResponseWriter, _ *http.Request, _ weirhttp.Denial) {
			http.Error(w, "slow down", http.StatusServiceUnavailable)
		}))

	r := httptest.NewRequest("GET", "/", nil)
	show(limit(http.NotFoundHandler()), r, r)
	// Output:
	// 404
	// RateLimit-Policy: "api";q=1;w=60
	// RateLimit: "api";r=0;t=60
	// Content-Type: text/plain; charset=utf-8
	// 404 page not found
	// 503
	// RateLimit-Policy: "api";q=1;w=60
	// RateLimit: "api";r=0;t=60
	// Retry-After: 60
	// Content-Type: text/plain; charset=utf-8
	// slow down
}
