package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// whyLoopback ends the refusal of an address that others could reach.
const whyLoopback = "anybody who reaches it could use it, because clients cannot be configured yet: " +
	"use localhost, 127.0.0.1 or [::1]"

// checkLoopback returns why address cannot be listened on. It asks no name
// server: the only name that it takes is localhost.
func checkLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("server: HTTP %q: must be host:port, such as %s", address, DefaultHTTP)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("server: HTTP %q: the port must be a number from 0 to 65535", address)
	}
	if strings.EqualFold(host, "localhost") {
		return nil
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return nil
	}
	return fmt.Errorf("server: HTTP %q: is not loopback; %s", address, whyLoopback)
}

// listen binds address, of which checkLoopback approved, and looks at what was
// bound: localhost is what the machine's hosts file says.
func listen(ctx context.Context, address string, maxConns int) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if bound, ok := l.Addr().(*net.TCPAddr); !ok || !bound.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("server: HTTP %q: is %v here, not loopback; %s", address, l.Addr(), whyLoopback)
	}
	return newCapped(l, maxConns), nil
}

// capped is a listener that has at most so many connections open. Accept waits
// for one of them to close; meanwhile the kernel keeps the callers in its queue.
type capped struct {
	net.Listener
	slots  chan struct{} // holds one token for each open connection
	closed chan struct{}
	close  sync.Once
}

func newCapped(l net.Listener, most int) *capped {
	return &capped{Listener: l, slots: make(chan struct{}, most), closed: make(chan struct{})}
}

func (c *capped) Accept() (net.Conn, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.closed:
		return nil, net.ErrClosed
	}
	conn, err := c.Listener.Accept()
	if err != nil {
		<-c.slots
		return nil, err
	}
	return &cappedConn{Conn: conn, slots: c.slots}, nil
}

// Close also ends an Accept that waits for a slot.
func (c *capped) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Listener.Close()
}

type cappedConn struct {
	net.Conn
	slots   chan struct{}
	release sync.Once
}

func (c *cappedConn) Close() error {
	defer c.release.Do(func() { <-c.slots })
	return c.Conn.Close()
}
