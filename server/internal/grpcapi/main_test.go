package grpcapi

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/secret"
	"github.com/weirlimit/weir/server/internal/connectapi"
	"github.com/weirlimit/weir/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex // guards now
	now weir.Instant
}

func (c *clock) Now() weir.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// policies are one plain, one with two limits, one by attributes and units, one of slots
// and one for others only.
func policies() []guard.Policy {
	second, minute := weir.Every(time.Second), weir.Every(time.Minute)
	return []guard.Policy{
		{Name: "default", Limits: []guard.Limit{{Limit: weir.Limit{Rate: 100, Per: second, Burst: 100}}}},
		{Name: "api", Limits: []guard.Limit{
			{Limit: weir.Limit{Rate: 3, Per: second, Burst: 10}},
			{Limit: weir.Limit{Name: "daily", Rate: 12, Per: weir.Calendar(weir.Day, nil)}},
		}},
		{Name: "llm", Limits: []guard.Limit{
			{Limit: weir.Limit{Name: "calls", Rate: 10, Per: minute}, By: "user"},
			{Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: minute}, By: "user", Unit: "tokens"},
		}},
		{Name: "slots", Limits: []guard.Limit{{Limit: weir.Limit{Rate: 2, Algorithm: weir.Concurrency}}}},
		{Name: "secret", Limits: []guard.Limit{{Limit: weir.Limit{Rate: 1, Per: minute}}}},
	}
}

// aliceToken proves alice, and so on.
const (
	aliceToken = "alice-0123456789abcdef0123456789abcdef"
	bobToken   = "bob-0123456789abcdef0123456789abcdef"
	wrongToken = "wrong-0123456789abcdef0123456789abcdef"
)

// world is the limiter service with what is around it.
type world struct {
	clock   *clock
	service weirv1.LimiterServiceServer
	state   *connectapi.State
	cfg     Config
	server  *Server

	forget  bool           // what is observed
	mu      sync.Mutex     // guards the field below
	records []guard.Record // what was observed
}

// newWorld serves policies to anybody, counting with l or, if that is nil, in memory.
func newWorld(t testing.TB, l weir.Limiter) *world {
	t.Helper()
	w := &world{clock: &clock{now: weir.InstantOf(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC))}}
	if l == nil {
		table, err := memstore.New(memstore.Config{Now: w.clock.Now})
		must(t, err)
		l = table
	}
	rules, err := guard.Compile(policies(), nil)
	must(t, err)
	g, err := guard.New(l, rules)
	must(t, err)
	w.state = &connectapi.State{Rules: rules, Door: &identity.Door{}}
	w.service = connectapi.NewService(connectapi.Config{Guard: g, Observe: w.observe, Log: slog.New(slog.DiscardHandler)})
	w.cfg = Config{
		Services: []Service{{Desc: &weirv1.LimiterService_ServiceDesc, Server: w.service, Enter: w.enter}},
		Log:      slog.New(slog.DiscardHandler),
	}
	return w
}

func (w *world) observe(r *guard.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.forget {
		w.records = append(w.records, *r)
	}
}

func (w *world) enter(ctx context.Context, shown identity.Shown) (context.Context, *identity.Refusal) {
	client, no := w.state.Door.Who(shown)
	return connectapi.WithCaller(ctx, w.state, client), no
}

// close lets in only alice, who may use all policies, and bob, who may not use secret.
func (w *world) close(t testing.TB) {
	t.Helper()
	clients, err := identity.NewClients([]identity.Client{
		{Name: "alice", Tokens: []secret.Secret{secret.New(aliceToken)}},
		{Name: "bob", Tokens: []secret.Secret{secret.New(bobToken)}, Policies: []string{"api", "d*"}},
	})
	must(t, err)
	throttle, err := identity.NewThrottle()
	must(t, err)
	w.state.Door = &identity.Door{Clients: clients, Throttle: throttle}
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
		return weir.Decision{Allowed: true, Limit: 100}, nil
	case <-ctx.Done():
		return weir.Decision{}, ctx.Err()
	}
}
