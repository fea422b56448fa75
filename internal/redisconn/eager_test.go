//go:build unix

package redisconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// tcpPair returns the two ends of a connection.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// Whether a reader is eager changes nothing of what it reads.
func TestEager(t *testing.T) {
	near, far := tcpPair(t)
	var eager atomic.Bool
	c := eagerly(near, &eager)
	go io.Copy(far, far) // an echo
	buf := make([]byte, 10)
	for i := range 100 {
		eager.Store(i%3 > 0)
		want := string(rune('a' + i%26))
		if _, err := io.WriteString(c, want); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != want {
			t.Fatalf("read %q, %v, want %q", buf[:n], err, want)
		}
	}
}

// An eager reader sleeps after a while, ends at its deadline, and hears of the end.
func TestEagerInVain(t *testing.T) {
	near, far := tcpPair(t)
	var eager atomic.Bool
	eager.Store(true)
	c := eagerly(near, &eager).(*eagerConn)
	buf := make([]byte, 10)
	c.SetReadDeadline(time.Now().Add(10 * eagerFor))
	if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}
	if c.rest != eagerRest {
		t.Errorf("after it has looked in vain it rests for %d reads, want %d", c.rest, eagerRest)
	}
	if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) || c.rest != eagerRest-1 {
		t.Errorf("the next: %v, rests for %d", err, c.rest)
	}
	c.rest = 0
	c.SetReadDeadline(time.Time{})
	io.WriteString(far, "x")
	far.Close()
	if n, err := c.Read(buf); n != 1 || err != nil || c.rest != 0 {
		t.Errorf("the last: %d, %v", n, err)
	}
	if n, err := c.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("the end: %d, %v", n, err)
	}
	c.Close()
	if _, err := c.Read(buf); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
