//go:build linux && (amd64 || arm64)

package socket

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// mostAtOnce bounds the bytes of one call, so that it returns soon.
const mostAtOnce = 64 << 10

// Direct returns c as a connection whose Read and Write are as the package comment says. It
// is c itself if that has no socket, or if the race detector is on: that takes sockets for
// a way to synchronize, and would not see these.
func Direct(c net.Conn) net.Conn {
	if racing {
		return c
	}
	return wrap(c)
}

func wrap(c net.Conn) net.Conn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	d := &direct{Conn: c, raw: raw}
	d.in.try, d.out.try = d.in.receive, d.out.send // once, since each use would allocate
	return d
}

// direct is a connection with a socket.
type direct struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// A transfer is what a Read or a Write has the kernel do.
type transfer struct {
	try func(fd uintptr) (done bool) // receive or send; set by wrap

	mu    sync.Mutex // held by a Read or a Write, and guards the fields below
	b     []byte
	n     int
	errno syscall.Errno
}

// receive and send return false if the kernel would have to wait.
func (t *transfer) receive(fd uintptr) bool {
	return t.call(syscall.SYS_RECVFROM, fd, syscall.MSG_DONTWAIT)
}

func (t *transfer) send(fd uintptr) bool {
	return t.call(syscall.SYS_SENDTO, fd, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
}

func (t *transfer) call(trap, fd, flags uintptr) bool {
	b := t.b[:min(len(t.b), mostAtOnce)]
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		t.n, t.errno = int(n), errno
		return errno != syscall.EAGAIN
	}
}

// Read is as [net.Conn] has it.
func (d *direct) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	t := &d.in
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = b
	err := d.raw.Read(t.try)
	t.b = nil
	switch {
	case err != nil:
		return 0, d.asIf("read", err)
	case t.errno != 0:
		return 0, d.failed("read", os.NewSyscallError("read", t.errno))
	case t.n == 0:
		return 0, io.EOF
	}
	return t.n, nil
}

// Write is as [net.Conn] has it.
func (d *direct) Write(b []byte) (sent int, err error) {
	t := &d.out
	t.mu.Lock()
	defer t.mu.Unlock()
	for sent < len(b) {
		t.b = b[sent:]
		err := d.raw.Write(t.try)
		t.b = nil
		switch {
		case err != nil:
			return sent, d.asIf("write", err)
		case t.errno != 0:
			return sent, d.failed("write", os.NewSyscallError("write", t.errno))
		}
		sent += t.n
	}
	return sent, nil
}

// CloseWrite closes the writing side of the connection.
func (d *direct) CloseWrite() error {
	if half, ok := d.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// asIf returns an error of the raw connection as if it were of the connection.
func (d *direct) asIf(op string, err error) error {
	if raw, ok := err.(*net.OpError); ok { // never wrapped
		return d.failed(op, raw.Err)
	}
	return err
}

// failed returns an error as package net does.
func (d *direct) failed(op string, err error) error {
	local := d.LocalAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: d.RemoteAddr(), Err: err}
}
