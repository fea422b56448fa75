package grpcapi

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/connectapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is the limiter service with what is around it.
type world struct {
	clock   *apitest.Clock
	service weirv1.LimiterServiceServer
	state   *call.State
	core    *call.Core
	cfg     Config
	server  *Server

	forget  bool             // what is observed
	mu      sync.Mutex       // guards the field below
	records []ruleset.Record // what was observed
}

// newWorld serves policies to anybody, counting with l or, if that is nil, in memory.
func newWorld(t testing.TB, l weir.Limiter) *world {
	t.Helper()
	w := &world{clock: apitest.NewClock()}
	if l == nil {
		l = apitest.Table(t, w.clock.Now)
	}
	rules, err := ruleset.Compile(apitest.Policies(), nil)
	must(t, err)
	g, err := ruleset.New(l, rules)
	must(t, err)
	w.state = &call.State{Rules: rules, Authenticator: &identity.Authenticator{}}
	w.core = &call.Core{Engine: g, Observe: w.observe, ObserveEach: apitest.Each(w.observe), Log: slog.New(slog.DiscardHandler)}
	w.service = connectapi.NewService(w.core)
	w.cfg = Config{
		Services: []Service{{Desc: &weirv1.LimiterService_ServiceDesc, Server: w.service, Enter: w.enter}},
		Log:      slog.New(slog.DiscardHandler),
	}
	return w
}

func (w *world) observe(r *ruleset.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.forget {
		w.records = append(w.records, *r)
	}
}

func (w *world) enter(ctx context.Context, credentials identity.Credentials) (context.Context, *call.Error) {
	caller, err := w.core.Authenticate(w.state, credentials)
	return call.WithCaller(ctx, caller), err
}

// start serves w on a real socket until the test ends and returns its address.
func (w *world) start(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := New(w.cfg)
	s.SetReady(true)
	w.server = s
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		must(t, s.Close())
		must(t, <-served)
	})
	return l.Addr().String()
}

// dial connects to an address until the test ends.
func dial(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// limiter serves w and returns a client of it.
func (w *world) limiter(t testing.TB, options ...grpc.DialOption) weirv1.LimiterServiceClient {
	t.Helper()
	return weirv1.NewLimiterServiceClient(dial(t, w.start(t), options...))
}

// gated is a limiter that admits everything, but only when it is let.
type gated struct {
	weir.Limiter               // nil: other methods are not called
	entered      chan struct{} // gets one for each Take that began
	release      chan struct{} // lets one Take end
}

func newGated() *gated {
	return &gated{entered: make(chan struct{}, 2*maxCalls), release: make(chan struct{}, 1)}
}

func (g *gated) Take(ctx context.Context, _ *weir.Policy, _ string, _ int64) (weir.Decision, error) {
	g.entered <- struct{}{}
	select {
	case <-g.release:
		return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100}, nil
	case <-ctx.Done():
		return weir.Decision{}, ctx.Err()
	}
}
