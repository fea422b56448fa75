package cli

import (
	"context"
	"log/slog"
	"net"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/internal/socket"
)

// The daemon's connections to Redis are those of package socket.
func TestSocketsOfRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	plain, err := net.Dial("tcp", redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	r, err := newInRedis(&config.Config{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := r.dial(t.Context(), "tcp", redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, want := reflect.TypeOf(conn), reflect.TypeOf(socket.Direct(plain)); got != want {
		t.Errorf("the connection is a %v, want a %v", got, want)
	}
}

// All that the daemon has in Redis is connected to by the same function: it alone knows where
// Redis is here.
func TestOneDialForAll(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var made atomic.Int64
	cfg := &config.Config{}
	cfg.Store.Redis.Redis.Addrs = []string{"redis.invalid:6379"}
	cfg.Store.Redis.Prefix = "weir:"
	r, err := newInRedis(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dial := r.dial
	r.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		made.Add(1)
		return dial(ctx, network, redis.Addr())
	}
	if err := r.connect(t.Context(), cfg, connectTimeout); err != nil {
		t.Fatal(err)
	}
	r.close()
	if n := made.Load(); n < 3 {
		t.Errorf("%d connections, want those of the store, the bus and the overrides", n)
	}
}
