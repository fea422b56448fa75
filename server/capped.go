package server

import (
	"container/list"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/socket"
)

// capped is a listener with at most most open connections.
//
// A connection is proven once a request on it was authenticated or, where anonymous callers are
// accepted, was received completely. Until then anybody could have opened it, so it
//
//   - is closed when nothing was received for unprovenIdle;
//   - is one of at most half of all connections, and of at most a quarter from one address.
//     Beyond, a new connection replaces the oldest one, of that address or of all. Callers on a
//     Unix socket have no address: they are usually one proxy, which connects for everybody;
//   - is replaced when all connections are in use, once it is unprovenTime old.
//
// A proven connection is never closed to make room, because the close could race with its next
// request. If all are proven, Accept waits until one closes, and further connections stay in the
// kernel's accept queue.
type capped struct {
	net.Listener
	most   int
	freed  chan struct{} // has a token after a connection was closed
	closed chan struct{}
	close  sync.Once
	ending atomic.Bool // set by finish before it sets the listener's deadline, and read by Accept

	mu            sync.Mutex // guards the fields below, and cappedConn.place
	open          int
	unprovenConns list.List            // of *cappedConn, the oldest first
	peers         map[netip.Prefix]int // unproven connections by address
}

const (
	// unprovenTime is how long an unproven connection cannot be replaced by one that finds the
	// rest proven: long enough for a handshake and a request over a slow network.
	unprovenTime = time.Second

	// unprovenIdle is how long an unproven connection may be silent.
	unprovenIdle = 10 * time.Second

	// lastAccept is how long a stopping listener waits for another connection of those that are
	// being made, and the last one for its first request.
	lastAccept = 100 * time.Millisecond

	// finishTimeout is how long a stopping listener accepts connections that were made already.
	finishTimeout = 500 * time.Millisecond
)

func newCapped(l net.Listener, most int) *capped {
	return &capped{Listener: l, most: most, freed: make(chan struct{}, 1), closed: make(chan struct{}), peers: map[netip.Prefix]int{}}
}

func (c *capped) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if c.ending.Load() {
		err = c.acceptedLast(err)
	}
	if err != nil {
		return nil, err
	}
	next := &cappedConn{Conn: socket.Direct(conn), owner: c, peer: peerOf(conn.RemoteAddr())}
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

// peerOf returns the address by which unproven connections are counted: an IPv4 address, or the
// /64 network of an IPv6 address, since one host usually owns all of it. The zero Prefix stands
// for other networks.
func peerOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap()
	peer, _ := addr.Prefix(min(64, addr.BitLen())) // an address has that many bits
	return peer
}

// admit adds a connection, or returns how long to wait before the next attempt, unless a
// connection closes earlier.
func (c *capped) admit(next *cappedConn) (wait time.Duration, ok bool) {
	for {
		oldest, wait := c.enter(next)
		if oldest == nil {
			return wait, wait == 0
		}
		_ = oldest.forceClose() // its slot is free in any case
	}
}

// enter adds a connection and returns 0 if no maximum is reached. Otherwise it returns the
// connection to close first, or how long to wait.
func (c *capped) enter(next *cappedConn) (oldest *cappedConn, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case next.peer.IsValid() && c.peers[next.peer] >= max(1, c.most/4):
		return c.oldestLocked(next.peer), 0
	case c.unprovenConns.Len() >= max(1, c.most/2):
		return c.oldestLocked(netip.Prefix{}), 0
	case c.open >= c.most:
		oldest := c.oldestLocked(netip.Prefix{})
		if oldest == nil {
			return nil, unprovenTime
		}
		if left := unprovenTime - time.Since(oldest.since); left > 0 {
			return nil, left
		}
		return oldest, 0
	}
	c.open++
	c.peers[next.peer]++
	next.since = time.Now()
	next.place = c.unprovenConns.PushBack(next)
	return nil, 0
}

// oldestLocked returns the oldest unproven connection, of an address if that is valid, or nil. It
// requires c.mu.
func (c *capped) oldestLocked(peer netip.Prefix) *cappedConn {
	for e := c.unprovenConns.Front(); e != nil; e = e.Next() {
		if conn := e.Value.(*cappedConn); !peer.IsValid() || conn.peer == peer {
			return conn
		}
	}
	return nil
}

