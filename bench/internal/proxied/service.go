package proxied

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// A service stands between callers and an upstream.
type service struct {
	name string // as in harness.Subject, like the next
	kind harness.Kind

	// open returns the handler for an upstream, nil for no proxy at all, and what ends it.
	open func(target string) (h http.Handler, stop func(), err error)
}

const bareName = "httputil.ReverseProxy"

var (
	direct  = service{"no proxy", harness.Floor, func(string) (http.Handler, func(), error) { return nil, func() {}, nil }}
	bare    = service{bareName, harness.Floor, openBare}
	whole   = service{bareName, harness.Floor, openWhole}
	plain   = service{"weir, a route", harness.Weir, openPlain}
	charged = service{"weir, a route with a budget", harness.Weir, openCharged}
)

// idleConns is how many connections to the upstream stay open, in all proxies.
const idleConns = 256

func openBare(target string) (http.Handler, func(), error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: transport}, transport.CloseIdleConnections, nil
}

// openWhole is a bare proxy that reads requests before it sends them. Otherwise net/http breaks a long response now and then:
// the server closes the request's body when the response begins, and the transport, which still looks for the end of that
// body, takes it for an error and closes the connection.
func openWhole(target string) (http.Handler, func(), error) {
	proxy, stop, err := openBare(target)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}), stop, err
}

func openPlain(target string) (http.Handler, func(), error) { return openRoute(target) }

// openCharged has the limits, the classes and the costs of a preset, but for their rates.
func openCharged(target string) (http.Handler, func(), error) {
	c, err := budget.Preset("alchemy-free")
	if err != nil {
		return nil, nil, err
	}
	c.Name = "main"
	for i := range c.Limits {
		c.Limits[i].Rate *= 100_000
		c.Limits[i].Burst *= 100_000
	}
	return openRoute(target, c)
}

func openRoute(target string, accounts ...budget.Config) (http.Handler, func(), error) {
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns}
	e := upstream.Endpoint{Alias: "upstream", RPC: secret.New(target)}
	for i := range accounts {
		e.Budget = accounts[i].Name
		accounts[i].Logger = slog.New(slog.DiscardHandler)
	}
	route, err := gateway.New(table, gateway.Config{Pool: upstream.Config{
		Name: "bench", JSONRPC: true, Endpoints: []upstream.Endpoint{e}, Transport: transport,
	}}, accounts...)
	return route, transport.CloseIdleConnections, err
}

// An upstream answers everything alike.
type upstreamHandler struct {
	body   []byte
	pieces int // how often the body is sent, each time with a flush; 0 for once, with its length
}

func (u upstreamHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	if u.pieces == 0 {
		_, _ = w.Write(u.body)
		return
	}
	flush := http.NewResponseController(w)
	for range u.pieces {
		if _, err := w.Write(u.body); err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
	}
}

var (
	short = upstreamHandler{body: []byte(`{"jsonrpc":"2.0","id":1,"result":"0x0000000000000000000000000000000000000000000000000de0b6b3a7640000"}`)}
	long  = upstreamHandler{body: bytes.Repeat([]byte("[123456789abcdef"), 1<<10), pieces: 64} // 1 MiB, which begins as JSON
)

// serve serves a handler on a port of its own.
func serve(h http.Handler) (addr string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return l.Addr().String(), func() error {
		closed := s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return closed
	}, nil
}
