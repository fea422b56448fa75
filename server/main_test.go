package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frozenTable is a limiter whose clock stands still, so that nothing refills.
func frozenTable(t *testing.T) *memstore.Table {
	t.Helper()
	now := weir.Instant(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
	table, err := memstore.New(memstore.Config{Now: func() weir.Instant { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// running is a server on a free port.
type running struct {
	*Server
	url   string
	bound Bound
	stop  context.CancelFunc // ends Run's ctx
	done  chan error         // what Run returned
}

// run starts a server and ends it with the test.
func run(t *testing.T, cfg Config) *running {
	t.Helper()
	bound := make(chan Bound, 1)
	if cfg.HTTP.Address == "" {
		cfg.HTTP.Address = "127.0.0.1:0"
	}
	cfg.OnListen = func(b Bound) { bound <- b }
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.drainFor, s.flushFor = 10*time.Millisecond, time.Minute
	ctx, stop := context.WithCancel(context.Background())
	r := &running{Server: s, stop: stop, done: make(chan error, 1)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.done <- s.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
	select {
	case b := <-bound:
		r.url, r.bound = "http://"+b.HTTP.String(), b
	case err := <-r.done:
		t.Fatal(err)
	}
	return r
}

// gated is a limiter that admits everything, but only when it is let.
type gated struct {
	weir.Limiter               // nil: other methods are not called
	entered      chan struct{} // gets one for each Take that began
	release      chan struct{} // lets one Take end
}

func newGated() *gated {
	return &gated{entered: make(chan struct{}, 1), release: make(chan struct{}, 1)}
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

// watcher is a log that closes seen at the first message that is wanted.
type watcher struct {
	slog.Handler
	want string
	seen chan struct{}
}

func watch(message string) *watcher {
	return &watcher{slog.DiscardHandler, message, make(chan struct{})}
}

func (w *watcher) Enabled(context.Context, slog.Level) bool { return true }

func (w *watcher) Handle(_ context.Context, r slog.Record) error {
	if r.Message == w.want {
		close(w.seen)
	}
	return nil
}

const body = `{"policy":"default","key":"alice"}`

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error = %q, want %q in it", err, part)
		}
	}
}
