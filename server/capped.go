package server

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/socket"
)

// capped is a listener with at most most open connections. At the maximum, a new connection
// replaces the oldest unproven one: a connection that is at least unprovenTime old and has not
// received one complete request. If there is none, Accept waits until a connection closes, and
// further connections stay in the kernel's accept queue.
//
// Without this rule, a caller that opens the maximum of connections and sends nothing would
// lock out everybody else until the read timeout. A proven connection is never closed to
// make room, because the close could race with its next request.
type capped struct {
	net.Listener
	most   int
	freed  chan struct{} // has a token after a connection was closed
	closed chan struct{}
	close  sync.Once

	mu            sync.Mutex // guards the fields below, and cappedConn.place
	open          int
	unprovenConns list.List // of *cappedConn, the oldest first
}

// unprovenTime is how long an unproven connection cannot be replaced: long enough for a
// handshake and a request over a slow network. It is also the longest time that a new
// connection waits for an unproven one.
const unprovenTime = time.Second

func newCapped(l net.Listener, most int) *capped {
	return &capped{Listener: l, most: most, freed: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (c *capped) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	next := &cappedConn{Conn: socket.Direct(conn), owner: c}
	for {
		wait, ok := c.admit(next)
		if ok {
			return next, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.freed:
		case <-timer.C:
		case <-c.closed:
			timer.Stop()
			conn.Close()
			return nil, net.ErrClosed
		}
		timer.Stop()
	}
}

// admit adds a connection, or returns how long to wait before the next attempt, unless a
// connection closes earlier.
func (c *capped) admit(next *cappedConn) (wait time.Duration, ok bool) {
	for {
		oldest, wait := c.enter(next)
		if oldest == nil {
			return wait, wait == 0
		}
		oldest.Close()
	}
}

// enter adds a connection and returns 0 if the maximum is not reached. Otherwise it returns
// the connection to close first, or how long to wait.
func (c *capped) enter(next *cappedConn) (oldest *cappedConn, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open < c.most {
		c.open++
		next.since = time.Now()
		next.place = c.unprovenConns.PushBack(next)
		return nil, 0
	}
	front := c.unprovenConns.Front()
	if front == nil {
		return nil, unprovenTime
	}
	oldest = front.Value.(*cappedConn)
	if left := unprovenTime - time.Since(oldest.since); left > 0 {
		return nil, left
	}
	return oldest, 0
}

// Close also ends an Accept that waits for a connection to close.
func (c *capped) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Listener.Close()
}

// cappedConn is a connection of a capped listener.
type cappedConn struct {
	net.Conn
	lifecycle
	owner   *capped
	release sync.Once
	proven  atomic.Bool // one complete request was received

	since time.Time     // set by capped.enter before the connection is shared
	place *list.Element // in capped.unprovenConns
}

// Read returns io.EOF once the shutdown reply was written.
func (c *cappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.begin() {
		return 0, io.EOF
	}
	return n, err
}

// CloseWrite closes the write side of the connection.
func (c *cappedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// Close closes the connection, unless it is ending: then end closes it with forceClose.
func (c *cappedConn) Close() error {
	if c.phase.Load() == phaseEnded {
		return nil
	}
	return c.forceClose()
}

// forceClose closes the connection in any phase and makes room for another one.
func (c *cappedConn) forceClose() error {
	defer c.release.Do(func() {
		c.markProven()
		c.owner.mu.Lock()
		c.owner.open--
		c.owner.mu.Unlock()
		select {
		case c.owner.freed <- struct{}{}:
		default: // there is a token
		}
	})
	return c.Conn.Close()
}

// markProven marks the connection as proven.
func (c *cappedConn) markProven() {
	if c.proven.Load() || c.proven.Swap(true) {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.owner.unprovenConns.Remove(c.place)
}

// expectRequest marks the connection as proven when the whole request was read, so that the
// connection is not replaced while the request is answered.
func (c *cappedConn) expectRequest(r *http.Request) {
	if r.Body == http.NoBody {
		c.markProven()
		return
	}
	r.Body = &firstBody{r.Body, c}
}

// firstBody is the request body of an unproven connection.
type firstBody struct {
	io.ReadCloser
	conn *cappedConn
}

func (b *firstBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.conn.markProven()
	}
	return n, err
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, below(conn))
}

// connOf returns the connection of a request, nil if its listener is not capped.
func connOf(r *http.Request) *cappedConn {
	c, _ := r.Context().Value(connKey{}).(*cappedConn)
	return c
}

// unproven reports whether no complete request was received on the connection.
func (c *cappedConn) unproven() bool { return !c.proven.Load() }
