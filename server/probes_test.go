package server

import (
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// stuck is a transport that ignores contexts.
type stuck chan struct{}

func (s stuck) RoundTrip(*http.Request) (*http.Response, error) {
	<-s
	return nil, http.ErrServerClosed
}

// TestStopWaitsForNoStuckProbe stops while a probe is under way that does not end.
func TestStopWaitsForNoStuckProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := make(stuck)
		route := weir.Must(gateway.New(weir.Must(memstore.New(memstore.Config{})), gateway.Config{
			Logger: slog.New(slog.DiscardHandler),
			Pool: upstream.Config{
				Name: "eth", JSONRPC: true, Transport: transport, Logger: slog.New(slog.DiscardHandler),
				Endpoints: []upstream.Endpoint{{Alias: "a", RPC: secret.New("http://a.example")}},
			},
		}))
		p := &probes{}
		p.keep(map[string]*gateway.Route{"eth": route})
		p.start()
		synctest.Wait()
		if n := route.Pool().Stats().Endpoints[0].InFlight; n != 1 {
			t.Errorf("%d probes are under way, want 1", n)
		}
		p.stop() // or all goroutines of the bubble are blocked
		close(transport)
		p.wg.Wait()
	})
}
