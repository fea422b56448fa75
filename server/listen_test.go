package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener without a network: dial makes a connection.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

func TestConnectionsAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := newCapped(p, 2)
		accepted := make(chan net.Conn, 10)
		ended := make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				c.(*cappedConn).markProven() // so that it is not replaced
				accepted <- c
			}
		}()
		for range 4 {
			go func() {
				select {
				case p.conns <- fakeConn{}:
				case <-p.closed:
				}
			}()
		}
		synctest.Wait()
		if len(accepted) != 2 {
			t.Fatalf("%d connections accepted, want 2", len(accepted))
		}
		first := <-accepted
		first.Close()
		first.Close() // a second Close frees nothing
		synctest.Wait()
		if len(accepted) != 2 {
			t.Fatalf("%d connections open after one closed and two waited, want 2", len(accepted))
		}
		l.Close() // while Accept waits for a slot
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}

type fakeConn struct{ net.Conn }

func (fakeConn) Close() error                    { return nil }
func (fakeConn) RemoteAddr() net.Addr            { return &net.UnixAddr{} }
func (fakeConn) SetReadDeadline(time.Time) error { return nil }

func TestAcceptErrorFreesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which ends if the second Accept waits for ever
		p := newPipes()
		p.Close()
		l := newCapped(p, 1)
		for range 2 {
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
		}
	})
}

// TestListenLooksAtWhatWasBound stands for a hosts file that puts localhost
// somewhere else.
func TestListenLooksAtWhatWasBound(t *testing.T) {
	for _, tt := range []struct{ address, bound, problem string }{
		{"localhost:0", "192.0.2.1", "not loopback"},
		{"localhost:0", "127.0.0.1", ""},
		{"0.0.0.0:0", "0.0.0.0", ""},
	} {
		err := Listener{Address: tt.address}.checkBound(&net.TCPAddr{IP: net.ParseIP(tt.bound)})
		if tt.problem == "" && err != nil {
			t.Error(err)
		}
		if tt.problem != "" {
			wantError(t, err, tt.problem)
		}
	}
}

func TestRunTellsThatTheAddressIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := New(Config{HTTP: Listener{Address: l.Addr().String()}, Limiter: frozenTable(t)})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Run(context.Background()), "server: listen tcp", "address already in use")
}
