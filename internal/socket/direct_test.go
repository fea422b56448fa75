//go:build linux && (amd64 || arm64)

package socket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eachWay runs a test with a pair of connections, over TCP and a Unix socket, of which the first
// is as package net made it, or a direct one: nobody may see a difference.
func eachWay(t *testing.T, test func(t *testing.T, c, peer net.Conn)) {
	t.Helper()
	ways := map[string]func(net.Conn) net.Conn{"net": func(c net.Conn) net.Conn { return c }, "direct": wrap}
	for _, network := range []string{"tcp", "unix"} {
		for name, way := range ways {
			t.Run(network+" "+name, func(t *testing.T) {
				c, peer := pair(t, network)
				test(t, way(c), peer)
			})
		}
	}
}

// pair returns two ends of a connection.
func pair(t testing.TB, network string) (c, peer net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if peer, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return c, peer
}

// Megabytes go to the other end and come back as they were, in pieces of any size.
func TestEcho(t *testing.T) {
	eachWay(t, func(t *testing.T, c, peer net.Conn) {
		var all sync.WaitGroup
		all.Go(func() {
			_, _ = io.Copy(peer, peer)
			peer.Close()
		})
		sent := make([]byte, 8<<20)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range sent {
			sent[i] = byte(random.Uint32())
		}
		all.Go(func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(200_000))
				if got, err := c.Write(rest[:n]); got != n || err != nil {
					t.Errorf("wrote %d of %d bytes: %v", got, n, err)
					return
				}
				rest = rest[n:]
			}
			if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d of %d bytes came back, or others: %v", len(got), len(sent), err)
		}
		all.Wait()
	})
}

// Nothing is written and read at once, and the end is one.
func TestNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, c, peer net.Conn) {
		if n, err := c.Write(nil); n != 0 || err != nil {
			t.Errorf("a write of nothing: %d, %v", n, err)
		}
		if n, err := c.Read(nil); n != 0 || err != nil {
			t.Errorf("a read of nothing: %d, %v", n, err)
		}
		peer.Close()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("a read at the end: %d, %v", n, err)
		}
	})
}

// A deadline ends a Read and a Write, which may have written a part, and later ones work.
func TestDeadlines(t *testing.T) {
	eachWay(t, func(t *testing.T, c, peer net.Conn) {
		wantTimeout := func(what string, err error) {
			t.Helper()
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
		}
		soon := func() time.Time { return time.Now().Add(50 * time.Millisecond) }
		_ = c.SetDeadline(soon())
		_, err := c.Read(make([]byte, 1))
		wantTimeout("a read of what does not come", err)
		much := make([]byte, 64<<20)
		_ = c.SetDeadline(soon())
		n, err := c.Write(much)
		wantTimeout("a write that nobody reads", err)
		if n == 0 {
			t.Error("not even a part was written")
		}
		_ = c.SetDeadline(time.Time{})
		var all sync.WaitGroup
		all.Go(func() {
			if got, err := io.CopyN(io.Discard, peer, int64(n)); err != nil {
				t.Errorf("%d of %d bytes that were written have come: %v", got, n, err)
			}
			_, _ = peer.Write([]byte("x"))
		})
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("after the deadlines: %v", err)
		}
		all.Wait()
	})
}

// Close ends who reads and who writes.
func TestCloseWhileBusy(t *testing.T) {
	eachWay(t, func(t *testing.T, c, _ net.Conn) {
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read: %v", err)
			}
		})
		all.Go(func() {
			if _, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write: %v", err)
			}
		})
		time.Sleep(5 * time.Millisecond) // they are mostly waiting by then; the outcome is the same if not
		c.Close()
		all.Wait()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read afterwards: %v", err)
		}
	})
}

// A peer that is gone is an error that says who and how, in the words of package net.
func TestPeerGone(t *testing.T) {
	texts := map[string][]string{}
	for name, way := range map[string]func(net.Conn) net.Conn{"net": func(c net.Conn) net.Conn { return c }, "direct": wrap} {
		c, peer := pair(t, "tcp")
		c = way(c)
		_ = peer.(*net.TCPConn).SetLinger(0)
		peer.Close()
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: read: %v", name, err)
		}
		addrs := c.LocalAddr().String() + "->" + c.RemoteAddr().String()
		texts[name] = append(texts[name], string(bytes.ReplaceAll([]byte(err.Error()), []byte(addrs), nil)))
		_, err = c.Write([]byte("x"))
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%s: write: %v", name, err)
		}
		texts[name] = append(texts[name], string(bytes.ReplaceAll([]byte(err.Error()), []byte(addrs), nil)))
		c.Close()
		_, err = c.Read(make([]byte, 1))
		texts[name] = append(texts[name], string(bytes.ReplaceAll([]byte(err.Error()), []byte(addrs), nil)))
	}
	for i, want := range texts["net"] {
		if got := texts["direct"][i]; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

// What several goroutines write at once arrives whole, one after the other.
func TestWritersTakeTurns(t *testing.T) {
	eachWay(t, func(t *testing.T, c, peer net.Conn) {
		const size, times = 300_000, 10
		var all sync.WaitGroup
		for letter := range byte(4) {
			all.Go(func() {
				for range times {
					if _, err := c.Write(bytes.Repeat([]byte{'a' + letter}, size)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 4 * times {
			got := make([]byte, size)
			if _, err := io.ReadFull(peer, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, bytes.Repeat(got[:1], size)) {
				t.Error("two writes are mixed")
			}
		}
		all.Wait()
	})
}

// What has no socket stays what it is.
func TestNoSocket(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got := wrap(a); got != a {
		t.Errorf("a pipe became %T", got)
	}
}

func TestAllocatesNothing(t *testing.T) {
	c, peer := pair(t, "tcp")
	if c, peer = Direct(c), Direct(peer); racing {
		if _, ok := c.(*direct); ok {
			t.Error("it is direct, although the race detector is on")
		}
		return
	}
	b := make([]byte, 100)
	if n := testing.AllocsPerRun(1000, func() {
		_, _ = c.Write(b)
		_, _ = io.ReadFull(peer, b)
	}); n != 0 {
		t.Errorf("a write and a read make %v allocations", n)
	}
}
