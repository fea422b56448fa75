package server

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serveCapped serves on connections without a network, at most so many at once. All is over
// when the test ends.
func serveCapped(t *testing.T, most int, h http.HandlerFunc) *pipes {
	t.Helper()
	p := newPipes()
	s := &Server{cfg: Config{Log: slog.New(slog.DiscardHandler)}}
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

const request = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"

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

// At the maximum, only connections without a complete request are replaced.
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
				began := time.Now()
				second := p.dial()
				defer second.Close()
				if got := ask(second, request, readHeaderTimeout-time.Second); !strings.Contains(got, tt.want) {
					t.Errorf("the next one gets %q, want %q", got, tt.want)
				}
				if took := time.Since(began); tt.want == ok && took != unprovenTime {
					t.Errorf("the next one waits for %v, want %v", took, unprovenTime)
				}
			})
		})
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
