package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/upstream"
)

// BenchmarkRoute compares a route that charges an account by a table of costs with a reverse proxy that does nothing
// else. All requests go over loopback, from clients in this process to a provider in this process.
func BenchmarkRoute(b *testing.B) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"0x000000000000000000000000000000000000000000000000000000000001e240"}`)
	}))
	defer provider.Close()
	const call = `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7","data":"0x70a08231000000000000000000000000d8da6bf26964af9d7eed9e03e53415d37aa96045"},"latest"]}`
	own := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	defer own.CloseIdleConnections()
	b.Run("bare", func(b *testing.B) {
		to, _ := url.Parse(provider.URL)
		benchmark(b, &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, Transport: own}, call)
	})
	b.Run("route", func(b *testing.B) {
		a := account("main", weir.PerSecond(1_000_000_000))
		a.Limits[0].Unit = "throughput"
		a.Costs = weir.Must(budget.BuiltinTable("alchemy"))
		c := to(endpointAt("a", withBudget("main"), func(e *upstream.Endpoint) { e.RPC = secret.New(provider.URL) }))
		c.Pool.Transport, c.Pool.Strategy = own, upstream.Balanced
		route, _ := newRouteTo(b, c, a)
		benchmark(b, route, call)
	})
}

func benchmark(b *testing.B, handler http.Handler, call string) {
	front := httptest.NewServer(handler)
	defer front.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Post(front.URL, "application/json", strings.NewReader(call))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
}
