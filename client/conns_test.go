package client_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
)

// gathering is a daemon that answers calls when all of them have come, as if each waited for
// its turn.
type gathering struct {
	service
	missing sync.WaitGroup // the calls that have not come yet
	opened  atomic.Int64   // connections
	closed  chan struct{}  // gets one for each connection that was closed
}

func (c *gathering) arrive() {
	c.missing.Done()
	c.missing.Wait()
}

func (c *gathering) changed(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.opened.Add(1)
	case http.StateClosed:
		c.closed <- struct{}{}
	}
}

func newGathering() *gathering {
	c := &gathering{closed: make(chan struct{}, 1000)}
	c.check = func(context.Context, *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
		c.arrive()
		return &weirv1.CheckResponse{Allowed: true, Reason: "admitted"}, nil
	}
	c.checkBatch = func(_ context.Context, r *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
		c.arrive()
		return admitAll(r), nil
	}
	return c
}

func (c *gathering) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewLimiterServiceHandler(c))
	return mux
}

// start serves c until the test ends and returns a client of it.
func (c *gathering) start(t *testing.T) *client.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(c.handler())
	server.Config.ConnState = c.changed
	server.Start()
	t.Cleanup(server.Close)
	return dial(t, client.Config{Address: server.URL})
}

// meet makes calls that are all under way at once, half of them with Check and half with Do.
// It returns when all are answered.
func (c *gathering) meet(t *testing.T, caller *client.Client, calls int) {
	t.Helper()
	p := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Hour)})
	c.missing.Add(calls)
	var all sync.WaitGroup
	for range calls / 2 {
		all.Go(func() {
			if _, err := caller.Check(ctx, client.Query{Policy: "p", Key: "k"}); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := caller.Do(ctx, &weir.Batch{Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestConnsAreUsedAgain: calls that come together have a connection each, and those that come
// together later have the same ones.
func TestConnsAreUsedAgain(t *testing.T) {
	c := newGathering()
	caller := c.start(t)
	const calls = 50
	for range 10 {
		c.meet(t, caller, calls)
	}
	if n := c.opened.Load(); n != calls {
		t.Errorf("10 times %d calls opened %d connections", calls, n)
	}
}

// TestConnsHaveABound: there are as many as calls, none of which waits for another, but not
// all of them are kept.
func TestConnsHaveABound(t *testing.T) {
	c := newGathering()
	caller := c.start(t)
	const most = 4 + 100
	c.meet(t, caller, most+20)
	for i := range 20 {
		select {
		case <-c.closed:
		case <-time.After(time.Minute):
			t.Fatalf("%d connections were closed, want 20", i)
		}
	}
}

// pipes is a listener without a network, so that time may be virtual.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p <- far
	return near, nil
}

// TestClientClosesFirst: a connection that is idle is closed by the client, long before the
// daemon would do it: a call that crosses that may have been charged or not.
func TestClientClosesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const daemonIdle = time.Minute
		c, l := newGathering(), make(pipes)
		server := &http.Server{Handler: c.handler(), IdleTimeout: daemonIdle, ConnState: c.changed}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		caller := dial(t, client.Config{})
		caller.DialWith(l.dial)
		for range 2 {
			c.missing.Add(1)
			_, err := caller.Check(ctx, client.Query{Policy: "p", Key: "k"})
			must(t, err)
			answered := time.Now()
			<-c.closed
			if kept := time.Since(answered); kept < daemonIdle/4 || kept > daemonIdle*3/4 {
				t.Errorf("an idle connection was kept for %v, and the daemon closes it after %v", kept, daemonIdle)
			}
		}
		must(t, server.Close())
		<-ended
	})
}
