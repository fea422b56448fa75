package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/httpapi"
)

// serveCapped serves on connections without a network, at most so many at once. All is over
// when the test ends.
func serveCapped(t *testing.T, most int, h http.HandlerFunc, clients ...Client) *pipes {
	t.Helper()
	p := newPipes()
	s := &Server{cfg: Config{Log: slog.New(slog.DiscardHandler)}}
	known, err := identity.NewClients(clients)
	if err != nil {
		t.Fatal(err)
	}
	s.state.Store(&state{http: &httpapi.State{State: &call.State{Authenticator: &identity.Authenticator{Clients: known}}}})
	hs := s.httpServer(h, maxHeaderBytes)
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(newCapped(p, most)) }()
	t.Cleanup(func() {
		hs.Close()
		<-ended
	})
	return p
}

func echo(w http.ResponseWriter, r *http.Request) {
	io.Copy(w, r.Body) // an error means that the caller is gone
}

const request = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"

// ask sends a request and returns its answer's status line, after at most d.
func ask(conn net.Conn, text string, d time.Duration) string {
	conn.SetDeadline(time.Now().Add(d))
	if _, err := io.WriteString(conn, text); err != nil {
		return err.Error()
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// Where no clients are configured, only connections without a complete request are replaced.
func TestUnprovenConnsAreReplaced(t *testing.T) {
	const ok, tooLate = "HTTP/1.1 200 OK", "i/o timeout"
	for _, tt := range []struct {
		name  string
		first string // what the one sends who has the only place
		want  string // what the next gets
	}{
		{"nothing", "", ok},
		{"half a head", request[:10], ok},
		{"half a body", request[:len(request)-1], ok},
		{"a request", request, tooLate},
		{"a request without a body", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", tooLate},
		{"a request and half of another", request + request[:10], tooLate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := serveCapped(t, 1, echo)
				first := p.dial()
				defer first.Close()
				go io.Copy(io.Discard, first)
				if _, err := io.WriteString(first, tt.first); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				second := p.dial()
				defer second.Close()
				if got := ask(second, request, readHeaderTimeout-time.Second); !strings.Contains(got, tt.want) {
					t.Errorf("the next one gets %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// Where clients are configured, only connections of theirs are kept.
func TestOnlyAuthenticationProves(t *testing.T) {
	const ok, tooLate = "HTTP/1.1 200 OK", "i/o timeout"
	known := token("shop")
	for _, tt := range []struct{ name, first, want string }{
		{"a health check", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", ok},
		{"no token", request, ok},
		{"a wrong token", withToken(token("wrong")[0].Reveal()), ok},
		{"a client's token", withToken(known[0].Reveal()), tooLate},
		{"a client's token and half a body", strings.TrimSuffix(withToken(known[0].Reveal()), "i"), tooLate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := serveCapped(t, 1, echo, Client{Name: "shop", Tokens: known})
				first := p.dial()
				defer first.Close()
				go io.Copy(io.Discard, first)
				if _, err := io.WriteString(first, tt.first); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				second := p.dial()
				defer second.Close()
				if got := ask(second, request, readHeaderTimeout-time.Second); !strings.Contains(got, tt.want) {
					t.Errorf("the next one gets %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// withToken returns a request with a token.
func withToken(text string) string {
	return strings.Replace(request, "\r\n\r\n", "\r\nAuthorization: Bearer "+text+"\r\n\r\n", 1)
}

// An unproven connection is closed when it is silent for unprovenIdle, also if no deadline was set
// or a later one. A proven one keeps its deadline.
func TestUnprovenConnsTimeOut(t *testing.T) {
	for _, tt := range []struct {
		name   string
		by     time.Duration // the deadline that is set; 0 means none
		proven bool
		want   time.Duration // of the read; 0 means that it does not end
	}{
		{"no deadline", 0, false, unprovenIdle},
		{"a later deadline", time.Hour, false, unprovenIdle},
		{"an earlier deadline", time.Second, false, time.Second},
		{"proven, no deadline", 0, true, 0},
		{"proven, a later deadline", time.Hour, true, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				dialed := make(chan net.Conn, 1)
				go func() { dialed <- p.dial() }()
				conn, err := newCapped(p, 10).Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				peer := <-dialed
				time.AfterFunc(2*time.Hour, func() { peer.Close() })
				began := time.Now()
				if tt.by > 0 {
					conn.SetReadDeadline(began.Add(tt.by))
				}
				if tt.proven {
					time.AfterFunc(time.Second, conn.(*cappedConn).markProven) // while it is read
				}
				_, err = conn.Read(make([]byte, 1))
				took := time.Since(began)
				if ended := errors.Is(err, os.ErrDeadlineExceeded); ended != (tt.want > 0) || ended && took != tt.want {
					t.Errorf("%v after %v, want the deadline after %v", err, took, tt.want)
				}
			})
		})
	}
}

// addressed is a connection from an address.
type addressed struct {
	fakeConn
	from net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }

// Unproven connections are at most half of all, and a quarter from one address, of which the oldest
// one makes way. Those of a Unix socket count together and have no maximum of their own.
func TestUnprovenConnsAreCapped(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	all := newCapped(nil, 16) // 8 unproven, 4 from one address
	var conns []*cappedConn
	add := func(n int, from net.Addr) {
		for range n {
			c := &cappedConn{Conn: addressed{from: from}, owner: all, peer: peerOf(from)}
			if _, ok := all.admit(c); !ok {
				t.Fatalf("the connection %d of %v has to wait", len(conns), from)
			}
			conns = append(conns, c)
		}
	}
	want := func(name string, open ...int) {
		t.Helper()
		var got []int
		for i, c := range conns {
			if c.unproven() {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, open) || all.open != len(open) || all.unprovenConns.Len() != len(open) {
			t.Errorf("%s: %v of %d are open, want %v", name, got, all.open, open)
		}
	}
	add(6, tcp("192.0.2.1"))
	want("one address", 2, 3, 4, 5)
	add(1, tcp("::ffff:192.0.2.1"))
	want("the same address", 3, 4, 5, 6)
	add(3, tcp("2001:db8::1"))
	add(2, tcp("2001:db8::2"))
	want("one IPv6 network", 3, 4, 5, 6, 8, 9, 10, 11)
	add(1, tcp("2001:db8:0:1::1"))
	want("the oldest of all", 4, 5, 6, 8, 9, 10, 11, 12)
	add(6, &net.UnixAddr{})
	want("a Unix socket", 11, 12, 13, 14, 15, 16, 17, 18)
	for _, c := range conns {
		c.Close()
	}
	if all.open != 0 || len(all.peers) != 0 {
		t.Errorf("%d connections and %d addresses are left", all.open, len(all.peers))
	}
}

// The oldest unproven connection is replaced, and not one with a pending request.
func TestPendingRequestIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := serveCapped(t, 2, func(w http.ResponseWriter, r *http.Request) {
			echo(w, r)
			<-release
		})
		asks := p.dial()
		defer asks.Close()
		answer := make(chan string, 1)
		go func() { answer <- ask(asks, request, time.Minute) }()
		synctest.Wait()
		silent := p.dial()
		defer silent.Close()
		gone := make(chan error, 1)
		go func() {
			_, err := silent.Read(make([]byte, 1))
			gone <- err
		}()
		next := p.dial()
		defer next.Close()
		if err := <-gone; err != io.EOF {
			t.Errorf("the silent one sees %v, want EOF", err)
		}
		close(release)
		if got := <-answer; got != "HTTP/1.1 200 OK" {
			t.Errorf("the one that waits gets %q", got)
		}
	})
}

// An HTTP/2 connection, too, is proven after its first request.
func TestHTTP2ConnsAreProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, dials := serveCapped(t, 1, echo), 0
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return p.dial(), nil
		}}
		defer transport.CloseIdleConnections()
		post := func() {
			t.Helper()
			resp, err := (&http.Client{Transport: transport}).Post("http://localhost/", "text/plain", strings.NewReader("hi"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hi" || resp.ProtoMajor != 2 {
				t.Fatalf("%q, %v, %s", body, err, resp.Proto)
			}
		}
		post()
		other := p.dial()
		defer other.Close()
		if got := ask(other, request, 2*unprovenTime); !strings.Contains(got, "timeout") {
			t.Errorf("another caller gets %q, although the only place is taken", got)
		}
		post()
		if dials != 1 {
			t.Errorf("%d connections, want 1", dials)
		}
	})
}
