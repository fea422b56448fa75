//go:build unix

package redisconn

import (
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// eagerConn is a connection whose reader looks again and again for a while, if it is to be
// eager, before it goes to sleep. A server that is near answers sooner than a processor
// that has gone to sleep is woken, and if dozens wait for that answer, it is worth the
// time. Meanwhile other goroutines have their turns.
//
// One that has looked in vain does not try again for a while: the server is too far away,
// or too slow.
type eagerConn struct {
	net.Conn
	raw   syscall.RawConn
	eager *atomic.Bool
	rest  int // reads until it tries again; its reader's
}

const (
	eagerFor  = 100 * time.Microsecond
	eagerRest = 15
)

// eagerly returns a connection that is eager as long as it is told to be.
func eagerly(conn net.Conn, eager *atomic.Bool) net.Conn {
	c, ok := conn.(syscall.Conn) // not with TLS
	if !ok || eager == nil {
		return conn
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return conn
	}
	return &eagerConn{Conn: conn, raw: raw, eager: eager}
}

func (c *eagerConn) Read(b []byte) (int, error) {
	if !c.eager.Load() {
		return c.Conn.Read(b)
	}
	if c.rest > 0 {
		c.rest--
		return c.Conn.Read(b)
	}
	for began := time.Now(); time.Since(began) < eagerFor; runtime.Gosched() {
		n, again := c.look(b)
		if n > 0 {
			return n, nil
		}
		if !again {
			return c.Conn.Read(b) // which says what is the matter
		}
	}
	c.rest = eagerRest
	return c.Conn.Read(b)
}

// look reads what has arrived. It returns true if nothing has, and might yet.
func (c *eagerConn) look(b []byte) (n int, again bool) {
	var err error
	if c.raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), b)
		return true // it does not wait
	}) != nil {
		return 0, false
	}
	return n, err == syscall.EAGAIN || err == syscall.EINTR
}
