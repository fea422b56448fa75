package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const checkRequest = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 34\r\n\r\n" + body

// keeper is a caller that keeps its connection.
type keeper struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func newKeeper(t *testing.T, conn net.Conn) *keeper { return &keeper{t, conn, bufio.NewReader(conn)} }

func (k *keeper) send(text string) {
	k.t.Helper()
	if _, err := io.WriteString(k, text); err != nil {
		k.t.Error(err)
	}
}

// want reads an answer.
func (k *keeper) want(status int, last bool) {
	k.t.Helper()
	resp, err := http.ReadResponse(k.in, nil)
	if err != nil {
		k.t.Error(err)
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != status || resp.Close != last {
		k.t.Errorf("%s, close %v, %v; want %d, close %v", resp.Status, resp.Close, err, status, last)
	}
}

// wantEnd reads until the server closes the connection.
func (k *keeper) wantEnd() {
	k.t.Helper()
	if rest, err := io.ReadAll(k.in); err != nil || len(rest) > 0 {
		k.t.Errorf("%q, %v, want the end", rest, err)
	}
}

// serveBound serves as a daemon does, without a network.
func serveBound(t *testing.T) (*Server, *bound, *pipes) {
	t.Helper()
	s := newServer(t, frozenTable(t))
	p := newPipes()
	l := newCapped(p, 10)
	b := &bound{"http", l, l, s.httpServer(s.handlers.http, maxHeaderBytes)}
	go b.serve()
	return s, b, p
}

// A request during the drain delay is answered with Connection: close. A request that is sent
// while its idle connection is being closed gets a 408.
func TestShutdownReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, p := serveBound(t)
		busy, idle := newKeeper(t, p.dial()), newKeeper(t, p.dial())
		for _, k := range []*keeper{busy, idle} {
			k.send(checkRequest)
			k.want(http.StatusOK, false)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- s.stop([]*bound{b}) }()
		time.Sleep(drainDelay - 1)
		busy.send(checkRequest)
		busy.want(http.StatusOK, true)
		busy.wantEnd()
		time.Sleep(2 * time.Nanosecond)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			idle.send(checkRequest)
		}()
		idle.want(http.StatusRequestTimeout, true)
		<-sent
		idle.Close()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		w := httptest.NewRecorder()
		s.handlers.http.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost/v1/check", strings.NewReader(body)))
		if want := `"remaining":96,`; !strings.Contains(w.Body.String(), want) { // this one and three that were answered
			t.Errorf("%s, want %s", w.Body, want)
		}
	})
}

// Pipelined requests are all answered, or none is processed.
func TestPipelinedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b, p := serveBound(t)
		k := newKeeper(t, p.dial())
		go k.send(strings.Repeat(checkRequest, 3))
		for range 3 {
			k.want(http.StatusOK, false)
		}
		k.Close()
		if err := b.service.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestShutdownReplyOverTLS is TestShutdownReply with TLS.
func TestShutdownReplyOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.sign("localhost", 1)
	srv := run(t, Config{
		Limiter: frozenTable(t),
		HTTP:    Listener{Address: "127.0.0.1:0", TLS: &TLS{CertFile: a.file("localhost.pem"), KeyFile: a.file("localhost.key")}},
	})
	conn, err := tls.Dial("tcp", srv.bound.HTTP.String(), a.client("").Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	k := newKeeper(t, conn)
	defer k.Close()
	k.send(checkRequest)
	k.want(http.StatusOK, false)
	srv.stop()
	k.want(http.StatusRequestTimeout, true)
	k.wantEnd()
	k.Close()
	if err := <-srv.done; err != nil {
		t.Error(err)
	}
}

// An HTTP/2 connection ends with GOAWAY, and net/http's client retries on another connection.
func TestHTTP2GetsNoShutdownReply(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t)})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	allowed(t, client, srv.url)
	srv.stop()
	if err := <-srv.done; err != nil {
		t.Error(err)
	}
	_, err := client.Post(srv.url+"/v1/check", "application/json", strings.NewReader(body))
	if !errors.Is(err, syscall.ECONNREFUSED) { // anything else would be about the connection that was
		t.Errorf("after the stop: %v, want that nobody listens", err)
	}
}

// deaf is a connection that ignores deadlines.
type deaf struct{ net.Conn }

func (deaf) SetDeadline(time.Time) error { return nil }

// TestLingersInTime: a connection is force-closed lingerFor after the shutdown reply, even if its
// deadline has no effect.
func TestLingersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go func() { _, _ = io.ReadFull(there, make([]byte, len(shutdownReply))) }() // and then it says nothing
		c := &cappedConn{Conn: deaf{here}, owner: newCapped(nil, 1)}
		c.proven.Store(true)
		c.phase.Store(phaseIdle)
		began := time.Now()
		c.end(c, func() {})
		if took := time.Since(began); took != lingerFor {
			t.Errorf("it took %v, want %v", took, lingerFor)
		}
	})
}
