package connectapi

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/secret"
	"github.com/weirlimit/weir/store/memstore"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), go test -update writes it:\n%s", file, diff)
	}
}

// clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex // guards now
	now weir.Instant
}

func newClock() *clock {
	return &clock{now: weir.InstantOf(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC))}
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

// world is a service with what is around it.
type world struct {
	guard   *guard.Guard
	limiter weir.Limiter
	clock   *clock
	door    *identity.Door
	records []guard.Record // what was observed; one request at a time
	path    string
	handler http.Handler
}

// newWorld serves policies to anybody, counting with l or, if that is nil, in memory.
func newWorld(t testing.TB, l weir.Limiter) *world {
	t.Helper()
	w := &world{limiter: l, clock: newClock(), door: &identity.Door{}}
	if l == nil {
		table, err := memstore.New(memstore.Config{Now: w.clock.Now})
		must(t, err)
		w.limiter = table
	}
	rules, err := guard.Compile(policies(), nil)
	must(t, err)
	w.guard, err = guard.New(w.limiter, rules)
	must(t, err)
	w.path, w.handler = New(Config{
		Guard:   w.guard,
		State:   func() *State { return &State{Rules: w.guard.Rules(), Door: w.door} },
		Observe: func(r *guard.Record) { w.records = append(w.records, *r) },
		Log:     slog.New(slog.DiscardHandler),
	})
	return w
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
	w.door = &identity.Door{Clients: clients, Throttle: throttle}
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
	table, err := memstore.New(memstore.Config{Now: newClock().Now})
	must(t, err)
	return &counting{Limiter: table}
}
