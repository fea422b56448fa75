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

// capped is a listener that has at most so many connections open. When there are as many,
// the next one takes the place of a newcomer: a connection that was opened a while ago and
// on which not one request has come to its end. If there is none, it waits for one to
// close, and the kernel keeps those behind it in its queue.
//
// Without that, whoever opens that many connections and sends nothing would keep everybody
// else out for as long as a request may take to come. A connection that has had an answer
// is never closed for another: closing it may cross the next request on it.
type capped struct {
	net.Listener
	most   int
	freed  chan struct{} // has a token after a connection has closed
	closed chan struct{}
	close  sync.Once

	mu            sync.Mutex // guards the fields below, and cappedConn.place
	open          int
	unprovenConns list.List // of *cappedConn, the oldest first
}

// newcomerTime is how long a newcomer keeps its place in any case: long enough for a
// handshake and a request from far away, and as long as others may have to wait.
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

// admit gives a connection its place or returns how long to wait before it is worth
// asking again, unless one closes before.
func (c *capped) admit(next *cappedConn) (wait time.Duration, ok bool) {
	for {
		oldest, wait := c.enter(next)
		if oldest == nil {
			return wait, wait == 0
		}
		oldest.Close()
	}
}

// enter gives a connection its place, if there is one, and returns 0. Otherwise it returns
// which one is to make way, or how long to wait.
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

// Close also ends an Accept that waits for a place.
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
	proven  atomic.Bool // is no newcomer any more

	since time.Time     // set by capped.enter before anybody else has it
	place *list.Element // among the newcomers, nil if it is none
}

// Read reads nothing more once the caller was told that the server hangs up.
func (c *cappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.begin() {
		return 0, io.EOF
	}
	return n, err
}

// CloseWrite tells the other end that nothing follows.
func (c *cappedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// Close frees the place, too. One that was told is closed by hangUp.
func (c *cappedConn) Close() error {
	if c.phase.Load() == phaseEnded {
		return nil
	}
	return c.forceClose()
}

// hangUp closes it in any case.
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

// settle makes it no newcomer.
func (c *cappedConn) markProven() {
	if c.proven.Load() || c.proven.Swap(true) {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.owner.unprovenConns.Remove(c.place)
}

// expectRequest has the connection settle when a request has come to its end, so that it
// can wait for its answer in peace.
func (c *cappedConn) expectRequest(r *http.Request) {
	if r.Body == http.NoBody {
		c.markProven()
		return
	}
	r.Body = &firstBody{r.Body, c}
}

// firstBody is the body of a newcomer's request.
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

// connKey is under which a request's context has its connection.
type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, below(conn))
}

// connOf returns the connection of a request, nil if it is of no capped listener.
func connOf(r *http.Request) *cappedConn {
	c, _ := r.Context().Value(connKey{}).(*cappedConn)
	return c
}

// newcomer says whether no request has come to its end on a connection.
func (c *cappedConn) unproven() bool { return !c.proven.Load() }
