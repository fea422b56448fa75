package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The phases of an HTTP connection, in lifecycle.phase. Shutdown ends only idle connections, and a
// request is served only on a connection that is not ended. A request and Shutdown compete by a
// compare-and-swap from phaseIdle; the loser leaves the connection alone.
const (
	phaseIdle      = iota // nothing was received since the connection was opened, or since the last response
	phaseReceiving        // something was received, and no request yet
	phaseServing          // a request is being answered, or the connection is one of HTTP/2
	phaseEnded            // the shutdown reply is being written or was written
)

// shutdownReply is what a caller reads if its request was sent while the server closed the idle
// connection. A 408 means that no request was received, so the caller may retry elsewhere.
// Clients without a request in flight treat it as the end of an idle connection.
const shutdownReply = "HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 17\r\nConnection: close\r\n\r\nweir is stopping\n"

// lingerFor is how long the server waits for a caller to close after the shutdown reply. A TCP
// connection that is closed with unread input is reset, and the caller may lose the reply.
const lingerFor = 500 * time.Millisecond

// httpService is an http.Server that writes a shutdown reply before it closes idle connections.
//
// An HTTP/1.1 server that closes an idle connection cannot know whether a request is in
// flight, and the caller cannot know whether that request was processed. So a stopping server
// first answers with Connection: close for a while. Then only connections without requests in
// that time are left, and on those it sends a 408 before it closes them. HTTP/2 has GOAWAY
// for this purpose. The listener must be closed before Shutdown, since http.Server then ignores
// requests on new connections.
type httpService struct {
	*http.Server

	ending atomic.Bool // connections that become idle are ended
	kept   sync.Map    // of the open connections: *cappedConn → net.Conn, with its TLS if it has one
}

// newHTTPService wraps a server that was not started yet.
func newHTTPService(hs *http.Server) *httpService {
	s := &httpService{Server: hs}
	hs.ConnState = s.changed
	return s
}

// changed is the server's ConnState hook. A connection that becomes idle during Shutdown is in the
// list or sees ending, and the first to swap its phase ends it.
func (s *httpService) changed(conn net.Conn, state http.ConnState) {
	c := below(conn)
	if c == nil {
		return
	}
	switch state {
	case http.StateNew:
		s.kept.Store(c, conn)
	case http.StateIdle:
		if !c.http1.Load() { // an HTTP/2 connection begins so
			c.phase.CompareAndSwap(phaseReceiving, phaseServing)
			return
		}
		c.phase.CompareAndSwap(phaseServing, phaseIdle)
		if s.ending.Load() {
			c.end(conn, func() {})
		}
	case http.StateClosed, http.StateHijacked:
		s.kept.Delete(c)
	}
}

// Shutdown ends idle connections, and lets requests finish until ctx ends.
func (s *httpService) Shutdown(ctx context.Context) error {
	var writing, lingering sync.WaitGroup
	s.ending.Store(true)
	for c, conn := range s.kept.Range {
		writing.Add(1)
		lingering.Go(func() { c.(*cappedConn).end(conn.(net.Conn), writing.Done) })
	}
	writing.Wait() // http.Server.Shutdown closes idle connections at once
	s.awaitRequests(ctx)
	err := s.Server.Shutdown(ctx)
	lingering.Wait()
	return err
}

// awaitRequests waits until no request is being received, since http.Server.Shutdown drops those.
// It polls, as http.Server.Shutdown does.
func (s *httpService) awaitRequests(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readHeaderTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.receiving() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// receiving reports whether a request is being received.
func (s *httpService) receiving() bool {
	for c := range s.kept.Range {
		if c.(*cappedConn).phase.Load() == phaseReceiving {
			return true
		}
	}
	return false
}

// end writes the shutdown reply to an idle connection and closes it after the caller has closed
// its side, or after lingerFor. It does nothing if the connection is not idle. Conn is the
// connection with its TLS. Written is called once the reply was written, or if there is none.
func (c *cappedConn) end(conn net.Conn, written func()) {
	if !c.phase.CompareAndSwap(phaseIdle, phaseEnded) {
		written()
		return
	}
	defer c.forceClose()
	late := time.AfterFunc(lingerFor, func() { _ = c.forceClose() }) // net/http may overwrite the deadline
	defer late.Stop()
	err := writeShutdownReply(conn)
	written()
	if err == nil {
		_, _ = io.Copy(io.Discard, c.Conn)
	}
}

// writeShutdownReply writes the shutdown reply and closes the write side.
func writeShutdownReply(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(lingerFor)) // it fails only on a closed connection, as the write does
	if _, err := io.WriteString(conn, shutdownReply); err != nil {
		return err
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // if it fails, the connection is closed after lingerFor
	}
	return nil
}

// below returns the connection without its TLS layer, nil if its listener is not capped.
func below(conn net.Conn) *cappedConn {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*cappedConn)
	return c
}

// lifecycle is the state of a cappedConn that requests and Shutdown share.
type lifecycle struct {
	phase atomic.Int32
	http1 atomic.Bool // an HTTP/1 request was received; HTTP/2 connections end with GOAWAY
}

// enter records that a request was received. A pipelined request can arrive here after the
// shutdown reply was written; it is aborted, since the reply says that it was not received.
func (t *lifecycle) enter(r *http.Request) {
	if r.ProtoMajor == 1 && !t.http1.Load() {
		t.http1.Store(true)
	}
	if !t.advance(phaseServing) {
		panic(http.ErrAbortHandler)
	}
}

// advance moves to a later phase and returns true, unless the connection is ended.
func (t *lifecycle) advance(to int32) bool {
	for {
		switch now := t.phase.Load(); {
		case now == phaseEnded:
			return false
		case now >= to || t.phase.CompareAndSwap(now, to):
			return true
		}
	}
}
