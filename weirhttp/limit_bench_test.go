package weirhttp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/weirlimit/weir"
)

// discard is a ResponseWriter that is used for request after request.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

var bare = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte("hello\n"))
})

// setups are handlers of which the cost is held.
func setups(t testing.TB) map[string]http.Handler {
	t.Helper()
	table := newTable(t)
	huge := weir.Limit{Rate: 1_000_000_000, Per: weir.PerSecond(1).Per}
	key, ip := policy(t, "per-key", huge), policy(t, "per-ip", huge)
	return map[string]http.Handler{
		"bare":    bare,
		"address": Limit(table, By(ip, ClientIP()))(bare),
		"proxied": Limit(table, By(ip, ClientIP(proxies...)))(bare),
		"key":     Limit(table, By(key, Header("X-Api-Key")))(bare),
		"both":    Limit(table, By(key, Header("X-Api-Key")), By(ip, ClientIP(proxies...)))(bare),
	}
}

func someRequest() *http.Request {
	r := httptest.NewRequest("GET", "/v1/things", nil)
	r.RemoteAddr = "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:54321"
	r.Header.Set("X-Api-Key", "0123456789abcdef0123456789abcdef")
	return r
}

// TestLimitAllocates holds the goal: one allocation more than the bare handler.
func TestLimitAllocates(t *testing.T) {
	if raced() {
		t.Skip("the race detector empties pools")
	}
	all := setups(t)
	w, r := &discard{http.Header{}}, someRequest()
	count := func(h http.Handler) float64 {
		return testing.AllocsPerRun(200, func() { h.ServeHTTP(w, r) })
	}
	base := count(all["bare"])
	for name, h := range all {
		if n := count(h) - base; n > 1 {
			t.Errorf("%s: %v allocations more than the bare handler, want at most 1", name, n)
		}
	}
}

func BenchmarkLimit(b *testing.B) {
	for _, name := range []string{"bare", "address", "proxied", "key", "both"} {
		h := setups(b)[name]
		b.Run(name, func(b *testing.B) {
			w, r := &discard{http.Header{}}, someRequest()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkLimitParallel has 100,000 addresses.
func BenchmarkLimitParallel(b *testing.B) {
	for _, name := range []string{"bare", "address", "both"} {
		h := setups(b)[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				w := &discard{http.Header{}}
				requests := make([]*http.Request, 1000)
				for i := range requests {
					requests[i] = someRequest()
					requests[i].RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)
					requests[i].Header.Set("X-Api-Key", strconv.Itoa(i))
				}
				for i := 0; pb.Next(); i++ {
					h.ServeHTTP(w, requests[i%len(requests)])
				}
			})
		})
	}
}
