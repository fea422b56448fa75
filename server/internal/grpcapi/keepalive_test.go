package grpcapi

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// Connections here are pipes, so that time is virtual and minutes pass at once.

// pipes is a listener without a network.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

// startPipes serves w until the test ends.
func (w *world) startPipes(t *testing.T) *pipes {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	w.server = New(w.cfg)
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(p) }()
	t.Cleanup(func() {
		must(t, w.server.Close())
		must(t, <-served)
	})
	return p
}

// watcher is a client that speaks HTTP/2 and makes no calls.
type watcher struct {
	deaf      bool // to the server's probes
	framer    *http2.Framer
	out       chan func() error // frames to write: who reads must not wait for that
	debugData string            // what the last GOAWAY said; set before ended is closed, like code
	code      http2.ErrCode
	ended     chan struct{} // is closed when the connection is
}

func newWatcher(t *testing.T, p *pipes, deaf bool) *watcher {
	t.Helper()
	conn := p.dial()
	t.Cleanup(func() { _ = conn.Close() })
	c := &watcher{deaf: deaf, framer: http2.NewFramer(conn, conn), out: make(chan func() error, 10), ended: make(chan struct{})}
	c.out <- func() error { // before listen replies to anything
		_, err := io.WriteString(conn, http2.ClientPreface)
		return err
	}
	c.out <- func() error { return c.framer.WriteSettings() }
	go c.listen()
	go c.speak()
	return c
}

// speak writes frames until the connection ends. An error means that it has, which listen
// notices as well.
func (c *watcher) speak() {
	for {
		select {
		case frame := <-c.out:
			_ = frame()
		case <-c.ended:
			return
		}
	}
}

// probe sends a PING, unless the connection has ended.
func (c *watcher) probe() {
	select {
	case c.out <- func() error { return c.framer.WritePing(false, [8]byte{1}) }:
	case <-c.ended:
	}
}

// listen answers frames until the connection ends.
func (c *watcher) listen() {
	defer close(c.ended)
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.out <- c.framer.WriteSettingsAck
			}
		case *http2.PingFrame:
			if data := f.Data; !f.IsAck() && !c.deaf {
				c.out <- func() error { return c.framer.WritePing(true, data) }
			}
		case *http2.GoAwayFrame:
			c.debugData, c.code = string(f.DebugData()), f.ErrCode
		}
	}
}

// isOpen says whether the connection is open when all is quiet.
func (c *watcher) isOpen() bool {
	synctest.Wait()
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// A caller may probe every ten seconds, calls or not. One that does it more often receives GOAWAY,
// why its connection ends.
func TestProbesTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWatcher(t, newWorld(t, nil).startPipes(t), false)
		for range 20 {
			time.Sleep(minProbe)
			c.probe()
		}
		if !c.isOpen() {
			t.Fatalf("probes every %v: the connection ended with %v %q", minProbe, c.code, c.debugData)
		}
		for range 10 {
			time.Sleep(minProbe - time.Second)
			c.probe()
		}
		if c.isOpen() {
			t.Fatal("the connection survives frequent probes")
		}
		if c.code != http2.ErrCodeEnhanceYourCalm || c.debugData != "too_many_pings" {
			t.Errorf("probes too often: the connection ended with %v %q", c.code, c.debugData)
		}
	})
}

// A connection without calls ends after a while, and one whose other end is gone sooner.
func TestIdleConnections(t *testing.T) {
	for _, tt := range []struct {
		name   string
		deaf   bool
		after  time.Duration
		reason string
	}{
		{"idle", false, idleTime, "max_idle"},
		{"gone", true, probeAfter + probeTime, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c := newWatcher(t, newWorld(t, nil).startPipes(t), tt.deaf)
				<-c.ended
				if took := time.Since(began); took < tt.after || took > tt.after+time.Second {
					t.Errorf("ended after %v, want %v", took, tt.after)
				}
				if c.code != http2.ErrCodeNo || c.debugData != tt.reason {
					t.Errorf("ended with %v %q, want %q", c.code, c.debugData, tt.reason)
				}
			})
		})
	}
}

// A connection that is in use is replaced after half an hour, give or take a tenth, and no
// call is lost.
func TestOldConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorld(t, nil).startPipes(t)
		var opened atomic.Int64
		client := weirv1.NewLimiterServiceClient(dial(t, "pipe", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			opened.Add(1)
			return p.dial(), nil
		})))
		for minute := range 100 {
			if _, err := client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "k"}); err != nil {
				t.Fatalf("minute %d: %v", minute, err)
			}
			time.Sleep(time.Minute)
		}
		if n := opened.Load(); n < 3 || n > 4 { // each lasts 27 min at least, and 34 at most until the next call
			t.Errorf("%d connections in 100 minutes", n)
		}
	})
}
