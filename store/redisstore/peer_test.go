package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/redistest"
)

// A server that announces more than anybody has memory for costs one call and little memory, and
// the store works on as soon as it is well again.
func TestHugeReplies(t *testing.T) {
	for _, huge := range []string{"*2147483647\r\n", "$1073741824\r\n", "*-2\r\n"} {
		t.Run(strings.TrimSpace(huge), func(t *testing.T) {
			redis := redistest.Start(t)
			proxy := startProxy(t, redis.Addr())
			s := open(t, Config{Redis: server(proxy.addr), Now: still})
			p := twoWays(t)[0]
			if _, err := s.Take(t.Context(), p, "alice", 1); err != nil {
				t.Fatal(err)
			}
			before := allocated()
			proxy.answer.Store(&huge)
			_, err := s.Take(t.Context(), p, "alice", 1)
			var refused *redisconn.ReplyError
			if !errors.As(err, &refused) || !errors.Is(err, weir.ErrUnknown) {
				t.Errorf("take: %v, want a ReplyError and an unknown outcome", err)
			}
			if mib := (allocated() - before) >> 20; mib >= 64 {
				t.Errorf("%d MiB were allocated", mib)
			}
			proxy.answer.Store(nil)
			eventually(t, "a decision", func() bool {
				_, err := s.Take(context.Background(), p, "alice", 1)
				return err == nil
			})
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// proxy passes connections on to a server or, once there is an answer, gives that to whatever
// is sent.
type proxy struct {
	addr   string
	answer atomic.Pointer[string]
	wg     sync.WaitGroup
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	t.Cleanup(func() { l.Close(); p.wg.Wait() })
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(client, target) })
		}
	})
	return p
}

func (p *proxy) serve(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	p.wg.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	})
	for b := make([]byte, 64<<10); ; {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		to, text := server, b[:n]
		if answer := p.answer.Load(); answer != nil {
			to, text = client, []byte(*answer)
		}
		if _, err := to.Write(text); err != nil {
			return
		}
	}
}

// A call to a Redis that is gone is an ErrUnavailable, and after Close, too.
func TestUnavailable(t *testing.T) {
	srv := redistest.Start(t)
	s := open(t, Config{Redis: Server{Addrs: []string{srv.Addr()}}})
	p := newPolicy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	if _, err := s.Take(t.Context(), p, "k", 1); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := s.Take(t.Context(), p, "k", 1); !errors.Is(err, weir.ErrUnavailable) || errors.Is(err, weir.ErrUnknown) {
		t.Errorf("after Close: %v", err)
	}
}
