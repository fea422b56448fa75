package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// hookName is the ClientName of connections that must come from a hook.
const hookName = "weir-hook"

// hook is a Config.Dial that remembers what it made.
type hook struct {
	mu    sync.Mutex // guards the fields below
	local map[string]bool
	calls []string // network and address
}

func (h *hook) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, network+" "+addr)
	if err == nil {
		if h.local == nil {
			h.local = map[string]bool{}
		}
		h.local[conn.LocalAddr().String()] = true
	}
	return conn, err
}

func (h *hook) made(local string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.local[local]
}

// wantMade wants so many connections at a server, at least, all of them made by the hook.
func (h *hook) wantMade(t *testing.T, server *redistest.Server, least int) {
	t.Helper()
	n := 0
	list := server.MustDo("CLIENT", "LIST").Text
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " name="+hookName+" ") {
			continue
		}
		n++
		_, rest, _ := strings.Cut(line, " addr=")
		if addr, _, _ := strings.Cut(rest, " "); !h.made(addr) {
			t.Errorf("a connection to %s was not made by the hook: %s", server.Addr(), line)
		}
	}
	if n < least {
		t.Errorf("%d connections to %s, want %d or more:\n%s", n, server.Addr(), least, list)
	}
}

// openHooked opens connections for commands, for one goroutine and for a watch.
func openHooked(t *testing.T, c Config) (*Conn, *hook) {
	t.Helper()
	h := &hook{}
	c.Dial, c.ClientName = h.dial, hookName
	conn := open(t, c)
	_, closing, err := conn.Direct(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closing)
	startWatch(t, conn, "watched:", func([]string) {})
	return conn, h
}

func TestDialStandalone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn, h := openHooked(t, Config{Addrs: []string{server.Addr()}, Conns: 2})
	for range 50 {
		do(t, conn, "key", "INCR")
	}
	h.wantMade(t, server, 4)
}

func TestDialSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	conn, h := openHooked(t, Config{Addrs: s.SentinelAddrs()[:1], Sentinel: s.MasterName()})
	wantWorks(t, conn, "key")
	h.wantMade(t, s.Primary(), 3)
	h.wantMade(t, s.Sentinels()[0], 1)
	for _, other := range s.Sentinels()[1:] {
		h.wantMade(t, other, 0)
	}
}

func TestDialCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	conn, h := openHooked(t, Config{Addrs: cluster.Addrs()[:1]})
	for master, key := range keyPerMaster(t, cluster, "key:") {
		wantWorks(t, conn, key)
		h.wantMade(t, master, 2) // for the key, and for the watch
	}
}

// A hook may connect elsewhere, for example through a tunnel. TLS goes on top of it, and the
// server must have a certificate for the name that it is configured by.
func TestDialElsewhere(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]redistest.Option{nil, {redistest.TLS()}} {
		server := redistest.Start(t, opts...)
		c := Config{Addrs: []string{"redis.invalid:6379"}}
		if len(opts) > 0 {
			c.TLS = server.TLSConfig()
			c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Addr())
			}
			wantRefused(t, c, "redis.invalid:6379: tls: failed to verify certificate")
			c.TLS = c.TLS.Clone()
			c.TLS.ServerName = "127.0.0.1"
		}
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if network != "tcp" || addr != "redis.invalid:6379" {
				t.Errorf("called for %s %s", network, addr)
			}
			return (&net.Dialer{}).DialContext(ctx, network, server.Addr())
		}
		wantWorks(t, open(t, c), "key")
	}
}

func TestDialSocket(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.UnixSocket())
	h := &hook{}
	wantWorks(t, open(t, Config{Addrs: []string{server.Socket()}, Dial: h.dial}), "key")
	for _, call := range h.calls {
		if want := "unix " + server.Socket(); call != want {
			t.Errorf("the hook was called for %q, want %q", call, want)
		}
	}
}

// Without a hook the connections are those of package net.
func TestDialDefault(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.UnixSocket())
	for addr, want := range map[string]string{server.Addr(): "*net.TCPConn", server.Socket(): "*net.UnixConn"} {
		d := &dialer{ctx: t.Context()}
		o := Config{}.withDefaults().options(d)
		conn, err := d.dial(t.Context(), addr, &o.Dialer, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		plain := conn.(*boundConn).Conn.(*silenceConn).Conn.(*guardedConn).Conn
		if got := fmt.Sprintf("%T", plain); got != want {
			t.Errorf("the connection to %s is a %s, want %s", addr, got, want)
		}
	}
}

// The errors of a hook are returned as they are, and mean that nothing was sent.
func TestDialFails(t *testing.T) {
	t.Parallel()
	tunnel := errors.New("the tunnel is closed")
	tests := []struct {
		name    string
		dial    dialFunc
		timeout time.Duration
		want    string
	}{
		{"error", func(context.Context, string, string) (net.Conn, error) { return nil, tunnel }, 0, "the tunnel is closed"},
		{"wrapped error of net", func(context.Context, string, string) (net.Conn, error) {
			return nil, fmt.Errorf("%w: %w", tunnel, &net.OpError{Op: "dial", Err: errors.New("connection refused")})
		}, 0, "the tunnel is closed: dial: connection refused"},
		{"nothing", func(context.Context, string, string) (net.Conn, error) { return nil, nil }, 0, "no connection and no error from Dial"},
		{"time-out", func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 50 * time.Millisecond, "no connection within 50ms: context deadline exceeded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Addrs: []string{"redis.invalid:6379"}, Dial: tt.dial, DialTimeout: tt.timeout}
			err := wantRefused(t, c, "redis.invalid:6379: "+tt.want)
			if want := "redisconn: redis.invalid:6379: " + tt.want; err != nil && err.Error() != want {
				t.Errorf("err = %q, want %q", err, want)
			}
		})
	}
}

// A hook's context ends with Open, and Open ends with it.
func TestDialEndsWithOpen(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := Config{Addrs: []string{"redis.invalid:6379"}, DialTimeout: waitLimit}
	c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := Open(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}
