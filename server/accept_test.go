package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A listener that stops returns all connections that were made, and then makes no more.
func TestFinishAcceptsWhatHasArrived(t *testing.T) {
	const conns = 50
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": "unix:" + filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			l, err := Listener{Address: address}.listen(t.Context(), 2*conns)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for range conns {
				conn, err := net.Dial(network, l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			accepted := make(chan int, 1)
			go func() {
				n := 0
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					defer conn.Close()
					n++
				}
				accepted <- n
			}()
			l.finish()
			if n := <-accepted; n != conns {
				t.Errorf("%d of %d connections were accepted", n, conns)
			}
			if conn, err := net.Dial(network, l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("another one: %v, %v; want that nobody listens", conn, err)
			}
		})
	}
}

// A socket that the next server has made meanwhile is not removed.
func TestFinishLeavesTheNextSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listener{Address: "unix:" + path}.listen(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	go l.Accept()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		l.finish()
	}()
	for _, err := os.Lstat(path); err == nil; _, err = os.Lstat(path) {
		runtime.Gosched()
	}
	next, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	<-finished
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// While a listener stops, the kernel makes no new connections that nobody would accept.
func TestRefuseNew(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has socket filters, with which a listener drops new connections")
	}
	l, err := Listener{Address: "127.0.0.1:0"}.listen(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := refuseNew(l.Listener.(*net.TCPListener)); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			conn.Close()
		}
		made <- err
	}()
	select {
	case err := <-made:
		t.Errorf("a connection was made, or refused: %v", err)
	case <-time.After(lastAccept): // the kernel has dropped the request
	}
	l.Close()
	if err := <-made; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the close: %v, want that nobody listens", err)
	}
}

// The first request of a connection is answered if it arrives before Shutdown has looked at the
// connection, also if its rest arrives later. After that it gets the shutdown reply.
func TestFirstRequestDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, p := serveBound(t)
		half, silent := newKeeper(t, p.dial()), newKeeper(t, p.dial())
		half.send(checkRequest[:20])
		synctest.Wait()
		b.accepts.finish()
		stopped := make(chan error, 1)
		go func() { stopped <- b.service.Shutdown(context.Background()) }()
		synctest.Wait()
		go func() { _, _ = io.WriteString(silent, checkRequest) }() // it may be answered before all of it was read
		silent.want(http.StatusRequestTimeout, true)
		silent.Close()
		half.send(checkRequest[20:])
		half.want(http.StatusOK, false) // the listeners' drain flag is not set here
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		half.Close()
	})
}

// An HTTP/2 connection without a request does not delay Shutdown.
func TestHTTP2WithoutARequestDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, p := serveBound(t)
		conn := p.dial()
		go io.Copy(io.Discard, bufio.NewReader(conn))
		const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.accepts.finish()
		began := time.Now()
		if err := b.service.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= readHeaderTimeout {
			t.Errorf("it took %v", took)
		}
		conn.Close()
	})
}
