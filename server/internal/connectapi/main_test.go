package connectapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a service with what is around it.
type world struct {
	engine  *ruleset.Engine
	limiter weir.Limiter
	clock   *apitest.Clock
	auth    *identity.Authenticator
	records []ruleset.Record // what was observed; one request at a time
	path    string
	handler http.Handler
}

// newWorld serves policies to anybody, counting with l or, if that is nil, in memory.
func newWorld(t testing.TB, l weir.Limiter) *world {
	t.Helper()
	w := &world{limiter: l, clock: apitest.NewClock(), auth: &identity.Authenticator{}}
	if l == nil {
		w.limiter = apitest.Table(t, w.clock.Now)
	}
	rules, err := ruleset.Compile(apitest.Policies(), nil)
	must(t, err)
	w.engine, err = ruleset.New(w.limiter, rules)
	must(t, err)
	observe := func(r *ruleset.Record) { w.records = append(w.records, *r) }
	core := &call.Core{Engine: w.engine, Observe: observe, ObserveEach: apitest.Each(observe), Log: slog.New(slog.DiscardHandler)}
	w.path, w.handler = New(core, func() *call.State { return &call.State{Rules: w.engine.Rules(), Authenticator: w.auth} })
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// transport is a way to call: an HTTP version and a protocol.
type transport struct {
	name    string
	http2   bool
	options []connect.ClientOption
}

func transports() []transport {
	options := func(o ...connect.ClientOption) []connect.ClientOption { return o }
	return []transport{
		{"connect binary 1.1", false, nil},
		{"connect binary h2c", true, nil},
		{"connect json 1.1", false, options(connect.WithProtoJSON())},
		{"connect json h2c", true, options(connect.WithProtoJSON())},
		{"grpc-web 1.1", false, options(connect.WithGRPCWeb())},
		{"grpc h2c", true, options(connect.WithGRPC())},
		{"grpc json h2c", true, options(connect.WithGRPC(), connect.WithProtoJSON())},
	}
}

// start serves w on a real connection and returns a client of it and its address.
func (w *world) start(t testing.TB, how transport, more ...connect.ClientOption) (weirv1connect.LimiterServiceClient, string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(w.path, w.handler)
	srv := httptest.NewUnstartedServer(mux)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!how.http2)
	protocols.SetUnencryptedHTTP2(how.http2)
	srv.Config.Protocols = protocols
	srv.Start()
	t.Cleanup(srv.Close)
	wire := &http.Transport{Protocols: protocols}
	t.Cleanup(wire.CloseIdleConnections)
	options := append(append([]connect.ClientOption{}, how.options...), more...)
	return weirv1connect.NewLimiterServiceClient(&http.Client{Transport: wire}, srv.URL, options...), srv.URL
}

// withToken sends a token along.
func withToken(token string) connect.ClientOption {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			r.Header().Set("Authorization", "Bearer "+token)
			return next(ctx, r)
		}
	}))
}

// counting counts what a limiter does.
type counting struct {
	weir.Limiter
	calls int   // that were in order
	err   error // is the answer, unless it is nil
	panic any   // is what happens, unless it is nil
}

func (c *counting) fails() error {
	if c.panic != nil {
		panic(c.panic)
	}
	return c.err
}

func (c *counting) did(err error) error {
	if err == nil {
		c.calls++
	}
	return err
}

func (c *counting) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if err := c.fails(); err != nil {
		return weir.Decision{}, err
	}
	d, err := c.Limiter.Take(ctx, p, key, cost)
	return d, c.did(err)
}

func (c *counting) Do(ctx context.Context, b *weir.Batch) error {
	if err := c.fails(); err != nil {
		return err
	}
	return c.did(c.Limiter.Do(ctx, b))
}

func newCounting(t testing.TB) *counting {
	t.Helper()
	return &counting{Limiter: apitest.Table(t, apitest.NewClock().Now)}
}