// stopper is a listener that finish can stop: one of TCP or Unix sockets.
type stopper interface{ SetDeadline(time.Time) error }

// finish has Accept return the connections that were made already, and closes the listener when
// there are no more. A listener that is closed at once would reset them.
func (c *capped) finish() {
	defer c.Close()
	l, ok := c.Listener.(stopper)
	if !ok {
		return
	}
	switch l := l.(type) {
	case *net.TCPListener:
		_ = refuseNew(l) // without it, a connection may be reset
	case *net.UnixListener:
		l.SetUnlinkOnClose(false)        // by then it may be another server's
		_ = os.Remove(l.Addr().String()) // nobody finds it now
	}
	c.ending.Store(true)
	_ = l.SetDeadline(time.Now().Add(lastAccept)) // it fails only on a closed listener
	select {
	case <-c.closed:
	case <-time.After(finishTimeout):
	}
}

// acceptedLast returns the error of an Accept of a stopping listener. It closes the listener when
// no connection was accepted for lastAccept.
func (c *capped) acceptedLast(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.Listener.(stopper).SetDeadline(time.Now().Add(lastAccept)) // it fails only on a closed listener
		return err
	}
	c.Close()
	return net.ErrClosed
}

// Close also ends an Accept that waits for a connection to close. Services call it again.
func (c *capped) Close() (err error) {
	c.close.Do(func() {
		close(c.closed)
		err = c.Listener.Close()
	})
	return err
}

// cappedConn is a connection of a capped listener.
type cappedConn struct {
	net.Conn
	lifecycle
	owner   *capped      // set by Accept, like the next
	peer    netip.Prefix // see peerOf
	release sync.Once
	proven  atomic.Bool

	since time.Time     // set by capped.enter before the connection is shared
	place *list.Element // in capped.unprovenConns

	deadline sync.Mutex // is held while the read deadline is set, and guards the field below
	readBy   time.Time  // as SetReadDeadline has it; an unproven connection's deadline may be earlier
}

// Read returns io.EOF once the shutdown reply was written.
func (c *cappedConn) Read(b []byte) (int, error) {
	if c.unproven() {
		c.applyDeadline()
	}
	n, err := c.Conn.Read(b)
	if n > 0 && !c.advance(phaseReceiving) {
		return 0, io.EOF
	}
	return n, err
}

// SetReadDeadline sets the read deadline. That of an unproven connection is at most unprovenIdle
// after the last Read began.
func (c *cappedConn) SetReadDeadline(t time.Time) error {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	c.readBy = t
	return c.applyDeadlineLocked()
}

// SetDeadline sets the deadlines of Read and Write.
func (c *cappedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *cappedConn) applyDeadline() {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	_ = c.applyDeadlineLocked() // it fails only on a closed connection, as the next Read does
}

// applyDeadlineLocked requires c.deadline.
func (c *cappedConn) applyDeadlineLocked() error {
	by := c.readBy
	if c.unproven() {
		if idle := time.Now().Add(unprovenIdle); by.IsZero() || idle.Before(by) {
			by = idle
		}
	}
	return c.Conn.SetReadDeadline(by)
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
		c.leaveUnproven()
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

// unproven reports whether no request on the connection was authenticated.
func (c *cappedConn) unproven() bool { return !c.proven.Load() }

// markProven marks the connection as proven. The deadline of its reader is what it would have been.
func (c *cappedConn) markProven() {
	if c.leaveUnproven() {
		c.applyDeadline()
	}
}

// leaveUnproven takes the connection out of the listener's list of unproven ones. It returns false
// if it was not in there.
func (c *cappedConn) leaveUnproven() bool {
	if c.proven.Load() || c.proven.Swap(true) {
		return false
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.owner.unprovenConns.Remove(c.place)
	if c.owner.peers[c.peer]--; c.owner.peers[c.peer] == 0 {
		delete(c.owner.peers, c.peer)
	}
	return true
}
