package server

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// How an HTTP/1.1 connection stands, as cappedConn.turn has it. Only one that is idle can
// be ended by a stop, and only one that is not ended gets a request through: whoever
// moves it away from idle first has it.
const (
	phaseBusy  = iota // a request is on its way or being answered, or there was none yet
	phaseIdle         // an answer was written, and nothing has come since
	phaseEnded        // the caller was told that the server hangs up
)

// farewell is what a caller reads whose request crosses the end of its connection. It says
// that no request was received, so the caller may send it again elsewhere. Clients that
// have sent nothing take it for the end of an idle connection, which it is.
const shutdownReply = "HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 17\r\nConnection: close\r\n\r\nweir is stopping\n"

// lingerFor is how long a caller that was told may take to hang up. Closed with something
// unread, a connection is reset, and the caller may lose what it has not read yet.
const lingerFor = 500 * time.Millisecond

// httpService is an http.Server that tells callers before it closes idle connections.
//
// An HTTP/1.1 server that closes an idle connection cannot know whether a request is on
// its way, and the caller of that request cannot know whether it was carried out. So a stop
// answers with Connection: close for a while, after which only connections are left on
// which nothing came meanwhile, and sends a 408 on those before it closes them. HTTP/2 has
// GOAWAY for that.
type httpService struct {
	*http.Server

	ending atomic.Bool // what becomes idle is ended

	mu   sync.Mutex // guards the field below
	kept map[*cappedConn]net.Conn
}

// newHTTPService makes one of a server that is not used yet.
func newHTTPService(hs *http.Server) *httpService {
	s := &httpService{Server: hs, kept: map[*cappedConn]net.Conn{}}
	hs.ConnState = s.changed
	return s
}

// changed is told by the server how a connection stands. A connection is listed when it is
// first kept for another request, and not touched again before it is closed: requests do not
// wait for each other here. One that becomes idle while Shutdown goes through the list is
// found by it or sees that it has begun, and whoever moves the turn first ends it.
func (s *httpService) changed(conn net.Conn, state http.ConnState) {
	c := below(conn)
	if c == nil || !c.http1.Load() {
		return
	}
	switch state {
	case http.StateIdle:
		if !c.listed.Swap(true) {
			s.list(c, conn)
		}
		c.phase.CompareAndSwap(phaseBusy, phaseIdle)
		if s.ending.Load() {
			c.end(conn, func() {})
		}
	case http.StateClosed, http.StateHijacked:
		s.forget(c)
	}
}

func (s *httpService) list(c *cappedConn, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[c] = conn
}

func (s *httpService) forget(c *cappedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, c)
}

// Shutdown ends what is idle, and lets the rest finish until ctx ends.
func (s *httpService) Shutdown(ctx context.Context) error {
	var writing, lingering sync.WaitGroup
	for c, conn := range s.end() {
		writing.Add(1)
		lingering.Go(func() { c.end(conn, writing.Done) })
	}
	writing.Wait() // the server would close them at once
	err := s.Server.Shutdown(ctx)
	lingering.Wait()
	return err
}

// end has connections that become idle end, and returns those that may be idle, with their TLS if
// they have some.
func (s *httpService) end() map[*cappedConn]net.Conn {
	s.ending.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.kept)
}

// end tells the caller of an idle connection and closes it when the caller has had the time
// to read that, unless a request has come before. Conn is the connection with its TLS.
func (c *cappedConn) end(conn net.Conn, written func()) {
	if !c.phase.CompareAndSwap(phaseIdle, phaseEnded) {
		written()
		return
	}
	defer c.forceClose()
	late := time.AfterFunc(lingerFor, func() { _ = c.forceClose() }) // net/http may set a deadline of its own after ours
	defer late.Stop()
	err := writeShutdownReply(conn)
	written()
	if err == nil {
		_, _ = io.Copy(io.Discard, c.Conn)
	}
}

// tell writes the last that there is to write.
func writeShutdownReply(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(lingerFor)) // an error means that it is closed, as the next says
	if _, err := io.WriteString(conn, shutdownReply); err != nil {
		return err
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // one that cannot do that is closed in a while
	}
	return nil
}

// below returns the connection under TLS, if there is any, nil if it is of no capped
// listener.
func below(conn net.Conn) *cappedConn {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*cappedConn)
	return c
}

// turns is the part of a cappedConn that a stop and its requests take turns by.
type lifecycle struct {
	phase  atomic.Int32
	http1  atomic.Bool // an HTTP/1 request came; HTTP/2 says by itself when it ends
	listed atomic.Bool // in httpService.kept
}

// enter notes that a request came. One that was read together with another may come after
// the caller was told that none did: it is not answered.
func (t *lifecycle) enter(r *http.Request) {
	if r.ProtoMajor == 1 && !t.http1.Load() {
		t.http1.Store(true)
	}
	if !t.begin() {
		panic(http.ErrAbortHandler)
	}
}

// begin says whether a request may be answered.
func (t *lifecycle) begin() bool {
	return t.phase.Load() == phaseBusy || t.phase.CompareAndSwap(phaseIdle, phaseBusy) || t.phase.Load() != phaseEnded
}
