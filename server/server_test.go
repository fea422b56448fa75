package server

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// TestClientsShareOneKey lets 64 clients take as fast as they can while the
// clock stands still: exactly the burst is admitted.
func TestClientsShareOneKey(t *testing.T) {
	const clients, each, burst = 64, 5, 100
	srv := run(t, Config{Limiter: frozenTable(t)})
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	answers := make(chan bool, clients*each)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			<-begin
			for range each {
				answers <- allowed(t, client, srv.url)
			}
		})
	}
	close(begin)
	all.Wait()
	close(answers)
	admitted := 0
	for ok := range answers {
		if ok {
			admitted++
		}
	}
	if admitted != burst {
		t.Errorf("%d of %d admitted, want %d", admitted, clients*each, burst)
	}
}

// allowed takes one unit. It may be called by any goroutine.
func allowed(t *testing.T, client *http.Client, url string) bool {
	resp, err := client.Post(url+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return false
	}
	defer resp.Body.Close()
	var d struct{ Allowed bool }
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("status %s, error %v", resp.Status, err)
	}
	io.Copy(io.Discard, resp.Body)
	return d.Allowed
}

func TestStopLetsRequestsFinish(t *testing.T) {
	limiter, log := newGated(), watch("stopping")
	srv := run(t, Config{Limiter: limiter, Log: slog.New(log)})
	if got := readyz(srv.Server); got != http.StatusOK {
		t.Errorf("/readyz = %d while running, want 200", got)
	}
	answer := make(chan bool, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() { answer <- allowed(t, client, srv.url) }()
	<-limiter.entered
	srv.stop()
	<-log.seen
	if got := readyz(srv.Server); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz = %d while stopping, want 503", got)
	}
	select {
	case err := <-srv.done:
		t.Fatalf("Run returned %v with a request under way", err)
	default:
	}
	limiter.release <- struct{}{}
	if !<-answer {
		t.Error("the request under way was not answered")
	}
	if err := <-srv.done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(srv.url, "http://")); err == nil {
		t.Error("the port is still open")
	}
}

func readyz(s *Server) int {
	r := httptest.NewRequest("GET", "http://localhost/readyz", nil)
	w := httptest.NewRecorder()
	s.handlers.http.ServeHTTP(w, r)
	return w.Code
}

func TestStopCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newGated()
		s, hs, p := servePipes(t, limiter)
		conn := p.dial()
		defer conn.Close()
		io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 34\r\n\r\n"+body)
		<-limiter.entered
		began := time.Now()
		wantError(t, s.stop([]*bound{{"http", p, newCapped(p, 1), hs}}), "still running after 11s")
		if took := time.Since(began); took != drainDelay+stopTimeout {
			t.Errorf("stop took %v, want %v", took, drainDelay+stopTimeout)
		}
	})
}

// A caller with an open connection is served while the server drains, and asked
// to close.
func TestStopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hs, p := servePipes(t, frozenTable(t))
		conn := p.dial()
		defer conn.Close()
		answers := bufio.NewReader(conn)
		ask := func() *http.Response {
			t.Helper()
			io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			return resp
		}
		if ask().Close {
			t.Error("asked to close before the stop")
		}
		stopped := make(chan error, 1)
		go func() { stopped <- s.stop([]*bound{{"http", p, newCapped(p, 1), hs}}) }()
		time.Sleep(drainDelay / 2)
		if resp := ask(); resp.StatusCode != http.StatusServiceUnavailable || !resp.Close {
			t.Errorf("while draining: %s, close %v", resp.Status, resp.Close)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// TestSlowCallersAreCutOff sends too little, in virtual time.
func TestSlowCallersAreCutOff(t *testing.T) {
	tests := []struct {
		name, sent string
		after      time.Duration
	}{
		{"nothing", "", readHeaderTimeout},
		{"half a header", "POST /v1/check HTTP/1.1\r\nHost: local", readHeaderTimeout},
		{"half a body", "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 34\r\n\r\n{\"pol", readTimeout},
		{"nothing after a request", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", idleTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, hs, p := servePipes(t, frozenTable(t))
				defer hs.Close()
				conn := p.dial()
				defer conn.Close()
				began := time.Now()
				if _, err := io.WriteString(conn, tt.sent); err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, conn) // until the server hangs up
				if took := time.Since(began); took < tt.after || took > tt.after+time.Second {
					t.Errorf("cut off after %v, want %v", took, tt.after)
				}
			})
		})
	}
}

// TestSlowReadersAreCutOff asks and never reads the answer, in virtual time.
func TestSlowReadersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, frozenTable(t))
		hs, p := s.httpServer(s.handlers.http, maxHeaderBytes), newPipes()
		closed := make(chan time.Time, 1)
		hs.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed <- time.Now()
			}
		}
		go hs.Serve(p)
		defer hs.Close()
		conn := p.dial()
		defer conn.Close()
		began := time.Now()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if took := (<-closed).Sub(began); took < writeTimeout || took > writeTimeout+time.Second {
			t.Errorf("cut off after %v, want %v", took, writeTimeout)
		}
	})
}

func newServer(t *testing.T, limiter weir.Limiter) *Server {
	t.Helper()
	s, err := New(Config{Limiter: limiter, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// servePipes serves without a network, for synctest.
func servePipes(t *testing.T, limiter weir.Limiter) (*Server, *httpService, *pipes) {
	t.Helper()
	s := newServer(t, limiter)
	hs, p := s.httpServer(s.handlers.http, maxHeaderBytes), newPipes()
	go hs.Serve(p)
	return s, hs, p
}

func TestHeadersAreBounded(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t)})
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 128<<10)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %s, want 431", resp.Status)
	}
}
