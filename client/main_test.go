package client_test

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPolicy(t testing.TB, name string, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy(name, limits...)
	must(t, err)
	return p
}

// rules are policies as a daemon has them.
func rules(policies ...*weir.Policy) (out []ruleset.Policy) {
	for _, p := range policies {
		g := ruleset.Policy{Name: p.Name()}
		for _, l := range p.Limits() {
			g.Limits = append(g.Limits, ruleset.Limit{Limit: l})
		}
		out = append(out, g)
	}
	return out
}

// daemon starts a daemon, which ends with the test or before, and returns where it is.
func daemon(t testing.TB, cfg server.Config) (address string, end func()) {
	t.Helper()
	bound := make(chan server.Bound, 1)
	if cfg.HTTP.Address == "" {
		cfg.HTTP.Address = "127.0.0.1:0"
	}
	cfg.OnListen = func(b server.Bound) { bound <- b }
	cfg.Log = slog.New(slog.DiscardHandler)
	s, err := server.New(cfg)
	must(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return (<-bound).HTTP.String(), end
}

// dial returns a client, which is closed with the test. Its timeout is one that a busy machine
// does not meet.
func dial(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	c, err := client.New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// service is a daemon that does what a test wants. Methods that have no field here return CodeUnimplemented.
type service struct {
	weirv1connect.UnimplementedLimiterServiceHandler
	check      func(context.Context, *weirv1.CheckRequest) (*weirv1.CheckResponse, error)
	checkBatch func(context.Context, *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error)
	commit     func(context.Context, *weirv1.CommitRequest) (*weirv1.CommitResponse, error)
	reserve    func(context.Context, *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error)
	cancel     func(context.Context, *weirv1.CancelRequest) (*weirv1.CancelResponse, error)
}

func (s *service) Check(ctx context.Context, r *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	return s.check(ctx, r)
}

func (s *service) CheckBatch(ctx context.Context, r *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
	return s.checkBatch(ctx, r)
}

func (s *service) Commit(ctx context.Context, r *weirv1.CommitRequest) (*weirv1.CommitResponse, error) {
	return s.commit(ctx, r)
}

func (s *service) Reserve(ctx context.Context, r *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
	return s.reserve(ctx, r)
}

func (s *service) Cancel(ctx context.Context, r *weirv1.CancelRequest) (*weirv1.CancelResponse, error) {
	return s.cancel(ctx, r)
}

func (s *service) start(t testing.TB) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewLimiterServiceHandler(s))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// admitAll is the answer that everything is admitted.
func admitAll(r *weirv1.CheckBatchRequest) *weirv1.CheckBatchResponse {
	out := &weirv1.CheckBatchResponse{Reason: []string{"admitted"}}
	for range r.GetKey() {
		out.Allowed = append(out.Allowed, true)
	}
	return out
}

func admit(_ context.Context, r *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
	return admitAll(r), nil
}
