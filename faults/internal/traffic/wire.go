package traffic

import (
	"bufio"
	"context"
	"net"
	"syscall"
)

// wire is a connection of a protocol that is spoken by hand, so that each byte that was
// sent is known of.
type wire struct {
	traffic  *Traffic
	listener func(*Place) string
	conn     *net.TCPConn // nil if there is none
	in       *bufio.Reader
}

// ready connects, unless there is a connection that the daemon has not closed. Whoever
// looks before sending, as clients do that keep connections, cannot lose a call on one
// that was closed long ago.
func (w *wire) ready(n *Tally) bool {
	if w.conn != nil && w.ended() {
		n.Closed.Add(1)
		w.hangUp()
	}
	if w.conn == nil {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		conn, err := w.traffic.dial(ctx, w.listener)
		if err != nil {
			n.refuse(err)
			return false
		}
		w.conn, w.in = conn.(*net.TCPConn), bufio.NewReader(conn)
	}
	_ = w.conn.SetDeadline(deadline()) // an error means that it is closed, as the next write will say
	return true
}

// ended says whether the daemon has closed the connection, or sent something that was
// not requested.
func (w *wire) ended() bool {
	if w.in.Buffered() > 0 {
		return true
	}
	raw, err := w.conn.SyscallConn()
	if err != nil {
		return true
	}
	var problem error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, problem = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err != nil || problem != syscall.EAGAIN // nil: there is something, or the end
}

func (w *wire) hangUp() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}
